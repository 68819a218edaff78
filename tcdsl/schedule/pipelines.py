"""Pipelines: a producer's warp that fills stages of shared memory, and the warps that read them.

    for q                              producer                       the others
      tile[q] = ...          --->        acquire(q)                     await(q)
      ... += tile[q] * ...               copies of q on their way       products of q
                                                                        release(q - 1)

Roles are filters of one tree: each runs the loops of its own statements, and S buffers in turn hold
what one is ahead of the other.  With element q at q % S two dependences cross roles:

    copy[q] -> product[q]          the flow: await(q) stands before the product
    product[q] -> copy[q + S]      the storage of stage q % S: acquire(q + S) waits for release(q)

Products go on after they were issued; those of q are done when those of q + 1 have been issued and
all but these are waited for, so that q - 1 is released after q: the producer is S - 1 ahead.
Those that threads wait for in the step are released in it: float32 in parts, and products of
operands in registers.

Events are derived here and checked by :func:`why_not_pipelined`: nothing else crosses roles, both
meet the same iterations from 0 on without gaps (a stage's uses are told apart by their parity), and
every pair of instances with one place is at least S iterations apart.

Where a block has several tiles, one after another, stages run on: q counts the steps of all tiles,
and the producer is in the next one's while what the last products gave is stored.  Where tiles have
other numbers of steps in a block, the loop over these has q itself (``Loop.runs_on``).

Where blocks of several kernels share a launch (packing.py), each of these parts has a pipeline::

    blocks 0 .. 130     stages of part 0      blocks 131 .. 261     stages of part 1

No block runs two parts, so that their stages have one place in shared memory, and so have the
barriers of those with as many stages; of others they are one behind the other (``Event.first``),
for all of them are begun by all blocks.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import islpy as isl

from tcdsl.costmodel.chip import WARP
from tcdsl.poly.isl_utils import along, constant_bounds, val
from tcdsl.poly.loop_tree import (
    Leaf,
    Loop,
    Node,
    statements_of,
    time_of,
    values_of,
)
from tcdsl.poly.loop_tree import Sequence as Children
from tcdsl.poly.scop import PRODUCER, Event, EventKind, Scop, Statement
from tcdsl.records import dataclass
from tcdsl.schedule.arrivals import without_gaps
from tcdsl.schedule.events import event_statement, with_event_coordinates
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.multicast import why_not_in_clusters
from tcdsl.schedule.placement import Placement, Placements

Pair = tuple[str, str, isl.Map]  # source, sink, { source -> sink }


@dataclass(frozen=True, eq=False)
class Pipeline:
    """Stages in turn, the loops that take them, and who fills and reads them."""

    stages: int
    size_bytes: int  # of a stage
    path: tuple[Loop, ...]  # down to the loop over steps
    n_inner: int  # of these, the last ones: those that stages run on over
    copies: tuple[str, ...]
    readers: tuple[str, ...]
    going_on: int  # how many of these go on after they were issued
    first: int = 0  # of its barriers, two of each stage

    @property
    def lag(self) -> int:
        """The iterations after which what was read is known to have been read."""
        return min(self.going_on, 1)

    @property
    def inner(self) -> tuple[Loop, ...]:
        """The loops that stages run on over."""
        return self.path[-self.n_inner :]

    @property
    def extents(self) -> tuple[int, ...]:
        """The iterations of the loops that stages run on over, but of the outermost."""
        inner = () if self.runs_on else self.inner[1:]
        return tuple(loop.extent or 0 for loop in inner)

    @property
    def runs_on(self) -> bool:
        """Whether the loop over steps has numbers that run on over the loops around it."""
        return self.path[-1].runs_on


def _is_unfinished(mapped: Mapped, name: str) -> bool:
    """Return whether *name* goes on after it was issued: products of four warps.

    Promoted ones are added to their sums by the threads, which wait for them; and so they do before
    they change an operand in registers.
    """
    statement = mapped.scop.by_name[name]
    is_waited_for = statement.is_promoted or bool(statement.register_operand)
    return not is_waited_for and mapped.together(name) > WARP


def pipelines_of(mapped: Mapped, placements: Placements) -> tuple[Pipeline, ...]:
    """Return the pipeline of each part of the launch of *mapped*, none where no warps have roles.

    Those with as many stages have the same barriers.
    """
    if not mapped.has_roles:
        return ()
    found = [_pipeline_of(part, placements) for part in mapped.parts]
    first = begins([pipeline.stages for pipeline in found])
    return tuple(replace(pipeline, first=first[pipeline.stages]) for pipeline in found)


def begins(stages: Collection[int]) -> Mapping[int, int]:
    """Return { how many stages there are -> the first of the barriers for so many }."""
    found: dict[int, int] = {}
    for count in stages:
        found.setdefault(count, 2 * sum(found))
    return found


def _pipeline_of(mapped: Mapped, placements: Placements) -> Pipeline:
    copies = tuple(name for name in mapped.paths if mapped.scop.by_name[name].role == PRODUCER)
    copies = tuple(name for name in copies if mapped.scop.by_name[name].event is None)
    tiles = {mapped.scop.by_name[name].write.array for name in copies}
    readers = tuple(
        name for name in mapped.paths if {a.array for a in mapped.scop.by_name[name].reads} & tiles
    )
    rings = [placements[tile].ring for tile in sorted(tiles) if tile in placements]
    buffers = {(ring.buffers, ring.loops) for ring in rings if ring is not None}
    assert len(rings) == len(tiles) and len(buffers) == 1, "stages in turn"
    ((stages, inner),) = buffers
    path = mapped.paths[copies[0]]
    depth = next(n for n, loop in enumerate(path) if loop.name == inner[-1])
    sizes = (_stage_bytes(mapped.scop, placements[tile]) for tile in tiles)
    going_on = sum(_is_unfinished(mapped, name) for name in readers)
    return Pipeline(stages, sum(sizes), path[: depth + 1], len(inner), copies, readers, going_on)


def _stage_bytes(scop: Scop, placement: Placement) -> int:
    assert placement.ring is not None
    element = scop.arrays[placement.array].dtype.size_bytes
    return placement.elements() // placement.ring.buffers * element


# --- deriving events ---------------------------------------------------------------------------


def with_events(
    mapped: Mapped, pipeline: Pipeline, number: str
) -> tuple[Node, Sequence[Statement]]:
    """Return the tree of *mapped* with the events of *pipeline*, and these.

    :arg number: what the names of the events end with.
    """
    path = pipeline.path
    acquire, await_, release, end = events = _events(mapped.scop, pipeline, number)
    first = {
        _first(path[-1].body, pipeline.copies): acquire,
        _first(path[-1].body, pipeline.readers): await_,
    }
    last = _last(path[-1].body, pipeline.readers)

    def inside(node: Node) -> Node:
        children = node.children if isinstance(node, Children) else (node,)
        found: list[Node] = []
        for position, child in enumerate(children):
            found += [Leaf(first[position].name)] if position in first else []
            found.append(child)
            found += [Leaf(release.name)] if position == last else []
        return Children(tuple(found))

    def around(node: Node) -> Node:
        match node:
            case Loop() if node.name == path[-1].name:
                steps = with_event_coordinates(node, inside(node.body), (acquire, await_, release))
                return Children((steps, Leaf(end.name)))
            case Loop() if node.name in {loop.name for loop in path}:
                return with_event_coordinates(node, around(node.body), events)
            case Children(children=children):
                flat: list[Node] = []
                for child in map(around, children):
                    flat += child.children if isinstance(child, Children) else [child]
                return Children(tuple(flat))
            case _:
                return node

    return around(mapped.tree), events


def _events(
    scop: Scop, pipeline: Pipeline, number: str
) -> tuple[Statement, Statement, Statement, Statement]:
    """Return what acquires a stage, awaits it and releases it, and what ends the pipeline."""
    path = pipeline.path
    of_all = Event(EventKind.AWAIT, pipeline.stages, extents=pipeline.extents, first=pipeline.first)
    acquire = replace(of_all, kind=EventKind.ACQUIRE, size_bytes=pipeline.size_bytes)
    lag, left = pipeline.lag, pipeline.going_on
    release = replace(of_all, kind=EventKind.RELEASE, lag=lag, left=left)

    def statement(
        event: Event, names: Sequence[str], around: Sequence[Loop], role: str = ""
    ) -> Statement:
        return event_statement(scop, f"{event.kind}{number}", names, around, event, role)

    return (
        statement(acquire, pipeline.copies, path, PRODUCER),
        statement(of_all, pipeline.readers, path),
        statement(release, pipeline.readers, path),
        statement(Event(EventKind.END), pipeline.readers, path[:-1]),
    )


def _positions(node: Node, names: Sequence[str]) -> list[int]:
    children = node.children if isinstance(node, Children) else (node,)
    return [n for n, child in enumerate(children) if set(statements_of(child)) & set(names)]


def _first(node: Node, names: Sequence[str]) -> int:
    return min(_positions(node, names))


def _last(node: Node, names: Sequence[str]) -> int:
    return max(_positions(node, names))


# --- checking them -------------------------------------------------------------------------------


def why_not_pipelined(
    mapped: Mapped,
    pipeline: Pipeline,
    placements: Placements,
    pairs: Sequence[Pair],
    in_turn: Sequence[Pair],
) -> str | None:
    """Return which pair of instances on different warps no event orders, or None.

    :arg mapped: a part of a launch, and its *pipeline*.
    :arg pairs: dependences between threads.
    :arg in_turn: pairs that have one place of a stage, one after the other.
    """
    if reason := _why_not_events(mapped, pipeline):
        return reason
    for source, sink, relation in pairs:
        if reason := _why_not_ordered(mapped, pipeline, source, sink, relation):
            return reason
    for source, sink, relation in in_turn:
        apart = _distances(mapped, pipeline, source, sink, relation)
        if apart is not None and apart[0] < pipeline.stages:
            return f"{sink} fills a stage that {source} has still to use"
    return _why_not_counted(mapped, pipeline, placements)


def _why_not_events(mapped: Mapped, pipeline: Pipeline) -> str | None:
    """Return which event is missing, at another place or of other stages, or None."""
    body = pipeline.path[-1].body
    children = body.children if isinstance(body, Children) else (body,)
    order = [next(statements_of(child)) for child in children]
    events = {}
    for position, name in enumerate(order):
        event = mapped.scop.by_name[name].event
        if event is not None:
            events[event.kind] = position, event, mapped.scop.by_name[name]
    wanted = {EventKind.ACQUIRE, EventKind.AWAIT, EventKind.RELEASE}
    if missing := wanted - events.keys():
        return f"the loop over stages has no {sorted(missing)[0]}"
    copies, readers = (_positions(body, names) for names in (pipeline.copies, pipeline.readers))
    acquire, await_, release = (events[kind] for kind in sorted(wanted))
    if acquire[0] > min(copies):
        return f"{pipeline.copies[0]} fills a stage before it is free"
    if await_[0] > min(readers):
        return f"{pipeline.readers[0]} reads a stage before it is filled"
    at_release = release[1].lag, release[1].left
    if release[0] < max(readers) or at_release != (pipeline.lag, pipeline.going_on):
        return f"{pipeline.readers[0]} still reads a stage that is released"
    if acquire[1].size_bytes != pipeline.size_bytes:
        return f"{acquire[1].size_bytes} bytes are expected, {pipeline.size_bytes} come"
    if any(event.stages != pipeline.stages for _, event, _ in events.values()):
        return "events and buffers have different stages"
    if any(event.first != pipeline.first for _, event, _ in events.values()):
        return "events are those of another part of the launch"
    domains = [one[2].domain.reset_tuple_id() for one in (acquire, await_, release)]
    if any(not domain.is_equal(domains[0]) for domain in domains):
        return "the roles do not meet the same stages"
    if any(event.extents != pipeline.extents for _, event, _ in events.values()):
        return "stages are not counted as they run on"
    count = _why_not_numbered if pipeline.runs_on else _why_not_running_on
    return count(domains[0], pipeline) or why_not_in_clusters(mapped, pipeline.path, domains[0])


def _why_not_numbered(domain: isl.Set, pipeline: Pipeline) -> str | None:
    """Return why the steps of *domain*, of the iterations, are not in their numbers' order."""
    first, kind = len(pipeline.path) - pipeline.n_inner, isl.dim_type.set
    last = domain.dim(kind) - 1
    domain = domain.reset_tuple_id()
    if reason := _why_not_from_zero(domain.project_out(kind, first, last - first)):
        return reason
    # { [block, number] -> [tile] }
    tiles = isl.Map.from_range(domain).move_dims(isl.dim_type.in_, 0, isl.dim_type.out, 0, first)
    number = tiles.dim(isl.dim_type.out) - 1
    tiles = tiles.move_dims(isl.dim_type.in_, first, isl.dim_type.out, number, 1)
    space = tiles.get_space().domain()
    later = isl.Map.lex_lt(space)
    for dim in range(first):
        later = later.equate(isl.dim_type.in_, dim, isl.dim_type.out, dim)
    order = tiles.reverse().apply_range(later).apply_range(tiles)
    is_in_order = order.is_subset(isl.Map.lex_le(tiles.get_space().range()))
    return None if tiles.is_single_valued() and is_in_order else "stages are not in their order"


def _why_not_running_on(domain: isl.Set, pipeline: Pipeline) -> str | None:
    """Return why *domain*, of the iterations, leaves out stages between two tiles, or None."""
    last, steps = domain.dim(isl.dim_type.set) - 1, domain
    for loop in reversed(pipeline.inner[1:]):
        ends = domain.fix_val(isl.dim_type.set, last, val((loop.extent or 0) - 1))
        around = domain.project_out(isl.dim_type.set, last, 1)
        if not around.is_subset(ends.project_out(isl.dim_type.set, last, 1)):
            return "tiles have fewer steps than are counted"
        if reason := _why_not_from_zero(around):
            return reason
        domain, last = around, last - 1
    return _why_not_from_zero(steps)


def _why_not_from_zero(domain: isl.Set) -> str | None:
    """Return why the last index of *domain* does not run from 0 on, or None."""
    last = domain.dim(isl.dim_type.set) - 1
    least = domain.lexmin()
    is_from_zero = least.is_subset(least.fix_val(isl.dim_type.set, last, val(0)))
    starts = domain.fix_val(isl.dim_type.set, last, val(0)).project_out(isl.dim_type.set, last, 1)
    every = domain.project_out(isl.dim_type.set, last, 1)
    if not is_from_zero or not every.is_subset(starts):
        return "stages are not counted from 0"
    return None if without_gaps(domain).is_subset(domain) else "stages are left out"


def _why_not_ordered(
    mapped: Mapped, pipeline: Pipeline, source: str, sink: str, relation: isl.Map
) -> str | None:
    """Return why an event does not order *relation*, or None."""
    roles = [mapped.scop.by_name[name].role for name in (source, sink)]
    if source in pipeline.copies and sink in pipeline.readers:
        apart = _distances(mapped, pipeline, source, sink, relation)
        is_same = apart is None or apart == (0, 0)
        return None if is_same else f"{sink} reads another stage than {source} fills"
    if roles == ["", ""] and source in pipeline.readers:
        return _why_not_ended(mapped, pipeline, sink)
    if roles[0] == roles[1] == PRODUCER or (source in pipeline.readers and roles[1] == PRODUCER):
        return None  # they share a stage: in_turn
    return f"no barrier is between {source} and {sink}"


def _why_not_ended(mapped: Mapped, pipeline: Pipeline, sink: str) -> str | None:
    """Return why *sink* may find products that go on, or None: it comes after their end."""
    order = list(statements_of(mapped.tree))
    ends = [
        n for n, name in enumerate(order)
        if (event := mapped.scop.by_name[name].event) and event.kind is EventKind.END
    ]  # fmt: skip
    inside = set(statements_of(pipeline.path[-1].body))
    last = max(order.index(name) for name in pipeline.readers)
    is_after = sink not in inside and any(last < end < order.index(sink) for end in ends)
    return None if is_after else f"{sink} reads sums of products that go on"


def _why_not_counted(mapped: Mapped, pipeline: Pipeline, placements: Placements) -> str | None:
    """Return whose stage is not that of the iteration, or None."""
    for name in (*pipeline.copies, *pipeline.readers):
        statement = mapped.scop.by_name[name]
        for access in (*statement.writes, *statement.reads):
            placement = placements.get(access.array)
            if placement is None or placement.ring is None or placement.ring.buffers == 1:
                continue
            element = along(access.relation, placement.ring.dim)
            time = isl.Map.from_pw_aff(isl.PwAff.from_aff(time_of(pipeline.inner, statement)))
            apart = constant_bounds(element.reverse().apply_range(time).deltas(), 0)
            if apart not in (None, (0, 0)):
                return f"{name} has another stage than its iteration's"
    return None


def _distances(
    mapped: Mapped, pipeline: Pipeline, source: str, sink: str, relation: isl.Map
) -> tuple[int, int] | None:
    """Return the least and most iterations from *source* to *sink* in one block, None if no pair.

    (-1, -1) where the loops around are not the same.
    """
    if relation.is_empty():
        return None
    times = relation.apply_domain(_uses(mapped, pipeline, source))
    deltas = times.apply_range(_uses(mapped, pipeline, sink)).deltas()
    n_outer = len(pipeline.path) - pipeline.n_inner
    *around, own = [constant_bounds(deltas, dim) for dim in range(n_outer + 1)]
    if own is None or any(bounds != (0, 0) for bounds in around):
        return -1, -1
    return own


def _uses(mapped: Mapped, pipeline: Pipeline, name: str) -> isl.Map:
    """Return { instance of *name* -> [the block's coordinates, q] }."""
    around = values_of(mapped.scop, name, pipeline.path[: -pipeline.n_inner])
    q = time_of(pipeline.inner, mapped.scop.by_name[name])
    return around.flat_range_product(isl.Map.from_pw_aff(isl.PwAff.from_aff(q)))


def roles_of(scop: Scop, tree: Node) -> Mapping[str, tuple[str, ...]]:
    """Return { role -> the statements of *tree* that it runs }, the producer's first."""
    found: dict[str, list[str]] = {PRODUCER: [], "": []}
    for name in statements_of(tree):
        found[scop.by_name[name].role].append(name)
    return {role: tuple(names) for role, names in found.items()}


def only(node: Node, names: Collection[str]) -> Node | None:
    """Return *node* with the statements *names* alone; None if there are none."""
    match node:
        case Leaf(statement=name):
            return node if name in names else None
        case Loop(body=body):
            kept = only(body, names)
            return None if kept is None else replace(node, body=kept)
        case Children(children=children):
            all_kept = [kept for child in children if (kept := only(child, names)) is not None]
            return Children(tuple(all_kept)) if all_kept else None
