"""In which order results are stored, and which copies sums read."""

from collections.abc import Callable

import pytest

from tcdsl.poly.scop import Kind, Scop
from tcdsl.strategies.operand_orders import order_of_copy, with_order_of_copy, with_orders
from tcdsl.strategies.result_orders import order_of_result, with_ordered_result

FORWARD = """def f(bfloat16(N,C,H) I, bfloat16(F,C,3) K) -> (bfloat16(N,F,H) O) {
    O(n,f,h) +=! (h + r >= 1 && h + r <= H ? I(n, c, h + r - 1) : 0) * K(f,c,r)
        where h in 0:H
}"""
LAYER = """def f(bfloat16(N,C,H) I, bfloat16(F,C,3) K, float(F) b) -> (bfloat16(N,F,H) O) {
    o(n,f,h) +=! (h + r >= 1 && h + r <= H ? float(I(n, c, h + r - 1)) : 0.0) * float(K(f,c,r))
        where h in 0:H
    O(n,f,h) = bfloat16(fmax(o(n,f,h) + b(f), 0.0))
}"""
WEIGHTS = """def f(bfloat16(N,F,H) O, bfloat16(N,C,H) I) -> (bfloat16(F,C,3) K, float(F) b) {
    K(f,c,r) +=! O(n,f,h) * (h + r >= 1 && h + r <= H ? I(n, c, h + r - 1) : 0) where r in 0:3
    b(f) +=! float(O(n,f,h))
}"""
IMAGE, FILTERS, RESULT = (2, 40, 9), (48, 40, 3), (2, 48, 9)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small a product is large enough."""
    monkeypatch.setattr("tcdsl.strategies.operand_orders.MIN_WORK", 1)
    monkeypatch.setattr("tcdsl.strategies.operand_orders.LEAST_TILE", 1)


@pytest.mark.parametrize(
    ("source", "shapes", "array", "is_one_side"),
    [
        (FORWARD, (IMAGE, FILTERS), "O", False),
        (LAYER, (IMAGE, FILTERS, (48,)), "O", False),
        (WEIGHTS, (RESULT, IMAGE), "K", True),
    ],
)
def test_the_order_is_that_of_a_factor(
    source: str, shapes: tuple[tuple[int, ...], ...], array: str, is_one_side: bool,
    lower: Callable[..., Scop],
) -> None:  # fmt: skip
    order = order_of_result(lower(source, *shapes), array)
    assert order is not None
    assert (order.last, order.is_one_side) == (1, is_one_side)


def test_small_products_stay(lower: Callable[..., Scop], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tcdsl.strategies.operand_orders.MIN_WORK", 1 << 40)
    assert order_of_result(lower(FORWARD, IMAGE, FILTERS), "O") is None


def test_the_factors_end_with_indices_of_their_own(lower: Callable[..., Scop]) -> None:
    """Of a gradient by weights, whose result has neighbours where the image has windows."""
    done = with_ordered_result(lower(WEIGHTS, RESULT, IMAGE), "K")
    update = next(s for s in done.statements if s.kind is Kind.UPDATE)
    assert [read.array for read in update.reads] == ["O.ordered1", "I.ordered1"]
    assert order_of_result(done, "K") is None


def test_another_sum_reads_the_copy(lower: Callable[..., Scop]) -> None:
    """What a bias gets of a gradient: sums of columns of the copy."""
    scop = lower(WEIGHTS, RESULT, IMAGE)
    assert order_of_copy(scop, "S1") is None
    done = with_ordered_result(scop, "K")
    order = order_of_copy(done, "S1")
    assert order is not None and (order.array, order.last) == ("O", 1)
    read = with_order_of_copy(done, "S1")
    assert [one.array for one in read.by_name["S1"].reads] == ["O.ordered1"]
    assert len(read.statements) == len(done.statements)
    assert order_of_copy(read, "S1") is None


def test_a_copy_for_a_later_product_comes_before_the_sum(lower: Callable[..., Scop]) -> None:
    first, second = WEIGHTS.splitlines()[1:3]
    turned = "\n".join((WEIGHTS.splitlines()[0], second, first, "}"))
    done = with_orders(lower(turned, RESULT, IMAGE), "S1")
    read = with_order_of_copy(done, "S0")
    (copied,) = (one.array for one in read.by_name["S0"].reads)
    assert copied.startswith("O.ordered")
    names = [s.write.array for s in read.statements]
    assert names.index(copied) < names.index("b")
