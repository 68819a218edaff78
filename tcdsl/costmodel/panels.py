"""How long a contraction takes on a CPU, in a register tile alone and on packed panels.

Seconds of one core: its multiplications, and what moves between its second-level cache and the
next one.  Blocks are dealt to threads, so that the last ones may leave threads idle.
"""

from collections.abc import Iterator

from tcdsl.costmodel import cpu_thresholds
from tcdsl.costmodel.chip import Unit
from tcdsl.costmodel.cpu_work import CpuWork, Phase
from tcdsl.costmodel.machine import Cpu
from tcdsl.records import dataclass

ROWS_A_BLOCK = cpu_thresholds.ROWS_A_BLOCK
TERMS_A_BLOCK = cpu_thresholds.TERMS_A_BLOCK
PAGE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Product:
    """*count* products of *rows* x *terms* by *terms* x *columns*, in a tile of registers.

    *is_apart*: neighbours in memory are not neighbours in the tile's vectors.
    *stride_bytes* is between the rows of the operand whose rows a tile reads.
    """

    rows: int
    columns: int
    terms: int
    count: int
    tile: tuple[int, int]
    element_bytes: int
    is_apart: bool = False
    stride_bytes: int = 0
    column_count: int = 1  # of the products, how many have columns of their own
    together: int = 1  # terms that an instruction multiplies, on panels
    column_stride_bytes: int = PAGE_BYTES  # between terms of the operand whose columns a tile reads


@dataclass(frozen=True, slots=True)
class Blocking:
    """Rows, columns and terms of a block; *is_shared*: all columns are packed before."""

    rows: int
    columns: int
    terms: int
    is_shared: bool


def seconds_in_tiles(product: Product, cpu: Cpu) -> float:
    """Return how long register tiles take that read the operands where they are."""
    tile_rows, tile_columns = product.tile
    panel = product.terms * tile_columns * product.element_bytes
    columns = product.columns * product.terms * product.element_bytes
    # A panel of columns stays in the second-level cache for a block of rows, if it fits.
    rows = ROWS_A_BLOCK if 2 * panel <= cpu.l2_bytes else tile_rows
    passes = max(1, product.rows // rows)
    moved = columns / cpu.l3_bytes_per_s
    if 2 * columns > cpu.l2_bytes:
        # Long rows are on pages of their own; of short ones a page holds many.
        stride = PAGE_BYTES if product.is_apart else product.column_stride_bytes
        slower = max(1.0, min(1.0, stride / PAGE_BYTES) * IN_PLACE)
        moved = passes * columns / (cpu.l2_bytes_per_s / slower)
    collides = product.stride_bytes % PAGE_BYTES == 0 and product.stride_bytes > 0
    factor = cpu_thresholds.COLLIDING_ROWS if collides or product.is_apart else 1.0
    threads = min(cpu.threads, max(1, product.rows // tile_rows) * product.count)
    one = factor * _multiplying(product, product.rows, product.columns, cpu)
    return product.count * (one + moved) / threads


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
    packed = rows if blocking.is_shared else rows + columns
    # Copies read what other blocks have driven out of the second-level cache.
    copied = all_blocks * 2 * packed * terms * size
    added = all_blocks * (3 + 2 * steps) * rows * columns * size
    if blocking.is_shared:  # one after another, so that prefetches are in time
        added += all_blocks * columns * terms * size
    products = all_blocks * _whole(product, rows, columns) * terms / product.together
    phases = [
        Phase(threads, ((_unit(product), products),)),
        Phase(threads, l2_bytes=added, l3_bytes=copied),
    ]
    if not blocking.is_shared:
        return CpuWork(tuple(phases), forks=1)
    # The columns come from memory, or from the cache that cores share, where many wait for it.
    filled = 2.0 * product.column_count * product.columns * terms * size
    phases.append(Phase(cpu.threads, dram_bytes=filled))
    return CpuWork(tuple(phases), forks=2)


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


MOST_BYTES = cpu_thresholds.PANEL_BYTES
IN_PLACE = cpu_thresholds.IN_PLACE
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


def _unit(product: Product) -> Unit:
    return Unit.FMA_F64 if product.element_bytes == 8 else Unit.FMA_F32


def _multiplying(product: Product, rows: int, columns: int, cpu: Cpu) -> float:
    """Return the seconds of the multiplications of whole tiles that cover a block."""
    rate = cpu.fma_f64_per_s if product.element_bytes == 8 else cpu.fma_f32_per_s
    return _whole(product, rows, columns) * product.terms / rate
