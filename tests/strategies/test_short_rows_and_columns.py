"""Short rows and sums of their columns: blocks with several rows at once (templates/row_column)."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl import library
from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.options import Options
from tcdsl.testing import check
from tests.strategies.test_row_column import LAYERNORM_BACKWARD, SOFTMAX, WITH_TOTAL

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]

pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")

SCALED = """def f({t}(M,N) x, {t}(M,N) g) -> (y, d) {{
    s(m) +=! x(m,n) * g(m,n)
    y(m,n) = x(m,n) * s(m)
    d(n) +=! g(m,n) * y(m,n)
}}"""
# Rows of two axes, of which a block has several along one alone.
IMAGES = """def f(float(B,P,N) x) -> (y, d) {
    s(b,p) max=! x(b,p,n)
    y(b,p,n) = x(b,p,n) - s(b,p)
    d(n) +=! y(b,p,n)
}"""
COUNTED = """def f(float(M,N) x) -> (first, p, count, mass) {
    first(m) argmax=! x(m,n)
    p(m,n) = x(m,n) * x(m,first(m))
    count(n) = 0 where n in 0:N
    count(first(m)) += 1
    mass(n) +=! p(m,n)
}"""


@pytest.fixture
def chip() -> Chip:
    """One of three multiprocessors, which small programs keep busy."""
    return replace(load_chip("h200"), multiprocessors=3)


def rows_at_once(unit: Any) -> int:
    """Return how many rows a block has at once of those whose columns it sums; 0 if of none."""
    reasons = [why for kernel in unit.done.plan.kernels for why in kernel.why]
    crossing = [why for why in reasons if why.startswith("rows and columns")]
    found = [re.search(r"(\d+) rows at once", why) for why in crossing]
    return max((int(match[1]) if match else 1 for match in found), default=0)


def test_several_rows_at_once(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(SCALED.format(t="float"), (65536, 64), (65536, 64))
    assert rows_at_once(unit) >= 8
    (first, *_) = unit.source.launches
    assert first.block[0] * first.block[1] >= 128
    assert first.block[1] == rows_at_once(unit)


def test_a_gate_s_rows_are_read_once(cuda_unit: MakeUnit) -> None:
    source = library.source_for(library.case("moe_gate"), "float32")
    unit = cuda_unit(source, (65536, 64))
    assert rows_at_once(unit) >= 8
    assert unit.source.workspace_bytes < 4 * 65536 * 64, "no probability is stored"


def test_longer_rows_have_a_warp_at_least(cuda_unit: MakeUnit) -> None:
    assert rows_at_once(cuda_unit(SCALED.format(t="float"), (65536, 512), (65536, 512))) == 1


@pytest.mark.slow_but("float")
@pytest.mark.parametrize("dtype", ["float", "half", "double"])
def test_right_at_all_sizes(
    dtype: str, check_emulated: CheckAll, cuda_unit: MakeUnit, chip: Chip
) -> None:
    sizes = [(600, 64), (601, 61), (997, 12), (5000, 3), (4099, 8), (300, 40), (0, 8), (9, 8)]
    source = SCALED.format(t=dtype)
    check_emulated([(source, [size, size]) for size in sizes], gpu=chip)
    several = [rows_at_once(cuda_unit(source, s, s, gpu=chip)) > 1 for s in sizes]
    assert sum(several) >= 4


@pytest.mark.slow
def test_right_for_other_programs(
    check_emulated: CheckAll, cuda_unit: MakeUnit, chip: Chip
) -> None:
    cases: list[tuple[str, list[tuple[int, ...]]]] = [
        (LAYERNORM_BACKWARD.format(t="float"), [(901, 48), (901, 48), (48,), (901,), (901,)]),
        (WITH_TOTAL.format(t="float"), [(901, 33)]),
        (SOFTMAX.format(t="bfloat16"), [(901, 64)]),
        (IMAGES, [(7, 131, 24)]),
        (IMAGES, [(131, 7, 24)]),
    ]
    check_emulated(cases, gpu=chip)
    assert any(rows_at_once(cuda_unit(s, *shapes, gpu=chip)) > 1 for s, shapes in cases)


@pytest.mark.slow
def test_right_with_copies_of_scattered_results(
    check_emulated: CheckAll, cuda_unit: MakeUnit, chip: Chip
) -> None:
    sizes = [(3001, 64), (2999, 17), (4096, 8), (1, 5)]
    check_emulated([(COUNTED, [size]) for size in sizes], gpu=chip)
    assert any(rows_at_once(cuda_unit(COUNTED, size, gpu=chip)) > 1 for size in sizes)


@pytest.mark.slow
def test_right_at_open_sizes() -> None:
    """Dealt runs of rows are whole turns of the threads that share them."""
    f = tcdsl.define(SCALED.format(t="float")).f
    rng = np.random.default_rng(3)
    options = Options(dynamic_sizes=("M",))
    several = False
    for rows in (20000, 17000, 9001, 16385):
        args = [rng.standard_normal((rows, 40)).astype(np.float32) for _ in range(2)]
        check(f, *args, targets="emulate", options=options)
        several |= "rows at once" in f.compile(*args, target="emulate", options=options).explain()
    assert several
