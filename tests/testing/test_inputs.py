"""Drawn arguments fit the function, whatever its shapes ask for."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, find, given, settings

import tcdsl
from tcdsl.interp.arithmetic import Array
from tcdsl.lang.types.dtypes import ALL
from tcdsl.testing import inputs_for
from tcdsl.testing.parameters import chosen_sizes

QUICK = settings(
    max_examples=60,
    database=None,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)

MANY = ", ".join(f"{dtype.name}(N) {dtype.name}_values" for dtype in ALL)
PROGRAMS = {
    "window": "def f(float(N) x, float(K) w) -> (y) { y(i) +=! x(i + k) * w(k) }",
    "equal": "def f(float(N, M) a) -> (float(M) y) { y(i) +=! a(i, j) }",
    "constant": "def f(float(N, 3) x, float s) -> (y) { y(i, j) = x(i, j) * s }",
    "gather": "def f(float(E, D) table, int32(N) at) -> (y) { y(n, d) = table(at(n), d) }",
    "scatter": "def f(float(E) y, uint8(N) at) -> (y) { y(at(n)) += 1.0 }",
    "reserved": "def f(float(mod, floor) x) -> (y) { y(i) +=! x(i, j) }",  # words of isl's
    "no sizes": "def f(float s) -> (y) { y = s + 1.0 }",
    "types": f"def f({MANY}) -> (n) {{ n +=! int64(int8_values(i)) }}",
}


def function(name: str) -> tcdsl.Function:
    return tcdsl.define(PROGRAMS[name]).f


@pytest.mark.slow_but("window", "gather", "scatter", "no sizes", "types")
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_function_takes_what_is_drawn(name: str) -> None:
    f = function(name)

    @QUICK
    @given(inputs_for(f, special=True))
    def takes(inputs: tuple[Array, ...]) -> None:
        f.reference(*inputs)

    takes()


def drawn(f: Any, **arguments: Any) -> list[tuple[Array, ...]]:
    found: list[tuple[Array, ...]] = []

    @QUICK
    @given(inputs_for(f, **arguments))
    def collect(inputs: tuple[Array, ...]) -> None:
        found.append(inputs)

    collect()
    return found


def test_sizes_vary_within_their_bounds() -> None:
    cases = drawn(function("window"), min_size=2, max_size=9)
    sizes = {(len(x), len(w)) for x, w in cases}
    assert len(sizes) > 10
    assert all(2 <= n <= 9 and 2 <= k <= min(9, n + 1) for n, k in sizes)


def test_some_sizes_may_be_given() -> None:
    assert {len(w) for _, w in drawn(function("window"), sizes={"K": 3})} == {3}


def test_sizes_that_no_call_can_have_are_not_drawn() -> None:
    c = function("window").comprehension
    assert chosen_sizes(c, {"N": 3, "K": 9}, 0, 16, lambda low, high: low) is None
    assert chosen_sizes(c, {"N": 3}, 0, 16, lambda low, high: high) == {"N": 3, "K": 4}


def test_layouts_and_special_values_come_when_asked_for() -> None:
    f = tcdsl.define("def f(float(M, N) x, int8(M, N) n) -> (y) { y(i) +=! x(i, j) * n(i, j) }").f
    plain = drawn(f, layouts=("contiguous",))
    assert all(a.flags.c_contiguous and np.isfinite(a).all() for case in plain for a in case)
    special = drawn(f, special=True)
    assert any(np.isnan(x).any() for x, _ in special)
    assert any(np.isinf(x).any() for x, _ in special)
    assert any((n == -128).any() for _, n in special)
    assert any(not x.flags.c_contiguous for x, _ in special)


def test_what_is_drawn_shrinks_to_small_countable_arrays() -> None:
    (x,) = find(
        inputs_for(tcdsl.define("def f(float(M, N) x) -> (y) { y(i) +=! x(i, j) }").f),
        lambda inputs: bool(inputs[0].shape[0] > 1 and (inputs[0] > 0).any()),
        settings=settings(database=None, derandomize=True),
    )
    np.testing.assert_array_equal(x, [[0], [1]])
