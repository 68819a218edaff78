"""Loops of which isl prints each iteration in one place.

Where a statement runs in the first iterations of a loop alone, and nothing has to run before it,
isl prints it before the C loop (and one of the last iterations after it)::

    for i in 0:9                           s = 0
      if i == 0: s = 0        isl          for i in 0:9
      t = x[i]                --->           t = x[i]
      if i == 0: s += t                      if i == 0: s += t

The order is right, but ``s``, a local array of one iteration, is then in two scopes.  A *frame*, a
statement that does nothing, at either end of every iteration forbids it: what stands between frames
comes after some of them and before others.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

import islpy as isl

from tcdsl.poly.loop_tree import (
    Coordinate,
    Leaf,
    Loop,
    Node,
    loops_around,
    loops_of,
    sequence,
    statements_of,
    values_of,
)
from tcdsl.poly.scop import Access, Kind, Scop, Statement


def framed(scop: Scop, tree: Node, whole: Collection[str]) -> tuple[Scop, Node]:
    """Return *scop* and *tree* with frames in the loops called *whole*, where they are needed.

    Where all statements run in the same iterations isl prints these whole anyway.
    """
    for loop in [loop for loop in loops_of(tree) if loop.name in whole]:
        names = list(statements_of(loop.body))
        path = [*_outside(tree, loop), loop]
        ranges = [values_of(scop, name, path).range() for name in names]
        if all(own.is_equal(ranges[0]) for own in ranges[1:]):
            continue
        frames = [_frame(f"{loop.name}.{end}", ranges) for end in ("first", "last")]
        scop = scop.with_statements((*scop.statements, *frames))
        tree = _with_frames(tree, loop.name, frames[0], frames[1])
    return scop, tree


def _outside(tree: Node, loop: Loop) -> tuple[Loop, ...]:
    """Return the loops around *loop*, outermost first."""
    path = loops_around(tree, next(statements_of(loop.body)))
    return path[: [outer.name for outer in path].index(loop.name)]


def _frame(name: str, ranges: Sequence[isl.Set]) -> Statement:
    """Return the statement that runs once in every iteration of *ranges*."""
    domain = ranges[0]
    for own in ranges[1:]:
        domain = domain.union(own)
    domain = domain.coalesce().set_tuple_name(name)
    nowhere = isl.Map.empty(domain.get_space().map_from_domain_and_range(domain.get_space()))
    indices = tuple(f"o{depth}" for depth in range(domain.dim(isl.dim_type.set)))
    return Statement(
        name=name, domain=domain, indices=indices, n_left=len(indices), kind=Kind.BARRIER,
        write=Access("", (), nowhere), value=None, reads=(),
    )  # fmt: skip


def _with_frames(node: Node, loop: str, first: Statement, last: Statement, depth: int = 0) -> Node:
    """Return *node* with the frames at both ends of the body of *loop*."""
    match node:
        case Loop(name=name, body=body):
            if name == loop:
                body = sequence([Leaf(first.name), body, Leaf(last.name)])
            else:
                body = _with_frames(body, loop, first, last, depth + 1)
            is_around = first.name in statements_of(body)
            own = {f.name: Coordinate(depth) for f in (first, last) if is_around}
            return replace(node, coordinates={**node.coordinates, **own}, body=body)
        case Leaf():
            return node
        case _:
            children = [_with_frames(n, loop, first, last, depth) for n in node.children]
            return sequence(children)
