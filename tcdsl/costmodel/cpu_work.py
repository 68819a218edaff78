"""What a kernel costs on a CPU in countable things, which ``costmodel.cpu_estimate`` times.

    fork | phase | phase | ..        a phase: a loop nest, or one of the nests inside a shared loop

    cores                 first-level cache     second level     third level       memory
    operations, waits  <-- l1_bytes -->   <-- l2_bytes --> <-- l3_bytes --> <-- dram_bytes -->

Counts are of all threads together.
"""

from tcdsl.costmodel.chip import Unit
from tcdsl.records import dataclass


@dataclass(frozen=True, slots=True)
class Phase:
    """One loop nest, to be estimated.

    *threads* share it, on average: fewer than there are where the last of them have nothing left.
    *operations* are lanes of whole vectors, those that have no value among them; *waits* are
    results of multiply-adds that the next one needs, one after another; *starts* are of innermost
    loops.  Bytes are named by the level that they come from: *l1_bytes* are what loads and stores
    move, a scalar as a whole vector.
    """

    threads: float = 1.0
    operations: tuple[tuple[Unit, float], ...] = ()
    waits: float = 0.0
    starts: float = 0.0
    l1_bytes: float = 0.0
    l2_bytes: float = 0.0
    l3_bytes: float = 0.0
    dram_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class CpuWork:
    """A kernel, to be estimated: *phases*, one after another, in *forks* parallel loops."""

    phases: tuple[Phase, ...]
    forks: int = 0

    @property
    def dram_bytes(self) -> float:
        """The bytes from and to memory."""
        return sum(phase.dram_bytes for phase in self.phases)

    @property
    def operations(self) -> tuple[tuple[Unit, float], ...]:
        """The operations of all phases."""
        return tuple(one for phase in self.phases for one in phase.operations)
