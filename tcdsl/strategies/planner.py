"""From a scop to its plan: group, sketch, rewrite, nest, place.

1. dependences, and what each dimension may do
2. statements into groups, each a kernel                        schedule/fusion
3. a sketch a group: outer loops, orders, partial accumulators  strategies/*
4. the sketches' rewrites, then the dependences again           rewrites/scop/rfactor
5. the loops of each kernel                  schedule/nesting, or strategies/generic
6. where the scratch arrays live                                schedule/placement

A :class:`Scheme` says how much of it is done: what is left out costs isl nothing.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from tcdsl.costmodel.locality import Shape, shape_of
from tcdsl.costmodel.machine import Cpu
from tcdsl.options import Options
from tcdsl.poly.data_ranges import is_scattered_by_range
from tcdsl.poly.dependences import Dependences, dependences_of
from tcdsl.poly.parallelism import roles_of
from tcdsl.poly.scop import Scop
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.compensation import explained, with_compensation
from tcdsl.rewrites.scop.first_indices import from_zero
from tcdsl.rewrites.scop.rfactor import with_own_accumulators
from tcdsl.schedule.fusion import (
    Group,
    Refused,
    affinities_of,
    alignment_of,
    alone,
    apart_in,
    group_statements,
    recording,
)
from tcdsl.schedule.nesting import Alignment, Nester
from tcdsl.schedule.placement import in_whole_vectors, place
from tcdsl.schedule.plan import Kernel, Plan, Weighed
from tcdsl.schedule.trace import record
from tcdsl.strategies.asked import NOTHING_ASKED, Asked, asked_for, require_followed
from tcdsl.strategies.choices import candidates_of, choice_for
from tcdsl.strategies.contraction import (
    find_contraction,
    has_operands_to_copy,
    materialise_operands,
    sums_by_remainders,
    why_not_contraction,
)
from tcdsl.strategies.generic import (
    IslLoops,
    bare_sketch,
    has_parallel_loop,
    is_recurrence,
    plain_sketch,
    textual_tree,
    wavefront_tile,
)
from tcdsl.strategies.library_kernels import LibraryKernel, library_kernel, library_of
from tcdsl.strategies.operations import PARALLEL_WORK, work_of
from tcdsl.strategies.panels import COPIES, PanelKernel, panel_kernels
from tcdsl.strategies.problem import Problem, Scheme
from tcdsl.strategies.scalar import without_vectors
from tcdsl.strategies.sketch import Sketch
from tcdsl.strategies.sketch_rewrites import Rewritten, apply
from tcdsl.strategies.stencils import cpu_tilings, with_tiles
from tcdsl.strategies.tiled_chains import why_not_beside
from tcdsl.strategies.whole_tiles import with_whole_tiles


def shapes_of(scop: Scop, dependences: Dependences) -> dict[str, Shape]:
    """Return the box, strides and roles of every statement."""
    return {s.name: shape_of(scop, s, roles_of(s, dependences)) for s in scop.statements}


def plan_scop(scop: Scop, options: Options, cpu: Cpu, scheme: Scheme | None = None) -> Plan:
    """Return the plan of *scop* on *cpu*.

    :arg scheme: None for that of *options*.
    """
    scheme = scheme or Scheme(options.scheduler)
    if options.summation == "compensated":
        scop = with_compensation(scop)
    is_textual = scheme in (Scheme.TEXTUAL, Scheme.SERIAL)
    plan = _textual(scop, cpu) if is_textual else _planned(scop, options, cpu, scheme)
    if options.summation == "compensated":
        plan = explained(plan)
    if options.vectorise:
        return plan
    kernels = tuple(replace(k, tree=without_vectors(k.tree)) for k in plan.kernels)
    record("scalar loops", plan.scop, kernels)
    return replace(plan, kernels=kernels)


def _textual(scop: Scop, cpu: Cpu) -> Plan:
    """Return the plan in which every statement runs as written, one after another."""
    scop = with_own_accumulators(scop)
    shapes = shapes_of(scop, dependences_of(scop))
    kernels = tuple(
        Kernel(
            name,
            textual_tree(shape, cpu, f"k{position}"),
            ("the loops as written",),
            template="as written",
            library=shape.statement.library,
        )
        for position, (name, shape) in enumerate(shapes.items())
    )
    record("nesting", scop, kernels)
    return Plan(scop, kernels, place(scop, [kernel.tree for kernel in kernels]))


def _planned(scop: Scop, options: Options, cpu: Cpu, scheme: Scheme) -> Plan:
    """Return the plan by *scheme*, with chains of stencils in tiles where nothing else is asked."""

    def plan(scop: Scop, options: Options) -> Plan:
        return _as_written(scop, options, cpu, scheme)

    if scheme is not Scheme.AUTO or options.fuse == "none" or options.tile:
        return plan(scop, options)
    return with_tiles(scop, options, plan, partial(cpu_tilings, cpu=cpu))


def _as_written(scop: Scop, options: Options, cpu: Cpu, scheme: Scheme) -> Plan:
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
    groups = _groups(scop, shapes, dependences, _Policy(scop, shapes, options, cpu), refused)
    record("fusion", scop, notes=["+".join(group.members) for group in groups])
    rewritten, queue = _rewrite(scop, groups, shapes, options, cpu, scheme)
    plan = _nest(rewritten, queue, options, cpu)
    return replace(plan, apart=apart_in(groups, refused, dependences))


def _groups(
    scop: Scop,
    shapes: Mapping[str, Shape],
    dependences: Dependences,
    policy: "_Policy",
    refused: Refused,
) -> list[Group]:
    """Return the statements of each kernel; what was *refused*, and why, is added."""
    alignment = alignment_of(scop, dependences)
    return group_statements(scop, alignment, shapes, recording(policy.why_not, refused))


def _with_operands(
    scop: Scop,
    shapes: Mapping[str, Shape],
    dependences: Dependences,
    options: Options,
    cpu: Cpu,
) -> Scop:
    """Return *scop* with copies of operands that register tiles read, but none of what panels hold.

    Panels are filled from any layout and type.  Whether a contraction has them depends on what
    shares its kernel, copies for other contractions too: where it has none, its own are made.
    """
    wanted = {name for name in shapes if has_operands_to_copy(scop, shapes[name], cpu)}
    kept = wanted and wanted & _on_panels(scop, shapes, dependences, options, cpu)
    while True:
        laid_out = materialise_operands(scop, shapes, cpu, kept)
        if not kept or laid_out is scop:
            return laid_out
        known = dependences_of(laid_out)
        still = kept & _on_panels(laid_out, shapes_of(laid_out, known), known, options, cpu)
        if still == kept:
            return laid_out
        kept = still


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
    for group in _groups(scop, shapes, dependences, _Policy(scop, shapes, options, cpu), []):
        if not library_of(scop, group.members):
            problem = Problem(scop, group, shapes, cpu, options)
            sketch, _ = _sketched(problem, Scheme.AUTO, NOTHING_ASKED)
            found |= {*group.members} if sketch.panels is not None else set()
    return found


@dataclass(frozen=True, slots=True)
class _Queued:
    """A kernel to be nested: a sketch, or statements that stand alone."""

    sketch: Sketch | LibraryKernel | PanelKernel
    name: str
    scheme: Scheme = Scheme.AUTO  # ISL: by the generic strategy, if it finds a parallel loop
    problem: Problem | None = None  # of a kernel that a template made

    def weighed(self, kernel: Kernel) -> Weighed:
        """Return what *kernel* was made with, and what else there was."""
        if (
            self.problem is None
            or isinstance(self.sketch, LibraryKernel)
            or kernel.template != self.sketch.template
            or kernel.template == COPIES
        ):
            return Weighed(kernel.name, {"template": kernel.template})
        others = partial(candidates_of, self.problem, self.sketch.config)
        return Weighed(kernel.name, self.sketch.config, others)


def _rewrite(
    scop: Scop,
    groups: list[Group],
    shapes: Mapping[str, Shape],
    options: Options,
    cpu: Cpu,
    scheme: Scheme,
) -> tuple[Scop, list[_Queued]]:
    """Make the schedule of every group and apply the rewrites, one group after another."""
    queue: list[_Queued] = []
    asked = asked_for(options)
    for group in groups:
        if library_of(scop, group.members):
            kernel = library_kernel(scop, group.members, shapes, f"k{len(queue)}")
            queue.append(_Queued(kernel, "+".join(group.members)))
            continue
        sketch, problem = _sketched(Problem(scop, group, shapes, cpu, options), scheme, asked)
        if sketch.panels is not None:
            assert problem is not None, "of a template"
            scop, built = panel_kernels(problem, sketch, f"k{len(queue)}")
            record("panels", scop, notes=["+".join(group.members)])
            queue += [_Queued(kernel, kernel.name, problem=problem) for kernel in built]
            continue
        done: Rewritten = apply(scop, sketch)
        if done.scop is not scop:
            record("rfactor", done.scop, notes=["+".join(group.members)])
        scop = done.scop
        for names in (done.before, done.sketch.members, done.after):
            if names is done.sketch.members:
                how = _scheme_of(group, shapes, cpu, scheme)
                queue.append(_Queued(done.sketch, "+".join(group.members), how, problem))
            elif names:
                queue.append(_Queued(Sketch(names, (), {}, template="plain"), "+".join(names)))
    return scop, queue


def _scheme_of(group: Group, shapes: Mapping[str, Shape], cpu: Cpu, scheme: Scheme) -> Scheme:
    """Return how the loops of *group* are found: recurrences need isl to run in parallel."""
    if scheme is not Scheme.AUTO or cpu.threads == 1 or len(group.members) > 1:
        return scheme
    return Scheme.ISL if is_recurrence(shapes[group.members[0]]) else scheme


def _sketched(
    problem: Problem, scheme: Scheme, asked: Asked = NOTHING_ASKED
) -> tuple[Sketch, Problem | None]:
    """Return the sketch of *problem*, and the problem if a template made it."""
    scop, group, shapes = problem.scop, problem.group, problem.shapes
    if scheme is Scheme.ISL:
        return bare_sketch(group.members, shapes), None
    if scheme is Scheme.PLAIN:
        return plain_sketch(scop, group, shapes, problem.cpu), None
    return choice_for(problem, asked).schedule(problem), problem


def _nest(scop: Scop, queue: list[_Queued], options: Options, cpu: Cpu) -> Plan:
    """Open the loops of every queued kernel, and place the scratch arrays."""
    dependences = dependences_of(scop)
    shapes = shapes_of(scop, dependences)
    alignment = Alignment(dependences, affinities_of(scop))
    kernels = []
    for position, queued in enumerate(queue):
        sketch, prefix = queued.sketch, f"k{position}"
        if isinstance(sketch, LibraryKernel | PanelKernel):
            kernels.append(sketch.kernel(queued.name))
            continue
        if queued.scheme is Scheme.ISL:
            tile = options.tile
            if not tile and options.scheduler == "auto":
                tile = wavefront_tile(shapes[sketch.members[0]])
            loops = IslLoops(scop, sketch.members, dependences, shapes, cpu, tile, prefix)
            tree = loops.tree()
            if options.scheduler == "isl" or has_parallel_loop(tree):
                why = ("the loops that isl's scheduler found",)
                kernels.append(Kernel(queued.name, tree, why, template="isl"))
                continue
        nester = Nester(alignment, shapes, sketch.lanes, sketch.unrolled, prefix)
        remaining = {
            name: sketch.remaining[name] if name in sketch.remaining else nester.whole(name)
            for name in sketch.members
        }
        tree = nester.nest(sketch.members, remaining)
        tree = with_whole_tiles(scop, tree)
        for loop in reversed(sketch.outer):
            tree = nester.loop(loop.pieces, loop.kind, tree, loop.limit)
        kernels.append(Kernel(queued.name, tree, sketch.why, template=sketch.template))
    record("nesting", scop, kernels)
    plan_trees = [kernel.tree for kernel in kernels]
    weighed = tuple(q.weighed(kernel) for q, kernel in zip(queue, kernels, strict=True))
    require_followed(asked_for(options), weighed)
    built = (queued.sketch for queued in queue if isinstance(queued.sketch, PanelKernel))
    blocked = {array for kernel in built for array in kernel.blocked}
    placements = in_whole_vectors(place(scop, plan_trees, blocked), scop, cpu.vector_bytes)
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
