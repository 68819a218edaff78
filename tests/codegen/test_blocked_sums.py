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


CASES = [
    (TOTAL, [(20_011,)]), (COLUMNS, [(4001, 5)]), (CHANNELS, [(70, 3, 131)]), (BOTH, [(20_011,)]),
    (HALF, [(9001,)]), (DOT, [(9001,), (9001,)]),
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
