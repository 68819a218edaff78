"""How many blocks share a row that one block cannot hold, and with how many threads.

    blocks    so many that each has at most BLOCK_BYTES of the row, and MOST_KEEPING threads can
              keep what is kept beside it; more where the chip would have too few, down to
              LEAST_BYTES each
    threads   THREADS on a multiprocessor, together with the blocks beside it there; few of them
              idle in the last turn, and so many that what each keeps fits its registers.  Of rows
              of two axes some may be along the outer one: a row of 40 x 64 values has 16 vectors
              of float32 along the inner axis, and 16 x 14 threads with three each

That pays where a row is more than a block keeps in registers while others run beside it, or where
there are few rows and a block alone would take long with one; and where it is written as well as
read: who only reads may wait for loads in all its registers.  Rows with two axes are never in
registers, and a block alone may stage a short one.

Measured on an H200: 50 to 64 KB a block and some 1500 threads on a multiprocessor were best.  In
float32 batchnorm of 256 channels takes 71 us (with rows in registers of a cluster at best 78, with
three passes 106), rmsnorm of (4096, 65536) 571 (registers of one block: 800); cross-entropy of
(4096, 50304) takes 333 us so and 202 in the registers of one block.  Warps that do not divide by
four cost a block, or leave a quarter idle: the gradient of cross-entropy of (4096, 50257) float32
takes 543 us with 416 threads, 567 with 352 and 487 with 384.  Softmax of (4096, 65536) takes 533 us
with blocks of 64 KB and 32 values kept by a thread, 551 with half of both.  In bfloat16 it takes
303 with exponentials in registers, 64 a thread, and 270 where they are computed again from shared
memory: of a half type a value takes twice the room when it is kept.
"""

from collections.abc import Iterator
from math import prod

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import MOST_THREADS, WARP, Chip
from tcdsl.costmodel.reductions import is_brief
from tcdsl.records import dataclass

BLOCK_BYTES = 64 << 10  # of a row in one block's shared memory
LEAST_BYTES = 16 << 10  # of a row in a block, where more blocks are to fill the chip
HELD_WELL = 5 / 8  # of a multiprocessor's registers: values of rows that one block holds well
KEPT_BYTES = 4  # of a value in a register
HELD_VALUES = 1.0  # of them: what a block can hold at all
THREADS = 3 / 4  # of those of a multiprocessor
LEAST_GROUPS = 32  # along the inner axis, so that threads have work
MOST_HELD_BYTES = 128  # of a thread, of rows of a half type that it keeps in registers
MOST_REGISTERS = 64  # values that a thread keeps from one statement to the next, ...
MOST_KEEPING = 256  # ... in blocks of so many threads, else their registers are too many
_COUNTERS_BYTES = 1 << 10  # of folds with slots of their own, and what aligns them
OPEN_PART = 2  # of the most bytes of an open row: what threads are chosen for
MOST_VALUES = 4  # of the outer axis, of a thread, where threads are along both
_INNER_THREADS = (2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True)
class Share:
    """A block's share of a row: *per* values of the outer axis, *repeat* vectors a thread.

    Where each block of a cluster has all values of the outer of two axes, it has its part of the
    inner one.
    """

    cluster: int  # 1: one block has all of the row
    per: int
    threads: int  # along the inner axis
    repeat: int
    outer_threads: int = 1

    @property
    def values(self) -> int:
        """How many values of the outer axis a thread has."""
        return -(-self.per // self.outer_threads)

    @property
    def keeps_well(self) -> bool:
        """Whether values that threads keep leave registers for other blocks."""
        return self.threads * self.outer_threads <= MOST_KEEPING


@dataclass(frozen=True, slots=True)
class LongRows:
    """What is to be shared: *rows* with one or two axes of these *extents*.

    Of each value *staged_bytes*, of *n_staged* arrays, are in shared memory, and those of *n_kept*
    arrays are kept in registers beside them; *vector* values are loaded at once.
    """

    rows: int
    extents: tuple[int, ...]
    staged_bytes: int
    n_staged: int
    n_kept: int
    vector: int
    is_written: bool
    has_inner_sums: bool = False  # sums along the inner axis, a result for each value of the outer
    fold_bytes: int = 0  # of one value of each sum
    is_open: bool = False  # the outer axis is as long as that at the most

    @property
    def length(self) -> int:
        return prod(self.extents)

    @property
    def keeps_wider(self) -> bool:
        """Whether a value takes more room in a register than what is staged of it."""
        return self.staged_bytes < KEPT_BYTES * self.n_staged

    @property
    def row_bytes(self) -> int:
        """What is staged of a row."""
        return self.length * self.staged_bytes

    @property
    def is_split(self) -> bool:
        """Whether ranks and threads are along the same axis."""
        return len(self.extents) == 1

    def is_shared_inside(self, share: Share) -> bool:
        """Return whether the blocks of a cluster share the inner of two axes."""
        return not self.is_split and share.cluster > 1 and share.per == self.extents[0]


def best_share(gpu: Chip, rows: LongRows) -> Share | None:
    """Return the share of each block of a cluster, None if clusters should not share *rows*."""
    if rows.is_split and _is_held(gpu, rows):
        return None
    cluster = _blocks(gpu, rows)
    if rows.extents[0] < cluster:
        return None
    per = -(-rows.extents[0] // cluster)
    groups = -(-(per if rows.is_split else rows.extents[1]) // rows.vector)
    if groups < LEAST_GROUPS or rows.has_inner_sums:
        return next(shares_of_both_axes(gpu, rows), None)
    values = groups * rows.vector * (1 if rows.is_split else per) * rows.n_kept
    own_bytes = rows.row_bytes // (OPEN_PART if rows.is_open else 1) // cluster
    resident = max(1, gpu.shared_bytes_per_block // max(1, own_bytes))
    wanted = int(THREADS * gpu.threads_per_multiprocessor) // resident
    least = -(-values // MOST_REGISTERS)
    threads = (_even_threads if rows.is_split else busy_threads)(groups, wanted, least)
    share = _share(rows, cluster, threads)
    return share if _is_in_shared_memory(gpu, rows, share) else next(shares(gpu, rows), None)


def is_held_by_threads(rows: LongRows, share: Share) -> bool:
    """Return whether threads keep their part of short rows of two axes in registers, unrolled.

    Measured on an H200, unet_norms (8, 32, 40, 256) takes 14.9 us so in bfloat16 and 16.8 from
    shared memory, with 255 pixels 21.4 and 25.0; with 160 bytes of a thread 51.8 and 48, and
    in float32 as long or longer.  Rows of one axis were slower in the registers of a cluster.
    """
    vectors = share.values * share.repeat
    return (
        not (rows.is_split or rows.is_open)
        and rows.keeps_wider
        and rows.row_bytes <= BLOCK_BYTES
        and vectors <= gpu_thresholds.CLUSTER_VECTORS
        and vectors * rows.vector * rows.staged_bytes <= MOST_HELD_BYTES
    )


def shares(gpu: Chip, rows: LongRows) -> Iterator[Share]:
    """Yield the shares that fit, of blocks that have work for their threads."""
    for cluster in _cluster_sizes(gpu, rows):
        per = -(-rows.extents[0] // cluster)
        groups = -(-(per if rows.is_split else rows.extents[1]) // rows.vector)
        values = groups * rows.vector * (1 if rows.is_split else per) * rows.n_kept
        for threads in range(4 * WARP, MOST_THREADS + 1, 4 * WARP):
            is_kept = values <= MOST_REGISTERS * threads
            is_busy = threads < groups + 4 * WARP
            if groups >= LEAST_GROUPS and is_kept and is_busy:
                share = _share(rows, cluster, threads)
                if _is_in_shared_memory(gpu, rows, share):
                    yield share
    yield from shares_of_both_axes(gpu, rows)
    yield from shares_of_inner_axis(gpu, rows)


def shares_of_inner_axis(gpu: Chip, rows: LongRows) -> Iterator[Share]:
    """Yield the shares that fit where blocks have all of the outer of two axes, and share the inner
    one: the outer may have too few values for as many blocks as a row needs.
    """
    if rows.is_split:
        return
    groups, cluster = -(-rows.extents[1] // rows.vector), 2
    while cluster <= gpu.blocks_per_cluster:
        own = -(-groups // cluster)
        for threads in range(4 * WARP, min(MOST_THREADS, own) + 1, 4 * WARP):
            share = Share(cluster, rows.extents[0], threads, -(-own // threads))
            is_used = cluster == -(-groups // (threads * share.repeat))
            kept = share.values * share.repeat * rows.vector * rows.n_kept
            if is_used and kept <= MOST_REGISTERS and _is_in_shared_memory(gpu, rows, share):
                yield share
        cluster *= 2


def _cluster_sizes(gpu: Chip, rows: LongRows) -> Iterator[int]:
    """Yield the numbers of blocks to try: powers of two, and what divides the outer of two axes.

    None of them where some blocks of a cluster would have nothing, and shared memory all the same:
    ten values are two for each of five blocks, and of eight.
    """
    most = min(_most(gpu, rows), rows.extents[0])
    for cluster in range(1, most + 1):
        is_even = not rows.is_split and rows.extents[0] % cluster == 0
        is_used = rows.is_split or cluster == _ranks(rows, -(-rows.extents[0] // cluster))
        if is_used and (is_even or cluster & (cluster - 1) == 0):
            yield cluster


def _ranks(rows: LongRows, per: int) -> int:
    """Return how many blocks of a cluster have *per* values of the outer axis, or some."""
    return -(-rows.extents[0] // per)


def shares_of_both_axes(gpu: Chip, rows: LongRows) -> Iterator[Share]:
    """Yield the shares that fit, of blocks with threads along both axes of a row.

    Along the inner one there is a part of a warp, whose sums need no barrier, or whole warps; along
    the outer one so many that each thread has a few values.  The blocks of a cluster have whole
    turns of their threads, which are whole warps.  First those with as many blocks as rows in one
    axis would have, and about as many threads on a multiprocessor.
    """
    if rows.is_split:
        return
    groups, favoured = -(-rows.extents[1] // rows.vector), _blocks(gpu, rows)
    found = [
        share
        for cluster in _cluster_sizes(gpu, rows)
        for threads in _INNER_THREADS
        for share in _outer_shares(rows, cluster, threads)
        if _is_worth_trying(rows, share, groups) and _is_in_shared_memory(gpu, rows, share)
    ]

    def order(share: Share) -> tuple[bool, float]:
        resident = max(1, gpu.shared_bytes_per_block // max(1, rows.row_bytes // share.cluster))
        wanted = THREADS * gpu.threads_per_multiprocessor / resident
        threads = share.threads * share.outer_threads
        return share.cluster != favoured, max(threads / wanted, wanted / threads)

    yield from sorted(found, key=order)


def _outer_shares(rows: LongRows, cluster: int, threads: int) -> Iterator[Share]:
    """Yield the shares of *threads* along the inner axis: a few values of the outer one each."""
    own = -(-rows.extents[0] // cluster)
    repeat = -(-rows.extents[1] // (rows.vector * threads))
    unit = 1 if cluster == 1 else max(1, WARP // threads)  # that makes whole warps
    wanted = (-(-own // values) for values in range(1, MOST_VALUES + 1))
    for outer in dict.fromkeys(-(-each // unit) * unit for each in wanted):
        per = own if cluster == 1 else -(-own // outer) * outer
        yield Share(cluster, per, threads, repeat, outer)


def _is_worth_trying(rows: LongRows, share: Share, groups: int) -> bool:
    """Return whether blocks and threads are busy, and can keep what they must."""
    threads = share.threads * share.outer_threads
    kept = share.values * share.repeat * rows.vector * rows.n_kept
    return (
        share.outer_threads > 1
        and 2 * WARP <= threads <= MOST_THREADS
        and share.threads < 2 * groups
        and share.cluster == _ranks(rows, share.per)
        and kept <= MOST_REGISTERS
    )


def _share(rows: LongRows, cluster: int, threads: int) -> Share:
    """Return the share of *threads* in each of *cluster* blocks."""
    per = -(-rows.extents[0] // cluster)
    groups = -(-(per if rows.is_split else rows.extents[1]) // rows.vector)
    repeat = -(-groups // threads)
    return Share(cluster, threads * repeat * rows.vector if rows.is_split else per, threads, repeat)


def _most(gpu: Chip, rows: LongRows) -> int:
    """Return how many blocks may share a row: as many as any kernel may have, if these hold it and
    leave folds all that they may like.
    """
    usual = gpu.blocks_per_cluster
    room = gpu.shared_bytes_per_block - gpu.static_shared_bytes_per_block
    return usual if rows.row_bytes <= usual * room else gpu.most_blocks_per_cluster


def _is_in_shared_memory(gpu: Chip, rows: LongRows, share: Share) -> bool:
    """Return whether a block has room for its share, rounded up to what its threads take."""
    inner = prod(rows.extents[1:])
    if rows.is_shared_inside(share):
        inner = share.threads * share.repeat * rows.vector
    room = _staging_bytes(gpu, rows, share.cluster, share.threads * share.outer_threads)
    return share.per * inner * rows.staged_bytes <= room


def _staging_bytes(gpu: Chip, rows: LongRows, cluster: int, threads: int) -> int:
    """Return what copies may take of the shared memory of a block of *threads*.

    What folds take is left: a value of each warp of the cluster, or, of the outer axis alone, of
    each thread (schedule/fold_slots).  Other arrays of a block are its registers.
    """
    values = threads if rows.has_inner_sums else -(-threads // WARP)
    slots = rows.fold_bytes * cluster * values + _COUNTERS_BYTES
    return gpu.shared_bytes_per_block - min(slots, gpu.static_shared_bytes_per_block)


def _is_held(gpu: Chip, rows: LongRows) -> bool:
    """Return whether the registers of one block do as well."""
    values = rows.length * max(rows.n_staged, rows.n_kept)
    if values <= HELD_WELL * gpu.registers_per_multiprocessor:
        # Multiprocessors without a row would be idle beside a block that takes long with one.
        is_short = is_brief(gpu, rows.length * (rows.staged_bytes + KEPT_BYTES * rows.n_kept))
        return rows.rows >= gpu.multiprocessors or is_short or not rows.is_written
    return not rows.is_written and rows.length <= HELD_VALUES * gpu.registers_per_multiprocessor


def _blocks(gpu: Chip, rows: LongRows) -> int:
    """Return how many blocks are to share a row, if it fits any."""
    most_bytes = BLOCK_BYTES
    if rows.n_kept:
        kept = MOST_KEEPING * MOST_REGISTERS // rows.n_kept
        most_bytes = min(BLOCK_BYTES, kept * rows.staged_bytes)
    cluster, most = 1, _most(gpu, rows)
    while cluster < most and rows.row_bytes > most_bytes * cluster:
        cluster *= 2
    while (
        cluster < most
        and rows.rows * cluster < gpu.multiprocessors
        and rows.row_bytes >= 2 * LEAST_BYTES * cluster
    ):
        cluster *= 2
    return cluster


def busy_share(groups: int, threads: int) -> float:
    """Return in which part of the turns of *threads* over *groups* vectors threads have one."""
    return groups / (threads * -(-groups // threads))


def _even_threads(groups: int, wanted: int, least: int) -> int:
    """Return how many threads share *groups* vectors: as many warps in each quarter of the chip's
    multiprocessor, and no more than *wanted* if that is not less than *least*.
    """
    quarter = 4 * WARP
    most = max(wanted // quarter, -(-least // quarter), 1) * quarter
    choices = [t for t in range(quarter, min(most, MOST_THREADS) + 1, quarter) if t >= least]
    busy = {t: busy_share(groups, t) for t in choices or [MOST_THREADS]}
    return max(t for t in busy if busy[t] >= 0.9 * max(busy.values()))


def busy_threads(groups: int, wanted: int, least: int) -> int:
    """Return how many threads share *groups* vectors: few of them idle in the last turn.

    :arg least: so many, that what each keeps fits its registers.
    """
    choices = range(4 * WARP, MOST_THREADS + 1, WARP)
    wanted = max(wanted, least, choices[0])
    busy = {
        t: busy_share(groups, t) for t in choices if min(least, MOST_THREADS) <= t <= 2 * wanted
    }
    good = [t for t in busy if busy[t] >= 0.95 * max(busy.values())]
    return min(good, key=lambda t: max(t / wanted, wanted / t))
