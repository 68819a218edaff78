"""How long a schedule takes, on the machine of its problem: what it costs, and the estimate.

Blocks that sum parts of results without tickets leave these to a kernel of their own, whose blocks
have a part of the results each (costmodel/rates)::

    t = launch + latency + bytes / min(rate of the second-level cache, blocks x that of one)
"""

from math import prod

from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.estimate import Estimate, estimate
from tcdsl.costmodel.rates import fold_rate
from tcdsl.costmodel.work import AnyWork
from tcdsl.strategies.cpu_work import cpu_work_of
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.schedule import Schedule
from tcdsl.strategies.work import work_of


def estimated(problem: Problem, schedule: Schedule) -> tuple[AnyWork, Estimate]:
    """Return what *schedule* costs, and how long that takes."""
    count = work_of if isinstance(problem.machine, Chip) else cpu_work_of
    work = count(problem, schedule)
    return work, estimate(work, problem.machine)


def seconds_of(problem: Problem, schedule: Schedule) -> float:
    """Return the estimated time of *schedule*, and of the folds that it leaves to a kernel."""
    return estimated(problem, schedule)[1].seconds + fold_seconds(problem, schedule)


def fold_seconds(problem: Problem, schedule: Schedule) -> float:
    """Return how long the kernel takes that adds up what blocks have summed, 0 if they do.

    Tiles on threads have its launch and bytes in their own work, too (costmodel/tiles): with both
    chunks of them are predicted at 11.6 and 15.4 us where 13.1 and 18.8 were measured (H200).
    """
    if schedule.layout is not None or not isinstance(problem.machine, Chip):
        return 0.0
    moved = most = 0
    for name, partials in schedule.partials.items():
        chunks = prod(p.extent for p in partials if not p.is_lane)
        if chunks > 1:
            shape = problem.shapes[name]
            array = problem.scop.arrays[shape.statement.write.array]
            counts = zip(shape.extents, shape.strides[0], strict=True)
            own = array.dtype.size_bytes * prod(extent for extent, stride in counts if stride)
            moved, most = moved + chunks * own, max(most, own)
    if not moved:
        return 0.0
    gpu = problem.gpu
    waiting = gpu.programmatic_launch_s + gpu.dram_latency_s
    return waiting + moved / fold_rate(gpu, most)
