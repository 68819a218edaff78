"""How a row that several passes go over is cut into chunks, each kept in a block's registers.

A block of *threads* threads, each with *values* of the row, loads its chunk once, folds it once a
pass, stores the results and takes a ticket; the last of a row's blocks folds all of them::

    bytes      all of them at the chip's rate, tickets beside
    blocks     as many at once as registers and threads allow, each as long as its latencies:
               the loads, all in flight together; the folds; the ticket
    finish     the results of a row, by the last block's threads, IN_FLIGHT at a time

    t = max(bytes, SLACK * blocks) + finish

Large chunks have fewer tickets and folds a byte, small ones leave several blocks to a
multiprocessor, so that one loads while others fold.  The coefficients are those of ``reductions``.
"""

from collections.abc import Iterable
from math import ceil

from tcdsl.costmodel.chip import VECTOR_BYTES, Chip
from tcdsl.costmodel.rates import read_rate
from tcdsl.costmodel.reductions import (
    IN_FLIGHT,
    TICKET,
    first_loads_s,
    partial_s,
    row_fold_s,
)
from tcdsl.costmodel.registers import blocks_at_once, registers_of
from tcdsl.records import dataclass

SLACK = 1.3  # of the blocks' latencies: they do not overlap as evenly as one could wish


@dataclass(frozen=True, slots=True)
class Rows:
    """What is to be cut: *rows* of *length* values, gone over *passes* times.

    *value_bytes* are loaded for each, of which a thread keeps *kept_bytes*.
    """

    rows: int
    length: int
    value_bytes: int
    passes: int
    kept_bytes: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A way to cut them: chunks of ``threads * values``."""

    threads: int
    values: int
    seconds: float

    @property
    def length(self) -> int:
        return self.threads * self.values


def best_cut(gpu: Chip, rows: Rows, choices: Iterable[tuple[int, int]]) -> Cut | None:
    """Return the cut that takes least time, None if there is no choice.

    :arg choices: the (threads, values) to choose from.
    """
    cuts = [Cut(t, v, _seconds(gpu, rows, t, v)) for t, v in choices]
    return min(cuts, key=lambda cut: (cut.seconds, cut.length, cut.threads), default=None)


def _seconds(gpu: Chip, rows: Rows, threads: int, values: int) -> float:
    count = ceil(rows.length / (threads * values))
    blocks = rows.rows * count
    loads = max(1, values * rows.value_bytes // VECTOR_BYTES)
    fold = row_fold_s(gpu, threads)
    own = first_loads_s(gpu, loads) + rows.passes * fold + TICKET * gpu.atomic_s
    at_once = max(1, blocks_at_once(gpu, threads, registers_of(gpu, values * rows.kept_bytes)))
    if at_once == 1:  # nobody loads while it folds
        own += threads * values * rows.value_bytes * gpu.multiprocessors / read_rate(gpu)
    waves = ceil(blocks / (at_once * gpu.multiprocessors))
    streaming = rows.rows * rows.length * rows.value_bytes / read_rate(gpu)
    turns = ceil(ceil(count / threads) / IN_FLIGHT)
    finish = rows.passes * (turns * partial_s(gpu) + fold)
    return max(streaming + own, SLACK * waves * own) + blocks * gpu.same_atomic_s + finish
