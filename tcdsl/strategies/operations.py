"""How much statements have to do, and along which axes they may share it."""

from collections.abc import Mapping
from weakref import WeakKeyDictionary

from tcdsl.costmodel import cpu_thresholds
from tcdsl.costmodel.locality import Shape
from tcdsl.lang.comprehension import Call, walk
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Statement
from tcdsl.rewrites.scop.rfactor import why_not_rfactored

PARALLEL_WORK = cpu_thresholds.FORKED_OPERATIONS


def work_of(shape: Shape) -> int:
    """Return the operations of a statement, a function call counting for sixteen.

    Where sizes are open it is enough for threads: whether it is, the call decides.
    """
    work = shape.instances * operations_of(shape.statement)
    return max(work, PARALLEL_WORK) if shape.has_open else work


def operations_of(statement: Statement) -> int:
    """Return the operations of one instance."""
    if (known := _known.get(statement)) is None:
        nodes = () if statement.value is None else walk(statement.value)
        known = _known[statement] = 2 + 16 * sum(isinstance(node, Call) for node in nodes)
    return known


_known: WeakKeyDictionary[Statement, int] = WeakKeyDictionary()


def is_chunkable(axis: Mapping[str, int], shapes: Mapping[str, Shape]) -> bool:
    """Return whether every member runs in parallel along *axis*, or has partials along it."""
    for name, dim in axis.items():
        shape = shapes[name]
        if shape.roles[dim] is Role.PARALLEL:
            continue
        if shape.roles[dim] is not Role.REDUCED or why_not_rfactored(shape.statement):
            return False
    return True
