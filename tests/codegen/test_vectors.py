"""Vector accesses: proofs of contiguity and alignment, and scalars where there is none."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.cuda.vectors import vector_accesses
from tcdsl.lang.ranges.binding import bind_sizes
from tcdsl.lang.ranges.specialiser import specialise
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.types.sema import analyse
from tcdsl.poly.loop_tree import AffineCoordinate, AnyCoordinate, Coordinate, Leaf, Loop, LoopKind
from tcdsl.poly.lowering import lower_comprehension
from tcdsl.poly.scop import Scop
from tcdsl.schedule.placement import FIXED, LocalDim, Placement, Space
from tcdsl.source import Source

MakeUnit = Callable[..., Any]
CheckAll = Callable[..., None]
Strides = Mapping[str, tuple[int, ...]]

COPY = "def f(float(N) x) -> (y) { y(i) = x(i) }"
ROWS = "def f(float(M,N) x) -> (y) { y(i,j) = x(i,j) }"
BIG = 100_000  # elements that are worth vectors


def scop_of(source: str, *shapes: tuple[int, ...], strides: Strides | None = None) -> Scop:
    c = analyse(parse_program(Source(source)))[-1]
    special = specialise(c, bind_sizes(c, dict(zip(c.inputs, shapes, strict=True))))
    return lower_comprehension(c, special, strides or {}, False)


def wide(
    scop: Scop,
    width: int = 4,
    dim: int = 0,
    at: AnyCoordinate | None = None,
    places: Mapping[str, Placement] | None = None,
    name: str = "S0",
) -> set[str]:
    """Return the arrays that move *width* elements at once, "=y" for what is written."""
    statement = scop.by_name[name]
    loop = Loop("v", {name: at or Coordinate(dim, 0, 1, width)}, LoopKind.LANES, Leaf(name), width)
    found = vector_accesses(scop, statement, loop, width, places or {})
    names = [f"={a.array}" for a in statement.writes] + [a.array for a in statement.reads]
    return {names[position] for position in found}


def test_neighbours_move_together() -> None:
    assert wide(scop_of(COPY, (64,))) == {"=y", "x"}


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        ("x(i + 4)", {"=y", "x"}),
        ("x(i + 1)", {"=y"}),  # begins at 1, 5, ...
        ("x(i + 2)", {"=y"}),
        ("x(2 * i)", {"=y"}),
        ("x(N - 1 - i)", {"=y"}),
        ("x(i / 2)", {"=y"}),
        ("x(0)", {"=y"}),
    ],
)
def test_offsets_steps_and_directions(read: str, expected: set[str]) -> None:
    source = f"def f(float(N) x) -> (y) {{ y(i) = {read} where i in 0:20 }}"
    assert wide(scop_of(source, (64,))) == expected


@pytest.mark.parametrize(
    ("columns", "expected"),
    [(64, {"=y", "x"}), (62, set()), (61, set()), (4, {"=y", "x"}), (3, set())],
)
def test_every_row_begins_at_a_multiple(columns: int, expected: set[str]) -> None:
    assert wide(scop_of(ROWS, (5, columns)), dim=1) == expected


def test_half_a_vector_fits_where_a_whole_one_does_not() -> None:
    scop = scop_of(ROWS, (5, 62))
    assert wide(scop, width=2, dim=1) == {"=y", "x"} and wide(scop, width=4, dim=1) == set()


@pytest.mark.parametrize(
    ("strides", "expected"),
    [
        ((64, 1), {"=y", "x"}), ((68, 1), {"=y", "x"}), ((65, 1), {"=y"}), ((66, 1), {"=y"}),
        ((128, 2), {"=y"}), ((1, 5), {"=y"}), ((-64, 1), {"=y", "x"}), ((64, -1), {"=y"}),
        ((0, 1), {"=y", "x"}), ((64, 0), {"=y"}),
    ],
)  # fmt: skip
def test_views(strides: tuple[int, int], expected: set[str]) -> None:
    assert wide(scop_of(ROWS, (5, 64), strides={"x": strides}), dim=1) == expected


def test_lanes_along_another_dimension_are_no_neighbours() -> None:
    assert wide(scop_of(ROWS, (8, 64)), dim=0) == set()


def test_a_row_that_all_rows_share() -> None:
    source = "def f(float(M,N) x, float(N) b, float(M) c) -> (y) { y(i,j) = x(i,j) * b(j) + c(i) }"
    assert wide(scop_of(source, (5, 64), (64,), (5,)), dim=1) == {"=y", "x", "b"}


def test_a_guarded_read_touches_only_what_it_may() -> None:
    source = "def f(float(N) x) -> (y) { y(i) = i >= 4 ? x(i - 4) : 0.0 where i in 0:N }"
    assert wide(scop_of(source, (64,))) == {"=y"}


@pytest.mark.parametrize(
    ("guard", "expected"),
    [
        ("j >= 32", {"=y", "x"}),  # whole vectors or none
        ("j >= 32 && j < 48", {"=y", "x"}),
        ("j >= 32 && i > 1", {"=y", "x"}),
        ("j >= 30", {"=y"}),
        ("j >= 32 && j < 50", {"=y"}),
        ("i < j", {"=y"}),
        ("j >= 64", {"=y"}),  # never
        ("x(i, 0) > 0.0", {"=y", "x"}),  # there wherever data say so
        ("j >= 32 && x(i, 0) > 0.0", {"=y"}),  # data may say it of a part of a vector
    ],
)
def test_a_guarded_read_of_whole_vectors(guard: str, expected: set[str]) -> None:
    source = f"def f(float(M,N) x) -> (y) {{ y(i,j) = {guard} ? x(i,j) : 1.0 }}"
    scop = scop_of(source, (5, 64))
    assert wide(scop, dim=1) == expected


HALVES = """def f(bfloat16(M,N) x, bfloat16(N) w) -> (y) {
    y(m, n) = x(m, n) * w(n) + (n < N / 2 ? -x(m, n + N / 2) : x(m, n - N / 2)) * w(N - 1 - n)
}"""
PARTLY = """def f(float(M,N) x, float(M,N) z) -> (y) {
    y(m, n) = (n >= 8 && m > 2 ? x(m, n - 8) : z(m, n)) + (n >= N - 4 ? z(m, n) : 2.0)
}"""
ITSELF = "def f(float(M,N) y) -> (y) { y(m, n) = n < 16 ? 2.0 * y(m, n) : 3.0 }"


def test_guarded_vectors(cuda_unit: MakeUnit, check_emulated: CheckAll) -> None:
    text = cuda_unit(PARTLY, (600, 128), (600, 128)).source.text
    assert text.count("tc_vload_if<4>(&x[") == 1
    cases = [(HALVES, [(m, n), (n,)]) for m, n in ((600, 128), (37, 48), (5, 36), (3, 2))]
    cases += [(PARTLY, [(m, n), (m, n)]) for m, n in ((600, 128), (5, 36), (7, 8))]
    cases += [(ITSELF, [(m, n)]) for m, n in ((600, 128), (5, 20))]
    check_emulated(cases, is_ptx_read=True)


QUARTERS = """def f(float(M,N) x) -> (y) {
    y(m, n) = (n < N / 4 ? x(m, n + N / 2) : 0.0) + (n >= 3 * N / 4 ? x(m, n - N / 2) : 0.0)
            where m in 0:M, n in 0:N
}"""
OVERLAPPING = """def f(float(M,N) x) -> (y) {
    y(m, n) = (n < 16 ? x(m, n + 4) : 0.0) - (n >= 8 ? x(m, n - 8) : 0.0)
            where m in 0:M, n in 0:N
}"""
INSIDE = """def f(float(M,N) x) -> (y) {
    y(m, n) = x(m, n) + (n >= 30 ? x(m, n) * x(m, n) : 1.0)
}"""
BOTH_ROWS = """def f(float(M,N) x) -> (y) {
    y(m, n) = m < 3 ? x(m + 1, n) : x(m - 1, n) * sqrt(abs(x(m - 1, n)))
            where m in 0:M, n in 0:N
}"""


def test_loads_that_exclude_one_another_are_one(
    cuda_unit: MakeUnit, check_emulated: CheckAll
) -> None:
    text = cuda_unit(HALVES, (600, 128), (128,)).source.text
    assert text.count("? &x[") == 1 and "tc_vload_if" not in text
    assert text.count("const bool w_active") == 1 and text.count("tc_select") == 1
    text = cuda_unit(QUARTERS, (600, 128)).source.text
    assert text.count("tc_vload_if<4>(w_active") == 1 and text.count(" ? &x[") == 1
    assert text.count("tc_select") == 2 and "tc_or_zero" not in text  # of two places
    text = cuda_unit(OVERLAPPING, (600, 128)).source.text
    assert text.count("tc_or_zero(tc_vload_if<4>(&x[") == 2 and "tc_select" not in text
    text = cuda_unit(BOTH_ROWS, (600, 128)).source.text
    assert text.count("? &x[") == 1 and "tc_select" not in text  # a root takes its time
    text = cuda_unit(INSIDE, (600, 128)).source.text
    assert "w_active" not in text and "tc_select" not in text  # lanes 30 and 31 alone
    cases = [(one, [(m, n)]) for one in (QUARTERS, OVERLAPPING, BOTH_ROWS, INSIDE)
             for m, n in ((600, 128), (5, 32), (7, 36), (4, 24))]  # fmt: skip
    check_emulated(cases, is_ptx_read=True)


def test_a_gathered_row_is_scalar() -> None:
    """Nothing is known of where it begins."""
    source = "def f(float(V,D) T, int32(E) I) -> (y) { y(e,d) = T(I(e),d) }"
    assert wide(scop_of(source, (9, 64), (5,)), dim=1) == {"=y"}


def test_a_vector_has_2_4_8_or_16_bytes() -> None:
    sizes = {"half": (8, 4, 2), "float": (4, 2), "double": (2,), "int8": (16, 8, 4, 2)}
    for dtype, widths in sizes.items():
        scop = scop_of(COPY.replace("float", dtype), (64,))
        for width in (2, 4, 8, 16, 32):
            assert bool(wide(scop, width)) == (width in widths), (dtype, width)


def test_what_has_no_address_is_no_vector() -> None:
    register = Placement("x", None, (FIXED,))
    assert wide(scop_of(COPY, (64,)), places={"x": register}) == {"=y"}


@pytest.mark.parametrize(
    ("columns", "padding", "is_wide"),
    [(8, 0, True), (8, 1, False), (8, 4, True), (6, 0, False), (6, 2, True)],
)
def test_shared_memory_is_addressed_within_its_tile(
    columns: int, padding: int, is_wide: bool
) -> None:
    """Rows of a tile that are no multiple of a vector begin in the middle of one."""
    dims = LocalDim(0, ((1, 0),), 5), LocalDim(0, ((1, 0),), columns)
    tile = Placement("x", None, dims, Space.SHARED, padding)
    found = wide(scop_of(ROWS, (5, 64)), dim=1, places={"x": tile})
    assert found == ({"=y", "x"} if is_wide else {"=y"})


def test_updates_by_atomics_are_scalar() -> None:
    scop = scop_of("def f(float(M,N) x) -> (y) { y(j) +=! x(i,j) }", (8, 64))
    (update,) = (s for s in scop.statements if s.name == "S0")
    atomic = scop.with_statements(tuple(replace(s, is_atomic=s is update) for s in scop.statements))
    assert wide(scop, dim=0) == {"=y", "x"} and wide(atomic, dim=0) == set()


def test_lanes_that_begin_elsewhere() -> None:
    """(i - 1) % 4: lane 0 is at 1, 5, ...; and a sum of dimensions says nothing."""
    scop = scop_of(COPY, (64,))
    assert wide(scop, at=Coordinate(0, 1, 1, 4)) == set()
    assert wide(scop, at=Coordinate(0, 4, 1, 4)) == {"=y", "x"}
    assert wide(scop, at=AffineCoordinate(((1, Coordinate(0)),), mod=4)) == set()


# --- in a kernel ----------------------------------------------------------------------------


def test_a_pointer_must_be_a_multiple_of_the_vector(cuda_unit: MakeUnit) -> None:
    source = cuda_unit(COPY, (BIG,)).source
    assert source.alignments == {"x": 16, "y": 16}
    known = cuda_unit(COPY, (BIG,), alignments={"x": 4}).source
    assert known.alignments == {"y": 16}
    assert "tc_vload" not in known.text and "tc_vstore" in known.text


def test_an_unaligned_array_gives_the_same(cuda_unit: MakeUnit, check_emulated: CheckAll) -> None:
    room = np.arange(BIG + 1, dtype=np.float32)
    check_emulated([(COPY, [room[1:]])])


def test_an_update_in_place_reads_before_it_writes(check_emulated: CheckAll) -> None:
    """x(i+1) of a lane is not what its neighbour just wrote."""
    shift = "def f(float(N) x) -> (y) { y(i) = x(i)\n y(i) = y(i) * 2.0 + x(i) }"
    sums = "def f(float(N) y, float(N) x) -> (y) { y(i) += x(i) }"
    same = "def f(float(N) x) -> (y) { y(i) = x(i) * x(i) + x(i) }"
    check_emulated([(text, [(BIG,)] * text.count("float(")) for text in (shift, sums, same)])


# Rows of y are two of x, one after the other, or with a zero between them, which no vector spans.
BOTH = """def f(float(M,N) x) -> (y) {
    y(m, n) = x(m, n) where m in 0:M, n in 0:N
    y(m, n + N%s) = 2 * x(m, n) where m in 0:M, n in 0:N
}"""


def test_each_statement_stores_vectors_of_its_own(
    cuda_unit: MakeUnit, check_emulated: CheckAll
) -> None:
    unit = cuda_unit(BOTH % "", (600, 1024))
    assert len(unit.source.kernels) == 1 and unit.source.text.count("tc_vstore(&y[") == 2
    apart = (BOTH % " + 1").replace("}", "    y(m, n) = 0 where m in 0:M, n in N:N + 1\n}")
    assert cuda_unit(apart, (600, 1024)).source.text.count("tc_vstore(&y[") <= 1
    reads = (BOTH % "").replace("2 * x(m, n)", "2 * y(m, n)")
    shapes = [(600, 1024), (3, 1020)]
    cases = [(text, [shape]) for text in (BOTH % "", apart) for shape in shapes]
    check_emulated([*cases, (reads, [(9, 128)])])  # few: the reference takes them one by one


@pytest.mark.slow_but("float", "half", "int8")
@pytest.mark.parametrize("dtype", ["float", "half", "bfloat16", "double", "int8", "bool"])
def test_vectors_and_their_rests(dtype: str, check_emulated: CheckAll) -> None:
    source = ROWS.replace("float", dtype)
    check_emulated([(source, [shape]) for shape in ((67, 132), (70, 131), (1, 10_001), (41, 128))])
