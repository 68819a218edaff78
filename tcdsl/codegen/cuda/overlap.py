"""When a kernel may begin before those before it have ended (compute capability 9.0 on).

What a launch takes lies between two kernels of a stream.  A *programmatic* launch lets the blocks
of the next one start where this one has left room, and a thread of it can wait until this one has
ended and what it stored is visible::

    ordered        K |==========|
                   L             . |======|        .  what a launch takes
    waits first    K |==========|
                   L        .=  |=====|            its threads wait before they touch what K does
    waits last     K |==========|
                   L    .  |====== |               nothing of it depends on K

Let U(j) be those that may still run when threads of kernel j begin.  A kernel that waits first lets
the next one start after its wait, all others do at their beginning, so that

    U(j) = {j-1}            or, where j-1 waits last,    {j-1} + U(j-1)

Waiting first is always legal.  Waiting last is, iff no memory that j touches is touched by a kernel
of U(j) and written by either, and j reads nothing that any kernel since the last ordered one has
written: what that stored is sure to be seen only after a wait of one's own.  It waits at all,
since whoever comes later waits for j alone: of each kernel that has ended, all before it have.

A kernel begins in order where nothing, a memset or a library's call is before it: these wait for
all.  So does one whose blocks wait for all others (schedule/grid_phases): they want the whole chip.

After NVIDIA's CUDA C++ Programming Guide, "Programmatic Dependent Launch and Synchronization".
"""

from collections.abc import Iterator, Sequence

from tcdsl.codegen.cuda.plan import PlanText
from tcdsl.codegen.cuda.source import Overlap
from tcdsl.poly.loop_tree import statements_of
from tcdsl.poly.scop import Storage
from tcdsl.records import dataclass
from tcdsl.schedule.grid_phases import has_phases
from tcdsl.schedule.plan import Kernel, arrays_of

_WORKSPACE = _TICKETS = ""  # the name of no argument, and of no array
_WHY = {
    Overlap.WAITS_FIRST: "programmatic dependent launch: waits at its start for the one before it",
    Overlap.WAITS_LAST: "programmatic dependent launch: runs while the one before it does",
}


@dataclass(frozen=True, slots=True)
class Touched:
    """Bytes of the workspace, or all of an argument, that a kernel touches."""

    array: str
    argument: str  # _WORKSPACE: it is in the workspace
    low: int
    high: int
    is_read: bool
    is_written: bool

    def shares(self, other: "Touched") -> bool:
        """Return whether some of the memory is the same."""
        is_apart = self.high <= other.low or other.high <= self.low
        return self.argument == other.argument and not is_apart

    def depends(self, other: "Touched") -> bool:
        """Return whether this must come after *other*."""
        return self.shares(other) and (self.is_written or other.is_written)

    def receives(self, other: "Touched") -> bool:
        """Return whether *other* may write what this reads."""
        return self.shares(other) and self.is_read and other.is_written


@dataclass(frozen=True, slots=True)
class Start:
    """How a kernel begins.

    *ordered* are the arrays that it must not touch before its wait, *awaited* those of them that
    others may write before and that it reads.  The CUDA compiler moves loads through a
    ``__restrict__`` pointer across the wait, for nobody else is said to write there; stores it
    does not, as the wait might never end.
    """

    overlap: Overlap
    ordered: frozenset[str] = frozenset()
    awaited: frozenset[str] = frozenset()

    @property
    def why(self) -> tuple[str, ...]:
        return () if self.overlap is Overlap.ORDERED else (_WHY[self.overlap],)

    @property
    def first_touched(self) -> frozenset[str] | None:
        """The arrays that it must not touch before its wait, None if tickets are among them."""
        return None if _TICKETS in self.ordered else self.ordered


def starts_of(text: PlanText, steps: Sequence[Kernel | None]) -> list[Start]:
    """Return how each of *steps* begins; None is a memset or a library's, in order."""
    starts: list[Start] = []
    running: list[Touched] = []  # by those that may still run when the next one begins
    since: list[Touched] = []  # by all since one began in order
    for number, kernel in enumerate(steps):
        if kernel is None:
            starts.append(Start(Overlap.ORDERED))
            running, since = [], []
            continue
        own = list(_touched(text, kernel))
        is_late = not kernel.code.early or has_phases(text.scop, kernel.tree)
        if number == 0 or steps[number - 1] is None or is_late:
            starts.append(Start(Overlap.ORDERED))
            since = []
        else:
            awaited = {mine.array for mine in own if any(map(mine.receives, since))}
            ordered = awaited | {mine.array for mine in own if any(map(mine.depends, running))}
            overlap = Overlap.WAITS_FIRST if ordered else Overlap.WAITS_LAST
            starts.append(Start(overlap, frozenset(ordered), frozenset(awaited)))
        running = [*running, *own] if starts[-1].overlap is Overlap.WAITS_LAST else own
        since = [*since, *own]
    return starts


def _touched(text: PlanText, kernel: Kernel) -> Iterator[Touched]:
    statements = [text.scop.by_name[name] for name in statements_of(kernel.tree)]
    written = {access.array for s in statements for access in s.writes}
    read = {access.array for s in statements for access in s.all_reads}
    for name in arrays_of(text.plan, kernel):
        array = text.scop.arrays[name]
        if name in text.plan.placements:
            continue
        if array.storage is Storage.ARGUMENT:
            place, (low, high) = array.argument, (0, 1)
        else:
            place, (low, high) = _WORKSPACE, text.span(name)
        yield Touched(name, place, low, high, name in read, name in written)
    if kernel.name in text.tickets:
        low, high = text.tickets[kernel.name]
        yield Touched(_TICKETS, _WORKSPACE, low, high, is_read=True, is_written=True)
