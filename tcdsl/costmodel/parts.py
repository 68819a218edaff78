"""Which elements of one array several accesses have in common, as boxes of constants.

    p(b, 0, n)   p(b, 1, n)        two parts, each with elements of its own
    x(i)   x(i + 1)   x(i + 2)     one: taps of a window have most of theirs in common
    q(r, c)   q(r, c + D / 2)      two, if c < D / 2: rotated halves of a row

An access has an interval for each subscript that interval arithmetic bounds; accesses are apart if
their intervals of some subscript are.  Of those that are not, the largest counts.
"""

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from tcdsl.costmodel.locality import Shape
from tcdsl.lang.comprehension import Binary, Cast, Const, Expr, Index, Unary, fold

Interval = tuple[int, int] | None  # least and greatest value; None: not known
Box = tuple[Interval, ...]  # of each subscript

_boxes: WeakKeyDictionary[Shape, tuple[Box, ...]] = WeakKeyDictionary()


def boxes_of(shape: Shape) -> tuple[Box, ...]:
    """Return the box of each access of a statement, writes first."""
    if (known := _boxes.get(shape)) is None:
        statement = shape.statement
        ends = zip(statement.indices, shape.lower, shape.extents, strict=True)
        values = {index: (low, low + extent - 1) for index, low, extent in ends}
        accesses = (*statement.writes, *statement.reads)
        known = _boxes[shape] = tuple(
            [tuple([_interval(s, values) for s in access.subscripts]) for access in accesses]
        )
    return known


def count_apart(accesses: Iterable[tuple[Box, float]]) -> float:
    """Return how much accesses of one array touch, each with a box and what is in it."""
    parts: list[tuple[list[Box], float]] = []
    for box, size in accesses:
        common = [part for part in parts if any(_meet(box, other) for other in part[0])]
        parts = [part for part in parts if part not in common]
        boxes = [box, *(other for found, _ in common for other in found)]
        parts.append((boxes, max(size, sum(own for _, own in common))))
    return sum(size for _, size in parts)


def _meet(one: Box, other: Box) -> bool:
    return all(
        a is None or b is None or (a[0] <= b[1] and b[0] <= a[1])
        for a, b in zip(one, other, strict=True)
    )


def _interval(subscript: Expr, values: dict[str, tuple[int, int]]) -> Interval:
    return fold(subscript, lambda node, operands: _of_node(node, operands, values))


def _of_node(
    node: Expr, operands: tuple[Interval, ...], values: dict[str, tuple[int, int]]
) -> Interval:
    """Return the interval of *node* of those of its operands."""
    known = [operand for operand in operands if operand is not None]
    if len(known) < len(operands):
        return None
    match node:
        case Const(value=value):
            return None if node.dtype.is_float else (int(value), int(value))
        case Index(name=name):
            return values.get(name)
        case Cast():
            return known[0]
        case Unary(op="-"):
            return -known[0][1], -known[0][0]
        case Binary(op="+"):
            return known[0][0] + known[1][0], known[0][1] + known[1][1]
        case Binary(op="-"):
            return known[0][0] - known[1][1], known[0][1] - known[1][0]
        case Binary(op="*"):
            ends = [a * b for a in known[0] for b in known[1]]
            return min(ends), max(ends)
        case _:
            return None
