"""What a kernel costs on a CPU, read off its schedule before any rewrite.

    parallel i:  { for j: m = max(x[i,j]) }      a phase
                 { for j: z[i,j] = x[i,j] - m }  a phase; x[i,:] is near where caches hold a row

Each member is a nest of its own inside the loops that all share.  Counts are of boxes, and ask isl
nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil, log2, prod
from typing import NamedTuple

from tcdsl.costmodel import cpu_thresholds
from tcdsl.costmodel.chip import Unit
from tcdsl.costmodel.locality import Shape
from tcdsl.costmodel.nests import Moves, Touched
from tcdsl.costmodel.register_tiles import registers_of, steps_of_box
from tcdsl.costmodel.work import CpuWork, Phase
from tcdsl.lang.comprehension import Binary, Call, Cast, Expr, Select, Unary, walk
from tcdsl.lang.types.dtypes import INT32
from tcdsl.poly.loop_tree import LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind
from tcdsl.strategies.problem import Problem, analysis
from tcdsl.strategies.schedule import Schedule

CALLS, CONVERSION = cpu_thresholds.CALL_OPERATIONS, cpu_thresholds.CONVERSION_OPERATIONS
RESTART = cpu_thresholds.RESTART_BYTES
UNROLLED_VECTORS = 4  # that C compilers write out: no loop is left
UPDATED = 1.5  # loads that loading and storing an element takes: stores run beside loads


class _Loop(NamedTuple):
    """A loop of a member: its dimension, step and trips, and what loops of others are the same."""

    dim: int
    step: int
    trips: float
    shared: tuple[object, ...]


class _Nest(NamedTuple):
    """The loops of the member *name*, outermost first, those of one thread."""

    name: str
    loops: tuple[_Loop, ...]

    @property
    def trips(self) -> tuple[float, ...]:
        return tuple(loop.trips for loop in self.loops)


def cpu_work_of(problem: Problem, schedule: Schedule) -> CpuWork:
    """Return what the kernel of *problem* costs in the schedule *schedule*."""
    if isinstance(schedule.work, CpuWork):
        return schedule.work
    threads = _threads(problem, schedule)
    nests = [_nest(problem, schedule, name, threads) for name in schedule.members]
    depth = _shared_depth(nests)
    near = _Near(problem, schedule, nests, depth)
    near.threads = threads
    phases = [_scaled(_phase(problem, schedule, nest, near), threads) for nest in nests]
    if all(len(nest.loops) == depth for nest in nests):
        phases = [_added(phases)]
    forks = 1 if any(loop.kind is LoopKind.PARALLEL for loop in schedule.outer) else 0
    return CpuWork(tuple(phases), forks if problem.cpu.threads > 1 else 0)


def _threads(problem: Problem, schedule: Schedule) -> float:
    """Return how many threads are busy, on average."""
    most, lead = problem.cpu.threads, problem.lead
    trips = prod(
        loop.pieces[lead].extent
        for loop in schedule.outer
        if loop.kind is LoopKind.PARALLEL and lead in loop.pieces
    )
    return trips / ceil(trips / most) if trips > 1 and most > 1 else 1.0


# --- loops -------------------------------------------------------------------------------------


def _nest(problem: Problem, schedule: Schedule, name: str, threads: float) -> _Nest:
    shape, axes = problem.shapes[name], _axis_numbers(problem)
    around = [(loop.pieces[name], loop.kind) for loop in schedule.outer if name in loop.pieces]
    inside = [(piece, None) for piece in schedule.remaining[name]]
    found = []
    for piece, kind in (*around, *inside):
        dim, step = piece.coordinate.position, piece.coordinate.div
        # The last tile is a part of one.
        trips = max(1.0, min(piece.extent, shape.counts[dim] / step))
        if kind is LoopKind.PARALLEL:
            trips, threads = max(1.0, trips / threads), max(1.0, threads / trips)
        shared = axes.get((name, dim), name), step, piece.coordinate.mod, trips, piece.apart
        found.append(_Loop(dim, step, trips, shared))
    return _Nest(name, tuple(found))


@analysis
def _axis_numbers(problem: Problem) -> Mapping[tuple[str, int], int]:
    return {
        (name, dim): number
        for number, axis in enumerate(problem.group.axes)
        for name, dim in axis.items()
    }


def _shared_depth(nests: Sequence[_Nest]) -> int:
    """Return how many loops, from the outermost on, all members share that have as many."""
    depth = 0
    for loops in zip(*(nest.loops for nest in nests), strict=False):
        if any(loop.shared != loops[0].shared for loop in loops):
            break
        depth += 1
    return depth


# --- bytes -------------------------------------------------------------------------------------


class _Near:
    """Which arrays are near when a member reads them, since those before it have."""

    def __init__(
        self, problem: Problem, schedule: Schedule, nests: Sequence[_Nest], depth: int
    ) -> None:
        self.depth = depth
        self.threads = 1.0
        self._schedule = schedule
        self.own = _internal_arrays(problem)
        self._seen: set[str] = set()
        self._problem = problem
        self.touched = {nest.name: self._touched(nest) for nest in nests}
        most: dict[str, float] = {}
        for nest in nests:
            arrays = _arrays(problem.shapes[nest.name])
            for array, inside in zip(arrays, self.touched[nest.name].inside, strict=True):
                most[array] = max(most.get(array, 0), inside[depth])
        self._together = sum(most.values())

    def _touched(self, nest: _Nest) -> Touched:
        shape = self._problem.shapes[nest.name]
        sizes = _element_bytes(self._problem, nest.name)
        n_writes = len(shape.statement.writes)
        moves = []
        for number, (array, row) in enumerate(zip(_arrays(shape), shape.strides, strict=True)):
            size = float(sizes[number])
            strides = [abs(row[loop.dim]) * loop.step * sizes[number] for loop in nest.loops]
            if array in self.own:
                strides[: self.depth] = [0] * self.depth
            if number < n_writes and _is_tile(self._schedule, nest.name):
                # Sums are in registers until a tile of them is stored.
                for at in _in_tile(self._schedule, nest):
                    size, strides[at] = size * nest.trips[at], 0
            moves.append(Moves(tuple(strides), size, number < n_writes))
        return Touched(moves, nest.trips)

    def bytes_into(self, name: str, cache_bytes: float, restart_bytes: float) -> float:
        """Return the bytes that come into a cache of *cache_bytes* for the member *name*."""
        arrays = _arrays(self._problem.shapes[name])
        found = self.touched[name].bytes_into(cache_bytes, restart_bytes)
        is_held = self._together <= cpu_thresholds.HELD_SHARE * cache_bytes
        return sum(
            own for array, own in zip(arrays, found, strict=True)
            if not (is_held and (array in self._seen or array in self.own))
        )  # fmt: skip

    def is_seen(self, array: str) -> bool:
        return array in self._seen

    def see(self, name: str) -> None:
        """Let what the member *name* touches be near for those after it."""
        self._seen |= set(_arrays(self._problem.shapes[name]))


@analysis
def _internal_arrays(problem: Problem) -> frozenset[str]:
    """Return the arrays that nothing outside the kernel uses."""
    scop, members = problem.scop, set(problem.group.members)
    found = {array for name in members for array in _arrays(problem.shapes[name])}
    return frozenset(
        name for name in found
        if not (scop.arrays[name].is_input or scop.arrays[name].is_output)
        and all(s.name in members or s.kind is Kind.INIT for s in scop.users.get(name, ()))
    )  # fmt: skip


def _arrays(shape: Shape) -> list[str]:
    return [a.array for a in (*shape.statement.writes, *shape.statement.reads)]


@analysis
def _element_bytes(problem: Problem, name: str) -> tuple[int, ...]:
    """Return the bytes of an element of each access of *name*."""
    arrays = problem.scop.arrays
    return tuple(arrays[array].dtype.size_bytes for array in _arrays(problem.shapes[name]))


# --- phases ------------------------------------------------------------------------------------


def _phase(problem: Problem, schedule: Schedule, nest: _Nest, near: _Near) -> Phase:
    """Return what one thread does of a member."""
    cpu, name = problem.cpu, nest.name
    bytes_ = [
        near.bytes_into(name, size, restart)
        for size, restart in (
            (cpu.l1_bytes, 0),
            (cpu.l2_bytes, RESTART[0]),
            (cpu.l3_bytes, RESTART[1]),
        )
    ]
    core = (_tile if _is_tile(schedule, name) else _row)(problem, schedule, nest, near)
    near.see(name)
    return replace(core, l2_bytes=bytes_[0], l3_bytes=bytes_[1], dram_bytes=bytes_[2])


def _is_tile(schedule: Schedule, name: str) -> bool:
    """Return whether the sums of *name* are a register tile."""
    return name in schedule.innermost or any(member == name for member, _ in schedule.unrolled)


def _in_tile(schedule: Schedule, nest: _Nest) -> list[int]:
    """Return the positions of the loops over a tile of registers, not of those around it.

    Around a tile of one row these have a step of 1, too.
    """
    last = len(nest.loops) - 1
    around = sum(nest.name in loop.pieces for loop in schedule.outer)
    rows = (
        at for at, loop in enumerate(nest.loops)
        if at >= around and loop.step == 1 and (nest.name, loop.dim) in schedule.unrolled
    )  # fmt: skip
    return [*dict.fromkeys((*rows, last))]


def _row(problem: Problem, schedule: Schedule, nest: _Nest, near: _Near) -> Phase:
    """Return what a core does whose innermost loop runs in vectors, or one value after another."""
    shape, cpu = problem.shapes[nest.name], problem.cpu
    unit, operations, width = _arithmetic(problem, nest.name)
    trips = nest.trips or (1,)
    around, last = prod(trips[:-1]), trips[-1]
    lanes = schedule.lanes.get(nest.name, 0)
    role = shape.roles[nest.loops[-1].dim] if nest.loops else Role.PARALLEL
    is_vector = last > 1 and (lanes > 0 or role is Role.PARALLEL) and _is_along(shape, nest)
    if lanes:
        steps, fold = ceil(last / lanes), lanes / width + 2 * log2(width)
        count, waits = steps * lanes / width, steps + fold / 2
    elif is_vector:
        count, waits = ceil(last / width), 0.0
    else:
        count, waits = last, last if role is not Role.PARALLEL else 0.0
    starts = around if last > UNROLLED_VECTORS * width else 0
    return Phase(
        operations=((unit, around * count * operations * width),),
        waits=around * waits,
        starts=starts,
        l1_bytes=sum(_loaded(problem, nest, near, is_vector)) * cpu.vector_bytes,
    )


def _is_along(shape: Shape, nest: _Nest) -> bool:
    """Return whether all accesses stand still along the innermost loop, or walk neighbours."""
    dim = nest.loops[-1].dim
    return all(row[dim] in (0, 1) for row in shape.strides)


def _loaded(problem: Problem, nest: _Nest, near: _Near, is_vector: bool) -> Iterator[float]:
    """Yield how many vectors each access of a nest loads or stores."""
    shape, cpu, trips = problem.shapes[nest.name], problem.cpu, nest.trips
    sizes = _element_bytes(problem, nest.name)
    is_whole = len(trips) == near.depth
    for number, moves in enumerate(near.touched[nest.name].moves):
        array = _arrays(shape)[number]
        if is_whole and (near.is_seen(array) or array in near.own):
            continue  # it is in a register
        moving = [d for d, stride in enumerate(moves.strides) if stride]
        count: float = prod(trips[: moving[-1] + 1]) if moving else 1
        if moving and moving[-1] == len(trips) - 1 and is_vector:
            count /= cpu.vector_bytes / sizes[number]
        is_update = moves.is_written and shape.statement.kind is Kind.UPDATE
        yield UPDATED * count if is_update else count


def _tile(problem: Problem, schedule: Schedule, nest: _Nest, near: _Near) -> Phase:
    """Return what a core does for a register tile: its steps count the loads, too."""
    shape, cpu = problem.shapes[nest.name], problem.cpu
    unit, _, width = _arithmetic(problem, nest.name)
    unrolled = {dim for member, dim in schedule.unrolled if member == nest.name}
    vector = nest.loops[-1]
    is_dot = shape.roles[vector.dim] is Role.REDUCED or bool(
        [p for p in schedule.partials.get(nest.name, ()) if p.is_lane]
    )
    inside = {*unrolled, vector.dim}
    tile_rows = prod(int(nest.trips[at]) for at in _in_tile(schedule, nest)[:-1])
    rows = prod(shape.extents[dim] for dim in unrolled)
    lanes = int(vector.trips)
    across = 1 if is_dot else shape.extents[vector.dim]
    around = prod(e for d, e in enumerate(shape.counts) if d not in inside)
    share = 1 / near.threads  # of one thread: the box is all threads'
    if is_dot:
        around *= ceil(shape.extents[vector.dim] / lanes)
        across = lanes
    steps = steps_of_box(rows, across, (tile_rows, lanes), width, registers_of(cpu))
    results = prod(e for e, r in zip(shape.extents, shape.roles, strict=True) if r is Role.PARALLEL)
    folds = share * results * 2 * log2(width) / 2 if is_dot else 0.0
    tiles = share * results / max(1, tile_rows * (1 if is_dot else lanes))
    slower = _slower(problem, nest.name)
    if registers_of(cpu) == 16 and not schedule.in_turn and _has_far_terms(problem, nest):
        slower *= cpu_thresholds.FAR_TERMS
    return Phase(
        operations=((unit, share * around * steps * width * slower),),
        waits=folds,
        starts=tiles,
    )


def _has_far_terms(problem: Problem, nest: _Nest) -> bool:
    """Return whether the longest loop over terms of a tile walks its vectors' operand far apart.

    Other terms are inside: a window's taps.
    """
    shape, vector = problem.shapes[nest.name], nest.loops[-1].dim
    terms = [one for one in nest.loops if shape.roles[one.dim] is Role.REDUCED and one.trips > 1]
    if len(terms) < 2 or shape.roles[vector] is Role.REDUCED:
        return False
    longest = max(terms, key=lambda one: one.trips)
    if longest is terms[-1]:
        return False
    accesses = zip(shape.strides, _element_bytes(problem, nest.name), strict=True)
    own = [size * abs(row[longest.dim]) for row, size in accesses if row[vector] == 1]
    return max(own, default=0) >= cpu_thresholds.FAR_TERM_BYTES


@analysis
def _slower(problem: Problem, name: str) -> float:
    """Return how much longer a tile takes than its products: for guards, and for conversions."""
    value = problem.shapes[name].statement.value
    nodes = [] if value is None else list(walk(value))
    if any(isinstance(node, Select) for node in nodes):
        is_divided = any(isinstance(n, Binary) and n.op == "%" for n in nodes)
        return cpu_thresholds.GUARDED_TILES if is_divided else cpu_thresholds.CONVERTED_TILES
    is_narrow = any(isinstance(n, Cast) and n.operand.dtype.size_bytes < 4 for n in nodes)
    return cpu_thresholds.CONVERTED_TILES if is_narrow else 1.0


@analysis
def _arithmetic(problem: Problem, name: str) -> tuple[Unit, float, int]:
    """Return the unit of *name*, the operations of an instance, and a vector's lanes."""
    shape = problem.shapes[name]
    statement = shape.statement
    # A check that subscripts are there accesses nothing.
    size = max(_element_bytes(problem, name), default=INT32.size_bytes)
    if statement.reduction is not None:
        size = max(size, statement.reduction.dtype.size_bytes)
    is_double = size == 8 and problem.scop.arrays[statement.write.array].dtype.is_float
    operations = sum(map(_operations, () if statement.value is None else (statement.value,)))
    operations += sum(map(_operations, statement.conditions))
    if statement.kind is Kind.UPDATE:
        is_fused = isinstance(statement.value, Binary) and statement.value.op == "*"
        operations += 0 if is_fused else 1
    unit = Unit.FMA_F64 if is_double else Unit.FMA_F32
    return unit, float(operations), max(1, problem.cpu.vector_bytes // size)


def _operations(value: Expr) -> int:
    """Return how many instructions of a vector compute *value*."""
    found = 0
    for node in walk(value):
        if isinstance(node, Call):
            found += CALLS
        elif isinstance(node, Binary | Unary | Select):
            found += 1
        elif isinstance(node, Cast) and node.operand.dtype.size_bytes < node.dtype.size_bytes:
            found += CONVERSION
    return found


def _scaled(phase: Phase, threads: float) -> Phase:
    """Return the phase of *threads* threads of which one does *phase*."""
    return Phase(
        threads,
        tuple((unit, threads * count) for unit, count in phase.operations),
        *(threads * n for n in (
            phase.waits, phase.starts, phase.l1_bytes, phase.l2_bytes, phase.l3_bytes,
            phase.dram_bytes,
        )),
    )  # fmt: skip


def _added(phases: Sequence[Phase]) -> Phase:
    """Return the phase of one loop that does all *phases*."""
    return Phase(
        phases[0].threads,
        tuple(one for phase in phases for one in phase.operations),
        max(phase.waits for phase in phases),
        max(phase.starts for phase in phases),
        sum(phase.l1_bytes for phase in phases),
        sum(phase.l2_bytes for phase in phases),
        sum(phase.l3_bytes for phase in phases),
        sum(phase.dram_bytes for phase in phases),
    )
