"""Exponentials of what a maximum was subtracted from, and quotients by their sums."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tcdsl.costmodel.chip import Chip
from tcdsl.lang.comprehension import Binary, Call, Const, Expr, walk
from tcdsl.lang.types.dtypes import BFLOAT16, FLOAT32
from tcdsl.poly.scop import Scop
from tcdsl.rewrites.scop.exponential_sums import MOST_ADDENDS
from tcdsl.rewrites.scop.shifted_exponentials import with_shifted_exponentials

Lower = Callable[..., Scop]
CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]

SOFTMAX = """def f(float(M,N) x) -> (y) {
    m(i) max=! x(i,j)
    e(i,j) = exp(x(i,j) - m(i))
    s(i) +=! e(i,j)
    y(i,j) = e(i,j) / s(i)
}"""


def nodes(scop: Scop) -> Iterator[Expr]:
    for statement in scop.statements:
        if statement.value is not None:
            yield from walk(statement.value)


def functions(scop: Scop) -> list[str]:
    """Return the functions that *scop* calls."""
    return [node.function for node in nodes(scop) if isinstance(node, Call)]


def dividends(scop: Scop) -> list[Expr]:
    """Return what *scop* divides."""
    return [node.left for node in nodes(scop) if isinstance(node, Binary) and node.op == "/"]


ONE = Const(1.0, FLOAT32)


TERMS = {
    "y(i,j) = exp(x(i,j) - m(i))": True,
    "y(j,i) = exp(x(i,j) - m(i))": True,
    "y(i) +=! k(j) * exp(x(i,j) - m(i)) + 1.0": True,
    "y(i,j) = k(j) > 0 ? exp(x(i,j) - m(i)) : 0.0": True,
    "y(i,j) = exp(x(i,j) - m(i)) where j in 1:N": True,
    "y(i) +=! exp(x(i,j) - m(i)) where exists k(j) > 0": True,
    "y(i,j,l) = exp(x(i,j) - m(i)) where l in 0:3": True,
    "y(p) max=! exp(x(p,q) - m(p))": True,
    "y(i,j) = exp(m(i) - x(i,j))": False,
    "y(i,j) = exp(x(i,j) + m(i))": False,
    "y(i,j) = exp(x(i,j) * 2.0 - m(i))": False,
    "y(i,j) = exp(2.0 * (x(i,j) - m(i)))": False,
    "y(i,j) = exp(w(i,j) - m(i))": False,
    "y(i,j) = exp(x(i,N-1-j) - m(i))": False,
    "y(i,j) = exp(x(M-1-i,j) - m(i))": False,
    "y(i,j) = exp(x(i,j) - m(M-1-i))": False,
    "y(i,j) = exp(x(i,j) - m(k(i)))": False,
    "y(i,j) = exp(x(i,0) - m(j)) where j in 0:M": False,
    "y(i,j) = exp2(x(i,j) - m(i))": False,
    "y(i,j) = exp(float64(x(i,j)) - m(i))": False,
}


@pytest.mark.parametrize("statement", TERMS)
def test_which_exponentials(statement: str, lower: Lower) -> None:
    source = f"""def f(float(M,N) x, float(M,N) w, int32(N) k) -> (y) {{
        m(i) max=! x(i,j)
        {statement}
    }}"""
    scop = lower(source, (6, 40), (6, 40), (40,))
    found = functions(with_shifted_exponentials(scop))
    assert (found == ["exp_nonpositive"]) == TERMS[statement]


MAXIMA = {
    "m(i) max=! x(i,j)": True,
    "m(i) max= x(i,j)": True,
    "m(i) max=! x(i,j) where j in 0:N": True,
    "m(i) min=! x(i,j)": False,
    "m(i) max=! w(i,j)": False,
    "m(i) max=! x(i,j) where j in 1:N": False,
    "m(i) max=! x(i,j) where exists k(j) > 0": False,
    "m(i) max=! x(i,k(j))": False,
    "m(i) max=! bfloat16(x(i,j))": False,
    "bfloat16 m(i) max=! x(i,j)": False,
    "m(i) max=! x(i,j)\n m(i) = m(i) - 1.0": False,
    "m(i) max=! x(i,j)\n m(i) min= 0.0 where i in 0:M": False,
    "m(i) max=! x(i,j)\n x(i,j) = x(i,j) + 1.0": False,
}


@pytest.mark.parametrize("statement", MAXIMA)
def test_of_which_maxima(statement: str, lower: Lower) -> None:
    results = "x, m, y" if "x(i,j) =" in statement else "m, y"
    source = f"""def f(float(M,N) x, float(M,N) w, int32(N) k, float(M) m) -> ({results}) {{
        {statement}
        y(i,j) = exp(x(i,j) - m(i))
    }}"""
    if "bfloat16 m" in statement:
        source = source.replace("bfloat16 m", "m").replace("float(M) m", "bfloat16(M) m")
    scop = lower(source, (6, 40), (6, 40), (40,), (6,))
    found = functions(with_shifted_exponentials(scop))
    assert (found == ["exp_nonpositive"]) == MAXIMA[statement]


QUOTIENTS = {
    "s(i) +=! e(i,j)\n y(i,j) = e(i,j) / s(i)": True,
    "s(i) +=! e(i,j)\n y(i,j) = 2.0 * (e(i,j) / s(i)) - 1.0": True,
    "s(i) +=! exp(x(i,j) - m(i))\n y(i,j) = exp(x(i,j) - m(i)) / s(i)": True,
    "s(i) +=! e(i,j)\n y(i,j) = e(0,j) / s(i)": True,
    "s(i) +=! e(i,j)\n y(i,j) = x(i,j) / s(i)": False,
    "s(i) +=! e(i,j)\n y(i,j) = s(i) / e(i,j)": False,
    "s(i) +=! e(i,j)\n y(i,j) = (e(i,j) + 1.0) / s(i)": False,
    "s(i) +=! e(i,j) * 0.5\n y(i,j) = e(i,j) / s(i)": False,
    "s(i) max=! e(i,j)\n y(i,j) = e(i,j) / s(i)": False,
    "s(i) +=! e(i,j) where j in 1:N\n y(i,j) = e(i,j) / s(i)": False,
    "s(i) +=! e(i,j) where exists x(i,j) > 0.0\n y(i,j) = e(i,j) / s(i)": False,
    "s(i) +=! e(i,0) where j in 0:N\n y(i,j) = e(i,j) / s(i)": False,
    "s(j) +=! e(i,j)\n y(i,j) = e(i,j) / s(j)": False,
    "s(i) +=! e(i,j)\n s(i) = s(i) * 0.1\n y(i,j) = e(i,j) / s(i)": False,
    "s(i) +=! e(i,j)\n t(i) = s(i) - 1.0\n y(i,j) = e(i,j) / t(i)": False,
}


@pytest.mark.parametrize("statements", QUOTIENTS)
def test_which_quotients(statements: str, lower: Lower) -> None:
    source = f"""def f(float(M,N) x) -> (y) {{
        m(i) max=! x(i,j)
        e(i,j) = exp(x(i,j) - m(i))
        {statements}
    }}"""
    scop = with_shifted_exponentials(lower(source, (6, 40)))
    assert (dividends(scop) == [ONE]) == QUOTIENTS[statements]


ADDENDS = {
    "s(i) +=! exp(x(i,j) - m(i))": True,
    "s(a) +=! exp(x(a,b) - m(a))": True,
    "s(i) += exp(x(i,j) - m(i))": False,
    "s(i) +=! -exp(x(i,j) - m(i))": False,
    "s(i) +=! 2.0 * exp(x(i,j) - m(i))": False,
    "s(i) +=! exp(x(i,j) - m(i)) where j in 1:N": False,
    "s(i) +=! exp(x(i,j) - m(i)) where exists x(i,j) > 0.0": False,
    "s(j) +=! exp(x(i,j) - m(i))": False,
    "s +=! exp(x(i,j) - m(i))": False,
    "s(i) max=! exp(x(i,j) - m(i))": False,
    "s(i) +=! exp(x(i,j) - m(i))\n s(i) *= 1e-30 where i in 0:M": False,
}


@pytest.mark.parametrize("statement", ADDENDS)
def test_which_addends(statement: str, lower: Lower) -> None:
    source = f"""def f(float(M,N) x, float(M) s) -> (s) {{
        m(i) max=! x(i,j)
        {statement}
    }}"""
    if "s(j)" in statement or "s +" in statement:
        source = source.replace(", float(M) s", "")
    shapes = [(6, 40), (6,)] if "float(M) s" in source else [(6, 40)]
    found = functions(with_shifted_exponentials(lower(source, *shapes)))
    assert found == ["exp_addend" if ADDENDS[statement] else "exp_nonpositive"]


@pytest.mark.parametrize("longer", [0, 1])
def test_long_sums_have_better_terms(longer: int, lower: Lower) -> None:
    source = """def f(float(M,N) x) -> (s) {
        m(i) max=! x(i,j)
        s(i) +=! exp(x(i,j) - m(i))
    }"""
    scop = with_shifted_exponentials(lower(source, (6, MOST_ADDENDS + longer)))
    assert functions(scop) == ["exp_nonpositive" if longer else "exp_addend"]


def test_a_maximum_that_goes_on_from_what_there_is_leaves_the_quotient(lower: Lower) -> None:
    source = """def f(float(M,N) x, float(M) m) -> (m, y) {
        m(i) max= x(i,j)
        e(i,j) = exp(x(i,j) - m(i))
        s(i) +=! e(i,j)
        y(i,j) = e(i,j) / s(i)
    }"""
    scop = with_shifted_exponentials(lower(source, (6, 40), (6,)))
    assert functions(scop) == ["exp_nonpositive"]
    assert ONE not in dividends(scop)


def test_a_maximum_that_comes_later_is_another_one(lower: Lower) -> None:
    source = """def f(float(M,N) x, float(M) m) -> (y, m) {
        y(i,j) = exp(x(i,j) - m(i))
        m(i) max= x(i,j)
    }"""
    assert functions(with_shifted_exponentials(lower(source, (6, 40), (6,)))) == ["exp"]


def test_other_types_and_programs_stay(lower: Lower) -> None:
    alone = "def f(float(M,N) x) -> (y) { y(i,j) = exp(x(i,j)) }"
    for source in (SOFTMAX.replace("float(", "double("), alone):
        scop = lower(source, (6, 40))
        assert with_shifted_exponentials(scop) is scop


CHANNELS = """def f(float(B,C,H,W) x) -> (y) {
    m(c) max=! x(b,c,h,w)
    e(b,c,h,w) = exp(x(b,c,h,w) - m(c))
    s(c) +=! e(b,c,h,w)
    y(b,c,h,w) = e(b,c,h,w) / s(c)
}"""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float", "bfloat16"])
def test_the_results_of_all_of_them_are_right(dtype: str, check_emulated: CheckAll) -> None:
    """Whether they are changed or not: what is written twice, gathered, conditional, or a part."""
    head = f"def f({dtype}(M,N) x, float(M,N) w, int32(N) k, float(M) m) -> (m, y) {{"
    k = (np.arange(40) % 6).astype(np.int32)
    rest = [(6, 40), (6, 40), k, (6,)]
    cases = [
        (f"{head}\n m(i) max=! float32(x(i,j))\n {statement}\n}}", rest)
        for statement in TERMS
        if "y(i,j) = exp(x(i,0)" not in statement  # x has more rows than columns there
    ]
    cases += [
        (f"{head}\n {statement}\n y(i,j) = exp(x(i,j) - m(i))\n}}", rest)
        for statement in MAXIMA
        if "x(i,j) =" not in statement and "bfloat16" not in statement
    ]
    head = f"def f({dtype}(M,N) x) -> (y) {{\n m(i) max=! x(i,j)\n e(i,j) = exp(x(i,j) - m(i))"
    cases += [(f"{head}\n {statements}\n}}", [(6, 40)]) for statements in QUOTIENTS]
    check_emulated(cases)


DTYPES = {"float": np.float32, "bfloat16": BFLOAT16.numpy, "half": np.float16}
COLUMNS = SOFTMAX.replace("(i)", "(j)")
MASKED = """def f(float(M,N) x, int32(N) k) -> (y) {
    m(i) max=! k(j) > 0 ? x(i,j) : -inf
    e(i,j) = exp((k(j) > 0 ? x(i,j) : -inf) - m(i))
    s(i) +=! e(i,j)
    y(i,j) = e(i,j) / s(i)
}"""
LOGARITHM = """def f(float(M,N) x) -> (y, s) {
    m(i) max=! x(i,j)
    s(i) +=! exp(x(i,j) - m(i))
    y(i,j) = x(i,j) - m(i) - log(s(i))
}"""
BESIDE = """def f(float(M,N) x, float(M) m) -> (m, y) {
    m(i) max= x(i,j)
    y(i,j) = exp(x(i,j) - m(i))
}"""


@pytest.mark.slow_but("half")
@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        (SOFTMAX, [[(5, 1000)], [(300, 64)], [(3, 7)], [(2, 20_001)], [(1, 1)], [(4, 0)]]),
        (SOFTMAX.replace("float(", "half("), [[(5, 1000)], [(64, 129)]]),
        (CHANNELS, [[(3, 5, 7, 9)], [(16, 2, 30, 30)]]),
        (COLUMNS, [[(40, 33)], [(500, 8)]]),
        (MASKED, [[(5, 300), (300,)]]),
        (LOGARITHM, [[(5, 300)], [(3, 7)], [(2, 20_001)]]),
        (BESIDE, [[(5, 300), (5,)]]),
    ],
    ids=["softmax", "half", "channels", "columns", "masked", "logarithm", "goes on"],
)  # fmt: skip
def test_the_results_are_right(source: str, shapes: list[Any], check_emulated: CheckAll) -> None:
    check_emulated([(source, inputs) for inputs in shapes])


@pytest.mark.slow_but("7-bfloat16", "7-half", "300-float")
@pytest.mark.parametrize("dtype", ["float", "bfloat16", "half"])
@pytest.mark.parametrize("n", [7, 300, 5000])
def test_what_is_no_number_and_what_is_next_to_nothing(
    dtype: str, n: int, check_emulated: CheckAll
) -> None:
    rng = np.random.default_rng(n)
    x = np.float32(rng.normal(size=(9, n)))
    x[0] = -np.inf
    x[1, 2] = np.inf
    x[2, 3] = np.nan
    x[3, ::2] = -np.inf
    x[4] *= 40  # exponentials that are subnormal, and 0
    x[5, 1:] = -np.linspace(86, 105, n - 1)
    x[6] = 3e38
    x[7, 1:] = -3e38
    x[8] = -1e-30
    with np.errstate(over="ignore"):  # float16
        values = x.astype(DTYPES[dtype])
    check_emulated([(s.replace("float(", f"{dtype}("), [values]) for s in (SOFTMAX, LOGARITHM)])


def test_a_row_has_one_reciprocal(cuda_unit: MakeUnit) -> None:
    text = cuda_unit(SOFTMAX, (3000, 4096)).source.text
    assert text.count("tc_exp_nonpositive_f32") == 1 and "tc_exp_f32" not in text
    assert text.count(" / ") == 1 and "tc_div_f32" not in text


def test_on_a_small_chip(check_emulated: CheckAll, small_chip: Chip) -> None:
    check_emulated([(SOFTMAX, [shape]) for shape in ((6, 4000), (40, 33))], gpu=small_chip)
