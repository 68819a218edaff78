"""Products of three and more factors in pairs: in which order, and that they mean the same."""

from collections.abc import Callable

import numpy as np
import pytest

import tcdsl
from tcdsl.lang.comprehension import Specialisation
from tcdsl.lang.syntax.printer import print_statement, untyped_statement
from tcdsl.options import Options
from tcdsl.rewrites.comprehension import contraction_order
from tcdsl.rewrites.comprehension.contraction_order import in_pairs, why_not_paired
from tests.programs import comprehension_of
from tests.rewrites.comprehension.test_coalescing import Shapes, analysed

CheckAll = Callable[..., None]

CHAIN = (
    "def f(float(I,J) a, float(J,K) b, float(K,L) c) -> (d) { d(i,l) +=! a(i,j) * b(j,k) * c(k,l) }"
)
KRONECKER = """def f(float(M,A,B,C) x, float(D,A) u, float(E,B) v, float(F,C) w) -> (y) {
    y(m,d,e,f) +=! x(m,a,b,c) * u(d,a) * v(e,b) * w(f,c)
}"""


def paired(source: str, shapes: Shapes) -> list[str]:
    c, special = analysed(source, shapes)
    new, sized = in_pairs(c, special, 16)
    assert isinstance(sized, Specialisation) and len(sized.ranges) == len(new.statements)
    return [print_statement(untyped_statement(s)) for s in new.statements]


def test_the_cheaper_order_of_a_chain() -> None:
    tall = [(100, 200), (200, 300), (300, 4)]
    first, second = paired(CHAIN, tall)
    assert first == "d.S0_pair0(l, j) +=! b(j, k) * c(k, l)"
    assert second == "d(i, l) +=! a(i, j) * d.S0_pair0(l, j)"
    wide = [(4, 200), (200, 300), (300, 100)]
    assert paired(CHAIN, wide)[0] == "d.S0_pair0(i, k) +=! a(i, j) * b(j, k)"


def test_a_kronecker_product_is_taken_factor_by_factor() -> None:
    shapes = [(64, 16, 16, 16), (16, 16), (16, 16), (16, 16)]
    steps = paired(KRONECKER, shapes)
    assert len(steps) == 3
    assert all(step.count("*") == 1 for step in steps)


@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        (CHAIN, [(4, 4)] * 3),
        (CHAIN, [(0, 200), (200, 300), (300, 4)]),
        (
            "def f(float(I,J) a, float(I,J) b, float(I,J) c) -> (s)"
            " { s +=! a(i,j) * b(i,j) * c(i,j) }",
            [(2000, 3000)] * 3,
        ),
    ],
)
def test_what_saves_little_stays(source: str, shapes: Shapes) -> None:
    assert len(paired(source, shapes)) == 1


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("y(i) +=! x(i,j) * w(j)", "fewer than three factors"),
        ("y(i) max=! x(i,j) * w(j) * w(k)", "no sum"),
        ("y(i) +=! x(i,j) * w(j) * w(k) where exists w(k) > 0.0", "conditions"),
        ("y(i) +=! x(i,j) * w(j) * w(k) where k in 0:j", "depend on one another"),
        ("y(i) +=! x(i,j) * w(j) + w(k)", "fewer than three factors"),
    ],
)
def test_what_keeps_its_order(statement: str, reason: str) -> None:
    c = comprehension_of(f"def f(float(N,M) x, float(M) w) -> (y) {{ {statement} }}")
    why = why_not_paired(c.statements[-1])
    assert why is not None and reason in why


CASES = [
    (CHAIN, [(7, 9), (9, 5), (5, 11)]),
    (KRONECKER, [(5, 4, 4, 3), (4, 4), (6, 4), (5, 3)]),
    ("def f(float(I,J) a, float(J,K) b, float(K,L) c) -> (d)"
     " { d(i,l) +=! a(i,j) * b(j,k) * c(k,l) where j in 0:J, k in 1:K }",
     [(7, 9), (9, 5), (5, 11)]),
    ("def f(double(I,J) a, double(J,K) b, double(K,L) c, double s) -> (d)"
     " { d(i,l) +=! s * a(i,j) * b(j,k) * 0.5 * c(k,l) }", [(7, 9), (9, 5), (5, 11), ()]),
    ("def f(half(I,J) a, half(J,K) b, half(K,L) c) -> (d)"
     " { d(i,l) +=! a(i,j) * (b(j,k) + 1.0) * (k >= l ? c(k,l) : 0) }", [(7, 9), (9, 5), (5, 11)]),
    ("def f(int8(I,J) a, int8(J,K) b, int8(K,L) c) -> (d)"
     " { d(i + l) +=! a(i,j) * b(j,k) * c(k,l) where i in 2:5 }", [(7, 9), (9, 5), (5, 11)]),
    ("def f(float(I,J) a, float(J,K) b, float(K,L) c) -> (d)"
     " { d(i,l) = 1.0 where i in 0:I, l in 0:L  d(i,l) += a(i,j) * b(j,k) * c(k,l) }",
     [(7, 9), (9, 5), (5, 11)]),
    ("def f(float(I,J) a, float(R,K) b, int32(J) at, float(K,L) c) -> (d)"
     " { d(i,l) +=! a(i,j) * b(at(j),k) * c(k,l) * 1.0 where r in 0:3 }",
     [(7, 9), (6, 5), np.arange(9, dtype=np.int32) % 6, (5, 11)]),
]  # fmt: skip


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contraction_order, "MIN_PRODUCTS", 1)
    monkeypatch.setattr(contraction_order, "LEAST_FACTOR", 1)


@pytest.mark.usefixtures("eager")
def test_results_on_a_cpu(check_all: CheckAll) -> None:
    check_all(CASES)


@pytest.mark.slow
@pytest.mark.usefixtures("eager")
def test_results_on_the_emulator(check_emulated: CheckAll) -> None:
    check_emulated(CASES)


@pytest.mark.slow
def test_options_keep_the_order(tmp_path: object) -> None:
    arrays = [np.ones(shape, np.float32) for shape in ((100, 200), (200, 300), (300, 4))]
    f = tcdsl.define(CHAIN).f
    for options, is_paired in (
        (Options(), True), (Options(reassociate=False), False),
        (Options(summation="compensated"), False), (Options(scheduler="source_order"), False),
    ):  # fmt: skip
        text = f.compile(*arrays, target="cpu", options=options).explain()
        assert ("S0_pair0" in text) == is_paired
