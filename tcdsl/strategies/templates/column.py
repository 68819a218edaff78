"""Threads.x along the innermost shared axis, threads.y along what members have left.

    y(j) +=! x(i,j)          few j: blocks over tiles of j, threads.x along j, threads.y along i,
                             and where that is too few of them, blocks over chunks of i as well

Each thread adds up its part of a column; the block folds them over threads.y.  Where rows begin
anywhere, so that no vectors of them can be loaded, a thread still takes as many columns, each the
threads of a row after the one before: what a block has of a row is then longer, and fewer sectors
are two blocks' (an H200, 1100 x 50003: float32 64 us instead of 74, bfloat16 44 instead of 47).
"""

from collections.abc import Iterator, Mapping

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.shared_memory import FOLDS_BYTES, fold_bytes
from tcdsl.records import dataclass
from tcdsl.strategies import block_sizes
from tcdsl.strategies import problem as problems
from tcdsl.strategies.lowering import Lane
from tcdsl.strategies.problem import Problem, analysis
from tcdsl.strategies.schedule import VECTOR_BYTES, Axis, Schedule, Tile
from tcdsl.strategies.shared_sums import chunk_of, chunk_sizes, share_of_sum
from tcdsl.strategies.template import Template, assembled

LEAST_SIDE = gpu_thresholds.COLUMN_VECTORS
BLOCKS_EACH = gpu_thresholds.COLUMN_BLOCKS


@dataclass(frozen=True, slots=True)
class ColumnConfig:
    """Threads of a block along columns' neighbours, and along what is reduced."""

    threads_x: int
    threads_y: int
    vector: int = 1  # elements of a vector, along x
    chunk: int = 0  # values of the reduced axis that a block has; 0: all
    repeat: int = 1  # vectors of a thread along x, the threads of a row apart


def why_not(problem: Problem) -> str | None:
    """Return why threads do not share columns, or None."""
    if problem.along is None or problem.is_ragged:
        return "neighbours in memory are along no axis that all statements share"
    return None if _lanes(problem) else "nothing is reduced that threads could share"


@analysis
def has_few_results(problem: Problem) -> bool:
    """Return whether threads along the parallel axes alone would leave the chip idle."""
    assert problem.along is not None, "columns have neighbours"
    threads = problem.results // problem.vector_width(problem.along)
    is_long = problem.most_rest >= 2 * block_sizes.WARP
    return is_long and threads < problem.gpu.threads // 4


def space(problem: Problem) -> Iterator[ColumnConfig]:
    """Yield the configurations, first the one with the least estimated time."""
    inner = problem.along
    assert inner is not None, "why_not"
    vector = min(problem.vector_width(inner), _accumulators_of_vector(problem))
    x = _side(problem, inner, vector)
    lanes = _lanes(problem)
    repeat = _repeat(problem, x * vector, vector)
    tiles = _tiles(problem, ColumnConfig(x, 1, vector, repeat=repeat))
    values = vector * repeat
    y, chunk = share_of_sum(problem, tiles, lanes, values, _choices(problem, lanes, x), x)
    likeliest = ColumnConfig(x, y, vector, chunk, repeat)
    yield likeliest
    others = [
        ColumnConfig(side, y, vector, size, repeat)
        for side in dict.fromkeys((x, x // 2, 2 * x))
        if 0 < side <= 2 * block_sizes.WARP
        for y in _choices(problem, lanes, side)
        for size in (0, *chunk_sizes(problem, -(-problem.results // (side * values)), y))
    ]
    yield from (config for config in dict.fromkeys(others) if config != likeliest)


def schedule(problem: Problem, config: ColumnConfig) -> Schedule:
    """Return the schedule of threads that share columns."""
    assert problem.along is not None, "why_not"
    tiles = _tiles(problem, config)
    lanes = {name: Lane(dim, 1, config.threads_y) for name, dim in _lanes(problem).items()}
    chunk, why = chunk_of(problem, config.chunk)
    name = problem.name_of(problem.along)
    threads = f"{config.threads_x} x {config.threads_y}"
    why = (*why, f"threads.x along {name}, threads.y along what is reduced: {threads}")
    return assembled(problem, tiles, lanes, chunk, why)


def _lanes(problem: Problem) -> dict[str, int]:
    """Return the dimension along which threads.y are, of each member that has one."""
    found = {name: problem.longest_rest(name, problems.MIN_LANES) for name in problem.group.members}
    return {name: dim for name, dim in found.items() if dim is not None}


def _tiles(problem: Problem, config: ColumnConfig) -> list[Tile]:
    inner, x = problem.along, config.threads_x
    assert inner is not None, "columns have neighbours"
    others = [axis for axis in problem.parallel if axis is not inner]
    extent, lower = problem.extent(inner), problem.lower(inner)
    first = Tile(inner, extent, lower, 0, x, config.repeat, config.vector)
    return [first, *(problem.tile(axis) for axis in reversed(others))]


def _repeat(problem: Problem, block: int, vector: int) -> int:
    """Return how many vectors a thread has along a row.

    As many as have the columns of a vector of accumulators, where blocks are still enough: *block*
    columns each with one vector of a thread.
    """
    inner, reduction = problem.along, problem.shapes[problem.lead].statement.reduction
    assert inner is not None, "columns have neighbours"
    if reduction is None or problem.is_open(inner):
        return 1
    repeat = max(1, _accumulators_of_vector(problem) // vector)
    enough = BLOCKS_EACH * problem.gpu.multiprocessors
    while repeat > 1 and problem.results < repeat * block * enough:
        repeat //= 2
    return repeat


def _accumulators_of_vector(problem: Problem) -> int:
    """Return how many accumulators of the lead are a vector: so are its partial sums then."""
    reduction = problem.shapes[problem.lead].statement.reduction
    return VECTOR_BYTES // reduction.dtype.size_bytes if reduction else VECTOR_BYTES


def _side(problem: Problem, inner: Axis, vector: int) -> int:
    """Return how many threads a block has along *inner*."""
    groups = -(-problem.extent(inner) // vector)
    x = min(block_sizes.WARP, groups)
    few = groups < x * problem.gpu.multiprocessors
    while not problem.may_split and x > LEAST_SIDE and few:
        x //= 2  # more blocks, where none share what is reduced
        few = groups < x * problem.gpu.multiprocessors
    return x


def _choices(problem: Problem, lanes: Mapping[str, int], x: int) -> list[int]:
    """Return the numbers of threads to try along *lanes*, for blocks *x* threads wide."""
    most = block_sizes.BLOCK_THREADS // x
    lead_dim = lanes.get(problem.lead)
    if lead_dim is not None:
        most = min(most, problem.shapes[problem.lead].extents[lead_dim])
    members = (problem.shapes[name].statement for name in lanes)
    each = fold_bytes(s.reduction for s in members if s.reduction)
    limit = min(block_sizes.MAX_ROW_THREADS, FOLDS_BYTES // max(each, 1))
    tried = (most, most // 2, most // 4, 2 * most, 4 * most)
    return [y for y in tried if y and x * y <= limit] or [1]


TEMPLATE = Template("column", ColumnConfig, why_not, space, schedule, has_few_results)
