"""Threads.x along the innermost shared axis, threads.y along what members have left.

    y(j) +=! x(i,j)          few j: blocks over tiles of j, threads.x along j, threads.y along i,
                             and where that is too few of them, blocks over chunks of i as well

Each thread adds up its part of a column; the block folds them over threads.y.
"""

from dataclasses import replace

from tcdsl.costmodel.shared_memory import FOLDS_BYTES, fold_bytes
from tcdsl.strategies import block_sizes, group_axes
from tcdsl.strategies.assembly import Lane
from tcdsl.strategies.group_axes import GroupAxes
from tcdsl.strategies.shared_sums import share_of_sum
from tcdsl.strategies.sketch import VECTOR_BYTES, Axis, Sketch, Tile

LEAST_SIDE = 4  # vectors of neighbours that threads load together, where rows are far apart


def column_sketch(axes: GroupAxes, inner: Axis, vector: int, may_chunk: bool) -> Sketch:
    """Return the sketch of threads that share columns.

    :arg inner: the shared axis along which neighbours in memory are.
    :arg vector: how many of them a thread can take at once.
    """
    vector = min(vector, _accumulators_of_vector(axes))
    x = _side(axes, inner, vector, may_chunk)
    others = [axis for axis in axes.parallel if axis is not inner]
    tiles = [Tile(inner, axes.extent(inner), axes.lower(inner), 0, x, 1, vector)]
    tiles += [axes.tile(axis) for axis in reversed(others)]
    lanes = {
        name: dim
        for name in axes.group.members
        if (dim := axes.longest_rest(name, group_axes.MIN_LANES)) is not None
    }
    choices = _choices(axes, lanes, x)
    y, chunk = share_of_sum(axes, tiles, lanes, x, vector, choices, may_chunk=may_chunk)
    axes.why.append(
        f"threads.x along {axes.name_of(inner)}, threads.y along what is reduced: {x} x {y}"
    )
    sketch = axes.assembled(tiles, {n: Lane(d, 1, y) for n, d in lanes.items()}, chunk)
    return replace(sketch, template="columns")


def _accumulators_of_vector(axes: GroupAxes) -> int:
    """Return how many accumulators of the lead are a vector: so are its partial sums then."""
    reduction = axes.shapes[axes.lead].statement.reduction
    return VECTOR_BYTES // reduction.dtype.size_bytes if reduction else VECTOR_BYTES


def _side(axes: GroupAxes, inner: Axis, vector: int, may_chunk: bool) -> int:
    """Return how many threads a block has along *inner*."""
    groups = -(-axes.extent(inner) // vector)
    x = min(block_sizes.WARP, groups)
    while not may_chunk and x > LEAST_SIDE and groups < x * axes.gpu.multiprocessors:
        x //= 2  # more blocks, where none share what is reduced
    return x


def _choices(axes: GroupAxes, lanes: dict[str, int], x: int) -> list[int]:
    """Return the numbers of threads to try along *lanes*, for blocks *x* threads wide."""
    most = block_sizes.BLOCK_THREADS // x
    lead_dim = lanes.get(axes.lead)
    if lead_dim is not None:
        most = min(most, axes.shapes[axes.lead].extents[lead_dim])
    members = (axes.shapes[name].statement for name in lanes)
    each = fold_bytes(s.reduction for s in members if s.reduction)
    limit = min(block_sizes.MAX_ROW_THREADS, FOLDS_BYTES // max(each, 1))
    tried = (most, most // 2, most // 4, 2 * most, 4 * most)
    return [y for y in tried if y and x * y <= limit] or [1]
