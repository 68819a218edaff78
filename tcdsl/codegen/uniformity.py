"""Which barriers of a kernel not all threads of a block would meet: there must be none.

    const int c1 = (int)threadIdx.x;         c1 differs along x,
    for (int c2 = 0; c2 <= c1; c2++) {       and so does how often this loop runs:
      __syncthreads();                       refused, for threads would wait for ever

This is read from the printed text, because isl decides what stands in which loop and guard.  A
number differs along the axes along which anything in it differs; what is read from memory that the
kernel changes differs along all, and so does every name that the text does not declare.

``tc_fold_x`` over a part of a warp waits for the threads of its own row, all else for the block.
``tc_last_block`` waits for the block too, all of which gets one answer.  What has a cluster in
its name waits for all blocks of the cluster, and so do folds along xc and yc: they differ in
blockIdx.z.
"""

import re
from collections.abc import Collection, Mapping, Sequence

from tcdsl.codegen.tidy import Block, parsed
from tcdsl.costmodel.chip import WARP

_AXES = "xyzc"  # c: the rank in a cluster
_EVERYWHERE = frozenset(_AXES)
_BLOCK = frozenset("xyz")
_NOWHERE: frozenset[str] = frozenset()

# The call of what waits for other threads; of a fold, its axes and the threads along x.
_COLLECTIVE = re.compile(
    r"\b(__syncthreads|tc_last_block|tc_cluster_sync)\("
    r"|\b(tc_(?:arg)?fold_(\w+))<\w+, (\d+), "
)
_NUMBER = re.compile(r"const (?:int|int64_t|bool) \w+ = ")
_VARIABLE = re.compile(r"\b(\w+) = ")
_THREAD = re.compile(r"\bthreadIdx\.([xyz])")
_RANK = re.compile(r"\bblockIdx\.z\b")
_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_SAME_EVERYWHERE = (
    "if", "for", "const", "bool", "int", "int64_t", "threadIdx", "blockIdx", "gridDim",
    "tc_floordiv", "tc_imax", "tc_imin", "tc_last_block", "tcdsl_first",
)  # fmt: skip

# Functions of their arguments alone, as bounds that are read from memory are made of.
_PURE = re.compile(r"tc_(changing|(cast|add|sub|mul|div|mod|min|max)_\w+)|tcdsl_clamp|uint64_t")

# { a number's name, or the head of a loop or guard -> the axes along which it differs }
_Axes = Mapping[str, frozenset[str]]


def why_not_uniform(
    lines: Sequence[str], block: Sequence[int], uniform: Collection[str] = ()
) -> str | None:
    """Return which barrier in the body *lines* not all threads would meet, or None.

    :arg block: the threads of a block along x, y, z, and the blocks of a cluster.
    :arg uniform: names that the body does not declare: numbers among the kernel's parameters, and
        arrays that it does not change.
    """
    several = frozenset(axis for axis, width in zip(_AXES, block, strict=False) if width > 1)
    known = dict.fromkeys((*_SAME_EVERYWHERE, *uniform), _NOWHERE)
    return _why_not(parsed(lines), known, {}, several)


def _why_not(block: Block, known: _Axes, around: _Axes, several: frozenset[str]) -> str | None:
    """Return what is wrong in *block*, which is inside the loops and guards *around*."""
    known = dict(known)
    head = ""
    for child in block.children:
        if isinstance(child, str):
            reason = _why_not_here(child, known, around, several)
            if _NUMBER.match(child):
                known |= dict.fromkeys(_VARIABLE.findall(child), _differs(child, known))
        else:
            # What an else asks is what the if before it asked.
            head = head if child.head.startswith("else") else child.head
            axes = _differs(head, known)
            inside = {**known, **dict.fromkeys(_VARIABLE.findall(head), axes)}
            reason = _why_not_here(child.head, known, around, several) or _why_not(
                child, inside, {**around, head: axes}, several
            )
        if reason is not None:
            return reason
    return None


def _why_not_here(line: str, known: _Axes, around: _Axes, several: frozenset[str]) -> str | None:
    for call in _COLLECTIVE.finditer(line):
        if line.startswith(("if ", "for ")):
            head = line[: call.start()]
            around = {**around, head: _differs(head, known)}
        needed = several & _taking_part(call[1] or "", call[3] or "", int(call[4] or 0))
        for head, axes in around.items():
            if axes & needed:
                return f"not all threads of a block meet {call[1] or call[2]} in {head!r}"
    return None


def _taking_part(function: str, way: str, width: int) -> frozenset[str]:
    """Return the axes whose threads wait for one another in *function*.

    :arg way: of a fold, which has *width* threads along x.
    """
    if way == "x" and width <= WARP and WARP % width == 0:
        return frozenset("x")
    return _EVERYWHERE if "c" in way or "cluster" in function else _BLOCK


def _differs(text: str, known: _Axes) -> frozenset[str]:
    """Return the axes along which threads may have different values of what *text* says."""
    own = _VARIABLE.findall(text)
    names = [n for n in _NAME.findall(text) if n not in own and not _PURE.fullmatch(n)]
    own_axes = [*_THREAD.findall(text), *("c" for _ in _RANK.findall(text))]
    return frozenset(own_axes).union(*(known.get(n, _EVERYWHERE) for n in names))
