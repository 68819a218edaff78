"""Columns that threads keep in registers: who keeps them, and that the results are right."""

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.options import Options
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.templates import column_cluster
from tcdsl.strategies.templates.column_cluster import KeptColumns, legal_columns
from tests.strategies.waiting_sums import (
    BATCHES,
    COLUMNS,
    Case,
    CheckAll,
    MakeUnit,
    Shapes,
    check_all_sizes,
    keep_all_columns,
    program,
    special_rows,
)

ColumnsOf = Callable[..., KeptColumns]

SOFTMAX, BATCHNORM = program("softmax", COLUMNS), program("batchnorm", COLUMNS)
LOGSUMEXP = program("logsumexp", COLUMNS)
SHORT = [(701, 7), (97, 42)]  # odd, prime, vectors of two
LONG = [(6272, 16), (4099, 5)]  # for clusters


def at_all_sizes(source: str, shapes: Callable[[int, int], Shapes]) -> Case:
    return source, [shapes(*size) for size in (*SHORT, *LONG)]


CASES: dict[str, Case] = {
    "batchnorm": at_all_sizes(BATCHNORM, lambda m, c: [(m, c), (c,), ()]),
    "statistics as outputs": at_all_sizes(
        program("statistics as outputs", COLUMNS), lambda m, c: [(m, c)]
    ),
    "softmax": at_all_sizes(SOFTMAX, lambda m, c: [(m, c)]),
    "batches": at_all_sizes(program("softmax without e", BATCHES), lambda m, c: [(3, m, c)]),
    # Of (6272, 16) and (4099, 5) doubles, and of two arrays, blocks in chunks, and a kernel after
    # them, are estimated to be faster.
    "two arrays": (
        program("two arrays", COLUMNS),
        [[size] * 2 for size in (*SHORT, (5000, 16), LONG[1])],
    ),
    "operators": (
        program("operators", COLUMNS, "double"),
        [[size] for size in (*SHORT, (3001, 5))],
    ),
    "integers": at_all_sizes(program("integers", COLUMNS), lambda m, c: [(m, c)]),
    "only sums": at_all_sizes(LOGSUMEXP, lambda m, c: [(m, c)]),
    "halves": at_all_sizes(program("softmax", COLUMNS, "half"), lambda m, c: [(m, c)]),
    "bfloat16": at_all_sizes(
        program("batchnorm", COLUMNS, "bfloat16"), lambda m, c: [(m, c), (c,), ()]
    ),
}


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_all_columns(monkeypatch)


def readers_of(unit: Any, array: str) -> list[str]:
    """Return the statements that read *array*."""
    statements = unit.done.plan.scop.statements
    return [s.name for s in statements if any(read.array == array for read in s.reads)]


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("always")
def test_one_kernel_reads_a_column_once(name: str, cuda_unit: MakeUnit) -> None:
    source, sizes = CASES[name]
    for shapes in sizes:
        unit = cuda_unit(source, *shapes)
        (launch,) = unit.source.launches
        assert any("in registers" in reason for reason in launch.why), launch.why
        for array in unit.comprehension.inputs:
            assert len(readers_of(unit, array)) == 1, "what is kept is read by the copy alone"


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("always")
def test_the_results_are_right(name: str, check_emulated: CheckAll) -> None:
    check_all_sizes(check_emulated, CASES[name])


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("always")
def test_the_results_are_right_on_a_small_chip(
    name: str, check_emulated: CheckAll, small_chip: Chip
) -> None:
    source, sizes = CASES[name]
    check_all_sizes(check_emulated, (source, sizes[: len(SHORT)]), gpu=small_chip)


@pytest.mark.slow
@pytest.mark.usefixtures("always")
def test_other_sizes_and_vectors_of_one_element(check_emulated: CheckAll) -> None:
    sizes = [(1568, 16), (64, 3), (200, 130), (65, 1), (3000, 64)]
    check_emulated([(BATCHNORM, [(p, c), (c,), ()]) for p, c in sizes])
    check_emulated([(SOFTMAX, [(701, 8)])], options=Options(vectorise=False))


@pytest.mark.usefixtures("always")
def test_rules_for_nan_and_infinity(check_emulated: CheckAll) -> None:
    x = np.ascontiguousarray(special_rows(1024).T)
    check_emulated([(SOFTMAX, [x]), (LOGSUMEXP, [x])])


def images(unit: MakeUnit, rows: int, width: int, **choices: Any) -> Any:
    return unit(BATCHNORM, (rows, width), (width,), (), **choices)


def launches(unit: MakeUnit, rows: int, width: int, **choices: Any) -> Any:
    return images(unit, rows, width, **choices).source.launches


def test_small_images_have_one_kernel_of_sectors(cuda_unit: MakeUnit) -> None:
    """32 images of 7 x 7: three kernels took 16.4 us, one takes 7.1."""
    unit = images(cuda_unit, 1568, 256)
    (launch,) = unit.source.launches
    x, y, _ = launch.block
    assert any("in registers" in reason for reason in launch.why)
    assert len(readers_of(unit, unit.comprehension.inputs[0])) == 1
    assert launch.cluster > 1 and launch.grid[2] == launch.cluster
    assert 4 * 4 * x >= load_chip("h200").sector_bytes
    assert launch.grid[0] * 4 * x == 256 and 1568 % y == 0


@pytest.mark.slow
def test_clusters_share_what_one_block_does_not_hold(cuda_unit: MakeUnit) -> None:
    (launch,) = launches(cuda_unit, 6272, 256)
    assert (
        launch.cluster > 1
        and "__cluster_dims__" in cuda_unit(BATCHNORM, (6272, 256), (256,), ()).source.text
    )
    older = replace(load_chip("h200"), arch="sm_80", blocks_per_cluster=1)
    assert all(one.cluster == 1 for one in launches(cuda_unit, 6272, 256, gpu=older))


def test_large_images_have_a_kernel_for_every_pass(cuda_unit: MakeUnit) -> None:
    for rows in (25088, 100352):
        found = launches(cuda_unit, rows, 256)
        assert len(found) == 3
        assert all(prod(launch.grid) >= load_chip("h200").multiprocessors for launch in found)


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


# --- what is known of columns ------------------------------------------------------------------


@pytest.fixture
def columns_of(cuda_unit: MakeUnit, monkeypatch: pytest.MonkeyPatch) -> ColumnsOf:
    """``columns_of(source, *shapes)``: what the search finds of the columns of all statements."""

    def columns_of_(source: str, *shapes: tuple[int, ...]) -> KeptColumns:
        found: dict[int, KeptColumns] = {}

        def spy(problem: Problem) -> KeptColumns | None:
            columns = legal_columns(problem)
            if columns is not None:
                found[len(problem.group.members)] = columns
            return columns

        with monkeypatch.context() as patch:
            patch.setattr(column_cluster, "legal_columns", spy)
            cuda_unit(source, *shapes)
        return found[max(found)]

    return columns_of_


def test_a_pass_comes_after_the_reductions_that_it_waits_for(columns_of: ColumnsOf) -> None:
    assert columns_of(BATCHNORM, (1568, 256), (256,), ()).columns.passes == 3
    assert columns_of(SOFTMAX, (1568, 256)).columns.passes == 3


def test_what_is_the_same_for_all_columns_is_not_kept_with_them(columns_of: ColumnsOf) -> None:
    source = """def f(float(P,C) x, float(P) z) -> (y) {
        mean(c) +=! x(p,c) * z(p)
        y(p,c) = x(p,c) * z(p) - mean(c)
    }"""
    assert columns_of(source, (1568, 256), (1568,)).arrays == ("x",)


def test_what_waits_for_a_later_member_counts_as_kept(columns_of: ColumnsOf) -> None:
    source = """def f(float(P,C) x, float(P,C) z) -> (y, w) {
        a(c) +=! x(p,c)
        b(c) +=! z(p,c)
        y(p,c) = x(p,c) - a(c) * b(c)
        w(p,c) = z(p,c) - a(c) * b(c)
    }"""
    found = columns_of(source, (1568, 256), (1568, 256))
    assert set(found.arrays) == {"x", "z"} and found.columns.kept_bytes == 8
