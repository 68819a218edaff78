"""What is weighed at less than the greatest sizes of a class, and what that changes."""

from collections.abc import Iterator
from math import inf, prod
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.options import Options
from tcdsl.strategies import catalogue, gpu_stencils
from tcdsl.strategies.lesser_sizes import at_lesser_sizes, excesses, has_open_sum
from tcdsl.strategies.problem import Problem
from tcdsl.testing import check

MIDDLE = "def f(float(B,L,N) x) -> (y) { y(b,n) +=! x(b,l,n) }"
FIRST = "def f(float(B,N) x) -> (y) { y(n) +=! x(b,n) }"
PRODUCT = "def f(float(M,K) a, float(N,K) b) -> (y) { y(m,n) +=! a(m,k) * b(n,k) }"
POINTS = "def f(float(B,N) x) -> (y) { y(b,n) = 2 * x(b,n) }"
SHAPES = {MIDDLE: [(40, 4096, 256)], FIRST: [(40, 64)], POINTS: [(40, 64)],
          PRODUCT: [(40, 256), (32, 256)]}  # fmt: skip


def compiled(source: str, name: str = "", **options: Any) -> tcdsl.Executable:
    args = [tcdsl.spec(shape, "float32") for shape in SHAPES[source]]
    opened = Options(dynamic_sizes=(name,) if name else (), **options)
    return tcdsl.define(source).f.compile(*args, target="emulate", options=opened)


@pytest.fixture
def problems(monkeypatch: pytest.MonkeyPatch) -> list[Problem]:
    """The problems that something was chosen for, of programs that are in no cache."""
    found: list[Problem] = []
    plain = catalogue._fastest

    def noted(problem: Problem) -> Any:
        found.append(problem)
        return plain(problem)

    monkeypatch.setattr(catalogue, "_fastest", noted)
    return found


def choose(source: str, name: str, problems: list[Problem]) -> Problem:
    compiled(source, name, fast_math=True)._compiled_again()
    return problems[0]


def test_a_quarter_of_the_greatest_size_or_the_least(problems: list[Problem]) -> None:
    problem = choose(MIDDLE, "B", problems)
    lesser = at_lesser_sizes(problem)
    assert lesser is not None and lesser is at_lesser_sizes(problem)
    name = problem.lead
    assert problem.shapes[name].extents[0] == 64 and lesser.shapes[name].extents[0] == 17
    assert problem.shapes[name].extents[1:] == lesser.shapes[name].extents[1:]


def test_nothing_is_open(problems: list[Problem]) -> None:
    assert at_lesser_sizes(choose(POINTS, "", problems)) is None


def test_sums_over_an_open_size(problems: list[Problem]) -> None:
    """Of 1 to 64 rows 16; chunks of them are dealt, and not weighed."""
    problem = choose(FIRST, "B", problems)
    lesser = at_lesser_sizes(problem)
    assert lesser is not None and has_open_sum(problem)
    assert set(lesser.shapes[problem.lead].extents) == {16, 64}


def test_the_greatest_excess_over_the_fastest_at_each_size() -> None:
    assert excesses([(1.0, 4.0), (2.0, 2.0), (1.5, inf)]) == [2.0, 2.0, 1.5]


def test_brief_tiles_give_way_where_a_lesser_size_has_none() -> None:
    """Of 64 columns tiles are predicted twice as long as columns, of 16 there are no tiles."""
    source = "def f(float(M,K) A, float(K,N) B) -> (C) { C(n,m) +=! A(m,k) * B(k,n) }"
    args = [tcdsl.spec(shape, "float32") for shape in ((21, 256), (256, 32))]
    f, options = tcdsl.define(source).f, Options(dynamic_sizes=("M",))
    exe = f.compile(*args, target="emulate", options=options)
    assert exe.opened == ("M",) and exe.choices["kernels"][0]["template"] == "column"


@pytest.mark.slow
def test_tiles_of_stencils_are_for_lesser_sizes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 1024 rows a few large tiles are enough for all multiprocessors, of 257 they are not."""
    source = """def f(float(H,W) x) -> (y) {
        a(i,j) = x(i,j) + x(i+1,j) + x(i,j+1) + x(i+1,j+1)
        y(i,j) = a(i,j) * a(i,j) + a(i+1,j) + a(i,j+1) + a(i+1,j+1)
    }"""
    found: list[tuple[int, ...]] = []
    plain = gpu_stencils.gpu_tilings

    def noted(*args: Any, **named: Any) -> Iterator[Any]:
        for tiling in plain(*args, **named):
            found.append(tiling.sizes)
            yield tiling

    monkeypatch.setattr("tcdsl.plan.gpu_planner.gpu_tilings", noted)
    x = tcdsl.spec((1024, 999), "float32")
    for options in (Options(), Options(dynamic_sizes=("H",))):
        exe = tcdsl.define(source).f.compile(x, target="emulate", options=options)
        exe._compiled_again()
    most, of_class = found[0], found[-1]
    assert prod(of_class) < prod(most)


def test_few_rows_are_of_as_many_blocks() -> None:
    """64 x 8 blocks are enough; of 17 rows 136 are not: some blocks share each sum."""
    assert "blocks over chunks" in compiled(MIDDLE, "B").explain()


@pytest.mark.slow
def test_sums_by_last_blocks_of_an_open_batch() -> None:
    f, options = tcdsl.define(MIDDLE).f, Options(dynamic_sizes=("B",))
    for size in (17, 19):
        x = np.random.default_rng(size).standard_normal((size, 4096, 256)).astype(np.float32)
        check(f, x, targets="emulate", options=options)


def test_brief_tiles_give_way_to_rows() -> None:
    exe = compiled(PRODUCT, "M")
    assert exe.opened == ("M",)
    assert exe.choices["kernels"][0]["template"] == "row"
    rng = np.random.default_rng(0)
    for size in (17, 40, 63):
        a, b = (rng.standard_normal((n, 256)).astype(np.float32) for n in (size, 32))
        check(
            tcdsl.define(PRODUCT).f, a, b, targets="emulate", options=Options(dynamic_sizes=("M",))
        )
