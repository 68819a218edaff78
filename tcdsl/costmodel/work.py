"""What a kernel costs in countable things, which ``costmodel.estimate`` turns into time.

On a GPU (``Work``) bytes, operations and instructions are of the whole kernel; threads, registers
and shared memory say how many blocks run at once; what a block waits for, one thing after another,
is a chain::

    block    load .. load | barrier | fold | barrier | store      Work.chain: in every block
    kernel   block block block ...                 | last block   Work.finish: once, after them

Loads that do not depend on one another belong to no chain: ``in_flight_bytes`` says how many of
them a thread has on their way at once.

On a CPU (``CpuWork``) a kernel is *phases*, one after another: loop nests, or those inside a shared
loop.  Counts are of all threads together, bytes are named by the level that they come from::

    cores                 first-level cache     second level     third level       memory
    operations, waits  <-- l1_bytes -->   <-- l2_bytes --> <-- l3_bytes --> <-- dram_bytes -->

Two records, for they have two counts in common, operations and the bytes of memory; how many units
run at once follows from blocks, registers and shared memory here, and is a number of threads there.
"""

from dataclasses import replace

from tcdsl.costmodel.chip import Chip, Unit
from tcdsl.records import dataclass


@dataclass(frozen=True, slots=True)
class Chain:
    """Things that wait for one another, by how many of each there are."""

    dram_loads: float = 0
    l2_loads: float = 0
    shared_loads: float = 0
    block_barriers: float = 0
    cluster_barriers: float = 0
    grid_barriers: float = 0
    atomics: float = 0
    cycles: float = 0  # of dependent instructions


NOTHING = Chain()
Operations = tuple[tuple[Unit, float], ...]


@dataclass(frozen=True, slots=True)
class Work:
    """A kernel, to be estimated; of *launches* kernels, all of them together.

    *blocks* of *threads* threads, each with *registers*, and with *shared_bytes* of shared memory a
    block, static and dynamic; *cluster* blocks start together.  What goes to and from memory is in
    *read_bytes* and *written_bytes*; *l2_bytes* are all that cross between the second-level cache
    and the multiprocessors, 0 for those of memory alone; *shared_traffic_bytes* what is loaded from
    and stored to shared memory, a word once for each time that a conflict of banks repeats it.
    """

    blocks: int
    threads: int
    registers: int = 32
    shared_bytes: int = 0
    cluster: int = 1
    read_bytes: float = 0
    written_bytes: float = 0
    l2_bytes: float = 0
    shared_traffic_bytes: float = 0
    lines: float = 0  # of the first-level cache that warps look up
    operations: Operations = ()
    instructions: float = 0  # of threads, not of warps: those of all threads together
    in_flight_bytes: float = 16  # of a thread
    independent: float = 4  # instructions of a thread that do not wait for one another
    stalls: float = 0.0  # of a scheduler's only warp, for each instruction; several share them
    chain: Chain = NOTHING
    finish: Chain = NOTHING
    same_atomics: float = 0  # that go to one address
    is_tiled: bool = False  # tiles are copied to shared memory, and computed with later
    launches: int = 1
    is_programmatic: bool = False  # may begin before the kernel before it has ended
    is_prefetched: bool = False  # what a block loads was asked for a row before: the cache has it

    @property
    def dram_bytes(self) -> float:
        return self.read_bytes + self.written_bytes


@dataclass(frozen=True, slots=True)
class Phase:
    """One loop nest of a CPU's kernel.

    *threads* share it, on average: fewer than there are where the last of them have nothing left.
    *operations* are lanes of whole vectors, those that have no value among them; *waits* are
    results of multiply-adds that the next one needs, one after another; *starts* are of innermost
    loops.  Bytes are named by the level that they come from: *l1_bytes* are what loads and stores
    move, a scalar as a whole vector.
    """

    threads: float = 1.0
    operations: Operations = ()
    waits: float = 0.0
    starts: float = 0.0
    l1_bytes: float = 0.0
    l2_bytes: float = 0.0
    l3_bytes: float = 0.0
    dram_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class CpuWork:
    """A CPU's kernel, to be estimated: *phases*, one after another, in *forks* parallel loops."""

    phases: tuple[Phase, ...]
    forks: int = 0

    @property
    def dram_bytes(self) -> float:
        """The bytes from and to memory."""
        return sum(phase.dram_bytes for phase in self.phases)

    @property
    def operations(self) -> Operations:
        """The operations of all phases."""
        return tuple(one for phase in self.phases for one in phase.operations)


AnyWork = Work | CpuWork


def times(work: Work, factor: float) -> Work:
    """Return *work* with *factor* times what each block moves, computes and waits for."""
    chain = replace(work.chain, cycles=factor * work.chain.cycles)
    return replace(
        work, chain=chain, read_bytes=factor * work.read_bytes,
        written_bytes=factor * work.written_bytes, l2_bytes=factor * work.l2_bytes,
        shared_traffic_bytes=factor * work.shared_traffic_bytes,
        operations=tuple((unit, factor * count) for unit, count in work.operations),
        instructions=factor * work.instructions,
    )  # fmt: skip


def chain_seconds(chain: Chain, chip: Chip) -> float:
    """Return how long the things of *chain* take, one after another."""
    return (
        chain.dram_loads * chip.dram_latency_s
        + chain.l2_loads * chip.l2_latency_s
        + chain.shared_loads * chip.shared_latency_s
        + chain.block_barriers * chip.block_barrier_s
        + chain.cluster_barriers * chip.cluster_barrier_s
        + chain.grid_barriers * chip.grid_barrier_s
        + chain.atomics * chip.atomic_s
        + chain.cycles / chip.clock_hz
    )
