"""Rows that no block can hold, in chunks that one can: for sums of exponentials.

    blocks (i, c)           q = largest of the chunk, in registers        x is read once
                            p = sum of exp(x - q)
    the last of (i, .)      m(i), s(i)                                    and what is small

As written the sum waits for the largest of all of a row, which is then read again
(rewrites/scop/rescaling.py).  A row that a block can hold stays whole: it is read once as it is.
So does a row of a temporary that the kernel of the maximum computes: storing it for another kernel
would be a pass of its own.  Where a cluster of blocks holds a row, and writes it as well
(templates/row_cluster), chunks are a pass more::

    whole      the cluster's kernel                     x is read once      few clusters at once
    chunks     those above, and the rest of the row     x is read twice     all multiprocessors
"""

from collections.abc import Collection, Mapping, Sequence
from math import prod

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import VECTOR_BYTES, Chip
from tcdsl.costmodel.locality import Shape
from tcdsl.costmodel.reductions import Reduction, best_split
from tcdsl.costmodel.row_chunks import Cut, Rows, best_cut
from tcdsl.lang.comprehension import Expr, Index, walk
from tcdsl.poly.scop import Scop, loads_of
from tcdsl.rewrites.scop.exponential_sums import ExponentialSums, exponential_sums
from tcdsl.rewrites.scop.rescaling import rescaled, why_not_in_chunks
from tcdsl.schedule.fusion import Group
from tcdsl.strategies.block_sizes import MAX_ROW_THREADS
from tcdsl.strategies.catalogue import choices
from tcdsl.strategies.chunked_rows import ChunkedRows
from tcdsl.strategies.estimated import seconds_of
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.templates import row_cluster

THREADS = (128, 256, 512, 1024)  # of a block
VALUES = (8, 16, 32, 64)  # of a row, in a thread
MOST_KEPT_BYTES = gpu_thresholds.CHUNK_KEPT_BYTES
MOST_FOLDED = gpu_thresholds.LAST_BLOCK_CHUNKS
MIN_ROW = gpu_thresholds.TWO_LEVEL_VALUES


def in_chunks(
    scop: Scop, groups: Sequence[Group], shapes: Mapping[str, Shape], gpu: Chip
) -> tuple[Scop, tuple[ChunkedRows, ...]]:
    """Cut the rows of *scop*'s sums of exponentials where that saves time.

    :arg groups: the kernels as they would be.
    """
    found, before = [], scop  # of which the groups and shapes are
    for sums in exponential_sums(before):
        group = next(group for group in groups if sums.peak in group.members)
        problem = Problem(before, group, shapes, gpu)
        if _stays_whole(problem, sums):
            continue
        cut = _best_cut(before, sums, shapes[sums.peak], gpu)
        if cut is None or cut.seconds >= _most_seconds(problem, sums):
            continue
        done = rescaled(scop, sums, cut.length)
        scop = done.scop
        found.append(ChunkedRows(done.members, done.wholes, done.index, cut))
    return scop, tuple(found)


def _stays_whole(problem: Problem, sums: ExponentialSums) -> bool:
    """Return whether a row is short, or a column, or a block holds or computes one."""
    shape = problem.shapes[sums.peak]
    row = len(shape.extents) - 1
    is_row = shape.order[-1] == row and any(strides[row] == 1 for strides in shape.strides)
    if not is_row or shape.extents[row] < MIN_ROW:
        return True
    sources = _sources(problem, sums)
    writes = (w.array for n in problem.group.members for w in problem.shapes[n].statement.writes)
    if not sources.isdisjoint(writes):
        return True
    if not _are_together(problem, sums) or _is_read_by_cluster(problem):
        return False  # who only reads waits better in registers, and for nobody
    schedule = next(choices(problem)).schedule(problem)
    return not schedule.is_staged and not sources.isdisjoint(schedule.resident)


def _sources(problem: Problem, sums: ExponentialSums) -> set[str]:
    return {read.array for read in problem.shapes[sums.peak].statement.reads}


def _are_together(problem: Problem, sums: ExponentialSums) -> bool:
    return set(sums.members) <= set(problem.group.members)


def _is_read_by_cluster(problem: Problem) -> bool:
    """Return whether a cluster could hold the rows, which are not written."""
    clusters = row_cluster.cluster_rows(problem)
    return clusters is not None and not clusters.rows.is_written


def _most_seconds(problem: Problem, sums: ExponentialSums) -> float:
    """Return the time that chunks must take less than, to be faster than what there is.

    Where a cluster holds a row, what the rest of its kernel takes by itself is left for them.
    """
    if not _are_together(problem, sums) or _is_read_by_cluster(problem):
        return _seconds_as_written(problem, sums)
    choice = next(choices(problem))
    schedule = choice.schedule(problem)
    if not schedule.is_staged or _sources(problem, sums).isdisjoint(schedule.resident):
        return _seconds_as_written(problem, sums)
    rest = [name for name in problem.group.members if name not in sums.members]
    return gpu_thresholds.CHUNKS_SHARE * seconds_of(problem, schedule) - _seconds_apart(
        problem, rest
    )


def _seconds_apart(problem: Problem, names: Collection[str]) -> float:
    """Return the time of a kernel of the statements *names*, which moves all of its arrays once."""
    accesses = (
        access
        for name in names
        for access in (*problem.scop.by_name[name].reads, *problem.scop.by_name[name].writes)
    )
    arrays = [problem.scop.arrays[array] for array in {access.array for access in accesses}]
    moved = sum(array.size_bytes() or 0 for array in arrays)
    return problem.gpu.programmatic_launch_s + moved / problem.gpu.dram_copy_bytes_per_s


def _best_cut(scop: Scop, sums: ExponentialSums, shape: Shape, gpu: Chip) -> Cut | None:
    """Return the best of the cuts that are legal, and whose chunks one block can add up."""
    kept = _moving(shape, shape.statement.value)
    rows = Rows(
        prod(shape.extents[:-1]), shape.extents[-1], _value_bytes(scop, sums, shape),
        len(sums.members), sum(scop.arrays[name].dtype.size_bytes for name in kept),
    )  # fmt: skip
    choices = [
        (threads, values)
        for threads in THREADS
        for values in VALUES
        if values * rows.value_bytes >= VECTOR_BYTES
        and values * rows.kept_bytes <= MOST_KEPT_BYTES
        and -(-rows.length // (threads * values)) <= MOST_FOLDED * threads
        and why_not_in_chunks(scop, sums, threads * values) is None
    ]
    return best_cut(gpu, rows, choices)


def _moving(shape: Shape, *values: Expr | None) -> set[str]:
    """Return the arrays that *values* read another element of for each element of a row."""
    index = shape.statement.indices[-1]
    return {
        load.tensor
        for value in values
        if value is not None
        for load in loads_of(value)
        if any(isinstance(n, Index) and n.name == index for s in load.subscripts for n in walk(s))
    }


def _value_bytes(scop: Scop, sums: ExponentialSums, shape: Shape) -> int:
    """Return the bytes that are read for each element of a row, if each is read once."""
    values = [shape.statement.value, *(total.value for total in sums.totals)]
    return sum(scop.arrays[name].dtype.size_bytes for name in _moving(shape, *values))


def _seconds_as_written(problem: Problem, sums: ExponentialSums) -> float:
    """Return the estimated time of a pass over the rows for each of the statements."""
    shape, arrays = problem.shapes[sums.peak], problem.scop.arrays
    values = [shape.statement.value, *(total.value for total in sums.totals)]
    seconds = 0.0
    for value in values:
        read = sum(arrays[name].dtype.size_bytes for name in _moving(shape, value))
        along = max(1, VECTOR_BYTES // max(read, 1))
        steps = -(-shape.extents[-1] // along)
        whole = Reduction(prod(shape.extents[:-1]), 1, steps, 1, along * read)
        lanes = [MAX_ROW_THREADS >> n for n in range(6)]
        may_chunk = not _are_together(problem, sums)
        seconds += best_split(problem.gpu, whole, lanes, may_chunk=may_chunk).seconds
    return seconds
