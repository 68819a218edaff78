"""Sums of half types in a product's kernel have accumulators of their arithmetic's type.

On a CPU only the product had, and each term of the other sum was rounded to the half type.
"""

from collections.abc import Callable

import pytest

CheckAll = Callable[..., None]
SOURCE = """def f(float(M,K) A, float(K,N) B, {t}(M,N,J) x) -> (D, s) {{
    C(m,n) +=! A(m,k) * B(k,n)
    s(m,n) +=! x(m,n,j)
    D(m,n) = C(m,n) * float(s(m,n))
}}"""


@pytest.mark.slow_but("float8_e5m2")
@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
@pytest.mark.parametrize("dtype", ["bfloat16", "half", "float8_e5m2"])
def test_a_sum_beside_a_product(dtype: str, check_all: CheckAll) -> None:
    check_all([(SOURCE.format(t=dtype), [(m, k), (k, n), (m, n, 8)])
               for m, n, k in ((128, 128, 128), (67, 71, 130))])  # fmt: skip
