"""How many threads share what a result adds up, and whether blocks share it too.

    y(i) +=! x(i,j)        a block a row, T threads along j; or  B blocks over chunks of j, T each

Where results are few, most multiprocessors would have no work: then a reduced axis is cut into
chunks, one a block, and the last block, or atomics, add up their sums (finish.py, atomics.py).  How
many threads and blocks that are is estimated by costmodel/reductions.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import lcm, prod

from tcdsl.costmodel.reductions import Reduction, best_split
from tcdsl.poly.parallelism import Role
from tcdsl.strategies.lowering import Chunk
from tcdsl.strategies.operations import is_chunkable
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.schedule import Axis, Tile

BLOCKS_EACH = (1, 2, 4)  # of a multiprocessor, that share chunks: worth trying


def share_of_sum(
    problem: Problem,
    tiles: Sequence[Tile],
    lanes: Mapping[str, int],
    vector: int,
    choices: Sequence[int],
    width: int = 1,
) -> tuple[int, int]:
    """Return how many threads share the lead's lane, and the values of a chunk; 0: no chunks.

    :arg lanes: member -> its own axis along threads.
    :arg choices: the numbers of threads along the lane.
    :arg width: of a tile's threads that share nothing, each with *vector* results if several.
    """
    lane = lanes.get(problem.lead)
    if lane is None:
        return choices[0], 0
    shape = problem.shapes[problem.lead]
    along = vector if width == 1 else 1  # values of the lane's axis in a load
    steps = -(-shape.extents[lane] // along)
    taken = {tile.axis[problem.lead] for tile in tiles} | {lane}
    times = prod(e for d, e in enumerate(shape.extents) if d not in taken)
    axis = chunked_axis(problem)
    is_lane = axis is not None and all(axis.get(n) == d for n, d in lanes.items() if n in axis)
    pieces = problem.extent(axis) if axis is not None and not is_lane else 0
    step_bytes = _step_bytes(problem, vector)
    reduction = Reduction(
        prod(tile.blocks for tile in tiles), width, steps, times, step_bytes, pieces
    )
    split = best_split(problem.gpu, reduction, choices, may_chunk=axis is not None)
    if axis is None or split.chunks == 1:
        return split.lanes, 0
    size = split.per_chunk * (along if is_lane else 1)
    return split.lanes, _whole(problem, axis, size, lanes, (vector, along * split.lanes))


def _whole(
    problem: Problem, axis: Axis, size: int, lanes: Mapping[str, int], units: tuple[int, int]
) -> int:
    """Return the size of chunks along *axis* of which threads have whole parts.

    A thread's vectors are in one chunk.  Where partial sums lie along it, chunks are whole turns of
    the threads: lanes of sums are counted from the axis' start, threads from a chunk's, so that in
    other chunks a thread would have several lanes.

    :arg units: the values of a vector, and those that threads take together.
    """
    along = [problem.shapes[n].roles[d] for n, d in lanes.items() if axis.get(n) == d]
    unit = 1
    if along:
        vector, turn = units
        unit = lcm(vector, turn) if Role.REDUCED in along else vector
    return -(-size // unit) * unit


def chunk_sizes(problem: Problem, blocks: int, turn: int) -> Iterator[int]:
    """Yield sizes of chunks that are worth trying, whole turns: 1, 2 and 4 blocks a multiprocessor.

    :arg blocks: there are without chunks.
    """
    axis = chunked_axis(problem)
    if axis is None:
        return
    extent = problem.extent(axis)
    for each in BLOCKS_EACH:
        count = max(1, each * problem.gpu.multiprocessors // max(blocks, 1))
        size = -(-extent // (count * turn)) * turn
        if 2 <= size < extent:
            yield size


def chunk_of(problem: Problem, size: int) -> tuple[Chunk | None, tuple[str, ...]]:
    """Return the chunks of *size* values of the reduced axis that blocks share, and why."""
    axis = chunked_axis(problem) if size else None
    if axis is None:
        return None, ()
    count = -(-problem.extent(axis) // size)
    reduced = problem.name_of(axis)
    is_dealt = problem.is_open(axis)
    how = ", dealt in turn" if is_dealt else ""
    why = f"{count} blocks over chunks of {size} of the reduced {reduced}{how}"
    return Chunk(axis, size, is_dealt), (why,)


def chunked_axis(problem: Problem) -> Axis | None:
    """Return the reduced axis that blocks may share, the longest one; None if they may not."""
    if not problem.may_split:
        return None
    free = [
        axis
        for axis in problem.group.axes
        if axis not in problem.parallel and is_chunkable(axis, problem.shapes)
    ]
    return max(free, key=problem.extent, default=None)


def _step_bytes(problem: Problem, vector: int) -> int:
    """Return the bytes that a step of the lead loads, of all its arrays that move along."""
    statement = problem.shapes[problem.lead].statement
    rows = problem.shapes[problem.lead].strides[len(statement.writes) :]
    arrays = {read.array for read, row in zip(statement.reads, rows, strict=True) if any(row)}
    return vector * sum(problem.scop.arrays[name].dtype.size_bytes for name in arrays) or vector
