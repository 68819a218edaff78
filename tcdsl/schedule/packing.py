"""Packing: kernels that do not depend on one another as one launch, whose blocks they share.

    K0:  BLOCK.x[100] b               BLOCK.x[164] b                  blocks 0 to 99
           S                            S
                          --->
    K1:  BLOCK.x[64] b                BLOCK.x[164] b + 100            blocks 100 to 163
           T                            T

One launch is saved, and the chip does not run empty between the two.  A block has the threads,
registers and shared memory that the more demanding kernel needs.

Legal iff no dependence is between the kernels, directly or through others, and none has blocks that
take turns.  Where warps have roles, all kernels have such warps, as many in a block; each has the
stages and the events of its own pipeline (pipelines.py).  Kernels of blocks along several axes lie
one behind the other along one of them, with their axes turned so that the fewest blocks are idle:
those beyond what a kernel has along the other axes.  After A. Li, B. Zheng, G. Pekhimenko, F. Long,
Automatic horizontal fusion for GPU kernels, CGO 2022, arXiv:2007.01277; and the packing of
FusionStitching (Zheng et al., 2020, arXiv:2009.10924).
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from math import inf, prod

import islpy as isl

from tcdsl.poly.isl_utils import constant_bounds
from tcdsl.poly.loop_tree import (
    AffineCoordinate,
    AnyCoordinate,
    Coordinate,
    Loop,
    LoopKind,
    Node,
    loops_of,
    sequence,
)
from tcdsl.poly.loop_tree import Sequence as Children
from tcdsl.records import dataclass
from tcdsl.schedule.grid_phases import block_of, why_not_shared, with_grid
from tcdsl.schedule.mapping import Dim3, Mapped

MOST_BLOCKS = (2**31 - 1, 65535, 65535)  # of a grid along x, y, z
TURNS: tuple[Dim3, ...] = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))


def why_not_packed(kernels: Sequence[Mapped]) -> str | None:
    """Return why the loops of *kernels* cannot share the blocks of a launch, or None."""
    if reason := why_not_shared(kernels) or _why_not_in_roles(kernels):
        return reason
    for mapped in kernels:
        blocks = [loop for loop in loops_of(mapped.tree) if loop.kind is LoopKind.BLOCK]
        if not all(loop.has_one_iteration for loop in blocks):
            return "a block has several iterations"
    if grid_of(_grids(kernels)) is None:
        return "no axis of the grid has so many blocks"
    return None


def _why_not_in_roles(kernels: Sequence[Mapped]) -> str | None:
    """Return why the warps of *kernels* cannot have the same roles, or None."""
    if len({mapped.has_roles for mapped in kernels}) > 1:
        return "warps of one have roles, those of another none"
    if any(prod(mapped.neighbours) > 1 for mapped in kernels):
        return "blocks of a cluster start together"
    if kernels[0].has_roles:
        return None
    if any(
        loop.kind is LoopKind.COLLECTIVE for mapped in kernels for loop in loops_of(mapped.tree)
    ):
        return "products of tensor cores keep what a block has"
    return None


def why_not_one_part(mapped: Mapped) -> str | None:
    """Return why some block of a launch runs two of its parts, or None.

    They have the same shared memory and the same barriers.
    """
    parts = mapped.parts if len(mapped.parts) > 1 else ()
    for one, other in combinations([_blocks_of(part) for part in parts], 2):
        if not one.is_disjoint(other):
            return "a block runs two parts of its launch"
    return None


@dataclass(frozen=True, eq=False)
class Blocks:
    """A part of a launch as if it were alone: its blocks are *count* ones from *first* on."""

    part: Mapped
    first: Dim3
    count: Dim3


def own_blocks(mapped: Mapped) -> tuple[int, tuple[Blocks, ...]]:
    """Return the parts of *mapped*, and along which axis their blocks lie, in order."""
    found = []
    for part in mapped.parts:
        blocks, first, count = _blocks_of(part), [0, 0, 0], [1, 1, 1]
        along = (axis for axis, n in enumerate(part.grid) if n > 1)
        for dim, axis in enumerate(along):
            bounds = constant_bounds(blocks, dim)
            assert bounds is not None, "blocks are counted"
            first[axis], count[axis] = bounds[0], bounds[1] - bounds[0] + 1
        tree = part.tree
        for axis in range(3):
            tree = _from(tree, axis, -first[axis])
        own = with_grid(tree, _dims(count), may_split=False)
        found.append(Blocks(Mapped(part.scop, own), _dims(first), _dims(count)))
    ends = (own.first for own in found)
    axis = next((axis for axis, n in enumerate(max(ends)) if n), 0)
    return axis, tuple(found)


def _dims(own: Sequence[int]) -> Dim3:
    x, y, z = own
    return x, y, z


def _blocks_of(part: Mapped) -> isl.Set:
    """Return the blocks that run an instance of *part*, along those of x, y, z with several."""
    found: isl.Set | None = None
    for name in part.paths:
        domain = part.scop.by_name[name].domain
        along: isl.Map | None = None
        for axis in (axis for axis, count in enumerate(part.grid) if count > 1):
            aff = block_of(part, name, axis)
            own = isl.Map.from_multi_pw_aff(aff).intersect_domain(domain)
            along = own if along is None else along.flat_range_product(own)
        assert along is not None, "a launch of several parts has several blocks"
        blocks = along.range()
        found = blocks if found is None else found.union(blocks)
    assert found is not None, "a part has statements"
    return found


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


def _from_first(coordinate: AnyCoordinate, first: int) -> AnyCoordinate:
    """Return *coordinate* and *first* more; the digits of a dimension stay such."""
    if isinstance(coordinate, Coordinate) and not coordinate.mod:
        return replace(coordinate, shift=coordinate.shift - first * coordinate.div)
    return AffineCoordinate(((1, coordinate),), shift=-first)


def _from(tree: Node, axis: int, first: int) -> Node:
    """Return *tree* with its blocks along *axis* from number *first* on."""
    match tree:
        case Children(children=children):
            return sequence([_from(child, axis, first) for child in children])
        case Loop(kind=LoopKind.BLOCK) if tree.axis == axis and first:
            shifted = {
                name: _from_first(coordinate, first)
                for name, coordinate in tree.coordinates.items()
            }
            extent = None if tree.extent is None else tree.extent + first
            return replace(tree, coordinates=shifted, extent=extent, limit=0)
        case Loop(kind=LoopKind.BLOCK):
            return replace(tree, body=_from(tree.body, axis, first))
        case _:
            return tree
