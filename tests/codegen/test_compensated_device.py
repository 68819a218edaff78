"""The pairs of the device library: nothing is lost, and special values are those of sums."""

import ctypes
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.device.c import FUNCTIONS, header_text, parts_for
from tcdsl.runtime.c_compiler import compile_shared

Sum = Callable[..., tuple[float, float, float]]
_SUMS = """
void {way}_{t}(int n, const {T} *x, const {T} *y, {T} *r)
{{
  tc_{c} s = tc_cast_{t}_{c}(({T})0);
  for (int i = 0; i < n; i++) s = {step};
  r[0] = s.sum; r[1] = s.lost; r[2] = tc_cast_{c}_{t}(s);
}}
"""
STEPS = {
    "plus": "tc_plus_{c}(s, x[i])",
    "add": "tc_add_{c}(s, tc_plus_{c}(tc_cast_{t}_{c}(y[i]), x[i]))",
    "mad": "tc_mad_{c}(x[i], y[i], s)",
}
TYPES = {"f32": ("float", "c32", np.float32), "f64": ("double", "c64", np.float64)}


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Sum:
    """``sums(way, type, x, y)``: the sum, what it lost, and the number that both are."""
    text = header_text(parts_for(n for n, part in FUNCTIONS.items() if part == "compensated"))
    for t, (name, c, _) in TYPES.items():
        for way, step in STEPS.items():
            text += _SUMS.format(way=way, t=t, T=name, c=c, step=step.format(t=t, c=c))
    path = Path(tmp_path_factory.mktemp("pairs")) / "pairs.so"
    path.write_bytes(compile_shared(text))
    library = ctypes.CDLL(str(path))

    def sum_(way: str, t: str, x: Sequence[float], y: Sequence[float] = ()) -> Any:
        dtype = TYPES[t][2]
        terms, others = np.array(x, dtype), np.array(y or x, dtype)
        result = np.empty(3, dtype)
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (terms, others, result)]
        library[f"{way}_{t}"](len(terms), *pointers)
        return tuple(map(float, result))

    return sum_


@pytest.mark.parametrize("t", TYPES)
def test_two_numbers_lose_nothing(sums: Sum, t: str) -> None:
    """Whichever is larger."""
    for x, y in ((1e30, 1.0), (1.0, 1e30), (-1e30, 1e30), (0.1, 0.7), (3.0, -1e-30), (0.0, -0.0)):
        total, lost, _ = sums("plus", t, [x, y])
        terms = np.array([x, y], TYPES[t][2])
        assert Fraction(total) + Fraction(lost) == sum(Fraction(float(v)) for v in terms)


@pytest.mark.parametrize("t", TYPES)
def test_a_product_loses_nothing(sums: Sum, t: str) -> None:
    for x, y in ((0.1, 0.7), (1e10, 1e10 + 1), (-3.3, 1e-7)):
        total, lost, _ = sums("mad", t, [x], [y])
        a, b = (Fraction(float(TYPES[t][2](v))) for v in (x, y))
        assert Fraction(total) + Fraction(lost) == a * b


@pytest.mark.parametrize("way", ["plus", "add"])
@pytest.mark.parametrize("t", TYPES)
def test_small_terms_between_large_ones_count(sums: Sum, t: str, way: str) -> None:
    large = 1e8 if t == "f32" else 1e17
    terms = [large, 1.0, 1.0, -large, 1.0]
    zeros = [-0.0] * len(terms)
    assert sums(way, t, terms, zeros if way == "add" else ())[2] == 3.0


@pytest.mark.parametrize("way", STEPS)
@pytest.mark.parametrize("t", TYPES)
def test_special_values_are_those_of_plain_sums(sums: Sum, t: str, way: str) -> None:
    inf, nan, top = np.inf, np.nan, float(np.finfo(TYPES[t][2]).max)
    ones = [0.0] * 3 if way == "add" else [1.0] * 3
    for terms in ([inf, 1, 2], [1, -inf, 2], [inf, 1, -inf], [nan, 1, inf], [top, top, -top],
                  [top, 1, -top], [-top, -1, 0]):  # fmt: skip
        with np.errstate(all="ignore"):
            plain = np.array(terms, TYPES[t][2]).cumsum()[-1]
        found = sums(way, t, terms, ones)[2]
        if terms == [top, 1, -top]:
            assert found == 1  # plain summation loses it
        else:
            np.testing.assert_equal(found, float(plain))
