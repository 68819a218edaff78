"""The bounds hold: perturbed operands, any order of summation, undecided conditions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl.interp.arithmetic import FOLDS, FUNCTIONS, Array, Plain, binary, convert
from tcdsl.interp.bounded_folds import Approximate, accumulator
from tcdsl.interp.error_bounds import Bounded
from tcdsl.interp.precision import working
from tcdsl.lang.comprehension import Operator
from tcdsl.lang.types.builtins import BUILTINS, BuiltinKind
from tcdsl.lang.types.dtypes import (
    BFLOAT16,
    BOOL,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    DType,
)

FLOATS = [FLOAT32, FLOAT64]
SCALES = [0.0, 1e-9, 1e-3, 0.3]


def drawn(rng: np.random.Generator, dtype: DType, scale: float) -> tuple[Approximate, Array]:
    """Return values with bounds, and what an implementation may have computed within them."""
    n = 400
    exact = rng.normal(size=n) * 10.0 ** rng.integers(-3, 2, n)
    exact[:40] = rng.integers(-4, 5, 40)
    bound = np.abs(exact) * scale * rng.random(n) + (scale * 0.01 if scale else 0)
    value = exact.astype(dtype.numpy).astype(working(dtype))
    computed = (value + bound * rng.uniform(-0.999, 0.999, n)).astype(dtype.numpy)
    # Rounding may have left the interval.
    bound = np.maximum(bound, np.abs(computed.astype(working(dtype)) - value).astype(np.float64))
    return Approximate(value, bound), computed


def assert_within(actual: Array, result: Approximate, what: str) -> None:
    found = actual.astype(result.value.dtype)
    with np.errstate(all="ignore"):
        off = np.abs(found - result.value)
    same = (found == result.value) | (np.isnan(found) & np.isnan(result.value))
    ok = same | (off <= result.bound) | np.isinf(result.bound)
    assert ok.all(), (what, np.flatnonzero(~ok)[:5], found[~ok][:5], result.value[~ok][:5])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("op", ["+", "-", "*", "/", "%", "<", "<=", "==", "!="])
def test_operators_on_perturbed_operands(op: str, scale: float, dtype: DType) -> None:
    rng = np.random.default_rng(7)
    (a, x), (b, y) = drawn(rng, dtype, scale), drawn(rng, dtype, scale)
    with np.errstate(all="ignore"):
        actual = binary(op, x, y, True)
        result = Bounded().binary(op, a, b, BOOL if op in "<=!=" else dtype, dtype)
    if result.value.dtype == bool:
        assert ((actual == result.value) | (result.bound > 0)).all()
    else:
        assert_within(actual, result, op)
    if scale < 1e-2:  # not by knowing nothing
        assert (result.bound < 1).mean() > 0.7


FLOAT_BUILTINS = [b for b in BUILTINS.values() if b.kind is not BuiltinKind.TEST]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("builtin", FLOAT_BUILTINS, ids=lambda b: b.name)
def test_builtins_on_perturbed_operands(builtin: Any, scale: float, dtype: DType) -> None:
    rng = np.random.default_rng(11)
    args = [drawn(rng, dtype, scale) for _ in range(builtin.arity)]
    with np.errstate(all="ignore"):
        actual = np.asarray(FUNCTIONS[builtin.name](*(x for _, x in args)))
        result = Bounded().call(builtin.name, tuple(a for a, _ in args), dtype)
    assert_within(actual, result, builtin.name)
    if scale == 0:
        finite = np.isfinite(actual.astype(np.float64))
        small = result.bound <= 1e-4 * (1 + np.abs(result.value))
        assert small[finite].all()


def test_whole_numbers_stay_exact() -> None:
    a, b = (Approximate(np.arange(5.0) + k, np.zeros(5)) for k in (1, 3))
    for op in ("+", "-", "*"):
        assert not Bounded().binary(op, a, b, FLOAT32, FLOAT32).bound.any()
    assert Bounded().binary("/", a, b, FLOAT32, FLOAT32).bound.any()


def test_the_bound_covers_contraction_to_a_fused_multiply_add() -> None:
    rng = np.random.default_rng(3)
    x, y, z = (rng.normal(size=500).astype(np.float32) for _ in range(3))
    z[:250] = -(x * y)[:250]  # all that is left then is what the product has lost
    a, b, c = (Bounded().exact(v, FLOAT32) for v in (x, y, z))
    product = Bounded().binary("*", a, b, FLOAT32, FLOAT32)
    result = Bounded().binary("+", product, c, FLOAT32, FLOAT32)
    assert_within(FUNCTIONS["fma"](x, y, z), result, "fused")
    assert_within(x * y + z, result, "not fused")


def test_an_overflow_allows_anything_and_a_certain_infinity_nothing_else() -> None:
    big = Bounded().exact(np.float32(3e38), FLOAT32)
    with np.errstate(all="ignore"):
        assert np.isinf(Bounded().binary("+", big, big, FLOAT32, FLOAT32).bound)
        infinity = Bounded().exact(np.float32(np.inf), FLOAT32)
        total = Bounded().binary("+", infinity, big, FLOAT32, FLOAT32)
    assert np.isinf(total.value) and total.bound == 0


@pytest.mark.parametrize("dtype", [FLOAT16, BFLOAT16])
def test_a_half_is_rounded_once_more(dtype: DType) -> None:
    rng = np.random.default_rng(5)
    value = rng.normal(size=1000) * 10.0 ** rng.integers(-6, 6, 1000)
    bound = np.abs(value) * 1e-4 * rng.random(1000)
    with np.errstate(all="ignore"):
        result = Bounded().cast(Approximate(value, bound), FLOAT32, dtype)
        computed = (value + bound * rng.uniform(-1, 1, 1000)).astype(np.float32)
        assert_within(convert(computed, dtype).astype(np.float64), result, dtype.name)
    # What no perturbation can move across a rounding boundary is exact, overflow included.
    sure = result.bound == 0
    assert sure.mean() > 0.3
    if dtype == FLOAT16:
        assert np.isinf(result.value[np.abs(value) > 7e4]).all()


def test_casts_to_integers_are_in_doubt_near_whole_numbers() -> None:
    a = Approximate(np.array([1.5, 2.0, 1e30, np.nan]), np.array([0.1, 0.1, 0.1, 0.0]))
    result = Bounded().cast(a, FLOAT32, INT32)
    assert result.value.tolist() == [1, 2, 2**31 - 1, 0]
    assert result.bound.tolist() == [0, 1, 0, 0]


def test_a_select_on_an_undecided_condition_covers_both_branches() -> None:
    x = Approximate(np.array([0.0, 5.0]), np.array([0.1, 0.1]))
    zero = Bounded().exact(np.zeros(2), FLOAT32)
    positive = Bounded().binary(">", x, zero, BOOL, FLOAT32)
    assert positive.bound.tolist() == [1, 0]
    high, low = (Bounded().exact(np.full(2, v), FLOAT32) for v in (7.0, 4.0))
    chosen = Bounded().select(positive, high, low)
    assert chosen.value.tolist() == [4, 7] and chosen.bound.tolist() == [3, 0]


def test_logic_with_one_decisive_operand_is_certain() -> None:
    doubtful = Approximate(np.array([True]), np.array([1.0]))
    true, false = (Approximate(np.array([v]), np.zeros(1)) for v in (True, False))
    for op, other, sure in (("&&", true, False), ("&&", false, True), ("||", true, True)):
        result = Bounded().binary(op, doubtful, other, BOOL, BOOL)
        assert bool(result.bound[0] == 0) == sure


def folded(operator: Operator, dtype: DType, terms: Approximate, start: float) -> Approximate:
    held = Approximate(np.array([start], working(dtype)), np.zeros(1))
    fold = accumulator(operator, dtype, held)
    shape = (1, terms.value.size)
    row = Approximate(terms.value.reshape(shape), np.broadcast_to(terms.bound, shape))
    fold.add(np.zeros(1, int), row, np.ones(shape, bool), 0)
    return fold.result()


ORDERS: list[Callable[[Array], Array]] = [
    lambda x: x, lambda x: x[::-1], np.sort, lambda x: x[np.argsort(np.abs(x))],
    lambda x: x[np.argsort(-np.abs(x))],
]  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("operator", [Operator.ADD, Operator.MUL, Operator.MIN, Operator.MAX])
@pytest.mark.parametrize("scale", SCALES)
def test_folds_in_every_order(operator: Operator, dtype: DType, scale: float) -> None:
    rng = np.random.default_rng(13)
    terms, computed = drawn(rng, dtype, scale)
    n = 20 if operator is Operator.MUL else 400
    terms, computed = Approximate(terms.value[40:][:n], terms.bound[40:][:n]), computed[40:][:n]
    start = 1.0 if operator is Operator.MUL else 0.5
    with np.errstate(all="ignore"):
        result = folded(operator, dtype, terms, start)
        for order in ORDERS:
            total = np.array([start], dtype.numpy)
            for term in order(computed):
                total = FOLDS[operator](total, term).astype(dtype.numpy)
            assert_within(total, result, operator)
    if operator is not Operator.MUL:
        assert result.bound[0] < 200


def test_a_sum_of_whole_numbers_is_exact() -> None:
    terms = Approximate(np.arange(100.0), np.zeros(100))
    assert folded(Operator.ADD, FLOAT32, terms, 0.25).bound[0] == 0
    assert folded(Operator.ADD, FLOAT32, Approximate(terms.value * 1e6, terms.bound), 0).bound[0]


def test_a_sum_that_might_overflow_in_some_order_allows_anything() -> None:
    terms = Approximate(np.array([3e38, -3e38, 3e38, -3e38]), np.zeros(4))
    assert np.isinf(folded(Operator.ADD, FLOAT32, terms, 0).bound[0])


def test_a_certain_nan_is_certain_in_sums_and_extremes() -> None:
    terms = Approximate(np.array([1.0, np.nan, 3.0]), np.array([0.1, 0.0, 0.1]))
    for operator in (Operator.ADD, Operator.MIN, Operator.MAX):
        with np.errstate(all="ignore"):
            result = folded(operator, FLOAT32, terms, 0)
        assert np.isnan(result.value[0]) and result.bound[0] == 0


def test_integer_and_bool_folds_are_exact_unless_in_doubt() -> None:
    whole = Approximate(np.array([1, 2, 3], np.int32), np.zeros(3))
    assert folded(Operator.ADD, INT32, whole, 0).bound[0] == 0
    doubt = Approximate(np.array([True, False]), np.array([1.0, 0.0]))
    assert folded(Operator.AND, BOOL, doubt, True).bound[0] == 0  # one certain false decides
    assert folded(Operator.OR, BOOL, doubt, False).bound[0] > 0


def test_argmin_is_in_doubt_as_far_as_close_terms_reach() -> None:
    terms = Approximate(np.array([5.0, 1.0, 9.0, 1.05]), np.full(4, 0.1))
    result = folded(Operator.ARGMIN, FLOAT32, terms, -1)
    assert result.value.tolist() == [1] and result.bound.tolist() == [2]
    exact = Approximate(terms.value, np.zeros(4))
    assert folded(Operator.ARGMIN, FLOAT32, exact, -1).bound.tolist() == [0]
    tie = Approximate(np.array([2.0, 2.0]), np.zeros(2))
    assert folded(Operator.ARGMAX, FLOAT32, tie, -1).bound.tolist() == [0]


def test_plain_and_bounded_values_agree_on_integers() -> None:
    a, b = np.array([7, -7, 1 << 62], np.int64), np.array([0, 2, 3], np.int64)
    for op in ("+", "*", "/", "%"):
        plain = Plain().binary(op, a, b, INT64, INT64)
        x, y = (Bounded().exact(v, INT64) for v in (a, b))
        assert Bounded().binary(op, x, y, INT64, INT64).value.tolist() == plain.tolist()


def test_large_integers_from_floats_keep_their_doubt() -> None:
    """2^64 - 2 rounds to 2^64 as a float64, which saturates to 2^64 - 1."""
    from tcdsl.testing import compare

    expected = np.array([2**64 - 2], np.uint64)
    actual = np.array([2**64 - 1], np.uint64)
    assert compare(expected, np.array([2.0]), actual) is None
    assert compare(expected, np.array([0.0]), actual) is not None
