"""What the folds of a kernel cost a block: how many wait for one another, and over what.

    s(i) +=! x(i,j)        threads along j: one fold
    p(i,d) +=! x(i,d,j)    a thread goes over d: a fold for each of its values; unrolled, warps that
                           fold alone do theirs at once, and one call takes a power of two

A fold within a warp has no barrier, one over the blocks of a cluster has its barrier instead, or in
turns none but that which counts what is put (``schedule/fold_slots``).
"""

from collections.abc import Iterator
from math import log2, prod
from typing import NamedTuple

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import WARP
from tcdsl.poly.loop_tree import RANK, LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind
from tcdsl.schedule.nesting import Piece
from tcdsl.strategies.problem import Problem, analysis
from tcdsl.strategies.schedule import Schedule

FOLD_CYCLES = gpu_thresholds.WARP_STEP_CYCLES


class Folds(NamedTuple):
    """The folds over threads of a block that wait for one another."""

    over_blocks: int = 0  # with barriers of the block
    over_clusters: int = 0
    cycles: float = 0.0

    def repeated(self, times: int) -> "Folds":
        return Folds(times * self.over_blocks, times * self.over_clusters, times * self.cycles)


def folds_of(problem: Problem, schedule: Schedule) -> Folds:
    """Return the folds of a block's sums; of its turns, those of one."""
    widths = {n: prod(w for a, w in own if a != RANK) for n, own in schedule.threads.items()}
    widest = max(widths.values(), default=1)
    over_blocks, over_clusters, cycles = 0, 0, 0.0
    for name in updates_of(problem) if widest > 1 else ():
        axes = [axis for axis, _ in schedule.threads.get(name, ())]
        if not axes:  # each thread has sums of its own
            continue
        is_narrow = axes == [0] and widths[name] <= WARP
        calls = _calls(problem, schedule, name, is_narrow=is_narrow)
        is_counted = RANK in axes and bool(schedule.persistent)
        has_barrier = widest > WARP and not is_narrow and axes != [RANK] and not is_counted
        over_blocks += calls if has_barrier else 0
        over_clusters += calls if RANK in axes else 0
        cycles += calls * fold_cycles(widths[name])
    return Folds(over_blocks, over_clusters, cycles)


def fold_cycles(width: int) -> float:
    """Return the cycles of a fold over *width* threads, but for its barriers."""
    return FOLD_CYCLES * (log2(width) + (2 if width > WARP else 0)) if width > 1 else 0.0


@analysis
def updates_of(problem: Problem) -> tuple[str, ...]:
    """Return the members that add to what they write."""
    members = problem.group.members
    return tuple(n for n in members if problem.shapes[n].statement.kind is Kind.UPDATE)


def _calls(problem: Problem, schedule: Schedule, name: str, *, is_narrow: bool) -> int:
    """Return how often a thread folds for *name*, one call after another."""
    results = list(_results_of_thread(problem, schedule, name))
    serial = prod(piece.extent for piece in results if piece.kind is LoopKind.SERIAL)
    unrolled = prod(piece.extent for piece in results if piece.kind is LoopKind.UNROLL)
    is_one_call = is_narrow or unrolled & (unrolled - 1) == 0
    return serial * (1 if is_one_call else unrolled)


def _results_of_thread(problem: Problem, schedule: Schedule, name: str) -> Iterator[Piece]:
    """Yield the loops of a thread over results of *name*, but for axes that all members share.

    A block's turns come first, and are counted apart.
    """
    shape = problem.shapes[name]
    shared = {axis[name] for axis in problem.parallel}
    for piece in schedule.remaining[name][len(schedule.persistent) :]:
        dim = piece.coordinate.position
        if dim not in shared and shape.roles[dim] is Role.PARALLEL:
            yield piece
