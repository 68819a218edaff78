"""Kernels that could share a launch, with blocks of one shape: which, and how long it takes.

    q(b,s,h,d)    32 heads: blocks of 16 x 16      16 x 8 } blocks side by side in one launch
    k(b,s,h,d)     8 heads: blocks of 16 x 8       16 x 8 } (schedule/packing)

Each kernel alone would have the blocks that take it the least time, and blocks that differ share no
launch.  Of the shapes that all of them can have that one is chosen with which the launch takes the
least time, if that saves enough of what separate launches take (``launches.MARGIN``); of times that
are alike the one with the fewest threads and blocks, whose vectors are the widest.

Only kernels whose schedule needs no rewrite, and no blocks after them, are weighed: streams of
elements.  None may depend on another, directly or through others.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, prod

from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.estimate import estimate
from tcdsl.costmodel.side_by_side import launch_seconds, longest, side_by_side_seconds
from tcdsl.costmodel.work import Work
from tcdsl.plan.launches import MARGIN
from tcdsl.poly.loop_tree import LoopKind
from tcdsl.poly.scop import Kind
from tcdsl.records import dataclass
from tcdsl.schedule.mapping import Dim3
from tcdsl.schedule.packing import grid_of, idle_blocks
from tcdsl.strategies.catalogue import ALIKE, LIKELIEST, fastest
from tcdsl.strategies.problem import Problem, nameless_analysis
from tcdsl.strategies.schedule import Schedule
from tcdsl.strategies.template import Choice
from tcdsl.strategies.work import along_axes, least_work_of, with_accesses

MOST = 8  # kernels of one launch


@dataclass(frozen=True, slots=True)
class _Made:
    """A kernel with blocks of some shape."""

    choice: Choice
    work: Work
    seconds: float
    grid: Dim3


@dataclass(frozen=True, slots=True)
class Common:
    """Choices with blocks of one shape, and how long their launch takes."""

    choices: tuple[Choice, ...]
    seconds: float


def common_blocks(problems: Sequence[Problem]) -> Common | None:
    """Return the choices of *problems* with which one launch takes least.

    None if there are none, or they save too little of separate launches, which run beside each
    other.
    """
    if not all(map(_is_stream_as_chosen, problems)):
        return None
    by_shape, gpu = [_by_shape(problem) for problem in problems], problems[0].gpu
    best = [next(iter(own.values())).work for own in by_shape]
    apart = sum(launch_seconds(work, gpu) for work in best) + longest(best, gpu)
    shapes = [shape for shape in by_shape[0] if all(shape in own for own in by_shape)]
    found = [(_seconds([own[shape] for own in by_shape], gpu), shape) for shape in shapes]
    least = min((seconds for seconds, _ in found), default=inf)
    if not apart - least > MARGIN["packed"] * gpu.launch_s * (len(problems) - 1):
        return None
    alike = [(seconds, shape) for seconds, shape in found if seconds <= ALIKE * least]

    def started(one: tuple[float, Dim3]) -> tuple[int, int]:
        """Return how many threads there are, and how many blocks."""
        blocks = sum(prod(own[one[1]].grid) for own in by_shape)
        return blocks * prod(one[1]), blocks

    seconds, shape = min(alike, key=started)
    return Common(tuple(own[shape].choice for own in by_shape), seconds)


def _seconds(made: Sequence[_Made], gpu: Chip) -> float:
    """Return how long the blocks of *made* take as one launch."""
    grids = [one.grid for one in made]
    if grid_of(grids) is None:
        return inf
    own = side_by_side_seconds([one.work for one in made], gpu)
    return own + idle_blocks(grids) * gpu.block_start_s


def choices_in_common(
    problems: Sequence[Problem], are_independent: Callable[[Problem, Problem], bool]
) -> Mapping[str, Choice]:
    """Return the choices of those of *problems* that are to have blocks of one shape, by kernel."""
    found: dict[str, Choice] = {}
    for own in _together(problems, are_independent):
        common = common_blocks(own)
        assert common is not None, "they are together"
        names = ("+".join(problem.group.members) for problem in own)
        found |= dict(zip(names, common.choices, strict=True))
    return found


def _together(
    problems: Sequence[Problem], are_independent: Callable[[Problem, Problem], bool]
) -> Iterator[list[Problem]]:
    """Yield those of *problems*, two and more, whose blocks differ and had better not."""
    sets: list[list[Problem]] = []
    for problem in problems:
        for own in sets:
            is_free = len(own) < MOST and all(are_independent(one, problem) for one in own)
            if is_free and common_blocks([*own, problem]) is not None:
                own.append(problem)
                break
        else:
            sets.append([problem])
    for own in sets:
        if len(own) > 1 and len({_chosen_shape(problem) for problem in own}) > 1:
            yield own


def _chosen_shape(problem: Problem) -> Dim3:
    return next(iter(_by_shape(problem)))


@nameless_analysis
def _by_shape(problem: Problem) -> Mapping[Dim3, _Made]:
    """Return the fastest way to make *problem*, a stream, with blocks of each shape.

    The chosen one comes first.
    """
    chosen, found = fastest(problem), dict[Dim3, _Made]()
    template = chosen.template
    for choice in (chosen, *(Choice(template, config) for config in template.space(problem))):
        schedule = template.schedule(problem, choice.config)
        if not _is_stream(schedule):
            continue
        shape, least = along_axes(schedule, LoopKind.THREAD), least_work_of(problem, schedule)
        most = found[shape].seconds if shape in found else None
        if most is not None and ALIKE * estimate(least, problem.gpu).seconds >= most:
            continue  # it is a lower bound
        work = with_accesses(problem, schedule, least)
        seconds = estimate(work, problem.gpu).seconds
        if most is None or ALIKE * seconds < most:
            grid = along_axes(schedule, LoopKind.BLOCK)
            found[shape] = _Made(choice, work, seconds, grid)
    return found


@nameless_analysis
def _is_stream_as_chosen(problem: Problem) -> bool:
    """Return whether *problem* is elementwise, and made so that its blocks do nothing together."""
    statements = (problem.shapes[name].statement for name in problem.group.members)
    if any(statement.kind is not Kind.ASSIGN for statement in statements):
        return False
    chosen = fastest(problem)
    schedule = chosen.template.schedule(problem, chosen.config)
    return chosen.template not in LIKELIEST and _is_stream(schedule)


def _is_stream(schedule: Schedule) -> bool:
    """Return whether the blocks of *schedule* do nothing together, and it needs no rewrite."""
    others = (
        schedule.partials, schedule.resident, schedule.steps, schedule.tensor, schedule.bands,
        schedule.implicit, schedule.transposition, schedule.layout, schedule.private,
        schedule.persistent,
    )  # fmt: skip
    return not any(others)
