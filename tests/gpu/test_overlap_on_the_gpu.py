"""Kernels that begin before others end, on a GPU: each call's results, again and again."""

from contextlib import nullcontext
from typing import Any

import pytest

import tcdsl
from tcdsl.options import Options

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning"),
]

TURNS = 200
CHAIN = """def f(int32(M,N) x) -> (rows, columns, both) {
    rows(i) +=! x(i,j)
    columns(j) +=! x(i,j) * rows(i)
    both(i) +=! x(i,j) * columns(j)
}"""
BESIDE = """def f(int32(M,N) x) -> (a, b, c, d) {
    a(i) +=! x(i,j)
    b(j) max=! x(i,j)
    c +=! x(i,j) * x(i,j)
    d(j) +=! x(i,j) * a(i)
}"""
MATERIALISED = """def f(int32(M,N) x) -> (t, y, s) {
    t(j) +=! x(i,j)
    y(i,j) = x(i,j) - t(j)
    s(i) +=! y(i,j)
}"""
SHAPES = [(1, 1), (2000, 3001), (31, 100_000), (200_000, 7)]


def expected(text: str, x: Any) -> tuple[Any, ...]:
    """Return the results on *x*, in arithmetic modulo 2^32."""
    import torch

    wide = x.long()
    rows, columns = wide.sum(1), wide.sum(0)
    if text == CHAIN:
        columns = (wide * rows[:, None]).sum(0)
        found = rows, columns, (wide * columns).sum(1)
    elif text == BESIDE:
        found = rows, wide.amax(0), (wide * wide).sum(), (wide * rows[:, None]).sum(0)
    else:
        found = columns, wide - columns, (wide - columns).sum(1)
    return tuple(result.to(torch.int32) for result in found)


@pytest.mark.parametrize("is_captured", [False, True])
@pytest.mark.parametrize("is_aside", [False, True])
@pytest.mark.parametrize("options", [Options(), Options(cross_block="atomic")])
@pytest.mark.parametrize("text", [CHAIN, BESIDE, MATERIALISED])
def test_results(text: str, options: Options, is_aside: bool, is_captured: bool) -> None:
    torch = pytest.importorskip("torch")
    stream = torch.cuda.Stream()
    for shape in SHAPES:
        x = torch.zeros(shape, dtype=torch.int32, device="cuda")
        call = tcdsl.define(text).f.compile(x, options=options).bind(x)
        with torch.cuda.stream(stream) if is_aside or is_captured else nullcontext():
            call()
            torch.cuda.synchronize()
        if is_captured:
            graph, run = torch.cuda.CUDAGraph(), call
            with torch.cuda.graph(graph):
                results = run()
            call = lambda graph=graph, results=results: (graph.replay(), results)[1]  # noqa: E731
        wrong = torch.zeros((), dtype=torch.bool, device="cuda")
        for _ in range(TURNS):
            with torch.cuda.stream(stream) if is_aside else nullcontext():
                x.random_(-9, 10)
                results = call()
                for result, right in zip(results, expected(text, x), strict=True):
                    wrong |= (result != right).any()
        torch.cuda.synchronize()
        assert not wrong, (shape, options)
