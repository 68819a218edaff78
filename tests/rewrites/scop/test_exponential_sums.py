"""Which statements are sums of exponentials beside the largest value of a row."""

from collections.abc import Callable

import pytest

from tcdsl.lang.comprehension import Binary, Call, Cast, Const, Index, Load
from tcdsl.lang.types.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64, INT8, INT32, INT64
from tcdsl.poly.scop import Scop
from tcdsl.rewrites.scop.exponential_sums import exponential_sums, magnitude, why_not_peak

Lower = Callable[..., Scop]

TERMS = {
    "s(i) +=! exp(x(i,j) - m(i))": True,
    "s(i) += exp(x(i,j) - m(i))": True,
    "s(i) +=! -exp(x(i,j) - m(i)) * 2.0": True,
    "s(i) +=! k(j) * (0.5 * exp(x(i,j) - m(i)))": True,
    "s(a) +=! exp(x(a,b) - m(a))": True,
    "s(i) +=! tanh(x(i,j)) * exp(x(i,j) - m(i))": True,
    "s(i) +=! sigmoid(w(i,j)) * exp(x(i,j) - m(i))": True,
    "s(i) +=! exp(m(i) - x(i,j))": False,
    "s(i) +=! exp(x(i,j) + m(i))": False,
    "s(i) +=! exp(x(i,j) - m(i)) + 1.0": False,
    "s(i) +=! exp(x(i,j) - m(i)) * m(i)": False,
    "s(i) +=! exp(x(i,j) - m(i)) * exp(x(i,j) - m(i))": False,
    "s(i) +=! k(j) > 1 ? exp(x(i,j) - m(i)) : 0.0": False,
    "s(i) +=! x(i,j) > m(i) ? exp(x(i,j) - m(i)) : 0.0": False,
    "s(i) +=! w(i,j) * exp(x(i,j) - m(i))": False,
    "s(i) +=! exp(x(i,j) - m(i)) / k(j)": False,
    "s(i) +=! exp(w(i,j) - m(i))": False,
    "s(i) +=! exp(x(i,j) * 2.0 - m(i))": False,
    "s(i) +=! exp(x(i,N-1-j) - m(i))": False,
    "s(i) +=! exp(x(i,j) - m(M-1-i))": False,
    "s(i) +=! exp2(x(i,j) - m(i))": False,
    "s(i) max=! exp(x(i,j) - m(i))": False,
    "s +=! exp(x(i,j) - m(i))": False,
    "s(j) +=! exp(x(i,j) - m(i))": False,
    "s(i) +=! exp(x(i,j) - m(i)) where exists k(j) > 0": False,
    "s(i) +=! exp(x(i,j) - m(i)) where j in 1:N": False,
    "s(i,l) +=! k(l) * exp(x(i,j) - m(i))": False,
}


@pytest.mark.parametrize("statement", TERMS)
def test_which_terms(statement: str, lower: Lower) -> None:
    source = f"""def f(float(M,N) x, float(M,N) w, int32(N) k) -> (s) {{
        m(i) max=! x(i,j)
        {statement}
    }}"""
    scop = lower(source, (6, 40), (6, 40), (40,))
    found = exponential_sums(scop)
    assert [(sums.peak, [t.name for t in sums.totals]) for sums in found] == (
        [("S0", ["S1"])] if TERMS[statement] else []
    )


def test_temporaries_are_written_out(lower: Lower) -> None:
    source = """def f(float(M,N) x) -> (s, t) {
        m(i) max=! x(i,j)
        d(a,b) = x(a,b) - m(a)
        e(a,b) = exp(d(a,b))
        s(i) +=! e(i,j) * 0.5
        t(p) +=! exp(d(p,q))
    }"""
    (sums,) = exponential_sums(lower(source, (6, 40)))
    first, second = sums.totals
    assert first.substituted == ("e", "d") and second.substituted == ("d",)
    assert isinstance(first.value, Binary) and first.value.left == second.value
    assert second.subscripts == (Index("i"),)


@pytest.mark.parametrize(
    "between",
    ["w(i,j) = w(i,j) + 1.0", "s(i) = s(i) * 2.0", "m(i) = m(i) + 1.0", "m(i) max=! x(i,j) * 2.0"],
)
def test_what_stands_between(between: str, lower: Lower) -> None:
    source = f"""def f(float(M,N) x, float(M) s, float(M,N) w) -> (w, s, m) {{
        m(i) max=! x(i,j) + w(i,j)
        {between}
        s(i) += exp((x(i,j) + w(i,j)) - m(i))
        w(i,j) = w(i,j) * 0.0
    }}"""
    scop = lower(source, (6, 40), (6,), (6, 40))
    assert not [s for s in exponential_sums(scop) if s.peak == "S0"]


def test_two_maxima_and_their_sums(lower: Lower) -> None:
    source = """def f(float(M,N) x, float(M,N) z) -> (s, t) {
        m(i) max=! x(i,j)
        n(i) max=! z(i,j)
        t(i) +=! exp(z(i,j) - n(i))
        s(i) +=! exp(x(i,j) - m(i))
    }"""
    found = exponential_sums(lower(source, (6, 40), (6, 40)))
    assert [sums.members for sums in found] == [("S0", "S3"), ("S1", "S2")]


def test_why_a_statement_is_no_maximum_of_rows(lower: Lower) -> None:
    source = """def f(float(M,N) x, int32(N) k, float(M) a) -> (a, b, c, d, e, g, h) {
        a(i) max= x(i,j)
        b(i) min=! x(i,j)
        c max=! k(j)
        d max=! x(i,j)
        e(i) max=! x(i,k(j))
        g(i) max=! x(i,j) where j in 0:i+1
        h(i) = x(i,0)
    }"""
    scop = lower(source, (6, 40), (40,), (6,))
    reasons = {n: why_not_peak(scop, scop.by_name[f"S{n}"]) for n in range(7)}
    assert reasons == {
        0: "it goes on from what its target holds",
        1: "it is no maximum of floats",
        2: "it is no maximum of floats",
        3: "not one index is reduced",
        4: "it reads through a tensor",
        5: "its instances are no box",
        6: "it is no reduction",
    }


def test_a_maximum_that_is_rounded_when_it_is_stored(lower: Lower) -> None:
    """A chunk's largest value would be compared with one that is rounded."""
    scop = lower("def f(float(M,N) x) -> (half(M) m) { m(i) max=! x(i,j) }", (6, 40))
    assert why_not_peak(scop, scop.by_name["S0"]) == "its target is narrower than its terms"


def test_a_temporary_of_what_the_maximum_replaces(lower: Lower) -> None:
    """d is of the m before the maximum, and must not be substituted with the m after it."""
    source = """def f(float(M,N) x) -> (s) {
        m(i) = x(i,0)
        d(i,j) = x(i,j) - m(i)
        m(i) max=! x(i,j)
        s(i) +=! exp(d(i,j))
    }"""
    assert exponential_sums(lower(source, (6, 40))) == []
    after = source.replace("d(i,j) = x(i,j) - m(i)\n        m(i) max=! x(i,j)",
                           "m(i) max=! x(i,j)\n        d(i,j) = x(i,j) - m(i)")  # fmt: skip
    assert [sums.peak for sums in exponential_sums(lower(after, (6, 40)))] == ["S1"]


def test_magnitudes() -> None:
    load = {t: Load("a", (), t) for t in (FLOAT16, BFLOAT16, FLOAT32, FLOAT64, INT8, INT32, INT64)}
    assert magnitude(load[FLOAT16]) == 16 and magnitude(load[INT8]) == 8
    assert magnitude(load[BFLOAT16]) == magnitude(load[FLOAT32]) == 128
    assert magnitude(Cast(load[FLOAT32], FLOAT64)) == 128
    assert magnitude(Cast(load[INT64], FLOAT32)) == 64
    half = Cast(load[FLOAT16], FLOAT32)
    assert magnitude(Binary("*", half, half, FLOAT32)) == 32
    assert magnitude(Binary("-", half, half, FLOAT32)) == 17
    assert magnitude(Binary("/", half, half, FLOAT32)) == 128
    assert magnitude(Const(8.0, FLOAT32)) == 3 and magnitude(Const(0.0, FLOAT32)) == 0
    assert magnitude(Call("tanh", (load[FLOAT32],), FLOAT32)) == 1
