"""What a chain of stencils costs on a GPU, in tiles of given sizes: counts, before any rewrite.

    planes      of the arrays that a stage reads at a distance: shared memory.  The others are
                registers, for the thread that needs an element has computed it
    rows        neighbours along the last axis but one that a thread takes: of what it loads for
                one of them the next ones need most, so that r rows with distances 0 to d between
                them load r + d elements and not r (d + 1)
    columns     of arrays that stages read at distances along those rows alone: registers too, if
                a thread has all rows of a tile, in vectors.  Nothing is shared, and no barrier met
    instances   of a stage: those of its reach, in whole warps along the last axis

Bytes from and to memory are those of each array once; halos are read again from the second-level
cache.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, reduce
from math import prod

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import Chip, Unit
from tcdsl.costmodel.estimate import estimate
from tcdsl.costmodel.work import Chain as Waits
from tcdsl.costmodel.work import Work
from tcdsl.poly.isl_utils import Extent, least, minus, quotient
from tcdsl.poly.scop import Array, Stage
from tcdsl.records import dataclass

BASE_REGISTERS = gpu_thresholds.BASE_REGISTERS
ADDRESS_INSTRUCTIONS = gpu_thresholds.STENCIL_ADDRESS_INSTRUCTIONS
CALL_INSTRUCTIONS = gpu_thresholds.CALL_INSTRUCTIONS
MOST_ROWS = 8
WHOLE = 0  # rows of a thread: all of a tile
# Of a thread that has columns of a tile, in vectors: rows, which are unrolled, registers, and loads
# between one and what needs it.
MOST_COLUMN = gpu_thresholds.STENCIL_COLUMN_ROWS
COLUMN_REGISTERS = gpu_thresholds.STENCIL_COLUMN_REGISTERS
LOADS_AHEAD = gpu_thresholds.STENCIL_LOADS_AHEAD
WARPS, MOST_THREADS = 2, 512  # of a block: at least, and at most
WORD_BYTES = 4
OTHERS = gpu_thresholds.STENCIL_OTHER_UNITS
UNITS = ("memory", "L2", "shared memory", "issue")
CYCLES = gpu_thresholds.LONE_INSTRUCTION_CYCLES


@dataclass(frozen=True, slots=True)
class StencilConfig:
    """Threads of a block along the last two axes of tiles, and the rows that one takes."""

    threads_x: int
    threads_y: int = 1
    rows: int = 1  # WHOLE: all of a tile
    vector: int = 1  # neighbours along x that a thread with a column takes


@dataclass(frozen=True, eq=False)
class Tiles:
    """A chain's stages, by statement, in tiles of *sizes*, *counts* of them along each axis.

    *arrays* are by the names that stages have for them; *inside*: those of tiles.  *in_columns*, a
    thread has all rows of a tile.
    """

    stages: Mapping[str, Stage]
    arrays: Mapping[str, Array]
    inside: Mapping[str, tuple[tuple[int, int], ...]]  # array -> its reach
    stored: frozenset[str]
    sizes: tuple[int, ...]
    counts: tuple[int, ...]
    in_columns: bool = False

    def run_by(self, config: StencilConfig) -> "Tiles":
        """Return the same as the threads of *config* have it."""
        in_columns = config.rows == WHOLE
        return self if in_columns == self.in_columns else replace(self, in_columns=in_columns)

    @cached_property
    def names_inside(self) -> frozenset[str]:
        return frozenset(self.inside)

    @cached_property
    def word_bytes(self) -> int:
        """The bytes of an element of a plane, a word at least."""
        sizes = (self.arrays[name].dtype.size_bytes for name in self.planes)
        return max((WORD_BYTES, *sizes))

    @cached_property
    def planes(self) -> frozenset[str]:
        """The arrays that some stage reads at a distance, which its thread does not have."""
        far = {
            array
            for stage in self.stages.values()
            for array, distances in stage.reads
            if array in self.inside and (any(distances) or self.inside[array] != stage.reach)
        }
        return frozenset(far - self.columns if self.in_columns else far)

    @cached_property
    def columns(self) -> frozenset[str]:
        """The arrays that no stage reads at a distance, but along the last axis but one."""
        far = {
            array
            for stage in self.stages.values()
            for array, distances in stage.reads
            if array in self.inside
            and (
                any(_but_rows(distances)) or _but_rows(self.inside[array]) != _but_rows(stage.reach)
            )
        }
        return self.names_inside - far

    @cached_property
    def why_no_columns(self) -> str | None:
        """Why no thread has all rows of a tile, None if it may."""
        if len(self.sizes) != 2 or self.sizes[-2] > MOST_COLUMN:
            return "tiles have no rows, or more than a thread's registers"
        if not self.planes or not self.planes <= self.columns:
            return "stages read one another at distances along other axes than rows"
        if any(stage.along > 1 for stage in self.stages.values()):
            return "stages have axes of their own"
        return None

    def vector_of_columns(self, chip: Chip) -> int:
        """Return how many neighbours a thread with a column may take as vectors, 1 if none.

        All arrays have elements of one size, and rows of whole vectors, as results and tiles have.
        """
        reads = {name for stage in self.stages.values() for name, _ in stage.reads}
        names = reads - self.names_inside | self.stored
        arrays = [array for array in map(self.arrays.__getitem__, names) if len(array.shape) > 1]
        sizes = {array.dtype.size_bytes for array in arrays}
        if len(sizes) != 1 or any(array.strides is not None for array in arrays):
            return 1
        vector = chip.vector_bytes // max(sizes)
        ends = [stage.ends[-1] for stage in self.stages.values()]
        rows = [*ends, *(array.shape[-1] for array in arrays), self.sizes[-1]]
        is_whole = all(isinstance(row, int) and row % vector == 0 for row in rows)
        return vector if is_whole else 1

    @cached_property
    def levels(self) -> dict[str, int]:
        """Return after how many barriers each statement runs: what it reads in planes is there."""
        planes, found = self.planes, dict[str, int]()
        of_array: dict[str, int] = {}
        for name, stage in self.stages.items():
            waits = (of_array.get(a, 0) + (a in planes) for a, _ in stage.reads if a in of_array)
            found[name] = max(waits, default=0)
            array = stage.array
            of_array[array] = max(found[name], of_array.get(array, 0))
        return found

    @cached_property
    def extents_of_stages(self) -> tuple[tuple[int, ...], ...]:
        """The values that a tile has along each axis of each stage."""
        return tuple(self.extents(stage.reach) for stage in self.stages.values())

    @cached_property
    def shared_bytes(self) -> int:
        """The bytes of the planes of a block."""
        total = 0
        for name in self.planes:
            along = max(stage.along for stage in self.stages.values())
            size = prod(self.extents(self.inside[name])) * along
            total += -(-size * self.arrays[name].dtype.size_bytes // 16) * 16
        return total

    @cached_property
    def moved_bytes(self) -> tuple[float, float, float]:
        """The bytes that are read, and written, and those read with the halos.

        After a barrier they are read again: the tiles of a multiprocessor's blocks are more than
        the first-level cache has.
        """
        grown: dict[tuple[str, int], int] = {}
        for name, stage in self.stages.items():
            size = prod(self.extents(stage.reach))
            for array in {array for array, _ in stage.reads} - self.names_inside:
                key = array, self.levels[name]
                grown[key] = max(grown.get(key, 0), size)
        bytes_of = {name: float(self.arrays[name].size_bytes() or 0) for name, _ in grown}
        written = float(sum(self.arrays[name].size_bytes() or 0 for name in self.stored))
        again = sum(bytes_of[name] * size for (name, _), size in grown.items())
        return sum(bytes_of.values()), written, again / prod(self.sizes)

    def whole(self, number: int) -> Extent:
        """Return how many tiles along the axis *number* no end of a stage cuts."""
        stages = self.stages.values()
        ends = (minus(s.ends[number], s.reach[number][1]) for s in stages)
        return quotient(reduce(least, ends), self.sizes[number])

    def extents(self, reach: Sequence[tuple[int, int]]) -> tuple[int, ...]:
        """Return how many values a tile has along each axis of what reaches *reach*."""
        return tuple(s + high - low for s, (low, high) in zip(self.sizes, reach, strict=True))


def configs(tiles: Tiles, chip: Chip) -> Iterator[StencilConfig]:
    """Yield the configurations whose blocks a multiprocessor can run."""
    is_line = len(tiles.sizes) == 1
    least = WARPS * chip.threads_per_warp if is_line else chip.threads_per_warp
    for x in (32, 64, 128, 256):
        if x > least and x >= 2 * tiles.sizes[-1]:
            continue
        for y, rows in ((y, rows) for y in (1, 2, 4, 8, 16) for rows in (1, 2, 4, MOST_ROWS)):
            if y * rows >= (2 if is_line else max(2 * tiles.sizes[-2], 2 * WARPS)):
                continue
            if WARPS * chip.threads_per_warp <= x * y <= min(MOST_THREADS, chip.threads_per_block):
                yield StencilConfig(x, y, rows)
        if x < WARPS * chip.threads_per_warp or tiles.why_no_columns:
            continue
        vector = tiles.vector_of_columns(chip)
        if vector > 1 and x == tiles.sizes[-1] // vector:
            yield StencilConfig(x, 1, WHOLE, vector)


def _but_rows(axes: Sequence[object]) -> tuple[object, ...]:
    """Return *axes* without the last but one."""
    return (*axes[:-2], axes[-1])


def stencil_work(tiles: Tiles, config: StencilConfig, chip: Chip) -> Work:
    """Return what the kernel costs with the threads of *config*."""
    tiles = tiles.run_by(config)
    some = next(iter(tiles.stages.values()))
    blocks = prod(tiles.counts) * some.outside
    counts = _Counts()
    for stage, extents in zip(tiles.stages.values(), tiles.extents_of_stages, strict=True):
        counts.add(tiles, stage, extents, config)
    read, written, halo = tiles.moved_bytes
    levels = max(tiles.levels.values())
    first = max((len(stage.reads) for stage in tiles.stages.values()), default=1)
    element = max(array.dtype.size_bytes for array in tiles.arrays.values())
    # What the multiprocessor needs for a block's instructions, of which the chain has the rest.
    own = counts.instructions / (chip.threads_per_warp * chip.schedulers_per_multiprocessor)
    rows = config.rows or MOST_ROWS
    registers = BASE_REGISTERS + 8 + 3 * rows * min(first, 8) // 2
    if tiles.in_columns:
        registers = COLUMN_REGISTERS
    return Work(
        blocks=blocks,
        threads=config.threads_x * config.threads_y,
        registers=min(registers, chip.registers_per_thread),
        shared_bytes=tiles.shared_bytes,
        read_bytes=read,
        written_bytes=written,
        l2_bytes=halo + written,
        shared_traffic_bytes=counts.shared * blocks,
        operations=tuple((unit, count * blocks) for unit, count in counts.operations.items()),
        instructions=counts.instructions * blocks,
        in_flight_bytes=float(element * rows * 2),
        independent=float(min(4, rows)),
        chain=Waits(
            dram_loads=max(1.0, counts.loads / LOADS_AHEAD) if tiles.in_columns else 1.0,
            block_barriers=levels,
            shared_loads=2.0 * levels,
            cycles=max(0.0, CYCLES * counts.longest - own),
        ),
        is_tiled=True,
        is_programmatic=chip.overlaps_kernels,
    )


def rated(tiles: Tiles, config: StencilConfig, chip: Chip) -> float:
    """Return the predicted seconds, and a part of what every unit takes.

    The stages of a block do not overlap: where one loads, no unit but the memory has work, so that
    what limits a kernel is not all that it takes.  Fitted to 72 kernels on an H200.
    """
    found = estimate(stencil_work(tiles, config, chip), chip)
    return found.seconds + OTHERS * sum(s for name, s in found.terms.items() if name in UNITS)


class _Counts:
    """What one block does."""

    def __init__(self) -> None:
        self.shared = 0.0
        self.instructions = 0.0
        self.longest = 0.0  # of one thread, the busiest
        self.loads = 0.0  # from memory, of that thread: of the stage that has most
        self.operations: dict[Unit, float] = {}

    def add(
        self, tiles: Tiles, stage: Stage, extents: Sequence[int], config: StencilConfig
    ) -> None:
        """Add what the instances of *stage* do, of which a tile has *extents*."""
        planes = tiles.planes
        slots = _slots(extents, config) * stage.along
        rows = config.rows or extents[-2]
        of_planes, of_memory, addresses = _loads(stage, planes, tiles.names_inside, rows)
        if config.vector > 1:
            of_memory = _vectors(stage, tiles.names_inside, rows, config.vector)
        stores = stage.array in planes
        self.shared += slots * (of_planes + stores) * tiles.word_bytes
        simple = max(1, stage.operations)
        unit = Unit.FMA_F64 if stage.is_double else Unit.FMA_F32
        self.operations[unit] = self.operations.get(unit, 0.0) + slots * simple
        if stage.calls:
            special = self.operations.get(Unit.SPECIAL, 0.0)
            self.operations[Unit.SPECIAL] = special + slots * stage.calls
        each = simple + CALL_INSTRUCTIONS * stage.calls + of_planes + stores + of_memory
        # Whoever has a column finds the address of its first row, and the others beside it.
        own = 1 + addresses * ADDRESS_INSTRUCTIONS
        each += own / rows if tiles.in_columns else own
        self.instructions += slots * each
        turns = _turns(extents, config) * stage.along
        self.longest += turns * each
        self.loads = max(self.loads, turns * of_memory)


def _slots(extents: Sequence[int], config: StencilConfig) -> float:
    """Return the instances of a stage in a block, those of idle lanes of warps included."""
    *outer, x = extents
    warps = min(32, config.threads_x)
    slots = float(-(-x // (warps * config.vector)) * warps * config.vector)
    if outer:
        rows = config.rows or outer[-1]
        slots *= -(-outer[-1] // rows) * rows
    return slots * prod(outer[:-1])


def _turns(extents: Sequence[int], config: StencilConfig) -> int:
    """Return the instances of a stage that the busiest thread of a block runs."""
    *outer, x = extents
    turns = -(-x // (config.threads_x * config.vector)) * config.vector
    if outer:
        rows = config.rows or outer[-1]
        groups = -(-outer[-1] // rows)
        turns *= -(-groups // config.threads_y) * rows
    return turns * prod(outer[:-1])


@lru_cache(maxsize=1024)
def _loads(
    stage: Stage, planes: frozenset[str], inside: frozenset[str], rows: int
) -> tuple[float, float, int]:
    """Return what an instance loads from planes and from memory, of *rows* that a thread has.

    And of how many addresses in memory: at distances of one are the loads of an array.
    """
    groups: dict[tuple[str, tuple[int, ...]], set[int]] = {}
    for name, distances in stage.reads:
        row = distances[-2] if len(distances) > 1 else 0
        groups.setdefault((name, (*distances[:-2], distances[-1])), set()).add(row)
    of_planes, of_memory = 0.0, 0.0
    for (name, _), far in groups.items():
        loaded = min(rows * len(far), rows + max(far) - min(far)) / rows
        of_planes += loaded * (name in planes)
        of_memory += loaded * (name not in inside)
    addresses = {name for name, _ in groups if name not in inside}
    return of_planes, of_memory, len(addresses)


def _vectors(stage: Stage, inside: frozenset[str], rows: int, vector: int) -> float:
    """Return how many vectors of memory an instance loads, of *rows* that a thread has.

    Windows of one row have them in common (codegen/cuda/vectors).
    """
    far: dict[str, list[tuple[int, ...]]] = {}
    for name, distances in stage.reads:
        if name not in inside and len(distances) > 1:
            far.setdefault(name, []).append(distances)
    total = 0.0
    for several in far.values():
        across, along = ([distances[axis] for distances in several] for axis in (-1, -2))
        of_row = -(-(max(across) - min(across) + vector) // vector)
        loaded = min(rows * len(set(along)), rows + max(along) - min(along)) / rows
        total += of_row * loaded / vector
    return total
