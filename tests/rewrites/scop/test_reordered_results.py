"""Results of products that are computed with their dimensions in another order, and copied."""

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from tcdsl.plan.rewrites import REWRITES
from tcdsl.poly.scop import Kind, Scop, Storage
from tcdsl.rewrites.scop.remainders import by_remainders
from tcdsl.rewrites.scop.reordered_results import (
    behind,
    result_reordered,
    why_not_result_reordered,
)

FORWARD = """def f(bfloat16(N,C,H) I, bfloat16(F,C,3) K) -> (bfloat16(N,F,H) O) {
    O(n,f,h) +=! (h + r >= 1 && h + r <= H ? I(n, c, h + r - 1) : 0) * K(f,c,r)
        where h in 0:H
}"""
LAYER = """def f(bfloat16(N,C,H) I, bfloat16(F,C,3) K, float(F) b) -> (bfloat16(N,F,H) O) {
    o(n,f,h) +=! (h + r >= 1 && h + r <= H ? float(I(n, c, h + r - 1)) : 0.0) * float(K(f,c,r))
        where h in 0:H
    O(n,f,h) = bfloat16(fmax(o(n,f,h) + b(f), 0.0))
}"""
WEIGHTS = """def f(bfloat16(N,F,H) O, bfloat16(N,C,H) I) -> (bfloat16(F,C,3) K) {
    K(f,c,r) +=! O(n,f,h) * (h + r >= 1 && h + r <= H ? I(n, c, h + r - 1) : 0) where r in 0:3
}"""
DATA = """def f(bfloat16(N,F,P) O, bfloat16(F,C,3) K) -> (bfloat16(N,C,Q) I) {
    I(n,c,y) +=! ((y + 1 - r >= 0 && y + 1 - r < 2*P && (y + 1 - r) % 2 == 0)
        ? O(n, f, (y + 1 - r) / 2) : 0) * K(f,c,r) where y in 0:2*P
}""".replace("bfloat16(N,C,Q) I", "I")
SUM = "def f(bfloat16(N,C) I, bfloat16(F,C) K, float(N,F) O) -> (O) { O(n,f) += I(n,c) * K(f,c) }"
SCATTERED = """def f(bfloat16(N,C) I, bfloat16(F,C) K, int32(N) at) -> (float(9,F) O) {
    o(n,f) +=! I(n,c) * K(f,c)
    O(q,f) = 0.0 where q in 0:9, f in 0:F
    O(at(n),f) = o(n,f)
}"""
SHAPES = {
    FORWARD: [(2, 24, 9), (40, 24, 3)], LAYER: [(2, 24, 9), (40, 24, 3), (40,)],
    WEIGHTS: [(3, 24, 9), (3, 40, 9)], DATA: [(2, 24, 5), (24, 40, 3)],
}  # fmt: skip
CASES = {"forward": FORWARD, "layer": LAYER, "weights": WEIGHTS, "data": DATA}


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small a product is large enough."""
    monkeypatch.setattr("tcdsl.strategies.operand_orders.MIN_WORK", 1)
    monkeypatch.setattr("tcdsl.strategies.operand_orders.LEAST_TILE", 1)


def test_a_result_is_copied_from_another_order(lower: Callable[..., Scop]) -> None:
    done = result_reordered(lower(FORWARD, *SHAPES[FORWARD]), "O", 1)
    own = done.arrays["O.result1"]
    assert (own.shape, own.storage, own.is_output) == ((2, 9, 40), Storage.SCRATCH, False)
    *sums, copy = done.statements
    assert {s.write.array for s in sums} == {"O.result1"}
    assert copy.write.array == "O" and [read.array for read in copy.reads] == ["O.result1"]
    assert str(copy.write.relation) == (
        "{ O_in_order[u0, u2, u1] -> O[u0, u1, u2] : "
        "0 <= u0 <= 1 and 0 <= u2 <= 8 and 0 <= u1 <= 39 }"
    )
    assert copy.indices == ("u0", "u2", "u1")  # in the order of what is read, as sums are
    assert [s.indices[:3] for s in sums] == [("n", "h", "f")] * 2


def test_what_comes_between_has_the_same_order(lower: Callable[..., Scop]) -> None:
    scop = lower(LAYER, *SHAPES[LAYER])
    assert [(one.array, one.dims) for one in behind(scop, "O")] == [("o", (0, 1, 2))]
    done = result_reordered(scop, "O", 1)
    assert done.arrays["o"].shape == (2, 9, 40)
    assert done.arrays["b"].shape == (40,)
    assert len(done.statements) == len(scop.statements) + 1


def test_a_result_of_several_sums_is_copied_once(lower: Callable[..., Scop]) -> None:
    """Of a gradient with a stride: each remainder's sums, and what they are stored to."""
    scop = by_remainders(lower(DATA, *SHAPES[DATA]), "S0")
    done = result_reordered(scop, "I", 1)
    sums = {s.write.array for s in done.statements if s.kind is Kind.UPDATE}
    assert all(done.arrays[name].shape[-1] == 40 for name in sums)
    assert [s.write.array for s in done.statements].count("I") == 1
    assert done.statements[-1].write.array == "I"


def test_what_holds_something_before_stays(lower: Callable[..., Scop]) -> None:
    scop = lower(SUM, (8, 16), (12, 16), (8, 12))
    assert why_not_result_reordered(scop, "O") == "it is no result, or holds something before"
    assert why_not_result_reordered(scop, "I") == "it is no result, or holds something before"
    done = result_reordered(lower(FORWARD, *SHAPES[FORWARD]), "O", 1)
    assert why_not_result_reordered(done, "O") is not None


def test_what_is_scattered_stays(lower: Callable[..., Scop]) -> None:
    scop = lower(SCATTERED, (8, 16), (12, 16), (8,))
    reason = why_not_result_reordered(scop, "O")
    assert reason is not None and "touches of O is not known" in reason


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow_but("forward")
def test_right(
    name: str, cuda_unit: Callable[..., Any], check_emulated: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Whatever the estimate says."""
    names = "a sum for each remainder", "operands in another order", "a result in another order"
    monkeypatch.setattr("tcdsl.plan.search.REWRITES", [r for r in REWRITES if r.name in names])
    monkeypatch.setattr("tcdsl.plan.search.OF_FACTORS", ())
    monkeypatch.setattr("tcdsl.plan.search.WORTH", inf)
    source = CASES[name]
    unit = cuda_unit(source, *SHAPES[source])
    assert any(".result1" in array for array in unit.done.plan.scop.arrays)
    check_emulated([(source, SHAPES[source])])
