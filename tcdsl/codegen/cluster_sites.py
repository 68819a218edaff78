"""Folds of clusters that a kernel calls once, one after the other: each gets a number of its own.

    tc_cluster_begin();                           tc_cluster_begin<2>();
    tc_fold_xc<tc_op_max_f32, 512, 1, 4>(a)  -->  tc_fold_xc<tc_op_max_f32, 512, 1, 4, 0>(a)
    tc_fold_xc<tc_op_add_f32, 512, 1, 4>(b)       tc_fold_xc<tc_op_add_f32, 512, 1, 4, 1>(b)

A fold with a number has slots of its own, into which nobody writes twice, so that it waits for what
is written and for nothing else (device library, part "cluster").  All folds of a kernel have one or
none has: no fold may be within a loop or guard, of a type below 4 bytes, or beside a barrier of the
cluster.  Nor has one fold alone: on an H200 rmsnorm of (4096, 65536) float32 takes 613 us with a
number and 565 without, for a reason not found (bfloat16: 286 and 291); kernels with two folds gain
4 to 20 %.
"""

import re
from collections.abc import Iterator, Sequence

from tcdsl.codegen.lines import like
from tcdsl.codegen.tidy import Block, parsed

MOST_SITES = 16  # what the device library has room for
_FOLD = re.compile(r"\btc_(arg)?fold_([xy])c<(\w+), (\d+), (\d+), (\d+)(?=>)")
_VECTOR = re.compile(r">\(tc_vec<\w+, (\d+)>")
_SMALL = re.compile(r"^tc_op_\w+_(b|[iu]8|[iu]16)$")
_PAIR_BYTES = 16
_SIZES = {"c64": 16, "f64": 8, "i64": 8, "u64": 8, "c32": 8}  # of a value, others have 4 bytes
_WARP = 32


def with_sites(lines: Sequence[str], room: int = 48 << 10) -> tuple[list[str], int]:
    """Return *lines* with their folds numbered, and how many there are: 0 if none may have one.

    :arg room: bytes of shared memory for all of them.
    """
    calls = list(_folds(parsed(lines), is_plain=True))
    is_plain = all(calls) and 1 < len(calls) <= MOST_SITES
    if not is_plain or any("tc_cluster_sync" in line for line in lines):
        return list(lines), 0
    if any(_SMALL.match(call[3]) for call in calls if call) or sum(map(_bytes, calls)) > room:
        return list(lines), 0
    numbers = iter(range(len(calls)))
    return [
        like(line, _FOLD.sub(lambda call: f"{call[0]}, {next(numbers)}", line)) for line in lines
    ], len(calls)


def _folds(block: Block, *, is_plain: bool) -> Iterator[re.Match[str] | None]:
    """Yield the call of each fold in *block*, None for one that is not *plain*ly called once."""
    for child in block.children:
        if isinstance(child, Block):
            yield from _folds(child, is_plain=is_plain and child.is_bare)
        else:
            yield from (call if is_plain else None for call in _FOLD.finditer(child))


def _bytes(call: re.Match[str] | None) -> int:
    """Return the shared memory of one fold: its slots, and of a column what its block folds."""
    assert call is not None, "only plain calls are asked"
    vector = _VECTOR.match(call.string, call.end())
    size = _PAIR_BYTES if call[1] else _SIZES.get(call[3].rpartition("_")[2], 4)
    size *= int(vector[1]) if vector else 1
    x, y, blocks = int(call[4]), int(call[5]), int(call[6])
    return size * (blocks * x // _WARP if call[2] == "x" else (y + blocks) * x)
