"""Columns that threads keep in registers: who keeps them, and that the results are right."""

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

from tcdsl.costmodel import columns
from tcdsl.costmodel.machine import Gpu
from tcdsl.options import Options

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]

BATCHNORM = """def f(float(P,C) x, float(C) gamma, float eps) -> (y) {
    mean(c) +=! x(p,c)
    mean(c) = mean(c) / P
    var(c) +=! (x(p,c) - mean(c)) * (x(p,c) - mean(c))
    r(c) = rsqrt(var(c) / P + eps)
    y(p,c) = (x(p,c) - mean(c)) * r(c) * gamma(c)
}"""
WITH_STATISTICS = """def f(float(P,C) x) -> (y, mean, var) {
    mean(c) +=! x(p,c)
    mean(c) = mean(c) / P
    var(c) +=! (x(p,c) - mean(c)) * (x(p,c) - mean(c))
    y(p,c) = x(p,c) * mean(c) - var(c)
}"""
SOFTMAX = """def f(float(M,N) x) -> (y) {
    top(j) max=! x(i,j)
    e(i,j) = exp(x(i,j) - top(j))
    total(j) +=! e(i,j)
    y(i,j) = e(i,j) / total(j)
}"""
BATCHES = """def f(float(B,M,N) x) -> (y) {
    top(b,j) max=! x(b,i,j)
    s(b,j) +=! exp(x(b,i,j) - top(b,j))
    y(b,i,j) = exp(x(b,i,j) - top(b,j)) / s(b,j)
}"""
BACKWARD = """def f(float(P,C) x, float(P,C) dy) -> (dx) {
    a(c) +=! dy(p,c)
    b(c) +=! dy(p,c) * x(p,c)
    dx(p,c) = dy(p,c) - a(c) / P - x(p,c) * b(c) / P
}"""
OPERATORS = """def f(double(M,N) x) -> (y, low, any) {
    low(j) min=! x(i,j)
    high(j) max=! x(i,j)
    any(j) or=! x(i,j) > 0.5
    p(j) *=! 1.0 + 0.001 * x(i,j)
    y(i,j) = (x(i,j) - low(j)) / (high(j) - low(j) + 1.0) * p(j)
}"""
INTEGERS = """def f(int32(M,N) x) -> (y) {
    s(j) +=! int64(x(i,j))
    y(i,j) = x(i,j) - int32(s(j) % 1000)
}"""
ONLY_SUMS = """def f(float(M,N) x) -> (y) {
    top(j) max=! x(i,j)
    s(j) +=! exp(x(i,j) - top(j))
    y(j) = top(j) + log(s(j))
}"""
SHORT = [(701, 7), (97, 42)]  # odd, prime, vectors of two
LONG = [(6272, 16), (4099, 5)]  # for clusters

CASES = {
    "batchnorm": (BATCHNORM, lambda p, c: [(p, c), (c,), ()]),
    "statistics as outputs": (WITH_STATISTICS, lambda p, c: [(p, c)]),
    "softmax": (SOFTMAX, lambda p, c: [(p, c)]),
    "batches": (BATCHES, lambda p, c: [(3, p, c)]),
    "two arrays": (BACKWARD, lambda p, c: [(p, c)] * 2),
    "operators": (OPERATORS, lambda p, c: [(p, c)]),
    "integers": (INTEGERS, lambda p, c: [(p, c)]),
    "only sums": (ONLY_SUMS, lambda p, c: [(p, c)]),
    "halves": (SOFTMAX.replace("float", "half"), lambda p, c: [(p, c)]),
    "bfloat16": (BATCHNORM.replace("float(", "bfloat16("), lambda p, c: [(p, c), (c,), ()]),
}  # fmt: skip


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep all columns that fit."""
    monkeypatch.setattr(columns, "KERNEL", 1.0)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("always")
def test_one_kernel_reads_a_column_once(name: str, cuda_unit: MakeUnit) -> None:
    source, shapes = CASES[name]
    for rows, width in (*SHORT, *LONG):
        unit = cuda_unit(source, *shapes(rows, width))
        (launch,) = unit.source.launches
        assert any("in registers" in reason for reason in launch.why), launch.why
        for array in unit.comprehension.inputs:
            statements = unit.done.plan.scop.statements
            readers = [s.name for s in statements if any(r.array == array for r in s.reads)]
            assert len(readers) == 1, "what is kept is read by the copy alone"


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("always")
def test_the_results_are_right(name: str, check_emulated: CheckAll) -> None:
    source, shapes = CASES[name]
    check_emulated([(source, shapes(*size)) for size in (*SHORT, *LONG)])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("always")
def test_the_results_are_right_on_a_small_chip(
    name: str, check_emulated: CheckAll, small_chip: Gpu
) -> None:
    source, shapes = CASES[name]
    check_emulated([(source, shapes(*size)) for size in SHORT], gpu=small_chip)


@pytest.mark.usefixtures("always")
def test_other_sizes_and_vectors_of_one_element(check_emulated: CheckAll) -> None:
    sizes = [(1568, 16), (64, 3), (200, 130), (65, 1), (3000, 64)]
    check_emulated([(BATCHNORM, [(p, c), (c,), ()]) for p, c in sizes])
    check_emulated([(SOFTMAX, [(701, 8)])], options=Options(vectorise=False))


@pytest.mark.usefixtures("always")
def test_rules_for_nan_and_infinity(check_emulated: CheckAll) -> None:
    x = np.linspace(-3, 3, 6 * 1024, dtype=np.float32).reshape(1024, 6)
    x[7, 1], x[1023, 2], x[:, 3], x[:512, 4] = np.nan, np.inf, -np.inf, -np.inf
    check_emulated([(SOFTMAX, [x]), (ONLY_SUMS, [x])])


def launches(unit: MakeUnit, rows: int, width: int, **choices: Any) -> Any:
    return unit(BATCHNORM, (rows, width), (width,), (), **choices).source.launches


def test_small_images_have_one_kernel_of_sectors(cuda_unit: MakeUnit) -> None:
    """32 images of 7 x 7: three kernels took 16.4 us, one takes 7.1."""
    (launch,) = launches(cuda_unit, 1568, 256)
    x, y, _ = launch.block
    assert launch.cluster == 1 and 4 * 4 * x >= columns.SECTOR_BYTES
    assert launch.grid[0] * 4 * x == 256 and 1568 % y == 0


def test_clusters_share_what_one_block_does_not_hold(cuda_unit: MakeUnit) -> None:
    (launch,) = launches(cuda_unit, 6272, 256)
    assert (
        launch.cluster > 1
        and "__cluster_dims__" in cuda_unit(BATCHNORM, (6272, 256), (256,), ()).source.text
    )
    older = replace(Gpu(), arch="sm_80", cluster=1)
    assert all(one.cluster == 1 for one in launches(cuda_unit, 6272, 256, gpu=older))


def test_large_images_have_a_kernel_for_every_pass(cuda_unit: MakeUnit) -> None:
    for rows in (25088, 100352):
        found = launches(cuda_unit, rows, 256)
        assert len(found) == 3
        assert all(prod(launch.grid) >= Gpu().multiprocessors for launch in found)


def test_columns_enough_for_a_thread_each_are_left_to_them(cuda_unit: MakeUnit) -> None:
    (launch,) = cuda_unit(SOFTMAX, (64, 1 << 20)).source.launches
    assert not any("in registers" in reason for reason in launch.why)


def test_sums_that_wait_for_nothing_are_read_once_anyway(cuda_unit: MakeUnit) -> None:
    source = "def f(float(M,N) x) -> (a, b) { a(j) +=! x(i,j)  b(j) max=! x(i,j) }"
    found = cuda_unit(source, (1568, 256)).source.launches
    assert not any("in registers" in reason for launch in found for reason in launch.why)


def test_options_decide_before(cuda_unit: MakeUnit) -> None:
    apart = launches(cuda_unit, 1568, 256, options=Options(fuse="none"))
    assert len(apart) > 1
    tiled = launches(cuda_unit, 1568, 256, options=Options(tile=(16,)))
    assert not any("in registers" in reason for launch in tiled for reason in launch.why)
