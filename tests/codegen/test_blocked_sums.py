"""Blocked summation: which loops are cut, what the cut loops compute, and how exact that is."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.codegen.ast.build import ZERO
from tcdsl.codegen.ast.loop_ast import Block, For
from tcdsl.codegen.ast.text import text
from tcdsl.codegen.c import printer as c_printer
from tcdsl.codegen.cuda import sums as cuda_sums
from tcdsl.codegen.passes.blocked_sums import Policy
from tcdsl.codegen.passes.iterations import last_of
from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.machine import this_cpu
from tcdsl.options import Options
from tcdsl.testing import check
from tests.codegen.written import code

CheckAll = Callable[..., None]
TOTAL = "def f(float(N) x) -> (y) { y +=! x(i) }"
COLUMNS = "def f(float(M,N) x) -> (y) { y(j) +=! x(i,j) }"
CHANNELS = "def f(float(N,C,H) x) -> (y) { y(c) +=! x(n,c,h) }"
# A sum, and a maximum that shares its loop.
BOTH = "def f(float(N) x) -> (y, m) { y +=! x(i)  m max=! x(i) }"
HALF = "def f(half(N) x) -> (y) { y +=! x(i) }"
DOT = "def f(double(N) x, double(N) z) -> (y) { y +=! x(i) * z(i) }"
WHOLE = Options(vectorise=False)


def for_(condition: str, step: str = "1") -> For:
    return For("c1", ZERO, code(condition), code(step), Block([]))


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        (for_("c1 <= 9"), "9"),
        (for_("c1 < n"), "(n) - 1"),
        (for_("c1 <= min(a, 3 * c0 + 4)"), "min(a, 3 * c0 + 4)"),
        (for_("c1 <= 9 and c1 <= n"), None),
        (for_("c1 >= 9"), None),
        (for_("c1 <= 9", "s"), None),
    ],
)
def test_the_last_value_of_a_loop(loop: For, expected: str | None) -> None:
    last = last_of(loop)
    assert (None if last is None else text(last)) == expected


def source(program: str, target: str, *shapes: tuple[int, ...], kind: str = "float32") -> str:
    specs = [tcdsl.spec(shape, kind) for shape in shapes]
    return str(tcdsl.define(program)["f"].compile(*specs, target=target).source)


def test_a_gpu_sums_lanes_then_iterations_then_blocks() -> None:
    found = source(TOTAL, "emulate", (1 << 28,))
    outer, *lanes = re.findall(r"const float (w_sum\d+) = u0_y_part1;", found)
    back = [found.index(f"u0_y_part1 = ({name} + u0_y_part1);") for name in (*lanes, outer)]
    assert len(back) > 1 and back == sorted(back)
    assert "tc_vload<4>" in found
    assert f"+= {16 * 1024})" in found and "+= 1024)" in found


def test_short_chains_stay_as_they_are() -> None:
    lanes = this_cpu().vector_bytes  # of a row: four vectors of four bytes a lane
    for target, length in (("cpu", 64 * lanes), ("emulate", 1000)):
        assert "w_block" not in source(TOTAL, target, (length,))
    assert "w_block" not in source("def f(float(N) x) -> (y) { y max=! x(i) }", "cpu", (1 << 20,))
    assert "w_block" not in source(
        "def f(int32(N) x) -> (y) { y +=! x(i) }", "cpu", (1 << 20,), kind="int32"
    )


PRODUCT = "def f(float(M,K) a, float(K,N) b) -> (c) { c(m,n) +=! a(m,k) * b(k,n) }"
TAPS = "def f(float(N,C,H) x, float(D,C,R) w) -> (y) { y(n,d,h) +=! x(n,c,h+r) * w(d,c,r) }"
NEST = "def f(float(N,H,C) x, float(R,C,D) w) -> (y) { y(n,h,d) +=! x(n,h+r,c) * w(r,c,d) }"
CASES = [
    (TOTAL, [(20_011,)]), (COLUMNS, [(4001, 5)]), (CHANNELS, [(70, 3, 131)]), (BOTH, [(20_011,)]),
    (HALF, [(9001,)]), (DOT, [(9001,), (9001,)]),
    (PRODUCT, [(40, 131), (131, 48)]), (PRODUCT, [(3, 301), (301, 64)]),
    (PRODUCT, [(100, 401), (401, 100)]), (TAPS, [(2, 70, 66), (8, 70, 3)]),
]  # fmt: skip


@pytest.mark.slow
def test_in_many_blocks_on_the_cpu(check_all: CheckAll, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of three and of nine iterations, so that loops of every length have several levels."""
    monkeypatch.setattr(
        c_printer, "Policy", lambda iterations, _, *most: Policy(iterations, 3, *most)
    )
    monkeypatch.setattr(c_printer, "_MOST_BLOCKS", 3)
    check_all(CASES)
    check_all(CASES, threads=1, options=WHOLE)
    check_all(CASES[:3], options=Options(summation="compensated"))


@pytest.mark.parametrize("terms", [256, 257])
def test_rows_of_a_tile_are_saved_by_turns(avx2: None, terms: int) -> None:
    """Each once in 32 terms: all at once they take 10 % of a product of 512^3."""
    found = source(PRODUCT, "cpu", (64, terms), (terms, 32))
    assert "contraction: register tile m % 6 x n % 16" in found
    tile = found[found.index("w_rest1 =") :]
    turns = re.findall(r"c\d = w_block1( \+ \d+)?; .*?w_k = (\d+); w_k < (\d+)", tile, re.DOTALL)
    assert turns[:3] == [("", "0", "32"), (" + 10", "32", "64"), (" + 21", "64", "96")]
    assert ("if (w_rest1 <=" in tile) == (terms == 257)


def test_loops_in_an_iteration_are_printed_once(avx2: None) -> None:
    """Of channels around three taps all rows are saved at once."""
    found = source(TAPS, "cpu", (2, 70, 66), (8, 70, 3))
    assert "w_block" in found and "w_rest" not in found


def test_a_nest_has_one_sum_for_all_its_innermost_loops(avx2: None) -> None:
    """Of three taps with 32 channels each: what is saved is cleared before the loop over taps."""
    specs = [tcdsl.spec(shape, "float32") for shape in ((2, 38, 32), (3, 32, 16))]
    found = tcdsl.define(NEST)["f"].compile(*specs, options=Options(threads=1)).source
    saved = re.search(r"float w_sum0\[\d+\];.*?for \(int64_t (c\d) = 0; \1 <= 2;", found, re.DOTALL)
    assert saved is not None
    after = found[saved.end() :]
    turns = re.findall(r" c\d = w_block\d( \+ \d+)?; ", after)
    assert turns == ["", " + 10", " + 21"] and "float w_sum" not in after
    assert after.index("w_sum0[w_k] + u0") > 0


@pytest.mark.parametrize("channels", [32, 45, 70])
def test_sums_of_a_nest(avx2: None, channels: int) -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((2, 38, channels), np.float32)
    w = random.standard_normal((3, channels, 16), np.float32)
    check(tcdsl.define(NEST)["f"], x, w, options=Options(threads=1))


@pytest.mark.parametrize("shape", [(64, 32, 95), (64, 32, 1003), (128, 128, 359)])
def test_equal_terms_of_a_product_lose_little(avx2: None, shape: tuple[int, int, int]) -> None:
    """No more than 32 are added one after another, the last ones, which fill no block, either."""
    rows, columns, terms = shape
    a, b = np.full((rows, terms), 0.1, np.float32), np.ones((terms, columns), np.float32)
    found: Any = tcdsl.define(PRODUCT)["f"](a, b, target="cpu", options=Options(threads=1))
    exact = float(a[0, 0]) * terms
    assert np.abs(found - exact).max() <= 3.5e-7 * exact


@pytest.mark.slow
def test_in_many_blocks_on_a_gpu(
    check_emulated: CheckAll, monkeypatch: pytest.MonkeyPatch, small_chip: Chip
) -> None:
    monkeypatch.setattr(
        cuda_sums, "Policy", lambda iterations, _, *most: Policy(iterations, 3, *most)
    )
    monkeypatch.setattr(cuda_sums, "_MOST_BLOCKS", 3)
    monkeypatch.setattr(cuda_sums, "_LONG_SUMS", (8, 8))
    check_emulated(CASES, gpu=small_chip)
    check_emulated(CASES[:3], gpu=small_chip, options=WHOLE)


@pytest.mark.parametrize("target", ["cpu", "emulate"])
def test_equal_terms_lose_little(target: str) -> None:
    """Each addition of 0.1 is rounded the same way: the longer the chain, the worse."""
    terms = np.full((1, 1 << 20), 0.1, np.float32)
    rows = tcdsl.define("def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }")["f"]
    found: Any = rows(terms, target=target, options=Options(threads=1))
    exact = float(terms[0, 0]) * terms.size
    assert abs(float(found[0]) - exact) <= 6e-7 * exact


def test_equal_terms_lose_little_in_shorter_vectors(avx2: None) -> None:
    """Their chains are twice as long."""
    test_equal_terms_lose_little("cpu")
