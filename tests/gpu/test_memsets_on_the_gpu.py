"""Memsets before sums by atomics, on a GPU: every identity, every kind of call, again and again."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.lang.types.dtypes import BY_NAME
from tcdsl.options import Options
from tcdsl.testing import check

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning"),
]

ATOMIC = Options(cross_block="atomic")
COLUMNS = "def f({dtype}(M,N) x) -> (y) {{ y(j) {operator}=! x(i,j) }}"
SCATTER = """def f({dtype}(E) x, int32(E) k, {dtype}(M) like) -> ({dtype}(M) y) {{
    y(k(e)) {operator}=! x(e)
}}"""
CASES = [
    *((dtype, operator) for dtype in ("float", "double", "int32", "int64") for operator in (
        "+", "*", "max", "min",
    )),
    ("half", "+"), ("half", "max"), ("bfloat16", "min"), ("uint64", "min"),
    ("bool", "and"), ("bool", "or"),
]  # fmt: skip


def values(dtype: str, shape: tuple[int, ...]) -> Any:
    """Return small whole numbers, whose sums are exact in any order, mostly ones."""
    rng = np.random.default_rng(11)
    kind = BY_NAME[dtype].numpy
    if dtype == "bool":
        return rng.random(shape) < 0.5
    return np.where(rng.random(shape) < 0.01, 2, 1).astype(kind)


@pytest.mark.parametrize(("dtype", "operator"), CASES)
def test_sums_of_columns_agree_with_the_oracle(dtype: str, operator: str) -> None:
    f = tcdsl.define(COLUMNS.format(dtype=dtype, operator=operator)).f
    for shape in ((200_003, 7), (1, 1), (0, 5), (5, 0)):
        rows = 5 if operator == "*" and shape[0] > 5 else shape[0]
        x = np.ones(shape, BY_NAME[dtype].numpy)
        x[:rows] = values(dtype, shape)[:rows]
        for _ in range(2):
            check(f, x, targets=("cuda",), options=ATOMIC)


@pytest.mark.parametrize(("dtype", "operator"), CASES)
def test_scattered_sums_agree_with_the_oracle(dtype: str, operator: str) -> None:
    f = tcdsl.define(SCATTER.format(dtype=dtype, operator=operator)).f
    rng = np.random.default_rng(12)
    for edges, elements in ((3001, 997), (1, 1), (0, 7)):
        to = rng.integers(0, elements, edges).astype(np.int32)
        like = np.zeros(elements, BY_NAME[dtype].numpy)
        for _ in range(2):
            check(f, values(dtype, (edges,)), to, like, targets=("cuda",))


@pytest.fixture(params=["the default stream", "a side stream"])
def stream(request: pytest.FixtureRequest) -> Iterator[Any]:
    """PyTorch, while that is its stream."""
    torch = pytest.importorskip("torch")
    is_side = request.param == "a side stream"
    with torch.cuda.stream(torch.cuda.Stream()) if is_side else nullcontext():
        yield torch
        torch.cuda.synchronize()


# One memset: the beginnings of two results would be one kernel.
SUMS = "def f(float(M,N) x) -> (y, v) { y(j) max=! x(i,j)\n v(j) = 2.0 - y(j) }"


def sums(torch: Any) -> tuple[Any, Any, Any]:
    """Return the executable for an array of whole numbers, and the array."""
    x = torch.from_numpy(values("float", (100_003, 9))).cuda()
    exe = tcdsl.define(SUMS).f.compile(x, options=ATOMIC)
    assert sum("memset_bytes" in kernel for kernel in exe.kernels) == 1
    return exe, x, (x.amax(0), 2.0 - x.amax(0))


def test_calls_again_and_again(stream: Any) -> None:
    torch = stream
    exe, x, expected = sums(torch)
    out = torch.empty(9, device="cuda"), torch.empty(9, device="cuda")
    bound = exe.bind(x, out=out)
    calls = (lambda: exe(x), lambda: exe(x, out=out), bound)
    for call in calls:
        for _ in range(100):
            for array in out:
                array.fill_(float("nan"))
            found = call()
            assert all(map(torch.equal, found, expected))


def test_captured_into_a_graph() -> None:
    torch = pytest.importorskip("torch")
    exe, x, expected = sums(torch)
    out = torch.empty(9, device="cuda"), torch.empty(9, device="cuda")
    bound = exe.bind(x, out=out)
    with torch.cuda.stream(torch.cuda.Stream()):
        bound()  # loads the code for this kind of stream
        torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        bound()
    for _ in range(100):
        for array in out:
            array.fill_(float("nan"))
        graph.replay()
        assert all(map(torch.equal, out, expected))
