"""What a contraction on packed panels costs on a CPU.

Multiplications, and what moves between a core's second-level cache and the next one.  Blocks are
dealt to threads, so that the last ones may leave threads idle.
"""

from collections.abc import Iterator
from operator import mul

from tcdsl.costmodel import cpu_thresholds
from tcdsl.costmodel.chip import Unit
from tcdsl.costmodel.machine import Cpu
from tcdsl.costmodel.work import CpuWork, Phase
from tcdsl.records import dataclass

TERMS_A_BLOCK = cpu_thresholds.TERMS_A_BLOCK


@dataclass(frozen=True, slots=True)
class Product:
    """*count* products of *rows* x *terms* by *terms* x *columns*, in a tile of registers."""

    rows: int
    columns: int
    terms: int
    count: int
    tile: tuple[int, int]
    element_bytes: int
    column_count: int = 1  # of the products, how many have columns of their own
    together: int = 1  # terms that an instruction multiplies, on panels
    is_apart: tuple[bool, bool] = (False, False)  # of rows and columns: copied one by one
    result_bytes: int = 0  # that storing a result moves beside its own, where none are neighbours


@dataclass(frozen=True, slots=True)
class Blocking:
    """Rows, columns and terms of a block; *is_shared*: all columns are packed before."""

    rows: int
    columns: int
    terms: int
    is_shared: bool


def work_on_panels(product: Product, blocking: Blocking, cpu: Cpu) -> CpuWork:
    """Return what panels of *blocking* cost, with the copies that fill them."""
    size, terms = product.element_bytes, product.terms
    steps = -(-terms // blocking.terms)
    rows, columns = min(blocking.rows, product.rows), min(blocking.columns, product.columns)
    blocks = product.count * -(-product.rows // blocking.rows)
    blocks *= -(-product.columns // blocking.columns)
    threads, all_blocks = blocks / -(-blocks // cpu.threads), float(blocks)
    if cpu.threads == 1:  # the last blocks are smaller
        all_blocks = product.count * (product.rows / rows) * (product.columns / columns)
    # Copies read what other blocks have driven out of the second-level cache.
    packed = [rows] if blocking.is_shared else [rows, columns]
    lanes = [APART_LANES if is_apart else COPY_LANES for is_apart in product.is_apart]
    copied = all_blocks * sum(packed) * terms
    copying = all_blocks * sum(map(mul, packed, lanes)) * terms / product.together
    added = all_blocks * (3 + 2 * steps) * rows * columns * size
    # Columns that other threads have packed come from the cache that cores share.  On 8 threads of
    # a Xeon 1024^3 took 6.4 ms in blocks of 40 x 256 with shared columns, which were predicted to
    # be as fast as those of 180 x 128 without, 3.5 ms.
    columns_read = size * all_blocks * columns * terms if blocking.is_shared else 0.0
    near, far = (columns_read, 0.0) if cpu.threads == 1 else (0.0, columns_read)
    products = all_blocks * _whole(product, rows, columns) * terms / product.together
    unit = Unit.FMA_F64 if size == 8 else Unit.FMA_F32
    phases = [
        Phase(threads, ((unit, products),)),
        Phase(
            threads, l2_bytes=added + near, l3_bytes=far + _apart_results(product, cpu),
            dram_bytes=_results_stored(product, cpu),
        ),
        Phase(
            threads, ((unit, copying),), l3_bytes=2 * size * copied,
            dram_bytes=_first_read(product, blocking, cpu),
        ),
    ]  # fmt: skip
    if not blocking.is_shared:
        return CpuWork(tuple(phases), forks=min(1, cpu.threads - 1))
    # The columns come from memory, or from the cache that cores share, where many wait for it.
    filled = float(product.column_count * product.columns * terms)
    # Nothing is computed meanwhile: 128 x 16384 by 16384 x 4096 takes 14 ms longer with them.
    phases.append(Phase(cpu.threads, ((unit, lanes[1] / product.together * filled),)))
    phases.append(Phase(cpu.threads, dram_bytes=2 * size * filled))
    return CpuWork(tuple(phases), forks=min(2, 2 * (cpu.threads - 1)))


def _results_stored(product: Product, cpu: Cpu) -> float:
    """Return the bytes of results from and to memory, none where a cache holds them.

    A line that is written is loaded, too.
    """
    stored = float(product.count * product.rows * product.columns * product.element_bytes)
    return 2 * stored if stored > HELD * cpu.l3_bytes else 0.0


def _apart_results(product: Product, cpu: Cpu) -> float:
    """Return the bytes of the lines around results that are alone in theirs when they are stored.

    Gradients by weights whose taps are neighbours: each product goes over all of them.
    """
    moved = float(product.count * product.rows * product.columns * product.result_bytes)
    return 2 * moved if moved > HELD * cpu.l2_bytes else 0.0


def _first_read(product: Product, blocking: Blocking, cpu: Cpu) -> float:
    """Return the bytes that copies in blocks read from memory: of operands that no cache holds."""
    rows = product.count * product.rows * product.terms
    columns = product.column_count * product.columns * product.terms
    is_near = (rows + columns) * product.element_bytes <= HELD * cpu.l3_bytes
    copied = rows if blocking.is_shared else rows + columns
    return 0.0 if is_near else float(copied * product.element_bytes)


def blockings(product: Product, cpu: Cpu) -> Iterator[Blocking]:
    """Yield the blockings whose blocks fit a core's second-level cache."""
    tile_rows, tile_columns = product.tile
    steps = -(-product.terms // TERMS_A_BLOCK)
    terms = -(-product.terms // steps)
    size = product.element_bytes
    for rows in _blocks(product.rows, tile_rows, cpu_thresholds.BLOCKED_ROWS):
        for columns in _blocks(product.columns, tile_columns, cpu_thresholds.BLOCKED_COLUMNS):
            held = rows * terms + columns * terms + rows * columns
            if held * size > HELD * cpu.l2_bytes or max(rows, columns) * terms * size > MOST_BYTES:
                continue
            for is_shared in (True, False):
                yield Blocking(rows, columns, terms, is_shared)


COPY_LANES, APART_LANES = cpu_thresholds.COPY_LANES, cpu_thresholds.APART_LANES
MOST_BYTES = cpu_thresholds.PANEL_BYTES
HELD = cpu_thresholds.PANEL_CACHE


def _blocks(extent: int, tile: int, sizes: tuple[int, ...]) -> list[int]:
    """Return blocks of about so many values: of whole tiles, and as many in each."""
    found = []
    for size in sizes:
        tiles = -(-extent // tile)
        blocks = max(1, -(-extent // size))
        found.append(-(-tiles // blocks) * tile)
    return list(dict.fromkeys(found))


def _whole(product: Product, rows: int, columns: int) -> int:
    """Return the results of the whole tiles that cover a block."""
    tile_rows, tile_columns = product.tile
    return -(-rows // tile_rows) * tile_rows * -(-columns // tile_columns) * tile_columns
