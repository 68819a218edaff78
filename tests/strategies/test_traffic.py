"""What a kernel moves: parts of an array that numbers tell apart, and what accesses share."""

import pytest

from tcdsl.strategies.traffic import footprints, moved_bytes
from tests.strategies.test_templates import problems_of

GATES = """def f(float(B,4,N) p) -> (y) {
    y(b,n) = p(b,0,n) * p(b,1,n) + p(b,3,n)
}"""
STEPS = """def f(float(B,4,N) p) -> (float(B,2,N) y) {
    y(b,0,n) = p(b,0,n) * p(b,0,n)
    y(b,1,n) = p(b,2,n) * y(b,0,n)
}"""
TAPS = "def f(float(N) x) -> (y) { y(i) = x(i) * x(i+1) + x(i+2) }"
FIRST = "def f(float(N) x) -> (y) { y(i) = x(i) * x(0) }"


@pytest.mark.parametrize(
    ("text", "shape", "elements"),
    [
        (GATES, (16, 4, 512), {"p": 3 * 16 * 512, "y": 16 * 512}),
        (STEPS, (16, 4, 512), {"p": 2 * 16 * 512, "y": 2 * 16 * 512}),
        (TAPS, (4096,), {"x": 4094, "y": 4094}),
        (FIRST, (4096,), {"x": 4096, "y": 4096}),
    ],
)
def test_every_part_of_an_array_is_moved_once(
    text: str, shape: tuple[int, ...], elements: dict[str, int]
) -> None:
    """lstm_steps reads four gates of one array: the bytes of one were counted."""
    (problem,) = problems_of(text, [shape])
    assert footprints(problem) == {name: 4 * count for name, count in elements.items()}
    moved = moved_bytes(problem.scop, problem.group, problem.shapes)
    assert moved == pytest.approx(4 * sum(elements.values()), abs=4)
