"""What last blocks do with the sums of chunks: folds, and what is computed of them."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl.costmodel.chip import Chip
from tcdsl.options import Options
from tcdsl.strategies.templates import last_block

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]

# The sums are chunked; everything else fits the last blocks.
STITCHED = {
    "mean": ("def f(float(N) x) -> (y) { s +=! x(i)\n y = s / N }", [(300_000,)]),
    "mean square error": (
        """def f(float(N) x, float(N) z) -> (y) {
            s +=! (x(i) - z(i)) * (x(i) - z(i))
            y = s / N
        }""",
        [(300_001,), (300_001,)],
    ),
    "two sums": (
        "def f(float(N) x) -> (s, t) { s +=! x(i)\n t max=! x(i) * x(i) }",
        [(300_000,)],
    ),
    "variance of columns": (
        """def f(float(M,N) x) -> (v) {
            s(j) +=! x(i,j)
            q(j) +=! x(i,j) * x(i,j)
            v(j) = q(j) / M - s(j) / M * s(j) / M
        }""",
        [(9001, 70)],
    ),
    "a chain after a column": (
        """def f(float(M,N) x, float(N) b) -> (a, y) {
            s(j) +=! x(i,j)
            a(j) = s(j) / M + b(j)
            y(j) = sqrt(abs(a(j))) * a(j)
        }""",
        [(20_011, 33), (33,)],
    ),
    "sums that are stored, and copied in vectors": (
        """def f(float(M,N) x) -> (s, y, z) {
            s(j) +=! x(i,j)
            q(j) max=! x(i,j)
            y(j) = s(j)
            z(j) = q(j) * s(j)
        }""",
        [(9001, 256)],
    ),
    "rounded once": (
        "def f(half(N) x) -> (y) { s +=! x(i)\n y = s * 0.5 }", [(400_000,)],
    ),
    "from what out holds": ("def f(float(M,N) x) -> (y) { y(j) +=! x(i,j) }", [(20_011, 24)]),
    "few long rows": (
        "def f(float(M,N) x) -> (y) { s(i) +=! x(i,j)\n y(i) = 1.0 / s(i) }", [(3, 600_011)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", STITCHED)
def test_one_kernel_has_it_all(name: str, cuda_unit: MakeUnit) -> None:
    source, shapes = STITCHED[name]
    unit = cuda_unit(source, *shapes)
    (launch,) = unit.source.launches
    assert max(launch.grid) > 1 and "tc_last_block(" in unit.source.text
    assert any("by the last of" in reason for reason in launch.why)


@pytest.mark.slow
def test_stitched_kernels_are_right(check_emulated: CheckAll) -> None:
    check_emulated(list(STITCHED.values()))


@pytest.mark.slow
@pytest.mark.parametrize("name", STITCHED)
def test_on_a_small_chip(name: str, check_emulated: CheckAll, small_chip: Chip) -> None:
    source, shapes = STITCHED[name]
    sizes = (1, 2, 31, 64, 65, 131)
    cases = []
    for size in sizes:
        cut = [tuple(size if n > 200 else min(n, 9) for n in s) for s in shapes]
        cases.append((source, cut))
    check_emulated(cases, gpu=small_chip)


SMALL_GRAPHS = {
    "loss of rows": (
        "def f(float(M,N) x) -> (r, s) { r(i) +=! x(i,j) * x(i,j)\n s +=! r(i) }", [(200, 700)],
    ),
    "largest, then where": (
        "def f(float(M,N) x) -> (r, s) { r(i) max=! x(i,j)\n s argmax=! r(i) }", [(77, 70)],
    ),
    "a scalar of one block": ("def f(float(N) x) -> (s) { t +=! x(i)\n s = sqrt(t) }", [(999,)]),
    "pointwise, then a sum": (
        "def f(float(N) x) -> (y, s) { y(i) = exp(x(i))\n s +=! y(i) }", [(3001,)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SMALL_GRAPHS)
def test_the_last_of_all_blocks_runs_what_is_small(name: str, cuda_unit: MakeUnit) -> None:
    source, shapes = SMALL_GRAPHS[name]
    unit = cuda_unit(source, *shapes)
    (launch,) = unit.source.launches
    assert ("tc_last_block" in unit.source.text) == (max(launch.grid) > 1)


def test_a_gather_is_checked_by_the_last_block(
    cuda_unit: MakeUnit, check_emulated: CheckAll
) -> None:
    """The check depends on nothing, and comes along with what it is for."""
    source = """def f(float(M,N) x, int32(M) k) -> (r, s) {
        r(i) max=! x(i,j)
        s +=! r(i) - x(i,k(i))
    }"""
    (launch,) = cuda_unit(source, (200, 700), (200,)).source.launches
    assert any("by the last of 200 blocks" in why for why in launch.why)
    cases = [(source, [(m, 700), np.arange(m, dtype=np.int32) * 3]) for m in (1, 7, 200)]
    check_emulated(cases)


@pytest.mark.slow
def test_small_graphs_are_right(check_emulated: CheckAll) -> None:
    cases = [
        (source, [tuple(max(1, n // cut) for n in s) for s in shapes])
        for source, shapes in SMALL_GRAPHS.values()
        for cut in (1, 2, 3, 7, 1000)
    ]
    check_emulated(cases)


@pytest.mark.slow
def test_small_graphs_on_a_small_chip(check_emulated: CheckAll, small_chip: Chip) -> None:
    cases = [
        (source, [tuple(max(1, n // cut) for n in s) for s in shapes])
        for source, shapes in SMALL_GRAPHS.values()
        for cut in (5, 11, 37)
    ]
    check_emulated(cases, gpu=small_chip)


def test_what_needs_the_sums_of_all_blocks_is_another_kernel(cuda_unit: MakeUnit) -> None:
    source = """def f(float(M,N) x) -> (y, s) {
        y(j) +=! x(i,j)
        s +=! y(j)
    }"""
    first, second = cuda_unit(source, (20_000, 256)).source.launches
    assert "by the last of" in " ".join(first.why) and second.grid == (1, 1, 1)


def test_what_is_much_work_is_another_kernel(cuda_unit: MakeUnit) -> None:
    source = """def f(float(M,N) x) -> (y) {
        s(j) +=! x(i,j)
        y(i,j) = x(i,j) - s(j) / M
    }"""
    first, second = cuda_unit(source, (20_000, 256)).source.launches
    assert "by the last of" in " ".join(first.why) and max(second.grid) > 100


def test_a_consumer_that_reads_other_elements_is_another_kernel(cuda_unit: MakeUnit) -> None:
    source = """def f(float(M,N) x) -> (y) {
        s(j) +=! x(i,j)
        y(j) = s(N-1-j)
    }"""
    assert len(cuda_unit(source, (20_000, 256)).source.launches) == 2


def test_a_consumer_of_a_kernel_that_stays_behind_does_too(
    cuda_unit: MakeUnit, check_emulated: CheckAll
) -> None:
    source = """def f(float(M,N) x) -> (y, z) {
        s(j) +=! x(i,j)
        t(j) = s(N-1-j) * 2.0
        y(j) = s(j) + t(j)
        z(j) = s(j) - 1.0
    }"""
    unit = cuda_unit(source, (20_000, 256))
    assert len(unit.source.launches) == 2
    check_emulated([(source, [(20_000, 33)])])


def test_many_sums_of_a_thread_are_another_kernel(
    cuda_unit: MakeUnit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(last_block, "MOST_LOADS", 0)
    first, second, third = cuda_unit(STITCHED["mean"][0], (300_000,)).source.launches
    assert "by the last of" not in " ".join([*first.why, *second.why, *third.why])
    assert second.grid == third.grid == (1, 1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["source_order", "isl"])
def test_other_schedulers(scheduler: str, check_emulated: CheckAll) -> None:
    cases = [STITCHED["variance of columns"], STITCHED["mean"]]
    check_emulated(cases, options=Options(scheduler=scheduler))  # type: ignore[arg-type]


def test_every_block_takes_a_ticket_of_its_columns(cuda_unit: MakeUnit) -> None:
    source, shapes = STITCHED["variance of columns"]
    unit = cuda_unit(source, *shapes)
    (launch,) = unit.source.launches
    found = re.search(r"tc_last_block\(tickets \+ blockIdx\.(\w), (\d+)\)", unit.source.text)
    assert found is not None
    axis = "xyz".index(found[1])
    assert int(found[2]) * launch.grid[axis] == launch.grid[0] * launch.grid[1] * launch.grid[2]


# --- found by a reader, 2026-11-21 ----------------------------------------------------------------

FOUND = {
    "chunks of what another member's vectors are along": (
        "def f(float(M,N) x) -> (s, d) { s(m) +=! x(m,n)\n d +=! s(m) }",
        [(300, 100), (300, 64), (300, 32), (301, 33), (70, 100)],
    ),
    "a consumer of another member, elsewhere": (
        """def f(float(M,N) x) -> (s, y, z) {
            s(n) +=! x(m,n)
            y(m,n) = x(m,n) * 2.0
            z(n) = s(n) + y(0,N-1-n)
        }""",
        [(6007, 70)],
    ),
    "an input that is written after it is read": (
        "def f(float(M,N) x, float(N) w) -> (s, w) { s(n) +=! x(m,n) * w(n)\n w(N-1-n) = s(n) }",
        [(6007, 70)],
    ),
    "a sum of what the last block stores": (
        """def f(float(M,N) x) -> (t, a, d) {
            t(m,n) = exp(x(m,n))
            a(n) = t(0,n) * 2.0
            d +=! a(n)
        }""",
        [(64, 64), (607, 70), (6000, 256)],
    ),
}


@pytest.mark.slow_but("chunks of what another member's vectors are along")
@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
@pytest.mark.parametrize("name", FOUND)
def test_what_a_reader_found(name: str, check_emulated: CheckAll) -> None:
    source, shapes = FOUND[name]
    extra = [(shapes[0][1],)] if "float(N) w" in source else []
    check_emulated([(source, [shape, *extra]) for shape in shapes])


# --- by atomics -----------------------------------------------------------------------------------

ATOMIC = {
    "sum": ("def f(float(N) x) -> (y) { y +=! x(i) }", [(300_000,)]),
    "columns": ("def f(float(M,N) x) -> (y) { y(j) +=! x(i,j) }", [(9001, 70)]),
    "largest": ("def f(float(M,N) x) -> (y) { y(i) max=! x(i,j) }", [(3, 600_011)]),
    "product": ("def f(double(N) x) -> (y) { y *=! 1.0 + x(i) * 0.000001 }", [(200_000,)]),
    "integers": ("def f(int64(M,N) x) -> (y) { y(j) min=! x(i,j) }", [(20_011, 5)]),
    "all": ("def f(bool(N) x) -> (y) { y and=! x(i) }", [(4_000_000,)]),
    "consumers": STITCHED["variance of columns"],
    "mean": STITCHED["mean"],
}


@pytest.mark.parametrize("name", ATOMIC)
def test_blocks_add_to_the_result_at_once(name: str, cuda_unit: MakeUnit) -> None:
    source, shapes = ATOMIC[name]
    text = cuda_unit(source, *shapes, options=Options(cross_block="atomic")).source.text
    assert "tc_atomic_" in text
    assert (
        "tc_atomic_"
        not in cuda_unit(source, *shapes, options=Options(cross_block="ordered")).source.text
    )


@pytest.mark.slow
def test_sums_by_atomics_are_right(check_emulated: CheckAll) -> None:
    check_emulated(list(ATOMIC.values()), options=Options(cross_block="atomic"))


@pytest.mark.slow
def test_sums_by_atomics_on_a_small_chip(check_emulated: CheckAll, small_chip: Chip) -> None:
    cases = [
        (source, [tuple(size if n > 200 else min(n, 9) for n in s) for s in shapes])
        for source, shapes in ATOMIC.values()
        for size in (1, 31, 64, 131)
    ]
    check_emulated(cases, gpu=small_chip, options=Options(cross_block="atomic"))


def test_rounded_sums_are_ordered_where_runs_must_agree(cuda_unit: MakeUnit) -> None:
    options = Options(cross_block="atomic", deterministic=True)
    source, shapes = ATOMIC["columns"]
    assert "tc_atomic_" not in cuda_unit(source, *shapes, options=options).source.text
    source, shapes = ATOMIC["largest"]
    assert "tc_atomic_max_f32" in cuda_unit(source, *shapes, options=options).source.text


def test_sums_of_halves_are_rounded_once(cuda_unit: MakeUnit, check_emulated: CheckAll) -> None:
    source = "def f(half(N) x) -> (half y) { y +=! x(i) }"
    case = [(400_000,)]
    options = Options(cross_block="atomic")
    assert "tc_atomic_" not in cuda_unit(source, *case, options=options).source.text
    check_emulated([(source, case)], options=options)


def test_last_blocks_run_what_takes_them_no_longer(
    cuda_unit: MakeUnit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing is quick enough the folds alone are left to them."""
    source, shapes = STITCHED["mean square error"]
    assert len(cuda_unit(source, *shapes).done.plan.kernels) == 1
    monkeypatch.setattr("tcdsl.strategies.gpu_rewrites.SLOW", 0.0)
    kernels = cuda_unit(source, *shapes).done.plan.kernels
    assert [kernel.name.partition("+")[0] for kernel in kernels] == ["S0", "S1"]
    assert "fold" in kernels[0].name
