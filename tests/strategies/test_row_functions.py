"""Functions of rows' results: where they have loops of their own, and that results are the same."""

from collections.abc import Callable
from math import inf

import numpy as np
import pytest

from tcdsl.driver import Compiled
from tcdsl.options import Options
from tcdsl.plan import cpu_planner
from tcdsl.poly.loop_tree import Loop, LoopKind, loops_of, statements_of
from tcdsl.strategies import catalogue, operations, row_functions
from tcdsl.strategies.templates import cpu_row

Compile = Callable[..., Compiled]
CheckAll = Callable[..., None]

LOSS = """def f(float(B,C) x, int64(B) label) -> (loss) {
    top(n) max=! x(n,c)
    total(n) +=! exp(x(n,c) - top(n))
    p(n) = x(n,label(n)) - top(n) - log(total(n))
    loss +=! -exp(p(n)) * p(n)
}"""
# A function between two passes over the rows, and one of it.
BETWEEN = """def f(float(M,N) x) -> (y, w) {
    s(i) +=! x(i,j) * x(i,j)
    r(i) = sqrt(s(i) + 0.5)
    w(i) = exp(-r(i)) / r(i)
    y(i,j) = x(i,j) * w(i)
}"""
CHEAP = "def f(float(M,N) x) -> (y) { s(i) +=! x(i,j)\n m(i) = s(i) / N\n y(i,j) = x(i,j) - m(i) }"


def vectors_of(compiled: Compiled) -> list[list[str]]:
    """Return the statements of each vector loop that is in no other loop of one kernel."""
    found = []
    for kernel in compiled.plan.kernels:
        for loop in loops_of(kernel.tree):
            if loop.kind is LoopKind.VECTOR:
                found.append(list(statements_of(loop.body)))
    return found


def test_a_logarithm_of_each_row_is_computed_in_vectors(compiled: Compile) -> None:
    assert ["S2"] in vectors_of(compiled(LOSS, (128, 10), (128,), threads=1))


def test_functions_of_functions_share_their_loop(compiled: Compile) -> None:
    assert ["S1", "S2"] in vectors_of(compiled(BETWEEN, (64, 12), threads=1))


@pytest.mark.parametrize("shape", [(64, 5000), (8, 12)])
def test_long_rows_and_few_rows_are_one_after_another(
    shape: tuple[int, int], compiled: Compile
) -> None:
    assert ["S1", "S2"] not in vectors_of(compiled(BETWEEN, shape, threads=1))


def test_without_calls_they_stay_in_the_rows(compiled: Compile) -> None:
    assert ["S1"] not in vectors_of(compiled(CHEAP, (128, 10), threads=1))


def test_rows_of_a_block_stay_in_the_cache(compiled: Compile) -> None:
    """Each thread has blocks of rows; what a row keeps is kept for a block."""
    plan = compiled(BETWEEN, (20_000, 40), threads=4).plan
    (kernel,) = plan.kernels
    assert isinstance(kernel.tree, Loop) and kernel.tree.kind is LoopKind.PARALLEL
    rows = plan.placements["s"].elements()
    assert rows % row_functions.LEAST_ROWS == 0
    assert 0 < rows * 40 * 4 <= row_functions.BLOCK_BYTES


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    # The first template that applies, whatever it takes.
    monkeypatch.setattr(catalogue, "ALIKE_ON_CPU", inf)
    for module in (operations, cpu_row, cpu_planner):
        monkeypatch.setattr(module, "PARALLEL_WORK", 1)
    monkeypatch.setattr(cpu_row, "TILES_PER_THREAD", 1)
    monkeypatch.setattr(row_functions, "LEAST_ROWS", 2)
    monkeypatch.setattr(row_functions, "BLOCK_BYTES", 200)


SHAPES = [(0, 5), (5, 0), (1, 1), (2, 3), (7, 3), (13, 2), (31, 5), (64, 4)]


@pytest.mark.slow_but("3")
@pytest.mark.parametrize("threads", [1, 3])
def test_results_are_those_of_the_reference(
    threads: int, tiny: None, compiled: Compile, check_all: CheckAll
) -> None:
    assert ["S1", "S2"] in vectors_of(compiled(BETWEEN, (31, 5), threads=threads))
    check_all([(text, [shape]) for text in (BETWEEN, CHEAP) for shape in SHAPES], threads=threads)
    labelled = [(rows, columns) for rows, columns in SHAPES if columns]
    labels = {rows: np.arange(rows, dtype=np.int64) for rows, _ in labelled}
    check_all([(LOSS, [s, labels[s[0]] % s[1]]) for s in labelled], threads=threads)


def test_tiles_that_are_asked_for_stay(compiled: Compile) -> None:
    plan = compiled(BETWEEN, (20_000, 40), threads=4, options=Options(tile=(8, 8))).plan
    (kernel,) = plan.kernels
    assert isinstance(kernel.tree, Loop) and kernel.tree.coordinates["S1"].div == 8
