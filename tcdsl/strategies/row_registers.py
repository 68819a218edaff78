"""Rows that the threads of a block keep in registers: of which arrays, and in how many threads.

    m(i) max=! x(i,j)         x is used by all three members: it is *resident*, and loaded once
    s(i) +=! exp(x(i,j) - m(i))
    y(i,j) = exp(x(i,j) - m(i)) / s(i)

The fewer threads share a row, the more of its vectors each has on their way, and the cheaper is a
fold; the more threads, the sooner a single row is done.  Long rows of which the chip has many are
for costmodel/kept_rows; here is what was measured for the others.
"""

from collections.abc import Iterator, Mapping, Sequence

from tcdsl.costmodel import gpu_thresholds, kept_rows
from tcdsl.costmodel.clusters import busy_share, busy_threads
from tcdsl.costmodel.locality import coefficient_of
from tcdsl.lang.comprehension import Call, Index, walk
from tcdsl.poly.scop import Kind, Storage
from tcdsl.records import dataclass
from tcdsl.strategies import block_sizes
from tcdsl.strategies.block_sizes import power_of_two
from tcdsl.strategies.problem import Problem, analysis
from tcdsl.strategies.schedule import VECTOR_BYTES

MAX_RESIDENT = gpu_thresholds.KEPT_VALUES
MOST_RESIDENT = gpu_thresholds.KEPT_VALUES_OF_ONE
MOST_IDLE = gpu_thresholds.IDLE_OF_FEW
FEW_ROWS = gpu_thresholds.FEW_ROWS
LONE_ROWS = gpu_thresholds.LONE_ROWS
MANY_IDLE = gpu_thresholds.IDLE_OF_MANY
WARP_IDLE = gpu_thresholds.IDLE_OF_WARP
VECTORS_IN_FLIGHT = gpu_thresholds.ROW_VECTORS
SKEWED_VECTORS = gpu_thresholds.ROW_VECTORS_SKEWED
MANY_VECTORS = gpu_thresholds.ROW_VECTORS_READ
# Of blocks and threads whose registers are worth being counted: smaller ones have enough.
LEAST_HELD = 4 * block_sizes.WARP
LEAST_VALUES = 32
LINE_VECTORS = 8  # of a line of memory, which fewer threads would load in pieces


@dataclass(frozen=True, slots=True)
class Row:
    """A row as threads share it, *vector* values at a time."""

    lanes: Mapping[str, int]  # member -> the dimension along which threads are
    length: int
    vector: int
    resident: tuple[str, ...]  # arrays whose rows several members use
    live: int  # of those at a time
    is_kept: bool  # whether what is resident fits the registers

    @property
    def groups(self) -> int:
        """How many vectors it has."""
        return -(-self.length // self.vector)


def row_of(
    problem: Problem, lanes: Mapping[str, int], length: int, resident: tuple[str, ...]
) -> Row:
    """Return the row whose threads are along *lanes*."""
    long = {n: d for n, d in lanes.items() if problem.shapes[n].extents[d] == length}
    live = max(live_arrays(problem, resident), 1)  # 0: one member reads it, several times
    most = MAX_RESIDENT if live > 1 else MOST_RESIDENT
    # What is kept in registers is no vector in memory.
    kept = {a for a in resident if problem.scop.arrays[a].storage is Storage.SCRATCH}
    vector = min((problem.lane_vector(n, d, kept) for n, d in long.items()), default=1)
    values = -(-length // vector) * vector * live
    has_one_axis = not any(_has_another_axis(problem, name, dim) for name, dim in long.items())
    is_kept = bool(resident) and has_one_axis and values <= most * block_sizes.MAX_ROW_THREADS
    if not is_kept:
        vector = min((problem.lane_vector(n, d) for n, d in long.items()), default=1)
    return Row(lanes, length, vector, resident, live, is_kept)


def _has_another_axis(problem: Problem, name: str, dim: int) -> bool:
    """Return whether *name* has another axis beside *dim* that not all members share.

    A thread goes over that in a serial loop: no register has a number there (strategies/residence).
    """
    shape = problem.shapes[name]
    taken = {axis[name] for axis in problem.group.axes}
    return any(
        shape.extents[d] > 1 and d != dim and d not in taken for d in range(len(shape.extents))
    )


def resident_arrays(problem: Problem, lanes: Mapping[str, int], length: int) -> tuple[str, ...]:
    """Return the arrays whose rows several members use, temporaries among them."""
    users: dict[str, int] = {}
    for name, dim in lanes.items():
        shape = problem.shapes[name]
        if shape.extents[dim] != length or shape.lower[dim]:
            continue
        index = shape.statement.indices[dim]
        for access in (*shape.statement.writes, *shape.statement.reads):
            if not access.is_exact or len(access.subscripts) < 2:
                continue
            if problem.is_row(access.subscripts[-1], index):
                users[access.array] = users.get(access.array, 0) + 1
    written = {w.array for n in problem.group.members for w in problem.shapes[n].statement.writes}
    return tuple(
        array
        for array, count in users.items()
        if count > 1
        and (problem.scop.arrays[array].storage is Storage.SCRATCH or array not in written)
    )


def live_arrays(problem: Problem, arrays: Sequence[str]) -> int:
    """Return of how many of *arrays* a thread keeps an element from one member to the next."""
    lives = _lives(problem)
    spans = [lives[array] for array in arrays if array in lives]
    gaps = range(1, len(problem.group.members))
    return max((sum(first < gap <= last for first, last in spans) for gap in gaps), default=0)


@analysis
def _lives(problem: Problem) -> dict[str, tuple[int, int]]:
    """Return the first and the last member that uses each array."""
    found: dict[str, tuple[int, int]] = {}
    for place, name in enumerate(problem.group.members):
        statement = problem.shapes[name].statement
        for access in (*statement.writes, *statement.reads):
            first, _ = found.get(access.array, (place, place))
            found[access.array] = first, place
    return found


def share_of_row(problem: Problem, row: Row) -> kept_rows.Share:
    """Return how threads share a row that is kept in their registers."""
    found = None
    is_long = row.groups * row.vector >= kept_rows.LONG
    if is_long and problem.results > FEW_ROWS * problem.gpu.multiprocessors:
        found = kept_rows.share_of(problem.gpu, _kept_row(problem, row))
    if found is None:
        found = kept_rows.Share(*_threads_of_row(problem, row), resident_blocks=0)
    return found


def blocks_of_registers(problem: Problem, row: Row, threads: int, keep: int) -> Iterator[int]:
    """Yield how many blocks a multiprocessor may be held to have, where registers are scarce."""
    if threads < LEAST_HELD or keep * row.vector * row.live < LEAST_VALUES:
        return
    most = kept_rows.most_resident_blocks(problem.gpu, _kept_row(problem, row), threads, keep)
    yield from (blocks for blocks in (most, most - 1) if blocks > 1)


def _kept_row(problem: Problem, row: Row) -> kept_rows.KeptRow:
    """Return what the cost model asks of a long row of which the chip has many."""
    beside = {
        read.array
        for name, dim in row.lanes.items()
        for read in problem.shapes[name].statement.reads
        if read.array not in row.resident
        and read.subscripts
        and coefficient_of(read.subscripts[-1], problem.shapes[name].statement.indices[dim])
    }
    arrays = [problem.scop.arrays[name] for name in row.resident]
    has_argument = any(array.storage is Storage.ARGUMENT for array in arrays)
    return kept_rows.KeptRow(
        row.groups, row.vector, row.live, row.vector > VECTOR_BYTES // 4,
        all(array.dtype.is_half for array in arrays), _writes_rows(problem),
        max(0, len(beside) - (not has_argument)),
    )  # fmt: skip


def _threads_of_row(problem: Problem, row: Row) -> tuple[int, int]:
    """Return the threads of a row that is kept in registers, and the vectors of each.

    Some four vectors keep loads in flight; a row in one warp needs no barrier, and of its threads
    few idle: of float32 softmax of 700000 x 96 eight with three vectors take 132 us, 32 with one
    143, and four, whose vectors are half a line of memory, 134.  Values of half
    types cost instructions rather than bytes: the more a thread has, the fewer for folding.
    Where rows are so few that their latency counts, threads do not idle in the last turn, and
    few of them fold: float32 batchnorm of (32, 1024, 7, 7) takes 8.4 us with 256 threads, 13
    with 1024.
    """
    groups, vector, rows, gpu = row.groups, row.vector, problem.results, problem.gpu
    most = max(1, MAX_RESIDENT // (row.live * vector))
    if rows <= LONE_ROWS * gpu.multiprocessors and groups <= block_sizes.MAX_ROW_THREADS:
        return power_of_two(groups), 1
    wanted = -(-groups // _vectors_of_row(problem, row, most))
    if wanted <= block_sizes.WARP and rows >= 4 * gpu.multiprocessors:
        least = 2 if vector > VECTOR_BYTES // 4 else 1
        threads = min(block_sizes.WARP, power_of_two(-(-groups // least)))
        threads = _busy_lanes(groups, threads)
        return threads, -(-groups // threads)
    threads = min(power_of_two(wanted), block_sizes.MAX_ROW_THREADS)
    idle = 1 - busy_share(groups, threads)
    if idle > MOST_IDLE and rows <= FEW_ROWS * gpu.multiprocessors:
        threads = busy_threads(groups, block_sizes.BLOCK_THREADS, -(-groups // most))
    elif idle > MANY_IDLE:
        threads = busy_threads(groups, wanted, -(-groups // most))
    return threads, -(-groups // threads)


def _busy_lanes(groups: int, most: int) -> int:
    """Return how many threads of a warp share *groups* vectors: *most*, or fewer if fewer idle."""
    choices = [most >> n for n in range(3) if most >> n >= LINE_VECTORS] or [most]
    busy = {threads: busy_share(groups, threads) for threads in choices}
    few = (threads for threads in choices if 1 - busy[threads] <= WARP_IDLE)
    return next(few, max(busy, key=lambda threads: busy[threads]))


def _vectors_of_row(problem: Problem, row: Row, most: int) -> int:
    """Return how many vectors of a long row a thread is to keep.

    More where nothing is stored beside the loads; and where functions of half types cost as
    much as the memory, as many as keep blocks so small that several take turns (on an H200,
    bfloat16 softmax of 16384 columns takes 135 us with 256 threads, 160 with 512 or 1024).
    """
    if any(problem.scop.arrays[name].shift is not None for name in _arrays(problem)):
        return min(SKEWED_VECTORS, MOST_RESIDENT // row.vector)
    if not _writes_rows(problem):
        return min(MANY_VECTORS, most)
    if row.vector > VECTOR_BYTES // 4 and _calls_functions(problem):
        many = row.groups // block_sizes.BLOCK_THREADS
        return min(max(MANY_VECTORS, many), 2 * MANY_VECTORS)
    return min(VECTORS_IN_FLIGHT, most)


def _arrays(problem: Problem) -> set[str]:
    """Return the arrays that the group touches."""
    statements = [problem.shapes[name].statement for name in problem.group.members]
    return {a.array for s in statements for a in (*s.writes, *s.reads)}


def _writes_rows(problem: Problem) -> bool:
    """Return whether some member stores a value for every one that it reads."""
    return any(
        problem.shapes[name].statement.kind is not Kind.UPDATE
        and problem.scop.arrays[problem.shapes[name].statement.write.array].storage
        is Storage.ARGUMENT
        and problem.shapes[name].instances == problem.shapes[problem.lead].instances
        for name in problem.group.members
    )


def _calls_functions(problem: Problem) -> bool:
    """Return whether a function is called for every value of a row."""
    for name in problem.group.members:
        lane, statement = problem.lane(name), problem.shapes[name].statement
        if lane is None or statement.value is None:
            continue
        calls = [node for node in walk(statement.value) if isinstance(node, Call)]
        index = Index(statement.indices[lane])
        if any(index in walk(call) for call in calls):
            return True
    return False
