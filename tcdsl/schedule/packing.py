"""Packing: kernels that do not depend on one another as one launch, whose blocks they share.

    K0:  BLOCK.x[100] b               BLOCK.x[164] b                  blocks 0 to 99
           S                            S
                          --->
    K1:  BLOCK.x[64] b                BLOCK.x[164] b + 100            blocks 100 to 163
           T                            T

One launch is saved, and the chip does not run empty between the two.  A block has the threads,
registers and shared memory that the more demanding kernel needs.

Legal iff no dependence is between the kernels, directly or through others, and none has blocks that
take turns.  Kernels of blocks along several axes lie one behind the other along one of them, the
one with the fewest idle blocks: those beyond what a kernel has along the other axes.  After A. Li,
B. Zheng, G. Pekhimenko, F. Long, Automatic horizontal fusion for GPU kernels, CGO 2022,
arXiv:2007.01277; and the packing of FusionStitching (Zheng et al., 2020, arXiv:2009.10924).
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
)
from tcdsl.poly.loop_tree import Sequence as Children
from tcdsl.schedule.grid_phases import why_not_one_launch, with_grid
from tcdsl.schedule.mapping import Dim3, Mapped

MOST_BLOCKS = (2**31 - 1, 65535, 65535)  # of a grid along x, y, z


def why_not_packed(kernels: Sequence[Mapped]) -> str | None:
    """Return why the loops of *kernels* cannot share the blocks of a launch, or None."""
    if reason := why_not_one_launch(kernels):
        return reason
    for mapped in kernels:
        blocks = [loop for loop in loops_of(mapped.tree) if loop.kind is LoopKind.BLOCK]
        if not all(loop.has_one_turn for loop in blocks):
            return "a block has several iterations"
    if _axis(kernels) is None:
        return "no axis of the grid has so many blocks"
    return None


def packed_grid(kernels: Sequence[Mapped]) -> Dim3:
    """Return the grid of *kernels* as one launch."""
    axis = _axis(kernels)
    assert axis is not None, "why_not_packed"
    return _along(kernels, axis)


def packed(kernels: Sequence[Mapped]) -> Node:
    """Return the loops of *kernels* as those of one launch."""
    axis, grid = _axis(kernels), packed_grid(kernels)
    assert axis is not None, "why_not_packed"
    children, first = [], 0
    for mapped in kernels:
        children.append(_from(with_grid(mapped.tree, grid, may_split=False), axis, first))
        first += mapped.grid[axis]
    return sequence(children)


def _axis(kernels: Sequence[Mapped]) -> int | None:
    """Return the axis along which kernels lie one behind the other, with the fewest idle blocks."""
    grids = {axis: _along(kernels, axis) for axis in range(3)}
    fitting = [axis for axis, grid in grids.items() if grid[axis] <= MOST_BLOCKS[axis]]
    return min(fitting, key=lambda axis: prod(grids[axis]), default=None)


def _along(kernels: Sequence[Mapped], axis: int) -> Dim3:
    """Return the grid in which *kernels* lie one behind the other along *axis*."""
    grid = [max(mapped.grid[a] for mapped in kernels) for a in range(3)]
    grid[axis] = sum(mapped.grid[axis] for mapped in kernels)
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


def idle_blocks(kernels: Sequence[Mapped]) -> int:
    """Return how many blocks of the launch have nothing to do."""
    return prod(packed_grid(kernels)) - sum(prod(mapped.grid) for mapped in kernels)
