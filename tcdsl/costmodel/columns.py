"""How threads and blocks share columns that they keep in registers between passes over them.

A tile of columns is *x* threads with a vector each, so that a row of it is at least a sector of
memory.  Its rows are shared by *y* threads in each of the blocks of a cluster, in *repeat* turns::

    bytes      all of them once, at the rate of blocks that load, fold and store in turn; one
               multiprocessor's share at its own rate
    latencies  of a block: the loads, all in flight together, and the folds; as often as there are
               waves of blocks that registers and threads allow at once

    kept  = bytes + waves * latencies
    apart = a kernel for every pass, and its bytes

The coefficients are of an H200: batchnorm of channels last, float32 and bfloat16, 7 x 7 to 28 x 28.
"""

from collections.abc import Iterator
from math import ceil

from tcdsl.costmodel.chip import WARP, Chip
from tcdsl.costmodel.rates import read_rate
from tcdsl.costmodel.reductions import first_loads_s
from tcdsl.costmodel.registers import blocks_at_once, registers_of
from tcdsl.records import dataclass

TILE_SECTORS = (1, 2)  # of a row, to choose from
CLUSTERS = (1, 2, 4, 8)  # blocks, to choose from
MOST_KEPT_BYTES = 256  # of a thread
OTHER_REGISTERS = 40  # of a thread: sums, results and divisors of a vector, as NVRTC does it
MOST_TURNS = 16  # which are written out
TURNS = 2.2 / 4.3  # of the rate of reductions: blocks that load, fold and store in turn
ALONE = 1.4 / 4.3  # where each has a multiprocessor of its own
SINGLE = 0.9  # of the rate, where a row of a tile is a single sector: memory has them in pairs
FOLD_CYCLES = 1120  # of the folds of a small block, ...
WARP_FOLD_CYCLES = 48  # ... and for each of its warps more
UNEVEN = 0.5  # of a load's latency: a last turn that not all threads take
PASS_LAUNCHES = 2  # that a pass takes as long as, beside its bytes: its own, a fold in last blocks


@dataclass(frozen=True, slots=True)
class Columns:
    """What is to be kept: *columns* of *rows* values, *batches* times.

    A thread takes *vector* neighbouring columns.  For each value *kept_bytes* stay in a thread,
    the narrowest array has *least_bytes*, and *moved_bytes* are loaded or stored, once; by the
    *passes* that wait for one another it would be *apart_bytes*.
    """

    rows: int
    columns: int
    batches: int
    vector: int
    kept_bytes: int
    least_bytes: int
    moved_bytes: int
    apart_bytes: int
    folds: int
    passes: int

    @property
    def values(self) -> int:
        return self.rows * self.columns * self.batches

    @property
    def groups(self) -> int:
        """How many vectors a row has."""
        return ceil(self.columns / self.vector)

    def kept_bytes_of(self, repeat: int) -> int:
        """Return what a thread keeps of *repeat* rows."""
        return repeat * self.vector * self.kept_bytes

    def registers_of(self, gpu: Chip, repeat: int) -> int:
        return registers_of(gpu, self.kept_bytes_of(repeat), OTHER_REGISTERS)


@dataclass(frozen=True, slots=True)
class Share:
    """A way to share them: each of x * y threads of a block has *repeat* rows of its columns."""

    x: int
    y: int
    repeat: int
    cluster: int
    seconds: float


def best_share(gpu: Chip, columns: Columns) -> Share | None:
    """Return the way that takes least time, None if keeping columns would not save any."""
    best = min(shares(gpu, columns), key=lambda share: share.seconds, default=None)
    return best if best is not None and best.seconds < _seconds_apart(gpu, columns) else None


def shares(gpu: Chip, columns: Columns) -> Iterator[Share]:
    """Yield the ways that fit the registers of blocks."""
    for x in sorted({_width(columns, n * gpu.sector_bytes) for n in TILE_SECTORS}):
        for threads in range(4 * WARP, gpu.threads_per_block + 1, WARP):
            for cluster in CLUSTERS:
                y = threads // x
                repeat = ceil(columns.rows / (y * cluster))
                if cluster <= gpu.blocks_per_cluster and _fits(gpu, columns, x, y, repeat):
                    seconds = _seconds(gpu, columns, x, y, repeat, cluster)
                    yield Share(x, y, repeat, cluster, seconds)


def _width(columns: Columns, tile_bytes: int) -> int:
    """Return how many threads have *tile_bytes* of a row, at most all of it."""
    wanted = ceil(tile_bytes / (columns.vector * columns.least_bytes))
    return min(WARP, wanted, columns.groups)


def _fits(gpu: Chip, columns: Columns, x: int, y: int, repeat: int) -> bool:
    """Return whether *x* x *y* threads have registers for *repeat* rows each."""
    is_kept = columns.kept_bytes_of(repeat) <= MOST_KEPT_BYTES and repeat <= MOST_TURNS
    registers = x * y * columns.registers_of(gpu, repeat)
    return y > 1 and is_kept and registers <= gpu.registers_per_multiprocessor


def _seconds(gpu: Chip, columns: Columns, x: int, y: int, repeat: int, cluster: int) -> float:
    blocks = ceil(columns.groups / x) * columns.batches * cluster
    each = max(1, blocks_at_once(gpu, x * y, columns.registers_of(gpu, repeat)))
    usable = gpu.multiprocessors * (gpu.cluster_share if cluster > 1 else 1)
    fold = (FOLD_CYCLES + WARP_FOLD_CYCLES * x * y / WARP) / gpu.clock_hz
    fold += gpu.cluster_barrier_s if cluster > 1 else 0
    latencies = first_loads_s(gpu, repeat) + columns.folds * fold
    latencies += UNEVEN * gpu.dram_latency_s if columns.rows % (y * cluster) else 0
    share = ceil(blocks / gpu.multiprocessors) * x * y * repeat * columns.vector
    rate = (ALONE if each == 1 else TURNS) * read_rate(gpu)
    if x * columns.vector * columns.least_bytes <= gpu.sector_bytes:
        rate *= SINGLE
    streaming = columns.moved_bytes * max(
        columns.values / rate, share / gpu.multiprocessor_bytes_per_s
    )
    return gpu.launch_s + streaming + ceil(blocks / (usable * each)) * latencies


def _seconds_apart(gpu: Chip, columns: Columns) -> float:
    passes = columns.passes * PASS_LAUNCHES * gpu.launch_s
    return passes + columns.apart_bytes * columns.values / read_rate(gpu)
