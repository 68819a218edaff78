"""Phases: kernels that become one launch, with a barrier of all its blocks between them.

    K0:  BLOCK.x[512] b        BLOCK.x[264] b              blocks take b, b + 264
           S                     S
                       --->    barrier of all blocks
    K1:  BLOCK.x[64] b         BLOCK.x[264] b              most blocks have nothing to do
           T                     T

Loops over blocks get the width of the launch; where a kernel has fewer of them, one is split::

    K1:  BLOCK.x[4096] b       BLOCK.y[64] b / 4, BLOCK.x[4] b % 4

Legal iff all blocks are there at once, for one that waits leaves its multiprocessor to nobody: in
one *wave*, as many as threads, shared memory and registers allow (``__launch_bounds__`` holds the
compiler to the latter; the launch is cooperative, so that the driver refuses what would hang).
Nothing stays in registers or shared memory across the barrier: what two phases use is in memory.
After S. Xiao, W. Feng, Inter-block GPU communication via fast barrier synchronization, IPDPS 2010,
doi:10.1109/IPDPS.2010.5470477; and the global stitching of AStitch (Zheng et al., ASPLOS 2022,
doi:10.1145/3503222.3507723).
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import islpy as isl

from tcdsl.costmodel.chip import Chip
from tcdsl.poly.dependences import Dependence, Dependences
from tcdsl.poly.isl_utils import val
from tcdsl.poly.loop_tree import (
    AffineCoordinate,
    AnyCoordinate,
    Coordinate,
    Leaf,
    Loop,
    LoopKind,
    Node,
    loops_of,
    sequence,
    statements_of,
)
from tcdsl.poly.loop_tree import Sequence as Children
from tcdsl.poly.scop import Kind, Scop, Statement
from tcdsl.schedule.events import barrier_statement
from tcdsl.schedule.mapping import Dim3, Mapped
from tcdsl.schedule.placement import Placements, Space, accesses_of
from tcdsl.schedule.stitching import is_finished, last_loop

_ONE_BLOCK = AffineCoordinate(())


def grid_barriers(mapped: Mapped) -> list[Statement]:
    """Return the barriers of all blocks in a kernel, in order."""
    return [s for name in mapped.paths if (s := mapped.scop.by_name[name]).is_grid]


def has_phases(scop: Scop, tree: Node) -> bool:
    """Return whether the kernel *tree* has a barrier of all blocks."""
    return any(scop.by_name[name].is_grid for name in statements_of(tree))


# --- joining -----------------------------------------------------------------------------------


def why_not_one_launch(kernels: Sequence[Mapped]) -> str | None:
    """Return why *kernels* cannot be phases of one launch, or None."""
    if reason := why_not_shared(kernels):
        return reason
    for mapped in kernels:
        if mapped.has_roles:
            return "warps have roles"
        if any(loop.kind is LoopKind.COLLECTIVE for loop in loops_of(mapped.tree)):
            return "products of tensor cores keep what a block has"
    return None


def why_not_shared(kernels: Sequence[Mapped]) -> str | None:
    """Return why the blocks of a launch cannot run those of *kernels*, or None."""
    for mapped in kernels:
        if mapped.cluster > 1:
            return "blocks of a cluster start together"
        if last_loop(mapped.tree) is not None:
            return "the last block has a part of its own"
        if isinstance(mapped.tree, Children) and max(mapped.grid) > 1:
            return "one after another its blocks run several loops"
    shapes = {mapped.block for mapped in kernels}
    if len(shapes) > 1:
        listed = " and ".join(" x ".join(map(str, shape)) for shape in sorted(shapes))
        return f"their blocks differ: {listed} threads"
    return None


def joined(scop: Scop, trees: Sequence[Node], grid: Dim3, prefix: str) -> tuple[Scop, Node]:
    """Return *trees* as phases of one launch of *grid* blocks, and *scop* with the barriers."""
    barriers: list[Statement] = []
    children: list[Node] = []
    for tree in trees:
        if children:
            name = f"{prefix}_{len(barriers)}"
            around = list(statements_of(tree))
            barriers.append(replace(barrier_statement(scop, name, around, ()), is_grid=True))
            children.append(Leaf(name))
        children.append(with_grid(tree, grid))
    return scop.with_statements((*scop.statements, *barriers)), sequence(children)


def with_grid(tree: Node, grid: Dim3, *, may_split: bool = True) -> Node:
    """Return *tree*, the loops of a kernel, on *grid* blocks.

    :arg may_split: a loop, along axes that no loop has; else one block has all of these.
    """
    loops: list[Loop] = []
    while isinstance(tree, Loop) and tree.kind is LoopKind.BLOCK:
        loops.append(replace(tree, width=grid[tree.axis]))
        tree = tree.body
    missing = [a for a, n in enumerate(grid) if n > 1 and all(loop.axis != a for loop in loops)]
    for axis in missing:
        if loops and may_split:
            loops[-1:] = _split(loops[-1], axis, grid[axis])
        else:
            nowhere = dict.fromkeys(statements_of(tree), _ONE_BLOCK)
            name = f"{next(iter(nowhere))}.{axis}"
            loops.append(Loop(name, nowhere, LoopKind.BLOCK, tree, 1, axis=axis, width=grid[axis]))
    for loop in reversed(loops):
        tree = replace(loop, body=tree)
    return tree


def _split(loop: Loop, axis: int, width: int) -> tuple[Loop, Loop]:
    """Return *loop* as two: the inner one has *width* iterations, on the blocks along *axis*."""
    extent = None if loop.extent is None else -(-loop.extent // width)
    outer = {name: _quotient(c, width) for name, c in loop.coordinates.items()}
    inner = {name: _remainder(c, width) for name, c in loop.coordinates.items()}
    return (
        replace(loop, coordinates=outer, extent=extent, limit=0),
        replace(loop, name=f"{loop.name}.{axis}", coordinates=inner, extent=width, axis=axis,
                width=width),
    )  # fmt: skip


def _quotient(coordinate: AnyCoordinate, width: int) -> AnyCoordinate:
    if isinstance(coordinate, Coordinate) and coordinate.mod % width == 0:
        mod = coordinate.mod // width
        return replace(coordinate, div=coordinate.div * width, mod=mod)
    return AffineCoordinate(((1, coordinate),), div=width)


def _remainder(coordinate: AnyCoordinate, width: int) -> AnyCoordinate:
    if isinstance(coordinate, Coordinate) and coordinate.mod % width == 0:
        return replace(coordinate, mod=width)
    return AffineCoordinate(((1, coordinate),), mod=width)


def common_grid(grids: Sequence[Dim3], most: int) -> Dim3:
    """Return a grid of at most *most* blocks for kernels of *grids*: the largest one's, cut.

    The longest axis is cut first, into iterations of equal numbers of blocks.
    """
    grid = list(max(grids, key=prod))
    while prod(grid) > most:
        axis = max(range(3), key=lambda a: grid[a])
        room = max(1, most // (prod(grid) // grid[axis]))
        iterations = max(2, -(-grid[axis] // room))
        grid[axis] = -(-grid[axis] // iterations)
    x, y, z = grid
    return x, y, z


# --- is it legal -------------------------------------------------------------------------------


def is_separated(mapped: Mapped, source: str, sink: str) -> bool:
    """Return whether a barrier of all blocks stands between *source* and *sink*, once."""
    if not isinstance(mapped.tree, Children):
        return False
    place = {n: i for i, child in enumerate(mapped.tree.children) for n in statements_of(child)}
    between = mapped.tree.children[place[source] + 1 : place[sink]]
    return any(isinstance(c, Leaf) and mapped.scop.by_name[c.statement].is_grid for c in between)


def why_not_across_blocks(mapped: Mapped, dependences: Dependences) -> str | None:
    """Return a dependence between blocks that no barrier of all of them orders, or None.

    Loops over blocks that both ends are in are judged by ``verify.why_not_free_of_races``.
    """
    for edge in dependences.edges:
        ends = edge.source, edge.sink
        if not all(name in mapped.paths for name in ends) or is_separated(mapped, *ends):
            continue
        if edge.is_relaxed and mapped.scop.by_name[edge.source].is_atomic:
            continue
        own, other = ([lp for lp in mapped.paths[n] if lp.kind is LoopKind.BLOCK] for n in ends)
        if own == other or is_finished(mapped, *ends):
            continue
        if not edge.relation.is_subset(_on_one_block(mapped, edge)):
            return f"no barrier of all blocks is between {edge.source} and {edge.sink}"
    return None


def _on_one_block(mapped: Mapped, edge: Dependence) -> isl.Map:
    """Return the pairs of *edge* that one block runs."""
    same = edge.relation
    for axis in range(3):
        if mapped.grid[axis] > 1:
            ends = [block_of(mapped, name, axis) for name in (edge.source, edge.sink)]
            same = same.intersect(ends[0].eq_map(ends[1]))
    return same


def block_of(mapped: Mapped, name: str, axis: int) -> isl.MultiPwAff:
    """Return which block along *axis* runs an instance of *name*; there is a loop over these."""
    space = mapped.scop.by_name[name].domain.get_space()
    loops = (lp for lp in mapped.paths[name] if lp.kind is LoopKind.BLOCK and lp.axis == axis)
    aff = next(loops).coordinates[name].function(space).mod_val(val(mapped.grid[axis]))
    return isl.MultiPwAff.from_pw_aff(isl.PwAff.from_aff(aff))


def why_not_at_once(mapped: Mapped, placements: Placements, beside: int, gpu: Chip) -> str | None:
    """Return why not all blocks of a kernel with phases are there at once, or None.

    :arg beside: blocks of a multiprocessor that the compiler keeps registers for.
    """
    if not has_phases(mapped.scop, mapped.tree):
        return None
    blocks = prod(mapped.grid)
    room = min(max(beside, 1), resident_blocks(mapped, placements, gpu))
    if mapped.cluster > 1:
        return "a barrier of all blocks is in a kernel with clusters"
    for barrier in grid_barriers(mapped):
        if mapped.paths[barrier.name]:
            return f"not every block comes to {barrier.name} once"
    if blocks > room * gpu.multiprocessors:
        at_once = room * gpu.multiprocessors
        return f"{blocks} blocks wait for one another, of which {at_once} are there at once"
    return None


def resident_blocks(mapped: Mapped, placements: Placements, gpu: Chip) -> int:
    """Return how many blocks a multiprocessor has room for, by threads and shared memory."""
    threads = prod(mapped.launched())
    warps = -(-threads // gpu.threads_per_warp)
    shared = shared_bytes(mapped, placements) + gpu.reserved_shared_bytes_per_block
    return min(
        gpu.threads_per_multiprocessor // (warps * gpu.threads_per_warp),
        gpu.shared_bytes_per_multiprocessor // shared,
        gpu.blocks_per_multiprocessor,
    )


def shared_bytes(mapped: Mapped, placements: Placements) -> int:
    """Return at least as much shared memory as a block of the kernel takes."""
    scop, total = mapped.scop, 0
    for placement in placements.values():
        users = {s.name for s, _ in accesses_of(scop, placement.array)}
        if placement.space is Space.SHARED and users & mapped.paths.keys():
            size_bytes = placement.elements() * scop.arrays[placement.array].dtype.size_bytes
            total += -(-size_bytes // 16) * 16
    folds = sum(scop.by_name[name].kind is Kind.FOLD for name in mapped.paths)
    return total + 16 * (folds + 1) * prod(mapped.block) * bool(folds)
