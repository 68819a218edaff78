"""Copies to shared memory: whether the elements of a vector are all there, or none is."""

from collections.abc import Callable

import islpy as isl
import pytest

from tcdsl.codegen.cuda.copies import is_whole
from tcdsl.poly.loop_tree import Coordinate
from tcdsl.poly.scop import Scop


@pytest.mark.parametrize(
    ("there", "whole"),
    [
        ("i < 5", True),
        ("j < 24", True),
        ("j < 20", False),
        ("j >= 4", False),
        ("8 <= j < 16 and i + j < 70", True),
        ("j < 8 + i", False),
        ("i + j >= 100", True),  # none is
    ],
)
def test_whole_vectors(there: str, whole: bool, lower: Callable[..., Scop]) -> None:
    scop = lower("def f(float(M,N) x) -> (y) { y(i,j) = x(i,j) }", (8, 64))
    copy = scop.by_name["S0"]
    own = copy.domain.intersect(isl.Set(f"{{ S0[i, j] : {there} }}"))
    assert is_whole(copy, own, Coordinate(1, 0, 1, 8)) == whole
