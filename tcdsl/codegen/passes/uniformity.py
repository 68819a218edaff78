"""Which barriers of a kernel not all threads of a block would meet: there must be none.

    const int c1 = (int)threadIdx.x;         c1 differs along x,
    for (int c2 = 0; c2 <= c1; c2++) {       and so does how often this loop runs:
      __syncthreads();                       refused, for threads would wait for ever

This is asked of the finished nodes, because isl decides what stands in which loop and guard.  A
number differs along the axes along which anything in it differs; what is read from memory that the
kernel changes differs along all, and so does every name that the nodes do not declare.  Which
threads wait for one another in a call, the call says; blocks of a cluster differ in blockIdx.z, and
where all blocks wait for one another none may stay away.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from tcdsl.codegen.ast.nodes import (
    Binary,
    Call,
    Choice,
    Code,
    Declare,
    For,
    If,
    Literal,
    Member,
    Name,
    Node,
    Type,
)
from tcdsl.codegen.ast.text import head, text
from tcdsl.codegen.ast.walk import expressions, inner, pieces, walk

_AXES = "xyzc"  # c: the rank in a cluster
_GRID = "g"  # along which blocks differ
_ROLE = "r"  # along which roles differ: what all threads of a block meet is in none
_ALL_THREADS = frozenset("xyz")
_EVERYWHERE = frozenset(_AXES + _GRID)
_NOWHERE: frozenset[str] = frozenset()
_NUMBERS = ("int", "int64_t", "bool")
_THREADS = {("threadIdx", axis): frozenset(axis) for axis in "xyz"}
_THREADS |= {("blockIdx", axis): frozenset("cg" if axis == "z" else "g") for axis in "xyz"}
_SAME_EVERYWHERE = ("threadIdx", "blockIdx", "gridDim")

# Functions of their arguments alone, as bounds that are read from memory are made of.
_PURE = ("tc_floordiv", "tc_imax", "tc_imin", "tcdsl_first", "tcdsl_clamp", "tc_changing")
_PURE_KINDS = tuple(
    f"tc_{kind}_" for kind in ("cast", "add", "sub", "mul", "div", "mod", "min", "max")
)

# { a number's name, or the head of a loop or guard -> the axes along which it differs }
_Axes = Mapping[str, frozenset[str]]


def why_not_uniform(
    nodes: Sequence[Node], block: Sequence[int], uniform: Collection[str] = ()
) -> str | None:
    """Return which barrier in the body *nodes* not all threads would meet, or None.

    :arg block: the threads of a block along x, y, z, and the blocks of a cluster.
    :arg uniform: names that the body does not declare: numbers among the kernel's parameters, and
        arrays that it does not change.
    """
    several = frozenset(axis for axis, width in zip(_AXES, block, strict=False) if width > 1)
    several |= {_ROLE, _GRID}
    known = dict.fromkeys((*_SAME_EVERYWHERE, *uniform), _NOWHERE)
    return next(_reasons(nodes, known, {}, several), None)


def _reasons(
    nodes: Sequence[Node], known: _Axes, around: _Axes, several: frozenset[str]
) -> Iterator[str]:
    """Yield what is wrong in *nodes*, which are inside the loops and guards *around*."""
    known = dict(known)
    for node in nodes:
        for code in expressions(node):
            yield from _reasons_in(code, known, around, several)
        inside = known
        match node:
            case Declare(type=Type(name), variables=variables, before="const "):
                if name in _NUMBERS:
                    values = [v.value for v in variables if v.value is not None]
                    known |= dict.fromkeys((v.name for v in variables), _differs(values, known))
            case If(condition=condition, is_role=is_role):
                axes = frozenset(_ROLE) if is_role else _differs([condition], known)
                around_body = {**around, f"{head(node)} {{": axes}
                yield from _reasons(inner(node), inside, around_body, several)
            case For(variable=variable, first=first, condition=condition):
                bounds = [first, condition]
                axes = _differs(bounds, {**known, variable: _NOWHERE})
                around_body = {**around, f"{head(node)} {{": axes}
                inside = {**known, variable: axes}
                yield from _reasons(inner(node), inside, around_body, several)
            case _:
                yield from _reasons(inner(node), inside, around, several)


def _reasons_in(
    code: Code | Type, known: _Axes, around: _Axes, several: frozenset[str]
) -> Iterator[str]:
    """Yield what is wrong in *code*, parts of which other parts may guard."""
    stack: list[tuple[Code | Type, _Axes]] = [(code, around)]
    while stack:
        part, guards = stack.pop()
        match part:
            case Name() | Literal() | Type():
                continue
            case Binary(op="&&" | "||", left=left, right=right):
                stack += [(left, guards), (right, _guarded(guards, left, known))]
                continue
            case Choice(condition, then, otherwise):
                both = _guarded(guards, condition, known)
                stack += [(condition, guards), (then, both), (otherwise, both)]
                continue
            case Call(function, participants=participants) if participants:
                meet = frozenset(participants)
                meet |= frozenset(_ROLE) if meet >= _ALL_THREADS else _NOWHERE
                for guard, axes in guards.items():
                    if axes & several & meet:
                        yield f"not all threads of a block meet {function} in {guard!r}"
        stack += [(piece, guards) for piece in pieces(part) if not isinstance(piece, str)]


def _guarded(around: _Axes, condition: Code, known: _Axes) -> _Axes:
    axes = _differs([condition], known)
    return {**around, text(condition): axes} if axes else around


def _differs(codes: Sequence[Code], known: _Axes) -> frozenset[str]:
    """Return the axes along which threads may have different values of any of *codes*."""
    axes = _NOWHERE
    for part in (part for code in codes for part in walk(code)):
        match part:
            case Member(Name(structure), field):
                axes |= _THREADS.get((structure, field), _NOWHERE)
            case Name(name):
                axes |= known.get(name, _EVERYWHERE)
            case Call(function) if not _is_pure(function):
                axes |= _EVERYWHERE
    return axes


def _is_pure(function: str) -> bool:
    # Whether a block is the last one, all of its threads are told alike.
    return function in (*_PURE, "tc_last_block") or function.startswith(_PURE_KINDS)
