"""Sums over an open size whose blocks keep what they add up: dealt in turn, right at all sizes."""

from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.options import Options
from tcdsl.testing import check

BATCHNORM = """def f(float(N,C,P) x) -> (y, mean) {
    s(c) +=! x(n,c,p)
    mean(c) = s(c) / (N * P)
    v(c) +=! (x(n,c,p) - mean(c)) * (x(n,c,p) - mean(c))
    y(n,c,p) = (x(n,c,p) - mean(c)) * rsqrt(v(c) / (N * P) + 0.001)
}"""
BACKWARD = """def f(float(N,C,P) x, float(N,C,P) g) -> (y) {
    s(c) +=! g(n,c,p)
    t(c) +=! g(n,c,p) * x(n,c,p)
    y(n,c,p) = g(n,c,p) - s(c) - x(n,c,p) * t(c)
}"""
GROUPNORM = """def f(float(N,G,D,P) x) -> (y) {
    s(n,g) +=! x(n,g,d,p)
    v(n,g) +=! (x(n,g,d,p) - s(n,g)) * (x(n,g,d,p) - s(n,g))
    y(n,g,d,p) = (x(n,g,d,p) - s(n,g)) * rsqrt(v(n,g) + 0.001)
}"""
SOFTMAX = """def f(float(R,N) X) -> (Y) {
    m(i) max=! X(i,j)
    s(i) +=! exp(X(i,j) - m(i))
    Y(i,j) = exp(X(i,j) - m(i)) / s(i)
}"""
BOTH = """def f(float(N,M) x) -> (y, d) {
    s(i) +=! x(i,j) * x(i,j)
    y(i,j) = x(i,j) * s(i)
    d(j) +=! x(i,j)
}"""
COLUMNS = """def f(float(N,C) x) -> (y) {
    s(c) +=! x(n,c)
    v(c) +=! (x(n,c) - s(c) / N) * (x(n,c) - s(c) / N)
    y(n,c) = (x(n,c) - s(c) / N) * rsqrt(v(c) / N + 0.001)
}"""
OPEN = Options(dynamic_sizes=("N",))


def drawn(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def chosen(source: str, x: Any, **config: Any) -> tuple[Any, Options]:
    """Return the function and options for its open kernel as *config* asks."""
    f = tcdsl.define(source).f
    args = [x] * len(f.comprehension.inputs)
    kernel = f.compile(*args, target="emulate", options=OPEN).kernels[0]["why"][0]
    choices = {"format": "tcdsl choices", "version": 1, "kernels": [{"kernel": kernel, **config}]}
    exe = f.compile(*args, target="emulate", options=OPEN, choices=choices)
    assert exe.opened == ("N",)
    return f, exe.options


CLUSTERS = {
    "one axis of threads": {"cluster": 8, "per_block": 8, "threads": 128, "repeat": 1},
    "threads along both": {"cluster": 4, "per_block": 16, "threads": 32, "repeat": 4,
                           "outer_threads": 8},
    "one block": {"cluster": 1, "per_block": 64, "threads": 32, "repeat": 2, "outer_threads": 16},
}  # fmt: skip


@pytest.mark.slow_but("threads along both")
@pytest.mark.parametrize("name", CLUSTERS)
def test_blocks_of_a_cluster_take_images_in_turn(name: str) -> None:
    config = {"template": "row_cluster", "vector": 4, **CLUSTERS[name]}
    length = 4 * config["threads"] * config["repeat"] - 12
    f, options = chosen(BATCHNORM, drawn(64, 2, length), **config)
    for size in (64, 2, 3, 8, 9, 17, 63):
        check(f, drawn(size, 2, length), targets="emulate", options=options)


def test_few_images_are_of_as_many_blocks() -> None:
    """Ranks are the remainders of images: of 3 each has one; of neighbours one had all."""
    config = {"template": "row_cluster", "vector": 4, **CLUSTERS["one axis of threads"]}
    f, options = chosen(BATCHNORM, drawn(64, 2, 512), **config)
    text = f.compile(drawn(3, 2, 512), target="emulate", options=options).source
    assert "c1 + 8 * c3" in text and "8 * c1 + c3" not in text


def test_a_launch_asks_for_the_shared_memory_of_its_call() -> None:
    config = {"template": "row_cluster", "vector": 4, **CLUSTERS["one axis of threads"]}
    f, options = chosen(BACKWARD, drawn(64, 2, 512), **config)
    image = 4 * 512
    for size, values in ((64, 8), (2, 1), (8, 1), (9, 2), (57, 8), (56, 7)):
        x = drawn(size, 2, 512)
        exe = f.compile(x, x, target="emulate", options=options).at([x, x])
        assert exe.kernels[0]["shared"] == 2 * values * image
    # The second array begins where the first ends at this size.
    assert f"w_staged + 0 + {image} * " in exe.source


@pytest.mark.slow_but("one axis of threads")
@pytest.mark.parametrize("name", ["one axis of threads", "threads along both"])
def test_folds_over_clusters_have_slots_of_their_own(name: str) -> None:
    """The blocks of an open size's call run all folds: it was asked of those of the class."""
    config = {"template": "row_cluster", "vector": 4, **CLUSTERS[name]}
    length = 4 * config["threads"] * config["repeat"]
    f, options = chosen(BATCHNORM, drawn(64, 2, length), **config)
    exe = f.compile(drawn(3, 2, length), target="emulate", options=options)
    assert "tc_cluster_begin<2>()" in exe.source
    rows = tcdsl.define(GROUPNORM).f
    x = drawn(3, 4, 40, 512)
    exe = rows.compile(x, target="emulate", options=OPEN)
    assert exe.opened == ("N",) and "if (c0 <" in exe.source
    assert "tc_cluster_begin<2>()" in exe.source
    check(rows, x, targets="emulate", options=OPEN)


@pytest.mark.slow
def test_blocks_of_a_cluster_take_parts_of_an_open_row_in_turn() -> None:
    f = tcdsl.define(SOFTMAX).f
    exe = f.compile(drawn(1, 70001), target="emulate", options=OPEN)
    assert exe.opened == ("N",) and "clusters of" in exe.explain()
    for size in (131072, 65537, 70001):
        check(f, drawn(1, size), targets="emulate", options=OPEN)


def test_rows_and_columns_of_an_open_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks take rows in turn, and one row after another: two loops, where one was counted."""
    monkeypatch.setattr("tcdsl.strategies.lowering.DEALT", 2)
    f = tcdsl.define(BOTH).f
    exe = f.compile(drawn(1024, 512), target="emulate", options=OPEN)
    assert exe.opened == ("N",) and "rows and columns" in exe.explain()
    for size in (513, 600):
        check(f, drawn(size, 512), targets="emulate", options=OPEN)


@pytest.mark.parametrize("size", [65, 127, 128])
def test_columns_in_registers_of_a_cluster(size: int) -> None:
    f = tcdsl.define(COLUMNS).f
    x = drawn(size, 512)
    check(f, x, targets="emulate", options=OPEN)
