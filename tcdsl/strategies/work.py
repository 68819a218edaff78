"""What a kernel costs in countable things, read off its schedule before any rewrite.

    blocks, threads      the widths of the loops over them
    bytes                of each array that the kernel does not keep to itself, every element once;
                         again for each later pass over it, from the cache where that holds it
    in flight            vectors of a thread that do not wait for one another
    chain                passes that wait for a fold, the folds' barriers, loads of later passes
    finish               what the last block adds up

Counts are of boxes, which may be larger than domains: it takes microseconds, and calls isl never.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import ceil, inf, prod
from typing import NamedTuple

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.atomics import Updates, seconds_in_copies, seconds_in_memory, seconds_of_fold
from tcdsl.costmodel.chip import WARP
from tcdsl.costmodel.prefetches import LEAST_BYTES
from tcdsl.costmodel.reductions import IN_FLIGHT, PARTIAL
from tcdsl.costmodel.registers import REGISTER_BYTES
from tcdsl.costmodel.row_column import IN_TURNS
from tcdsl.costmodel.work import Chain, Work
from tcdsl.lang.comprehension import Select, walk
from tcdsl.poly.loop_tree import RANK, LoopKind, X
from tcdsl.poly.scop import Kind, loads_of
from tcdsl.records import dataclass
from tcdsl.schedule.mapping import Dim3
from tcdsl.schedule.nesting import Piece
from tcdsl.strategies.access_costs import looked_up
from tcdsl.strategies.arithmetic import instructions_of, operations_of, register_blocks
from tcdsl.strategies.code_work import most_registers, with_code
from tcdsl.strategies.fold_costs import fold_cycles, folds_of, updates_of
from tcdsl.strategies.private_results import copy_elements, neighbours
from tcdsl.strategies.problem import Problem, analysis
from tcdsl.strategies.row_registers import live_arrays
from tcdsl.strategies.schedule import Schedule
from tcdsl.strategies.traffic import Traffic, footprints, traffic_of, waiting_temporaries

OTHER_REGISTERS = gpu_thresholds.REGISTERS_BESIDE_KEPT
RESULT_REGISTERS = gpu_thresholds.REGISTERS_OF_RESULT
LEAST_REGISTERS = gpu_thresholds.REGISTERS_OF_STREAM
ARRAY_REGISTERS = gpu_thresholds.REGISTERS_OF_ARRAY
SUM_REGISTERS = gpu_thresholds.REGISTERS_OF_SUM
BLOCK_REGISTERS = gpu_thresholds.REGISTERS_OF_BLOCK
UNROLLED = gpu_thresholds.UNROLLED_ITERATIONS
PRIVATE = gpu_thresholds.PRIVATE_BYTES
LOCAL = gpu_thresholds.LOCAL_TRAFFIC
HALF_BYTES = gpu_thresholds.KEPT_HALF_BYTES
MOST_BYTES = gpu_thresholds.STREAM_BYTES
WARP_CYCLES = gpu_thresholds.WARP_CYCLES
STAGED_CYCLES = gpu_thresholds.STAGED_CYCLES
TICKET = gpu_thresholds.TICKET_ATOMICS
L1_SHARE = gpu_thresholds.L1_HELD
MOST_IN_FLIGHT = gpu_thresholds.SERIAL_VECTORS
UPDATE_CYCLES = gpu_thresholds.SHARED_UPDATE_CYCLES


def work_of(problem: Problem, schedule: Schedule) -> Work:
    """Return what the kernel of *problem* costs by its *schedule*."""
    return with_accesses(problem, schedule, least_work_of(problem, schedule))


def with_accesses(problem: Problem, schedule: Schedule, least: Work) -> Work:
    """Return *least* with what warps' accesses look up and fetch, the dearer part of the count."""
    if schedule.work is not None:
        return least
    found = looked_up(problem, schedule)
    return replace(least, l2_bytes=least.l2_bytes + found.fetched, lines=found.lines)


def least_work_of(problem: Problem, schedule: Schedule) -> Work:
    """Return what *schedule* costs as if no access looked up or fetched more than its elements.

    No count is greater than :func:`work_of`'s, and an estimate grows with each of them.
    """
    if isinstance(schedule.work, Work):
        return with_code(schedule.work, schedule.code, problem.gpu)
    grid = _grid(schedule)
    blocks, cluster, threads = grid
    lead = problem.shapes[problem.lead]
    vector = _extent(schedule.remaining[problem.lead], LoopKind.LANES)
    busy = _busy(schedule, problem.lead)
    each = lead.instances / max(1, blocks * threads * busy * vector)  # vectors of such a thread
    element_bytes = _element_bytes(problem)
    of_turn = each / _turns(schedule) if _is_folded(schedule) else each
    at_once = min(of_turn, _at_once(problem, schedule, vector * element_bytes))
    kept = _kept_bytes(problem, schedule, blocks * threads * busy)
    vector_bytes = vector * max(1, element_bytes)
    # What is kept in registers is on its way into them; of other loads compilers start some later.
    most_bytes = inf if kept else max(vector_bytes, MOST_BYTES)
    in_flight_bytes = min(most_bytes, max(1.0, at_once) * vector_bytes)
    rounds = each * vector_bytes / in_flight_bytes
    registers = _registers(problem, schedule, threads, kept)
    spilled = _spilled_bytes(problem, schedule, registers, kept) * threads * blocks
    moved = _moved(problem, schedule, grid, spilled)
    lanes = ceil(threads / WARP) * WARP / threads  # of warps, for each that is a thread
    padding, blocks_of = _padding(schedule, problem), register_blocks(problem, schedule)
    made = Work(
        blocks=blocks,
        threads=threads,
        registers=registers,
        shared_bytes=_staged_bytes(problem, schedule, blocks),
        cluster=cluster,
        read_bytes=moved.read,
        written_bytes=moved.written,
        l2_bytes=moved.l2,
        operations=tuple((u, lanes * count) for u, count in operations_of(problem, blocks_of)),
        instructions=lanes * instructions_of(problem, vector, blocks_of) * padding,
        in_flight_bytes=in_flight_bytes * busy,
        independent=1.0,
        chain=_chain_of_turns(problem, schedule, grid, _chain(problem, schedule, grid, rounds)),
        finish=_finish(problem, schedule),
        is_programmatic=problem.gpu.overlaps_kernels,
        is_prefetched=_is_prefetched(problem, schedule, blocks),
    )
    return with_code(made, schedule.code, problem.gpu)


class Grid(NamedTuple):
    """The blocks of a kernel, those of a cluster, and the threads of a block."""

    blocks: int
    cluster: int
    threads: int


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes from and to memory, and those that cross from the second-level cache."""

    read: float
    written: float
    l2: float


@analysis
def _element_bytes(problem: Problem) -> int:
    """Return the bytes of an element of each of the largest arrays that are loaded."""
    loaded = [t for t in traffic_of(problem) if t.is_read]
    most = max((t.footprint_bytes for t in loaded), default=0.0)
    arrays = (problem.scop.arrays[t.array] for t in loaded if 2 * t.footprint_bytes >= most)
    return sum(array.dtype.size_bytes for array in arrays)


def _moved(problem: Problem, schedule: Schedule, grid: Grid, spilled_registers: float) -> Moved:
    """Return what the kernel moves: rows that are not kept are read again by each pass.

    :arg spilled_registers: bytes of what registers do not hold.
    """
    traffic = traffic_of(problem)
    loaded = [t for t in traffic if t.is_read]
    again = {t.array: 1 if t.array in schedule.resident else t.passes for t in loaded}
    from_cache = sum((again[t.array] - 1) * t.footprint_bytes for t in loaded)
    missing = from_cache * _missing(problem, schedule, grid, loaded)
    is_spilled = _part_bytes(problem, schedule, grid, loaded) > problem.gpu.l2_bytes
    spilled = missing if is_spilled else 0.0
    read = sum(t.footprint_bytes for t in loaded)
    written = sum(t.footprint_bytes for t in traffic if t.is_written)
    private = _private_bytes(problem, schedule, grid) + spilled_registers
    return Moved(
        read + spilled + private,
        written + private,
        read + missing + written + 2 * private,
    )


def _missing(problem: Problem, schedule: Schedule, grid: Grid, loaded: list[Traffic]) -> float:
    """Return the part of what is read again that a multiprocessor's own cache does not hold."""
    chip = problem.gpu
    resident = min(
        grid.blocks / chip.multiprocessors, chip.threads_per_multiprocessor / max(grid.threads, 32)
    )
    several = sum(
        t.footprint_bytes for t in loaded if t.passes > 1 and t.array not in schedule.resident
    )
    part = max(1.0, resident) * several / grid.blocks
    return max(0.0, 1.0 - L1_SHARE * chip.l1_bytes_per_multiprocessor / part) if part else 0.0


def _is_prefetched(problem: Problem, schedule: Schedule, blocks: int) -> bool:
    """Return whether blocks ask the cache for the row after the one that they compute with."""
    if not schedule.code.prefetch_bytes or not schedule.persistent or schedule.private:
        return False
    row = (
        sum(t.footprint_bytes for t in traffic_of(problem) if t.is_read) / blocks / _turns(schedule)
    )
    return LEAST_BYTES <= row <= schedule.code.prefetch_bytes / blocks


def _private_bytes(problem: Problem, schedule: Schedule, grid: Grid) -> float:
    """Return the bytes of temporaries of which a thread has more than its registers hold."""
    sizes = (size for name, size in waiting_temporaries(problem) if name not in schedule.resident)
    return LOCAL * sum(size for size in sizes if size > PRIVATE * grid.blocks * grid.threads)


def _spilled_bytes(problem: Problem, schedule: Schedule, registers: int, kept: float) -> float:
    """Return the bytes of what a thread keeps that its *registers* do not hold.

    In each row of a block with several, whose sums of columns are registers, too.
    """
    room = REGISTER_BYTES * (registers - gpu_thresholds.FEWEST_BESIDE_KEPT)
    if not schedule.persistent:
        return 2 * max(0.0, kept - room)
    sums = REGISTER_BYTES * _neighbours(problem, schedule)
    return 2 * _turns(schedule) * max(0.0, kept + sums - room) if kept else 0.0


def _at_once(problem: Problem, schedule: Schedule, vector_bytes: int) -> float:
    """Return how many vectors of the lead a thread loads before it uses the first.

    In a serial loop over results a load that a condition on indices guards waits for the turn
    before: rope's derivative took 369 us on an H100, for bytes that take 220.
    """
    unrolled = _unrolled(schedule, problem.lead)
    serial = min(UNROLLED, max(1, schedule.code.unrolled_bytes // max(1, vector_bytes)))
    return max(unrolled, 1 if _has_guarded_loads(problem) else serial)


@analysis
def _has_guarded_loads(problem: Problem) -> bool:
    """Return whether indices say which elements the lead loads, of one value that it assigns."""
    statement = problem.shapes[problem.lead].statement
    if statement.kind is not Kind.ASSIGN or statement.value is None:
        return False
    choices = (node for node in walk(statement.value) if isinstance(node, Select))
    return any(
        loads_of(node.if_true, node.if_false) and not loads_of(node.condition) for node in choices
    )


# --- loops -------------------------------------------------------------------------------------


def _pieces(schedule: Schedule) -> Iterator[Piece]:
    """Yield the loops, those that members have in common once."""
    for loop in schedule.outer:
        yield from {id(piece): piece for piece in loop.pieces.values()}.values()
    for pieces in {id(own): own for own in schedule.remaining.values()}.values():
        yield from pieces


def _grid(schedule: Schedule) -> Grid:
    """Return the widths of the loops over blocks and threads."""
    blocks, threads = _widths(schedule)
    cluster = threads.pop(RANK, 1)
    return Grid(prod(blocks.values()) * cluster, cluster, prod(threads.values()))


def along_axes(schedule: Schedule, kind: LoopKind) -> Dim3:
    """Return how many blocks *schedule* has along x, y, z, or how many threads a block."""
    widths = _widths(schedule)[kind is LoopKind.THREAD]
    return widths.get(0, 1), widths.get(1, 1), widths.get(2, 1)


def _widths(schedule: Schedule) -> tuple[dict[int, int], dict[int, int]]:
    """Return the width of the loops over blocks, and over threads, along each axis with some."""
    blocks, threads = dict[int, int](), dict[int, int]()
    for piece in _pieces(schedule):
        if piece.kind is LoopKind.THREAD or piece.kind is LoopKind.BLOCK:
            own = threads if piece.kind is LoopKind.THREAD else blocks
            own[piece.axis] = max(own.get(piece.axis, 1), piece.width)
    return blocks, threads


def _busy(schedule: Schedule, name: str) -> float:
    """Return the share of a block's threads that run *name*: there may be fewer values of an axis.

    A row of ten values that 128 threads share leaves most of them idle.
    """
    share = 1.0
    own = (*(loop.pieces[name] for loop in schedule.outer), *schedule.remaining[name])
    for piece in own:
        if piece.kind is LoopKind.THREAD and piece.width and piece.extent:
            share *= min(1.0, piece.extent / piece.width)
    return share


def _extent(pieces: tuple[Piece, ...], kind: LoopKind) -> int:
    return prod(piece.extent for piece in pieces if piece.kind is kind)


def _padding(schedule: Schedule, problem: Problem) -> float:
    """Return how many instances of the lead threads go over, for each that there is."""
    pieces = [loop.pieces[problem.lead] for loop in schedule.outer if problem.lead in loop.pieces]
    total = 1.0
    for piece in (*pieces, *schedule.remaining[problem.lead]):
        turns = ceil(piece.extent / max(1, piece.width))
        if piece.kind is not LoopKind.THREAD:
            total *= piece.extent
        elif turns > 1:
            total *= turns * piece.width
        else:  # threads of a warp that has some of the values take part
            is_short = piece.axis == X and piece.extent < piece.width
            lanes = min(piece.width, WARP) if is_short else 1
            total *= ceil(piece.extent / lanes) * lanes
    return max(1.0, total / max(1, problem.shapes[problem.lead].instances))


def _turns(schedule: Schedule) -> int:
    """Return how many rows a block takes one after another, with the same registers."""
    return prod(piece.extent for piece in schedule.persistent if piece.kind is not LoopKind.BLOCK)


def _unrolled(schedule: Schedule, name: str) -> int:
    """Return how many vectors of *name* a thread takes in unrolled loops."""
    return _extent(schedule.remaining[name], LoopKind.UNROLL)


# --- what blocks and threads have --------------------------------------------------------------


def _registers(problem: Problem, schedule: Schedule, threads: int, kept: float) -> int:
    """Return the registers of a thread: the compiler makes do with those that a block may have."""
    resident = schedule.code.resident_blocks if kept else 1  # of others see with_code
    needed = LEAST_REGISTERS
    lanes = _extent(schedule.remaining[problem.lead], LoopKind.LANES)
    if not kept and lanes > 1:
        needed = max(needed, _of_streams(problem))
    if schedule.points > 1:  # sums, about as many values that they are made of, loads on their way
        needed = max(needed, OTHER_REGISTERS + BLOCK_REGISTERS + 2 * schedule.points * lanes)
    if kept:
        own = ceil(kept / REGISTER_BYTES) + RESULT_REGISTERS * _neighbours(problem, schedule)
        needed = max(needed, OTHER_REGISTERS + own)
    return min(most_registers(problem.gpu, threads, resident), needed)


@analysis
def _of_streams(problem: Problem) -> int:
    """Return the registers of a thread that loads vectors of several arrays, and adds some up."""
    loaded = sum(t.is_read for t in traffic_of(problem))
    return OTHER_REGISTERS + ARRAY_REGISTERS * loaded + SUM_REGISTERS * len(updates_of(problem))


def _neighbours(problem: Problem, schedule: Schedule) -> int:
    """Return how many sums of neighbours in memory, and values made of sums, a thread has."""
    lead, total = problem.shapes[problem.lead].instances, 0
    for name in problem.group.members:
        shape = problem.shapes[name]
        if shape.statement.kind is Kind.UPDATE or shape.instances < lead:
            pieces = (*(loop.pieces[name] for loop in schedule.outer), *schedule.remaining[name])
            along = (p for p in pieces if shape.strides[0][p.coordinate.position])
            own = prod(p.extent for p in along if p.kind in (LoopKind.LANES, LoopKind.UNROLL))
            total += own if own > 1 else 0
    return total


def _part_bytes(problem: Problem, schedule: Schedule, grid: Grid, loaded: list[Traffic]) -> float:
    """Return what the blocks that run at once go over several times."""
    resident = problem.gpu.threads // max(grid.threads, 1)
    share = min(1.0, resident / max(1, grid.blocks // grid.cluster))
    several = (t for t in loaded if t.passes > 1 and t.array not in schedule.resident)
    return share * sum(t.footprint_bytes for t in several)


def _kept_bytes(problem: Problem, schedule: Schedule, threads: float) -> float:
    """Return the bytes that each of *threads* keeps of rows or columns, of those that are busy."""
    kept = [a for a in schedule.resident if not schedule.is_staged or a not in _arguments(problem)]
    if not kept:
        return 0.0
    each = problem.shapes[problem.lead].instances / (threads * _turns(schedule))
    dtypes = [problem.scop.arrays[a].dtype for a in kept]
    halves = all(dtype.is_half for dtype in dtypes)
    value = HALF_BYTES if halves else float(max(REGISTER_BYTES, *(d.size_bytes for d in dtypes)))
    return value * each * max(1, live_arrays(problem, kept))


def _arguments(problem: Problem) -> set[str]:
    return set(footprints(problem))


def _staged_bytes(problem: Problem, schedule: Schedule, blocks: int) -> int:
    """Return the bytes of shared memory of a block."""
    if not schedule.is_staged:
        return 0
    staged = (footprints(problem).get(array, 0.0) for array in schedule.resident)
    return ceil(sum(staged) / max(1, blocks))


# --- what waits --------------------------------------------------------------------------------


def _chain(problem: Problem, schedule: Schedule, grid: Grid, rounds: float) -> Chain:
    """Return what a block waits for: the folds of its reductions, each pass's loads, its ticket.

    :arg rounds: of loads, in which a thread has its part of a row.
    """
    folds = folds_of(problem, schedule)
    if not schedule.private:  # else its turns are counted by _chain_of_turns
        folds = folds.repeated(_turns(schedule))
    loaded = (t for t in traffic_of(problem) if t.is_read and t.array not in schedule.resident)
    again = max((t.passes - 1 for t in loaded), default=0)
    copied = STAGED_CYCLES if schedule.is_staged else 0.0
    barriers = (IN_TURNS if schedule.persistent else 2.0) if grid.cluster > 1 else 0.0
    later = max(0, ceil(grid.threads / WARP) - problem.gpu.schedulers_per_multiprocessor)
    return Chain(
        l2_loads=again * ceil(rounds),
        block_barriers=2.0 * folds.over_blocks,
        cluster_barriers=barriers * folds.over_clusters,
        atomics=TICKET if _is_chunked(schedule) else 0.0,
        cycles=folds.cycles + WARP_CYCLES * later + copied,
    )


def _is_folded(schedule: Schedule) -> bool:
    """Return whether threads share sums: of a block's turns each waits for the one before it."""
    return any(p.is_lane for found in schedule.partials.values() for p in found)


def _is_chunked(schedule: Schedule) -> bool:
    """Return whether blocks share sums, which the last of them adds up."""
    partials = (p for found in schedule.partials.values() for p in found)
    return schedule.layout is not None and any(not p.is_lane for p in partials)


def _chain_of_turns(problem: Problem, schedule: Schedule, grid: Grid, once: Chain) -> Chain:
    """Return *once* for each turn of a block with copies of results: each waits for its loads.

    Without folds a thread has the loads of several turns on their way.  Its updates of floats in
    shared memory wait for one another too.
    """
    if not schedule.private or not schedule.persistent:
        return once
    turns, loads = prod(turn.extent for turn in schedule.persistent), once.dram_loads
    if not _is_folded(schedule):  # else in_flight_bytes are of one turn
        turns = ceil(turns / MOST_IN_FLIGHT)
        loads = max(loads, float(turns))
    of_floats = 0.0 if schedule.is_summed else _float_updates(problem, schedule)
    updates = of_floats / max(1, grid.blocks // grid.cluster * grid.threads)
    return replace(
        once,
        dram_loads=loads,
        block_barriers=once.block_barriers * turns,
        cycles=once.cycles * turns + UPDATE_CYCLES * updates,
    )


def _float_updates(problem: Problem, schedule: Schedule) -> int:
    """Return how many updates of floats go to copies in shared memory."""
    shapes = (problem.shapes[name] for name in schedule.private)
    own = ((shape, shape.statement.reduction) for shape in shapes)
    return sum(s.instances for s, r in own if r is not None and r.dtype.is_float)


def _finish(problem: Problem, schedule: Schedule) -> Chain:
    """Return what the last block of a kernel in chunks does, and how long atomics take."""
    cycles = sum(_atomic_seconds(problem, schedule, name) for name in _atomic_members(problem))
    cycles *= problem.gpu.clock_hz
    if not _is_chunked(schedule):
        return Chain(cycles=cycles)
    assert schedule.layout is not None
    lanes = schedule.layout.lane[1]
    again = ceil(ceil(schedule.layout.count / max(lanes, 1)) / IN_FLIGHT)
    cycles += 2 * fold_cycles(lanes)
    return Chain(l2_loads=PARTIAL * again, cycles=cycles)


@analysis
def _atomic_members(problem: Problem) -> list[str]:
    statements = {name: problem.shapes[name].statement for name in problem.group.members}
    return [n for n, s in statements.items() if s.is_atomic and s.reduction is not None]


def _atomic_seconds(problem: Problem, schedule: Schedule, name: str) -> float:
    """Return how long the updates of *name* take, if they are atomic: in copies, or in memory."""
    shape = problem.shapes[name]
    statement, reduction = shape.statement, shape.statement.reduction
    assert reduction is not None, "an update"
    target = problem.scop.arrays[statement.write.array]
    elements = (target.size_bytes() or 0) / target.dtype.size_bytes
    is_native = not reduction.dtype.is_float
    along, step = neighbours(problem.scop, schedule, name)
    apart = max(1, problem.gpu.threads_per_warp // along)
    updates = Updates(shape.instances, elements, target.dtype.size_bytes, is_native, apart, step)
    if name not in schedule.private:
        return seconds_in_memory(updates, problem.gpu)
    if schedule.is_summed:
        copies = prod(p.extent for p in schedule.private[name])
        fold = seconds_of_fold(elements, target.dtype.size_bytes, copies, problem.gpu)
        return seconds_in_memory(updates, problem.gpu, copies) + fold
    copies = prod(p.extent for p in schedule.private[name])
    copy = copy_elements(problem.scop, schedule, name)
    return seconds_in_copies(updates, copies, copy, problem.gpu)
