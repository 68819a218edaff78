"""Statements and problems that are the same but for names: what they are, and what they share."""

from collections.abc import Callable

import pytest

from tcdsl.costmodel.chip import load_chip
from tcdsl.options import Options
from tcdsl.plan.predicted import predicted_seconds
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.scop import Scop
from tcdsl.schedule.fusion import alone
from tcdsl.strategies.gpu_shapes import gpu_shapes_of
from tcdsl.strategies.nameless import without_names
from tcdsl.strategies.problem import Problem, analyses_shared, nameless_analysis

Lower = Callable[..., Scop]
PROGRAM = "def f(float(M,N) x, float(M,N) u, {type}(N) w) -> (y, z) {{ {one}\n {other} }}"
ONE = "y(i,j) = x(i,j) * 2.0 + w(j)"


def lowered(lower: Lower, other: str, dtype: str = "float") -> Scop:
    text = PROGRAM.format(one=ONE, other=other, type=dtype)
    return lower(text, (64, 96), (64, 96), (96,))


def problems(scop: Scop, **options: bool) -> list[Problem]:
    shapes = gpu_shapes_of(scop, dependences_of(scop))
    chip = load_chip("h200")
    return [Problem(scop, alone(n, shapes), shapes, chip, Options(**options)) for n in shapes]


def test_names_of_statements_indices_and_arrays_do_not_matter(lower: Lower) -> None:
    one, other = map(without_names, lowered(lower, "z(m,n) = u(m,n) * 2.0 + w(n)").statements)
    assert one.text == other.text
    assert (one.arrays, other.arrays) == (("y", "x", "w"), ("z", "u", "w"))


@pytest.mark.parametrize(
    "other",
    [
        "z(i,j) = x(i,j) * 3.0 + w(j)",  # a number
        "z(i,j) = x(i,j) - 2.0 + w(j)",  # an operator
        "z(i,j) = x(i,j) * 2.0 + w(j) where i in 1:M",  # the instances
        "z(i,j) = x(i,j+1) * 2.0 + w(j)",  # a subscript
        "z(i,j) = x(i,j) * 2.0 + x(0,j)",  # which arrays are the same
        "z(j,i) = x(i,j) * 2.0 + w(j)",  # the order of indices
        "z(i,j) max=! x(i,j) * 2.0 + w(j)",  # what it does with the value
    ],
)
def test_all_else_does(lower: Lower, other: str) -> None:
    statements = lowered(lower, other).statements
    assert without_names(statements[0]).text != without_names(statements[-1]).text


def test_problems_alike_share_what_has_no_names(lower: Lower) -> None:
    asked: list[Problem] = []

    @nameless_analysis
    def found(problem: Problem) -> int:
        asked.append(problem)
        return 1

    with analyses_shared():
        one, other = problems(lowered(lower, "z(m,n) = u(m,n) * 2.0 + w(n)"))
        assert found(one) == found(other) == 1
        assert asked == [one]
        # What another statement reads is stored, whoever computes it.
        read, _ = problems(lowered(lower, "z(m,n) = y(m,n) * 2.0 + w(n)"))
        assert found(read) == 1
        assert asked == [one, read]
        plain, _ = problems(lowered(lower, "z(m,n) = u(m,n) * 2.0 + w(n)"), vectorise=False)
        assert found(plain) == 1
        assert asked == [one, read, plain]


def test_alike_problems_are_predicted_alike(lower: Lower) -> None:
    one, other = problems(lowered(lower, "z(m,n) = u(m,n) * 2.0 + w(n)"))
    alone_seconds = [predicted_seconds(problem) for problem in (one, other)]
    assert alone_seconds[0] == alone_seconds[1]
