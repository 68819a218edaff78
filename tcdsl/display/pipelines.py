"""A pipeline over time: copies that a producer's warp asks for, and products of the other warps.

    stage 0   copies      [ 0 ====]      [ 2 ====]            a copy's end is a phase of "full",
              products            [ 0 ]          [ 2 ]        which products wait for; theirs one
    stage 1   copies      [ 1 ======]      [ 3 ====]          of "empty", which the next copy
              products              [ 1 ]          [ 3 ]      waits for

Stages, steps and who waits for whom are the plan's (``schedule/pipelines``).  Lengths are those of
the estimate, for a block that has its multiprocessor for itself: a step's share of the time that
the second-level cache and the tensor cores take; copies also wait for memory under load.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import prod

from tcdsl.costmodel.work import Work
from tcdsl.display.html import Html, join, tag
from tcdsl.display.svg import arrow, drawing, label, line, rect
from tcdsl.poly.loop_tree import LoopKind, loops_around, statements_of
from tcdsl.poly.scop import Event, EventKind
from tcdsl.records import dataclass
from tcdsl.schedule.plan import Kernel, Plan, Weighed
from tcdsl.strategies.catalogue import Candidate, candidates
from tcdsl.strategies.problem import Problem

WIDTH, LEFT, RIGHT = 760.0, 92.0, 752.0
TOP, ROW, BAR, LANE = 12.0, 54.0, 15.0, 29.0  # of a stage; of its two lanes; between these
COPIES, PRODUCTS, FULL, EMPTY = "argument", "collective", "good", "flow"
MORE_STEPS = 2  # that are drawn after each stage was used twice


@dataclass(frozen=True, slots=True)
class Timeline:
    """A kernel's pipeline: *lag* as in ``Event``; times are in seconds, of one step."""

    kernel: str
    stages: int
    steps: int
    stage_bytes: int
    lag: int
    latency_s: float
    copy_s: float
    product_s: float


@dataclass(frozen=True, slots=True)
class Use:
    """What happens to the stage of *step*, in seconds from the first copy on."""

    step: int
    stage: int
    phase: int  # the parity that waiting threads name
    asked: float
    arrived: float
    began: float
    ended: float
    released: float


def timelines(plan: Plan) -> Iterator[Timeline]:
    """Yield the pipelines of the kernels of *plan* whose warps have roles."""
    for kernel in plan.kernels:
        if (found := _timeline(plan, kernel)) is not None:
            yield found


def _timeline(plan: Plan, kernel: Kernel) -> Timeline | None:
    events: dict[EventKind, tuple[str, Event]] = {}
    for name in statements_of(kernel.tree):
        if (event := plan.scop.by_name[name].event) is not None:
            events[event.kind] = name, event
    made = next((w for w in plan.weighed if w.kernel == kernel.name), None)
    if EventKind.ACQUIRE not in events or made is None or not isinstance(made.candidates, partial):
        return None
    problem = made.candidates.args[0]
    chosen = chosen_of(problem, made)
    name, acquire = events[EventKind.ACQUIRE]
    around = [loop for loop in loops_around(kernel.tree, name) if loop.kind is LoopKind.SERIAL]
    counted = around[-1:] if around[-1].runs_on else around
    steps = prod(loop.extent or 1 for loop in counted)  # of all tiles of a block
    assert isinstance(chosen.work, Work), "of a GPU"
    share = problem.gpu.multiprocessors / (chosen.work.blocks * steps)
    ((unit, _), *_) = chosen.work.operations
    return Timeline(
        kernel.name, acquire.stages, steps, acquire.size_bytes, events[EventKind.RELEASE][1].lag,
        problem.gpu.dram_loaded_latency_s,
        share * chosen.estimate.term("L2"), share * chosen.estimate.term(str(unit)),
    )  # fmt: skip


def chosen_of(problem: Problem, made: Weighed) -> Candidate:
    """Return the candidate for *problem* that *made* has; what it says of code is no part of it."""
    config = {key: value for key, value in made.choice.items() if key != "code"}
    return next(c for c in candidates(problem) if c.choice.as_data() == config)


def uses(of: Timeline, count: int) -> list[Use]:
    """Return what happens in the first *count* steps."""
    found: list[Use] = []
    arrived: list[float] = []
    released: list[float] = []  # of a step, some steps later
    for step in range(count):
        asked = released[step - of.stages] if step >= of.stages else 0.0
        last, ended = (arrived[-1], found[-1].ended) if found else (0.0, 0.0)
        arrived.append(max(asked + of.latency_s, last) + of.copy_s)
        began = max(arrived[step], ended)
        use, stage = divmod(step, of.stages)
        found.append(
            Use(step, stage, use % 2, asked, arrived[step], began, began + of.product_s, 0.0)
        )
        if step >= of.lag:
            released.append(max(found[step - of.lag].ended, arrived[step]))
    rest = (use.ended for use in found[len(released) :])
    times = zip(found, (*released, *rest), strict=True)
    return [replace(use, released=at) for use, at in times]


def drawn_steps(of: Timeline) -> int:
    """Return how many steps a picture shows."""
    return min(of.steps, 2 * of.stages + MORE_STEPS)


def pipelines_section(plan: Plan) -> Html:
    """Return the pictures of all pipelines of *plan*, nothing where there are none."""
    return join([
        tag("figure", tag("p", caption(of), class_="note"), pipeline(of))
        for of in timelines(plan)
    ])  # fmt: skip


def caption(of: Timeline) -> str:
    """Return what a picture is of."""
    return (
        f"{of.kernel}: {of.stages} stages of {of.stage_bytes:,} bytes, the first "
        f"{drawn_steps(of)} of {of.steps} steps; times are predicted, of a block that has its "
        "multiprocessor for itself"
    )


def pipeline(of: Timeline) -> Html:
    """Return the picture of the first steps."""
    found = uses(of, drawn_steps(of))
    scale = (RIGHT - LEFT) / found[-1].ended
    bottom = TOP + ROW * of.stages
    parts = [_grid(of, found[-1].ended, scale, bottom)]
    for use in found:
        parts.append(_bars(use, scale))
        later = use.step + of.stages
        if later < len(found):
            parts.append(_emptied(use, found[later], scale))
        parts.append(_bar(use.began, use.ended, bottom + 6, str(use.step), PRODUCTS, scale))
    told = f"Pipeline of {of.kernel}: " + "; ".join(
        f"step {u.step} in stage {u.stage} copied from {_ns(u.asked)} to {_ns(u.arrived)} ns, "
        f"multiplied from {_ns(u.began)} to {_ns(u.ended)} ns"
        for u in found
    )
    return drawing(WIDTH, bottom + 76, told, *parts, _legend(bottom + 66))


def _x(seconds: float, scale: float) -> float:
    return LEFT + seconds * scale


def _y(stage: int) -> float:
    return TOP + ROW * stage


def _ns(seconds: float) -> str:
    return f"{1e9 * seconds:.0f}"


def _bar(start: float, end: float, y: float, text: str, paint: str, scale: float) -> Html:
    x, width = _x(start, scale), (end - start) * scale
    middle = x + width / 2, y + BAR - 4
    box = rect((x, y), (width, BAR), paint, paint, fill_opacity=0.22, rx=2)
    return join(box, label(middle, text, "ink", 10, "middle"))


def _bars(use: Use, scale: float) -> Html:
    """Return the copy and the products of *use*, and the arrow of its full barrier."""
    y = _y(use.stage)
    held = _x(use.ended, scale), y + LANE + BAR / 2
    return join(
        _bar(use.asked, use.arrived, y, str(use.step), COPIES, scale),
        _bar(use.began, use.ended, y + LANE, str(use.step), PRODUCTS, scale),
        line(held, (_x(use.released, scale), held[1]), PRODUCTS, stroke_width=1.2),
        _signal((_x(use.arrived, scale), y + BAR), (_x(use.began, scale), y + LANE), FULL, use),
    )


def _emptied(use: Use, after: Use, scale: float) -> Html:
    """Return the arrow of the empty barrier: from the end of *use* to the next copy *after* it."""
    start = _x(use.released, scale), _y(use.stage) + LANE + BAR / 2
    return _signal(start, (_x(after.asked, scale), _y(use.stage) + BAR), EMPTY, use)


def _signal(start: tuple[float, float], end: tuple[float, float], paint: str, use: Use) -> Html:
    """Return the arrow of a barrier, with the parity of its phase."""
    beside = max(start[0], end[0]) + 4, end[1] + (9 if end[1] < start[1] else -4)
    return join(
        arrow(start, end, paint, stroke_width=1.4),
        label(beside, str(use.phase), paint, 9),
    )


def _grid(of: Timeline, end: float, scale: float, bottom: float) -> Html:
    """Return the names of the rows, and the axis of time."""
    parts = []
    for stage in range(of.stages):
        y = _y(stage)
        parts += [
            label((0, y + 11), f"stage {stage}", "ink", 11),
            label((LEFT - 8, y + 11), "copies", "muted", 10, "end"),
            label((LEFT - 8, y + LANE + 11), "products", "muted", 10, "end"),
            line((0, y + ROW - 4), (RIGHT, y + ROW - 4), "line", stroke_width=0.5),
        ]
    parts.append(label((0, bottom + 17), "tensor cores", "ink", 11))
    unit = _unit(end)
    for n in range(int(end / unit) + 1):
        x = _x(n * unit, scale)
        parts.append(line((x, TOP - 6), (x, bottom + 26), "line", stroke_width=0.5))
        parts.append(label((x, bottom + 38), f"{_ns(n * unit)} ns", "muted", 10, "middle"))
    return join(parts)


def _unit(end: float) -> float:
    """Return the distance of the lines of an axis: some six of them."""
    units = [base * 10.0**power for power in range(-9, -3) for base in (1, 2, 5)]
    return next(unit for unit in units if end / unit <= 8)


def _legend(y: float) -> Html:
    parts: list[Html] = []
    x = 0.0
    for paint, text, length in (
        (COPIES, "copy, from request to arrival", 178),
        (PRODUCTS, "products; line: until released", 172),
        (FULL, "full, with its phase", 126), (EMPTY, "empty, with its phase", 0),
    ):  # fmt: skip
        if paint in (COPIES, PRODUCTS):
            parts.append(rect((x, y - 9), (14, 10), paint, paint, fill_opacity=0.22, rx=2))
        else:
            parts.append(arrow((x, y - 4), (x + 16, y - 4), paint, stroke_width=1.4))
        parts.append(label((x + 20, y), text, "muted", 10))
        x += length + 24
    return join(parts)


def pipeline_rows(found: Sequence[Use]) -> list[tuple[str, ...]]:
    """Return a picture as a table: step, stage, phase, and when what happens, in nanoseconds."""
    return [
        (
            str(use.step), str(use.stage), str(use.phase), f"{_ns(use.asked)} - {_ns(use.arrived)}",
            f"{_ns(use.began)} - {_ns(use.ended)}", _ns(use.released),
        )
        for use in found
    ]  # fmt: skip
