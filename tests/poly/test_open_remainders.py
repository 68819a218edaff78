"""Remainders by open sizes: where they are comparisons, and that these are right."""

from typing import Any

import islpy as isl
import numpy as np
import pytest

import tcdsl
from tcdsl.lang.comprehension import Select, walk
from tcdsl.lang.ranges.open_sizes import leave_open
from tcdsl.lang.remainders import Around, compared, compared_of, remainder_of
from tcdsl.lang.size_class import SizeClass
from tcdsl.lang.types.dtypes import INT32
from tcdsl.options import Options
from tcdsl.poly.isl_utils import constant_bounds
from tcdsl.poly.lowering import lower_comprehension
from tcdsl.poly.scop import Scop
from tcdsl.rewrites.scop.periodic_halos import with_periodic_halos
from tests.programs import comprehension_of

RING = """def f(float(N) x) -> (y) {
    h(i) = x((i + 1) % N) + i where i in 0:N
    y(i) = h((i + N - 1) % N) + h((i + 2) % N) where i in 0:N
}"""
OPTIONS = Options(dynamic_sizes=("N",))


def open_scop(source: str, least: int, most: int) -> Scop:
    """Return the scop of *source* with N open between two values."""
    c = comprehension_of(source)
    bounds = {"N": SizeClass(least, most)}
    c, special = leave_open(
        c, dict.fromkeys(c.sizes, most), ("N",), {n: n for n in c.sizes}, bounds
    )
    return lower_comprehension(c, special, {}, True)


@pytest.mark.parametrize(
    ("subscript", "found"),
    [
        ("(i + 1) % N", "{ S0[i] -> x[1 + i] : i <= -2 + N; S0[i = -1 + N] -> x[0] }"),
        ("(i + N - 1) % N", "{ S0[i] -> x[-1 + i] : i > 0; S0[0] -> x[-1 + N] }"),
        ("(N + i - N) % N", "{ S0[i] -> x[i] }"),
    ],
)
def test_a_remainder_is_a_piecewise_function(subscript: str, found: str) -> None:
    source = f"def f(float(N) x) -> (y) {{ y(i) = x({subscript}) where i in 0:N }}"
    (statement,) = open_scop(source, 17, 64).statements
    (read,) = statement.reads
    wanted = isl.Map(f"[N] -> {found}").intersect_domain(statement.domain)
    assert read.is_exact and read.relation.is_equal(wanted)


@pytest.mark.parametrize("subscript", ["(i + 20) % N", "(2 * i) % N", "(i * i) % N", "i % (N + 1)"])
def test_what_stays_a_remainder(subscript: str) -> None:
    """It may be twice the size away, or is of no index and a number."""
    source = f"def f(float(N) x) -> (y) {{ y(i) = x({subscript}) where i in 0:N }}"
    (statement,) = (s for s in open_scop(source, 17, 64).statements if s.value is not None)
    assert statement.value is not None
    assert not any(isinstance(node, Select) for node in walk(statement.value))


@pytest.mark.parametrize(("low", "high"), [(True, False), (False, True), (True, True)])
def test_comparisons_are_recognised(low: bool, high: bool) -> None:
    around, sizes = Around("i", -2, "N"), {"N": None, "M": 7}
    made = compared(around, INT32, low=low, high=high)
    assert compared_of(made, sizes) == around
    assert compared_of(made, {"N": 20, "M": 7}) is None and remainder_of(made, sizes) is None


def test_a_halo_ends_at_functions_of_the_size() -> None:
    scop = with_periodic_halos(open_scop(RING, 17, 64))
    h, y = scop.statements
    assert scop.arrays["h"].origin == (-1,)
    assert h.domain.is_equal(isl.Set("[N] -> { S0[i] : -1 <= i < N + 2 and 17 <= N <= 64 }"))
    assert [r.relation.is_single_valued() for r in y.reads] == [True, True]
    (read,) = h.reads  # modulo the size, beyond both ends
    assert read.is_exact and read.relation.is_single_valued()
    for size in (17, 40, 64):
        own = read.relation.fix_val(isl.dim_type.param, 0, size)
        for at, element in ((-1, 0), (0, 1), (size - 1, 0), (size, 1), (size + 1, 2)):
            one = own.fix_val(isl.dim_type.in_, 0, at).range()
            assert constant_bounds(one, 0) == (element, element)


def test_a_halo_of_less_than_the_size_alone() -> None:
    """Of one element a halo of two would be read around the ends twice."""
    scop = open_scop(RING, 1, 16)
    assert with_periodic_halos(scop).arrays["h"].origin == (0,)


@pytest.mark.parametrize("n", [1, 2, 16, 17, 64, 65, 200])
def test_one_kernel_is_right_at_all_sizes_of_a_class(n: int) -> None:
    f = tcdsl.define(RING).f
    x = np.random.default_rng(n).standard_normal(n).astype("f4")
    exe: Any = f.compile(x, target="emulate", options=OPTIONS)
    np.testing.assert_array_equal(exe(x), f.reference(x))
    assert exe.opened == (("N",) if n > 16 else exe.opened)
