"""Contractions: both kinds of vector, tiles with remainders, convolutions, against the oracle."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl.costmodel.locality import Shape
from tcdsl.costmodel.machine import Cpu
from tcdsl.driver import Compiled
from tcdsl.options import Options
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.scop import Kind, Scop
from tcdsl.strategies import contraction
from tcdsl.strategies.contraction import choose_tile, sums_gathered_rows, why_not_contraction
from tcdsl.strategies.shapes import shapes_of

CheckAll = Callable[..., None]
Compile = Callable[..., Compiled]
Lower = Callable[..., Scop]
Sizes = tuple[int, int, int]

MM = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
DOT = "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }"
OUTER = "def f(float(K,M) A, float(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n) }"
TRANSPOSED = "def f(float(M,K) A, float(K,N) B) -> (C) { C(n,m) +=! A(m,k) * B(k,n) }"
BATCHED = "def f(float(B,N,M) X, float(B,M,K) Y) -> (Z) { Z(b,n,k) +=! X(b,n,m) * Y(b,m,k) }"
BATCHED_DOT = "def f(float(B,N,M) X, float(B,K,M) Y) -> (Z) { Z(b,n,k) +=! X(b,n,m) * Y(b,k,m) }"
CONVOLUTION = """def f(float(N,C,H,W) I, float(F,C,KH,KW) W1) -> (O) {
    O(n,f,h,w) +=! I(n,c,h+kh,w+kw) * W1(f,c,kh,kw)
}"""
STRIDED = """def f(float(N,C,H,W) I, float(F,C,KH,KW) W1) -> (O) {
    O(n,f,h,w) +=! I(n,c,2*h+kh,2*w+kw) * W1(f,c,kh,kw)
}"""
DILATED = """def f(float(N,C,H,W) I, float(F,C,KH,KW) W1) -> (O) {
    O(n,f,h,w) +=! I(n,c,h+2*kh,w+2*kw) * W1(f,c,kh,kw)
}"""
PADDED = """def f(float(N,C,H,W) I, float(F,C,3,3) W1) -> (O) {
    O(n,f,h,w) +=! (h+kh-1 >= 0 && h+kh-1 < H && w+kw-1 >= 0 && w+kw-1 < W
                    ? I(n,c,h+kh-1,w+kw-1) : 0.0) * W1(f,c,kh,kw) where h in 0:H, w in 0:W
}"""
CHANNELS_LAST = """def f(float(N,H,W,C) I, float(KH,KW,C,F) W1) -> (O) {
    O(n,h,w,f) +=! I(n,h+kh,w+kw,c) * W1(kh,kw,c,f)
}"""
GROUPED = """def f(float(N,G,C,H,W) I, float(G,F,C,KH,KW) W1, float(G,F) B) -> (O) {
    O(n,g,f,h,w) +=! I(n,g,c,h+kh,w+kw) * W1(g,f,c,kh,kw)
    O(n,g,f,h,w) = O(n,g,f,h,w) + B(g,f)
}"""
BIASED = """def f(float(M,K) A, float(K,N) B, float(N) b) -> (D) {
    C(m,n) +=! A(m,k) * B(k,n)
    D(m,n) = fmax(C(m,n) + b(n), 0.0)
}"""
IN_PLACE = """def f(float(M,K) A, float(K,N) B, float(N) b) -> (C) {
    C(m,n) +=! A(m,k) * B(k,n)
    C(m,n) = fmax(C(m,n) + b(n), 0.0)
}"""
KEPT = """def f(float(M,N) D, float(M,K) A, float(K,N) B) -> (C) {
    C(m,n) = D(m,n)
    C(m,n) += A(m,k) * B(k,n)
}"""
MLP = """def f(float(B,K) x, float(K,H) v, float(H,O) w) -> (y) {
    h(b,i) +=! x(b,k) * v(k,i)
    r(b,i) = fmax(h(b,i), 0.0)
    y(b,o) +=! r(b,i) * w(i,o)
}"""
ATTENTION = """def f(float(B,S,D) q, float(B,T,D) k, float(B,T,D) v) -> (o) {
    s(b,i,j) +=! q(b,i,d) * k(b,j,d)
    m(b,i) max=! s(b,i,j)
    e(b,i,j) = exp(s(b,i,j) - m(b,i))
    z(b,i) +=! e(b,i,j)
    o(b,i,d) +=! e(b,i,j) * v(b,j,d)
}"""
KRONECKER = """def f(float(M,A,B) X, float(C,A) V, float(D,B) W) -> (Y) {
    T(m,a,d) +=! X(m,a,b) * W(d,b)
    Y(m,c,d) +=! T(m,a,d) * V(c,a)
}"""

# Partial tiles in each dimension, single rows and columns, nothing at all.
PRODUCTS: list[Sizes] = [
    (64, 64, 64), (63, 65, 17), (65, 63, 64), (31, 37, 41), (8, 1000, 16), (1000, 8, 16),
    (1, 64, 300), (64, 1, 300), (64, 64, 1), (7, 13, 511), (129, 33, 65), (0, 8, 8), (8, 0, 8),
    (8, 8, 0),
]  # fmt: skip


def operands(source: str, sizes: Sizes) -> list[Any]:
    m, n, k = sizes
    shapes: dict[str, list[Any]] = {
        MM: [(m, k), (k, n)], DOT: [(m, k), (n, k)], OUTER: [(k, m), (k, n)],
        TRANSPOSED: [(m, k), (k, n)], BIASED: [(m, k), (k, n), (n,)],
        IN_PLACE: [(m, k), (k, n), (n,)], KEPT: [(m, n), (m, k), (k, n)],
    }  # fmt: skip
    return shapes[source]


@pytest.mark.slow_but("mm-4")
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("source", [MM, DOT, OUTER, TRANSPOSED], ids=["mm", "dot", "outer", "t"])
def test_products(source: str, threads: int, check_all: CheckAll) -> None:
    check_all([(source, operands(source, s)) for s in PRODUCTS], threads=threads)


@pytest.mark.slow_but("max")
@pytest.mark.parametrize("fuse", ["max", "none"])
def test_products_and_what_follows_them(fuse: Any, check_all: CheckAll) -> None:
    sizes = [PRODUCTS[n] for n in (0, 1, 4, 6, 7, 13)]
    cases = [(s, operands(s, z)) for s in (BIASED, IN_PLACE, KEPT) for z in sizes]
    check_all(cases, options=Options(fuse=fuse))


@pytest.mark.slow
@pytest.mark.parametrize("threads", [4, pytest.param(1, marks=pytest.mark.fuzz)])
def test_batches(threads: int, check_all: CheckAll) -> None:
    sizes = [(2, 16, 16, 16), (5, 26, 31, 17), (3, 1, 64, 64), (7, 33, 8, 65), (0, 3, 3, 3)]
    cases = [(BATCHED, [(b, n, m), (b, m, k)]) for b, n, m, k in sizes]
    cases += [(BATCHED_DOT, [(b, n, m), (b, k, m)]) for b, n, m, k in sizes]
    check_all(cases, threads=threads)


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, pytest.param(4, marks=pytest.mark.fuzz)])
def test_convolutions(threads: int, check_all: CheckAll) -> None:
    cases: list[tuple[str, list[Any]]] = []
    for image, weights in (
        ((1, 1, 8, 8), (1, 1, 3, 3)), ((2, 3, 17, 19), (5, 3, 3, 3)),
        ((2, 8, 16, 16), (16, 8, 3, 3)), ((1, 4, 13, 7), (64, 4, 3, 3)),
        ((2, 0, 8, 8), (3, 0, 3, 3)),
    ):  # fmt: skip
        cases += [(s, [image, weights]) for s in (CONVOLUTION, STRIDED, DILATED, PADDED)]
    cases += [
        (CHANNELS_LAST, [(2, 9, 8, 16), (3, 3, 16, 32)]),
        (CHANNELS_LAST, [(1, 5, 17, 7), (3, 2, 7, 13)]),
        (GROUPED, [(2, 2, 4, 9, 9), (2, 4, 4, 3, 3), (2, 4)]),
        (GROUPED, [(1, 3, 5, 17, 8), (3, 7, 5, 3, 3), (3, 7)]),
    ]
    check_all(cases, threads=threads)


@pytest.mark.slow
def test_chains(check_all: CheckAll) -> None:
    cases: list[tuple[str, list[Any]]] = [
        (MLP, [(b, k), (k, h), (h, o)])
        for b, k, h, o in ((1, 1, 1, 1), (5, 7, 9, 11), (65, 33, 63, 31), (128, 64, 32, 2))
    ]
    cases += [
        (ATTENTION, [(b, s, d), (b, t, d), (b, t, d)])
        for b, s, t, d in ((1, 1, 1, 1), (2, 7, 9, 5), (2, 64, 64, 64), (3, 33, 65, 31))
    ]
    cases += [
        (KRONECKER, [(m, a, b), (c, a), (d, b)])
        for m, a, b, c, d in ((3, 4, 5, 6, 7), (64, 16, 32, 16, 32), (65, 17, 9, 33, 15))
    ]
    check_all(cases)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["half", "bfloat16", "double", "int8", "uint8", "int32", "int64"])
def test_types(dtype: str, check_all: CheckAll) -> None:
    cases = [
        (source.replace("float", dtype), operands(source, sizes))
        for source in (MM, DOT)
        for sizes in ((33, 35, 29), (64, 64, 64), (5, 65, 130))
    ]
    check_all(cases)


# --- the tile -------------------------------------------------------------------------------


def product(lower: Lower, source: str, sizes: Sizes) -> Shape:
    scop = lower(source, *operands(source, sizes))
    return shapes_of(scop, dependences_of(scop))["S0"]


def test_the_vector_is_contiguous_in_every_operand(lower: Lower) -> None:
    cpu = Cpu(4)
    results = choose_tile(product(lower, MM, (64, 96, 64)), cpu)
    sums = choose_tile(product(lower, DOT, (64, 96, 64)), cpu)
    assert results is not None and (results.vector, set(results.rows)) == (1, {0})
    assert sums is not None and sums.vector == 2 and set(sums.rows) == {0, 1}
    for tile in (results, sums):
        assert tile.lanes >= 1 and all(n >= 1 for n in tile.rows.values())


@pytest.mark.parametrize(
    ("source", "shapes", "reason"),
    [
        (MM, [(64, 64), (64, 64)], None),
        (MM, [(8, 8), (8, 8)], "small"),
        ("def f(float(M,K) A, float(K) x) -> (y) { y(m) +=! A(m,k) * x(k) }",
         [(600, 600), (600,)], "reused"),
        ("def f(float(M,K) A) -> (y) { y(m) +=! A(m,k) * 2.0 }", [(600, 600)], "two operands"),
        ("def f(float(M,K) A, float(N,K) B) -> (y) { y(m) argmax=! A(m,k) * B(0,k) }",
         [(600, 600), (4, 600)], "pairs"),
    ],
)  # fmt: skip
def test_why_not_contraction(
    source: str, shapes: list[tuple[int, ...]], reason: str | None, lower: Lower
) -> None:
    scop = lower(source, *shapes)
    found = why_not_contraction(shapes_of(scop, dependences_of(scop))["S0"])
    assert found is None if reason is None else found is not None and reason in found


def test_what_follows_a_product_shares_its_kernel(compiled: Compile) -> None:
    done = compiled(BIASED, (64, 64), (64, 64), (64,))
    assert len(done.plan.kernels) == 1
    assert any("register tile" in why for why in done.plan.kernels[0].why)
    assert "C" in done.plan.placements or done.source.workspace_bytes == 0


def test_the_kind_of_vector_is_explained(compiled: Compile) -> None:
    for source, rows, kind in ((MM, 64, "results"), (DOT, 6, "partial sums")):
        (kernel,) = compiled(source, (rows, 64), (64, 64)).plan.kernels
        assert any(kind in why for why in kernel.why)


CHANNELS_FIRST = {
    "forward": (
        "def f(float(N,C,H,W) I, float(F,C,3,3) K) -> (O)"
        " { O(n,f,h,w) +=! I(n,c,h+r,w+s) * K(f,c,r,s) }",
        [(2, 64, 16, 16), (64, 64, 3, 3)],
        "f",
    ),
    "weights": (
        "def f(float(N,F,P,Q) O, float(N,C,H,W) I) -> (K)"
        " { K(f,c,r,s) +=! O(n,f,h,w) * I(n,c,h+r,w+s) where r in 0:3, s in 0:3 }",
        [(2, 64, 14, 14), (2, 64, 16, 16)],
        "f",
    ),
}


@pytest.mark.parametrize("what", CHANNELS_FIRST)
def test_channels_are_in_the_lanes_wherever_they_are_in_memory(
    what: str, compiled: Compile
) -> None:
    source, shapes, index = CHANNELS_FIRST[what]
    *copies, kernel = compiled(source, *shapes).plan.kernels
    assert copies
    assert any(f"x {index} %" in why for why in kernel.why)


@pytest.mark.parametrize(("pixels", "row"), [(12, "w"), (3, "n")])
def test_rows_of_a_tile_are_near_in_memory(pixels: int, row: str, compiled: Compile) -> None:
    """Images are further apart than the pixels of one, and taken where these are too few."""
    source = CHANNELS_FIRST["forward"][0]
    shapes = (32, 4, pixels + 2, pixels + 2), (16, 4, 3, 3)
    *_, kernel = compiled(source, *shapes, threads=1).plan.kernels
    assert any(f"tile {row} %" in why and "x f %" in why for why in kernel.why)


def test_large_filters_stay_where_they_are(compiled: Compile) -> None:
    """Maxima have no panels, which sums would be on."""
    source = (
        "def f(float(N,H,W,C) I, float(F,3,3,C) K) -> (O)"
        " { O(n,h,w,f) max=! I(n,h+r,w+s,c) * K(f,r,s,c) }"
    )
    for channels, n_kernels, kind in ((64, 2, "results"), (512, 1, "partial sums")):
        kernels = compiled(source, (4, 9, 9, channels), (channels, 3, 3, channels)).plan.kernels
        assert len(kernels) == n_kernels
        assert any(kind in why for why in kernels[-1].why)


@pytest.mark.slow_but("weights-channels1")
@pytest.mark.parametrize("channels", [(64, 64), (33, 17), (5, 67)])
@pytest.mark.parametrize("what", CHANNELS_FIRST)
def test_lanes_apart_in_memory(what: str, channels: tuple[int, int], check_all: CheckAll) -> None:
    (source, (one, other), _), (f, c) = CHANNELS_FIRST[what], channels
    shapes = {
        "forward": [(2, c, *one[2:]), (f, c, 3, 3)],
        "weights": [(2, f, *one[2:]), (2, c, *other[2:])],
    }
    check_all([(source, shapes[what])])


# --- rows of data that are summed -------------------------------------------------------------

BAGS = "def f({T}(V,D) x, int32(E) word, int32(P) ptr) -> (y) {{ y(b,d) {op} {value} }}"
IN_BAG = "where e in ptr(b):ptr(b + 1)"
NUMPY = {"float": "float32", "double": "float64", "half": "float16"}
OF_ROWS = [
    ("float", "+=!", f"x(word(e),d) {IN_BAG}"),
    ("double", "max=!", f"x(word(e),d) * 0.5 {IN_BAG}"),
    ("half", "+=!", f"float(x(word(e),d)) {IN_BAG}"),
    ("float", "*=!", f"1.0 + 0.01 * x(word(e),d) {IN_BAG}"),
    ("int32", "min=!", f"x(word(e),d) {IN_BAG}"),
    ("float", "+=!", f"x(e / 40,d) {IN_BAG}"),
    ("float", "+=!", "x(word(e),d) where e in ptr(b):ptr(b + 1), exists d <= b"),
]


@pytest.mark.parametrize("lowered", [False, True])
@pytest.mark.slow
def test_rows_of_data(check_all: CheckAll, monkeypatch: pytest.MonkeyPatch, lowered: bool) -> None:
    """Short bags, long ones and none, rows of any length; subscripts to the last one."""
    if lowered:
        monkeypatch.setattr(contraction, "MIN_WORK", 1)
        monkeypatch.setattr(contraction, "ROW_VECTORS", 2)
        monkeypatch.setattr(contraction, "MIN_ROWS", 1)
    rng = np.random.default_rng(0)
    lengths = [5, 0, 1, 900, 0, 70, *rng.integers(0, 60, 40)]
    ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    cases: list[Any] = []
    for number, (dtype, op, value) in enumerate(OF_ROWS):
        for d in (1, 3, 4, 40, 64, 130, 200)[number % 3 :: 3]:
            x = rng.integers(-3, 4, (ptr[-1] // 40 + 1, d)).astype(NUMPY.get(dtype, dtype))
            word = rng.integers(0, len(x), ptr[-1]).astype(np.int32)
            cases.append((BAGS.format(T=dtype, op=op, value=value), [x, word, ptr]))
    check_all(cases)


@pytest.mark.parametrize(
    ("columns", "lanes"), [(8, 8), (64, 64), (100, 100), (160, 80), (999, 128)]
)
def test_the_tile_of_rows_of_data(lower: Lower, columns: int, lanes: int) -> None:
    """As much of a row as eight vectors hold, and one row: ranges differ from row to row."""
    shape = rows_of_data(lower, OF_ROWS[0][2], columns)
    assert sums_gathered_rows(shape) and why_not_contraction(shape) is None
    tile = choose_tile(shape, Cpu(1, 64))
    assert tile is not None
    assert (shape.statement.indices[tile.vector], tile.lanes, tile.rows) == ("d", lanes, {})


@pytest.mark.parametrize(
    ("value", "columns"),
    [
        (f"x(word(e),d) {IN_BAG}", 3),
        ("x(word(e),d)", 64),
        (f"x(d,word(e)) {IN_BAG}", 64),
        (f"x(e / 40,d) {IN_BAG}", 64),
        ("x(word(e),d) where e in ptr(b / 20):ptr(b / 20 + 1), b in 0:800", 64),
        (f"x(word(e),d) {IN_BAG}, exists x(0,d) > 0.0", 64),
    ],
)
def test_what_has_no_tile_of_rows(lower: Lower, value: str, columns: int) -> None:
    assert not sums_gathered_rows(rows_of_data(lower, value, columns))


def rows_of_data(lower: Lower, value: str, columns: int) -> Shape:
    where = "" if "where" in value else " where b in 0:40"
    text = BAGS.format(T="float", op="+=!", value=value + where)
    scop = lower(text, (999, columns), (3000,), (41,))
    (name,) = (s.name for s in scop.statements if s.kind is Kind.UPDATE)
    return shapes_of(scop, dependences_of(scop))[name]
