"""What a contraction in tiles costs: the kernel of the tiles, and the fold of what blocks share.

    block    for each step:   copies on their way | barrier | loads from shared memory, products

Products are of whole tiles: what lies outside the results takes as long.  A warp is a rectangle of
threads, so that some of what it loads from shared memory several of them load at once.
"""

from tcdsl.costmodel.chip import WARP, Chip, Unit
from tcdsl.costmodel.copies import late_cycles
from tcdsl.costmodel.work import Chain, Work
from tcdsl.records import dataclass

# Of trial kernels on an H200: 8 x 16 results a thread reached 96 % of cuBLAS, 8 x 8 85 %.
ONCE = 0.75  # part of the loads from shared memory that is not another thread's at once
COPY_ISSUE = 6  # instructions that an asynchronous copy is worth, with its address
LOAD_ISSUE = 3  # instructions that a load from shared memory is worth
STALLS = 0.35  # for each instruction, of a scheduler's only warp, which waits at every step's end
HELD_STALLS = 0.15  # where it has something to multiply then
# For each product of a factor that may be zero: its condition is asked anew (3 x 3 convolutions of
# 56 x 56 x 64 in nine kinds of tiles, benchmarks/measured/candidates_tiles_h200.jsonl: 2 to 5).
GUARDED = 4
VECTOR = 4  # elements of a load from shared memory
OTHER_REGISTERS = 25  # addresses and counters, of a thread


@dataclass(frozen=True, slots=True)
class TileConfig:
    """How a contraction is cut.

    A block has *threads_y* x *threads_x* threads, and each of them *rows* x *columns* results, in
    runs of *row_run* x *column_run* neighbours.  In a step the operands' tiles hold *step* values
    of the longest reduced axis; copies are *stages* - 1 steps ahead, *widths* elements of each
    operand at once.  *unrolled* values of a step are written out.  *chunks* blocks share the axis.
    """

    rows: int
    columns: int
    threads_x: int = 8
    threads_y: int = 16
    step: int = 16
    stages: int = 2  # 1: a step's copies arrive before it is computed
    chunks: int = 1
    row_run: int = 4
    column_run: int = 4
    widths: tuple[int, ...] = (1, 4)
    unrolled: int = 4
    is_held: bool = False  # the next value's operands are loaded while one is multiplied

    @property
    def threads(self) -> int:
        return self.threads_x * self.threads_y

    @property
    def block(self) -> tuple[int, int]:
        """The rows and columns of a block's results."""
        return self.rows * self.threads_y, self.columns * self.threads_x


@dataclass(frozen=True, slots=True)
class Copied:
    """What a step of a block copies of an operand, *width* elements at once.

    *lines*: of the first-level cache that its warps look up; *tile_bytes*: in shared memory.
    """

    elements: int
    width: int
    lines: float
    tile_bytes: int


@dataclass(frozen=True, slots=True)
class Product:
    """A contraction in *tiles* tiles, and how long its sums are.

    *read_bytes* and *written_bytes* go from and to memory.  What a step copies is in *copied*, if
    that is not a line for each of its terms; a step has *taps* terms for each of its values.
    """

    tiles: int
    terms: int  # of a result
    element_bytes: int
    results: int  # of all tiles that there are
    is_double: bool
    is_guarded: bool = False  # a factor is zero where a condition does not hold; not of doubles
    read_bytes: float = 0.0
    written_bytes: float = 0.0
    copied: tuple[Copied, ...] = ()
    taps: int = 1


def work_of_tiles(product: Product, config: TileConfig, chip: Chip) -> Work:
    """Return what *product* costs with *config*, the fold of what blocks share included."""
    size, words = config.rows * config.columns, config.rows + config.columns
    terms = -(-product.terms // config.chunks)
    blocks = product.tiles * config.chunks
    products = float(blocks) * config.threads * size * terms
    loads = products / size * words
    steps = terms / (config.step * product.taps)
    copied = product.copied or _lines_of(product, config)
    elements = blocks * steps * sum(one.elements for one in copied)
    copies = blocks * steps * sum(one.elements / one.width for one in copied if one.width)
    is_shared = config.chunks > 1
    folded = 2.0 * product.results * config.chunks * product.element_bytes if is_shared else 0.0
    width = 2 if product.is_double else 1
    held = 2 if config.is_held else 1
    instructions = (GUARDED if product.is_guarded else 1) * products
    instructions += LOAD_ISSUE * loads / VECTOR + COPY_ISSUE * copies
    lines = blocks * steps * sum(one.lines for one in copied)
    cycles = _late(product, config, instructions / blocks / steps, lines / blocks / steps, chip)
    return Work(
        blocks, config.threads,
        registers=width * (size + size // 10 + held * words) + OTHER_REGISTERS,
        shared_bytes=config.stages * sum(one.tile_bytes for one in copied),
        read_bytes=product.read_bytes, written_bytes=product.written_bytes,
        l2_bytes=elements * product.element_bytes + folded / 2 + product.written_bytes,
        lines=lines,
        shared_traffic_bytes=ONCE * loads * product.element_bytes,
        operations=((Unit.FMA_F64 if product.is_double else Unit.FMA_F32, products),),
        instructions=instructions,
        chain=Chain(
            dram_loads=1, block_barriers=steps, shared_loads=0.0 if config.is_held else steps,
            cycles=cycles * max(0.0, steps - 1),  # the first step's are the load from memory
        ),
        is_tiled=True, stalls=HELD_STALLS if config.is_held else STALLS,
        launches=2 if is_shared else 1,
        finish=Chain(l2_loads=2, cycles=folded / 2 / chip.l2_bytes_per_s * chip.clock_hz)
        if is_shared else Chain(),
        is_programmatic=chip.overlaps_kernels,
    )  # fmt: skip


def _lines_of(product: Product, config: TileConfig) -> tuple[Copied, ...]:
    """Return what a step copies that has a line of rows, and one of columns, for each term."""
    widths = config.widths or (0, 0)
    return tuple(
        Copied(config.step * size, width, 0.0, config.step * size * product.element_bytes)
        for size, width in zip(config.block, widths, strict=True)
    )


def _late(
    product: Product, config: TileConfig, instructions: float, lines: float, chip: Chip
) -> float:
    """Return the cycles that a step of so many instructions and lines waits for its operands."""
    own = max(lines, instructions / (WARP * chip.schedulers_per_multiprocessor))
    step_bytes = config.step * sum(config.block) * product.element_bytes
    return late_cycles(step_bytes, config.stages, own)
