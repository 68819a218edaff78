"""Footprints: boxes that cover what an iteration touches, and no larger than need be."""

from collections.abc import Callable

import islpy as isl
import pytest

from tcdsl.poly.footprints import Box, Use, box_hull, footprint_of, outer_map
from tcdsl.poly.isl_utils import constant_bounds
from tcdsl.poly.loop_tree import AffineCoordinate, AnyCoordinate, Coordinate
from tcdsl.poly.scop import Scop

Lower = Callable[..., Scop]
Outer = tuple[AnyCoordinate, ...]

MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
STENCIL = "def f(float(N) x) -> (y) { y(i) = x(i) + x(i+1) + x(i+2) }"
PADDED = (
    "def f(float(N) x) -> (y)"
    " { y(i) = (i >= 1 ? x(i-1) : 0.0) + x(i) + (i < N - 1 ? x(i+1) : 0.0) }"
)
CONVOLUTION = """def f(float(N,C,H,W) I, float(F,C,KH,KW) G) -> (O) {
    O(n,f,h,w) +=! I(n,c,h+kh,w+kw) * G(f,c,kh,kw)
}"""


def tile(position: int, size: int, mod: int = 0) -> Coordinate:
    return Coordinate(position, 0, size, mod)


def uses_of(scop: Scop, array: str, outer: Outer) -> list[Use]:
    return [Use(s, r, outer) for s in scop.statements for r in s.reads if r.array == array]


def hull(scop: Scop, array: str, outer: Outer) -> Box:
    box = box_hull(scop, uses_of(scop, array, outer))
    assert box is not None
    return box


def assert_tight(scop: Scop, array: str, outer: Outer, box: Box) -> None:
    """The box covers the footprint, and both of its ends are touched in some iteration."""
    footprint = footprint_of(uses_of(scop, array, outer))
    rank = len(box.sizes)
    for dim, (offset, size) in enumerate(zip(box.offsets, box.sizes, strict=True)):
        one = footprint.project_out(isl.dim_type.out, dim + 1, rank - dim - 1)
        one = one.project_out(isl.dim_type.out, 0, dim).reset_tuple_id(isl.dim_type.out)
        distance = one.sum(isl.Map.from_aff(offset.neg())).range()
        assert constant_bounds(distance, 0) == (0, size - 1)


WHOLE: Outer = ()
STEP = AffineCoordinate(((8, Coordinate(3)), (1, tile(2, 64))))
NUMBER = AffineCoordinate(((1024, tile(0, 1152)), (1, STEP)))
CASES = [
    (MATMUL, [(100, 70), (70, 130)], "A", (tile(0, 64), tile(1, 64), tile(2, 16)), (64, 16)),
    (MATMUL, [(100, 70), (70, 130)], "B", (tile(0, 64), tile(1, 64), tile(2, 16)), (16, 64)),
    (MATMUL, [(100, 70), (70, 130)], "A", (tile(0, 64), tile(1, 64)), (64, 70)),
    (MATMUL, [(7, 5), (5, 3)], "A", (tile(0, 64), tile(2, 2)), (7, 2)),  # less than a tile
    (MATMUL, [(1, 1), (1, 1)], "A", (tile(0, 64), tile(2, 16)), (1, 1)),
    (MATMUL, [(100, 70), (70, 130)], "A", WHOLE, (100, 70)),
    # a tile in a tile
    (MATMUL, [(100, 70), (70, 9)], "A", (tile(0, 64), tile(0, 16, 4), tile(2, 8)), (16, 8)),
    (STENCIL, [(100,)], "x", (tile(0, 16),), (18,)),
    (STENCIL, [(100,)], "x", (Coordinate(0, -3, 16),), (18,)),
    (PADDED, [(100,)], "x", (tile(0, 64),), (66,)),  # clipped at both ends
    (PADDED, [(1,)], "x", (tile(0, 64),), (1,)),
    (CONVOLUTION, [(2, 8, 20, 21), (5, 8, 3, 4)], "I",
     (tile(0, 1), tile(1, 4), tile(2, 8), tile(3, 8), tile(4, 4)), (1, 4, 10, 11)),
    (CONVOLUTION, [(2, 8, 20, 21), (5, 8, 3, 4)], "G",
     (tile(0, 1), tile(1, 4), tile(2, 8), tile(3, 8), tile(4, 4)), (4, 4, 3, 4)),
    ("def f(float(N,M) x) -> (y) { y(i,j) = x(j,i) }", [(50, 60)], "x",
     (tile(0, 16), tile(1, 8)), (8, 16)),
    ("def f(float(N) x) -> (y) { y(i) = x(99 - i) where i in 0:100 }", [(100,)], "x",
     (tile(0, 64),), (64,)),
    ("def f(float(N) x) -> (y) { y(i) = x(2*i+1) where i in 0:49 }", [(100,)], "x",
     (tile(0, 8),), (15,)),
    ("def f(float(N) x) -> (y) { y(i) = x(i/2) where i in 0:100 }", [(50,)], "x",
     (tile(0, 8),), (4,)),
    ("def f(float(N) x) -> (y) { y(i) = x(i%4) where i in 0:100 }", [(50,)], "x",
     (tile(0, 8),), (4,)),
    ("def f(float(N) x) -> (y) { y(i) = i < 3 ? x(i) : 0.0 where i in 0:100 }", [(100,)], "x",
     (tile(0, 64),), (3,)),
    ("def f(float(N) x) -> (y) { y(i) = x(i/3) where i in 0:100 }", [(34,)], "x",
     (tile(0, 8),), (4,)),
    ("def f(float(N) x) -> (y) { y(i) = x(i+5) where i in 2:20 }", [(100,)], "x", WHOLE, (18,)),
    # clipped at both ends, and backwards
    ("def f(float(N) x) -> (y)"
     " { y(i) = (i >= 1 ? x(N-i) : 0.0) + (i < N - 1 ? x(N-2-i) : 0.0) where i in 0:N }",
     [(100,)], "x", (tile(0, 64),), (66,)),
    # a band: the bounds of j, and so the elements, move with i
    ("def f(float(N) x) -> (y) { y(i) +=! x(j) where i in 0:90, j in i:i+3 }", [(100,)], "x",
     (tile(0, 8),), (10,)),
    # along the diagonals
    ("def f(float(N) x) -> (y) { y(i,j) = x(i+j) where i in 0:30, j in 0:30 }", [(100,)], "x",
     (AffineCoordinate(((1, Coordinate(0)), (1, Coordinate(1)))),), (1,)),
    ("def f(float(N) x) -> (y) { y(i,j) = x(i+j) where i in 0:30, j in 0:30 }", [(100,)], "x",
     (AffineCoordinate(((1, tile(0, 8)), (1, tile(1, 8)))),), (15,)),
    # the terms of two indices and several tiles, numbered
    ("def f(float(L,N) x) -> (y) { y(m,n) +=! x(l,n) where m in 0:2048, k in 0:128 }",
     [(512, 100)], "x", (tile(0, 128, 9), tile(1, 192), NUMBER), (64, 100)),
    # triangular: rows of the tile differ in length
    ("def f(float(N,N) x) -> (y) { y(i) +=! x(i,j) where j in 0:i+1 }", [(50, 50)], "x",
     (tile(0, 8), tile(1, 8)), (8, 8)),
]  # fmt: skip


@pytest.mark.parametrize(("source", "shapes", "array", "outer", "sizes"), CASES)
def test_boxes_are_tight(
    source: str,
    shapes: list[tuple[int, ...]],
    array: str,
    outer: Outer,
    sizes: tuple[int, ...],
    lower: Lower,
) -> None:
    scop = lower(source, *shapes)
    box = hull(scop, array, outer)
    assert box.sizes == sizes
    assert_tight(scop, array, outer, box)


def test_offsets_move_with_the_iteration(lower: Lower) -> None:
    outer = (tile(0, 64), tile(1, 64), tile(2, 16))
    box = hull(lower(MATMUL, (200, 70), (70, 130)), "A", outer)
    first, second = box.offsets
    assert first.plain_is_equal(isl.Aff("{ [a, b, c] -> [64a] }"))
    assert second.plain_is_equal(isl.Aff("{ [a, b, c] -> [16c] }"))


def test_what_does_not_move_has_a_constant_offset(lower: Lower) -> None:
    box = hull(lower(MATMUL, (64, 70), (70, 130)), "A", (tile(0, 64), tile(1, 64)))
    assert all(offset.is_cst() for offset in box.offsets)


def test_a_scalar_has_a_box_without_dimensions(lower: Lower) -> None:
    scop = lower("def f(float s, float(N) x) -> (y) { y(i) = s * x(i) }", (), (9,))
    assert hull(scop, "s", (tile(0, 4),)).sizes == ()


@pytest.mark.parametrize("shapes", [[(0, 5), (5, 3)], [(4, 0), (0, 3)]])
def test_of_nothing_there_is_no_box(shapes: list[tuple[int, ...]], lower: Lower) -> None:
    scop = lower(MATMUL, *shapes)
    assert box_hull(scop, uses_of(scop, "A", (tile(0, 4), tile(2, 4)))) is None


def test_the_outer_map_is_the_coordinates(lower: Lower) -> None:
    update = lower(MATMUL, (7, 5), (5, 3)).by_name["S0"]
    outer = outer_map(update, (tile(0, 4), Coordinate(2, 1, 1, 2)))
    expected = isl.Map("{ S0[m, n, k] -> [floor(m/4), (k - 1) mod 2] }")
    assert outer.is_equal(expected)
    assert outer_map(update, ()).is_equal(isl.Map("{ S0[m, n, k] -> [] }"))
