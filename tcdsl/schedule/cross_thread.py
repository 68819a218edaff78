"""Cross-thread dependences: pairs of instances that a barrier must keep apart.

A dependence needs one if its source and its sink may run on different threads, and what they touch
is not private:

    { s[x] -> t[y] : same element, one writes }  -  { s[x] -> t[y] : thread(x) = thread(y) }

Storage of a shared array that is reused by the next iteration of a loop, or by a later element of a
ring of buffers, counts as a dependence.

What another block of a cluster wrote to memory needs a *wide* barrier, one of the whole cluster.
What is copied to a staged array has arrived after the next barrier only, for its own thread too.
"""

from collections.abc import Iterator, Sequence

import islpy as isl

from tcdsl.costmodel.chip import WARP
from tcdsl.poly.dependences import Dependence, Dependences
from tcdsl.poly.isl_utils import val
from tcdsl.poly.loop_tree import (
    MAPPED,
    RANK,
    Loop,
)
from tcdsl.poly.scop import Scop, Statement
from tcdsl.records import dataclass
from tcdsl.schedule.arrivals import Ends
from tcdsl.schedule.grid_phases import is_separated
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.placement import Placements, Ring, Space, accesses_of, is_private
from tcdsl.schedule.stitching import is_finished


@dataclass(frozen=True, eq=False)
class CrossThreadDependence:
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


def cross_thread_dependences(
    mapped: Mapped, dependences: Dependences, placements: Placements
) -> list[CrossThreadDependence]:
    """Return what in the kernel of *mapped* needs a barrier."""
    in_turn = (c for c, _, space in uses_in_turn(mapped, placements) if space is Space.SHARED)
    found = between_threads(mapped, dependences, placements)
    return [*found, *reuses_of_storage(mapped, placements), *in_turn]


def between_threads(
    mapped: Mapped, dependences: Dependences, placements: Placements
) -> list[CrossThreadDependence]:
    """Return the dependences whose ends may run on different threads, or later."""
    names = set(mapped.paths)
    found = []
    for edge in dependences.edges:
        if edge.source not in names or edge.sink not in names:
            continue
        if is_private(edge.array, placements) or _is_atomic(mapped.scop, edge):
            if _is_unfinished(mapped, edge):
                found.append(CrossThreadDependence(edge.source, edge.sink, edge.relation))
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
            own = CrossThreadDependence(edge.source, edge.sink, relation, None, is_wide, is_arrival)
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


def reuses_of_storage(mapped: Mapped, placements: Placements) -> Iterator[CrossThreadDependence]:
    """Yield what reuses the storage of a shared array in the next iteration of a loop."""
    loops = {loop.name: loop for path in mapped.paths.values() for loop in path}
    for placement in placements.values():
        loop = loops.get(placement.loop or "")
        if placement.space is not Space.SHARED or loop is None:
            continue
        uses = accesses_of(mapped.scop, placement.array)
        path = mapped.paths[uses[0][0].name]
        # A barrier in the loop serves the loops around it too: they may be what runs it again.
        if not any(map(may_repeat, path[: path.index(loop) + 1])):
            continue
        writers = dict.fromkeys(s.name for s, a in uses if any(a is write for write in s.writes))
        for user in dict.fromkeys(statement.name for statement, _ in uses):
            for writer in writers:
                source = mapped.scop.by_name[user].domain.get_space()
                space = source.map_from_domain_and_range(
                    mapped.scop.by_name[writer].domain.get_space()
                )
                yield CrossThreadDependence(user, writer, isl.Map.universe(space), loop.name)


def uses_in_turn(
    mapped: Mapped, placements: Placements
) -> Iterator[tuple[CrossThreadDependence, Ring, Space]]:
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
                    yield (
                        CrossThreadDependence(user.name, writer.name, pairs),
                        ring,
                        placement.space,
                    )


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


def may_repeat(loop: Loop) -> bool:
    """Return whether one thread may run several iterations of *loop*."""
    if loop.kind in MAPPED:
        return not loop.has_one_iteration
    return loop.extent is None or loop.extent > 1
