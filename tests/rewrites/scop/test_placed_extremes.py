"""The place of an extreme value of a product, as a part of the value."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl.lang.types.dtypes import INT64
from tcdsl.plan.state import Evaluator
from tcdsl.poly.scop import Kind, Scop
from tcdsl.rewrites.scop.placed_extremes import why_not_placed, with_place
from tcdsl.schedule.fusion import Group
from tcdsl.testing.comparison import check
from tests.strategies.tile_configs import MakeUnit, kernels_of

Lower = Callable[..., Scop]

REFUSED = {
    "C(m,n) +=! A(m,k) * B(k,n)  y(m) max=! C(m,n)": "it finds no place",
    "C(m,n) +=! A(m,k) * B(k,n)  y(m) argmax=! A(m,k)":
        "its terms are not what a product computes",
    "C(m,n) +=! A(m,k) * B(k,n)  y(m) argmax=! double(C(m,n))":
        "a value and its place have more than 64 bits",
    "C(m,n) +=! A(m,k) * B(k,n)  y(m) argmax=! C(m,n) where exists C(m,n) > 0.0":
        "it is not along one index, for all of it",
}  # fmt: skip
NEAREST = """def f({dtype}(M,K) x, {dtype}(N,K) c, float(N) s) -> (int32(M) y) {{
    d(m,n) +=! float(x(m,k)) * float(c(n,k))
    y(m) argmin=! s(n) - 2.0 * d(m,n)
}}"""
LARGEST = """def f({dtype}(M,K) x, {dtype}(N,K) c, float(N) s) -> (d, y) {{
    d(m,n) +=! x(m,k) * c(n,k)
    y({left}) argmax=! d(m,n) where {right} in {start}:{end}
}}"""


def arg_of(scop: Scop) -> Any:
    return next(s for s in scop.statements if s.kind is Kind.UPDATE and s.name == "S1")


@pytest.mark.parametrize("body", REFUSED)
def test_what_is_refused(body: str, lower: Lower) -> None:
    source = f"def f(half(M,K) A, half(K,N) B) -> (C, y) {{ {body} }}"
    assert why_not_placed(*[scop := lower(source, (16, 8), (8, 24)), arg_of(scop)]) == REFUSED[body]


def test_pairs_become_one_maximum(lower: Lower) -> None:
    scop = lower(NEAREST.format(dtype="half"), (16, 8), (24, 8), (24,))
    done = with_place(scop, "S1")
    assert not any(s.companion for s in done.statements)
    assert done.arrays["S1.placed"].dtype == INT64
    assert [str(s.kind) for s in done.statements[-3:]] == ["init", "update", "assign"]


def favoured(self: Evaluator, group: Group) -> float:
    """Return an estimate by which one kernel begins all that is reduced of a product."""
    has_all = {"S0", "S1_placed"} <= set(group.members)
    return SECONDS(self, group) * (0.1 if has_all else 1.0)


SECONDS = Evaluator.seconds


def drawn(dtype: str, m: int, n: int, k: int) -> list[np.ndarray[Any, Any]]:
    """Return factors of small integers, so that many sums are equal, with infinities.

    These times 0 are NaN in some of the sums: a NaN among the factors would be the extreme of all.
    """
    rng = np.random.default_rng(m)
    own = np.int8 if dtype == "int8" else np.float16
    x, c = (rng.integers(-2, 3, shape).astype(own) for shape in ((m, k), (n, k)))
    if dtype != "int8":
        x[3], x[5, 1], c[9, 2] = 0, np.inf, -np.inf
    return [x, c, rng.integers(-2, 3, n).astype(np.float32)]


@pytest.mark.slow_but("half-nearest")
@pytest.mark.parametrize(("dtype", "form"), [
    ("half", "nearest"), ("half", "of rows"), ("half", "of columns"), ("int8", "of rows"),
    ("int8", "of columns"), ("half", "of columns from the fourth row on"),
])  # fmt: skip
def test_products_begin_them(
    dtype: str, form: str, cuda_unit: MakeUnit, emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Evaluator, "seconds", favoured)
    m, n, k = 136, 264, 72
    left, right, start, end = ("m", "n", 0, 200) if form == "of rows" else ("n", "m", 0, 100)
    begins, start = ("from" not in form), (3 if "from" in form else 0)
    source = NEAREST if form == "nearest" else LARGEST
    source = source.format(dtype=dtype, left=left, right=right, start=start, end=end)
    unit = cuda_unit(source, (m, k), (n, k), (n,))
    assert ({"S0", "S1_placed"} <= {*kernels_of(unit)[0].split("+")}) == begins
    assert not unit.done.is_fallback and "tc_placed_m" in unit.source.text
    (program,) = emulated([unit])
    check(program, *drawn(dtype, m, n, k))


def test_what_follows_a_reduction_stays(cuda_unit: MakeUnit) -> None:
    """A product of 4096 begins sums of rows, of which another kernel takes roots."""
    source = """def f(bfloat16(M,K) A, bfloat16(K,N) B) -> (C, s) {
        C(m,n) +=! A(m,k) * B(k,n)
        r(m) +=! float(C(m,n)) * float(C(m,n))
        s(m) = rsqrt(r(m) + 1.0)
    }"""
    names = kernels_of(cuda_unit(source, (4096, 4096), (4096, 4096)))
    assert {"S0", "S1"} <= {*names[0].split("+")} and "S2" not in names[0].split("+")


def test_places_need_registers(cuda_unit: MakeUnit) -> None:
    """Of 256 columns a thread would have 64 integers of 64 bits, beside 128 sums."""
    source = LARGEST.format(dtype="bfloat16", left="n", right="m", start=0, end=512)
    unit = cuda_unit(source, (512, 64), (512, 64), (512,))
    first = unit.done.plan.weighed[0]
    if "S1_placed" in first.kernel:
        assert first.choice["columns"] < 256
