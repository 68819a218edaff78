"""Barriers and events as statements of a tree, with an instance for each iteration around them."""

from collections.abc import Sequence
from dataclasses import replace

import islpy as isl

from tcdsl.poly.isl_utils import within
from tcdsl.poly.loop_tree import Coordinate, Loop, LoopKind, Node, statements_of
from tcdsl.poly.loop_tree import Sequence as Children
from tcdsl.poly.scop import Access, Event, Kind, Scop, Statement


def barrier_statement(
    scop: Scop, name: str, around: Sequence[str], path: Sequence[Loop]
) -> Statement:
    """Return the statement { name[o] }: one instance for each iteration of *path* with work.

    All threads of a block meet it where one of them has work.
    """
    domain: isl.Set | None = None
    for statement in around:
        own = scop.by_name[statement].domain
        when: isl.Map | None = None
        for loop in path:
            aff = loop.coordinates[statement].function(own.get_space())
            one = isl.Map.from_pw_aff(isl.PwAff.from_aff(aff))
            when = one if when is None else when.flat_range_product(one)
        if when is None:
            image = isl.Set(f"{{ {name}[] }}").align_params(own.get_space())
        else:
            image = own.apply(when).set_tuple_name(name)
        domain = image if domain is None else domain.union(image)
    assert domain is not None
    for depth, loop in enumerate(path):
        if loop.kind is LoopKind.THREAD:
            domain = domain.eliminate(isl.dim_type.set, depth, 1)
            domain = within(domain, isl.dim_type.set, depth, 0, loop.width - 1)
    nowhere = isl.Map.empty(domain.get_space().map_from_domain_and_range(domain.get_space()))
    indices = tuple(f"o{depth}" for depth in range(len(path)))
    return Statement(
        name=name, domain=domain.coalesce(), indices=indices, n_left=len(indices),
        kind=Kind.BARRIER, write=Access("", (), nowhere), value=None, reads=(),
    )  # fmt: skip


def with_event_coordinates(loop: Loop, body: Node, barriers: Sequence[Statement]) -> Loop:
    """Return *loop* around *body*, with the coordinates of the barriers there."""
    inside = set(statements_of(body))
    new = {b.name: b for b in barriers if b.name in inside and b.name not in loop.coordinates}
    # A barrier's indices are the iterations of the loops around it, outermost first: this loop is
    # the last but as many as are between it and the barrier.
    coordinates = dict(loop.coordinates)
    for name, barrier in new.items():
        depth = len(barrier.indices) - 1 - _loops_between(body, name)
        coordinates[name] = Coordinate(depth)
    return replace(loop, body=body, coordinates=coordinates)


def _loops_between(node: Node, name: str) -> int:
    match node:
        case Loop(body=body):
            return 1 + _loops_between(body, name)
        case Children(children=children):
            inner = next(child for child in children if name in statements_of(child))
            return _loops_between(inner, name)
        case _:
            return 0


def event_statement(
    scop: Scop, name: str, around: Sequence[str], path: Sequence[Loop], event: Event, role: str
) -> Statement:
    """Return *event* as a statement of *role*, one instance for each iteration of *path*."""
    return replace(barrier_statement(scop, name, around, path), event=event, role=role)
