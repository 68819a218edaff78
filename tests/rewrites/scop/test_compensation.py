"""Compensated sums: as exact as in twice the precision, however they are mapped."""

import math
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.costmodel.chip import Chip
from tcdsl.lang.types.dtypes import COMPENSATED32, COMPENSATED64, FLOAT32
from tcdsl.options import Options
from tcdsl.poly.scop import Kind, Scop
from tcdsl.rewrites.scop.compensation import with_compensation
from tcdsl.testing import check

CheckAll = Callable[..., None]
Case = tuple[str, list[Any]]

COMPENSATED = Options(summation="compensated")
TOTAL = "def f(float(N) x) -> (y) { y +=! x(i) }"
WIDE_TOTAL = "def f(double(N) x) -> (y) { y +=! x(i) }"
ROWS = "def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }"
COLUMNS = "def f(float(M,N) x) -> (y) { y(j) +=! x(i,j) }"
KEPT = "def f(float(N) x, float y) -> (y) { y += x(i) }"
DOT = "def f(float(N) x, float(N) z) -> (y) { y +=! x(i) * z(i) }"
MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
HALVES = "def f(half(M,N) x, bfloat16(M,N) z) -> (y, w) { y(i) +=! x(i,j)  w(j) +=! z(i,j) }"
SCATTER = "def f(float(N) x, int32(N) I, float(V) G) -> (G) { G(I(n)) += x(n) }"
RUNNING = "def f(float(N) x) -> (y) { y(i) +=! x(i)  y(i) += y(i-1) where i in 1:N }"
MEANS = """def f(float(M,N) x) -> (y, v) {
    s(i) +=! x(i,j)
    y(i) = s(i) / float(N)
    v(i) +=! (x(i,j) - y(i)) * (x(i,j) - y(i))
}"""
LENGTHS = (0, 1, 2, 7, 64, 1009, 30011)
HARD = {
    "large terms between small ones": lambda n, big: np.resize(np.array([big, 1, -big]), n),
    "equal terms": lambda n, big: np.full(n, 0.1),
    "terms that cancel": lambda n, big: np.resize(np.array([1.1, -1.1000001]), n),
    "all magnitudes": lambda n, big: (
        np.random.default_rng(n).standard_normal(n)
        * 10.0 ** np.random.default_rng(n + 1).uniform(-8, 8, n)
    ),
}


def hard(name: str, n: int) -> np.ndarray[Any, Any]:
    """Return *n* terms that plain summation in float32 gets wrong."""
    return HARD[name](n, 1e8).astype(np.float32)


def hard_cases() -> Iterator[Case]:
    """Yield programs with data whose sums plain summation gets wrong."""
    names = cycle(HARD)
    for n, name in zip(LENGTHS, names, strict=False):
        yield TOTAL, [hard(name, n)]
    yield WIDE_TOTAL, [HARD[next(names)](1009, 1e17)]
    yield ROWS, [hard(next(names), 5 * 1009).reshape(5, 1009)]
    yield COLUMNS, [hard(next(names), 1009 * 7).reshape(1009, 7)]
    yield KEPT, [hard(next(names), 1009), np.float32(3e7)]
    yield DOT, [hard(next(names), 1009), hard("all magnitudes", 1009)[::-1].copy()]
    yield MATMUL, [hard(next(names), 17 * 131).reshape(17, 131), np.ones((131, 19), np.float32)]


# --- the transform --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "shapes", "expected"),
    [
        (TOTAL, [(9,)], {COMPENSATED32}),
        (WIDE_TOTAL, [(9,)], {COMPENSATED64}),
        (MATMUL, [(3, 4), (4, 5)], {COMPENSATED32}),
        (HALVES, [(3, 4), (3, 4)], {COMPENSATED32}),
        ("def f(float(N) x) -> (y) { y max=! x(i) }", [(9,)], {FLOAT32}),
        ("def f(float(N) x) -> (y) { y *=! x(i) }", [(9,)], {FLOAT32}),
        (SCATTER, [(9,), (9,), (5,)], {FLOAT32}),
    ],
)
def test_what_is_compensated(
    source: str, shapes: list[tuple[int, ...]], expected: set[Any], lower: Callable[..., Scop]
) -> None:
    scop = with_compensation(lower(source, *shapes))
    updates = [s for s in scop.statements if s.kind is Kind.UPDATE]
    assert {s.reduction.dtype for s in updates if s.reduction is not None} == expected


# --- end to end -----------------------------------------------------------------------------


def test_hard_sums_on_the_cpu(check_all: CheckAll) -> None:
    check_all(list(hard_cases()), options=COMPENSATED)
    check_all(list(hard_cases())[:9], threads=1, options=COMPENSATED)


def test_hard_sums_on_a_gpu(check_emulated: CheckAll, small_chip: Chip) -> None:
    check_emulated(list(hard_cases()), gpu=small_chip, options=COMPENSATED)  # in several blocks
    atomic = Options(summation="compensated", cross_block="atomic")
    check_emulated([(TOTAL, [hard("equal terms", 5003)])], gpu=small_chip, options=atomic)
    check_emulated([(ROWS, [hard("all magnitudes", 8000).reshape(2, 4000)])], options=COMPENSATED)


def test_the_bound_is_one_that_plain_sums_exceed() -> None:
    f = tcdsl.define(TOTAL)["f"]
    terms = np.array([1e8, *[3.3] * 10, -1e8], np.float32)
    check(f, terms, targets=("cpu",))
    with pytest.raises(AssertionError, match="1 of 1 elements are wrong"):
        check(Plainly(f), terms, targets=("cpu",), options=COMPENSATED)  # type: ignore[arg-type]


class Plainly:
    """A function that does not compensate, whatever it is asked for."""

    def __init__(self, f: Any) -> None:
        self.f = f
        self.comprehension, self.specialise = f.comprehension, f.specialise

    def __call__(self, *inputs: Any, out: Any, target: str, options: Options) -> Any:
        assert options.summation == "compensated"
        return self.f(*inputs, out=out, target=target)


@pytest.mark.parametrize("n", [1009, 30011])
@pytest.mark.parametrize("name", HARD)
def test_against_fsum(name: str, n: int) -> None:
    terms = hard(name, n)
    exact, size = math.fsum(terms.astype(float)), math.fsum(np.abs(terms).astype(float))
    found = float(tcdsl.define(TOTAL)["f"](terms, target="cpu", options=COMPENSATED))
    assert abs(found - exact) <= 2.0**-24 * abs(exact) + 6 * (n * 2.0**-24) ** 2 * size


@pytest.mark.slow
def test_infinities_and_nans_are_those_of_plain_sums(
    check_all: CheckAll, check_emulated: CheckAll, small_chip: Chip
) -> None:
    inf, nan, top = np.inf, np.nan, np.finfo(np.float32).max
    cases: list[Case] = []
    for special in ([inf], [-inf], [inf, -inf], [nan, inf], [top, -top]):
        for n in (2, 1031):
            terms = np.ones(n, np.float32)
            terms[[n // 2, n - 1][: len(special)]] = special
            cases.append((TOTAL if n == 2 else DOT, [terms, terms[::-1].copy()][: 1 + (n > 2)]))
    check_all(cases, options=COMPENSATED)
    check_emulated(cases, gpu=small_chip, options=COMPENSATED)


def test_the_largest_numbers_are_kept() -> None:
    """What is lost may be NaN beside a sum that is a number."""
    f, top = tcdsl.define(TOTAL)["f"], np.finfo(np.float32).max
    for terms in ([top, 1.0, -top], [-top, top, top], [top, -0.0], [0.5 * top, 0.5 * top]):
        array = np.array(terms, np.float32)
        assert f(array, target="cpu", options=COMPENSATED) == np.float32(math.fsum(terms))


@pytest.mark.slow
def test_other_programs(check_all: CheckAll, check_emulated: CheckAll, small_chip: Chip) -> None:
    cases: list[Case] = [
        (HALVES, [(37, 515), (37, 515)]), (MEANS, [(5, 1031)]), (MEANS, [(300, 70)]),
        (RUNNING, [(77,)]), (MATMUL, [(65, 70), (70, 33)]),
        (SCATTER, [np.ones(40, np.float32), np.arange(40, dtype=np.int32) % 7, (7,)]),
    ]  # fmt: skip
    check_all(cases, options=COMPENSATED)
    check_emulated(cases, gpu=small_chip, options=COMPENSATED)
    for scheduler in ("isl", "source_order"):
        check_all(cases[:4], options=Options(summation="compensated", scheduler=scheduler))


@pytest.mark.slow
def test_it_is_explained() -> None:
    f = tcdsl.define(TOTAL)["f"]
    for target in ("cpu", "emulate"):
        exe = f.compile(tcdsl.spec((5003,), "float32"), target=target, options=COMPENSATED)
        assert "sums are compensated" in exe.explain()
        plain = f.compile(tcdsl.spec((5003,), "float32"), target=target)
        assert "compensated" not in plain.explain()
