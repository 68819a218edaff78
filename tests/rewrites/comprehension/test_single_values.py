"""Subscripts that are an index because others have one value: they coalesce, and mean the same."""

from typing import Any

import pytest

from tcdsl.rewrites.comprehension.coalescing import coalesce
from tcdsl.rewrites.comprehension.single_values import with_single_values
from tests.rewrites.comprehension.test_coalescing import Shapes, analysed, coalesced, indices

CONV = """def f(float(N,C,H,W) I, float(F,C,KH,KW) K) -> (O) {
    O(n,f,h,w) +=! I(n,c,h+kh,w+kw) * K(f,c,kh,kw)
}"""
WEIGHTS = """def f(float(N,F,P,P) O, float(N,C,P,P) I) -> (K) {
    K(f,c,r,s) +=! O(n,f,h,w) * I(n,c,1*h + 1*r - 0,1*w + 1*s - 0)
        where c in 0:C, h in 0:P, w in 0:P, r in 0:1, s in 0:1
}"""
SHIFTED = """def f(float(N) x) -> (y) { y(i) +=! x(i + k) where i in 0:N-1, k in 1:2 }"""
DATA = """def f(float(N,F,P,P) O, float(F,C,1,1) K) -> (I) {
    I(n,c,y,x) +=! O(n,f,y - r,x - s) * K(f,c,r,s)
        where c in 0:C, y in 0:P, x in 0:P, r in 0:1, s in 0:1
}"""


@pytest.mark.parametrize(
    ("source", "shapes", "merged"),
    [
        (CONV, [(2, 3, 4, 5), (6, 3, 1, 1)], "h_w"),
        (WEIGHTS, [(2, 3, 4, 4), (2, 5, 4, 4)], "h_w"),
        (DATA, [(2, 3, 4, 4), (3, 5, 1, 1)], "y_x"),
    ],
)
def test_indices_go_together(source: str, shapes: Shapes, merged: str) -> None:
    c, special = analysed(source, shapes)
    done = coalesce(with_single_values(c, special), special, {})
    assert merged in indices(done).split()
    assert merged not in indices(coalesced(source, shapes)).split()


@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        (CONV, [(2, 3, 4, 5), (6, 3, 2, 1)]),  # w alone
        (SHIFTED, [(7,)]),  # the value is 1
    ],
)
def test_others_stay(source: str, shapes: Shapes) -> None:
    c, special = analysed(source, shapes)
    (before,), (after,) = c.statements, with_single_values(c, special).statements
    assert before.indices == after.indices and before.subscripts == after.subscripts
    if source == SHIFTED:
        assert before.value == after.value


@pytest.mark.slow_but("4")
@pytest.mark.parametrize("threads", [1, 4])
def test_results(threads: int, check_all: Any) -> None:
    cases = [
        (CONV, [(2, 3, 4, 5), (6, 3, 1, 1)]), (CONV, [(1, 37, 9, 11), (41, 37, 1, 1)]),
        (CONV, [(2, 3, 4, 5), (6, 3, 2, 1)]), (CONV, [(0, 3, 4, 5), (6, 3, 1, 1)]),
        (CONV, [(2, 3, 1, 1), (6, 3, 1, 1)]), (WEIGHTS, [(2, 3, 4, 4), (2, 5, 4, 4)]),
        (WEIGHTS, [(3, 17, 13, 13), (3, 37, 13, 13)]), (WEIGHTS, [(1, 1, 1, 1), (1, 1, 1, 1)]),
        (DATA, [(2, 3, 4, 4), (3, 5, 1, 1)]), (DATA, [(2, 31, 11, 11), (31, 18, 1, 1)]),
        (SHIFTED, [(7,)]), (SHIFTED, [(1,)]),
    ]  # fmt: skip
    check_all(cases, threads=threads)
