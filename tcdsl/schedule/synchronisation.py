"""Barriers: where the threads of a block wait for one another, as few as suffice.

A dependence *crosses* if its source and its sink may run on different threads, and what they touch
is not private.  Between the two there must be a barrier:

    { s[x] -> t[y] : same element, one writes }  -  { s[x] -> t[y] : thread(x) = thread(y) }

Barriers stand between the children of a sequence that all threads run together (below no THREAD
loop of several turns), or at the end of the body of a loop that carries the dependence::

    for k (together)                      for k
      for i (threads)  a[i] = ...           for i (threads)  a[i] = ...
      for j (threads)  ... a[j+1] ...  -->  barrier
                                            for j (threads)  ... a[j+1] ...
                                            barrier          (a is written again in the next k)

In a sequence each dependence is an interval of gaps, and the fewest gaps that hit all intervals are
found by taking, in the order of their ends, the last gap of each that is not hit yet.  A barrier is
a statement: it runs where any statement of its sequence does on any thread, so that all meet it,
those too that have no row or column left.
Storage of a shared array that is reused by the next iteration of a loop counts as a dependence.

What another block of a cluster wrote to memory needs a *wide* barrier, one of the whole cluster.
What is copied to a staged array has arrived after the next barrier only, for its own thread too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import islpy as isl

from tcdsl.costmodel.chip import WARP
from tcdsl.lang.comprehension import Const
from tcdsl.poly.dependences import Dependence, Dependences
from tcdsl.poly.isl_utils import val
from tcdsl.poly.loop_tree import (
    MAPPED,
    Leaf,
    Loop,
    LoopKind,
    Node,
    statements_of,
)
from tcdsl.poly.loop_tree import Sequence as Children
from tcdsl.poly.scop import Kind, Scop, Statement
from tcdsl.records import dataclass
from tcdsl.schedule.arrivals import Ends, groups_left, has_arrived, without_gaps
from tcdsl.schedule.events import barrier_statement, with_event_coordinates
from tcdsl.schedule.grid_phases import is_separated
from tcdsl.schedule.mapping import RANK, Mapped
from tcdsl.schedule.pipelines import pipeline_of, why_not_pipelined, with_events
from tcdsl.schedule.placement import Placements, Ring, Space, accesses_of, is_private
from tcdsl.schedule.stitching import is_finished


@dataclass(frozen=True, eq=False)
class Crossing:
    """Pairs of instances on different threads that must not run at the same time."""

    source: str
    sink: str
    relation: isl.Map
    reuse: str | None = None  # the loop whose next iteration reuses the storage
    is_wide: bool = False  # the threads may be in different blocks of a cluster
    is_arrival: bool = False  # of asynchronous copies, which all of its threads must wait for

    @property
    def ends(self) -> Ends:
        return self.source, self.sink, self.relation


def crossings(mapped: Mapped, dependences: Dependences, placements: Placements) -> list[Crossing]:
    """Return what in the kernel of *mapped* needs a barrier."""
    in_turn = (c for c, _, space in _in_turn(mapped, placements) if space is Space.SHARED)
    found = _dependent(mapped, dependences, placements)
    return [*found, *_reuses(mapped, placements), *in_turn]


def _dependent(mapped: Mapped, dependences: Dependences, placements: Placements) -> list[Crossing]:
    """Return the dependences whose ends may run on different threads, or later."""
    names = set(mapped.paths)
    found = []
    for edge in dependences.edges:
        if edge.source not in names or edge.sink not in names:
            continue
        if is_private(edge.array, placements) or _is_atomic(mapped.scop, edge):
            if _is_unfinished(mapped, edge):
                found.append(Crossing(edge.source, edge.sink, edge.relation))
            continue
        if is_finished(mapped, edge.source, edge.sink):
            continue
        if is_separated(mapped, edge.source, edge.sink):
            continue
        relation = _on_different_threads(mapped, edge, mapped.axes, placements)
        is_arrival = edge.is_flow and _is_staged(edge.array, placements)
        if is_arrival:
            relation = edge.relation
        if not relation.is_empty():
            is_wide = _crosses_ranks(mapped, edge, placements)
            own = Crossing(edge.source, edge.sink, relation, None, is_wide, is_arrival)
            found.append(own)
    return found


def _is_unfinished(mapped: Mapped, edge: Dependence) -> bool:
    """Return whether the source of *edge* goes on after it was issued: products of four warps.

    Those that add to the same sums wait for one another; all are done at the next barrier.
    """
    return mapped.together(edge.source) > WARP and edge.source != edge.sink


def _is_staged(array: str, placements: Placements) -> bool:
    return array in placements and placements[array].is_staged


def _crosses_ranks(mapped: Mapped, edge: Dependence, placements: Placements) -> bool:
    """Return whether the ends of *edge* may run in different blocks, which share no local array."""
    if RANK not in mapped.axes or edge.array in placements:
        return False
    return not _on_different_threads(mapped, edge, (RANK,), placements).is_empty()


def _is_atomic(scop: Scop, edge: Dependence) -> bool:
    return edge.is_relaxed and scop.by_name[edge.source].is_atomic


def is_replicated(statement: Statement, placements: Placements) -> bool:
    """Return whether all threads run *statement* where it is uniform."""
    return bool(statement.writes) and all(
        is_private(write.array, placements) for write in statement.writes
    )


def _on_different_threads(
    mapped: Mapped, edge: Dependence, axes: Sequence[int], placements: Placements
) -> isl.Map:
    """Return the part of *edge* whose ends may run on different threads along *axes*."""
    if mapped.together(edge.source) or mapped.together(edge.sink):
        return edge.relation  # any thread of a warp may read what another one multiplies
    together = edge.relation
    for axis in axes:
        source, sink = mapped.thread(edge.source, axis), mapped.thread(edge.sink, axis)
        if source is not None and sink is not None:
            ends = isl.MultiPwAff.from_pw_aff(source), isl.MultiPwAff.from_pw_aff(sink)
            together = together.intersect(ends[0].eq_map(ends[1]))
        elif source is not None or sink is not None or _is_spread(mapped, edge, placements):
            return edge.relation
    return edge.relation.subtract(together)


def _is_spread(mapped: Mapped, edge: Dependence, placements: Placements) -> bool:
    """Return whether an end of *edge* runs on all threads."""
    return any(
        is_replicated(mapped.scop.by_name[name], placements) for name in (edge.source, edge.sink)
    )


def _reuses(mapped: Mapped, placements: Placements) -> Iterator[Crossing]:
    """Yield what reuses the storage of a shared array in the next iteration of a loop."""
    loops = {loop.name: loop for path in mapped.paths.values() for loop in path}
    for placement in placements.values():
        loop = loops.get(placement.loop or "")
        if placement.space is not Space.SHARED or loop is None:
            continue
        uses = accesses_of(mapped.scop, placement.array)
        path = mapped.paths[uses[0][0].name]
        # A barrier in the loop serves the loops around it too: they may be what runs it again.
        if not any(map(_repeats, path[: path.index(loop) + 1])):
            continue
        writers = {s.name for s, a in uses if any(a is write for write in s.writes)}
        for user in {statement.name for statement, _ in uses}:
            for writer in writers:
                source = mapped.scop.by_name[user].domain.get_space()
                space = source.map_from_domain_and_range(
                    mapped.scop.by_name[writer].domain.get_space()
                )
                yield Crossing(user, writer, isl.Map.universe(space), loop.name)


def _in_turn(mapped: Mapped, placements: Placements) -> Iterator[tuple[Crossing, Ring, Space]]:
    """Yield what has the place of an element that the same buffer of a ring held before."""
    for placement in placements.values():
        uses = accesses_of(mapped.scop, placement.array)
        ring = placement.ring
        if ring is None or not {s.name for s, _ in uses} <= set(mapped.paths):
            continue
        later = _later_in(ring, uses[0][1].relation.range().get_space())
        for user, used in uses:
            for writer, write in uses:
                if any(write is own for own in writer.writes):
                    pairs = used.relation.apply_range(later)
                    pairs = pairs.apply_range(write.relation.reverse())
                    yield Crossing(user.name, writer.name, pairs), ring, placement.space


def _later_in(ring: Ring, elements: isl.Space) -> isl.Map:
    """Return { e -> f : f comes after e in the same buffer of *ring* }."""
    local = isl.LocalSpace.from_space(elements)
    others = [d for d in range(elements.dim(isl.dim_type.set)) if d != ring.dim]
    turn = isl.Aff.var_on_domain(local, isl.dim_type.set, ring.dim)
    same = [isl.Aff.var_on_domain(local, isl.dim_type.set, d) for d in others]
    same.append(turn.mod_val(val(ring.buffers)))
    order = isl.MultiPwAff.from_pw_aff(isl.PwAff.from_aff(turn))
    later = order.lex_lt_map(order)
    for aff in same:
        end = isl.MultiPwAff.from_pw_aff(isl.PwAff.from_aff(aff))
        later = later.intersect(end.eq_map(end))
    return later


def _is_together(loop: Loop) -> bool:
    """Return whether all threads may meet a barrier inside *loop*.

    Below a loop over threads they do if each has one turn: a guard moves to what is around the
    barrier.
    """
    return loop.kind is not LoopKind.THREAD or loop.has_one_turn


def _repeats(loop: Loop) -> bool:
    """Return whether one thread may run several iterations of *loop*."""
    if loop.kind in MAPPED:
        return not loop.has_one_turn
    return loop.extent is None or loop.extent > 1


def synchronise(
    scop: Scop, trees: Sequence[Node], dependences: Dependences, placements: Placements
) -> tuple[Scop, list[Node]]:
    """Return *scop* with the barriers that its kernels *trees* need, and the trees with them."""
    barriers: list[Statement] = []
    done = []
    for number, tree in enumerate(trees):
        mapped = Mapped(scop, tree)
        if (pipeline := pipeline_of(mapped, placements)) is not None:
            tree, events = with_events(mapped, pipeline, number)
            done.append(tree)
            barriers += events
            continue
        synchroniser = _Synchroniser(mapped, crossings(mapped, dependences, placements), number)
        done.append(synchroniser.node(tree, ()) if synchroniser.pending else tree)
        barriers += synchroniser.barriers
    return scop.with_statements((*scop.statements, *barriers)), done


class _Synchroniser:
    """Puts barriers into the tree of one kernel."""

    def __init__(self, mapped: Mapped, pending: list[Crossing], number: int) -> None:
        self.mapped = mapped
        self.pending = pending
        self.number = number
        self.barriers: list[Statement] = []

    def node(self, tree: Node, path: tuple[Loop, ...]) -> Node:
        """Return *tree*, below the loops *path*, with barriers for what it has inside."""
        match tree:
            case Leaf():
                return tree
            case Loop() if not _is_together(tree):
                return tree
            case Children(children=children):
                return self._sequence(children, path, None)
            case Loop(body=body):
                below = (*path, tree)
                inner = body.children if isinstance(body, Children) else (body,)
                new = self._sequence(inner, below, tree)
                return with_event_coordinates(tree, new, self.barriers)

    def _sequence(
        self, children: tuple[Node, ...], path: tuple[Loop, ...], loop: Loop | None
    ) -> Node:
        """Return *children* with barriers between them; they are the body of *loop*, if any."""
        place = {name: i for i, child in enumerate(children) for name in statements_of(child)}
        mine = [c for c in self.pending if c.source in place and c.sink in place]
        gaps: set[int] = set()  # a barrier in gap g stands before child g; n: after the last
        intervals = []
        for crossing in mine:
            first, last = place[crossing.source], place[crossing.sink]
            if crossing.reuse is None and first < last and self._is_within(crossing, path):
                intervals.append((first + 1, last))
        for low, high in sorted(intervals, key=lambda interval: interval[1]):
            if not any(low <= gap <= high for gap in gaps):
                gaps.add(high)
        if loop is not None:
            for crossing in mine:
                first, last = place[crossing.source], place[crossing.sink]
                is_met = any(gap > first or gap <= last for gap in gaps)
                if not is_met and self._is_carried(crossing, path):
                    gaps.add(len(children))
        names = list(place)
        result: list[Node] = []
        for position, child in enumerate(children):
            if position in gaps:
                result.append(self._barrier(names, path))
            result.append(self.node(child, path))
        if len(children) in gaps:
            result.append(self._barrier(names, path, self._groups_left(names, path)))
        return result[0] if len(result) == 1 else Children(tuple(result))

    def _is_within(self, crossing: Crossing, path: tuple[Loop, ...]) -> bool:
        """Return whether some pair of *crossing* is in one iteration of all loops of *path*."""
        return not _equal_along(self.mapped.scop, crossing, path).is_empty()

    def _is_carried(self, crossing: Crossing, path: tuple[Loop, ...]) -> bool:
        """Return whether some pair is in two iterations of the last loop of *path*."""
        *outer, loop = path
        if crossing.reuse is not None:
            return crossing.reuse == loop.name
        if not _repeats(loop):
            return False
        around = _equal_along(self.mapped.scop, crossing, outer)
        within = _equal_along(self.mapped.scop, crossing, path)
        return not around.is_subset(within)

    def _groups_left(self, names: Sequence[str], path: tuple[Loop, ...]) -> int:
        """Return how many groups of copies may arrive after the end of an iteration of *path*.

        None where some copy or its reader is not among *names*, which other barriers serve.
        """
        arrivals = [c for c in self.pending if c.is_arrival]
        if any(c.source not in names or c.sink not in names for c in arrivals):
            return 0
        return groups_left(self.mapped.scop, [c.ends for c in arrivals], path)

    def _barrier(self, names: Sequence[str], path: tuple[Loop, ...], left: int = 0) -> Leaf:
        """Return a barrier for an iteration of *path* in which any of *names* runs.

        :arg left: groups of asynchronous copies that may arrive after it.
        """
        statement = barrier_statement(
            self.mapped.scop, f"barrier{self.number}_{len(self.barriers)}", names, path
        )
        is_wide = any(c.is_wide for c in self.pending)
        domain = without_gaps(statement.domain) if left else statement.domain
        statement = replace(statement, domain=domain, is_wide=is_wide, groups_left=left)
        self.barriers.append(statement)
        return Leaf(statement.name)


def _equal_along(scop: Scop, crossing: Crossing, path: Sequence[Loop]) -> isl.Map:
    """Return the pairs that are in the same iteration of every loop of *path*.

    Iterations of a loop over threads run at the same time.
    """
    relation = crossing.relation
    for loop in path:
        if loop.kind is LoopKind.THREAD:
            continue
        ends = []
        for name in (crossing.source, crossing.sink):
            aff = loop.coordinates[name].function(scop.by_name[name].domain.get_space())
            ends.append(isl.MultiPwAff.from_pw_aff(isl.PwAff.from_aff(aff)))
        relation = relation.intersect(ends[0].eq_map(ends[1]))
    return relation


def why_not_synchronised(
    mapped: Mapped, dependences: Dependences, placements: Placements
) -> str | None:
    """Return a crossing pair without a barrier between its ends, or None.

    What is private needs none: then the pair must be on one thread, or its source on all threads,
    or its sink a collective.
    """
    if reason := _why_not_private(mapped, dependences, placements):
        return reason
    if reason := _why_not_in_turn(mapped, placements):
        return reason
    if mapped.has_roles:
        return _why_not_between_roles(mapped, dependences, placements)
    for crossing in crossings(mapped, dependences, placements):
        if not _is_synchronised(mapped.tree, crossing, mapped.scop, ()):
            return f"no barrier is between {crossing.source} and {crossing.sink}"
    return None


def _why_not_between_roles(
    mapped: Mapped, dependences: Dependences, placements: Placements
) -> str | None:
    """Return what no event of the kernel's pipeline orders, or None."""
    if any(_reuses(mapped, placements)):
        return "a kernel with roles has one tile a block"
    in_turn = [c.ends for c, _, space in _in_turn(mapped, placements) if space is Space.SHARED]
    pairs = [crossing.ends for crossing in _dependent(mapped, dependences, placements)]
    return why_not_pipelined(mapped, placements, pairs, in_turn)


def _why_not_in_turn(mapped: Mapped, placements: Placements) -> str | None:
    """Return why a buffer of a ring is filled again before all have used it, or None."""
    for crossing, ring, _ in _in_turn(mapped, placements):
        user, writer = (_turn(mapped, name, ring) for name in (crossing.source, crossing.sink))
        if not crossing.relation.intersect(user.lex_ge_map(writer)).is_empty():
            return f"{crossing.sink} fills a buffer that {crossing.source} has still to use"
    return None


def _turn(mapped: Mapped, name: str, ring: Ring) -> isl.MultiPwAff:
    """Return the iteration of the loops of *ring* that runs an instance of *name*."""
    space = mapped.scop.by_name[name].domain.get_space()
    loops = [loop for loop in mapped.paths[name] if loop.name in ring.loops]
    assert len(loops) == len(ring.loops), "all uses are in them"
    found: isl.MultiPwAff | None = None
    for loop in loops:
        one = isl.MultiPwAff.from_pw_aff(isl.PwAff.from_aff(loop.coordinates[name].function(space)))
        found = one if found is None else found.flat_range_product(one)
    assert found is not None
    return found


def _why_not_private(
    mapped: Mapped, dependences: Dependences, placements: Placements
) -> str | None:
    for edge in dependences.edges:
        if not (is_private(edge.array, placements) and edge.is_flow):
            continue
        source, sink = mapped.scop.by_name[edge.source], mapped.scop.by_name[edge.sink]
        inside = source.name in mapped.paths, sink.name in mapped.paths
        if not any(inside):
            continue
        if not all(inside):
            return f"{edge.array} is private, but two kernels use it"
        for axis in mapped.axes:
            if reason := _why_not_own(mapped, edge, axis, placements):
                return f"{edge.array} is private, but {reason}"
    return _why_not_one_lane(mapped, placements)


def _why_not_one_lane(mapped: Mapped, placements: Placements) -> str | None:
    """Return which fold would miss lanes: a call takes one of each thread, or None.

    Where lanes and threads are counted alike, a thread's local array has one place for its lane.
    """
    for name in mapped.paths:
        fold = mapped.scop.by_name[name]
        if fold.kind is not Kind.FOLD or not mapped.fold_axes(fold):
            continue
        for read in fold.reads:
            if not is_private(read.array, placements):
                continue
            dims = placements[read.array].dims
            lanes = [d for d, s in zip(dims, read.subscripts, strict=True) if isinstance(s, Const)]
            if any(dim.extent > 1 for dim in lanes):
                return f"a thread has several lanes of {read.array}, and {name} would take one"
    return None


def _why_not_own(mapped: Mapped, edge: Dependence, axis: int, placements: Placements) -> str | None:
    """Return why a thread reads along *axis* what another one wrote, or None."""
    source, sink = mapped.scop.by_name[edge.source], mapped.scop.by_name[edge.sink]
    from_, to = mapped.thread(source.name, axis), mapped.thread(sink.name, axis)
    if from_ is None:
        is_everywhere = is_replicated(source, placements)
        return None if is_everywhere else f"one thread alone runs {source.name}"
    reads = (read for read in sink.reads if read.array == edge.array)
    if any(mapped.is_collective_read(sink, read, axis) for read in reads):
        return None
    if to is None:
        return f"all threads run {sink.name}"
    ends = isl.MultiPwAff.from_pw_aff(from_), isl.MultiPwAff.from_pw_aff(to)
    is_same = edge.relation.is_subset(ends[0].eq_map(ends[1]))
    return None if is_same else f"{sink.name} is on another thread"


def _serves(statement: Statement, crossing: Crossing) -> bool:
    """Return whether *statement* is a barrier that the ends of *crossing* both meet."""
    return statement.kind is Kind.BARRIER and (statement.is_wide or not crossing.is_wide)


def _is_early(statement: Statement, crossing: Crossing) -> bool:
    """Return whether *statement* is a barrier that leaves copies of *crossing* on their way."""
    return crossing.is_arrival and statement.groups_left > 0


def _is_synchronised(node: Node, crossing: Crossing, scop: Scop, path: tuple[Loop, ...]) -> bool:
    """Return whether a barrier is between the ends of *crossing*, which are both below *node*.

    From the outermost loop inwards: pairs in different iterations of a loop need a barrier in its
    body outside the part from sink to source, the others one between the children they are in.
    """
    if isinstance(node, Leaf) or (isinstance(node, Loop) and not _is_together(node)):
        return _equal_along(scop, crossing, path).is_empty()
    loop = node if isinstance(node, Loop) else None
    below = (*path, loop) if loop is not None else path
    body = loop.body if loop is not None else node
    children = body.children if isinstance(body, Children) else (body,)
    ends = [
        next(i for i, child in enumerate(children) if name in statements_of(child))
        for name in (crossing.source, crossing.sink)
    ]
    first, last = ends
    barriers = {
        position: scop.by_name[child.statement]
        for position, child in enumerate(children)
        if isinstance(child, Leaf) and _serves(scop.by_name[child.statement], crossing)
    }
    complete = [at for at, barrier in barriers.items() if not _is_early(barrier, crossing)]
    if loop is not None:
        is_carried = crossing.reuse == loop.name
        if crossing.reuse is None and _repeats(loop):
            around, within = (_equal_along(scop, crossing, p) for p in (path, below))
            is_carried = not around.is_subset(within)
        is_met = any(at > first or at < last for at in complete) or any(
            at > max(ends) and has_arrived(scop, crossing.ends, below, barriers[at])
            for at in barriers.keys() - complete
        )
        if is_carried and not is_met:
            return False
    if crossing.reuse is not None:
        is_there = loop is not None and loop.name == crossing.reuse
        return is_there or _is_synchronised(children[first], crossing, scop, below)
    if first != last:
        is_within = not _equal_along(scop, crossing, below).is_empty()
        return not is_within or (first < last and any(first < at < last for at in complete))
    return _is_synchronised(children[first], crossing, scop, below)
