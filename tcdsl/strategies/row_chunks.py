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

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from tcdsl.strategies.traffic import moved_bytes

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
        most = _seconds_to_beat(problem, sums)
        cut = _best_cut(before, sums, shapes[sums.peak], gpu) if most > 0 else None
        if cut is None or cut.seconds >= most:
            continue
        done = rescaled(scop, sums, cut.length)
        scop = done.scop
        found.append(ChunkedRows(done.members, done.wholes, done.index, cut))
    return scop, tuple(found)


def _seconds_to_beat(problem: Problem, sums: ExponentialSums) -> float:
    """Return the time that chunks must take less than, to be faster than what there is.

    That is 0 where a row is short, or a column, or a block holds or computes one.  Where a cluster
    holds a row, what the rest of its kernel takes by itself is left for them.
    """
    shape = problem.shapes[sums.peak]
    row = len(shape.extents) - 1
    is_row = shape.order[-1] == row and any(strides[row] == 1 for strides in shape.strides)
    if not is_row or shape.extents[row] < MIN_ROW:
        return 0.0
    sources = {read.array for read in shape.statement.reads}
    members = problem.group.members
    if any(w.array in sources for n in members for w in problem.shapes[n].statement.writes):
        return 0.0
    if not set(sums.members) <= set(members):
        return _seconds_as_written(problem, sums, may_chunk=True)
    clusters = row_cluster.cluster_rows(problem)
    is_read = clusters is not None and not clusters.rows.is_written
    schedule = next(choices(problem)).schedule(problem)
    if is_read or sources.isdisjoint(schedule.resident):
        # Who only reads waits better in registers, and for nobody.
        return _seconds_as_written(problem, sums, may_chunk=False)
    if not schedule.is_staged:
        return 0.0
    rest = tuple(name for name in members if name not in sums.members)
    moved = moved_bytes(problem.scop, replace(problem.group, members=rest), problem.shapes)
    apart = problem.gpu.programmatic_launch_s + moved / problem.gpu.dram_copy_bytes_per_s
    return gpu_thresholds.CHUNKS_SHARE * seconds_of(problem, schedule) - apart


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


def _seconds_as_written(problem: Problem, sums: ExponentialSums, *, may_chunk: bool) -> float:
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
        seconds += best_split(problem.gpu, whole, lanes, may_chunk=may_chunk).seconds
    return seconds
