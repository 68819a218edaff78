"""How long a group takes as a kernel, made as it would be: what the search compares.

the estimate of what is chosen     longer, where few threads do most of the work, or a kernel
                                   after it adds up what blocks have summed
"""

from math import ceil, prod

from tcdsl.costmodel.gpu_thresholds import SERIAL_VECTORS
from tcdsl.costmodel.library_products import estimated
from tcdsl.poly.loop_tree import LoopKind
from tcdsl.strategies.catalogue import fastest
from tcdsl.strategies.estimated import fold_seconds, seconds_of
from tcdsl.strategies.library_kernels import computed_by, library_of
from tcdsl.strategies.problem import Problem, nameless_analysis
from tcdsl.strategies.schedule import Schedule

FEW = 4  # times the values that a member has, the kernel has others: unequal work


@nameless_analysis
def predicted_seconds(problem: Problem) -> float:
    """Return how long *problem* takes as a kernel, or as a library's call."""
    members = problem.group.members
    if library_of(problem.scop, members):
        return _of_library(problem)
    choice = fastest(problem)
    schedule = choice.schedule(problem)
    longest = max(_alone_seconds(problem, schedule, name) for name in members)
    return max(seconds_of(problem, schedule), longest + fold_seconds(problem, schedule))


def _of_library(problem: Problem) -> float:
    """Return how long the library takes that computes *problem*."""
    statement = problem.scop.by_name[problem.group.members[0]]
    product = computed_by(statement.library, problem.scop, statement)
    assert not isinstance(product, str), product
    return estimated(product, problem.gpu, problem.options.precision).seconds


def _alone_seconds(problem: Problem, schedule: Schedule, name: str) -> float:
    """Return how long the threads take that run *name*, where few of the kernel's do; else 0.

    An estimate is of blocks that have equal shares of the work.  A sum that few values of the
    axes have is a chain of loads in few threads::

        y(i) = x(i)    y(i) += z(k) where i in 0:3
    """
    shape = problem.shapes[name]
    own = prod(shape.extents[axis[name]] for axis in problem.parallel)
    if FEW * own > problem.results:
        return 0.0
    lanes = prod(p.width for p in schedule.remaining[name] if p.kind is LoopKind.THREAD)
    chunks = prod(p.extent for p in schedule.partials.get(name, ()) if not p.is_lane)
    steps = problem.rest_of(name) / (lanes * chunks * SERIAL_VECTORS)
    return ceil(steps) * problem.gpu.dram_latency_s
