"""Kernels that share the blocks of one launch, by their loops."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tcdsl.costmodel.chip import load_chip
from tcdsl.plan.launches import MOVES, Known, Move, Part
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.loop_tree import (
    Coordinate,
    Leaf,
    Loop,
    LoopKind,
    Node,
    iterations_of,
    loops_around,
)
from tcdsl.poly.scop import Scop
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.packing import idle_blocks, packed, packed_grid, why_not_packed
from tcdsl.schedule.plan import Code, Kernel

TWO = "def f(float(N,M) x, float(K) z) -> (y, w) { y(i,j) = x(i,j)\n w(k) = z(k) }"
THREE = """def f(float(N) x, float(M) y, float(K) z) -> (u, v, w) {
    u(i) = x(i)  v(i) = y(i)  w(i) = z(i)
}"""
IMAGES = """def f(float(B,S,H) q, float(B,S,K) k) -> (u, v) {
    u(b,s,h) = q(b,s,h)  v(b,s,h) = k(b,s,h)
}"""
PACKED = next(move for move in MOVES if move.template == "packed")


@pytest.fixture
def scop(lower: Callable[..., Scop]) -> Scop:
    return lower(TWO, (100, 10), (30,))


def rows(width: int) -> Loop:
    """Return the loops of S0 over 100 rows and, along y, 10 columns, of *width* blocks."""
    columns = {"S0": Coordinate(1)}
    inner = Loop("c", columns, LoopKind.BLOCK, Leaf("S0"), 10, axis=1, width=width)
    return Loop("b", {"S0": Coordinate(0)}, LoopKind.BLOCK, inner, 100, width=100)


def along_x(statement: str, extent: int) -> Loop:
    """Return the loop of *statement* over *extent* elements, each on a block."""
    own = {statement: Coordinate(0)}
    return Loop(f"of {statement}", own, LoopKind.BLOCK, Leaf(statement), extent, width=extent)


def over(statement: str, heads: int) -> Loop:
    """Return the loops of *statement* over 5 positions, 3 images, *heads*, along x, y, z."""
    tree: Node = Leaf(statement)
    for dim, extent, axis in ((2, heads, 2), (0, 3, 1), (1, 5, 0)):
        own, name = {statement: Coordinate(dim)}, f"{statement}.{axis}"
        tree = Loop(name, own, LoopKind.BLOCK, tree, extent, axis=axis, width=extent)
    assert isinstance(tree, Loop)
    return tree


def heads_first(statement: str, heads: int) -> Loop:
    """Return the loops of *statement* over *heads*, 5 positions, 3 images, along x, y, z."""
    tree: Node = Leaf(statement)
    for dim, extent, axis in ((2, heads, 0), (1, 5, 1), (0, 3, 2)):
        own, name = {statement: Coordinate(dim)}, f"{statement}.{axis}"
        tree = Loop(name, own, LoopKind.BLOCK, tree, extent, axis=axis, width=extent)
    assert isinstance(tree, Loop)
    return tree


OTHER = along_x("S1", 30)


def blocks_of(scop: Scop, tree: Node, name: str, axis: int) -> tuple[int, int] | None:
    """Return the first and the last block along *axis* that run statement *name*."""
    (loop,) = (loop for loop in loops_around(tree, name) if loop.axis == axis)
    return iterations_of(scop.by_name[name].domain, loop.coordinates[name])


def test_kernels_lie_one_behind_the_other_along_the_axis_of_the_fewest_idle_blocks(
    scop: Scop,
) -> None:
    kernels = [Mapped(scop, rows(10)), Mapped(scop, OTHER)]
    assert why_not_packed(kernels) is None
    assert packed_grid(kernels) == (100, 11, 1)
    assert idle_blocks([one.grid for one in kernels]) == 1100 - 1000 - 30
    tree = packed(kernels)
    assert Mapped(scop, tree).grid == (100, 11, 1)
    assert [blocks_of(scop, tree, name, 1) for name in ("S0", "S1")] == [(0, 9), (10, 10)]
    assert blocks_of(scop, tree, "S1", 0) == (0, 29)


def test_no_blocks_are_idle_where_kernels_differ_along_one_axis_alone(
    lower: Callable[..., Scop],
) -> None:
    """Heads of queries and keys, in blocks over images, positions and tiles of heads."""
    scop = lower(IMAGES, (3, 5, 8), (3, 5, 2))
    kernels = [Mapped(scop, over(name, heads)) for name, heads in (("S0", 8), ("S1", 2))]
    assert packed_grid(kernels) == (5, 3, 10) and idle_blocks([one.grid for one in kernels]) == 0
    tree = packed(kernels)
    assert [blocks_of(scop, tree, name, 2) for name in ("S0", "S1")] == [(0, 7), (8, 9)]
    assert [blocks_of(scop, tree, name, 1) for name in ("S0", "S1")] == [(0, 2), (0, 2)]


def test_axes_are_turned_so_that_blocks_are_not_idle(lower: Callable[..., Scop]) -> None:
    """Keys of one head have no blocks along it: theirs over positions and images are x and y."""
    scop = lower(IMAGES, (3, 5, 8), (3, 5, 1))
    tree: Node = Leaf("S1")
    for dim, extent, axis in ((0, 3, 1), (1, 5, 0)):
        own = {"S1": Coordinate(dim)}
        tree = Loop(f"S1.{axis}", own, LoopKind.BLOCK, tree, extent, axis=axis, width=extent)
    kernels = [Mapped(scop, heads_first("S0", 8)), Mapped(scop, tree)]
    assert packed_grid(kernels) == (9, 5, 3)
    done = packed(kernels)
    found = [[blocks_of(scop, done, name, axis) for axis in range(3)] for name in ("S0", "S1")]
    assert found == [[(0, 7), (0, 4), (0, 2)], [(8, 8), (0, 4), (0, 2)]]


def test_a_grid_has_65535_blocks_along_y_and_z(lower: Callable[..., Scop]) -> None:
    """65530 and 6 along z would be too many: the axes are turned, and more blocks are idle."""
    scop = lower(IMAGES, (3, 5, 65530), (3, 5, 6))
    kernels = [Mapped(scop, over(name, heads)) for name, heads in (("S0", 65530), ("S1", 6))]
    assert packed_grid(kernels) == (6, 3, 65535)


def test_each_kernel_begins_behind_the_blocks_of_those_before_it(
    lower: Callable[..., Scop],
) -> None:
    extents = (100, 64, 30)
    scop = lower(THREE, *((extent,) for extent in extents))
    kernels = [Mapped(scop, along_x(f"S{n}", extent)) for n, extent in enumerate(extents)]
    tree = packed(kernels)
    assert (
        Mapped(scop, tree).grid == (194, 1, 1) and idle_blocks([one.grid for one in kernels]) == 0
    )
    own = [blocks_of(scop, tree, f"S{n}", 0) for n in range(3)]
    assert own == [(0, 99), (100, 163), (164, 193)]


def test_blocks_that_take_turns_share_no_launch(scop: Scop) -> None:
    kernels = [Mapped(scop, rows(4)), Mapped(scop, OTHER)]
    assert why_not_packed(kernels) == "a block has several iterations"


def parts(*kernels: Kernel) -> list[Part]:
    return [Part(kernel.name, kernel, (kernel,), None) for kernel in kernels]


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.template)
def test_what_a_library_has_shares_no_launch(move: Move, scop: Scop) -> None:
    own = parts(Kernel("k0", rows(10), library="cublas"), Kernel("k1", OTHER))
    known = Known(scop, dependences_of(scop), load_chip("h200"))
    assert move.why_not(own, known) == "cublas is called in the place of loops"


@pytest.mark.parametrize("early", [(True, True), (True, False), (False, True)])
def test_a_launch_starts_early_if_all_its_kernels_may(early: tuple[bool, bool], scop: Scop) -> None:
    codes = [replace(Code(), early=one) for one in early]
    own = parts(Kernel("k0", rows(10), code=codes[0]), Kernel("k1", OTHER, code=codes[1]))
    known = Known(scop, dependences_of(scop), load_chip("h200"))
    _, kernel = PACKED.made(own, {}, known, "barrier")
    assert kernel.code.early == all(early)
