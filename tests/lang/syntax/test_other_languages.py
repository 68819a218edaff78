"""Spellings of other languages: each error says what is written instead, and that works."""

import warnings

import pytest

import tcdsl
from tcdsl import TCError

HEADER = "def f(float(N) x, float(M, N) A, float(N) lo) -> (y)"


def error_of(statement: str) -> TCError:
    with pytest.raises(TCError) as caught:
        tcdsl.define(f"{HEADER} {{ {statement} }}")
    return caught.value


# (as another language has it, what the hint says, the same in this one)
SPELLINGS = [
    ("y(i) = x(i) where i < N", "where i in 0:N", "y(i) = x(i) where i in 0:N"),
    ("y(i) = x(i) where i <= 3", "where i in 0:3 + 1", "y(i) = x(i) where i in 0:3 + 1"),
    ("y(i) = x(i) where 0 <= i < N", "where i in 0:N", "y(i) = x(i) where i in 0:N"),
    ("y(i) = x(i) where 1 < i <= 4", "where i in 1 + 1:4 + 1",
     "y(i) = x(i) where i in 1 + 1:4 + 1"),
    ("y(i) = x(i) where i in range(N)", "in 0:N", "y(i) = x(i) where i in 0:N"),
    ("y(i) = x(i) where i in range(2, N)", "in 2:N", "y(i) = x(i) where i in 2:N"),
    ("y(i) = x(i) where i in range(1, N, 3)", "in 0:(N - 1 + 3 - 1) / 3, and 1 + 3 * i",
     "y(i) = x(1 + 3 * i) where i in 0:(N - 1 + 3 - 1) / 3"),
    ("y(i) = x(i) where i in N", "in 0:N", "y(i) = x(i) where i in 0:N"),
    ("y(i) = x(i) where i in (0, N)", "in 0:N", "y(i) = x(i) where i in 0:N"),
    ("y(i) = x(i) where i in [0, N)", "0:N", "y(i) = x(i) where i in 0:N"),
    ("y +=! x(i) where x(i) > 0.0", "where exists x(i) > 0.0",
     "y +=! x(i) where exists x(i) > 0.0"),
    ("y +=! x(i) where (i > 2)", "where exists (i > 2)", "y +=! x(i) where exists (i > 2)"),
    ("y +=! x(i) where i > 2", "where exists i > 2", "y +=! x(i) where exists i > 2"),
    ("y(i,j) = x(i) where i in 0:N and j in 0:M", "separate the clauses by commas",
     "y(i,j) = x(i) where i in 0:N, j in 0:M"),
    ("y(i,j) = x(i) where i in 0:N && j in 0:M", "separate the clauses by commas", None),
    ("y(i,j) = x(i) where i in 0:N where j in 0:M", "separate the clauses by commas", None),
    ("y(i) = x(i) if x(i) > 0.0 else 0.0", "write x(i) > 0.0 ? x(i) : 0.0",
     "y(i) = x(i) > 0.0 ? x(i) : 0.0"),
    ("y(i) = x(i) if i > 0 else 0.0 where i in 0:N", "write i > 0 ? x(i) : 0.0", None),
    ("y(i) = if x(i) > 0.0 then x(i) else 0.0", "write x(i) > 0.0 ? x(i) : 0.0",
     "y(i) = x(i) > 0.0 ? x(i) : 0.0"),
    ("y(i) = if (x(i) > 0.0) x(i) else 0.0", "there is no 'if'", None),
    ("if (i > 2) y(i) = x(i)", "there is no 'if'", None),
    ("y(i) = where(x(i) > 0.0, x(i), 0.0)", "c ? a : b", None),
    ("for i in 0:N { y(i) = x(i) }", "there are no loops", None),
    ("let a = 3.0  y(i) = x(i) * a", "where a = 3.0", "y(i) = x(i) * a where a = 3.0"),
    ("y(i) = x(i)  return y", "the header names", None),
    ("y(i) mean=! A(i, j)", "y(i) +=! ..., then y(i) = y(i) / float(N)",
     "y(i) +=! A(i, j)  y(i) = y(i) / float(N)"),
    ("y sum=! x(i)", "write y +=! ...", "y +=! x(i)"),
    ("y prod= x(i)", "write y *=! ...", "y *=! x(i)"),
    ("y norm=! x(i)", "there is no 'norm=!'; the reductions are +=! *=!", None),
    ("y = sum(x(i))", "t +=! x(i)", "t +=! x(i)  y = t"),
    ("y = sum(x)", "t +=! x(i)", None),
    ("y = mean(x(i))", "t +=! x(i), then t / float(N)", "t +=! x(i)  y = t / float(N)"),
    ("y(i) = sum(A, axis=1)", "no named arguments", "y(i) +=! A(i, j)"),
    ("y(i) = A(i, :)", "there are no slices", None),
    ("y(i) = A(i, ...)", "name an index for each dimension", None),
    ("y(i) = (int)x(i)", "write int(x(i))", "y(i) = int(x(i))"),
    ("y(i) = x(i)x(i)", "write an operator between x(i) and x(i)", "y(i) = x(i) * x(i)"),
    ("y(i) = clamp(x(i), 0.0, 1.0)", "write min(max(x(i), 0.0), 1.0)",
     "y(i) = min(max(x(i), 0.0), 1.0)"),
    ("y(i) = clamp(x(i), 0.0)", "write max(x(i), 0.0) for a lower bound, min(x(i), 0.0) for",
     "y(i) = max(x(i), 0.0)"),
    ("y(i) = clip(x(i))", "clip(a, b, c) is written min(max(a, b), c)", None),
    ("y(i) = select(x(i) > 0.0)", "select(a, b, c) is written a ? b : c", None),
    ("y(i) = if(x(i) > 0.0, 1.0, 2.0)", "write (x(i) > 0.0) ? 1.0 : 2.0", None),
    ("y(i) = where(x(i) > 0.0)", "write c ? a : b for where(c, a, b)", None),
    ("y(i) = leaky_relu(x(i), 0.1)", "write x(i) > 0.0 ? x(i) : 0.1 * x(i)",
     "y(i) = x(i) > 0.0 ? x(i) : 0.1 * x(i)"),
    ("y(i) = elu(x(i), 1.0)", "write x(i) > 0.0 ? x(i) : 1.0 * expm1(x(i))",
     "y(i) = x(i) > 0.0 ? x(i) : 1.0 * expm1(x(i))"),
    ("y(i) = relu6(x(i))", "write min(relu(x(i)), 6.0)", "y(i) = min(relu(x(i)), 6.0)"),
    ("y(i) = lerp(x(i), lo(i), 0.1)", "write x(i) + 0.1 * (lo(i) - x(i))",
     "y(i) = x(i) + 0.1 * (lo(i) - x(i))"),
    ("y(i) = relu(x(i), lo(i))", "it is relu(x)", None),
    ("y(i) = max(x(i))", "max takes two operands; over an index, reduce: m max=! A(i)", None),
    ("y(i) = max(x(i), 1.0, 2.0)", "max takes two operands: write max(a, max(b, c))", None),
    ("y(i) = cast(x(i), int32)", "write int32(x(i))", "y(i) = int32(x(i))"),
    ("y(i) = np.exp(x(i))", "functions have no module: write exp(...)", "y(i) = exp(x(i))"),
    ("y = std(x)", "then sqrt(v / float(N))",
     "s +=! x(i)  d(i) = x(i) - s / float(N)  v +=! d(i) * d(i)  y = sqrt(v / float(N))"),
    ("y(i) = clip(x(i) + 1.0, lo(i), 1.0)", "min(max((x(i) + 1.0), lo(i)), 1.0)", None),
    ("y(i) = maximum(x(i), 0.0)", "write max(x(i), 0.0)", "y(i) = max(x(i), 0.0)"),
    ("y(i) = silu(x(i))", "write x(i) * sigmoid(x(i))", "y(i) = x(i) * sigmoid(x(i))"),
    ("y(i) = softmax(x(i))", "t max=! x(i)",
     "t max=! x(i)  e(i) = exp(x(i) - t)  s +=! e(i)  y(i) = e(i) / s"),
    ("y(i) = cumsum(x(i))", "recurrence", "y(0) = x(0)  y(i) = y(i - 1) + x(i)"),
    ("y(i) = not (x(i) > 0.0)", "write !(x(i) > 0.0)", "y(i) = !(x(i) > 0.0)"),
    ("y(i) = x(i) ^ 2", "a power is pow(x, y)", None),
    ("// a note\n y(i) = x(i)", "a comment begins with #", None),
    ("y(i) = x(i) /* a note */", "a comment begins with #", None),
    ("y(i) = A.T(i, 0)", "A(j, i)", None),
    ("y(i) = g(x)(i)", "assign it, T = f(A), and read T(i)", None),
    ("y(i) = 2x(i)", "2 * x(i)", "y(i) = 2 * x(i)"),
    ("y(i) = lo(i) + 2 x(i)", "2 * x(i)", None),
    ("y(i) = |x(i)|", "fabs(x)", "y(i) = fabs(x(i))"),
    ("y(i) = x(i), z(i) = x(i)", "without a sign", "y(i) = x(i) z(i) = x(i)"),
    ("y(i) = \u221ax(i)", "sqrt(x)", "y(i) = sqrt(x(i))"),
    ("y(i) = \u03b1 * x(i)", "letters a-z and A-Z", None),
]  # fmt: skip


@pytest.mark.parametrize(("other", "hint", "own"), SPELLINGS, ids=[row[0] for row in SPELLINGS])
def test_the_hint_is_the_spelling_that_works(other: str, hint: str, own: str | None) -> None:
    assert hint in (error_of(other).hint or "")
    if own is not None:
        tcdsl.define(f"{HEADER} {{ {own} }}")


def test_dimensions_after_the_name() -> None:
    with pytest.raises(tcdsl.ParseError) as caught:
        tcdsl.define("def f(float x(N, M), float s) -> (y) { y(i) = x(i, i) }")
    assert caught.value.hint == "the dimensions stand with the type: float(N, M) x"


@pytest.mark.parametrize(("header", "hint"), [
    ("def f(float(N) x) -> (y): y(i) = x(i)", "the body stands in braces"),
    ("def f(float(N) x) -> (y(N)) { y(i) = x(i) }", "float(N) y; or leave them out: y"),
    ("def f(x: float(N)) -> (y) { y(i) = x(i) }", "the type comes first: float(N) x"),
    ("def f(np.float32(N) x) -> (y) { y(i) = x(i) }", "write float32"),
    ("def f(float(N) x,) -> (y) { y(i) = x(i) }", "remove the comma"),
    ("def f(f32(N) x) -> (y) { y(i) = x(i) }", "no type 'f32'; write float32"),
    ("def f(Float32(N) x) -> (y) { y(i) = x(i) }", "write float32"),
    ("def f(long(N) x) -> (y) { y(i) = x(i) }", "write int64"),
    ("def f(float[N] x) -> (y) { y(i) = x(i) }", "float(N)"),
])  # fmt: skip
def test_headers(header: str, hint: str) -> None:
    with pytest.raises(tcdsl.ParseError) as caught:
        tcdsl.define(header)
    assert hint in (caught.value.hint or "")


def test_a_chain_of_comparisons_is_a_warning() -> None:
    with pytest.warns(tcdsl.TCWarning, match=r"write 0\.0 < x\(i\) && x\(i\) < 1\.0 for both"):
        tcdsl.define(f"{HEADER} {{ y(i) = 0.0 < x(i) < 1.0 ? 1.0 : 0.0 }}")


def test_parentheses_say_that_a_result_is_compared() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tcdsl.define(f"{HEADER} {{ y(i) = ((x(i) < 1.0) < (lo(i) < x(i))) ? 1.0 : 0.0 }}")


# --- names that nobody declared ------------------------------------------------------------------


@pytest.mark.parametrize(("statement", "code"), [
    ("y +=! x(i) * w", "TC040"), ("y(i) = x(i) * w", "TC025"), ("y(i) +=! A(i, j) * w", "TC040"),
    ("y(i) = exp(w) * x(i)", "TC025"), ("y +=! x(i) * a where a = w + 1.0", "TC040"),
])  # fmt: skip
def test_an_undeclared_number(statement: str, code: str) -> None:
    error = error_of(statement)
    assert error.code == code and "declare `float w`" in (error.hint or "")


@pytest.mark.parametrize(("statement", "hint"), [
    ("y(i) = x(i) > 0.0 && True", "write true"), ("y(i) = x(i) * pi", "write 3.14159265358979"),
    ("y max=! x(i) > -INFINITY ? x(i) : 0.0", "write inf"),
])  # fmt: skip
def test_constants_of_other_languages(statement: str, hint: str) -> None:
    assert hint in (error_of(statement).hint or "")


def test_an_index_of_a_gather_is_no_number() -> None:
    assert "declare" not in (error_of("y(i) = x(i + k)").hint or "")
    with pytest.raises(TCError) as caught:
        tcdsl.compute("y(i) = x(i) * w", x=tcdsl.spec(3, "float32"))
    assert "w=1.0" in (caught.value.hint or "") and "declare" not in (caught.value.hint or "")


@pytest.mark.parametrize(("source", "hint"), [
    ("def f(float(N) x, float(M) w) -> (y) { y(i, j) = 3.0 }", "i in 0:N, j in 0:M"),
    ("def f(float(N) x, float(K) w) -> (y) { y(i) +=! x(i + j) }", "where j in 0:K"),
    ("def f(float(N, J) x) -> (y) { y(i, j) = x(i, 0) }", "where j in 0:J"),
    ("def f(float(N) x) -> (y) { y(i, j) = x(i) }", "where j in 0:N"),
    ("def f(float s) -> (y) { y(i) = s }", "where i in 0:10"),
])  # fmt: skip
def test_proposed_ranges_use_the_sizes_of_the_program(source: str, hint: str) -> None:
    with pytest.raises(tcdsl.RangeError) as caught:
        tcdsl.define(source)
    assert caught.value.code == "TC040" and hint in (caught.value.hint or "")
    clause = (caught.value.hint or "").partition("where ")[2].partition(" (")[0]
    tcdsl.define(source.replace(" }", f" where {clause} }}"))


def test_an_index_is_no_misspelt_size() -> None:
    with pytest.raises(TCError) as caught:
        tcdsl.define("def f(float(M,K) A, float(K,N) B) -> (C) { C(i,j) = A(i,k) * B(k,j) }")
    assert caught.value.hint == "sum over k with +=! (or another reduction), or add it on the left"


def test_sizes_in_the_place_of_indices() -> None:
    with pytest.raises(TCError) as caught:
        tcdsl.define("def f(float(m,k) A, float(k,n) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }")
    assert "m is a size of the header" in (caught.value.hint or "")
