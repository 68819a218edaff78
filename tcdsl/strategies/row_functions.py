"""Functions of rows' results: loops of their own along the rows of a block, in vectors.

    for n:                                    for n / 32:
      for c: total += exp(x[n, c])              for n % 32:
      p[n] = log(total)             --->          for c: total[n] += exp(x[n, c])
                                                for n % 32, in vectors:
                                                  p[n] = log(total[n])

A *function* is a statement that computes one number a row, with a call in it, or is tied to one
that has.  In the rows' loop it is a scalar: a logarithm takes as long as those of sixteen rows.

Legal as any order of loops is (``schedule/nesting``): what a row keeps is kept for all rows of a
block.  Worth while where rows are so short that those of a block stay in the first-level cache,
since what reads a row before and after the function now does so a block later.
"""

from collections.abc import Sequence
from math import prod

from tcdsl.costmodel import cpu_thresholds
from tcdsl.costmodel.locality import Shape
from tcdsl.lang.comprehension import Call, walk
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.schedule import Axis

BLOCK_BYTES = cpu_thresholds.FUNCTION_ROWS_BYTES
LEAST_ROWS = cpu_thresholds.FUNCTION_ROWS
ALL_ROWS = -1  # are one block
APART = "functions of rows"  # the loops that functions share with one another alone


def functions_of(problem: Problem) -> tuple[str, ...]:
    """Return the functions of rows' results among the members; none without rows or calls."""
    axis = row_axis(problem)
    if axis is None:
        return ()
    shapes = problem.shapes
    found = [name for name in problem.group.members if _is_along(shapes[name], axis.get(name))]
    has_calls = any(_has_call(shapes[name]) for name in found)
    return tuple(found) if has_calls else ()


def row_axis(problem: Problem) -> Axis | None:
    """Return the axis along which rows are, and results of rows; None: there is none."""
    shapes = problem.shapes
    for axis in problem.group.axes:
        alone = [name for name, dim in axis.items() if _is_along(shapes[name], dim)]
        rows = [name for name, dim in axis.items() if _is_row(shapes[name], dim)]
        if alone and rows:
            return axis
    return None


def block_of(problem: Problem, axis: Axis) -> int:
    """Return how many rows a block has: ALL_ROWS, or 0 where they are too long or too few."""
    if any(problem.shapes[name].has_open for name in axis):
        return 0
    n_rows = max(problem.shapes[name].extents[dim] for name, dim in axis.items())
    row_bytes = sum(_row_bytes(problem, name, dim) for name, dim in axis.items())
    rows = BLOCK_BYTES // max(row_bytes, 1)
    if rows >= n_rows:
        return ALL_ROWS if n_rows >= LEAST_ROWS else 0
    return rows // LEAST_ROWS * LEAST_ROWS


def _row_bytes(problem: Problem, name: str, dim: int) -> int:
    """Return the bytes that *name* stores or loads of a row, about."""
    shape = problem.shapes[name]
    others: Sequence[int] = [n for d, n in enumerate(shape.extents) if d != dim]
    accesses = (*shape.statement.writes, *shape.statement.reads)
    widest = max(problem.scop.arrays[access.array].dtype.size_bytes for access in accesses)
    return widest * prod(others) if others else 0


def _is_along(shape: Shape, dim: int | None) -> bool:
    """Return whether the statement computes one number for each value of *dim* alone."""
    statement = shape.statement
    return (
        shape.order == (dim,)
        and shape.roles[0] is Role.PARALLEL
        and statement.kind is Kind.ASSIGN
        and statement.write.is_exact
        and not shape.is_ragged(0)
    )


def _is_row(shape: Shape, dim: int) -> bool:
    """Return whether the statement has a loop inside the one over *dim*."""
    is_outer = len(shape.order) > 1 and shape.order[0] == dim
    return (
        is_outer
        and shape.roles[dim] is Role.PARALLEL
        and not any(map(shape.is_ragged, shape.order))
    )


def _has_call(shape: Shape) -> bool:
    value = shape.statement.value
    return value is not None and any(isinstance(node, Call) for node in walk(value))
