"""Halos of periodic arrays: what is changed, what is refused."""

from collections.abc import Callable

import islpy as isl
import pytest

from tcdsl.poly.isl_utils import constant_bounds
from tcdsl.poly.scop import Scop
from tcdsl.rewrites.scop.periodic_halos import with_periodic_halos

Lower = Callable[..., Scop]

RING = """def f(float(N) x) -> (y) {
    h(i) = x((i + 1) % N) + i where i in 0:N
    y(i) = h((i + N - 1) % N) + h((i + 2) % N) where i in 0:N
}"""


def test_reads_around_the_ends_lie_beside_them(lower: Lower) -> None:
    scop = with_periodic_halos(lower(RING, (20,)))
    h, y = scop.statements
    assert (scop.arrays["h"].origin, scop.arrays["h"].shape) == ((-1,), (23,))
    assert constant_bounds(h.domain, 0) == (-1, 21)
    assert [str(r.relation) for r in y.reads] == [
        "{ S1[i] -> h[-1 + i] : 0 <= i <= 19 }", "{ S1[i] -> h[2 + i] : 0 <= i <= 19 }"
    ]  # fmt: skip
    (read,) = h.reads
    for at, element in ((-1, 0), (0, 1), (19, 0), (20, 1), (21, 2)):
        one = read.relation.intersect_domain(h.domain.fix_val(isl.dim_type.set, 0, at))
        assert constant_bounds(one.range(), 0) == (element, element)


REFUSED = [
    # a result; changed before it is read; not all of it; another period; gathered
    RING.replace("(y)", "(h, y)"),
    "def f(float(N) x) -> (x, y) { h(i) = x(i) x(i) = 2.0 * x(i)"
    " y(i) = h((i + 1) % N) where i in 0:N }",
    RING.replace("in 0:N\n    y", "in 1:N\n    y"),
    RING.replace("h((i + 2) % N)", "h((i + 2) % 7)"),
    RING.replace("h((i + 2) % N)", "h(2 * i % N)"),
    RING.replace("h((i + N - 1) % N) + h((i + 2) % N)", "h(i)"),
    # guards alone keep reads within the ends
    RING.replace("h((i + N - 1) % N) + h((i + 2) % N)", "(i > 0 ? h(i - 1) : 0.0)"),
]


@pytest.mark.parametrize("source", REFUSED)
def test_what_stays_as_it_is(source: str, lower: Lower) -> None:
    scop = lower(source, (20,))
    assert with_periodic_halos(scop) is scop


def test_a_modulus_that_is_no_number(lower: Lower) -> None:
    """Of an index without a halo: its remainder by an index was looked for among the periods."""
    source = """def f(float(H,W) x) -> (y) {
        h(i,j) = x(i,j) + j % (i + 1) where i in 0:H, j in 0:W
        y(i,j) = h((i + 1) % H, j) + h(i,j) where i in 0:H, j in 0:W
    }"""
    scop = with_periodic_halos(lower(source, (20, 30)))
    assert scop.arrays["h"].shape == (21, 30)
