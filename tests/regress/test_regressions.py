"""The smallest program for every bug that was found; one that is still open is a strict xfail."""

from collections.abc import Callable

import numpy as np
import pytest

from tcdsl.interp.arithmetic import FUNCTIONS
from tcdsl.interp.error_bounds import evaluate_with_bounds
from tests.programs import comprehension_of, specialisation_of

CheckAll = Callable[..., None]


def test_a_one_by_one_convolution(check_all: CheckAll) -> None:
    """Reduced indices of one value (kh, kw) are parallel, but no index of the target."""
    source = """def f(float(N,C,H,W) I, float(F,C,KH,KW) W1) -> (O) {
        O(n,f,h,w) +=! I(n,c,h+kh,w+kw) * W1(f,c,kh,kw)
    }"""
    check_all([(source, [(1, 4, 30, 65), (7, 4, 1, 1)]), (source, [(2, 1, 9, 9), (1, 1, 1, 1)])])


@pytest.mark.parametrize("threads", [1, 4])
def test_a_reduction_of_a_product(threads: int, check_all: CheckAll) -> None:
    """A reduction that joined a contraction's kernel had its updates in the lanes of a vector."""
    total = (
        "def f(float(M,K) A, float(K,N) B) -> (s, C) { C(m,n) +=! A(m,k) * B(k,n)\n s +=! C(m,n) }"
    )
    largest = """def f(float(M,K) A, float(N,K) B) -> (y) {
        C(m,n) +=! A(m,k) * B(n,k)
        y(m) max=! C(m,n)
    }"""
    check_all(
        [
            (total, [(64, 64), (64, 64)]),
            (total, [(33, 17), (17, 65)]),
            (largest, [(33, 65), (65, 65)]),
        ],
        threads=threads,
    )


@pytest.mark.parametrize("threads", [2, 4, 16])
def test_few_long_rows(threads: int, check_all: CheckAll) -> None:
    """Chunks stood first in the partial accumulators, but the lanes' rewrite took rows first."""
    source = "def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }"
    check_all([(source, [shape]) for shape in ((3, 20011), (5, 20000))], threads=threads)


def test_merged_indices_get_names_of_their_own(check_all: CheckAll) -> None:
    """(a, b_c) and (a_b, c) both became a_b_c."""
    source = "def f(float(A,B) x, float(B,A) w) -> (y) { y(a,b_c,a_b,c) = x(a,b_c) * w(a_b,c) }"
    check_all([(source, [(3, 4), (4, 3)])])


def test_extremes_of_two_types_into_one_target(check_all: CheckAll) -> None:
    """Both reductions kept their extreme values in one array, of the second one's type."""
    source = """def f(float(N,M) a, int32(N,M) b) -> (y, z) {
        y(i) argmax=! a(i,j)
        z(i) = y(i)
        y(i) argmin=! b(i,j)
    }"""
    check_all([(source, [(65, 7), (65, 7)])])


@pytest.mark.parametrize("operator", ["+", "*"])
def test_halves_summed_in_chunks(operator: str, check_all: CheckAll) -> None:
    """The fold over the chunks' partial sums rounded to the half type after each of them."""
    cases = [
        (f"def f({dtype}(M,N) x) -> (y) {{ y(j) {operator}=! x(i,j) }}", [(130, 301)])
        for dtype in ("half", "bfloat16")
    ]
    check_all(cases)


def test_a_subscript_that_is_gathered_where_it_exists(check_all: CheckAll) -> None:
    """The check of k(b-1) read it for b = 0 too, so that no plan was right."""
    source = """def f(float(V) x, int64(B) k) -> (y) {
        y(b) = b > 0 && k(b-1) > 0 ? x(k(b-1)) : 0.0 where b in 0:B
    }"""
    check_all([(source, [(9,), [3, 0, 8, -1]]), (source, [(9,), [-1]])])


def test_square_roots_written_as_powers(check_all: CheckAll) -> None:
    """NumPy takes a square root where all exponents are 0.5, which the oracle said of -inf: NaN."""
    source = "def f(float(N) x) -> (y) { y(i) = pow(x(i), 0.5) }"
    check_all([(source, [np.array([-np.inf, -0.0, np.inf, -1, 4], np.float32)])])
    roots = FUNCTIONS["pow"](np.array([-np.inf, -0.0]), np.array([0.5]))
    assert roots.tolist() == [np.inf, 0.0] and not np.signbit(roots).any()


def test_a_number_for_a_half_parameter_of_a_def_that_is_called(check_all: CheckAll) -> None:
    """The number was printed as if C stored it as a float: 0.1 became the bits 0, which are 0.0."""
    source = """def g(half a, bfloat16 b, float(N) x) -> (z) { z(i) = a * x(i) - b }
    def f(float(N) x) -> (y) { y = g(-0.1, 0.3, x) }"""
    check_all([(source, [(5,)])])


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_sign_of_a_nan_is_the_machines(sign: float, check_all: CheckAll) -> None:
    """A GPU's 0 * inf is a positive NaN, x86's a negative one: copysign shows it."""
    source = "def f(float(N) x, float(N) s) -> (y) { y(i) = copysign(1.5, x(i) * s(i)) }"
    x = np.array([np.inf, 1, -1, np.nan, 0], np.float32)
    s = np.array([0, sign, sign, np.copysign(np.nan, sign), -sign], np.float32)
    check_all([(source, [x, s])])
    c = comprehension_of(source)
    _, bound = evaluate_with_bounds(c, specialisation_of(c, [x.shape, s.shape]), {"x": x, "s": s})[
        "y"
    ]
    assert (bound > 0).tolist() == [True, False, False, True, False]
