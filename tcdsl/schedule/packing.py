"""Packing: kernels that do not depend on one another as one launch, whose blocks they share.

    K0:  BLOCK.x[100] b               BLOCK.x[164] b                  blocks 0 to 99
           S                            S
                          --->
    K1:  BLOCK.x[64] b                BLOCK.x[164] b + 100            blocks 100 to 163
           T                            T

One launch is saved, and the chip does not run empty between the two.  A block has the threads,
registers and shared memory that the more demanding kernel needs.

Legal iff no dependence is between the kernels, directly or through others, and none has blocks that
take turns.  Kernels of blocks along several axes lie one behind the other along one of them, with
their axes turned so that the fewest blocks are idle: those beyond what a kernel has along the other
axes.  After A. Li, B. Zheng, G. Pekhimenko, F. Long, Automatic horizontal fusion for GPU kernels,
CGO 2022, arXiv:2007.01277; and the packing of FusionStitching (Zheng et al., 2020,
arXiv:2009.10924).
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from math import inf, prod

from tcdsl.poly.loop_tree import (
    AffineCoordinate,
    Loop,
    LoopKind,
    Node,
    loops_of,
    sequence,
)
from tcdsl.poly.loop_tree import Sequence as Children
from tcdsl.schedule.grid_phases import why_not_one_launch, with_grid
from tcdsl.schedule.mapping import Dim3, Mapped

MOST_BLOCKS = (2**31 - 1, 65535, 65535)  # of a grid along x, y, z
TURNS: tuple[Dim3, ...] = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))


def why_not_packed(kernels: Sequence[Mapped]) -> str | None:
    """Return why the loops of *kernels* cannot share the blocks of a launch, or None."""
    if reason := why_not_one_launch(kernels):
        return reason
    for mapped in kernels:
        blocks = [loop for loop in loops_of(mapped.tree) if loop.kind is LoopKind.BLOCK]
        if not all(loop.has_one_iteration for loop in blocks):
            return "a block has several iterations"
    if grid_of(_grids(kernels)) is None:
        return "no axis of the grid has so many blocks"
    return None


def packed_grid(kernels: Sequence[Mapped]) -> Dim3:
    """Return the grid of *kernels* as one launch."""
    found = grid_of(_grids(kernels))
    assert found is not None, "why_not_packed"
    return found


def grid_of(grids: Sequence[Dim3]) -> Dim3 | None:
    """Return the grid of kernels with *grids* as one launch; None if there is none."""
    turned = list(map(_turned, grids, _turns(grids)))
    axis = _axis(turned)
    return None if axis is None else _along(turned, axis)


def idle_blocks(grids: Sequence[Dim3]) -> int:
    """Return how many blocks of the launch of kernels with *grids* have nothing to do."""
    grid = grid_of(grids)
    assert grid is not None, "why_not_packed"
    return prod(grid) - sum(map(prod, grids))


def packed(kernels: Sequence[Mapped]) -> Node:
    """Return the loops of *kernels* as those of one launch."""
    grid, turns = packed_grid(kernels), _turns(_grids(kernels))
    turned = list(map(_turned, _grids(kernels), turns))
    axis = _axis(turned)
    assert axis is not None, "why_not_packed"
    children, first = [], 0
    for mapped, own, turn in zip(kernels, turned, turns, strict=True):
        tree = with_grid(_with_axes(mapped.tree, turn), grid, may_split=False)
        children.append(_from(tree, axis, first))
        first += own[axis]
    return sequence(children)


def _grids(kernels: Sequence[Mapped]) -> list[Dim3]:
    return [mapped.grid for mapped in kernels]


def _turns(grids: Sequence[Dim3]) -> list[Dim3]:
    """Return along which axis of the launch each axis of each kernel is.

    One kernel after another, as few blocks are idle with those before it; of ways alike one that
    leaves its axes in their order.
    """
    found: list[Dim3] = []
    for number, grid in enumerate(grids, 1):
        ways = [[*found, turn] for turn in (TURNS if found else TURNS[:1])]
        blocks = [_blocks(list(map(_turned, grids[:number], way))) for way in ways]
        order = [_changes(grid, way[-1]) for way in ways]
        found = min(zip(blocks, order, ways, strict=True))[2]
    return found


def _changes(grid: Dim3, turn: Dim3) -> int:
    """Return how many pairs of axes of *grid* with several blocks *turn* puts in another order."""
    axes = [to for n, to in zip(grid, turn, strict=True) if n > 1]
    return sum(one > other for one, other in combinations(axes, 2))


def _turned(grid: Dim3, turn: Dim3) -> Dim3:
    """Return *grid*, each axis of which is that of *turn* instead."""
    x, y, z = (grid[turn.index(axis)] for axis in range(3))
    return x, y, z


def _with_axes(tree: Node, turn: Dim3) -> Node:
    """Return *tree* with its blocks along other axes, those of *turn*."""
    match tree:
        case Children(children=children):
            return sequence([_with_axes(child, turn) for child in children])
        case Loop(kind=LoopKind.BLOCK):
            return replace(tree, axis=turn[tree.axis], body=_with_axes(tree.body, turn))
        case _:
            return tree


def _blocks(grids: Sequence[Dim3]) -> float:
    """Return how many blocks the launch of kernels with *grids* has; infinity if there is none."""
    axis = _axis(grids)
    return inf if axis is None else prod(_along(grids, axis))


def _axis(grids: Sequence[Dim3]) -> int | None:
    """Return the axis along which kernels lie one behind the other, with the fewest idle blocks."""
    found = {axis: _along(grids, axis) for axis in range(3)}
    fitting = [
        axis
        for axis, grid in found.items()
        if all(n <= most for n, most in zip(grid, MOST_BLOCKS, strict=True))
    ]
    return min(fitting, key=lambda axis: prod(found[axis]), default=None)


def _along(grids: Sequence[Dim3], axis: int) -> Dim3:
    """Return the grid in which kernels with *grids* lie one behind the other along *axis*."""
    grid = [max(own[a] for own in grids) for a in range(3)]
    grid[axis] = sum(own[axis] for own in grids)
    x, y, z = grid
    return x, y, z


def _from(tree: Node, axis: int, first: int) -> Node:
    """Return *tree* with its blocks along *axis* from number *first* on."""
    match tree:
        case Children(children=children):
            return sequence([_from(child, axis, first) for child in children])
        case Loop(kind=LoopKind.BLOCK) if tree.axis == axis and first:
            shifted = {
                name: AffineCoordinate(((1, coordinate),), shift=-first)
                for name, coordinate in tree.coordinates.items()
            }
            extent = None if tree.extent is None else tree.extent + first
            return replace(tree, coordinates=shifted, extent=extent, limit=0)
        case Loop(kind=LoopKind.BLOCK):
            return replace(tree, body=_from(tree.body, axis, first))
        case _:
            return tree
