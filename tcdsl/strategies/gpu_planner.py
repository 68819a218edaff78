"""From a scop to its plan on a GPU: group, sketch, rewrite, nest, promote, synchronise.

The steps are those of ``planner.py``; what differs is who decides (``strategies/threads``), where
scratch arrays live (``transforms/promotion``) and the barriers (``transforms/synchronisation``).
What a rewrite leaves for a kernel after this one (the partial sums of blocks) is a group like any
other.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from tcdsl.costmodel.locality import Shape
from tcdsl.costmodel.machine import Cpu, Gpu
from tcdsl.lang.comprehension import Operator, Reduction
from tcdsl.options import Options
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.loop_tree import Node, statements_of
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind, Scop, Statement, Storage
from tcdsl.strategies.clusters import row_dims
from tcdsl.strategies.finish import finished
from tcdsl.strategies.generic import textual_tree, with_own_accumulators
from tcdsl.strategies.gpu_bands import IslKernel
from tcdsl.strategies.gpu_generic import IslKernels, kernels_by_isl, recurrence_by_isl
from tcdsl.strategies.planner import Scheme, shapes_of
from tcdsl.strategies.requested import sketcher_for, written_out
from tcdsl.strategies.residence import keep_rows
from tcdsl.strategies.row_chunks import RowChunks, RowChunkSketcher, in_chunks
from tcdsl.strategies.rows import work_of
from tcdsl.strategies.sketch import Layout, Sketch, apply
from tcdsl.strategies.tiles import TiledKernel, is_tiled, tiled_kernel
from tcdsl.transforms.compensation import explained, with_compensation
from tcdsl.transforms.fusion import Group, affinities_of, group_statements
from tcdsl.transforms.nesting import Alignment, Nester
from tcdsl.transforms.plan import Kernel, Plan
from tcdsl.transforms.promotion import promote
from tcdsl.transforms.recomputation import recomputed, without
from tcdsl.transforms.rfactor import why_not_rfactored
from tcdsl.transforms.stitching import stitch
from tcdsl.transforms.synchronisation import synchronise
from tcdsl.transforms.trace import record
from tcdsl.transforms.write_back import why_not_written_back, write_back

ENOUGH = 0.75  # of the parallelism that a part has alone: fusion saves memory traffic
BACKWARDS = "backwards: what the kernel before touched last is still in the cache"
SMALL_WORK = 1 << 16  # operations for which another launch costs more than idle multiprocessors


@dataclass(frozen=True, slots=True)
class _Queued:
    """A kernel to be nested."""

    kernel: Sketch | TiledKernel | IslKernel
    name: str
    is_finish: bool = False  # by the last blocks of the kernel before it


def plan_for_gpu(
    scop: Scop, options: Options, gpu: Gpu, scheme: Scheme | None = None, is_serial: bool = False
) -> Plan:
    """Return the plan of *scop* on *gpu*.

    :arg scheme: None for that of *options*.
    :arg is_serial: on one thread, the loops as written.
    """
    scop = _without_idle(scop)
    if options.summation == "compensated":
        plain = replace(options, summation="plain")
        return explained(plan_for_gpu(with_compensation(scop), plain, gpu, scheme, is_serial))
    if is_serial:
        return _serial(scop, gpu)
    scheme = scheme or Scheme(options.scheduler)
    if scheme not in (Scheme.PLAIN, Scheme.TEXTUAL) and options.fuse != "none":
        written = scop
        scop = recomputed(scop)
        if scop is not written:
            record("recomputation", scop)
    is_alone = scheme in (Scheme.PLAIN, Scheme.TEXTUAL)
    fused = replace(options, fuse="none") if is_alone else options
    grouped = _grouped(scop, fused, gpu)
    better = _for_clusters(grouped, fused, gpu)
    if better is not None:
        record("recomputation", better)
        return plan_for_gpu(better, options, gpu, scheme)
    chunks: Sequence[RowChunks] = ()
    if scheme is Scheme.AUTO and options.fuse != "none" and not options.tile:
        scop, chunks = in_chunks(grouped.scop, grouped.groups, grouped.shapes, gpu)
    if chunks:
        record("sums of exponentials in chunks", scop)
        grouped = _grouped(scop, fused, gpu, chunks)
    elif fused.fuse != "none":
        grouped = _with_kept_sums(grouped, fused, gpu)
    record("fusion", grouped.scop, notes=["+".join(group.members) for group in grouped.groups])
    scop, queue = _rewrite(grouped, options, gpu, scheme)
    return _nest(scop, queue, options, gpu)


@dataclass(frozen=True, slots=True)
class _Grouped:
    """A scop and its kernels to be; *chunks*: those of them that blocks share row by row."""

    scop: Scop
    shapes: Mapping[str, Shape]
    groups: Sequence[Group]
    chunks: Sequence[RowChunks] = ()

    def chunks_of(self, group: Group) -> RowChunks | None:
        """Return the chunks that the kernel *group* is over, None if it is over none."""
        return next((c for c in self.chunks if set(c.members) & set(group.members)), None)


def _grouped(scop: Scop, options: Options, gpu: Gpu, chunks: Sequence[RowChunks] = ()) -> _Grouped:
    """Partition the statements of *scop* into kernels, what blocks do with *chunks* apart.

    Rows for which there are too few blocks may be shared by clusters, if in the end several members
    use them: groups that were grown in this hope, and in vain, are made again without it.
    """
    dependences = dependences_of(scop)
    shapes = shapes_of(scop, dependences)
    scop = _with_atomics(scop, shapes, options)
    if atomic := [s.name for s in scop.statements if s.is_atomic]:
        record("atomics", scop, notes=atomic)
    shapes = {name: _free(shape, scop.by_name[name]) for name, shape in shapes.items()}
    hopeless: frozenset[str] = frozenset()
    while True:
        policy = _Policy(scop, shapes, options, gpu, chunks, hopeless)
        groups = group_statements(scop, dependences, shapes, policy.why_not)
        hoped = [g for g in groups if any(names <= set(g.members) for names in policy.hoped)]
        in_vain = [g for g in hoped if sketcher_for(options)(scop, g, shapes, gpu).clusters is None]
        if not in_vain:
            return _Grouped(scop, shapes, groups, chunks)
        hopeless |= {name for group in in_vain for name in group.members}


def _without_idle(scop: Scop) -> Scop:
    """Return *scop* without the statements that never run: sums of nothing, and what is empty.

    An empty domain has no extents to choose a mapping by, and a kernel for it would be launched.
    """
    busy = tuple(s for s in scop.statements if not s.domain.is_empty())
    return scop.with_statements(busy)


def _with_atomics(scop: Scop, shapes: Mapping[str, Shape], options: Options) -> Scop:
    """Return *scop* with the updates marked that have no other way to run in parallel.

    Sums of floats depend on the order of atomics: ``deterministic`` forbids them.
    """
    statements = []
    for statement in scop.statements:
        shape = shapes[statement.name]
        reduction = statement.reduction
        is_candidate = (
            statement.kind is Kind.UPDATE
            and reduction is not None
            and why_not_rfactored(statement) is not None
            and not reduction.operator.is_arg
            and all(read.array != statement.write.array for read in statement.reads)
            and Role.ORDERED not in shape.roles
        )
        if is_candidate and reduction is not None:
            statement = replace(statement, is_atomic=_may_be_atomic(reduction, options))
        statements.append(statement)
    return scop.with_statements(tuple(statements))


def _may_be_atomic(reduction: Reduction, options: Options) -> bool:
    """Return whether the order of the updates may be left to chance."""
    is_rounded = reduction.dtype.is_float and reduction.operator in (Operator.ADD, Operator.MUL)
    return not (is_rounded and options.deterministic)


def _added_at_once(scop: Scop, sketch: Sketch, options: Options) -> Sketch:
    """Return *sketch* with the chunks' sums added by atomics, where that is asked for."""
    if options.finish != "atomic":
        return sketch
    found = set()
    for name in sketch.partials:
        reduction = scop.by_name[name].reduction
        if reduction is not None and _may_be_atomic(reduction, options):
            found.add(name)
    return replace(sketch, atomic=frozenset(found))


def _free(shape: Shape, statement: Statement) -> Shape:
    """Return the shape of *statement*, every dimension parallel if its updates are atomic."""
    if not statement.is_atomic:
        return shape
    return replace(shape, statement=statement, roles=(Role.PARALLEL,) * len(shape.roles))


def _serial(scop: Scop, gpu: Gpu) -> Plan:
    """Return the plan in which one thread runs every statement as it was written."""
    scop = with_own_accumulators(scop)
    shapes = shapes_of(scop, dependences_of(scop))
    trees = [textual_tree(s, Cpu(1), f"k{n}") for n, s in enumerate(shapes.values())]
    labels = [(name, ("the loops as written, on one thread",)) for name in shapes]
    return _finished(scop, trees, labels, gpu)


def _rewrite(
    grouped: _Grouped, options: Options, gpu: Gpu, scheme: Scheme
) -> tuple[Scop, list[_Queued]]:
    """Sketch every group and apply its rewrites, one group after another."""
    scop, shapes = grouped.scop, grouped.shapes
    queue: list[_Queued] = []
    pending = [(group, True) for group in grouped.groups]

    def sketched(group: Group, may_chunk: bool) -> Sketch:
        chunks = grouped.chunks_of(group)
        if chunks is not None:
            return RowChunkSketcher(scop, group, shapes, gpu, options, chunks).sketch()
        return sketcher_for(options)(scop, group, shapes, gpu).sketch(may_chunk)

    def queue_before(names: Sequence[str]) -> None:
        for name in names:
            alone = Group((name,), tuple({name: d} for d in range(len(shapes[name].extents))))
            queue.append(_Queued(sketched(alone, False), name))

    while pending:
        group, may_chunk = pending.pop(0)
        by_isl = _by_isl(scop, group, shapes, options, gpu, scheme, f"g{len(queue)}")
        tiled = tiled_kernel(scop, group, shapes, gpu) if by_isl is None else None
        after: tuple[str, ...] = ()
        layout: Layout | None = None
        ran: tuple[str, ...] = ()
        if by_isl is not None:
            scop = by_isl.scop
            record("isl's scheduler", scop, notes=["+".join(group.members)])
            queue_before(by_isl.before)
            queue += [_Queued(k, "+".join(statements_of(k.tree))) for k in by_isl.kernels]
        elif tiled is not None:
            scop, after = tiled.scop, tiled.following
            record("tiles in shared memory", scop, notes=["+".join(group.members)])
            queue.append(_Queued(tiled, "+".join(group.members)))
        else:
            done = apply(scop, _added_at_once(scop, sketched(group, may_chunk), options))
            if done.scop is not scop:
                record("rfactor", done.scop, notes=["+".join(group.members)])
            after = done.after
            queue_before(done.before)
            scop, sketch = keep_rows(done.scop, done.sketch)
            if scop is not done.scop:
                record("rows on the chip", scop, notes=["+".join(group.members)])
            queue.append(_Queued(sketch, "+".join(group.members)))
            layout, ran = sketch.layout, sketch.members
            chunks = grouped.chunks_of(group)
            if chunks is not None:
                after = chunks.wholes
            if layout is not None and layout.indices and not after:
                layout = None  # the sums are whole after all blocks, not after those of a tile
        if after or layout is not None:
            shapes = shapes_of(scop, dependences_of(scop))
        folds = [name for name in after if scop.by_name[name].kind is not Kind.INIT]
        may_finish = scheme not in (Scheme.PLAIN, Scheme.TEXTUAL) and options.fuse != "none"
        if layout is not None and (folds or may_finish):
            later = [g for g, _ in pending if not set(g.members) & set(folds)]
            later = later if may_finish else []
            last = finished(scop, shapes, gpu, layout, folds, ran, later)
            if last is not None:
                group, done = last
                scop = done.scop
                record("last blocks", scop, notes=["+".join(group.members)])
                queue.append(_Queued(done.sketch, "+".join(group.members), is_finish=True))
                pending = [p for p in pending if not set(p[0].members) & set(group.members)]
                continue
        waiting = {name for g, _ in pending for name in g.members}
        folds = [name for name in folds if name not in waiting]
        alone = [Group((name,), tuple({name: d} for d in shapes[name].order)) for name in folds]
        pending = [*((group, False) for group in alone), *pending]
    return scop, queue


def _by_isl(
    scop: Scop,
    group: Group,
    shapes: Mapping[str, Shape],
    options: Options,
    gpu: Gpu,
    scheme: Scheme,
    prefix: str,
) -> IslKernels | None:
    """Return the kernels of *group* by isl where it is asked for, or alone finds parallelism."""
    if scheme is Scheme.ISL:
        return kernels_by_isl(scop, group, shapes, gpu, options.tile, prefix)
    if scheme is Scheme.AUTO:
        return recurrence_by_isl(scop, group, shapes, gpu, prefix)
    return None


def _nest(scop: Scop, queue: Sequence[_Queued], options: Options, gpu: Gpu) -> Plan:
    """Open the loops of every kernel, place the scratch arrays, put the barriers in."""
    dependences = dependences_of(scop)
    shapes = shapes_of(scop, dependences)
    alignment = Alignment(dependences, affinities_of(scop))
    trees: list[Node] = []
    labels: list[tuple[str, tuple[str, ...]]] = []
    apart: list[Kernel] = []
    sketches = [queued.kernel for queued in queue if isinstance(queued.kernel, Sketch)]
    staged = [name for sketch in sketches for name in sketch.staged]
    for position, queued in enumerate(queue):
        nester = Nester(alignment, shapes, {}, prefix=f"k{position}")
        tree = _tree(queued.kernel, nester)
        tree = tree if options.vectorise else written_out(tree)
        name, why = queued.name, queued.kernel.why
        apart.append(Kernel(name, tree, why))
        both = stitch(trees[-1], tree, f"k{position}.last") if queued.is_finish else None
        if both is None:
            trees.append(tree)
            labels.append((name, why))
        else:
            trees[-1] = both
            added = (f"{name}: {', '.join(why)}",) if why else ()
            labels[-1] = f"{labels[-1][0]}+{name}", (*labels[-1][1], *added)
    record("nesting", scop, apart)
    if len(trees) < len(apart):
        stitched = zip(labels, trees, strict=True)
        record("stitching", scop, [Kernel(name, tree, why) for (name, why), tree in stitched])
    return _finished(scop, trees, labels, gpu, staged)


def _tree(kernel: Sketch | TiledKernel | IslKernel, nester: Nester) -> Node:
    """Return the loops of *kernel*."""
    if isinstance(kernel, IslKernel):
        return kernel.tree
    if isinstance(kernel, TiledKernel):
        return kernel.tree(nester)
    tree = nester.nest(kernel.members, kernel.remaining)
    for loop in reversed(kernel.outer):
        tree = nester.loop(loop.pieces, loop.kind, tree, loop.limit)
    return tree


def _finished(
    scop: Scop,
    trees: Sequence[Node],
    labels: Sequence[tuple[str, tuple[str, ...]]],
    gpu: Gpu,
    staged: Sequence[str] = (),
) -> Plan:
    placements = promote(scop, trees, gpu, staged)
    dependences = dependences_of(scop)
    scop, synchronised = synchronise(scop, trees, dependences, placements)
    kernels: tuple[Kernel, ...] = ()
    for (name, why), tree in zip(labels, synchronised, strict=True):
        turns = bool(kernels) and not kernels[-1].is_reversed
        if turns and _is_worth_turning(scop, kernels[-1].tree, tree, gpu):
            kernels = (*kernels, Kernel(name, tree, (*why, BACKWARDS), is_reversed=True))
        else:
            kernels = (*kernels, Kernel(name, tree, why))
    record("synchronisation", scop, kernels)
    return Plan(scop, kernels, placements)


def _is_worth_turning(scop: Scop, before: Node, tree: Node, gpu: Gpu) -> bool:
    """Return whether two kernels touch the same arrays, of which the cache holds a part only."""

    def touched(kernel: Node) -> set[str]:
        statements = [scop.by_name[name] for name in statements_of(kernel)]
        return {access.array for s in statements for access in (*s.writes, *s.reads)}

    common = touched(before) & touched(tree)
    return sum(scop.arrays[name].size_bytes() or 0 for name in common) > gpu.l2_bytes // 2


def _for_clusters(grouped: _Grouped, options: Options, gpu: Gpu) -> Scop | None:
    """Return the scop as clusters do better with it, None if it is so already.

    A temporary beside rows that are staged is computed again from shared memory: fewer registers
    leave room for more blocks.
    """
    scop, shapes = grouped.scop, grouped.shapes
    for group in grouped.groups:
        rows = sketcher_for(options)(scop, group, shapes, gpu).clusters
        if rows is None or rows.keeps_well:
            continue
        for array in rows.resident:
            if (fewer := without(scop, array)) is not None:
                return fewer
    return None


def _with_kept_sums(grouped: _Grouped, options: Options, gpu: Gpu) -> _Grouped:
    """Return *grouped* with what rows read of their own sums in temporaries, stored for others."""
    scop = grouped.scop
    stored: list[tuple[str, str]] = []  # the store, and a writer that must be in its kernel
    for group in grouped.groups:
        for array in sorted({w.array for n in group.members for w in scop.by_name[n].writes}):
            writers = [s for s in scop.statements if any(w.array == array for w in s.writes)]
            inside = {*group.members, *(s.name for s in writers if s.kind is Kind.INIT)}
            if _is_read_by_rows(scop, array, inside) and not why_not_written_back(
                scop, array, inside
            ):
                scop = write_back(scop, array, inside)
                stored.append((f"{array}.store", writers[-1].name))
    if not stored:
        return grouped
    done = _grouped(scop, options, gpu)
    kernels = {name: number for number, g in enumerate(done.groups) for name in g.members}
    is_better = all(kernels[store] == kernels[writer] for store, writer in stored)
    return done if is_better else grouped


def _is_read_by_rows(scop: Scop, array: str, inside: Collection[str]) -> bool:
    """Return whether a value of *array*, which is in memory, is read by many *inside* a kernel."""
    own = scop.arrays[array]
    readers = [s for s in scop.statements if any(r.array == array for r in s.reads)]
    is_public = own.storage is Storage.ARGUMENT or any(s.name not in inside for s in readers)
    rows = [s for s in readers if s.name in inside and len(s.indices) > own.rank]
    return is_public and bool(rows)


class _Policy:
    """Whether a statement joins a group: it must leave the chip its work."""

    def __init__(
        self,
        scop: Scop,
        shapes: Mapping[str, Shape],
        options: Options,
        gpu: Gpu,
        chunks: Sequence[RowChunks] = (),
        hopeless: frozenset[str] = frozenset(),
    ) -> None:
        """Make a policy.

        :arg hopeless: statements whose rows clusters will not share.
        """
        self.scop = scop
        self.shapes = shapes
        self._apart = [set(part) for c in chunks for part in (c.members, c.wholes)]
        self._tiled: dict[str, bool] = {}
        self.options = options
        self.gpu = gpu
        self.hopeless = hopeless
        self.hoped: list[frozenset[str]] = []  # members of groups that clusters must share

    def why_not(self, group: Group, grown: Group) -> str | None:
        """Return why *group* should not grow, or None."""
        members = set(grown.members)
        if self.options.fuse == "none":
            return "fusion is off"
        if any(part & members and members - part for part in self._apart):
            return "blocks share its rows"
        if any(members <= part for part in self._apart):
            return None
        if any(map(self._is_tiled, members)) and not self._has_tiles(grown):
            return "a contraction would lose its tiles"
        reason = self._why_idle(group, grown)
        if reason is None or self.hopeless & members:
            return reason
        if row_dims(grown, self.shapes, self.gpu) is None:
            return reason
        self.hoped.append(frozenset(members))
        return None

    def _why_idle(self, group: Group, grown: Group) -> str | None:
        """Return how much less of the chip would have work, if blocks alone share it, or None."""
        new = grown.members[-1]
        alone = Group((new,), tuple({new: d} for d in range(len(self.shapes[new].extents))))
        after = self._filled(grown)
        for part in (group, alone):
            least = ENOUGH * min(self._filled(part), 1.0)
            if self._work(part) >= SMALL_WORK and after < least:
                return f"only {after:.2g} of the chip would have work, not {least:.2g}"
        return None

    def _is_tiled(self, name: str) -> bool:
        """Return whether *name* alone is a contraction in tiles."""
        if name not in self._tiled:
            axes = tuple({name: d} for d in self.shapes[name].order)
            self._tiled[name] = self._has_tiles(Group((name,), axes))
        return self._tiled[name]

    def _has_tiles(self, group: Group) -> bool:
        return is_tiled(self.scop, group, self.shapes, self.gpu)

    def _work(self, group: Group) -> int:
        return sum(work_of(self.shapes[name]) for name in group.members)

    def _filled(self, group: Group) -> float:
        """Return the part of the chip that has work when it runs over the shared axes.

        Blocks run over axes that are parallel for all members, and over chunks of one that is
        reduced for some, if threads can share that too.
        """
        lead = max(group.members, key=lambda name: self.shapes[name].instances)
        shape = self.shapes[lead]
        inner = next((d for d in reversed(shape.order) if shape.extents[d] > 1), -1)
        is_flat = any(axis[lead] == inner and self._is_shared(axis) for axis in group.axes)
        parallel = [axis for axis in group.axes if group.has_parallel(axis, self.shapes)]
        chunks = [
            shape.extents[axis[lead]]
            for axis in group.axes
            if axis not in parallel and is_flat and self._is_shared(axis)
        ]
        extent = prod(shape.extents[axis[lead]] for axis in parallel) * max(chunks, default=1)
        full = self.gpu.threads // 4 if is_flat else self.gpu.multiprocessors
        return extent / full

    def _is_shared(self, axis: Mapping[str, int]) -> bool:
        """Return whether blocks may share *axis*: partial sums are folded afterwards."""
        for name, dim in axis.items():
            shape = self.shapes[name]
            is_reduced = shape.roles[dim] is Role.REDUCED and not why_not_rfactored(shape.statement)
            if shape.roles[dim] is not Role.PARALLEL and not is_reduced:
                return False
        return True
