"""From a scop to its plan on a CPU: lay out, group, schedule, rewrite, nest, place.

1. sums by remainders, operands in layouts for vectors           strategies/contraction
2. statements into groups, each a kernel                         schedule/fusion
3. a schedule a group: what the estimate chooses of all templates  strategies/catalogue
4. the schedules' rewrites, then the dependences again            strategies/schedule_rewrites
5. the loops of each kernel                                      plan/skeleton
6. where the scratch arrays live                                 schedule/placement

A :class:`Scheme` says how much of it is done: what is left out costs isl nothing.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from tcdsl.costmodel.locality import Shape
from tcdsl.costmodel.machine import Cpu
from tcdsl.options import Options
from tcdsl.plan.skeleton import Loops, planned, statement_by_statement, weighed_of
from tcdsl.poly.data_ranges import is_scattered_by_range
from tcdsl.poly.dependences import Dependences, dependences_of
from tcdsl.poly.loop_tree import LoopKind, with_kind
from tcdsl.poly.scop import Scop
from tcdsl.rewrites.scop.first_indices import from_zero
from tcdsl.schedule.fusion import (
    Group,
    Refused,
    alignment_of,
    alone,
    group_statements,
    recording,
)
from tcdsl.schedule.placement import in_whole_vectors, place
from tcdsl.schedule.plan import CPU_CODE, Plan
from tcdsl.schedule.separation import Separation
from tcdsl.schedule.trace import record
from tcdsl.strategies.alternatives import least_seconds
from tcdsl.strategies.asked import NOTHING_ASKED, asked_for
from tcdsl.strategies.catalogue import ALIKE_ON_CPU, templates_for
from tcdsl.strategies.choices import choice_for
from tcdsl.strategies.contraction import (
    find_contraction,
    has_operands_to_copy,
    materialise_operands,
    sums_by_remainders,
    why_not_contraction,
)
from tcdsl.strategies.library_kernels import library_of, library_schedule
from tcdsl.strategies.operations import PARALLEL_WORK, work_of
from tcdsl.strategies.panels import panel_schedules
from tcdsl.strategies.problem import Problem, Scheme
from tcdsl.strategies.queued import Queued, requests_of
from tcdsl.strategies.schedule import Schedule
from tcdsl.strategies.schedule_rewrites import Rewritten, apply
from tcdsl.strategies.shapes import shapes_of
from tcdsl.strategies.stencils import cpu_tilings
from tcdsl.strategies.tiled_chains import why_not_beside
from tcdsl.strategies.whole_tiles import with_whole_tiles

UNTRIED = "their loops may be one, but groups are merged in one pass, in textual order"


def plan_scop(scop: Scop, options: Options, cpu: Cpu, scheme: Scheme | None = None) -> Plan:
    """Return the plan of *scop* on *cpu*.

    :arg scheme: None for that of *options*.
    """
    scheme = scheme or Scheme(options.scheduler)

    def plan(scop: Scop, options: Options) -> Plan:
        return _planned(scop, options, cpu, scheme)

    found = planned(scop, options, scheme, plan, partial(cpu_tilings, cpu=cpu))
    if options.vectorise:
        return found
    kernels = tuple(
        replace(k, tree=with_kind(k.tree, LoopKind.VECTOR, LoopKind.SERIAL)) for k in found.kernels
    )
    record("scalar loops", found.scop, kernels)
    return replace(found, kernels=kernels)


def _planned(scop: Scop, options: Options, cpu: Cpu, scheme: Scheme) -> Plan:
    if scheme in (Scheme.TEXTUAL, Scheme.SERIAL):
        # What is asked for is of the usual kernels, for which a fallback's stand in.
        own = options if scheme is Scheme(options.scheduler) else replace(options, choices="")
        return _nest(*statement_by_statement(scop, own, cpu, scheme, shapes_of), own, cpu)
    if scheme is Scheme.AUTO:
        counted = from_zero(scop)
        if counted is not scop:
            record("indices from 0 on", counted)
            scop = counted
        split = sums_by_remainders(scop)
        if split is not scop:
            record("a sum for each remainder", split)
            scop = split
    dependences = dependences_of(scop)
    shapes = shapes_of(scop, dependences)
    if scheme is Scheme.AUTO and options.vectorise:
        laid_out = _with_operands(scop, shapes, dependences, options, cpu)
        if laid_out is not scop:
            record("operand packing", laid_out)
            scop, dependences = laid_out, dependences_of(laid_out)
            shapes = shapes_of(scop, dependences)
    if scheme is Scheme.PLAIN:
        options = replace(options, fuse="none")
    refused: Refused = []
    alignment = alignment_of(scop, dependences)
    why_not = recording(_Policy(scop, shapes, options, cpu).why_not, refused)
    groups = group_statements(scop, alignment, shapes, why_not)
    record("fusion", scop, notes=["+".join(group.members) for group in groups])
    rewritten, queue = _rewrite(scop, groups, shapes, options, cpu, scheme)
    plan = _nest(rewritten, queue, options, cpu)
    separation = Separation(scop, groups, refused, alignment, shapes, UNTRIED)
    return replace(plan, apart=separation.pairs)


def _groups(
    scop: Scop, shapes: Mapping[str, Shape], dependences: Dependences, options: Options, cpu: Cpu
) -> list[Group]:
    """Return the statements of each kernel of a scop that may be none of the plan's."""
    policy = _Policy(scop, shapes, options, cpu)
    return group_statements(scop, alignment_of(scop, dependences), shapes, policy.why_not)


def _with_operands(
    scop: Scop,
    shapes: Mapping[str, Shape],
    dependences: Dependences,
    options: Options,
    cpu: Cpu,
) -> Scop:
    """Return *scop* with copies of operands that register tiles read, unless panels are faster.

    Panels are filled from any layout and type.  Whether a contraction has them depends on what
    shares its kernel, copies for other contractions too: where it has none, its own are made.
    """
    wanted = {name for name in shapes if has_operands_to_copy(scop, shapes[name], cpu)}
    if not wanted:
        return scop
    kept = wanted & _on_panels(scop, shapes, dependences, options, cpu)
    all_copied = materialise_operands(scop, shapes, cpu)
    if not kept:
        return all_copied
    while True:
        laid_out = materialise_operands(scop, shapes, cpu, kept)
        known = dependences_of(laid_out)
        still = kept & _on_panels(laid_out, shapes_of(laid_out, known), known, options, cpu)
        if still == kept:
            break
        kept = still
    if not kept:
        return all_copied
    on_panels, copied = (_seconds(layout, options, cpu) for layout in (laid_out, all_copied))
    return laid_out if on_panels <= ALIKE_ON_CPU * copied else all_copied


def _seconds(scop: Scop, options: Options, cpu: Cpu) -> float:
    """Return how long the kernels of *scop* take."""
    dependences = dependences_of(scop)
    shapes = shapes_of(scop, dependences)
    groups = _groups(scop, shapes, dependences, options, cpu)
    problems = (Problem(scop, group, shapes, cpu, options) for group in groups)
    return sum(
        least_seconds(problem, templates_for(problem))
        for problem in problems
        if not library_of(scop, problem.group.members)
    )


def _on_panels(
    scop: Scop,
    shapes: Mapping[str, Shape],
    dependences: Dependences,
    options: Options,
    cpu: Cpu,
) -> set[str]:
    """Return the statements whose kernels are contractions on panels, if nothing else is asked for.

    Not as choices ask: these are of the kernels of one layout, which must be that of every call.
    """
    found: set[str] = set()
    for group in _groups(scop, shapes, dependences, options, cpu):
        if not library_of(scop, group.members):
            problem = Problem(scop, group, shapes, cpu, options, scheme=Scheme.AUTO)
            schedule = choice_for(problem, NOTHING_ASKED).schedule(problem)
            found |= {*group.members} if schedule.panels is not None else set()
    return found


def _rewrite(
    scop: Scop,
    groups: list[Group],
    shapes: Mapping[str, Shape],
    options: Options,
    cpu: Cpu,
    scheme: Scheme,
) -> tuple[Scop, list[Queued]]:
    """Make the schedule of every group and apply the rewrites, one group after another."""
    queue: list[Queued] = []
    asked = asked_for(options)
    for group in groups:
        name = "+".join(group.members)
        if library_of(scop, group.members):
            kernel = library_schedule(scop, group.members, shapes, f"k{len(queue)}")
            queue.append(Queued(kernel, name))
            continue
        problem = Problem(scop, group, shapes, cpu, options, scheme=scheme)
        schedule = choice_for(problem, asked).schedule(problem)
        if schedule.panels is not None:
            scop, built = panel_schedules(problem, schedule, f"k{len(queue)}")
            record("panels", scop, notes=[name])
            queue += [Queued(own, name, problem=problem) for name, own in built.items()]
            continue
        done: Rewritten = apply(scop, schedule)
        if done.scop is not scop:
            record("rfactor", done.scop, notes=[name])
        scop = done.scop
        queue += _plain(done.before)
        queue.append(Queued(done.schedule, name, problem=problem))
        queue += _plain(done.after)
    return scop, queue


def _plain(names: tuple[str, ...]) -> list[Queued]:
    """Return the kernel of *names*, which a rewrite has made, if there are any."""
    plain = Schedule(names, (), {}, template="plain", code=CPU_CODE)
    return [Queued(plain, "+".join(names))] if names else []


def _nest(scop: Scop, queue: list[Queued], options: Options, cpu: Cpu) -> Plan:
    """Open the loops of every queued kernel, and place the scratch arrays."""
    kernels = Loops(scop, shapes_of, LoopKind.VECTOR).kernels(queue)
    kernels = [replace(one, tree=with_whole_tiles(scop, one.tree)) for one in kernels]
    weighed = weighed_of(queue, kernels, options)
    placements = place(scop, [kernel.tree for kernel in kernels], requests_of(queue))
    placements = in_whole_vectors(placements, scop, cpu.vector_bytes)
    return Plan(scop, tuple(kernels), placements, weighed)


class _Policy:
    """Whether a statement joins a group: it must share data, and leave the threads their work."""

    def __init__(self, scop: Scop, shapes: Mapping[str, Shape], options: Options, cpu: Cpu) -> None:
        self.scop = scop
        self.shapes = shapes
        self.options = options
        self.cpu = cpu

    def why_not(self, group: Group, grown: Group) -> str | None:
        """Return why *group* should not grow, or None."""
        if self.options.fuse == "none":
            return "fusion is off"
        if library := library_of(self.scop, grown.members):
            return f"{library} computes a part of it"
        if reason := why_not_beside(self.scop, grown):
            return reason
        if any(self._loses_tile(name, grown) for name in grown.members):
            return "a contraction would lose its register tile"
        work = sum(work_of(self.shapes[name]) for name in grown.members)
        if work < PARALLEL_WORK or self.cpu.threads == 1:
            return None
        scattered = [is_scattered_by_range(self.shapes[n].statement) for n in grown.members]
        if any(scattered) and not all(scattered):
            return "its rows would be left to one thread, for those of another member may overlap"
        before, after = self._parallelism(group), self._parallelism(grown)
        new = self._parallelism(alone(grown.members[-1], self.shapes))
        least = min(before, new, 2 * self.cpu.threads)
        if after < least:
            return f"only {after} iterations would be left for {self.cpu.threads} threads"
        return None

    def _loses_tile(self, name: str, grown: Group) -> bool:
        is_contraction = why_not_contraction(self.shapes[name]) is None
        return is_contraction and find_contraction(grown, self.shapes) != name

    def _parallelism(self, group: Group) -> int:
        """Return how many iterations may run at once, chunks of reduced axes included."""
        product = 1
        for axis in group.axes:
            product *= max(self.shapes[name].extents[dim] for name, dim in axis.items())
        return product
