"""Which elements accesses of one array have in common, by their boxes."""

from collections.abc import Callable

import pytest

from tcdsl.costmodel.parts import Box, boxes_of, count_apart
from tcdsl.poly.scop import Scop
from tests.costmodel.test_locality import shape

Lower = Callable[..., Scop]


def test_boxes_of_accesses(lower: Lower) -> None:
    source = """def f(float(B,4,N) p, int32(N) t) -> (y) {
        y(b,n) = p(b,1,n) + p(b,3-2,2*n+1) + p(b,0,t(n)) where n in 0:N/2
    }"""
    own = shape(lower(source, (8, 4, 64), (64,)), "S0")
    reads = dict.fromkeys(own.statement.reads)
    found = dict(zip((*own.statement.writes, *own.statement.reads), boxes_of(own), strict=True))
    boxes = {found[read] for read in reads if read.array == "p"}
    rows = 0, 7
    assert boxes == {(rows, (1, 1), (0, 31)), (rows, (1, 1), (1, 63)), (rows, (0, 0), None)}


@pytest.mark.parametrize(
    ("accesses", "count"),
    [
        # Parts of an array, each with elements of its own.
        ([(((0, 7), (0, 0)), 8), (((0, 7), (1, 1)), 8)], 16),
        # Taps of a window, of which each meets the one before it.
        ([(((0, 7),), 8), (((1, 8),), 8), (((2, 9),), 8)], 8),
        # Parts, and the whole array: in either order.
        ([(((0, 0),), 1), (((1, 1),), 1), (((0, 3),), 4)], 4),
        ([(((0, 3),), 4), (((0, 0),), 1), (((1, 1),), 1)], 4),
        # Nothing is known of a gather: it may meet every part.
        ([((None, (0, 0)), 8), (((0, 7), (0, 0)), 8), (((0, 7), (1, 1)), 8)], 16),
    ],
)
def test_what_accesses_touch_together(accesses: list[tuple[Box, float]], count: float) -> None:
    assert count_apart(accesses) == count


def test_halves_of_a_row_are_apart(lower: Lower) -> None:
    source = """def f(float(R,D) q) -> (y, z) {
        y(r,c) = q(r,c) - q(r,c+32) where c in 0:32
        z(r,c) = q(r,c) + q(r,c+1) where c in 0:32
    }"""
    scop = lower(source, (8, 64))
    counts = []
    for name in ("S0", "S1"):
        own = shape(scop, name)
        boxes = boxes_of(own)[len(own.statement.writes) :]
        counts.append(count_apart((box, 8 * 32) for box in boxes))
    assert counts == [8 * 64, 8 * 32]
