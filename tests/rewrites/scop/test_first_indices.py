"""Indices of products from 0 on, wherever they begin."""

from collections.abc import Callable

import pytest

from tcdsl.poly.scop import Scop
from tcdsl.rewrites.scop.first_indices import from_zero
from tests.emulated_programs import cuda_unit_of

Lower = Callable[..., Scop]
SLICED = "def f(float(P,K) x, float(K,N) w) -> (y) { y(m,n) +=! x(m+3,k) * w(k,n) }"
CASES = [
    (SLICED, [(70, 40), (40, 50)]),
    ("def f(float(P,K) x, float(K,N) w) -> (y) { y(m,n) +=! x(m-2,k) * w(k,n) }",
     [(70, 40), (40, 50)]),
    ("""def f(float(P,K) x, float(K,N) w) -> (y) {
        y(m,n) +=! x(m+1,k+1) * w(k+1,n-5) where m in 4:60, k in 3:39 }""", [(70, 40), (40, 50)]),
    ("""def f(float(P,K) x, float(K,N) w, float(P) b) -> (y, z) {
        y(m,n) +=! x(m+3,k) * w(k,n)
        z(m,n) = y(m,n) * (m + 1) + b(m+3) }""", [(70, 40), (40, 50), (70,)]),
]  # fmt: skip


def test_what_begins_elsewhere_begins_at_0(lower: Lower) -> None:
    scop = from_zero(lower(SLICED, (70, 40), (40, 50)))
    init, sums = scop.statements
    assert str(sums.domain) == "{ S0[m, n, k] : 0 <= m <= 69 and 0 <= n <= 49 and 0 <= k <= 39 }"
    assert scop.arrays["y"].origin == (0, 0)
    first, second = (read.subscripts for read in sums.reads)
    assert first == (sums.write.subscripts[0], second[0])
    assert init.domain.reset_tuple_id().is_equal(init.write.relation.range().reset_tuple_id())


@pytest.mark.parametrize(
    "source",
    [
        "def f(float(P,K) x, float(K,N) w) -> (y) { y(m,n) +=! x(m,k) * w(k,n) }",
        "def f(float(P,K) x, float(K,N) w) -> (y) { y(m) +=! x(m+3,k) }",
    ],
)
def test_other_programs_are_left_alone(source: str, lower: Lower) -> None:
    scop = lower(source, (70, 40), (40, 50))
    assert from_zero(scop) is scop


def test_results_are_the_same(
    check_all: Callable[..., None], check_emulated: Callable[..., None]
) -> None:
    check_all(CASES)
    check_emulated(CASES)


def test_a_slice_runs_on_tensor_cores() -> None:
    source = SLICED.replace("float(P", "bfloat16(P").replace("float(K", "bfloat16(K")
    unit = cuda_unit_of(source, [(515, 512), (512, 512)])
    assert "tile_mma" in {kernel.template for kernel in unit.done.plan.kernels}
