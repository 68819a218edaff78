"""What a contraction in tiles costs: the kernel of the tiles, and the fold of what blocks share.

    block    for each step:   copies on their way | barrier | loads from shared memory, products

Products are of whole tiles: what lies outside the results takes as long.  A warp is a rectangle of
threads, so that some of what it loads from shared memory several of them load at once.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tcdsl.costmodel.chip import Chip, Unit
from tcdsl.costmodel.estimate import estimate
from tcdsl.costmodel.work import Chain, Work

# Of trial kernels on an H200: 8 x 16 results a thread reached 96 % of cuBLAS, 8 x 8 85 %.
ONCE = 0.75  # part of the loads from shared memory that is not another thread's at once
LOAD_ISSUE = 2  # instructions that a load from shared memory is worth
VECTOR = 4  # elements of a load from shared memory
COLUMN_THREADS = 8  # of a block
BUFFERS = 2  # of an operand's tile
FOLD_THREADS = 256
OTHER_REGISTERS = 60  # addresses and counters, of a thread


@dataclass(frozen=True, slots=True)
class TileConfig:
    """How a contraction is cut.

    A thread has *rows* x *columns* results; *chunks* blocks share the longest reduced axis.
    """

    rows: int
    columns: int
    chunks: int = 1


@dataclass(frozen=True, slots=True)
class TiledWork:
    """A contraction in tiles: its *tiles* of *threads* threads, and how long its sums are."""

    tiles: int
    threads: int
    terms: int  # of a result
    step: int
    element_bytes: int
    results: int  # of all tiles that there are
    is_double: bool

    def seconds(self, config: TileConfig, chip: Chip) -> float:
        """Return how long the kernel with *config* takes, its fold included."""
        return sum(estimate(work, chip).seconds for work in self._works(config))

    def _works(self, config: TileConfig) -> Iterator[Work]:
        size = config.rows * config.columns
        terms = -(-self.terms // config.chunks)
        blocks = self.tiles * config.chunks
        products = float(blocks) * self.threads * size * terms
        words = config.rows + config.columns
        loads = products / size * words
        width = 2 if self.is_double else 1
        yield Work(
            blocks, self.threads,
            registers=width * (size + 2 * words) + OTHER_REGISTERS,
            shared_bytes=BUFFERS * self.step * self._block_words(config) * self.element_bytes,
            l2_bytes=float(blocks) * terms * self._block_words(config) * self.element_bytes,
            shared_traffic_bytes=ONCE * loads * self.element_bytes,
            operations=((Unit.FMA_F64 if self.is_double else Unit.FMA_F32, products),),
            instructions=products + LOAD_ISSUE * loads / VECTOR,
            chain=Chain(
                dram_loads=1, block_barriers=terms / self.step, shared_loads=terms / VECTOR
            ),
        )  # fmt: skip
        if config.chunks > 1:
            moved = float(self.results) * config.chunks * self.element_bytes
            yield Work(
                -(-self.results // (FOLD_THREADS * VECTOR)), FOLD_THREADS,
                l2_bytes=2 * moved, is_programmatic=True, chain=Chain(l2_loads=1),
            )  # fmt: skip

    def _block_words(self, config: TileConfig) -> int:
        """Return the elements of both operands that a block needs for a term of its results."""
        rows = self.threads // COLUMN_THREADS * config.rows
        return rows + COLUMN_THREADS * config.columns
