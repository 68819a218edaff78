"""Elements in another order by way of tiles in shared memory, and operands that are copied so."""

from collections.abc import Callable, Mapping
from math import inf
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.lang.types.dtypes import FLOAT16
from tcdsl.options import Options
from tcdsl.plan.rewrites import REWRITES
from tcdsl.runtime.size_classes import class_of
from tcdsl.testing.random_inputs import values
from tests.strategies.tile_configs import choices_of, kernel_of, planned

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]

LAST = "def f({t}(N,C,H,W) I) -> (O) {{ O(n,h,w,c) = I(n,c,h,w) }}"
ADDED = """def f({t}(N,M) A, {t}(M,N) B, {t}(N) s) -> (O) {{
    O(i,j) = A(j,i) * s(j) + B(i,j)
}}"""
MIDDLE = "def f({t}(A,B,C,D) I) -> (O) {{ O(d,b,a,c) = 2 * I(a,b,c,d) }}"
SAME = "def f({t}(N,N) A) -> (O) {{ O(i,j) = A(i,j) + A(j,i) * A(j,i) }}"
CASES: Mapping[str, tuple[str, list[tuple[int, ...]]]] = {
    "last": (LAST, [(2, 24, 5, 8)]),
    "last of primes": (LAST, [(1, 67, 11, 7)]),
    "whole tiles": (LAST, [(1, 64, 8, 8)]),
    "added": (ADDED, [(33, 70), (70, 33), (33,)]),
    "one array": (SAME, [(40, 40)]),
    "middle": (MIDDLE, [(3, 5, 16, 40)]),
}


def asked(unit: Any, **config: int) -> Options:
    return Options(choices=choices_of(kernel_of(unit), "transpose", config))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["half", "double", "uint8"])
@pytest.mark.parametrize("name", CASES)
def test_right(name: str, dtype: str, cuda_unit: MakeUnit, check_emulated: CheckAll) -> None:
    text, shapes = CASES[name]
    source = text.format(t=dtype)
    for read, written, threads in ((64, 64, 256), (32, 64, 128)):
        options = asked(planned(source, *shapes), read=read, written=written, threads=threads)
        unit = cuda_unit(source, *shapes, options=options)
        assert [kernel.template for kernel in unit.done.plan.kernels] == ["transpose"]
        check_emulated([(source, shapes)], options=options)


def test_large_ones_are_in_tiles(cuda_unit: MakeUnit) -> None:
    source = LAST.format(t="half")
    unit = cuda_unit(source, (32, 64, 56, 56))
    assert [kernel.template for kernel in unit.done.plan.kernels] == ["transpose"]
    assert "tc_vload<8>" in unit.source.text and "tc_vstore(" in unit.source.text


def test_rows_may_begin_anywhere(cuda_unit: MakeUnit, check_emulated: CheckAll) -> None:
    """Vectors of neighbours, but not of rows of 64 that are 67 apart."""
    source = "def f(half(N,M) A) -> (O) { O(i,j) = A(j,i) }"
    array = values(FLOAT16, (40, 67), "real", 1)
    options = asked(planned(source, (40, 64)), read=64, written=64, threads=256)
    for view in (array[:, :64], array[:, 3:]):
        check_emulated([(source, [view])], options=options)


def test_a_recurrence_is_not_transposed(cuda_unit: MakeUnit) -> None:
    source = """def f(float(N,T) x) -> (c) {
        c(t,i) = x(i,t)
        c(t,i) = c(t-1,i) + x(i,t) where t in 1:T
    }"""
    plan = cuda_unit(source, (64, 80), options=Options(fuse="none")).done.plan
    every = [c for weighed in plan.weighed for c in weighed.candidates()]
    reasons = [c.get("why_not") for c in every if c["template"] == "transpose"]
    assert "its elements wait for one another" in reasons


OPEN: Mapping[str, tuple[str, dict[str, int], str]] = {
    "columns": ("def f({t}(M,N) x) -> (y) {{ y(n,m) = x(m,n) }}", {"M": 70, "N": 100}, "N"),
    "both sides": ("def f({t}(M,N) x) -> (y) {{ y(n,m) = x(m,n) }}", {"M": 100, "N": 100}, "MN"),
    "images": (LAST, {"N": 20, "C": 33, "H": 5, "W": 8}, "N"),
    "images and channels": (LAST, {"N": 3, "C": 20, "H": 6, "W": 8}, "NC"),
    "rows of images": (LAST, {"N": 2, "C": 40, "H": 20, "W": 8}, "H"),
    "columns of images": (LAST, {"N": 2, "C": 40, "H": 3, "W": 20}, "W"),
    "added": (ADDED, {"N": 70, "M": 33}, "N"),
    "one array": (SAME, {"N": 70}, "N"),
    "a middle one": (MIDDLE, {"A": 3, "B": 5, "C": 20, "D": 40}, "C"),
}


@pytest.mark.slow_but("rows of images")
@pytest.mark.parametrize("name", OPEN)
def test_open_sizes(name: str) -> None:
    """At the least and the greatest size of a class, and where tiles end within a vector."""
    text, sizes, opened = OPEN[name]
    f = tcdsl.define(text.format(t="half")).f
    tensors = f.comprehension.tensors

    def arrays(size: int) -> list[Any]:
        known = {**sizes, **dict.fromkeys(opened, size)}
        shapes = [tuple(known[str(d)] for d in tensors[n].dims) for n in f.comprehension.inputs]
        return [values(FLOAT16, shape, "real", n) for n, shape in enumerate(shapes)]

    options = Options(dynamic_sizes=tuple(opened))
    first = arrays(sizes[opened[0]])
    exe = f.compile(*first, target="emulate", options=options)
    assert [kernel["template"] for kernel in exe.choices["kernels"]] == ["transpose"]
    assert exe.opened == tuple(opened)
    ends = class_of(sizes[opened[0]])
    assert ends is not None
    low, high, *_ = ends
    for size in (low, low + 1, low + 30, high // 2, min(high, 97)):
        args = arrays(size)
        np.testing.assert_array_equal(exe(*args), f.reference(*args))


def test_no_index_is_merged_beyond_an_open_one() -> None:
    """B and C are neighbours in what is read at C = 64 alone, the greatest of the class."""
    text, sizes, opened = OPEN["a middle one"]
    f = tcdsl.define(text.format(t="half")).f
    (name,) = f.comprehension.inputs
    x = tcdsl.spec(tuple(sizes[str(d)] for d in f.comprehension.tensors[name].dims), "float16")
    exe = f.compile(x, target="emulate", options=Options(dynamic_sizes=(opened,)))
    assert exe.opened == (opened,)
    assert [kernel["template"] for kernel in exe.choices["kernels"]] == ["transpose"]


def test_lengths_that_vectors_do_not_divide() -> None:
    """Of rows of 257, 265, ... elements an index ends at 8 q + 1."""
    f = tcdsl.define("def f(half(M,N) x) -> (y) { y(n,m) = x(m,n) }").f
    args = {size: values(FLOAT16, (33, size), "real", size) for size in (257, 265, 1017)}
    options = Options(dynamic_sizes=("N",))
    exe = f.compile(args[265], target="emulate", options=options)
    assert exe.opened == ("N",) and exe.choices["kernels"][0]["template"] == "transpose"
    for x in args.values():
        np.testing.assert_array_equal(exe(x), f.reference(x))


@pytest.mark.slow
def test_what_is_open_twice_among_the_others_is_not_transposed() -> None:
    text = "def f(float(A,B,M,N) x) -> (y) { y(b,a,n,m) = x(a,b,m,n) }"
    f, options = tcdsl.define(text).f, Options(dynamic_sizes=("A", "B"))
    x = tcdsl.spec((20, 20, 40, 40), "float32")
    exe = f.compile(x, target="emulate", options=options)
    assert exe.opened == ("A", "B")
    found = {c["template"]: c.get("why_not") for c in exe.candidates}
    assert found["transpose"] == "several of its other indices end at open sizes"


PLANES = """def f(bfloat16(N,C,H,W) I, bfloat16(F,C,KH,KW) K) -> (bfloat16(N,F,H,W) O) {
    O(n,f,h,w) +=! ((h + kh >= 1 && h + kh - 1 < H && w + kw >= 1 && w + kw - 1 < W)
        ? I(n, c, h + kh - 1, w + kw - 1) : 0) * K(f,c,kh,kw)
        where n in 0:N, h in 0:H, w in 0:W
}"""
WEIGHTS = """def f(half(N,F,H,W) dO, half(N,C,H,W) I) -> (float(F,C,3,3) dK) {
    dK(f,c,kh,kw) +=! dO(n,f,h,w)
        * ((h + kh >= 1 && h + kh - 1 < H && w + kw >= 1 && w + kw - 1 < W)
           ? float(I(n, c, h + kh - 1, w + kw - 1)) : 0.0)
        where kh in 0:3, kw in 0:3, c in 0:C
}"""
COMPUTED = """def f(half(N,C,H,W) I, half(F,C) K) -> (half(N,F,H,W) O) {
    D(n,c,h,w) = half(I(n,c,h,w) * I(n,c,h,w))
    O(n,f,h,w) +=! (h >= w ? D(n,c,h,w) : 0) * K(f,c)
}"""
PRODUCTS: Mapping[str, tuple[str, list[tuple[int, ...]], int]] = {
    "planes": (PLANES, [(2, 16, 7, 9), (12, 16, 3, 3)], 2),
    "planes of odd channels": (PLANES, [(1, 9, 7, 9), (13, 9, 3, 3)], 0),
    "weights": (WEIGHTS, [(3, 24, 5, 7), (3, 16, 5, 7)], 2),
    "weights of images": (WEIGHTS, [(8, 24, 5, 7), (8, 12, 5, 7)], 2),
    "of a temporary": (COMPUTED, [(2, 24, 7, 9), (16, 24)], 1),
}


@pytest.mark.slow_but("planes")
@pytest.mark.parametrize("name", PRODUCTS)
def test_operands_are_copied(
    name: str, cuda_unit: MakeUnit, check_emulated: CheckAll,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Where neighbours of no vector are together, they are after the copy, whatever is guarded."""
    monkeypatch.setattr("tcdsl.strategies.operand_orders.MIN_WORK", 1)
    monkeypatch.setattr("tcdsl.strategies.contracted.MIN_WORK", 1)
    monkeypatch.setattr("tcdsl.plan.search.WORTH", inf)
    own = [rewrite for rewrite in REWRITES if rewrite.name == "operands in another order"]
    monkeypatch.setattr("tcdsl.plan.search.REWRITES", own)
    monkeypatch.setattr("tcdsl.strategies.templates.tile_implicit.least_seconds", lambda *_: inf)
    monkeypatch.setattr("tcdsl.strategies.templates.tile_implicit.LEAST_EXTENT", 1)
    monkeypatch.setattr("tcdsl.strategies.operand_orders.LEAST_EXTENT", 1)
    monkeypatch.setattr("tcdsl.strategies.operand_orders.LEAST_TILE", 1)
    monkeypatch.setattr("tcdsl.strategies.operand_orders.LEAST_BYTES", 4)
    source, shapes, copies = PRODUCTS[name]
    unit = cuda_unit(source, *shapes)
    arrays = unit.done.plan.scop.arrays
    assert sum(array.rpartition(".")[2].startswith("ordered") for array in arrays) == copies
    templates = [kernel.template for kernel in unit.done.plan.kernels]
    assert "tile_implicit" in templates or name == "of a temporary"  # all in one kernel
    check_emulated([(source, shapes)])


def test_lines_outside_the_result_cost_no_loads(cuda_unit: MakeUnit) -> None:
    """Tiles of 64 channels, of which there are 32: warps leave out half of the lines."""
    unit = cuda_unit(LAST.format(t="half"), (1024, 32, 7, 7))
    us = {
        (one["config"]["read"], one["config"]["written"]): one["predicted_us"]
        for one in unit.done.plan.weighed[0].candidates()
        if one["template"] == "transpose" and "predicted_us" in one
    }
    assert us[64, 64] < 1.3 * us[64, 32]
