"""What is weighed at less than the greatest sizes of a class, and what that changes."""

from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.options import Options
from tcdsl.strategies import catalogue
from tcdsl.strategies.lesser_sizes import at_lesser_sizes
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


@pytest.mark.parametrize(("source", "name"), [(FIRST, "B"), (POINTS, "")])
def test_nothing_is_open_but_what_is_reduced(
    source: str, name: str, problems: list[Problem]
) -> None:
    assert at_lesser_sizes(choose(source, name, problems)) is None


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
