"""How many threads keep a row in their registers, and how many such blocks are to be at once.

    blocks beside each other     load  fold  compute  store
                                       load  fold  compute  store

A block alone on its multiprocessor leaves the memory idle while it folds; of two, one loads then.
So a long row is kept by so few threads that several blocks fit, each thread with several vectors on
their way, and the compiler is held to the registers that this leaves (``__launch_bounds__``)::

    registers(threads, blocks) = 65536 / (threads * blocks)  >=  values + room

*Values* are those of the row that a thread keeps; numbers of a half type that are kept as they are
loaded take less than a register.  *Room* is for what else it computes with, more where other arrays
are read along the row (gamma, a residual).

Measured on an H200 by 630 forced choices of threads and blocks (seven lengths from 4096 to 32768,
five programs, two types); before and after, microseconds: rmsnorm (8192, 12288) float32 240 and
198, bias_gelu_residual_layernorm (8192, 16384) bfloat16 349 and 255, layernorm (4096, 24576)
bfloat16 140 and 104, cross_entropy (4096, 24576) bfloat16 102 and 70.  Rows of fewer values than
LONG were as fast with what ``strategies/row_registers`` says.
"""

from math import ceil

from tcdsl.costmodel.chip import WARP, Chip
from tcdsl.costmodel.registers import blocks_at_once
from tcdsl.records import dataclass

LONG = 8192  # values of a row
_ROOM = 16
_ROOM_OF_ARRAY = 5  # of each that is read along the row beside what is kept, ...
_ROOM_FOR_LOADS = 10  # ... where so many blocks share the registers that none are left for loads
_MANY_BESIDE = 3
# Of a register, by a value of a half type that is kept as it was loaded: two share one until they
# are used, and where all are used to be stored again, many at a time.
_AS_LOADED = {True: 0.75, False: 0.55}
# The numbers of threads to try, and of resident blocks that they are worth it for.
_CHOICES = {True: ((256, 3), (512, 2), (256, 2)), False: ((512, 2), (256, 2))}
_MOST_BESIDE = 6


@dataclass(frozen=True, slots=True)
class KeptRow:
    """A row of *groups* vectors of *vector* values, of which *live* arrays are kept at a time.

    *is_half*: vectors are of a half type; *as_loaded*: and so is all that is kept.  *is_written*:
    rows are stored, too.  *others* are the arrays read along the row beside those that are kept.
    """

    groups: int
    vector: int
    live: int
    is_half: bool
    as_loaded: bool
    is_written: bool
    others: int


@dataclass(frozen=True, slots=True)
class Share:
    """*threads* a row, *items* vectors each, *resident_blocks* at once; 0: as many as fit."""

    threads: int
    items: int
    resident_blocks: int


def share_of(gpu: Chip, row: KeptRow) -> Share | None:
    """Return how the threads of a block share *row*, None if no two blocks would fit."""
    for most, least in _CHOICES[row.is_half]:
        items = ceil(row.groups / most)
        threads = ceil(row.groups / (items * WARP)) * WARP  # few idle in the last turn
        resident = most_resident_blocks(gpu, row, threads, items)
        if resident >= least:
            return Share(threads, items, resident)
    return None


def most_resident_blocks(gpu: Chip, row: KeptRow, threads: int, items: int) -> int:
    """Return how many blocks fit a multiprocessor."""
    each = _AS_LOADED[row.is_written] if row.as_loaded else 1.0
    values = items * row.vector * row.live * each
    for blocks in range(_MOST_BESIDE, 0, -1):
        of_array = _ROOM_FOR_LOADS if blocks >= _MANY_BESIDE else _ROOM_OF_ARRAY
        needed = values + _ROOM + of_array * row.others
        is_held = needed <= gpu.registers_per_thread
        if is_held and blocks_at_once(gpu, threads, needed) >= blocks:
            return blocks
    return 0
