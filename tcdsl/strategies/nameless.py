"""What statements are but for the names of indices and arrays: those alike take as long.

h1(n,k) = a1(n,k) * c0(n,k)    --->    [0, 1]  0(#0,#1) = 1(#0,#1) * 2(#0,#1)    h1, a1, c0
h2(m,l) = a2(m,l) * c1(m,l)    --->    the same                                  h2, a2, c1
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple
from weakref import WeakKeyDictionary

import islpy as isl

from tcdsl.lang.comprehension import Binary, Call, Const, Expr, Index, Load, Size, Unary, walk
from tcdsl.poly.scop import Access, Statement


class Nameless(NamedTuple):
    """A statement in numbers of indices and *arrays*, as a text: it is compared and hashed fast."""

    text: str
    arrays: tuple[str, ...]  # in the order in which it mentions them


_known: WeakKeyDictionary[Statement, Nameless] = WeakKeyDictionary()  # rewrites leave most


def without_names(statement: Statement) -> Nameless:
    """Return *statement*, which has no open sizes, in numbers."""
    if (known := _known.get(statement)) is None:
        known = _known[statement] = _without_names(statement)
    return known


def _without_names(s: Statement) -> Nameless:
    indices = {name: number for number, name in enumerate(s.indices)}
    arrays: dict[str, int] = {}
    domain = s.domain.reset_tuple_id()
    for number in range(len(s.indices)):
        domain = domain.set_dim_name(isl.dim_type.set, number, f"i{number}")
    parts: list[object] = [
        domain, s.kind, s.n_left, s.reduction, s.lanes, s.arg_origin, s.is_atomic, s.library,
        s.role, s.event, s.accumulation, [dim for dim, _ in s.checked],
    ]  # fmt: skip
    for access in (s.write, *([s.companion] if s.companion else []), *s.reads):
        parts += _of_access(access, indices, arrays)
    loads = (load for load in s.checked_loads if load is not None)
    value = () if s.value is None else (s.value,)
    for expr in (*value, *s.conditions, *(subscript for _, subscript in s.checked), *loads):
        parts += [";", *_of_expr(expr, indices, arrays)]
    return Nameless(" ".join(map(str, parts)), tuple(arrays))


def _of_access(
    access: Access, indices: Mapping[str, int], arrays: dict[str, int]
) -> Iterator[object]:
    yield arrays.setdefault(access.array, len(arrays))
    yield sorted(access.inexact)
    for subscript in access.subscripts:
        yield ","
        yield from _of_expr(subscript, indices, arrays)


def _of_expr(expr: Expr, indices: Mapping[str, int], arrays: dict[str, int]) -> Iterator[object]:
    """Yield what *expr* is: parents first, each with as many operands as it has."""
    for node in walk(expr):
        match node:
            case Index(name=name):
                yield f"#{indices.get(name, name)}"
            case Load(tensor=name, subscripts=operands):
                yield f"{arrays.setdefault(name, len(arrays))}:{len(operands)}"
            case Size(name=name):
                yield name
            case Const(value=value):
                yield repr(value)
            case Unary(op=op) | Binary(op=op):
                yield f"{type(node).__name__}{op}"
            case Call(function=function, args=operands):
                yield f"{function}:{len(operands)}"
            case _:
                yield type(node).__name__
        yield node.dtype
