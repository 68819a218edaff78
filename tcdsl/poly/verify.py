"""Legality: what every compilation is checked against, whatever made its schedule.

    violated_dependences    a strict dependence whose sink does not run after its source
    races                   a dependence (relaxed ones too) between iterations of a parallel loop
    instances run once      the schedule is injective and covers the domain
    accesses in bounds      { S[i] -> A[e] } lies in A's box
    chunks of one row       a sum of exponentials and the largest value beside it (provenance.py)
    tiles of a chain        stencils whose tiles overlap compute what the program does (overlap.py)

A failure is a bug in tcdsl: the driver turns it into an InternalError with a file to reproduce it.
"""

from collections.abc import Sequence
from dataclasses import replace

import islpy as isl

from tcdsl.poly.accesses import elements_in
from tcdsl.poly.dependences import Dependence, Dependences
from tcdsl.poly.isl_utils import constant_bounds, val
from tcdsl.poly.loop_tree import (
    AnyCoordinate,
    Coordinate,
    Loop,
    LoopKind,
    Node,
    loops_around,
    positions_of,
    schedule_of,
    statements_of,
    terms_told,
)
from tcdsl.poly.overlap import why_not_overlapped
from tcdsl.poly.provenance import why_not_rescaled
from tcdsl.poly.scop import Scop, Statement
from tcdsl.poly.signals import is_signalled

CONCURRENT = (LoopKind.PARALLEL, LoopKind.VECTOR, LoopKind.BLOCK)


def why_not_legal(scop: Scop, dependences: Dependences, tree: Node) -> str | None:
    """Return what is wrong with running *scop* as *tree*, or None."""
    return (
        why_not_complete(scop, tree)
        or why_not_ordered(scop, dependences, tree)
        or why_not_free_of_races(scop, dependences, tree)
        or why_not_in_bounds(scop)
        or why_not_rescaled(scop)
        or why_not_overlapped(scop)
    )


def violated_dependences(
    schedule: isl.Schedule, dependences: Sequence[Dependence], scop: Scop
) -> isl.UnionMap:
    """Return the dependences whose sink does not run strictly after its source."""
    union = isl.UnionMap.empty(scop.context.get_space())
    for edge in dependences:
        union = union.union(isl.UnionMap.from_map(edge.relation))
    when = schedule.get_map()
    return union.subtract(when.lex_lt_union_map(when))


def why_not_ordered(scop: Scop, dependences: Dependences, tree: Node) -> str | None:
    """Return the first strict dependence that *tree* violates, as text, or None."""
    position = {name: i for i, name in enumerate(statements_of(tree))}
    paths = {name: loops_around(tree, name) for name in position}
    for edge in dependences.strict:
        shared = _shared_loops(paths[edge.source], paths[edge.sink])
        comes_later = position[edge.source] < position[edge.sink]
        violated = _backwards(scop, edge, shared, comes_later)
        if violated is not None:
            return f"the dependence {violated} is violated"
    return None


def _shared_loops(first: tuple[Loop, ...], second: tuple[Loop, ...]) -> list[Loop]:
    shared = []
    for a, b in zip(first, second, strict=False):
        if a.name != b.name:
            break
        shared.append(a)
    return shared


def _backwards(
    scop: Scop, edge: Dependence, shared: Sequence[Loop], comes_later: bool
) -> isl.Map | None:
    """Return the part of *edge* whose sink does not run after its source, None if empty.

    Loop by loop: where the source's iteration is larger the order is wrong, where it is smaller it
    is right, and where they are equal the next loop decides, in the end the textual position.
    """
    undecided = edge.relation
    for loop in shared:
        if _is_shared_iteration(edge, loop):
            continue
        source, sink = _coordinates(scop, edge, loop)
        wrong = undecided.intersect(source.lex_gt_map(sink))
        if not wrong.is_empty():
            return wrong
        undecided = undecided.intersect(source.eq_map(sink))
        if undecided.is_empty():
            return None
    return None if comes_later or undecided.is_empty() else undecided


def _is_shared_iteration(edge: Dependence, loop: Loop) -> bool:
    """Return whether both ends of *edge* are known to be in the same iteration of *loop*.

    Equal parts of dimensions that are equal are equal: asked once of the dimensions, for all loops
    over parts of them.  Of what is not found here isl's relations say more.
    """
    source, sink = loop.coordinates[edge.source], loop.coordinates[edge.sink]
    return (
        isinstance(source, Coordinate)
        and isinstance(sink, Coordinate)
        and replace(source, position=sink.position) == sink
        and edge.has_equal(source.position, sink.position)
    )


def _coordinates(scop: Scop, edge: Dependence, loop: Loop) -> tuple[isl.MultiPwAff, isl.MultiPwAff]:
    """Return the loop's coordinate of the source and of the sink of *edge*."""
    pair = []
    for name in (edge.source, edge.sink):
        aff = loop.coordinates[name].function(scop.by_name[name].domain.get_space())
        pair.append(isl.MultiPwAff.from_pw_aff(isl.PwAff.from_aff(aff)))
    return pair[0], pair[1]


def why_not_free_of_races(scop: Scop, dependences: Dependences, tree: Node) -> str | None:
    """Return the first dependence between iterations of a concurrent loop, or None.

    A block runs its iterations of a BLOCK loop in order, and blocks may wait for one another
    (signals.py).  THREAD loops are not judged here: so may threads (schedule/synchronisation.py).
    """
    position = {name: i for i, name in enumerate(statements_of(tree))}
    paths = {name: loops_around(tree, name) for name in position}
    for edge in dependences.edges:
        if edge.is_relaxed and scop.by_name[edge.source].is_atomic:
            continue
        conflicts = edge.relation
        shared = _shared_loops(paths[edge.source], paths[edge.sink])
        while shared and not _is_concurrent(shared[-1], edge):  # nothing is asked of these
            shared.pop()
        for loop in shared:
            if _is_shared_iteration(edge, loop):
                continue
            together = conflicts.intersect(_same(scop, edge, loop))
            one = together
            if loop.kind is LoopKind.BLOCK:
                one = conflicts.intersect(_same(scop, edge, loop, loop.width))
            is_left = _is_concurrent(loop, edge) and not conflicts.is_subset(one)
            if is_left and loop.kind is LoopKind.BLOCK:
                ends = edge.source, edge.sink
                is_left = not is_signalled(scop, tree, ends, conflicts.subtract(one))
            if is_left:
                return (
                    f"iterations of the {loop.kind} loop {loop.name} conflict: "
                    f"{conflicts.subtract(one)}"
                )
            conflicts = together
    return None


def _is_concurrent(loop: Loop, edge: Dependence) -> bool:
    """Return whether the ends of *edge* would conflict in different iterations of *loop*."""
    # Lanes accumulate one by one, tensor cores in any order; the rest is at once.
    if loop.kind in (LoopKind.LANES, LoopKind.COLLECTIVE):
        return not edge.is_relaxed
    return loop.kind in CONCURRENT


def _same(scop: Scop, edge: Dependence, loop: Loop, modulo: int = 0) -> isl.Map:
    """Return the pairs in equal iterations of *loop*, or in ones that are equal modulo *modulo*."""
    source, sink = _coordinates(scop, edge, loop)
    if modulo:
        source, sink = (
            isl.MultiPwAff.from_pw_aff(end.get_at(0).mod_val(val(modulo))) for end in (source, sink)
        )
    return source.eq_map(sink)


def why_not_complete(scop: Scop, tree: Node) -> str | None:
    """Return a statement whose instances do not each run exactly once, or None."""
    names = list(statements_of(tree))
    if sorted(names) != sorted(s.name for s in scop.statements):
        return f"the kernels run {sorted(names)}, the program has other statements"
    for name in names:
        if not _runs_once(scop.by_name[name], loops_around(tree, name)):
            return f"the loops around {name} run an instance twice or never"
    return None


def _runs_once(statement: Statement, path: Sequence[Loop]) -> bool:
    """Return whether the coordinates of *path* together determine the instance."""
    coordinates = [loop.coordinates[statement.name] for loop in path]
    told = [one for coordinate in coordinates for one in terms_told(coordinate)]
    known = {
        dim
        for dim in range(len(statement.indices))
        if are_digits(told, dim) or are_digits(told, dim, _values_of(statement, dim))
    }
    if len(known) == len(statement.indices):
        return True
    # Loops that tell nothing but dimensions that are known are these dimensions.
    others = [c for c in coordinates if not positions_of(c) <= known]
    when: isl.Map | None = None
    for coordinate in (*map(Coordinate, sorted(known)), *others):
        aff = coordinate.function(statement.domain.get_space())
        one = isl.Map.from_pw_aff(isl.PwAff.from_aff(aff))
        when = one if when is None else when.flat_range_product(one)
    if when is None:
        return bool(statement.domain.is_singleton()) or bool(statement.domain.is_empty())
    return bool(when.intersect_domain(statement.domain).is_injective())


def _values_of(statement: Statement, dim: int) -> int | None:
    """Return how many values dimension *dim* has at most, None if that is open."""
    bounds = constant_bounds(statement.domain, dim)
    return None if bounds is None else bounds[1] - bounds[0] + 1


def are_digits(coordinates: Sequence[AnyCoordinate], dim: int, extent: int | None = None) -> bool:
    """Return whether some of *coordinates* are all digits of dimension *dim*.

    ``x - s = q_0 + d_1 q_1 + ... + d_n q_n`` with ``q_k = floor((x - s) / d_k) mod d_(k+1) / d_k``,
    ``d_0 = 1``, and no remainder taken of the last.  Of *extent* neighbouring values each has
    digits of its own also where the last has a remainder: those below ``d_(n+1) >= extent``.  A
    remainder by 1 is no digit.  Most loops are such: isl is asked of others.
    """
    own = [c for c in coordinates if isinstance(c, Coordinate) and c.position == dim]
    for shift in {c.shift for c in own} or {0}:
        mods = {c.div: c.mod for c in own if c.shift == shift and c.mod != 1}
        step = 1
        while mods.get(step, 0):
            step *= mods[step]
        if mods.get(step) == 0 or (extent is not None and extent <= step):
            return True
    return False


def why_not_in_bounds(scop: Scop) -> str | None:
    """Return an access that may leave its array's box, or None."""
    for statement in scop.statements:
        for access in (*statement.writes, *statement.reads):
            space = access.relation.get_space().range()
            if not access.relation.range().is_subset(elements_in(scop.arrays[access.array], space)):
                return f"{statement.name} leaves {access.array}: {access.relation.range()}"
    return None


__all__ = [
    "schedule_of", "violated_dependences", "why_not_complete", "why_not_free_of_races",
    "why_not_in_bounds", "why_not_legal", "why_not_ordered",
]  # fmt: skip
