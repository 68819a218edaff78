"""Panels whose rows, or terms, count the values of several indices: convolutions."""

from typing import Any

import pytest

from tcdsl.costmodel import cpu_thresholds
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


OF_IMAGES = """def conv(float(N,C,58,58) I, float(F,C,3,3) K) -> (O) {
    O(n,f,h,w) +=! I(n,c,h+r,w+s) * K(f,c,r,s) where h in 0:56, w in 0:56 }"""
OF_PIXELS = """def conv(float(N,58,58,C) I, float(F,3,3,C) K) -> (O) {
    O(n,h,w,f) +=! I(n,h+r,w+s,c) * K(f,r,s,c) where h in 0:56, w in 0:56 }"""
SIXTY_FOUR = {
    OF_IMAGES: [(4, 64, 58, 58), (64, 64, 3, 3)],
    OF_PIXELS: [(4, 58, 58, 64), (64, 3, 3, 64)],
}


@pytest.mark.parametrize(("source", "template"), [
    (OF_IMAGES, "cpu_panels"), (OF_PIXELS, "cpu_tile")
])  # fmt: skip
def test_few_filters_are_on_panels_where_tiles_read_terms_far_apart(
    source: str, template: str, compiled: Compile, avx2: None
) -> None:
    """With 16 registers; 64 filters whose terms are side by side are as fast in tiles."""
    assert compiled(source, *SIXTY_FOUR[source], threads=1).plan.kernels[-1].template == template


def test_few_filters_are_in_tiles_with_many_registers(compiled: Compile) -> None:
    plan = compiled(OF_IMAGES, *SIXTY_FOUR[OF_IMAGES], threads=1).plan
    assert plan.kernels[-1].template == "cpu_tile"


@pytest.mark.parametrize(("source", "slower"), [(OF_IMAGES, 1.7), (OF_PIXELS, 1.0)])
def test_tiles_take_longer_around_taps_that_are_far_apart(
    source: str, slower: float, compiled: Compile, avx2: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def least_us() -> float:
        weighed = compiled(source, *SIXTY_FOUR[source], threads=1).plan.weighed[-1]
        tiles = [one for one in weighed.candidates() if one["template"] == "cpu_tile"]
        return float(min(one["predicted_us"] for one in tiles))

    found = least_us()
    monkeypatch.setattr(cpu_thresholds, "FAR_TERMS", 1.0)
    assert found == pytest.approx(slower * least_us(), rel=0.05)
