"""Panels whose rows, or terms, count the values of several indices: convolutions."""

from typing import Any

import pytest

from tcdsl.costmodel.machine import Cpu
from tcdsl.costmodel.panels import APART_LANES, COPY_LANES, Blocking, Product, work_on_panels
from tcdsl.strategies.templates import cpu_panels
from tests.strategies.test_panels import SECOND, CheckAll, Compile, small_blocks

__all__ = ["small_blocks"]

BEFORE_RELU = """def f(float(N,H,W,C) x, float(F,3,3,C) k, float(F) b) -> (z) {
    y(n,p,q,f) +=! (p+r >= 1 && p+r <= H && q+s >= 1 && q+s <= W ? x(n,p+r-1,q+s-1,c) : 0)
        * k(f,r,s,c) where p in 0:H, q in 0:W
    z(n,p,q,f) = fmax(y(n,p,q,f) + b(f), 0.0) }"""
OF_WEIGHTS = """def f(float(N,F,H,W) g, float(N,C,H,W) x) -> (k) {
    k(f,c,r,s) +=! g(n,f,p,q)
        * (p+r >= 1 && p+r <= H && q+s >= 1 && q+s <= W ? x(n,c,p+r-1,q+s-1) : 0)
    where r in 0:3, s in 0:3 }"""


@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
@pytest.mark.parametrize("merged", ["rows", "terms"])
@pytest.mark.usefixtures("small_blocks")
def test_one_index_counts_the_values_of_several(
    merged: str, compiled: Compile, check_all: CheckAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows n, h, w of a convolution; terms n, h, w of its gradient by weights."""
    monkeypatch.setattr(cpu_panels, "MERGED", (merged,))
    cases: list[tuple[str, list[Any]]] = [
        (BEFORE_RELU, [(2, 3, 5, 29), (17, 3, 3, 29), (17,)]),
        (SECOND.format("float", "float"), [(3, 5, 4, 7), (19, 5, 3, 2)]),
        (OF_WEIGHTS, [(2, 18, 3, 5), (2, 7, 3, 5)]),
    ]
    source, shapes = cases[0 if merged == "rows" else 2]
    plan = compiled(source, *shapes).plan
    assert plan.kernels[-1].template == "cpu_panels"
    assert any("n_p_q" in s.indices for s in plan.scop.statements)
    check_all(cases if merged == "rows" else cases[1:])


@pytest.mark.parametrize("order", ["n,h,w,f", "n,f,h,w"])
def test_filters_that_leave_the_cache_are_read_once_a_block_of_images(
    order: str, compiled: Compile, avx2: None
) -> None:
    """7 x 7 x 512, 32 images: tiles along w read 9.4 MB anew for each row of each image."""
    names = order.split(",")
    sizes = {"n": 32, "h": 9, "w": 9, "f": 512, "c": 512, "r": 3, "s": 3}
    image = ",".join({"f": "c", "h": "h+r", "w": "w+s"}.get(i, i) for i in names)
    weights = "f,r,s,c" if names[-1] == "f" else "f,c,r,s"
    heads = [",".join(i.upper() for i in text.split(",")) for text in (order, weights)]
    source = (
        f"def conv(float({heads[0].replace('F', 'C')}) I, float({heads[1]}) K) -> (O)"
        f" {{ O({order}) +=! I({image}) * K({weights}) }}"
    )
    shapes = [tuple(sizes[i] for i in text.split(",")) for text in (order, weights)]
    weighed = compiled(source, *shapes, threads=1).plan.weighed[-1]
    best = next(iter(weighed.candidates()))
    assert best["template"] == "cpu_panels" and best["config"]["merged"] == "rows"


def test_elements_that_are_copied_alone_and_results_that_are_apart_take_longer() -> None:
    def moved(*more: Any) -> tuple[float, float]:
        product = Product(512, 512, 196, 9, (10, 32), 4, 9, 1, *more)
        _, sums, copies, *_ = work_on_panels(product, Blocking(70, 512, 196, True), Cpu(1)).phases
        return sums.l3_bytes, sum(count for _, count in copies.operations)

    (near, copied), (apart, alone) = moved(), moved((True, False), 32)
    assert near == 0 and apart == 2 * 32 * 9 * 512 * 512
    assert alone == APART_LANES / COPY_LANES * copied > copied
