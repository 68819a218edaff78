"""How many threads share what a result adds up, and whether blocks share it too.

    y(i) +=! x(i,j)        a block a row, T threads along j; or  B blocks over chunks of j, T each

Where results are few, most multiprocessors would have no work: then a reduced axis is cut into
chunks, one a block, and the last block, or atomics, add up their sums (finish.py, atomics.py).  How
many threads and blocks that are is estimated by costmodel/reductions.
"""

from collections.abc import Mapping, Sequence
from math import prod

from tcdsl.costmodel.reductions import Reduction, best_split
from tcdsl.strategies.assembly import Chunk
from tcdsl.strategies.group_axes import GroupAxes
from tcdsl.strategies.rows import is_chunkable
from tcdsl.strategies.sketch import Axis, Tile


def share_of_sum(
    axes: GroupAxes,
    tiles: Sequence[Tile],
    lanes: Mapping[str, int],
    width: int,
    vector: int,
    choices: Sequence[int],
    *,
    may_chunk: bool,
) -> tuple[int, Chunk | None]:
    """Return how many threads share the lead's lane, and how blocks share the reduction.

    That is a reduced axis and the values of it that one block takes, None if it takes all.

    :arg lanes: member -> its own axis along threads.
    :arg width: of a tile's threads that share nothing, each with *vector* results if several.
    :arg choices: the numbers of threads along the lane.
    """
    lane = lanes.get(axes.lead)
    if lane is None:
        return choices[0], None
    shape = axes.shapes[axes.lead]
    along = vector if width == 1 else 1  # values of the lane's axis in a load
    steps = -(-shape.extents[lane] // along)
    taken = {tile.axis[axes.lead] for tile in tiles} | {lane}
    times = prod(e for d, e in enumerate(shape.extents) if d not in taken)
    axis = _chunked_axis(axes) if may_chunk else None
    is_lane = axis is not None and all(axis.get(n) == d for n, d in lanes.items() if n in axis)
    pieces = axes.extent(axis) if axis is not None and not is_lane else 0
    reduction = Reduction(
        prod(tile.blocks for tile in tiles), width, steps, times, _step_bytes(axes, vector), pieces
    )
    split = best_split(axes.gpu, reduction, choices, may_chunk=axis is not None)
    if axis is None or split.chunks == 1:
        return split.lanes, None
    size = split.per_chunk * (along if is_lane else 1)
    if any(axis.get(n) == d for n, d in lanes.items()):  # a thread's vectors are in one chunk
        size = -(-size // vector) * vector
    count = -(-axes.extent(axis) // size)
    axes.why.append(
        f"{count} blocks over chunks of {size} of the reduced {axes.name_of(axis)}:"
        f" {1e6 * split.seconds:.2g} us as estimated"
    )
    return split.lanes, (axis, size)


def _chunked_axis(axes: GroupAxes) -> Axis | None:
    """Return the reduced axis that blocks may share, the longest one."""
    free = [
        axis
        for axis in axes.group.axes
        if axis not in axes.parallel and is_chunkable(axis, axes.shapes)
    ]
    return max(free, key=axes.extent, default=None)


def _step_bytes(axes: GroupAxes, vector: int) -> int:
    """Return the bytes that a step of the lead loads, of all its arrays that move along."""
    statement = axes.shapes[axes.lead].statement
    rows = axes.shapes[axes.lead].strides[len(statement.writes) :]
    arrays = {read.array for read, row in zip(statement.reads, rows, strict=True) if any(row)}
    return vector * sum(axes.scop.arrays[name].dtype.size_bytes for name in arrays) or vector
