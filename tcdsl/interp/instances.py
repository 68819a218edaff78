"""Sets of instances, and in which order those of a statement have to run."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from tcdsl.interp.arithmetic import Array
from tcdsl.lang.comprehension import (
    Binary,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Size,
    Statement,
    Unary,
    walk,
)
from tcdsl.records import dataclass

Box = tuple[range, ...]


@dataclass(frozen=True, slots=True)
class Instances:
    """A box of instances: *env* has a broadcastable grid of values for each index.

    *active* says where the instances run, or where a guarded expression is evaluated at all.
    """

    env: Mapping[str, Array]
    shape: tuple[int, ...]
    active: Array

    def where(self, condition: Array) -> "Instances":
        return replace(self, active=self.active & condition)

    def leading(self, indices: tuple[str, ...], lead: int) -> "Instances":
        """Return the first *lead* axes, which *indices* alone move along."""
        after = len(self.shape) - lead
        env = {
            v: self.env[v].reshape(self.env[v].shape[: self.env[v].ndim - after]) for v in indices
        }
        return Instances(env, self.shape[:lead], np.ones((), bool))


def boxes(ranges: Box, limit: int) -> Iterator[Box]:
    """Yield *ranges* cut into boxes of at most *limit* elements, in lexicographic order."""
    size = math.prod(map(len, ranges))
    if size <= limit:
        if size:
            yield ranges
        return
    # Cutting the outermost loop that has a choice keeps the boxes in lexicographic order.
    d = next(d for d, r in enumerate(ranges) if len(r) > 1)
    middle = len(ranges[d]) // 2
    for part in (ranges[d][:middle], ranges[d][middle:]):
        yield from boxes((*ranges[:d], part, *ranges[d + 1 :]), limit)


def grid(indices: tuple[str, ...], box: Box) -> Instances:
    """Return all instances of *box*."""
    env = {}
    for d, (index, r) in enumerate(zip(indices, box, strict=True)):
        values = np.arange(r.start, r.stop, dtype=np.int64)
        env[index] = values.reshape(-1, *(1 for _ in box[d + 1 :]))
    return Instances(env, tuple(map(len, box)), np.ones((), bool))


def corners(indices: tuple[str, ...], box: Box, e: Expr) -> Instances:
    """Return instances of *box* among which *e*, if it is affine, takes its extreme values.

    A remainder may take them anywhere.  An empty range has the corners start and stop - 1.
    """
    if any(isinstance(node, Binary) and node.op == "%" for node in walk(e)) and all(box):
        return grid(indices, box)
    ends = grid(indices, tuple(range(2) for _ in box))
    env = {
        index: np.where(ends.env[index] == 0, r.start, r.stop - 1)
        for index, r in zip(indices, box, strict=True)
    }
    return replace(ends, env=env, active=np.zeros((), bool))


def is_sequential(st: Statement) -> bool:
    """Return whether instances must run one by one: one may read what another one writes."""
    roots = (st.value, *st.conditions, *st.subscripts)
    bounds = (e for b in (*st.explicit, *st.data_ranges) for e in (b.lower, b.upper))
    nodes = [node for root in (*roots, *bounds) for node in walk(root)]
    own = [node for node in nodes if isinstance(node, Load) and node.tensor == st.target]
    if any(node.subscripts != st.subscripts for node in own):
        return True
    return bool(own) and not is_injective(st)


def is_injective(st: Statement) -> bool:
    """Return whether different left-hand instances surely write different elements.

    They do if each left-hand index has a subscript ``a i + b`` of its own, a not 0.
    """
    alone = set()
    for subscript in st.subscripts:
        indices = [node.name for node in walk(subscript) if isinstance(node, Index)]
        if len(indices) == 1 and _is_monotone(subscript):
            alone.add(indices[0])
    return alone >= set(st.left)


def _is_monotone(e: Expr) -> bool:
    match e:
        case Index() | Size() | Const():
            return True
        case Binary(op="+" | "-", left=left, right=right):
            return _is_monotone(left) and _is_monotone(right)
        case Binary(op="*", left=Const(value=factor), right=rest):
            return factor != 0 and _is_monotone(rest)
        case Binary(op="*", left=rest, right=Const(value=factor)):
            return factor != 0 and _is_monotone(rest)
        case Unary(op="-", operand=operand):
            return _is_monotone(operand)
        case Cast(operand=operand, dtype=dtype):  # an index is an int32: a wider type keeps it
            return dtype.is_integer and dtype.size_bytes >= 4 and _is_monotone(operand)
        case _:
            return False
