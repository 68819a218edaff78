"""Threads along the innermost shared axis; what is left of each member is in a thread.

    z(i,j) = x(i,j) + y(j)       blocks over i and tiles of j, threads.x along j, 16 bytes each
    C(m,n) +=! A(m,k)*B(k,n)     the same, with k in each thread

Where that axis is short, threads.y are along the next one.  Blocks are smaller where there would be
too few of them, and a thread takes a second vector only if the chip stays full.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tcdsl.costmodel import gpu_thresholds
from tcdsl.lang.comprehension import Call, walk
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Storage
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.exponential_sums import ADDEND, NONPOSITIVE
from tcdsl.strategies import block_sizes
from tcdsl.strategies.block_sizes import power_of_two
from tcdsl.strategies.problem import Problem, analysis
from tcdsl.strategies.ragged_axes import axis_inside_ranges
from tcdsl.strategies.schedule import VECTOR_BYTES, Axis, Schedule, Tile
from tcdsl.strategies.template import Template, assembled

MIN_VECTORED = gpu_thresholds.VECTORED_VALUES
MOST_REPEAT = 4  # vectors of a thread that are worth trying
MOST_TAPS = 64  # of a window, which a thread adds up
MOST_POINTS = 8  # of a thread
LEAST_INVARIANTS = 3  # arrays of which several points of a thread load the same
MOST_SUMS = gpu_thresholds.BLOCKED_SUMS
LEAST_THREADS = gpu_thresholds.BLOCKED_THREADS
CHAIN_CALLS = 16  # functions of an element, one after another
_SHORT = {NONPOSITIVE, ADDEND}  # functions of a few instructions


@dataclass(frozen=True, slots=True)
class ElementwiseConfig:
    """Threads of a block along the innermost shared axis, and along the next one."""

    threads_x: int
    threads_y: int = 1
    repeat: int = 1  # vectors of a thread
    vector: int = 1  # elements of a vector
    points: int = 1  # along the next axis, neighbours of a thread
    rows: int = 1  # the same, along the axis after that


def why_not(problem: Problem) -> str | None:
    """Return why threads are not along a shared axis, or None."""
    if _axis(problem) is None:
        return "neighbours in memory are along no axis that all statements share"
    return None


def space(problem: Problem) -> Iterator[ElementwiseConfig]:
    """Yield the configurations, first that of the fewest threads that fill the chip."""
    widest = _widest(problem)
    likeliest = _with_vectors(problem, _vector(problem, widest))
    yield likeliest
    inner = _axis(problem)
    assert inner is not None
    seen = {likeliest}
    has_blocks = _may_have_blocks(problem)
    for vector in (widest >> n for n in range(widest.bit_length())):
        groups = -(-problem.extent(inner) // vector)
        for threads in _thread_counts():
            for x in _widths(groups, threads):
                y = _threads_y(problem, x, threads)
                for repeat in (1, 2, MOST_REPEAT):
                    found = ElementwiseConfig(x, y, repeat, vector)
                    may_repeat = repeat == 1 or _may_repeat(problem, groups, repeat * x)
                    if found not in seen and may_repeat:
                        seen.add(found)
                        yield found
                one = ElementwiseConfig(x, 1, 1, vector)
                for found in _in_blocks(problem, one, threads) if has_blocks else ():
                    if found not in seen:
                        seen.add(found)
                        yield found


def _may_have_blocks(problem: Problem) -> bool:
    """Return whether several points or rows of a thread may share loads."""
    return _is_short_sum(problem) or _has_invariants(problem, _next_axes(problem))


def _is_short_sum(problem: Problem) -> bool:
    return 1 < problem.most_rest <= MOST_TAPS


def _in_blocks(
    problem: Problem, config: ElementwiseConfig, threads: int
) -> Iterator[ElementwiseConfig]:
    """Yield *config* with several points or rows in a thread, up to *threads* a block.

        y(i,j) +=! x(i+k,j) * f(k,j)     4 points i and 3 terms k: 6 loads of x for 12, 3 of f

    A thread of several points has a sum for each, and loads once what they read alike.  Of the axis
    after that it has several rows instead: their windows have in common what a block reads, too.
    Threads are to fill a part of the chip still, and more sums would leave it fewer warps.
    """
    axes, is_sum = _next_axes(problem)[:2], _is_short_sum(problem)
    if config.vector == 1 < _widest(problem):
        return
    threads_of_one = problem.results / config.vector
    fewer = int(threads_of_one / (LEAST_THREADS * problem.gpu.threads))
    most = min(MOST_POINTS, MOST_SUMS // config.vector, fewer)
    for number, axis in enumerate(axes if is_sum else axes[:1]):
        whole = [n for n in range(2, most + 1) if problem.extent(axis) % n == 0]
        for count in whole if _shares_reads(problem, axis) else ():
            points, rows = (1, count) if number else (count, 1)
            y = _largest_part(problem.extent(axes[0]) // points, threads // config.threads_x)
            yield replace(config, threads_y=y, points=points, rows=rows)


def _has_invariants(problem: Problem, axes: Sequence[Axis]) -> bool:
    """Return whether loads of several arrays are the same along the first of *axes*.

    y(n,p,c) = (x(n,p,c) - m(n,c)) * r(n,c) * g(c) + b(c)      4 points p: 8 loads for 20
    """
    if problem.most_rest > 1 or not axes:
        return False
    arrays = set()
    for name in problem.group.members:
        shape, dim = problem.shapes[name], axes[0][name]
        strides = shape.strides[len(shape.statement.writes) :]
        reads = zip(shape.statement.reads, strides, strict=True)
        arrays |= {read.array for read, row in reads if any(row) and not row[dim]}
    return len(arrays) >= LEAST_INVARIANTS


def _shares_reads(problem: Problem, axis: Axis) -> bool:
    """Return whether neighbours along *axis* read what is the same, or windows that overlap."""
    shape = problem.shapes[problem.lead]
    dim = axis[problem.lead]
    others = [d for d, role in enumerate(shape.roles) if role is Role.REDUCED]
    for row in shape.strides[1:]:
        reach = sum(abs(row[d]) * (shape.extents[d] - 1) for d in others)
        is_along = any(row[d] and row[dim] and row[dim] % row[d] == 0 for d in others)
        if any(row) and (not row[dim] or (is_along and abs(row[dim]) <= reach)):
            return True
    return False


def _largest_part(count: int, most: int) -> int:
    """Return the largest divisor of *count* that is no more than *most*, or 1."""
    return next((part for part in range(min(count, most), 0, -1) if count % part == 0), 1)


def _widths(groups: int, threads: int) -> tuple[int, ...]:
    """Return how many of a block's *threads* may lie along a row of so many *groups*.

    A power of two; and as many as there are, where that leaves no thread idle in short rows:
    channels of 18 vectors in blocks of 18 x 14 threads, not of 32 x 8.
    """
    width = min(threads, power_of_two(groups))
    return (width, groups) if width > groups > 0 else (width,)


def _may_repeat(problem: Problem, groups: int, of_block: int) -> bool:
    """Return whether threads may have several of a row's *groups*, of which a block has *of_block*.

    At the end of a row each of them has a guard of its own, and its loads wait for the functions of
    what is before it: eight steps of an LSTM (255, 509) took 16.8 us with two, 11.3 with one.
    """
    if problem.most_rest > 1 or groups < of_block:
        return False
    return groups % of_block == 0 or _calls(problem) < CHAIN_CALLS


def schedule(problem: Problem, config: ElementwiseConfig) -> Schedule:
    """Return the schedule of threads along the innermost shared axis."""
    inner = _axis(problem)
    assert inner is not None, "why_not"
    others = [axis for axis in problem.parallel if axis is not inner]
    tiles = [
        Tile(
            inner, problem.extent(inner), problem.lower(inner), 0, config.threads_x, config.repeat,
            config.vector,
        )
    ]  # fmt: skip
    if config.threads_y > 1 or config.points > 1 or config.rows > 1:
        axis = others.pop()
        number = 1 if config.threads_y > 1 else -1
        tile = problem.tile(axis)
        tiles.append(
            replace(tile, thread_axis=number, threads=config.threads_y, points=config.points)
        )
    if config.rows > 1:
        tiles.append(replace(problem.tile(others.pop()), points=config.rows))
    tiles += [problem.tile(axis) for axis in reversed(others)]
    why = f"threads along {problem.name_of(inner)}, neighbours in memory"
    return assembled(problem, tiles, {}, why=(why,), is_in_memory_order=True)


def _axis(problem: Problem) -> Axis | None:
    if problem.is_ragged:
        return axis_inside_ranges(problem)
    return problem.along or _axis_of_window(problem)


def _next_axes(problem: Problem) -> list[Axis]:
    """Return the axes beside that of neighbours, the nearest in memory first."""
    inner = _axis(problem)
    return [axis for axis in reversed(problem.parallel) if axis is not inner]


def _axis_of_window(problem: Problem) -> Axis | None:
    """Return the axis that results are neighbours along where a short sum reads a window.

    y(i,j) +=! x(i,j+k) * f(k)      neighbours of x are along j as well as along k
    """
    shape = problem.shapes[problem.lead]
    inner = problem.innermost(problem.lead)
    if inner < 0 or shape.roles[inner] is not Role.REDUCED or problem.most_rest > MOST_TAPS:
        return None
    written, *read = shape.strides
    for axis in problem.parallel:
        dim = axis[problem.lead]
        if written[dim] == 1 and any(row[dim] == 1 and row[inner] for row in read):
            return axis
    return None


def _widest(problem: Problem) -> int:
    """Return how many neighbours a thread can take at once."""
    inner = _axis(problem)
    return 1 if problem.is_ragged or inner is None else problem.vector_width(inner)


def _vector(problem: Problem, widest: int) -> int:
    """Return how many neighbours a thread takes: one where vectors would leave threads idle.

    So do long chains of functions, of which few warps wait for one instruction after another: eight
    steps of an LSTM (256, 512) took 17.8 us with vectors, 11.2 without.
    """
    total = problem.results
    is_long = problem.most_rest > 1 or _calls(problem) >= CHAIN_CALLS
    if total < MIN_VECTORED or (is_long and total // widest < problem.gpu.threads // 2):
        return 1
    return widest


@analysis
def _calls(problem: Problem) -> int:
    """Return how many functions a thread computes for each element."""
    values = [problem.shapes[name].statement.value for name in problem.group.members]
    return sum(isinstance(node, Call) for value in values if value for node in walk(value))


def _with_vectors(problem: Problem, vector: int) -> ElementwiseConfig:
    """Return the likeliest configuration with vectors of *vector* elements."""
    inner = _axis(problem)
    assert inner is not None, "why_not"
    total = problem.results
    groups = -(-problem.extent(inner) // vector)
    most = _threads_of_block(problem, total // vector)
    x = min(most, power_of_two(groups))
    y = _threads_y(problem, x, most)
    repeat = _repeat(problem, vector, groups, x)
    return ElementwiseConfig(x, y, repeat, vector)


def _threads_y(problem: Problem, x: int, most: int) -> int:
    """Return the threads along the next axis, of a block of at most *most*."""
    following = _next_axes(problem)
    if x >= most or not following:
        return 1
    return min(most // x, power_of_two(problem.extent(following[0])))


def _thread_counts() -> Iterator[int]:
    """Yield the numbers of threads of a block that are worth trying."""
    threads = block_sizes.WARP
    while threads <= 2 * block_sizes.BLOCK_THREADS:
        yield threads
        threads *= 2


def _threads_of_block(problem: Problem, threads: int) -> int:
    """Return how many threads a block has: fewer where there would be too few blocks."""
    share = threads // (2 * problem.gpu.multiprocessors)
    most = block_sizes.BLOCK_THREADS
    return max(min(block_sizes.WARP, most), min(most, power_of_two(share)))


def _repeat(problem: Problem, vector: int, groups: int, threads: int) -> int:
    """Return how many vectors a thread takes: several only if the chip stays full.

    Functions take registers, which with one vector let more threads hide what they take.  Not so
    where they are short and the vectors of arguments are, too: softmax of (64, 2^20) in bfloat16,
    whose exponentials are float32, takes 119 us with one vector of 8 bytes, 108 with two
    (float32, of 16 bytes: 200 and 202).
    """
    values = [problem.shapes[name].statement.value for name in problem.group.members]
    calls = {n.function for value in values if value for n in walk(value) if isinstance(n, Call)}
    if calls and not (calls <= _SHORT and vector * _argument_bytes(problem) < VECTOR_BYTES):
        return 1
    is_enough = problem.results // vector >= 4 * problem.gpu.threads
    if is_enough and _may_repeat(problem, groups, 2 * threads):
        return 2
    return 1


def _argument_bytes(problem: Problem) -> int:
    """Return the bytes of an element of an argument of the group, the widest of them."""
    statements = [problem.shapes[name].statement for name in problem.group.members]
    names = {a.array for s in statements for a in (*s.writes, *s.reads)}
    arrays = [problem.scop.arrays[name] for name in names]
    sizes = [a.dtype.size_bytes for a in arrays if a.storage is Storage.ARGUMENT]
    return max(sizes, default=VECTOR_BYTES)


TEMPLATE = Template("elementwise", ElementwiseConfig, why_not, space, schedule)
