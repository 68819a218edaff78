"""Rows that the blocks of a cluster share: who gets clusters, and that the results are right."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tcdsl.costmodel import clusters
from tcdsl.costmodel.machine import Gpu
from tcdsl.options import Options

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]

SOFTMAX = """def f(float(M,N) x) -> (y) {
    top(i) max=! x(i,j)
    e(i,j) = exp(x(i,j) - top(i))
    total(i) +=! e(i,j)
    y(i,j) = e(i,j) / total(i)
}"""
LOGSUMEXP = """def f(float(M,N) x) -> (y) {
    top(i) max=! x(i,j)
    s(i) +=! exp(x(i,j) - top(i))
    y(i) = top(i) + log(s(i))
}"""
BATCHNORM = """def f(float(N,C,P) x, float(C) gamma, float eps) -> (y) {
    mean(c) +=! x(n,c,p)
    mean(c) = mean(c) / (N * P)
    var(c) +=! (x(n,c,p) - mean(c)) * (x(n,c,p) - mean(c))
    r(c) = rsqrt(var(c) / (N * P) + eps)
    y(n,c,p) = (x(n,c,p) - mean(c)) * r(c) * gamma(c)
}"""
WITH_STATISTICS = """def f(float(N,C,P) x) -> (y, mean, var) {
    mean(c) +=! x(n,c,p)
    mean(c) = mean(c) / (N * P)
    var(c) +=! (x(n,c,p) - mean(c)) * (x(n,c,p) - mean(c))
    y(n,c,p) = x(n,c,p) * mean(c) - var(c)
}"""
BACKWARD = """def f(float(M,N) x, float(M,N) dy) -> (dx) {
    a(i) +=! dy(i,j)
    b(i) +=! dy(i,j) * x(i,j)
    dx(i,j) = dy(i,j) - a(i) / N - x(i,j) * b(i) / N
}"""
OPERATORS = """def f(double(M,N) x) -> (y, low, any) {
    low(i) min=! x(i,j)
    high(i) max=! x(i,j)
    any(i) or=! x(i,j) > 0.5
    p(i) *=! 1.0 + 0.001 * x(i,j)
    y(i,j) = (x(i,j) - low(i)) / (high(i) - low(i) + 1.0) * p(i)
}"""
INTEGERS = """def f(int32(M,N) x) -> (y) {
    s(i) +=! int64(x(i,j))
    y(i,j) = x(i,j) - int32(s(i) % 1000)
}"""
HALVES = SOFTMAX.replace("float", "bfloat16")

CASES = {
    "softmax": (SOFTMAX, [[(5, 4096)], [(3, 4099)], [(2, 2050)], [(133, 1024)]]),
    "logsumexp": (LOGSUMEXP, [[(5, 4096)], [(3, 4099)], [(1, 8192)]]),
    "batchnorm": (BATCHNORM, [[(9, 5, 512), (5,), ()], [(9, 3, 515), (3,), ()]]),
    "flat batchnorm": (BATCHNORM, [[(16, 5, 196), (5,), ()], [(9, 3, 49), (3,), ()]]),
    "statistics as outputs": (WITH_STATISTICS, [[(16, 3, 196)], [(8, 2, 49)], [(8, 2, 512)]]),
    "two arrays": (BACKWARD, [[(3, 4096)] * 2, [(2, 1031)] * 2]),
    "operators": (OPERATORS, [[(3, 2048)], [(2, 1027)]]),
    "integers": (INTEGERS, [[(3, 2048)], [(2, 1027)]]),
    "half types": (HALVES, [[(3, 4096)], [(3, 4099)]]),
}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a block's part of a row so small that short rows are shared."""
    monkeypatch.setattr(clusters, "BLOCK_BYTES", 1 << 10)
    monkeypatch.setattr(clusters, "LEAST_BYTES", 1 << 9)
    monkeypatch.setattr(clusters, "HELD_WELL", 1 << 8)
    monkeypatch.setattr(clusters, "HELD_VALUES", 1 << 9)
    monkeypatch.setattr(clusters, "LEAST_GROUPS", 1)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("small_blocks")
def test_one_kernel_reads_a_row_once(name: str, cuda_unit: MakeUnit) -> None:
    source, sizes = CASES[name]
    for shapes in sizes:
        unit = cuda_unit(source, *shapes)
        (launch,) = unit.source.launches
        assert launch.cluster > 1 and launch.grid[2] == launch.cluster
        assert f"__cluster_dims__(1, 1, {launch.cluster})" in unit.source.text
        assert launch.shared_bytes > 0
        assert re.search("tc_copy_async(_some)?<", unit.source.text)
        for array in unit.comprehension.inputs:
            load = rf"tc_vload\w*<\d+>\(&(u0_)?{array}(_rows)?\["
            loads = re.findall(load, unit.source.text)
            assert not loads, "what is staged is read from shared memory"


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("small_blocks")
def test_the_results_are_right(name: str, check_emulated: CheckAll) -> None:
    source, sizes = CASES[name]
    check_emulated([(source, shapes) for shapes in sizes])


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("small_blocks")
def test_the_results_are_right_on_a_small_chip(
    name: str, check_emulated: CheckAll, small_chip: Gpu
) -> None:
    source, sizes = CASES[name]
    check_emulated([(source, shapes) for shapes in sizes], gpu=small_chip)


@pytest.mark.usefixtures("small_blocks")
def test_vectors_of_one_element(check_emulated: CheckAll) -> None:
    cases = [(SOFTMAX, [(2, 2048)]), (BATCHNORM, [(16, 2, 64), (2,), ()])]
    check_emulated(cases, options=Options(vectorise=False))


@pytest.mark.usefixtures("small_blocks")
def test_rules_for_nan_and_infinity(check_emulated: CheckAll) -> None:
    x = np.linspace(-3, 3, 6 * 2048, dtype=np.float32).reshape(6, 2048)
    x[1, 7], x[2, 2047], x[3, :], x[4, :1024] = np.nan, np.inf, -np.inf, -np.inf
    check_emulated([(SOFTMAX, [x]), (LOGSUMEXP, [x])])


def test_rows_that_a_block_holds_get_no_cluster(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(SOFTMAX, (300, 4096))
    (launch,) = unit.source.launches
    assert launch.cluster == 1 and launch.shared_bytes == 0


def test_rows_that_no_cluster_holds_are_read_again(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(SOFTMAX, (8, 1 << 20))
    assert len(unit.source.launches) > 1
    assert all(launch.cluster == 1 for launch in unit.source.launches)


def test_older_gpus_have_no_clusters(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(SOFTMAX, (300, 131072), gpu=replace(Gpu(), arch="sm_80", cluster=1))
    assert all(launch.cluster == 1 for launch in unit.source.launches)


def test_one_pass_needs_no_cluster(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit("def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }", (256, 1 << 17))
    (launch,) = unit.source.launches
    assert launch.cluster == 1


def test_channels_get_a_cluster_each(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(BATCHNORM, (32, 64, 3136), (64,), ())
    (launch,) = unit.source.launches
    assert launch.grid == (64, 1, 8) and launch.shared_bytes == 4 * 3136 * 4
    assert "clusters of 8 blocks" in launch.why[0]


def test_sums_that_one_pass_finds_need_no_cluster(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(
        "def f(float(M,N) x) -> (s, t) { s(i) +=! x(i,j)\n t(i) max=! x(i,j) * x(i,j) }",
        (2, 1 << 18),
    )
    assert all(launch.cluster == 1 for launch in unit.source.launches)


@pytest.mark.usefixtures("small_blocks")
def test_compensated_sums_are_folded_over_clusters(check_emulated: CheckAll) -> None:
    doubles = BATCHNORM.replace("float", "double")
    cases = [(SOFTMAX, [(2, 2048)]), (BATCHNORM, [(16, 2, 64), (2,), ()])]
    check_emulated(
        [*cases, (doubles, [(16, 2, 64), (2,), ()])], options=Options(summation="compensated")
    )
