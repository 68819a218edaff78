"""What a chain of products in one kernel costs, and the configurations that it may have.

    block    member by member: loads (first-level cache, shared memory), products | barrier

Factors that no member writes are read through the caches: each block reads what it needs from the
second level.  A thread's loads of a factor are as many as the rows or columns that it has, in
vectors where neighbours are along the terms or along columns.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import LINE_BYTES, VECTOR_BYTES, WARP, Unit
from tcdsl.costmodel.work import Chain, Work
from tcdsl.lang.comprehension import Binary, Call, Select, walk
from tcdsl.poly.scop import Storage
from tcdsl.records import dataclass
from tcdsl.strategies.chained import (
    Member,
    inside_of,
    levels_of,
    members_of,
    run_of,
)
from tcdsl.strategies.problem import Problem, analysis

THREADS = (128, 256, 512, 64)
ROWS = (4, 2, 8, 1)
COLUMNS = (4, 2, 1)
MOST_X, MOST_Z = 64, 64
MOST_SIZE = 64  # values of an axis that a block shares in part
LOAD_ISSUE = gpu_thresholds.CHAIN_LOAD_INSTRUCTIONS
LOAD_CYCLES = gpu_thresholds.CHAIN_LOAD_CYCLES
UNROLLED = 16  # terms that are unrolled
OTHER_REGISTERS = gpu_thresholds.CHAIN_REGISTERS
IN_FLIGHT_BYTES = gpu_thresholds.CHAIN_BYTES_IN_FLIGHT
COPIES_AT_ONCE = 4  # vectors of factors that a thread has on their way to shared memory
CALL_STEPS = gpu_thresholds.CALL_INSTRUCTIONS
SERIAL_CYCLES = gpu_thresholds.LONE_INSTRUCTION_CYCLES
WORD_BYTES = 4  # of a store to shared memory
ONCE = gpu_thresholds.CHAIN_OWN_LOADS


class BlockShape(NamedTuple):
    """A block's threads; rows and columns of a thread at once."""

    threads_x: int
    threads_y: int
    threads_z: int
    rows: int
    columns: int
    is_copied: bool = False  # the factors' parts of a block are in shared memory

    @property
    def threads(self) -> int:
        return self.threads_x * self.threads_y * self.threads_z


@dataclass(frozen=True, slots=True)
class ChainConfig:
    """A block's values of the shared axes, and its shape, whose fields follow in their order."""

    sizes: tuple[int, ...]
    threads_x: int
    threads_y: int
    threads_z: int
    rows: int
    columns: int
    is_copied: bool = False

    @property
    def shape(self) -> BlockShape:
        x, y, z = self.threads_x, self.threads_y, self.threads_z
        return BlockShape(x, y, z, self.rows, self.columns, self.is_copied)


_Along = tuple[int, int, int]  # of column, row, depth


class _Load(NamedTuple):
    """What a member reads: strides along column, row and depth; terms that a vector has."""

    strides: _Along
    size_bytes: int
    terms_at_once: int  # 0: neighbours are not along the terms
    is_inside: bool  # a member computes it
    is_factor: bool  # none does, and a copy may be in shared memory


class Task(NamedTuple):
    """What the cost of a member depends on: chains have many that are the same but for names.

    It is hashed for each member of each share: as a tuple that takes a fifth of the time.
    """

    extents: _Along  # along column, row, depth
    rest: int
    terms: int
    run: int  # terms of a vector, 1: there is none
    unit: Unit
    steps: float
    loads: tuple[_Load, ...]


@dataclass(frozen=True, slots=True)
class Share:
    """What a block has of *sizes* values of the shared axes: members, bytes, and all blocks'."""

    sizes: tuple[int, ...]
    members: Mapping[str, Member]
    tasks: tuple[tuple["Costs", int], ...]  # of the members, and how many of these have each
    blocks: int
    levels: int  # barriers that a block meets
    shared_bytes: int
    read_bytes: float
    written_bytes: float
    crossing_bytes: float


def shares(problem: Problem) -> Iterator[Share]:
    """Yield the shares of a block that has room for what lies between."""
    for sizes in dict.fromkeys(_sizes(problem)):
        if shared_bytes(problem, sizes) <= problem.gpu.shared_bytes_per_block:
            yield share_of(problem, sizes)


def share_of(problem: Problem, sizes: tuple[int, ...]) -> Share:
    """Return what a block has with *sizes*."""
    blocks = prod(
        -(-problem.extent(axis) // size) for axis, size in zip(problem.parallel, sizes, strict=True)
    )
    members = members_of(problem, sizes)
    counts = Counter(_task(problem, member) for member in members.values())
    tasks = tuple((_costs_of(task), times) for task, times in counts.items())
    own = shared_bytes(problem, sizes)
    levels = levels_of(members)
    return Share(sizes, members, tasks, blocks, levels, own, *_memory(problem, sizes, blocks))


def has_room(problem: Problem) -> bool:
    """Return whether the least share of a block fits its shared memory."""
    least = tuple(1 for _ in problem.parallel)
    return shared_bytes(problem, least) <= problem.gpu.shared_bytes_per_block


def block_shapes(problem: Problem, share: Share) -> Iterator[BlockShape]:
    """Yield shapes of blocks that have *share*."""
    if any(member.reduced and member.column >= 0 for member in share.members.values()):
        for shape in dict.fromkeys(_shapes(share.members)):
            if shape.threads <= problem.gpu.threads_per_block:
                yield shape


def _sizes(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Yield the values of the shared axes that a block may have: a box of the innermost ones."""
    extents = [problem.extent(axis) for axis in problem.parallel]
    for number, extent in enumerate(extents):
        size = 1
        while size <= min(extent, MOST_SIZE):
            yield (*(1 for _ in extents[:number]), size, *extents[number + 1 :])
            size *= 2
    yield tuple(1 for _ in extents)


def _shapes(members: Mapping[str, Member]) -> Iterator[BlockShape]:
    """Yield shapes of blocks for *members*: as some of these have results."""
    own = [member for member in members.values() if member.reduced]
    deep = max(_power(m.extent(m.depth)) for m in own)
    tall = max(m.extent(m.row) for m in own)
    for columns in COLUMNS:
        across = {_power(-(-m.extent(m.column) // columns)) for m in own}
        wide = {min(n, MOST_X) for n in across}
        for rows in ROWS:
            if rows > 1 and rows > tall:
                continue
            down = {_power(-(-m.extent(m.row) // rows)) for m in own}
            for x, y, threads in product(wide, down, THREADS):
                if x * y <= threads:
                    z = min(threads // (x * y), deep, MOST_Z)
                    yield BlockShape(x, y, z, rows, columns)


def _power(number: int) -> int:
    """Return the least power of two that is at least *number*."""
    return 1 << max(0, number - 1).bit_length()


def shared_bytes(problem: Problem, sizes: tuple[int, ...]) -> int:
    """Return the bytes of what lies between members in a block, if all of it is shared memory."""
    touched = _footprints(problem, sizes)
    return sum(-(-touched[array] // 16) * 16 for array in between_of(problem))


@analysis
def between_of(problem: Problem) -> list[str]:
    """Return the arrays that members hand on, and nobody else has."""
    arrays = problem.scop.arrays
    inside = inside_of(problem).items()
    return [name for name, is_read in inside if is_read and arrays[name].storage is Storage.SCRATCH]


@analysis
def factors_of(problem: Problem) -> list[str]:
    """Return the arrays that members read and none writes, by their names."""
    inside = inside_of(problem)
    members = (problem.shapes[name].statement for name in problem.group.members)
    names = {read.array for s in members if s.reduction is not None for read in s.reads}
    return sorted(name for name in names if name not in inside)


def _copied_bytes(problem: Problem, sizes: tuple[int, ...]) -> int:
    """Return the bytes of the factors' parts in shared memory, their rows padded."""
    touched = _footprints(problem, sizes)
    return sum(touched[name] * 9 // 8 for name in factors_of(problem))


@analysis
def _footprints(problem: Problem, sizes: tuple[int, ...]) -> Mapping[str, int]:
    """Return the bytes that a block touches of each array, all of the boxes of its accesses."""
    most: dict[str, int] = {}
    for name in problem.group.members:
        shape = problem.shapes[name]
        extents = list(shape.extents)
        for axis, size in zip(problem.parallel, sizes, strict=True):
            extents[axis[name]] = min(size, extents[axis[name]])
        accesses = (*shape.statement.writes, *shape.statement.reads)
        for access, row in zip(accesses, shape.strides, strict=True):
            box = prod(e for e, s in zip(extents, row, strict=True) if s)
            most[access.array] = max(most.get(access.array, 0), box)
    arrays = problem.scop.arrays
    return {array: box * arrays[array].dtype.size_bytes for array, box in most.items()}


def chain_work(problem: Problem, share: Share, shape: BlockShape) -> Work:
    """Return what the kernel costs whose blocks have *share* and *shape*."""
    counts = _Counts()
    for costs, times in share.tasks:
        counts.add(costs.task.unit, costs[shape], times)
    blocks, levels = share.blocks, share.levels
    copied = _copied_bytes(problem, share.sizes) if shape.is_copied else 0
    copies = copied / (VECTOR_BYTES * shape.threads * COPIES_AT_ONCE)
    return Work(
        blocks=blocks,
        threads=shape.threads,
        registers=min(counts.registers, problem.gpu.registers_per_thread),
        shared_bytes=share.shared_bytes + copied,
        read_bytes=share.read_bytes,
        written_bytes=share.written_bytes,
        l2_bytes=share.crossing_bytes,
        shared_traffic_bytes=counts.shared * blocks,
        lines=counts.lines * blocks,
        operations=tuple((unit, n * blocks) for unit, n in counts.operations.items()),
        instructions=counts.instructions * blocks,
        in_flight_bytes=IN_FLIGHT_BYTES,
        independent=float(min(4, shape.rows * shape.columns)),
        chain=Chain(
            dram_loads=1, l2_loads=levels + copies, block_barriers=levels, cycles=counts.cycles,
        ),
        is_tiled=True,
        is_programmatic=problem.gpu.overlaps_kernels,
    )  # fmt: skip


def _memory(problem: Problem, sizes: tuple[int, ...], blocks: int) -> tuple[float, float, float]:
    """Return the bytes read from memory, written to it, and those that blocks read and write."""
    inside = inside_of(problem)
    whole = tuple(problem.extent(axis) for axis in problem.parallel)
    every, own = _footprints(problem, whole), _footprints(problem, sizes)
    read = written = crossing = 0.0
    for array, total in sorted(every.items()):
        is_kept = inside.get(array, False) and (
            problem.scop.arrays[array].storage is Storage.SCRATCH
        )
        if is_kept:
            continue
        crossing += float(blocks) * own[array]
        if array in inside:
            written += total
        else:
            read += total
    return read, written, crossing


def _along(values: Sequence[int], dims: _Along, none: int = 0) -> _Along:
    """Return those of *values* along column, row and depth, *none* where *dims* has none."""
    column, row, depth = (values[dim] if dim >= 0 else none for dim in dims)
    return column, row, depth


def _task(problem: Problem, member: Member) -> Task:
    shape, inside = problem.shapes[member.name], inside_of(problem)
    own = (member.column, member.row, member.depth)
    run, is_vector = run_of(problem, member)
    loads = []
    strides = shape.strides[len(shape.statement.writes) :]
    for access, row in zip(shape.statement.reads, strides, strict=True):
        width = run if is_vector and row[member.term] == 1 else 0
        size_bytes = problem.scop.arrays[access.array].dtype.size_bytes
        is_factor = access.array in factors_of(problem)
        loads.append(_Load(_along(row, own), size_bytes, width, access.array in inside, is_factor))
    reduction = shape.statement.reduction
    is_double = reduction is not None and reduction.dtype.size_bytes > 4
    return Task(
        _along(member.extents, own, 1), prod(member.extents[d] for d in member.rest),
        member.terms, run if is_vector else 1, Unit.FMA_F64 if is_double else Unit.FMA_F32,
        _steps(problem, member.name), tuple(loads),
    )  # fmt: skip


class _Counts:
    """What one block does."""

    def __init__(self) -> None:
        self.shared = self.lines = self.instructions = self.cycles = 0.0
        self.registers = OTHER_REGISTERS
        self.operations: dict[Unit, float] = {}

    def add(self, unit: Unit, cost: "_Cost", times: int) -> None:
        """Add what *times* members do that cost *cost*, products of *unit* among it."""
        self.shared += times * cost.shared
        self.lines += times * cost.lines
        self.instructions += times * cost.instructions
        self.cycles += times * cost.cycles
        self.registers = max(self.registers, OTHER_REGISTERS + cost.registers)
        self.operations[unit] = self.operations.get(unit, 0.0) + times * cost.products


class _Cost(NamedTuple):
    """What a block does for one member."""

    products: float
    shared: float
    lines: float
    instructions: float
    cycles: float
    registers: int


class Costs(dict[BlockShape, _Cost]):
    """What a block does for a member with *task*, by the block's shape."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def __missing__(self, shape: BlockShape) -> _Cost:
        found = self[shape] = _cost(self.task, shape)
        return found


_costs_of = lru_cache(maxsize=1 << 9)(Costs)  # a search meets most tasks in many groups


def _cost(task: Task, block: BlockShape) -> _Cost:
    """Return what a block does for a member with *task*."""
    column, row, depth = task.extents
    rows, columns = _tile(column, row, block)
    turns = (
        -(-row // (block.threads_y * rows))
        * -(-column // (block.threads_x * columns))
        * -(-depth // block.threads_z)
        * task.rest
    )
    registers, loads, shared, lines = rows * columns * 9 // 8, 0.0, 0.0, 0.0
    for load in task.loads:
        along_column, along_row, _ = load.strides
        each = (rows if along_row else 1) * (columns if along_column else 1)
        width = load.terms_at_once or (columns if along_column == 1 else 1)
        elements = turns * task.terms * each
        number = elements / max(1, min(width, VECTOR_BYTES // load.size_bytes))
        # What is narrower than a word is converted, element by element.
        loads += number + (elements / LOAD_ISSUE if load.size_bytes < WORD_BYTES else 0.0)
        registers += each * task.run
        if load.is_inside or (block.is_copied and load.is_factor):
            shared += ONCE * elements * load.size_bytes * block.threads
        else:
            warps = max(1.0, block.threads / WARP)
            lines += number * _lines(task, load, block, columns) * warps
    products, stored = float(turns) * rows * columns * task.terms, turns * rows * columns
    issued = products * task.steps + LOAD_ISSUE * loads + 2 * stored
    waited = LOAD_CYCLES * (turns * max(1.0, task.terms / UNROLLED) + 1)
    return _Cost(
        products=products * block.threads,
        shared=shared + stored * WORD_BYTES * block.threads,
        lines=lines,
        instructions=issued * block.threads,
        cycles=waited + SERIAL_CYCLES * issued,
        registers=registers,
    )


def _lines(task: Task, load: _Load, block: BlockShape, columns: int) -> float:
    """Return how often the first-level cache is looked up for a warp's load."""
    left, lines = WARP, 1.0
    threads = (block.threads_x, block.threads_y, block.threads_z)
    steps = (columns, 1, 1)
    for extent, stride, count, step in zip(task.extents, load.strides, threads, steps, strict=True):
        own = min(left, count)
        left //= own
        if stride:
            apart = min(1.0, stride * step * load.size_bytes / LINE_BYTES)
            lines *= max(1.0, min(own, extent) * apart)
    return lines


@analysis
def _steps(problem: Problem, name: str) -> float:
    """Return the instructions of an instance: of a product and its sum one, a call sixteen."""
    value = problem.shapes[name].statement.value
    nodes = list(walk(value)) if value is not None else []
    simple = sum(isinstance(node, Binary | Select) for node in nodes)
    return max(1.0, simple + CALL_STEPS * sum(isinstance(node, Call) for node in nodes))


def tile_of(member: Member, block: BlockShape) -> tuple[int, int]:
    """Return the rows and columns that a thread has of *member* at once."""
    return _tile(member.extent(member.column), member.extent(member.row), block)


def _tile(column: int, row: int, block: BlockShape) -> tuple[int, int]:
    rows = min(block.rows, max(1, -(-row // block.threads_y)))
    columns = block.columns
    while columns > 1 and columns > column:
        columns //= 2
    return rows, columns
