"""Bad inputs and faults, row by row of the list that a trusted compiler must survive.

E below means a ``TCError`` with its place, the user's own names and what to do.
"""

import contextlib
import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl import executable
from tcdsl.driver import Compiled
from tcdsl.errors import (
    InternalError,
    ParseError,
    RangeError,
    SemanticError,
    ShapeError,
    TargetError,
    TCError,
    TCWarning,
)
from tcdsl.interp.arithmetic import Array
from tcdsl.runtime import c_compiler
from tcdsl.runtime import cache as cache_module
from tcdsl.testing import check


class _Torch:
    """PyTorch; a test that touches it is skipped where it is not installed."""

    def __getattr__(self, name: str) -> Any:
        return getattr(pytest.importorskip("torch"), name)


torch: Any = _Torch()

F4 = np.float32
COPY = "def f(float(N) x) -> (y) { y(i) = x(i) }"
ADD = "def f(float(N) a, float(N) b) -> (y) { y(i) = a(i) + b(i) }"
MATMUL = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"


def ramp(*shape: int, dtype: Any = F4) -> Array:
    return np.arange(1, 1 + np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def body(statements: str, head: str = "float(N) x", out: str = "y") -> str:
    return f"def f({head}) -> ({out}) {{ {statements} }}"


def error_of(text: str, *args: Any) -> TCError:
    """Return the error of defining *text*, or else of calling its last def on *args*."""
    with pytest.raises(TCError) as caught:
        program = tcdsl.define(text)
        program[program.names[-1]](*args)
    error = caught.value
    assert not isinstance(error, InternalError)
    for foreign in ("lark", "Lark", "Traceback", "isl_", "Token(", "UnexpectedToken", "object at"):
        assert foreign not in str(error)
    return error


def run(text: str, *args: Any, **kwargs: Any) -> Any:
    program = tcdsl.define(text)
    return program[program.names[-1]](*args, **kwargs)


# --- text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "line", "column", "words"), [
    ("def f(float(N) x -> (y) { y(i) = x(i) }", 1, 18, ["expected ',' or ')'", "never closed"]),
    ("def f(float(N) x) -> (y) {\n  y(i) = x(i)", 2, 14, ["'}'", "the end", "never closed"]),
    ("def f(float(N) x) => (y) { y(i) = x(i) }", 1, 19, ["expected '->'"]),
    ("def f(float(N) x) -> (y) {\n\n  y(i) = x(i\n}", 4, 1, ["')'", "never closed"]),
    ("def f(float(N) x) -> (y) { y(i) == x(i) }", 1, 33, ["expected"]),
    ("def f(float(N) x) -> (y) { y(i) = x(i) where }", 1, 46, ["expected"]),
    ("fed f(float(N) x) -> (y) { y(i) = x(i) }", 1, 1, ["expected 'def'"]),
])  # fmt: skip
def test_row_01_syntax(text: str, line: int, column: int, words: list[str]) -> None:
    error = error_of(text)
    assert isinstance(error, ParseError)
    assert (error.line, error.column) == (line, column)
    assert "^" in str(error)
    for word in words:
        assert word in str(error)


def test_row_02_almost_nothing() -> None:
    for text in ("", " \n\t", "# only a comment", "# é \\ */\n\n", "\ufeff"):
        assert error_of(text).code == "TC012"
    for text in ("\ufeff" + COPY, COPY.replace(" ", "\r\n"), COPY.replace(" ", "\t"),
                 COPY + "\n# end", COPY.replace(" ", "\f")):  # fmt: skip
        np.testing.assert_array_equal(run(text, ramp(3), target="reference"), ramp(3))
    for text in (COPY + "\0", "\0", "\0" + COPY):
        error = error_of(text)
        assert error.code == "TC011" and "zero byte" in (error.hint or "")


@pytest.mark.parametrize("text", [
    pytest.param(body("y(i) = " + "x(i) + " * 1_500_000 + "x(i)"), id="10 MB"),
    pytest.param("#" + "a" * 10_000_000, id="10 MB comment"),
    pytest.param(body("y(i) = " + "x(i) + " * 20_000 + "x(i)"), id="20,000 terms"),
    pytest.param(body("y(i) = " + "(" * 10_000 + "x(i)" + ")" * 10_000), id="parentheses"),
    pytest.param(body("y(i) = " + "-" * 10_000 + "x(i)"), id="signs"),
    pytest.param(body("y(i) = " + "x(i) > 0.0 ? 1.0 : " * 4_000 + "x(i)"), id="conditions"),
    pytest.param(body("y(i) = " + "exp(" * 400 + "x(i)" + ")" * 400), id="calls"),
])  # fmt: skip
def test_row_03_too_large_or_too_deep(text: str) -> None:
    start = time.perf_counter()
    error = error_of(text)
    assert time.perf_counter() - start < 1
    assert error.code in ("TC013", "TC014") and "limit" in error.message
    assert len(str(error)) < 1000


# --- names and ranges ---------------------------------------------------------------------------


def test_row_04_unknown_names() -> None:
    error = error_of(body("y(i) = inptu(i)", "float(N) input"))
    assert (error.code, error.column) == ("TC020", 39)
    assert error.hint == "did you mean 'input'?"
    assert "'tanh'" in (error_of(body("y(i) = tnah(x(i))")).hint or "")
    assert "'zz'" in error_of(body("y(i) = zz(i)")).message
    with pytest.raises(SemanticError, match="no def 'mmm'"):
        tcdsl.define(MATMUL)["mmm"]


def test_row_05_an_index_that_nothing_bounds() -> None:
    error = error_of(body("y(i) +=! x(i) * float(in_dimm)"))
    assert isinstance(error, RangeError) and "in_dimm" in error.message
    assert "where in_dimm in 0:" in (error.hint or "")
    error = error_of(body("y(i) = x(i) + float(j)"))
    assert error.code == "TC025" and "j" in error.message


def test_row_06_ranks() -> None:
    error = error_of(body("y(i) = x(i, i)"))
    assert (error.code, error.column) == ("TC022", 35)
    assert "'x' has 1 dimension but is used with 2 subscripts" in error.message
    assert "1 dimension" in error_of(body("y(i) = x")).message


def test_row_07_extents_that_disagree() -> None:
    error = error_of(ADD, ramp(5), ramp(3))
    assert isinstance(error, ShapeError)
    for word in ("N", "5", "3", "'a'", "'b'"):
        assert word in error.message
    text = "def f(float(N) a, float(M) b) -> (y) { y(i) = a(i) + b(i) where i in 0:N }"
    out = np.zeros(5, F4)
    with pytest.raises(RangeError) as caught:
        run(text, ramp(5), ramp(3), out=out)
    for word in ("b(i)", "N = 5", "M = 3", "[0, 4]", "[0, 3)"):
        assert word in caught.value.message
    assert not out.any()  # before any launch
    np.testing.assert_array_equal(run(text, ramp(3), ramp(5)), 2 * ramp(3))


def test_row_08_ambiguous_ranges() -> None:
    error = error_of(body("y(i) +=! x(i + j)"))
    assert isinstance(error, RangeError) and "i, j" in error.message
    assert "where j in 0:N" in (error.hint or "")


def test_row_09_out_of_range_for_sure() -> None:
    error = error_of(body("y(i) = x(i + 3) where i in 0:N"))
    assert (error.code, error.column) == ("TC041", 35)
    assert "[3, N + 2]" in error.message and "[0, N)" in error.message
    error = error_of(body("y(i) = x(-1 - i) where i in 0:2"))
    assert "[-2, -1]" in error.message


def test_row_10_subscripts_that_are_not_affine() -> None:
    table, at = ramp(5), np.array([4, 0, 4], np.int32)
    text = body("y(i) = x(at(i))", "float(N) x, int32(M) at")
    np.testing.assert_array_equal(run(text, table, at), table[at])
    for bad in (5, -1, 2**31 - 1, -(2**31)):
        error = error_of(text, table, np.array([0, bad], np.int32))
        assert error.code == "TC080"
        for word in (str(bad), "'x'", "extent is 5"):
            assert word in error.message
    products = run(body("y(i, j) = x(i * j) where i in 0:2, j in 0:3"), table)
    np.testing.assert_array_equal(products, table[np.outer(range(2), range(3))])
    error = error_of(body("y(i, j) = x(i * j) where i in 0:3, j in 0:4"), table)
    assert error.code == "TC080"
    assert error_of(body("y(i) = x(x(i))"), table).code == "TC037"
    scatter = body("g(at(i)) += x(i)", "float(M) x, int32(M) at, float(N) g", "g")
    values = run(scatter, ramp(3), at, np.zeros(5, F4))
    np.testing.assert_array_equal(values, [2, 0, 0, 0, 4])
    g = np.zeros(4, F4)
    with pytest.raises(TCError) as caught:
        run(scatter, ramp(3), at, g, out=g)
    assert caught.value.code == "TC080" and "'g'" in caught.value.message


@pytest.mark.parametrize(("statement", "element"), [
    ("y(i) = x(i) * x(j)", "y(i)"), ("y(0) = x(i)", "y(0)"), ("y(i / 2) = x(i)", "y(i"),
    ("y(i - i) = x(i)", "y("), ("y = x(i)", "y"),
])  # fmt: skip
def test_row_11_two_values(statement: str, element: str) -> None:
    error = error_of(body(statement))
    assert isinstance(error, SemanticError) and error.code == "TC025"
    assert f"two values for {element}" in error.message
    assert "+=!" in (error.hint or "")


def test_row_12_cycles() -> None:
    error = error_of("def f(float(N) x) -> (y) { y = g(x) } def g(float(N) x) -> (y) { y = f(x) }")
    assert error.code == "TC029" and "f -> g -> f" in error.message
    error = error_of(body("t(i) = u(i) u(i) = t(i) y(i) = u(i)"))
    assert error.code == "TC027" and "'u' is read before it is written" in error.message
    sums = run(body("y(i) = x(i) y(i) = y(i - 1) + x(i) where i in 1:N"), ramp(9))
    np.testing.assert_array_equal(sums, np.cumsum(ramp(9)))
    # A recurrence runs in the order of its indices, also where that is not the order of the data.
    y = run(body("y(i) = x(i) y(i) = y(N - 1 - i) + 1.0 where i in 0:N"), ramp(5))
    np.testing.assert_array_equal(y, [6, 5, 4, 6, 7])


# --- types and literals -------------------------------------------------------------------------


def test_row_13_types() -> None:
    error = error_of(ADD, ramp(3, dtype=np.float64), ramp(3))
    assert error.code == "TC057"
    assert "float32" in error.message and "float64" in error.message
    for dtype in (complex, "datetime64[s]", "U3", object):
        error = error_of(ADD, np.zeros(3, dtype), ramp(3))
        assert error.code == "TC055" and "float32, float64" in (error.hint or "")
    assert "'+' does not take bool" in error_of(body("y(i) = x(i) + x(i)", "bool(N) x")).message
    assert error_of(body("y +=! x(i)", "bool(N) x")).code == "TC032"
    assert error_of(body("y(i) = x(i) && x(i)")).code == "TC023"
    mixed = run(body("y(i) = a(i) * b(i)", "int8(N) a, float16(N) b"),
                ramp(3, dtype=np.int8), ramp(3, dtype=np.float16))  # fmt: skip
    np.testing.assert_array_equal(mixed, ramp(3) ** 2)


@pytest.mark.parametrize("number", [
    "99999999999999999999", "9223372036854775808", "1e999", "300u8", "128i8", "1e39", "70000.0f16",
    "0x10", "1.0f65", "1e5i32", "1_000",
])  # fmt: skip
def test_row_14_literals(number: str) -> None:
    error = error_of(body(f"y(i) = x(i) * {number}"))
    assert isinstance(error, ParseError) and error.code in ("TC015", "TC017")
    assert error.column == 42 and number in error.message and error.hint


NAMES = (
    "threadIdx", "__global__", "exp", "min2", "c0", "main", "restrict", "y0", "NULL", "EOF", "I",
    "linux", "tc_exp_f32", "w_part", "pointers", "fault", "integers", "for", "while", "return",
    "static", "typeof", "_Bool", "complex", "_Complex", "INFINITY", "NAN", "__builtin_exp",
    "omp_get_thread_num", "__attribute__", "errno", "__LINE__", "S0", "k0", "t0", "p0", "g0", "s0",
    "size_t", "tcdsl_entry", "floord", "tc_div_i64", "sqrt", "abs", "_", "__", "isl", "None",
    "lambda", "__class__", "v" * 256,
)  # fmt: skip


@pytest.mark.parametrize(
    "kind", ["tensor", "output", "temporary", "index", "size", "scalar", "def"]
)
def test_row_15_names(kind: str, check_all: Callable[..., None]) -> None:
    x = ramp(5)
    forms: dict[str, str] = {
        "tensor": "def f(float(NN) {0}) -> (yy) {{ yy(i) = {0}(i) + 1.0 }}",
        "output": "def f(float(NN) xx) -> ({0}) {{ {0}(i) = xx(i) + 1.0 }}",
        "temporary": "def f(float(NN) xx) -> (yy) {{ {0} +=! xx(i) yy(i) = xx(i) * {0} }}",
        "index": "def f(float(NN) xx) -> (yy) {{ yy({0}) = xx({0}) + float({0}) }}",
        "size": "def f(float({0}) xx) -> (yy) {{ yy(i) = xx(i) + float({0}) }}",
        "scalar": "def f(float(NN) xx, float {0}) -> (yy) {{ yy(i) = xx(i) * {0} }}",
        "def": "def {0}(float(NN) xx) -> (yy) {{ yy(i) = xx(i) + 1.0 }}",
    }
    inputs = [x, np.float32(2)] if kind == "scalar" else [x]
    check_all([(forms[kind].format(name), inputs) for name in NAMES])


def test_row_15_all_names_at_once(check_all: Callable[..., None]) -> None:
    """The mangled forms of different names differ."""
    params = ", ".join(f"float(NN) {name}" for name in NAMES)
    total = " + ".join(f"{name}(i)" for name in NAMES)
    inputs = [ramp(4) * (k + 1) for k in range(len(NAMES))]
    check_all([(f"def f({params}) -> (yy) {{ yy(i) = {total} }}", inputs)])


@pytest.mark.parametrize("name", [
    "x);system(", "é", "v" * 300, "float", "a b", "a-b", "1a", "a;b", 'a"b', "a\\b", "??/", "a\0b",
    "def", "where", "max", "half", "\uff41",
])  # fmt: skip
def test_row_15_what_is_no_name(name: str) -> None:
    for text in (f"def f(float(N) {name}) -> (y) {{ y(i) = {name}(i) }}",
                 f"def {name}(float(N) x) -> (y) {{ y(i) = x(i) }}"):  # fmt: skip
        error = error_of(text)
        assert isinstance(error, ParseError)
        assert error.line == 1 and error.column and error.column >= 5
        assert len(error.message) < 200


def test_row_15_the_c_has_the_same_shape(compiled: Callable[..., Compiled]) -> None:
    plain = compiled("def f(float(N) abc) -> (d) { d(i) = abc(i) }", (70,)).source.text
    named = compiled(
        "def f(float(N) __global__) -> (d) { d(i) = __global__(i) }", (70,)
    ).source.text
    assert "__global__" not in named
    assert len(plain.splitlines()) == len(named.splitlines())


def test_row_16_comments_reach_no_c(compiled: Callable[..., Compiled]) -> None:
    evil = "# */ evil() #include <evil.h> ??/ \\\n"
    c = compiled(evil + COPY.replace("{", "{ " + evil) + evil, (70,)).source
    assert "evil" not in c.text and "??/" not in c.text
    assert c.text == compiled(COPY, (70,)).source.text
    np.testing.assert_array_equal(run(evil + COPY + " # \\", ramp(5)), ramp(5))


# --- arrays -------------------------------------------------------------------------------------


def test_row_17_empty_and_trivial_sizes(check_all: Callable[..., None]) -> None:
    reductions = body(
        "a(i) +=! x(i,j) b(i) *=! x(i,j) c(i) min=! x(i,j) d(i) max=! x(i,j) e +=! x(i,j)",
        "float(M,N) x", "a, b, c, d, e",
    )  # fmt: skip
    shapes = [(0, 0), (0, 3), (3, 0), (1, 1), (1, 3), (3, 1)]
    check_all([(reductions, [shape]) for shape in shapes])
    a, b, c, d, e = run(reductions, np.zeros((2, 0), F4))
    for value, identity in ((a, 0), (b, 1), (c, np.inf), (d, -np.inf), (e, 0)):
        assert (value == identity).all()
    check_all([(MATMUL, [(m, k), (k, n)]) for m, k, n in [(0, 3, 4), (3, 0, 4), (3, 4, 0)]])
    smallest = run(body("a min=! x(i) b max=! x(i)", "int8(N) x", "a, b"), np.zeros(0, np.int8))
    assert smallest == (127, -128)
    assert run(body("y = s * s", "float s"), 3.0) == 9
    assert run(body("y = s * s", "float s"), np.array(3, F4)).shape == ()


@pytest.mark.slow
def test_row_18_layouts() -> None:
    f = tcdsl.define(MATMUL).mm
    a, b = ramp(5, 7), ramp(7, 3)
    for x in (a.copy("F"), a[::-1], a[:, ::-1], np.repeat(a, 3, 1)[:, ::3],
              np.broadcast_to(a[0], (5, 7)), np.broadcast_to(a[:, :1], (5, 7)),
              np.lib.stride_tricks.sliding_window_view(ramp(11), 7)):  # fmt: skip
        check(f, x, b)
        check(f, x, b[::-1, ::-1])


def test_row_19_overlap() -> None:
    f = tcdsl.define(body("y(i) = x(N - 1 - i) where i in 0:N")).f
    memory = ramp(10)
    f(memory[:8], out=memory[2:])
    np.testing.assert_array_equal(memory[2:], ramp(8)[::-1])
    a = ramp(4, 4)
    check(tcdsl.define(MATMUL).mm, a, a)
    tcdsl.define(MATMUL).mm(a, a, out=a)
    np.testing.assert_array_equal(a, ramp(4, 4) @ ramp(4, 4))
    two = tcdsl.define(body("y(i) = x(i) z(i) = x(i) + 1.0", out="y, z")).f
    same = ramp(3)
    with pytest.raises(ShapeError, match="'z' cannot be written: it shares memory with out 'y'"):
        two(ramp(3), out=(same, same))


def test_row_20_out_that_is_read_only() -> None:
    frozen = ramp(3)
    frozen.flags.writeable = False
    for out, why in ((frozen, "read-only"), (torch.zeros(3, requires_grad=True), "gradient")):
        with pytest.raises(ShapeError) as caught:
            run(COPY, ramp(3), out=out)
        assert why in caught.value.message and "'y'" in caught.value.message and caught.value.hint
    np.testing.assert_array_equal(frozen, ramp(3))


SIZES = (1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 67, 127, 129)


@pytest.mark.slow
def test_row_25_sizes_around_every_tile(check_all: Callable[..., None]) -> None:
    rng = np.random.default_rng(0)
    sizes = [tuple(map(int, rng.choice(SIZES, 3))) for _ in range(16)]
    check_all([(MATMUL, [(m, k), (k, n)]) for m, k, n in sizes])
    softmax = body(
        "m(i) max=! x(i,j) e(i,j) = exp(x(i,j) - m(i)) s(i) +=! e(i,j) y(i,j) = e(i,j) / s(i)",
        "float(M,N) x",
    )
    check_all([(softmax, [(m, n)]) for m, n, _ in sizes])


# --- numbers ------------------------------------------------------------------------------------

SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-42, -1e-42, 1.0, -1.0], F4)


def test_row_26_special_values() -> None:
    text = """def f(float(N) x, float(M) y) -> (a, b, c, d, e, g) {
        a(i,j) = min(x(i), y(j))   b(i,j) = max(x(i), y(j))
        c(i,j) = fmin(x(i), y(j))  d(i,j) = fmax(x(i), y(j))
        e(i,j) = x(i) < y(j) ? x(i) : -y(j)
        g(i,j) = x(i) + y(j) }"""
    f = tcdsl.define(text).f
    check(f, SPECIAL, SPECIAL)
    a, b, *_ = f(SPECIAL, SPECIAL)
    np.testing.assert_array_equal(a, np.minimum(SPECIAL[:, None], SPECIAL))
    np.testing.assert_array_equal(b, np.maximum(SPECIAL[:, None], SPECIAL))
    rows = np.stack([np.roll(SPECIAL, k)[:5] for k in range(9)])
    reduced = body("a(i) min=! x(i,j) b(i) max=! x(i,j) c(i) +=! x(i,j) d(i) argmax=! x(i,j)",
                   "float(M,N) x", "a, b, c, d")  # fmt: skip
    check(tcdsl.define(reduced).f, rows)
    lows, highs, *_ = run(reduced, rows)
    np.testing.assert_array_equal(lows, rows.min(1))
    np.testing.assert_array_equal(highs, rows.max(1))
    negated = run(body("y(i) = -x(i)"), np.array([0.0, -0.0], F4))
    assert np.signbit(negated).tolist() == [True, False]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_row_27_half_types_accumulate_in_float32(dtype: str) -> None:
    numpy_dtype = tcdsl.spec((1,), dtype).dtype.numpy
    x = np.full(4096, 1, numpy_dtype)
    assert run(body("y +=! x(i)", f"{dtype}(N) x"), x) == 4096  # alone, 2048 + 1 is 2048
    big = np.full(3, 300, numpy_dtype)
    values = run(body("y(i) = x(i) * x(i) / x(i)", f"{dtype}(N) x", f"{dtype}(N) y"), big)
    np.testing.assert_array_equal(values.astype(F4), big.astype(F4))


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_row_28_integer_division(dtype: str) -> None:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    a = np.array([7, -7, 7, -7, 0, 5, -5, low, low, low, high], dtype)
    b = np.array([2, 2, -2, -2, 3, 0, 0, -1, 0, 1, -1], dtype)
    text = body("q(i) = a(i) / b(i) r(i) = a(i) % b(i)", f"{dtype}(N) a, {dtype}(N) b", "q, r")
    check(tcdsl.define(text).f, a, b)
    q, r = run(text, a, b)
    np.testing.assert_array_equal(q[:4], [3, -4, -4, 3])
    np.testing.assert_array_equal(r[:4], [1, 1, -1, -1])
    wrapped = 128 if dtype == "int8" else low  # an int8 is divided as an int32
    assert (q[5:7] == 0).all() and q[7] == wrapped and q[8] == 0  # x / 0 is 0, and MIN / -1 wraps


# --- faults of the machine ----------------------------------------------------------------------


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TCDSL_CACHE", "on")
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(folder))
    cache_module._warned.clear()
    executable._warned.clear()
    c_compiler._search_with.cache_clear()
    yield folder
    c_compiler._search_with.cache_clear()


def recorded(call: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Return the result of *call*, and the warnings that it gave."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = call()
    assert all(warning.category is TCWarning for warning in caught)
    return result, [str(warning.message) for warning in caught]


@pytest.mark.usefixtures("own_cache")
def test_row_29_the_quota_of_isl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCDSL_ISL_OPERATIONS", "50")
    f = tcdsl.define(MATMUL).mm
    start = time.perf_counter()
    result, messages = recorded(lambda: f(ramp(5, 7), ramp(7, 3)))
    assert time.perf_counter() - start < 10
    np.testing.assert_allclose(result, ramp(5, 7) @ ramp(7, 3))
    assert len(messages) == 1 and "isl" in messages[0]


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("fault", ["missing", "old", "broken"])
def test_row_31_no_usable_compiler(
    fault: str, own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = {"old": 'case "$*" in *--version*) echo v1; exit;; esac; exit 1', "broken": "exit 1"}
    path = tmp_path / "fakecc"
    if fault in texts:
        script(path, texts[fault])
    monkeypatch.setenv("TCDSL_CC", str(path))
    f = tcdsl.define(ADD).f
    result, messages = recorded(lambda: [f(ramp(n), ramp(n)) for n in (3, 4)])
    np.testing.assert_array_equal(result[1], 2 * ramp(4))
    (message,) = messages
    assert "no usable C compiler" in message and "tcdsl doctor" in message
    assert str(path) in message


def test_row_31_a_compiler_that_crashes_now_and_then(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flag = tmp_path / "crash"
    text = f'[ -e {flag} ] && case "$*" in *fPIC*) kill -SEGV $$;; esac; exec cc "$@"'
    monkeypatch.setenv("TCDSL_CC", str(script(tmp_path / "cc1", text)))
    f = tcdsl.define(ADD).f
    f(ramp(2), ramp(2))
    flag.touch()
    with contextlib.suppress(TCError):
        f(ramp(3), ramp(3))
    flag.unlink()
    np.testing.assert_array_equal(f(ramp(4), ramp(4)), 2 * ramp(4))


def test_row_32_no_gpu() -> None:
    optional = "pycuda torch cupy IPython matplotlib pygments ipywidgets".split()  # noqa: SIM905
    code = f"import sys, tcdsl; print([m for m in {optional}"
    code += " if m in sys.modules], tcdsl.cuda.is_available())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded, available = done.stdout.split("]")
    assert loaded == "["
    if available.strip() == "False":
        with pytest.raises(TargetError) as caught:
            run(COPY, ramp(3), target="cuda")
        assert caught.value.code == "TC067"
        assert "target='cpu'" in (caught.value.hint or "")
        assert "doctor" in (caught.value.hint or "")
        np.testing.assert_array_equal(run(COPY, ramp(3)), ramp(3))


# --- the cache ----------------------------------------------------------------------------------


def call_anew(n: int = 5) -> Array:
    """Compile or load, and call."""
    return np.asarray(tcdsl.define(ADD).f(ramp(n), ramp(n)))


@pytest.mark.parametrize("fault", ["file", "others write", "symlink to such", "loop"])
def test_row_36_cache_folders(fault: str, own_cache: Path, tmp_path: Path) -> None:
    match fault:
        case "file":
            own_cache.write_text("not a folder")
        case "others write":
            own_cache.mkdir(mode=0o777)
            own_cache.chmod(0o777)
        case "symlink to such":
            (tmp_path / "open").mkdir()
            (tmp_path / "open").chmod(0o777)
            own_cache.symlink_to(tmp_path / "open")
        case "loop":
            own_cache.symlink_to(own_cache)
    result, messages = recorded(lambda: [call_anew(), call_anew()])
    np.testing.assert_array_equal(result[1], 2 * ramp(5))
    (message,) = messages
    assert "cache" in message


def test_row_36_planted_code_is_not_loaded(own_cache: Path) -> None:
    call_anew()
    own_cache.chmod(0o777)
    cache_module._cache_at.cache_clear()
    before = {path: path.stat().st_mtime_ns for path in own_cache.glob("entries/*/*")}
    for path in before:
        path.write_bytes(b"planted")
    result, messages = recorded(call_anew)
    np.testing.assert_array_equal(result, 2 * ramp(5))
    assert len(messages) == 1 and "can be written by others" in messages[0]
    assert all(path.read_bytes() == b"planted" for path in before)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_row_36_full_disk(number: int, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(number, os.strerror(number))

    call_anew()
    monkeypatch.setattr(os, "fsync", fail)
    cache_module._cache_at.cache_clear()
    result, messages = recorded(lambda: [call_anew(6), call_anew(7), call_anew(5)])
    np.testing.assert_array_equal(result[1], 2 * ramp(7))
    (message,) = messages
    assert os.strerror(number) in message
    assert not list((own_cache / "work").iterdir())


def entry_files(folder: Path) -> list[Path]:
    return [p for p in folder.glob("entries/*/*") if b'"pointers"' in p.read_bytes()[:100_000]]


@pytest.mark.parametrize("fault", ["truncated", "flipped", "empty", "garbage", "json", "other key"])
def test_row_37_defects_of_an_entry(fault: str, own_cache: Path) -> None:
    call_anew()
    (path,) = entry_files(own_cache)
    good = path.read_bytes()
    head, _, rest = good.partition(b"\n")
    match fault:
        case "truncated":
            path.write_bytes(good[: len(good) // 2])
        case "flipped":
            path.write_bytes(good[:-100] + bytes([good[-100] ^ 1]) + good[-99:])
        case "empty":
            path.write_bytes(b"")
        case "garbage":
            path.write_bytes(os.urandom(5000))
        case "json":
            path.write_bytes(b'{"format": [[[' + head + b"\n" + rest)
        case "other key":
            changed = dict(json.loads(head), key="0" * 64)
            path.write_bytes(json.dumps(changed).encode() + b"\n" + rest)
    result, messages = recorded(call_anew)
    np.testing.assert_array_equal(result, 2 * ramp(5))
    assert messages == []
    assert path.read_bytes() != b"" and len(path.read_bytes()) >= len(good) // 2
    again = json.loads(path.read_bytes().partition(b"\n")[0])
    assert again["key"] == path.name


def _compile_in_child(queue: Any, seed: int) -> None:
    try:
        queue.put(bool((call_anew(9) == 2 * ramp(9)).all()))
    except BaseException as error:
        queue.put(repr(error))


@pytest.mark.slow
def test_row_38_sixteen_processes(own_cache: Path) -> None:
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    processes = [context.Process(target=_compile_in_child, args=(queue, k)) for k in range(16)]
    doomed = context.Process(target=_compile_in_child, args=(context.Queue(), 99))
    for process in (doomed, *processes):
        process.start()
    time.sleep(0.2)
    doomed.kill()
    results = [queue.get(timeout=60) for _ in processes]
    for process in (doomed, *processes):
        process.join(20)
    assert results == [True] * 16
    (path,) = entry_files(own_cache)
    assert cache_module.decode(path.name, path.read_bytes()) is not None
    np.testing.assert_array_equal(call_anew(9), 2 * ramp(9))


# A shell's background processes, and nohup's, ignore SIGINT, and so would their children.
HEEDING = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_row_39_interrupted_while_compiling(
    number: signal.Signals, own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "started"
    slow = tmp_path / "slow"
    slow.touch()
    text = (
        f"[ -e {slow} ] && grep -qs tcdsl_entry kernel.c && {{ echo $$ > {started}; sleep 60; }}; "
        'exec cc "$@"'
    )
    monkeypatch.setenv("TCDSL_CC", str(script(tmp_path / "slowcc", text)))
    code = f"import tcdsl; tcdsl.define({ADD!r}).f.compile(*2 * [tcdsl.spec((5,), 'float32')])"
    process = subprocess.Popen([sys.executable, "-c", HEEDING + code], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not (started.exists() and started.read_text().strip()):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    start = time.monotonic()
    process.send_signal(number)
    assert process.wait(10) != 0
    assert time.monotonic() - start < 2
    pid = int(started.read_text())
    while Path(f"/proc/{pid}").exists() and time.monotonic() - start < 5:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "Z":
            break
        time.sleep(0.02)
    else:
        assert not Path(f"/proc/{pid}").exists()
    slow.unlink()
    np.testing.assert_array_equal(call_anew(), 2 * ramp(5))


def test_row_39_interrupted_while_running() -> None:
    """A long launch ends, and then the interrupt arrives; the next call works."""
    code = f"""
import _thread, threading, time, numpy as np, tcdsl
f = tcdsl.define({MATMUL!r}).mm
a = np.ones((300, 300), "float32"); f(a, a)
threading.Timer(0.05, _thread.interrupt_main).start()
try:
    end = time.monotonic() + 20
    while time.monotonic() < end: f(a, a)
except KeyboardInterrupt:
    assert (f(a, a) == 300).all(); print("fine")
"""
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", HEEDING + code], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "fine", done.stderr
    assert time.monotonic() - start < 20


def test_gathers_from_an_empty_tensor() -> None:
    """It has no address: the clamped subscript 0 was read all the same, where sizes are open."""
    f = tcdsl.define("def f(float(K) q, int64(B) k) -> (y) { y(b) = q(k(b)) }").f
    for n in (5, 7, 9):
        assert float(f(torch.arange(n, dtype=torch.float32), torch.tensor([n - 1]))[0]) == n - 1
    with pytest.raises(TCError, match="index 0 of 'q' is out of range: the extent is 0"):
        f(torch.zeros(0), torch.tensor([0]))
