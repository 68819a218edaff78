"""The order of loops around a register tile: what operands bring from beyond a cache."""

from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.driver import Compiled
from tcdsl.lang.comprehension import Binary, Index
from tcdsl.lang.types.dtypes import INT32
from tcdsl.options import Options
from tcdsl.poly.loop_tree import Node, loops_of
from tcdsl.strategies import tile_traffic
from tcdsl.strategies.result_shares import Shares, choose_shares
from tcdsl.strategies.templates import cpu_tile
from tcdsl.strategies.tile_traffic import Around, Operand, bytes_moved

CONV = """def f(float(N,H,W,C) I, float(R,C,F) K) -> (O) {
    O(n,h,w,f) +=! I(n,h+r,w+r,c) * K(r,c,f)
}"""


def operands() -> list[Operand]:
    window = Binary("+", Index("w"), Index("r"), INT32)
    image = Operand((Index("n"), window, Index("c")), 4)
    return [image, Operand((Index("r"), Index("c"), Index("f")), 4)]


def test_bytes_moved() -> None:
    tile = {"n": 1, "w": 4, "f": 32, "r": 3, "c": 10}
    n, f, w = Around("n", 7), Around("f", 8, 32), Around("w", 5, 4)
    images, filters = 7 * 22 * 10 * 4, 3 * 10 * 256 * 4
    assert bytes_moved(operands(), tile, [n, f, w], 1 << 20) == images + filters
    # A tile's filters and an image fit, all filters do not: they are read for each image ...
    near = 3 * 10 * 32 * 4 + images // 7
    assert bytes_moved(operands(), tile, [n, f, w], near) == images + 7 * filters
    assert bytes_moved(operands(), tile, [f, n, w], near) == 8 * images + filters  # or once


@pytest.mark.parametrize(
    ("extent", "most", "expected"),
    [
        (2**40, 2**20 + 3, 2**20),  # few quotients are asked, or few divisors
        (2**40, 3, 2), (12, 5, 4), (12, 12, 12), (7, 6, 6), (1, 1, 1), (655_360, 3999, 2560),
        (10**12, 10**11 + 1, 10**11), (2**31 - 1, 2**20, 2**20),
    ],
)  # fmt: skip
def test_values_of_a_chunk_that_fit(
    extent: int, most: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many fit is found by halving: 655,360 words, size after size, took 19 s."""
    asked: list[int] = []

    def box_elements(subscripts: object, extents: dict[str, int]) -> int:
        asked.append(extents["e"])
        return extents["e"]

    monkeypatch.setattr(tile_traffic, "box_elements", box_elements)
    found = tile_traffic.largest_chunk({"e": extent}, "e", [Operand((Index("e"),), 4)], 4 * most)
    assert found == expected
    assert len(asked) <= extent.bit_length() + 1


def test_a_chunk_has_one_value_where_none_fits() -> None:
    assert tile_traffic.largest_chunk({"e": 9}, "e", [Operand((Index("e"),), 4)], 3) == 1


@pytest.mark.parametrize("threads", [1, 8])
def test_large_filters_are_read_once(
    threads: int, compiled: Callable[..., Compiled], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_tile, "_chunks", lambda *_: ())
    plan = compiled(CONV, (4, 9, 9, 1024), (3, 1024, 512), threads=threads).plan
    (kernel,) = plan.kernels
    assert _order(kernel.tree) == "fn"
    small = compiled(CONV, (4, 9, 9, 64), (3, 64, 512), threads=threads).plan
    assert _order(small.kernels[-1].tree) == "nf"


def _order(tree: Node) -> str:
    """Return the indices f and n in the order of their outermost loops."""
    names = [loop.name.split(".")[1][0] for loop in loops_of(tree)]
    return "".join(sorted("fn", key=names.index))


@pytest.mark.slow_but("2-4")
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("count", [1, 2])
def test_results(count: int, threads: int, check_all: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_tile.Surroundings, "others_inside", lambda *_: count)
    shapes = [
        [(3, 5, 11, 23), (3, 23, 71)],
        [(1, 4, 18, 16), (3, 16, 40)],
        [(2, 7, 9, 64), (3, 64, 33)],
    ]
    biased = CONV.replace("-> (O)", "-> (P)").replace("\n}", "\n P(n,h,w,f) = O(n,h,w,f) + 1.0\n}")
    check_all([(source, s) for source in (CONV, biased) for s in shapes], threads=threads)
    check_all([(CONV, shapes[0])], threads=threads, options=Options(fuse="none"))


WEIGHTS = """def f(TYPE(N,P,Q,F) O, TYPE(N,H,W,C) I) -> (K) {
    K(r,s,c,f) +=! I(n,p+r,q+s,c) * O(n,p,q,f) where r in 0:2, s in 0:2
}"""
TN = "def f(TYPE(K,M) A, TYPE(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n) }"


def test_weights_have_chunks_of_terms(compiled: Callable[..., Compiled]) -> None:
    """Those of a thread are inside its share of results."""
    source, shapes = TN.replace("TYPE", "float"), ((12544, 256), (12544, 64))
    for threads in (1, 8):
        kernel = compiled(source, *shapes, threads=threads).plan.kernels[-1]
        assert "chunks of" in " ".join(kernel.why)
        loops = [(loop.name.split(".")[1], loop.kind.value) for loop in loops_of(kernel.tree)]
        assert loops[threads > 1] == ("k", "serial")
        assert [kind for _, kind in loops].count("parallel") == (threads > 1)
    plan = compiled(source, (128, 256), (128, 64), threads=1).plan
    assert "chunks of" not in " ".join(plan.kernels[-1].why)


def test_shares_of_threads() -> None:
    def read(shares: Shares) -> int:  # of dimension 0 little, of 1 much
        return 10 * (0 in shares) + 100 * (1 in shares)

    assert choose_shares({0: 8, 1: 8}, 4, read) == {0: 2}
    assert choose_shares({0: 8, 1: 3}, 3, read) == {1: 1}  # 8 tiles along 0 would be 3, 3 and 2
    assert choose_shares({0: 2, 1: 3}, 6, read) == {0: 1, 1: 1}
    assert choose_shares({0: 1, 1: 1}, 6, read) == {}


@pytest.mark.slow_but("float-1", "float-3")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", ["float", "double", "int32", "half"])
def test_results_of_chunks(
    dtype: str, threads: int, check_all: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Chunks that divide the terms and others, of one index and of two."""
    monkeypatch.setattr(cpu_tile, "_cache_bytes", lambda _: 20_000)
    monkeypatch.setattr("tcdsl.strategies.tile_traffic.LEAST_TERMS", 1)
    monkeypatch.setattr("tcdsl.strategies.tile_traffic.WORTH", 1e9)
    monkeypatch.setattr(cpu_tile, "_is_in_threads", lambda _: threads > 1)
    products = [
        [(300, 17), (300, 33)], [(257, 40), (257, 64)], [(1, 40), (1, 64)], [(0, 4), (0, 5)],
        [(640, 1), (640, 40)],
    ]  # fmt: skip
    images = [
        [(3, 7, 5, 32), (3, 8, 6, 17)], [(2, 12, 11, 33), (2, 13, 12, 16)],
        [(1, 1, 1, 5), (1, 2, 2, 3)], [(5, 16, 4, 16), (5, 17, 5, 40)],
    ]  # fmt: skip
    cases = [(TN, s) for s in products] + [(WEIGHTS, s) for s in images]
    if threads > 1:  # shares of rows that tiles do not divide, of taps, and none
        cases = [(TN, products[1]), (WEIGHTS, images[1]), (TN, products[3])]
    check_all([(source.replace("TYPE", dtype), s) for source, s in cases], threads=threads)
