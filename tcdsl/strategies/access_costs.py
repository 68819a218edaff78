"""What the accesses of a warp cost the first-level cache, and what blocks fetch beside their own.

    lane n of 32 accesses    base + n * step      a vector each

    step = vector     one run of memory: 128 bytes are one line of the cache, looked up once
    step > a line     as many lines as lanes, though each has as few bytes: rows of one thread each

A block whose neighbours along a row are less than a sector fetches the whole sector, and so do the
blocks beside it.  Where rows begin anywhere in a sector, so do all that a block has of them.
"""

from collections.abc import Iterator, Sequence
from math import ceil, gcd, prod
from typing import NamedTuple

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import LINE_BYTES, WARP
from tcdsl.costmodel.locality import Shape, coefficient_of, usual_strides
from tcdsl.lang.comprehension import Expr
from tcdsl.poly.loop_tree import RANK, LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.records import dataclass
from tcdsl.schedule.nesting import Piece
from tcdsl.strategies.arithmetic import part_left, unrolled
from tcdsl.strategies.problem import Problem, analysis
from tcdsl.strategies.schedule import Schedule
from tcdsl.strategies.traffic import footprints

SCATTERED = gpu_thresholds.SCATTERED_LOOKUPS


@dataclass(frozen=True, slots=True)
class Access:
    """An access of all instances of a member: *requests* of warps, each of so many lines."""

    array: str
    requests: float
    lines: float
    moved_bytes: int  # every element once
    run_bytes: int  # of memory without a gap that a block has of it
    row_bytes: int  # that all blocks together have of such a run
    begin_bytes: int  # of which all runs begin at a multiple; at least an element
    halo: float = 1.0  # elements that blocks have of it, for each that there is


class LookedUp(NamedTuple):
    """Lines that warps look up in the first-level cache; bytes fetched beside their own."""

    lines: float
    fetched: float


def looked_up(problem: Problem, schedule: Schedule) -> LookedUp:
    """Return what the accesses to arrays in memory look up, and fetch beside that.

    Of what the kernel keeps the first access alone is one of memory, and of what blocks have copies
    of in shared memory none is.
    """
    sector, footprint_bytes = problem.gpu.sector_bytes, footprints(problem)
    lines = fetched = 0.0
    seen: set[str] = set()
    for name in problem.group.members:
        own = problem.shapes[name].statement.write.array
        is_copied = name in schedule.private and not schedule.is_summed
        for access in accesses_of(problem, schedule, name):
            if access.array in seen or (is_copied and access.array == own):
                continue
            if access.array in schedule.resident:
                seen.add(access.array)
            lines += access.requests * access.lines
            # As many bytes of a sector as there are beside a run that begins anywhere, on average;
            # rows that a block has as a whole lie beside one another.
            is_part = access.run_bytes < access.row_bytes
            beside = sector - min(sector, access.begin_bytes) if is_part else 0
            whole = access.run_bytes + beside if beside else _up(access.run_bytes, sector)
            over = min(whole, access.row_bytes + beside) / access.run_bytes - 1
            over += access.halo - 1
            fetched += over * min(footprint_bytes[access.array], access.moved_bytes)
    return LookedUp(lines, fetched)


class _Window(NamedTuple):
    """A subscript that reduced indices move: how far a step of each dimension does, and all."""

    steps: tuple[tuple[int, int], ...]
    whole: int


class _Strided(NamedTuple):
    """An access whatever its schedule is: its strides, and the elements that it moves."""

    array: str
    strides: tuple[float, ...]
    element_bytes: int
    moved: int
    begin_bytes: int
    place: tuple[Expr, ...]
    windows: tuple[_Window, ...]


@analysis
def _in_memory(problem: Problem, name: str) -> list[_Strided]:
    """Return the accesses of the member *name* to arrays in memory, writes first."""
    shape, known = problem.shapes[name], footprints(problem)
    found, accesses = [], (*shape.statement.writes, *shape.statement.reads)
    arrays = tuple(problem.scop.arrays[access.array] for access in accesses)
    every = usual_strides(shape.statement, arrays)
    for access, array, strides in zip(accesses, arrays, every, strict=True):
        if access.array in known:
            is_met = all(n for n, step in zip(shape.counts, strides, strict=True) if step)
            moved = prod(map(_others, shape.counts, strides)) if is_met else 0.0
            size, place = array.dtype.size_bytes, access.subscripts
            begin, windows = _begin(shape, strides, size), _windows(shape, place)
            found.append(_Strided(access.array, strides, size, round(moved), begin, place, windows))
    return found


def accesses_of(problem: Problem, schedule: Schedule, name: str) -> Iterator[Access]:
    """Yield the accesses of the member *name* to arrays in memory, writes first."""
    found = _in_memory(problem, name)
    if not found:
        return
    shape = problem.shapes[name]
    pieces = [*(loop.pieces[name] for loop in schedule.outer if name in loop.pieces)]
    pieces += schedule.remaining[name]
    threads = [p for p in pieces if p.kind is LoopKind.THREAD and p.axis != RANK]
    threads.sort(key=lambda piece: piece.axis)
    vector = prod(piece.extent for piece in pieces if piece.kind is LoopKind.LANES)
    counts = [(p.coordinate.position, p.coordinate.div, min(p.extent, p.width)) for p in threads]
    active = min(WARP, prod(count for *_, count in counts))
    loops = unrolled(problem, schedule, name)
    for array, strides, size, moved, begin, place, windows in found:
        # What no thread loop tells apart is accessed once, outside the loops that do not move it.
        copies = lanes = 1.0  # threads that access the same element, and others
        for position, step, count in counts:
            others = _others(count, strides[position] * step)
            lanes *= others
            copies *= count / others
        requests = max(moved, moved * copies) / vector / active * part_left((place,), loops)
        whole = max(1.0, min(WARP, lanes) * vector * size / LINE_BYTES)
        scattered = max(0.0, _lines(threads, strides, size, vector) - whole)
        lines = whole + SCATTERED * scattered
        run, row = _run(shape, pieces, strides, size)
        halo = _halo(shape, pieces, windows)
        yield Access(array, requests, lines, moved * size, run, row, begin, halo)


def _up(size_bytes: int, unit: int) -> int:
    return ceil(size_bytes / unit) * unit


def _begin(shape: Shape, strides: Sequence[float], size: int) -> int:
    """Return the bytes of which all rows of an array begin at a multiple.

    The array itself does: only what it has of other dimensions counts.
    """
    others = [
        round(stride * size)
        for stride, extent in zip(strides, shape.extents, strict=True)
        if extent > 1 and stride > 1 and stride == int(stride)
    ]
    return gcd(LINE_BYTES, *others)


def _others(count: int, stride: float) -> float:
    """Return how many different elements *count* values of an index have, *stride* apart.

    x(k / 32) is the same for 32 of them.
    """
    return max(1.0, min(count, count * stride))


def _windows(shape: Shape, place: Sequence[Expr]) -> tuple[_Window, ...]:
    """Return those subscripts of *place* that reduced indices move."""
    found = []
    if Role.REDUCED in shape.roles:
        for subscript in place:
            every = [abs(coefficient_of(subscript, i) or 0) for i in shape.statement.indices]
            steps = tuple((dim, step) for dim, step in enumerate(every) if step)
            if any(shape.roles[dim] is Role.REDUCED for dim, _ in steps):
                whole = 1 + sum(step * (shape.extents[dim] - 1) for dim, step in steps)
                found.append(_Window(steps, whole))
    return tuple(found)


def _halo(shape: Shape, pieces: Sequence[Piece], windows: Sequence[_Window]) -> float:
    """Return how many elements blocks have of *windows*, for each that they would of one term.

    y(i) +=! x(i + k) * f(k)      blocks of 4 values i, 3 terms k: 6 elements of x for 4
    """
    if not windows:
        return 1.0
    own = dict.fromkeys(range(len(shape.extents)), 1)
    for piece in pieces:
        if piece.kind is not LoopKind.BLOCK and piece.axis != RANK:
            own[piece.coordinate.position] *= piece.extent
    found = 1.0
    for steps, whole in windows:
        of_block = 1 + sum(step * (own[dim] - 1) for dim, step in steps)
        blocks = prod(shape.extents[dim] / own[dim] for dim, _ in steps)
        found *= max(1.0, blocks * of_block / whole)
    return found


def _lines(threads: Sequence[Piece], strides: Sequence[float], size: int, vector: int) -> float:
    """Return how many lines the lanes of a warp access at once."""
    run, lines, left = vector * size, 1.0, WARP
    for piece in threads:
        count = min(left, piece.extent, piece.width)
        step = strides[piece.coordinate.position] * piece.coordinate.div * size
        if step == run:
            run *= count
        elif step:
            span = min(step, LINE_BYTES)
            lines *= max(1.0, count * span / LINE_BYTES)
        left = max(1, left // count)
    return lines * max(1.0, run / LINE_BYTES)


def _run(
    shape: Shape, pieces: Sequence[Piece], strides: Sequence[float], size: int
) -> tuple[int, int]:
    """Return the bytes of a run of memory that a block has, and that there are."""
    along = next((d for d, stride in enumerate(strides) if stride == 1), None)
    if along is None:
        return size, size
    blocks = prod(
        piece.extent
        for piece in pieces
        if piece.coordinate.position == along
        and (piece.kind is LoopKind.BLOCK or piece.axis == RANK)
    )
    row = shape.extents[along] * size
    return ceil(row / max(1, blocks)), row
