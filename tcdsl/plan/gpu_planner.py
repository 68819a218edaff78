"""From a scop to its plan on a GPU: recompute, group, rewrite, nest, finish.

1. exponentials that are shifted by their maximum                rewrites/scop/shifted_exponentials
   temporaries that are cheap are computed where they are read   rewrites/scop/recomputation
2. statements into groups, each a kernel                         strategies/gpu_grouping
3. and again, where the groups show what else is worth while     plan/regrouping
   and with rows that a block has as a whole              rewrites/scop/row_terms, alignment_shift
4. a schedule a group, and its rewrites                            strategies/gpu_rewrites
5. the loops of each kernel                                      schedule/nesting, stitching
6. where the scratch arrays live                                 schedule/promotion
7. the barriers                                                  schedule/synchronisation
8. which kernels go backwards over what they share

What CPUs' plans have in common with these is in ``plan/skeleton``.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.alignment_shift import why_not_shifted
from tcdsl.costmodel.chip import VECTOR_BYTES, Chip
from tcdsl.costmodel.traffic import common_bytes
from tcdsl.options import Options
from tcdsl.plan.carried import carried, in_groups_reached
from tcdsl.plan.common_blocks import choices_in_common
from tcdsl.plan.launches import Known, Part, launched
from tcdsl.plan.library_rewrite import with_asked_calls
from tcdsl.plan.reached import Reached
from tcdsl.plan.regrouping import regroup, without_stored, without_temporary
from tcdsl.plan.search import searched, with_rewrites
from tcdsl.plan.skeleton import Loops, planned, statement_by_statement, weighed_of
from tcdsl.plan.state import Evaluator
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.loop_tree import LoopKind, Node, with_kind
from tcdsl.poly.scop import Scop
from tcdsl.rewrites.scop.alignment_shift import shifted
from tcdsl.rewrites.scop.first_indices import from_zero
from tcdsl.rewrites.scop.invariants import with_invariants
from tcdsl.rewrites.scop.long_rows import with_long_rows
from tcdsl.rewrites.scop.recomputation import recomputed, without_conversions
from tcdsl.rewrites.scop.row_terms import with_row_terms
from tcdsl.rewrites.scop.shifted_exponentials import (
    with_addends,
    with_shifted_exponentials,
)
from tcdsl.schedule.placement import Requests
from tcdsl.schedule.plan import Kernel, Plan
from tcdsl.schedule.promotion import promote
from tcdsl.schedule.stitching import stitch
from tcdsl.schedule.synchronisation import synchronise
from tcdsl.schedule.trace import record, recorded, repeat
from tcdsl.strategies.asked import asked_for
from tcdsl.strategies.gpu_grouping import Grouped, group_for_gpu, tiled_members
from tcdsl.strategies.gpu_rewrites import rewrite_groups
from tcdsl.strategies.gpu_shapes import gpu_shapes_of
from tcdsl.strategies.gpu_stencils import gpu_tilings
from tcdsl.strategies.operand_orders import with_factors_along_results
from tcdsl.strategies.problem import Problem, Scheme, analyses_shared
from tcdsl.strategies.queued import Queued, requests_of
from tcdsl.strategies.template import Choice

SMALL = gpu_thresholds.UNTOUCHED_CACHE
BACKWARDS = "reversed block order: what the kernel before touched last is still in the cache"


def plan_for_gpu(
    scop: Scop,
    options: Options,
    gpu: Chip,
    scheme: Scheme | None = None,
    reached: Reached | None = None,
) -> Plan:
    """Return the plan of *scop* on *gpu*.

    :arg scheme: None for that of *options*.
    :arg reached: the groups that a search had found; None: search.
    """
    scop = with_asked_calls(_without_idle(scop), options)
    scheme = scheme or Scheme(options.scheduler)

    def plan(scop: Scop, options: Options) -> Plan:
        return _planned(scop, options, gpu, scheme, reached)

    tilings = partial(gpu_tilings, gpu=gpu) if reached is None else None
    with analyses_shared():
        return planned(scop, options, scheme, plan, tilings)


def _planned(
    scop: Scop, options: Options, gpu: Chip, scheme: Scheme, reached: Reached | None
) -> Plan:
    if scheme is Scheme.SERIAL:
        scop, queue = statement_by_statement(scop, options, gpu, scheme, gpu_shapes_of)
        # What is asked for is of the usual kernels, for which this plan stands in.
        return _nest(scop, queue, replace(options, choices="", fuse="none"), gpu)
    if scheme in (Scheme.PLAIN, Scheme.TEXTUAL):
        options = replace(options, fuse="none")
    if scheme is Scheme.AUTO:
        scop = _with_shifted_exponentials(_from_zero(scop))
        scop = scop if options.deterministic else _with_long_rows(scop)
        scop = scop if options.fuse == "none" else _without_conversions(scop)
        scop = _with_factors_along_results(scop) if options.vectorise else scop
        if reached is not None:
            grouped = in_groups_reached(reached, scop, options, gpu)
        else:
            grouped = with_rewrites(scop, lambda s: _kernels_of(s, options, gpu), options, gpu)
    else:
        grouped = regroup(_grouped(scop, options, gpu), options, gpu, scheme)
    record("fusion", grouped.scop, notes=["+".join(group.members) for group in grouped.groups])
    is_searched = scheme is Scheme.AUTO and options.fuse != "none" and reached is None
    common = _in_common(grouped, options, gpu) if is_searched else {}
    scop, queue = rewrite_groups(grouped, options, gpu, scheme, common)
    plan = _nest(scop, queue, options, gpu)
    return replace(plan, apart=grouped.separation.pairs, tried=grouped.tried)


def _in_common(grouped: Grouped, options: Options, gpu: Chip) -> Mapping[str, Choice]:
    """Return the choices of kernels that are to share a launch, if their blocks would differ."""
    known = Evaluator(grouped, options, gpu)
    by_name = {group.members: group for group in grouped.groups if not known.is_fixed(group)}

    def are_independent(one: Problem, other: Problem) -> bool:
        groups = (by_name[problem.group.members] for problem in (one, other))
        return known.is_independent(*groups)

    return choices_in_common([known.problem(group) for group in by_name.values()], are_independent)


def _kernels_of(scop: Scop, options: Options, gpu: Chip) -> Grouped:
    """Return *scop* in groups, and with what these show to be worth while."""
    scheme = Scheme.AUTO
    grouped = regroup(_grouped(scop, options, gpu), options, gpu, scheme)
    if not grouped.chunks:  # in chunks no block has all of a row
        done = _with_rows_apart(scop, options, tiled_members(grouped, options, gpu))
        if done is not scop:
            grouped = regroup(_grouped(done, options, gpu), options, gpu, scheme)
        grouped = _without_invariants(grouped, options, gpu, scheme)
    return grouped


def _from_zero(scop: Scop) -> Scop:
    done = from_zero(scop)
    if done is not scop:
        record("indices from 0 on", done)
    return done


def _with_shifted_exponentials(scop: Scop) -> Scop:
    done = with_shifted_exponentials(scop)
    if done is not scop:
        pairs = zip(scop.statements, done.statements, strict=True)
        record("shifted exponentials", done, notes=[n.name for o, n in pairs if n is not o])
    return done


def _without_conversions(scop: Scop) -> Scop:
    done = without_conversions(scop)
    if done is not scop:
        record("conversions where they are read", done)
    return done


def _with_factors_along_results(scop: Scop) -> Scop:
    done = with_factors_along_results(scop)
    if done is not scop:
        record("small factors along results", done)
    return done


def _with_long_rows(scop: Scop) -> Scop:
    done = with_long_rows(scop)
    if done is not scop:
        record("long rows of data", done)
    return done


def _with_rows_apart(scop: Scop, options: Options, tiled: Collection[str]) -> Scop:
    """Return *scop* with rows in whole vectors, and with what else a block can do with its row.

    :arg tiled: statements whose kernels have tiles and no rows.
    """
    done = with_row_terms(scop) if options.fuse != "none" else scop
    if done is not scop:
        record("epilogues", done)
        scop = done
    if not options.vectorise:
        return scop
    done = shifted(scop, why_not_shifted, VECTOR_BYTES, tiled)
    if done is not scop:
        record("alignment shift", done)
    return done


def _without_invariants(grouped: Grouped, options: Options, gpu: Chip, scheme: Scheme) -> Grouped:
    """Return *grouped* with what is the same for all of a row computed once, if in its kernel."""
    done = with_invariants(grouped.scop, [group.members for group in grouped.groups])
    if done is grouped.scop:
        return grouped
    with recorded() as steps:  # of a plan that may be given up
        begun = carried(grouped, _recomputed(done, options), options, gpu)
        found = regroup(_grouped(done, options, gpu, begun), options, gpu, scheme)
    if len(found.groups) > len(grouped.groups):
        return grouped
    record("loop-invariant code motion", done)
    repeat(steps)
    return found


def _grouped(scop: Scop, options: Options, gpu: Chip, begun: Grouped | None = None) -> Grouped:
    """Partition the statements of *scop*, without temporaries that are cheaper to compute.

    :arg begun: groups to begin with; None: those that are found without any.
    """
    is_new = begun is None
    if begun is None:
        begun = group_for_gpu(_recomputed(scop, options), options, gpu)
    while True:
        found = searched(begun, options, gpu)
        fewer = _with_fewer(found, options, gpu)
        if fewer is None:
            return found
        scop, again = fewer
        begun = group_for_gpu(scop, options, gpu) if is_new or again is None else again


def _with_fewer(
    grouped: Grouped, options: Options, gpu: Chip
) -> tuple[Scop, Grouped | None] | None:
    """Return the scop of *grouped* without what its kernels had better compute; None if it is so.

    One temporary after another, in the same groups: what each frees shows whether the next should
    go as well.  That may leave room for larger groups, which are looked for at the end.
    """
    found: Scop | None = None
    again: Grouped | None = grouped
    while again is not None:
        fewer = without_temporary(again, options, gpu)
        if fewer is None and options.fuse != "none":
            fewer = without_stored(again)
        if fewer is None:
            break
        fewer = with_addends(fewer)  # a temporary's value may have become a sum's
        record("rematerialisation", fewer)
        found = _recomputed(fewer, options)
        again = carried(again, found, options, gpu)
    return None if found is None else (found, again)


def _recomputed(scop: Scop, options: Options) -> Scop:
    done = recomputed(scop) if options.fuse != "none" else scop
    if done is not scop:
        record("rematerialisation", done)
    return done


def _without_idle(scop: Scop) -> Scop:
    """Return *scop* without the statements that never run: sums of nothing, and what is empty.

    An empty domain has no extents to choose a mapping by, and a kernel for it would be launched.
    """
    busy = tuple(s for s in scop.statements if not s.domain.is_empty())
    return scop.with_statements(busy)


def _nest(scop: Scop, queue: Sequence[Queued], options: Options, gpu: Chip) -> Plan:
    """Open the loops of every kernel, and finish them."""
    loops = Loops(scop, gpu_shapes_of, LoopKind.SERIAL)
    kernels = loops.kernels(queue)
    if not options.vectorise:  # a vector's lanes are short loops, of one element each
        as_loops = partial(with_kind, old=LoopKind.LANES, new=LoopKind.UNROLL)
        kernels = [replace(k, tree=as_loops(k.tree)) for k in kernels]
    parts = _parts(kernels, queue)
    if len(parts) < len(kernels):
        record("last-block reductions in the same launch", scop, [part.kernel for part in parts])
    asked = asked_for(options)
    shared = launched(
        parts, Known(scop, loops.dependences, gpu), asked, is_fixed=options.fuse == "none"
    )
    if len(shared.kernels) < len(parts):
        record("launches", shared.scop, shared.kernels)
    scop = shared.scop
    plan = _finished(scop, shared.kernels, gpu, requests_of(queue))
    weighed = weighed_of(queue, plan.kernels, options, shared.weighed)
    return replace(plan, weighed=weighed, launches=shared.weighed, precision=options.precision)


def _parts(kernels: Sequence[Kernel], queue: Sequence[Queued]) -> list[Part]:
    """Return *kernels*, each that is the finish of the one before it as a part of that one."""
    found: list[Part] = []
    for position, (kernel, queued) in enumerate(zip(kernels, queue, strict=True)):
        before = found[-1].kernel if queued.is_finish else kernel
        tree = stitch(before.tree, kernel.tree, f"k{position}.last") if queued.is_finish else None
        if tree is None:
            found.append(Part(kernel.name, kernel, (kernel,), queued.work()))
            continue
        added = (f"{kernel.name}: {', '.join(kernel.why)}",) if kernel.why else ()
        name = f"{before.name}+{kernel.name}"
        template = f"{before.template} + {kernel.template}"
        why = (*before.why, *added)
        both = replace(before, name=name, tree=tree, why=why, template=template)
        found[-1] = replace(found[-1], kernel=both, phases=(*found[-1].phases, kernel))
    return found


def _finished(scop: Scop, kernels: Sequence[Kernel], gpu: Chip, requests: Requests) -> Plan:
    """Place the scratch arrays, put the barriers in, and turn what is to go backwards."""
    trees = [kernel.tree for kernel in kernels]
    placements = promote(scop, trees, gpu, requests)
    scop, trees = synchronise(scop, trees, dependences_of(scop), placements)
    kernels = [replace(k, tree=tree) for k, tree in zip(kernels, trees, strict=True)]
    turned = _turned(scop, kernels, gpu)
    record("synchronisation", scop, turned)
    return Plan(scop, turned, placements, shared_bytes=gpu.shared_bytes_per_block)


def _turned(scop: Scop, kernels: Sequence[Kernel], gpu: Chip) -> tuple[Kernel, ...]:
    """Return *kernels*, backwards where one finds in the cache what the one before touched last.

    Nothing is changed of those that are asked to be so or so.  Kernels that touch little leave the
    cache as it is: the one before them counts.
    """
    found = list(kernels[:1])
    before = 0
    for position, kernel in enumerate(kernels[1:], 1):
        is_last_small = position > 1 and _is_small(scop, found[-1].tree, gpu)
        before = before if is_last_small else position - 1
        is_asked = kernel.code.is_reversed is not None
        may_turn = not (is_asked or found[before].code.is_reversed or kernel.library)
        if may_turn and _is_worth_turning(scop, found[before].tree, kernel.tree, gpu):
            kernel = replace(
                kernel, why=(*kernel.why, BACKWARDS), code=replace(kernel.code, is_reversed=True)
            )
        found.append(kernel)
    return tuple(found)


def _is_small(scop: Scop, tree: Node, gpu: Chip) -> bool:
    return common_bytes(scop, tree, tree) < gpu.l2_bytes * SMALL


def _is_worth_turning(scop: Scop, before: Node, tree: Node, gpu: Chip) -> bool:
    """Return whether the cache holds only a part of what two kernels both touch."""
    return common_bytes(scop, before, tree) > gpu.l2_bytes // 2
