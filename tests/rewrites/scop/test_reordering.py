"""Operands that are copied with their dimensions in another order."""

from collections.abc import Callable

import pytest

from tcdsl.lang.ranges.open_sizes import leave_open
from tcdsl.lang.size_class import SizeClass
from tcdsl.poly.lowering import lower_comprehension
from tcdsl.poly.scop import Kind, Scop
from tcdsl.rewrites.scop.index_classes import OpenEnd, open_ends
from tcdsl.rewrites.scop.reordering import reordered, why_not_reordered
from tcdsl.strategies.operand_orders import orders_of
from tests.conftest import comprehension_of

PRODUCTS = """def f(half(N,C) I, half(F,C) K) -> (O, P) {
    D(n,c) = half(I(n,c) * I(n,c)) where c in 1:C
    O(n,f) +=! D(n,c) * K(f,c)
    P(n,f) +=! D(n,c) * K(f,c)
}"""
CHANGED = PRODUCTS.replace("    P(", "    D(n,c) = half(D(n,c) + 1)\n    P(")


@pytest.fixture
def scop(lower: Callable[..., Scop]) -> Scop:
    return lower(PRODUCTS, (8, 16), (12, 16))


def test_a_copy_has_the_elements_in_the_new_order(scop: Scop) -> None:
    """Those that there are: the first channel is 1."""
    done = reordered(scop, "S1", "D", 0)
    array = done.arrays["D.ordered0"]
    assert (array.origin, array.shape) == ((1, 0), (15, 8))
    (copy,) = (s for s in done.statements if s.write.array == "D.ordered0")
    assert str(copy.write.relation) == (
        "{ S1_D_ordered0[u0, u1] -> D.ordered0[u1, u0] : 0 <= u0 <= 7 and 0 < u1 <= 15 }"
    )
    names = [s.name for s in done.statements]
    assert names.index("S0") < names.index(copy.name) < names.index("S1")
    assert [read.array for read in done.by_name["S1"].reads] == ["D.ordered0", "K"]


def test_statements_share_a_copy(scop: Scop) -> None:
    done = reordered(scop, "S1", "D", 0)
    assert why_not_reordered(done, "S2", "D") is None
    both = reordered(done, "S2", "D", 0)
    assert len(both.statements) == len(done.statements)
    assert "D.ordered0" in {read.array for read in both.by_name["S2"].reads}


def test_a_copy_comes_before_the_first_that_reads_it(scop: Scop) -> None:
    """Rewrites may try the later statement first: the other one read what was not yet there."""
    done = reordered(scop, "S2", "D", 0)
    assert why_not_reordered(done, "S1", "D") is None
    both = reordered(done, "S1", "D", 0)
    assert len(both.statements) == len(done.statements)
    arrays = [s.write.array for s in both.statements]
    assert arrays.index("D") < arrays.index("D.ordered0") < arrays.index("O")


def test_a_copy_is_not_that_of_what_was_written_since(lower: Callable[..., Scop]) -> None:
    done = reordered(lower(CHANGED, (8, 16), (12, 16)), "S1", "D", 0)
    assert why_not_reordered(done, "S3", "D") == "D is written after it could be copied"


def test_an_open_size_may_be_the_outermost() -> None:
    """Rows of 4 q + 1 elements become so many rows of K; in the other order strides are open."""
    c = comprehension_of("def f(float(M,K) x, float(K,N) w) -> (y) { y(m,n) +=! x(m,k) * w(k,n) }")
    sizes = {"M": 64, "K": 64, "N": 1001}
    lengths = {"N": SizeClass(257, 1021, 4)}
    scop = lower_comprehension(*leave_open(c, sizes, ("N",), {n: n for n in sizes}, lengths), {})
    (update,) = (s for s in scop.statements if s.kind is Kind.UPDATE)
    assert [order.last for order in orders_of(scop, update.name)] == [0]
    why = "its sizes are open, or its rows shifted"
    assert why_not_reordered(scop, update.name, "w", 1) == why
    assert why_not_reordered(scop, update.name, "w") == why
    done = reordered(scop, update.name, "w", 0)
    (copy,) = (s for s in done.statements if s.write.array == "w.ordered0")
    ends = open_ends(copy)
    assert ends == {"u1": OpenEnd("N", 4, 1)} and ends["u1"].divisor == 1
    assert done.arrays["w.ordered0"].shape[1] == 64
