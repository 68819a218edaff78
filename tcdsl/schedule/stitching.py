"""Stitching: what a kernel has left to do, done by the last of its blocks.

Let K run on the blocks (g, c), and let F, which would be the next kernel, need blocks g only::

    K:  BLOCK.y g                          BLOCK.y g
          BLOCK.x c                          BLOCK.x c
            part[c, g] = ...                   part[c, g] = ...
    F:  BLOCK.y g               --->         LAST                   the last of the blocks (., g)
          for c: y[g] += part[c, g]            for c: y[g] += part[c, g]

A block that is done with K takes a ticket of its g.  Whoever takes the last one knows that all
others are done and, through the fences around the ticket, sees what they have stored.  F's order
does not depend on who that is: results are the same every run.

Legal iff no dependence from K to F leaves a g (F is below the loops over g that K has, and these
carry no dependence), and every block takes exactly one ticket: no loop over blocks has a second
turn.  One launch is saved, and the time in which the chip runs empty between two.  After the last
block's reduction in NVIDIA's threadFenceReduction sample; FusionStitching (Zheng et al., 2020,
arXiv:2009.10924) stitches whole kernels with barriers between all blocks, for which they must all
fit the chip at once: tickets need not.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from tcdsl.poly.loop_tree import (
    AffineCoordinate,
    Loop,
    LoopKind,
    Node,
    loops_of,
    sequence,
    statements_of,
)
from tcdsl.poly.loop_tree import Sequence as Children
from tcdsl.schedule.mapping import Mapped

MAX_TICKETS = 8192  # of a kernel: they have a place of this size in the workspace


def last_loop(tree: Node) -> Loop | None:
    """Return the loop that the last of the blocks runs, if the kernel *tree* has one."""
    return next((loop for loop in loops_of(tree) if loop.kind is LoopKind.LAST), None)


def kept_axes(mapped: Mapped) -> list[int]:
    """Return the axes of the grid along which every block has a last loop of its own."""
    last = last_loop(mapped.tree)
    assert last is not None
    name = next(statements_of(last.body))
    return [loop.axis for loop in mapped.paths[name] if loop.kind is LoopKind.BLOCK]


def ticket_count(mapped: Mapped) -> int:
    """Return how many tickets a kernel with a last loop takes."""
    return prod(mapped.grid[axis] for axis in kept_axes(mapped))


def stitch(tree: Node, follower: Node, name: str) -> Node | None:
    """Return *tree* with *follower* run by its last blocks, None if they do not fit together.

    The loops over blocks of *follower* must be the outermost ones of *tree*.

    :arg name: of the LAST loop.
    """
    kept = _blocks_of(follower)
    around = _blocks_of(tree)
    if not around and not kept:  # one block: barriers will do
        return sequence([tree, follower])
    if len(kept) >= len(around) or any(map(_is_apart, around, kept)):
        return None
    if not all(loop.has_one_iteration for loop in around):
        return None
    if prod(loop.width for loop in kept) > MAX_TICKETS:
        return None
    width = prod(loop.width for loop in around[len(kept) :])
    body, rest = _below(follower, len(kept)), _below(tree, len(kept))
    if isinstance(rest, Children):  # there is a last block already: it does this too
        return None
    nowhere = {statement: AffineCoordinate(()) for statement in statements_of(body)}
    last = Loop(name, nowhere, LoopKind.LAST, body, 1, width=width)
    stitched = sequence([rest, last])
    for own, other in reversed(list(zip(around, kept, strict=False))):
        both = {**own.coordinates, **other.coordinates}
        stitched = replace(own, coordinates=both, body=stitched)
    return stitched


def _blocks_of(tree: Node) -> list[Loop]:
    """Return the loops over blocks around all of *tree*, outermost first."""
    found = []
    while isinstance(tree, Loop) and tree.kind is LoopKind.BLOCK:
        found.append(tree)
        tree = tree.body
    return found


def _is_apart(own: Loop, other: Loop) -> bool:
    """Return whether two loops over blocks are not one."""
    return (own.axis, own.width, own.limit, own.extent) != (
        other.axis, other.width, other.limit, other.extent
    )  # fmt: skip


def _below(tree: Node, depth: int) -> Node:
    for _ in range(depth):
        assert isinstance(tree, Loop)
        tree = tree.body
    return tree


def is_finished(mapped: Mapped, source: str, sink: str) -> bool:
    """Return whether *sink* is run by the last block after *source*."""
    ran = {loop.name for loop in mapped.paths[source]}
    return any(loop.kind is LoopKind.LAST and loop.name not in ran for loop in mapped.paths[sink])


def why_not_stitched(mapped: Mapped) -> str | None:
    """Return why the LAST loops of a kernel are not what every block comes to once, or None.

    That dependences into them stay within the loops around is checked with all others: these
    loops are shared, and concurrent.
    """
    lasts = [loop for loop in loops_of(mapped.tree) if loop.kind is LoopKind.LAST]
    if not lasts:
        return None
    if len(lasts) > 1:
        return "two loops are run by the last block"
    (last,) = lasts
    for name, path in mapped.paths.items():
        blocks = [loop for loop in path if loop.kind is LoopKind.BLOCK]
        if not all(loop.has_one_iteration for loop in blocks):
            return f"a block runs several iterations of a loop around {name}"
        if last in path and path[len(blocks)] is not last:
            return f"not every thread comes to the last block's loop {last.name}"
        if last in path and last.width != _arriving(mapped, blocks):
            return f"{last.name} waits for {last.width} blocks, others arrive"
        if last not in path and len(blocks) < sum(width > 1 for width in mapped.grid):
            return f"{name} is not of the blocks that {last.name} waits for"
    return None


def _arriving(mapped: Mapped, kept: Sequence[Loop]) -> int:
    """Return how many blocks of the grid share their iteration of the loops *kept*."""
    axes = {loop.axis for loop in kept}
    return prod(width for axis, width in enumerate(mapped.grid) if axis not in axes)
