"""Scalar semantics: integer division, shifts, casts, NaN and signed zero, and the builtins."""

import math
from typing import Any

import numpy as np
import pytest

from tcdsl.interp.arithmetic import (
    FUNCTIONS,
    Plain,
    PlainArg,
    binary,
    convert,
    identity,
    unary,
)
from tcdsl.lang.comprehension import Operator
from tcdsl.lang.types.builtins import BUILTINS
from tcdsl.lang.types.dtypes import (
    BFLOAT16,
    BOOL,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    UINT8,
    UINT64,
)

INTEGERS = [np.int8, np.int16, np.int32, np.int64]


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_division_floors_wraps_and_gives_zero_for_zero(dtype: Any) -> None:
    low = np.iinfo(dtype).min
    a = np.array([7, -7, 7, -7, 5, low, low, 0], dtype)
    b = np.array([2, 2, -2, -2, 0, -1, 0, 0], dtype)
    quotient, remainder = binary("/", a, b, False), binary("%", a, b, False)
    assert quotient.tolist() == [3, -4, -4, 3, 0, low, 0, 0]
    assert remainder.tolist() == [1, 1, -1, -1, 0, 0, 0, 0]
    assert quotient.dtype == remainder.dtype == dtype


def test_unsigned_division_takes_the_largest_number_for_no_minus_one() -> None:
    a, b = np.array([255, 254, 7], np.uint8), np.array([255, 255, 0], np.uint8)
    assert binary("/", a, b, False).tolist() == [1, 0, 0]
    assert binary("%", a, b, False).tolist() == [0, 254, 0]


@pytest.mark.parametrize("dtype", [*INTEGERS, np.uint8, np.uint64])
def test_overflow_wraps(dtype: Any) -> None:
    info = np.iinfo(dtype)
    high, one = np.array([info.max], dtype), np.array([1], dtype)
    assert binary("+", high, one, False)[0] == info.min
    assert binary("-", np.array([info.min], dtype), one, False)[0] == info.max
    assert unary("-", np.array([info.min], dtype))[0] == info.min


def test_shifts_by_a_negative_count_or_by_the_width_leave_only_the_sign() -> None:
    a, count = np.array([5, -5, 5, -5, -5], np.int32), np.array([32, 32, -1, -1, 1], np.int32)
    assert binary("<<", a, count, False).tolist() == [0, 0, 0, 0, -10]
    assert binary(">>", a, count, False).tolist() == [0, -1, 0, -1, -3]
    high = np.array([200], np.uint8)
    assert binary(">>", high, np.array([9], np.uint8), False).tolist() == [0]
    assert binary("<<", high, np.array([1], np.uint8), False).tolist() == [144]


def test_float_remainder_has_the_sign_of_the_divisor() -> None:
    x, y = np.array([5.5, -5.5, 5.5, -5.5]), np.array([2.0, 2.0, -2.0, -2.0])
    with np.errstate(all="ignore"):
        assert binary("%", x, y, True).tolist() == [1.5, 0.5, -0.5, -1.5]
        assert binary("/", x, y * 0, True).tolist() == [math.inf, -math.inf, -math.inf, math.inf]


def test_negation_keeps_the_sign_of_zero() -> None:
    assert np.signbit(unary("-", np.array([0.0], np.float32)))[0]


def test_float_to_integer_truncates_saturates_and_takes_nan_to_zero() -> None:
    x = np.array([2.9, -2.9, 1e30, -1e30, np.nan, np.inf, -np.inf], np.float32)
    high, low = 2**63 - 1, -(2**63)
    assert convert(x, INT64).tolist() == [2, -2, high, low, 0, high, low]
    assert convert(x, UINT8).tolist() == [2, 0, 255, 0, 0, 255, 0]
    assert convert(x, UINT64).tolist() == [2, 0, 2**64 - 1, 0, 0, 2**64 - 1, 0]
    edge = np.array([127.5, 128.0, -128.9, -129.0])
    assert convert(edge, INT8).tolist() == [127, 127, -128, -128]
    assert convert(np.array([1.5, np.nan]).astype(BFLOAT16.numpy), INT32).tolist() == [1, 0]


def test_other_casts() -> None:
    assert convert(np.array([300, -1], np.int32), UINT8).tolist() == [44, 255]
    assert convert(np.array([0.0, -0.0, 0.5, np.nan]), BOOL).tolist() == [False, False, True, True]
    assert convert(np.array([True, False]), FLOAT32).tolist() == [1.0, 0.0]
    # Ties to even, and overflow to infinity, when a half is stored.
    with np.errstate(all="ignore"):
        assert convert(np.array([2049.0, 2051.0, 65520.0], np.float32), FLOAT16).tolist() == [
            2048.0, 2052.0, math.inf,
        ]  # fmt: skip


def test_minimum_propagates_nan_and_fmin_ignores_it() -> None:
    x, y = np.array([np.nan, 1.0, np.nan]), np.array([1.0, np.nan, np.nan])
    assert np.isnan(FUNCTIONS["min"](x, y)).all() and np.isnan(FUNCTIONS["max"](x, y)).all()
    assert FUNCTIONS["fmin"](x, y)[:2].tolist() == [1.0, 1.0]
    assert FUNCTIONS["fmax"](x, y)[:2].tolist() == [1.0, 1.0]
    assert np.isnan(FUNCTIONS["relu"](np.array([np.nan])))[0]
    assert np.signbit(FUNCTIONS["relu"](np.array([-0.0], np.float32)))[0], "as in C and CUDA"


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.longdouble])
def test_every_builtin_keeps_its_type(dtype: Any) -> None:
    for name, builtin in BUILTINS.items():
        args = [np.array([0.25, 0.75], dtype) for _ in range(builtin.arity)]
        with np.errstate(all="ignore"):
            result = FUNCTIONS[name](*args)
        assert result.dtype == (bool if name in ("isnan", "isinf") else dtype), name
        assert result.shape == (2,), name


REFERENCES = {
    "acosh": (2.5, math.acosh), "cbrt": (-27.0, lambda x: -3.0),
    "cospi": (0.75, lambda x: math.cos(0.75 * math.pi)),
    "erfcinv": (0.3, lambda x: 0.7328690779592167), "erfinv": (0.3, lambda x: 0.2724627147267543),
    "erfcx": (3.0, lambda x: math.exp(9) * math.erfc(3)), "exp10": (-2.0, lambda x: 0.01),
    "j0": (3.0, lambda x: -0.2600519549019334), "j1": (3.0, lambda x: 0.3390589585259365),
    "y0": (3.0, lambda x: 0.3768500100127904), "y1": (3.0, lambda x: 0.3246744247918),
    "cyl_bessel_i0": (3.0, lambda x: 4.880792585865024),
    "cyl_bessel_i1": (3.0, lambda x: 3.953370217402609),
    "lgamma": (4.5, math.lgamma), "tgamma": (4.5, math.gamma), "logb": (-10.0, lambda x: 3.0),
    "normcdf": (-3.0, lambda x: 0.0013498980316300946),
    "normcdfinv": (0.025, lambda x: -1.9599639845400545),
    "rcbrt": (8.0, lambda x: 0.5), "round": (-2.5, lambda x: -3.0), "rsqrt": (16.0, lambda x: 0.25),
    "sigmoid": (2.0, lambda x: 1 / (1 + math.exp(-2.0))), "sinpi": (7.0, lambda x: 0.0),
}  # fmt: skip


@pytest.mark.parametrize("name", REFERENCES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_builtin_values(name: str, dtype: Any) -> None:
    x, reference = REFERENCES[name]
    result = FUNCTIONS[name](np.array([x], dtype))[0]
    assert result == pytest.approx(reference(x), rel=8 * float(np.finfo(dtype).eps), abs=0)


@pytest.mark.parametrize(
    ("name", "x", "expected"),
    [
        ("tgamma", -0.0, -math.inf), ("tgamma", -1.0, math.nan), ("tgamma", 200.0, math.inf),
        ("lgamma", -2.0, math.inf), ("erfinv", 1.0, math.inf), ("erfinv", 1.5, math.nan),
        ("erfcinv", 0.0, math.inf), ("erfcx", -30.0, math.inf), ("y0", 0.0, -math.inf),
        ("y1", -1.0, math.nan), ("j0", math.inf, 0.0), ("normcdf", -math.inf, 0.0),
        ("cyl_bessel_i0", 1000.0, math.inf), ("logb", 0.0, -math.inf), ("sinpi", 0.5, 1.0),
        ("cospi", 0.5, 0.0), ("round", 0.49999999999999994, 0.0), ("sign", -0.5, -1.0),
    ],
)  # fmt: skip
def test_builtins_at_special_values(name: str, x: float, expected: float) -> None:
    with np.errstate(all="ignore"):
        result = float(FUNCTIONS[name](np.array([x]))[0])
    assert result == expected or (math.isnan(result) and math.isnan(expected))


def test_two_argument_builtins() -> None:
    x, y = np.array([5.0]), np.array([3.0])
    assert FUNCTIONS["fdim"](x, y)[0] == 2 and FUNCTIONS["fdim"](y, x)[0] == 0
    assert FUNCTIONS["remainder"](x, y)[0] == -1 and FUNCTIONS["fmod"](-x, y)[0] == -2
    assert FUNCTIONS["fma"](x, y, x)[0] == 20
    assert FUNCTIONS["rhypot"](np.array([3.0]), np.array([4.0]))[0] == 0.2
    assert FUNCTIONS["norm4d"](x, x, x, x)[0] == 10


def test_fused_multiply_add_rounds_once() -> None:
    x = np.array([1 + 2.0**-23], np.float32)
    exact = 2.0**-22 + 2.0**-46
    assert float(FUNCTIONS["fma"](x, x, np.array([-1], np.float32))[0]) == np.float32(exact)


@pytest.mark.parametrize(
    ("operator", "dtype", "expected"),
    [
        (Operator.MIN, FLOAT32, math.inf), (Operator.MAX, FLOAT64, -math.inf),
        (Operator.MIN, INT8, 127), (Operator.MAX, UINT8, 0), (Operator.ADD, INT32, 0),
        (Operator.MUL, FLOAT16, 1.0), (Operator.AND, BOOL, True), (Operator.OR, BOOL, False),
        (Operator.ARGMAX, FLOAT32, -1),
    ],
)  # fmt: skip
def test_identities(operator: Operator, dtype: object, expected: float) -> None:
    assert identity(operator, dtype) == expected  # type: ignore[arg-type]


def test_argmin_takes_the_first_nan_or_else_the_first_extreme() -> None:
    inf, nan = np.inf, np.nan
    rows = np.array([[3, 1, 1], [3, nan, nan], [inf, inf, inf], [-1, 1, 1]], np.float32)
    runs = np.ones((4, 3), bool)
    runs[2, 0] = runs[3] = False
    fold = PlainArg(Operator.ARGMIN, np.dtype(np.float32), 4)
    fold.add(np.arange(4), rows, runs, 0)
    assert fold.result().tolist() == [1, 1, 1, -1]


def test_argmax_of_a_row_in_pieces() -> None:
    fold = PlainArg(Operator.ARGMAX, np.dtype(np.int32), 1)
    for first, piece in ((0, [2, 7]), (2, [7, 3]), (4, [8, 8])):
        fold.add(np.zeros(1, int), np.array([piece], np.int32), np.ones((1, 2), bool), first)
    assert fold.result().tolist() == [4]


def test_long_float32_sums_are_pairwise() -> None:
    terms = np.full((1, 1_000_000), 0.1, np.float32)
    held = np.zeros(1, np.float32)
    fold = Plain().accumulator(Operator.ADD, FLOAT32, held, is_own=True)
    fold.add(np.zeros(1, int), terms, np.ones(terms.shape, bool), 0)
    assert fold.result()[0] == pytest.approx(float(np.float32(0.1)) * 1e6, rel=1e-6)
