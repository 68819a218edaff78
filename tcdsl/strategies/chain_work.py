"""What a chain of products in one kernel costs, and the configurations that it may have.

    block    member by member: loads (first-level cache, shared memory), products | barrier

Factors that no member writes are read through the caches: each block reads what it needs from the
second level.  A thread's loads of a factor are as many as the rows or columns that it has, in
vectors where neighbours are along the terms or along columns.
"""

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod

from tcdsl.costmodel.chip import VECTOR_BYTES, WARP, Unit
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
LOAD_ISSUE = 2.5  # instructions that a load is worth, with its address
LOAD_CYCLES = 40  # that a load waits for, from the first-level cache or shared memory
UNROLLED = 16  # terms that are unrolled
OTHER_REGISTERS = 32
IN_FLIGHT_BYTES = 32.0  # of a thread
LINE_BYTES = 128
CALL_STEPS = 16
SERIAL_CYCLES = 2.0  # of an instruction of a warp that is alone on its scheduler
WORD_BYTES = 4  # of a store to shared memory
ONCE = 0.5  # part of the loads from shared memory that is not another thread's at once


@dataclass(frozen=True, slots=True)
class ChainConfig:
    """A block's values of the shared axes; its threads; rows and columns of a thread at once."""

    sizes: tuple[int, ...]
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
class Share:
    """What a block has of *sizes* values of the shared axes: members, bytes, and all blocks'."""

    sizes: tuple[int, ...]
    members: Mapping[str, Member]
    blocks: int
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
    own = shared_bytes(problem, sizes)
    return Share(sizes, members_of(problem, sizes), blocks, own, *_memory(problem, sizes, blocks))


def has_room(problem: Problem) -> bool:
    """Return whether the least share of a block fits its shared memory."""
    least = tuple(1 for _ in problem.parallel)
    return shared_bytes(problem, least) <= problem.gpu.shared_bytes_per_block


def configs(problem: Problem, share: Share) -> Iterator[ChainConfig]:
    """Yield configurations of blocks that have *share*."""
    if any(member.reduced and member.column >= 0 for member in share.members.values()):
        for config in dict.fromkeys(_threads(share.sizes, share.members)):
            if config.threads <= problem.gpu.threads_per_block:
                yield config


def _sizes(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Yield the values of the shared axes that a block may have: a box of the innermost ones."""
    extents = [problem.extent(axis) for axis in problem.parallel]
    for number, extent in enumerate(extents):
        size = 1
        while size <= min(extent, MOST_SIZE):
            yield (*(1 for _ in extents[:number]), size, *extents[number + 1 :])
            size *= 2
    yield tuple(1 for _ in extents)


def _threads(sizes: tuple[int, ...], members: Mapping[str, Member]) -> Iterator[ChainConfig]:
    """Yield the configurations of threads for *members*: as some of these have results."""
    own = [member for member in members.values() if member.reduced]
    for columns in COLUMNS:
        across = {_power(-(-m.extent(m.column) // columns)) for m in own}
        for rows in ROWS:
            if rows > 1 and rows > max(m.extent(m.row) for m in own):
                continue
            down = {_power(-(-m.extent(m.row) // rows)) for m in own}
            deep = max(_power(m.extent(m.depth)) for m in own)
            for x, y, threads in product({min(n, MOST_X) for n in across}, down, THREADS):
                if x * y <= threads:
                    z = min(threads // (x * y), deep, MOST_Z)
                    yield ChainConfig(sizes, x, y, z, rows, columns)


def _power(number: int) -> int:
    """Return the least power of two that is at least *number*."""
    return 1 << max(0, number - 1).bit_length()


def shared_bytes(problem: Problem, sizes: tuple[int, ...]) -> int:
    """Return the bytes of what lies between members in a block, if all of it is shared memory."""
    between = between_of(problem)
    return sum(-(-_footprint(problem, array, sizes) // 16) * 16 for array in between)


def between_of(problem: Problem) -> list[str]:
    """Return the arrays that members hand on, and nobody else has."""
    arrays = problem.scop.arrays
    inside = inside_of(problem).items()
    return [name for name, is_read in inside if is_read and arrays[name].storage is Storage.SCRATCH]


def factors_of(problem: Problem) -> list[str]:
    """Return the arrays that members read and none writes, by their names."""
    inside = inside_of(problem)
    members = (problem.shapes[name].statement for name in problem.group.members)
    names = {read.array for s in members if s.reduction is not None for read in s.reads}
    return sorted(name for name in names if name not in inside)


def config_copies(problem: Problem, config: ChainConfig, array: str) -> bool:
    return config.is_copied and array in factors_of(problem)


def copied_bytes(problem: Problem, config: ChainConfig) -> int:
    """Return the bytes of the factors' parts in shared memory, their rows padded."""
    if not config.is_copied:
        return 0
    return sum(_footprint(problem, name, config.sizes) * 9 // 8 for name in factors_of(problem))


def _footprint(problem: Problem, array: str, sizes: tuple[int, ...]) -> int:
    """Return the bytes that a block touches of *array*, all of the boxes of its accesses."""
    most = 0
    for name in problem.group.members:
        shape = problem.shapes[name]
        extents = list(shape.extents)
        for axis, size in zip(problem.parallel, sizes, strict=True):
            extents[axis[name]] = min(size, extents[axis[name]])
        accesses = (*shape.statement.writes, *shape.statement.reads)
        for access, row in zip(accesses, shape.strides, strict=True):
            if access.array == array:
                most = max(most, prod(e for e, s in zip(extents, row, strict=True) if s))
    return most * problem.scop.arrays[array].dtype.size_bytes


def chain_work(problem: Problem, share: Share, config: ChainConfig) -> Work:
    """Return what the kernel costs with *config*."""
    counts = _Counts(problem, config)
    for member in share.members.values():
        counts.add(member)
    blocks, levels = share.blocks, levels_of(share.members)
    return Work(
        blocks=blocks,
        threads=config.threads,
        registers=min(counts.registers, problem.gpu.registers_per_thread),
        shared_bytes=share.shared_bytes + copied_bytes(problem, config),
        read_bytes=share.read_bytes,
        written_bytes=share.written_bytes,
        l2_bytes=share.crossing_bytes,
        shared_traffic_bytes=counts.shared * blocks,
        lines=counts.lines * blocks,
        operations=tuple((unit, n * blocks) for unit, n in counts.operations.items()),
        instructions=counts.instructions * blocks,
        in_flight_bytes=IN_FLIGHT_BYTES,
        independent=float(min(4, config.rows * config.columns)),
        chain=Chain(
            dram_loads=1, l2_loads=levels, block_barriers=levels, cycles=counts.cycles,
        ),
        is_tiled=True,
        is_programmatic=problem.gpu.overlaps_kernels,
    )  # fmt: skip


def _memory(problem: Problem, sizes: tuple[int, ...], blocks: int) -> tuple[float, float, float]:
    """Return the bytes read from memory, written to it, and those that blocks read and write."""
    inside = inside_of(problem)
    whole = tuple(problem.extent(axis) for axis in problem.parallel)
    names = {
        access.array
        for name in problem.group.members
        for access in (
            *problem.shapes[name].statement.writes, *problem.shapes[name].statement.reads
        )
    }  # fmt: skip
    read = written = crossing = 0.0
    for array in sorted(names):
        is_kept = inside.get(array, False) and (
            problem.scop.arrays[array].storage is Storage.SCRATCH
        )
        if is_kept:
            continue
        total = float(_footprint(problem, array, whole))
        crossing += float(blocks) * _footprint(problem, array, sizes)
        if array in inside:
            written += total
        else:
            read += total
    return read, written, crossing


class _Counts:
    """What one block does."""

    def __init__(self, problem: Problem, config: ChainConfig) -> None:
        self.problem = problem
        self.config = config
        self.shared = self.lines = self.instructions = self.cycles = 0.0
        self.registers = OTHER_REGISTERS
        self.operations: dict[Unit, float] = {}

    def add(self, member: Member) -> None:
        """Add what *member* does."""
        config, shape = self.config, self.problem.shapes[member.name]
        rows, columns = tile_of(member, config)
        turns = (
            -(-member.extent(member.row) // (config.threads_y * rows))
            * -(-member.extent(member.column) // (config.threads_x * columns))
            * -(-member.extent(member.depth) // config.threads_z)
            * prod(member.extents[d] for d in member.rest)
        )  # fmt: skip
        loads = self._loads(member, turns, rows, columns)
        reduction = shape.statement.reduction
        is_double = reduction is not None and reduction.dtype.size_bytes > 4
        unit = Unit.FMA_F64 if is_double else Unit.FMA_F32
        products = float(turns) * rows * columns * member.terms
        self.operations[unit] = self.operations.get(unit, 0.0) + products * config.threads
        stored = turns * rows * columns
        self.shared += stored * WORD_BYTES * config.threads
        steps = _steps(self.problem, member.name)
        each = products * steps + LOAD_ISSUE * loads + 2 * stored
        self.instructions += each * config.threads
        self.cycles += LOAD_CYCLES * (turns * max(1.0, member.terms / UNROLLED) + 1)
        self.cycles += SERIAL_CYCLES * each

    def _loads(self, member: Member, turns: int, rows: int, columns: int) -> float:
        """Return how often a thread loads for *member*: each row and column of a factor once.

        What is narrower than a word is converted, element by element.
        """
        problem, shape = self.problem, self.problem.shapes[member.name]
        run, is_vector = run_of(problem, member)
        inside, registers, loads = inside_of(problem), rows * columns * 9 // 8, 0.0
        strides = shape.strides[len(shape.statement.writes) :]
        for access, row in zip(shape.statement.reads, strides, strict=True):
            each = rows if _moves(row, member.row) else 1
            each *= columns if _moves(row, member.column) else 1
            size_bytes = problem.scop.arrays[access.array].dtype.size_bytes
            width = 1
            if is_vector and row[member.term] == 1:
                width = run
            elif _moves(row, member.column) and row[member.column] == 1:
                width = columns
            elements = turns * member.terms * each
            number = elements / max(1, min(width, VECTOR_BYTES // size_bytes))
            loads += number + (elements / LOAD_ISSUE if size_bytes < WORD_BYTES else 0.0)
            registers += each * (run if is_vector else 1)
            if config_copies(problem, self.config, access.array) or inside.get(access.array):
                self.shared += ONCE * elements * size_bytes * self.config.threads
            else:
                lines = self._lines(member, row, size_bytes, columns)
                self.lines += number * lines * max(1.0, self.config.threads / WARP)
        self.registers = max(self.registers, OTHER_REGISTERS + registers)
        return loads

    def _lines(self, member: Member, row: tuple[int, ...], size_bytes: int, columns: int) -> float:
        """Return how often the first-level cache is looked up for a warp's load."""
        config, left, lines = self.config, WARP, 1.0
        for dim, threads, step in (
            (member.column, config.threads_x, columns),
            (member.row, config.threads_y, 1),
            (member.depth, config.threads_z, 1),
        ):
            own = min(left, threads)
            left //= own
            if _moves(row, dim):
                apart = min(1.0, row[dim] * step * size_bytes / LINE_BYTES)
                lines *= max(1.0, min(own, member.extent(dim)) * apart)
        return lines


@analysis
def _steps(problem: Problem, name: str) -> float:
    """Return the instructions of an instance: of a product and its sum one, a call sixteen."""
    value = problem.shapes[name].statement.value
    nodes = list(walk(value)) if value is not None else []
    simple = sum(isinstance(node, Binary | Select) for node in nodes)
    return max(1.0, simple + CALL_STEPS * sum(isinstance(node, Call) for node in nodes))


def tile_of(member: Member, config: ChainConfig) -> tuple[int, int]:
    """Return the rows and columns that a thread has of *member* at once."""
    rows = min(config.rows, max(1, -(-member.extent(member.row) // config.threads_y)))
    columns = config.columns
    while columns > 1 and columns > member.extent(member.column):
        columns //= 2
    return rows, columns


def _moves(row: tuple[int, ...], dim: int) -> bool:
    return dim >= 0 and row[dim] != 0
