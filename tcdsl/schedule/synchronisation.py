"""Barriers: where the threads of a block wait for one another, as few as suffice.

Between the two ends of a dependence across threads (``cross_thread``) there must be a barrier.
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
"""

from collections.abc import Sequence
from dataclasses import replace

import islpy as isl

from tcdsl.lang.comprehension import Const
from tcdsl.poly.dependences import Dependence, Dependences
from tcdsl.poly.loop_tree import (
    Leaf,
    Loop,
    LoopKind,
    Node,
    sequence,
    statements_of,
)
from tcdsl.poly.loop_tree import Sequence as Children
from tcdsl.poly.scop import Kind, Scop, Statement
from tcdsl.schedule.arrivals import groups_left, has_arrived, without_gaps
from tcdsl.schedule.cross_thread import (
    CrossThreadDependence,
    between_threads,
    cross_thread_dependences,
    is_replicated,
    may_repeat,
    reuses_of_storage,
    uses_in_turn,
)
from tcdsl.schedule.events import barrier_statement, with_event_coordinates
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.packing import why_not_one_part
from tcdsl.schedule.pipelines import pipelines_of, why_not_pipelined, with_events
from tcdsl.schedule.placement import Placements, Ring, Space, is_private
from tcdsl.schedule.signals import with_signals


def _is_together(loop: Loop) -> bool:
    """Return whether all threads may meet a barrier inside *loop*.

    Below a loop over threads they do if each has one turn: a guard moves to what is around the
    barrier.
    """
    return loop.kind is not LoopKind.THREAD or loop.has_one_iteration


def synchronise(
    scop: Scop, trees: Sequence[Node], dependences: Dependences, placements: Placements
) -> tuple[Scop, list[Node]]:
    """Return *scop* with the barriers that its kernels *trees* need, and the trees with them."""
    barriers: list[Statement] = []
    done = []
    for number, tree in enumerate(trees):
        mapped = Mapped(scop, tree)
        if mapped.has_roles:
            tree, events = _with_pipelines(mapped, dependences, placements, number)
            done.append(tree)
            barriers += events
            continue
        synchroniser = _Synchroniser(
            mapped, cross_thread_dependences(mapped, dependences, placements), number
        )
        done.append(synchroniser.node(tree, ()) if synchroniser.pending else tree)
        barriers += synchroniser.barriers
    return scop.with_statements((*scop.statements, *barriers)), done


def _with_pipelines(
    mapped: Mapped, dependences: Dependences, placements: Placements, number: int
) -> tuple[Node, list[Statement]]:
    """Return the tree of the kernel with this *number* with the events of its parts, and these."""
    trees, events = list[Node](), list[Statement]()
    pipelines = pipelines_of(mapped, placements)
    for at, (part, pipeline) in enumerate(zip(mapped.parts, pipelines, strict=True)):
        own = f"{number}_{at}" if len(pipelines) > 1 else str(number)
        tree, of_stages = with_events(part, pipeline, own)
        tree, of_blocks = with_signals(part, tree, dependences, placements, own)
        trees.append(tree)
        events += [*of_stages, *of_blocks]
    return sequence(trees), events


class _Synchroniser:
    """Puts barriers into the tree of one kernel."""

    def __init__(self, mapped: Mapped, pending: list[CrossThreadDependence], number: int) -> None:
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
        for dependence in mine:
            first, last = place[dependence.source], place[dependence.sink]
            if dependence.reuse is None and first < last and self._is_within(dependence, path):
                intervals.append((first + 1, last))
        for low, high in sorted(intervals, key=lambda interval: interval[1]):
            if not any(low <= gap <= high for gap in gaps):
                gaps.add(high)
        if loop is not None:
            for dependence in mine:
                first, last = place[dependence.source], place[dependence.sink]
                is_met = any(gap > first or gap <= last for gap in gaps)
                if not is_met and self._is_carried(dependence, path):
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

    def _is_within(self, dependence: CrossThreadDependence, path: tuple[Loop, ...]) -> bool:
        """Return whether some pair of *dependence* is in one iteration of all loops of *path*."""
        return not _equal_along(self.mapped.scop, dependence, path).is_empty()

    def _is_carried(self, dependence: CrossThreadDependence, path: tuple[Loop, ...]) -> bool:
        """Return whether some pair is in two iterations of the last loop of *path*."""
        *outer, loop = path
        if dependence.reuse is not None:
            return dependence.reuse == loop.name
        if not may_repeat(loop):
            return False
        around = _equal_along(self.mapped.scop, dependence, outer)
        within = _equal_along(self.mapped.scop, dependence, path)
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


def _equal_along(scop: Scop, dependence: CrossThreadDependence, path: Sequence[Loop]) -> isl.Map:
    """Return the pairs that are in the same iteration of every loop of *path*.

    Iterations of a loop over threads run at the same time.
    """
    relation = dependence.relation
    for loop in path:
        if loop.kind is LoopKind.THREAD:
            continue
        ends = []
        for name in (dependence.source, dependence.sink):
            aff = loop.coordinates[name].function(scop.by_name[name].domain.get_space())
            ends.append(isl.MultiPwAff.from_pw_aff(isl.PwAff.from_aff(aff)))
        relation = relation.intersect(ends[0].eq_map(ends[1]))
    return relation


def why_not_synchronised(
    mapped: Mapped, dependences: Dependences, placements: Placements
) -> str | None:
    """Return a dependence pair without a barrier between its ends, or None.

    What is private needs none: then the pair must be on one thread, or its source on all threads,
    or its sink a collective.
    """
    if reason := _why_not_private(mapped, dependences, placements):
        return reason
    if reason := _why_not_in_turn(mapped, placements):
        return reason
    if mapped.has_roles:
        return _why_not_between_roles(mapped, dependences, placements)
    for dependence in cross_thread_dependences(mapped, dependences, placements):
        if not _is_synchronised(mapped.tree, dependence, mapped.scop, ()):
            return f"no barrier is between {dependence.source} and {dependence.sink}"
    return None


def _why_not_between_roles(
    mapped: Mapped, dependences: Dependences, placements: Placements
) -> str | None:
    """Return what no event of the kernel's pipelines orders, or None.

    Of a launch of several parts each is judged by itself, for no block runs two of them.
    """
    if reason := why_not_one_part(mapped):
        return reason
    for part, pipeline in zip(mapped.parts, pipelines_of(mapped, placements), strict=True):
        if any(reuses_of_storage(part, placements)):
            return "a kernel with roles has one tile a block"
        again = uses_in_turn(part, placements)
        in_turn = [c.ends for c, _, space in again if space is Space.SHARED]
        pairs = [dependence.ends for dependence in between_threads(part, dependences, placements)]
        if reason := why_not_pipelined(part, pipeline, placements, pairs, in_turn):
            return reason
    return None


def _why_not_in_turn(mapped: Mapped, placements: Placements) -> str | None:
    """Return why a buffer of a ring is filled again before all have used it, or None."""
    for dependence, ring, _ in uses_in_turn(mapped, placements):
        user, writer = (_turn(mapped, name, ring) for name in (dependence.source, dependence.sink))
        if not dependence.relation.intersect(user.lex_ge_map(writer)).is_empty():
            return f"{dependence.sink} fills a buffer that {dependence.source} has still to use"
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
        for read in fold.parts:
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


def _serves(statement: Statement, dependence: CrossThreadDependence) -> bool:
    """Return whether *statement* is a barrier that the ends of *dependence* both meet."""
    return statement.kind is Kind.BARRIER and (statement.is_wide or not dependence.is_wide)


def _is_early(statement: Statement, dependence: CrossThreadDependence) -> bool:
    """Return whether *statement* is a barrier that leaves copies of *dependence* on their way."""
    return dependence.is_arrival and statement.groups_left > 0


def _is_synchronised(
    node: Node, dependence: CrossThreadDependence, scop: Scop, path: tuple[Loop, ...]
) -> bool:
    """Return whether a barrier is between the ends of *dependence*, which are both below *node*.

    From the outermost loop inwards: pairs in different iterations of a loop need a barrier in its
    body outside the part from sink to source, the others one between the children they are in.
    """
    if isinstance(node, Leaf) or (isinstance(node, Loop) and not _is_together(node)):
        return _equal_along(scop, dependence, path).is_empty()
    loop = node if isinstance(node, Loop) else None
    below = (*path, loop) if loop is not None else path
    body = loop.body if loop is not None else node
    children = body.children if isinstance(body, Children) else (body,)
    ends = [
        next(i for i, child in enumerate(children) if name in statements_of(child))
        for name in (dependence.source, dependence.sink)
    ]
    first, last = ends
    barriers = {
        position: scop.by_name[child.statement]
        for position, child in enumerate(children)
        if isinstance(child, Leaf) and _serves(scop.by_name[child.statement], dependence)
    }
    complete = [at for at, barrier in barriers.items() if not _is_early(barrier, dependence)]
    if loop is not None:
        is_carried = dependence.reuse == loop.name
        if dependence.reuse is None and may_repeat(loop):
            around, within = (_equal_along(scop, dependence, p) for p in (path, below))
            is_carried = not around.is_subset(within)
        is_met = any(at > first or at < last for at in complete) or any(
            at > max(ends) and has_arrived(scop, dependence.ends, below, barriers[at])
            for at in barriers.keys() - complete
        )
        if is_carried and not is_met:
            return False
    if dependence.reuse is not None:
        is_there = loop is not None and loop.name == dependence.reuse
        return is_there or _is_synchronised(children[first], dependence, scop, below)
    if first != last:
        is_within = not _equal_along(scop, dependence, below).is_empty()
        return not is_within or (first < last and any(first < at < last for at in complete))
    return _is_synchronised(children[first], dependence, scop, below)
