"""Coalescing: which dimensions merge, and that the merged comprehension means the same."""

from collections.abc import Callable
from math import prod
from typing import Any

import pytest

from tcdsl.interp.oracle import evaluate
from tcdsl.lang.comprehension import Comprehension, Specialisation
from tcdsl.lang.ranges.binding import bind_sizes
from tcdsl.lang.ranges.specialiser import specialise
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.types.sema import analyse
from tcdsl.rewrites.comprehension.coalescing import coalesce
from tcdsl.rewrites.comprehension.merging import Coalesced, print_merged
from tcdsl.source import Source
from tcdsl.testing.random_inputs import values

Shapes = list[tuple[int, ...]]


def analysed(source: str, shapes: Shapes) -> tuple[Comprehension, Specialisation]:
    c = analyse(parse_program(Source(source)))[-1]
    return c, specialise(c, bind_sizes(c, dict(zip(c.inputs, shapes, strict=True))))


def coalesced(source: str, shapes: Shapes, **strides: tuple[int, ...]) -> Coalesced:
    return coalesce(*analysed(source, shapes), strides)


def indices(done: Coalesced, position: int = 0) -> str:
    return " ".join(done.comprehension.statements[position].indices)


MERGES: dict[str, tuple[str, Shapes, str]] = {
    "all of a copy": (
        "def f(float(M,N,K) x) -> (y) { y(i,j,k) = x(i,j,k) }", [(3, 4, 5)], "i_j_k",
    ),
    "a whole sum": ("def f(float(M,N) x) -> (s) { s +=! x(i,j) }", [(3, 4)], "i_j"),
    "the inner of a row": (
        "def f(float(M,N,K) x) -> (y) { y(i) +=! x(i,j,k) }", [(3, 4, 5)], "i j_k",
    ),
    "the outer of a row": (
        "def f(float(M,N,K) x) -> (y) { y(i,j) +=! x(i,j,k) }", [(3, 4, 5)], "i_j k",
    ),
    "the plane of a channel": (
        "def f(float(N,C,H,W) x, float(C) s) -> (y) { y(n,c,h,w) = x(n,c,h,w) * s(c) }",
        [(2, 3, 4, 5), (3,)], "n c h_w",
    ),
    "outer dimensions of part of a range": (
        "def f(float(M,N) x) -> (y) { y(i,j) = x(i,j) where i in 1:3 }", [(4, 5)], "i_j",
    ),
    "the batch of a product": (
        "def f(float(A,B,M,K) x, float(A,B,K,N) y) -> (z)"
        " { z(a,b,m,n) +=! x(a,b,m,k) * y(a,b,k,n) }",
        [(2, 3, 4, 5), (2, 3, 5, 6)], "a_b m n k",
    ),
    "pixels beside one another": (
        "def f(float(H,W,3) x) -> (y) { y(i,j,c) = x(i,j,c) + x(i+1,j+2,c) }",
        [(4, 7, 3)], "i j_c",
    ),
    "pixels around a border": (
        "def f(float(W,3) x) -> (y) { y(i,c) = x(i,c) - x(i-1,c) where i in 1:W }",
        [(7, 3)], "i_c",
    ),
    "a run that is one already": (
        "def f(float(M,N) x, float(K) b) -> (y) { y(i,j) = x(i,j) + b(4*i+j) }",
        [(3, 4), (12,)], "i_j",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MERGES)
def test_indices_that_stand_together_merge(name: str) -> None:
    source, shapes, expected = MERGES[name]
    assert indices(coalesced(source, shapes)) == expected


KEPT: dict[str, tuple[str, Shapes]] = {
    "whole rows beside one another": (
        "def f(float(M,40) x) -> (y) { y(i,j) = x(i,j) + x(i+1,j) }", [(4, 40)],
    ),
    "pixels that are not innermost": (
        "def f(float(W,3,40) x) -> (y) { y(i,c,k) = x(i,c,k) + x(i+1,c,0) }", [(4, 3, 40)],
    ),
    "a recurrence of three at once": (
        "def f(float(N,3) x) -> (y) { y(i,c) = x(i,c) where i in 0:1"
        " y(i,c) = y(i-1,c) + x(i,c) where i in 1:N }", [(5, 3)],
    ),
    "neighbours of an index that is used": (
        "def f(float(W,3) x) -> (y) { y(i,c) = x(i,c) + (i > 0 ? x(i-1,c) : 0.0) }", [(5, 3)],
    ),
    "a channel beside one": (
        "def f(float(W,4) x) -> (y) { y(i,c) = x(i+1,c) + x(i,c+1) where c in 0:3 }", [(5, 4)],
    ),
    "part of an inner range": (
        "def f(float(M,N) x) -> (y) { y(i,j) = x(i,j) where j in 0:N-1 }", [(4, 5)],
    ),
    "an index used alone": (
        "def f(float(M,N) x, float(N) b) -> (y) { y(i,j) = x(i,j) + b(j) }", [(4, 5), (5,)],
    ),
    "an index in the value": ("def f(float(M,N) x) -> (y) { y(i,j) = x(i,j) + j }", [(4, 5)]),
    "a transposition": ("def f(float(M,N) x) -> (y) { y(j,i) = x(i,j) }", [(4, 5)]),
    "one left and one reduced": ("def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }", [(4, 5)]),
    "a subscript that is no index": (
        "def f(float(M,N) x) -> (y) { y(i,j) = x(i,j+1) }", [(4, 5)],
    ),
    "a condition": (
        "def f(float(M,N) x) -> (s) { s +=! x(i,j) where exists i + j < 5 }", [(4, 5)],
    ),
    "a range that depends": (
        "def f(float(N,N) x) -> (y) { y(i) = 0.0 where i in 0:N\n"
        " y(i) += x(i,j) where j in 0:i+1 }", [(4, 4)],
    ),
    "a run of other multiples": (
        "def f(float(M,N) x, float(K) b) -> (y) { y(i,j) = x(i,j) + b(3*i+j) }", [(3, 4), (12,)],
    ),
    "a run of the inner two of three": (
        "def f(float(A,M,N) x, float(K) b) -> (y) { y(a,i,j) = x(a,i,j) + b(4*a+i) }",
        [(2, 3, 4), (12,)],
    ),
    "another statement's objection": (
        "def f(float(M,N) x) -> (y, z) { y(i,j) = x(i,j)\n z(j) +=! x(i,j) }", [(4, 5)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_others_do_not(name: str) -> None:
    source, shapes = KEPT[name]
    done = coalesced(source, shapes)
    assert "_" not in " ".join(indices(done, n) for n in range(len(done.comprehension.statements)))


def test_only_dimensions_without_gaps_merge() -> None:
    source = "def f(float(M,N) x) -> (y) { y(i,j) = x(i,j) }"
    shapes: Shapes = [(4, 5)]
    assert indices(coalesced(source, shapes, x=(5, 1))) == "i_j"
    assert indices(coalesced(source, shapes, x=(10, 2))) == "i_j"
    assert indices(coalesced(source, shapes, x=(6, 1))) == "i j"
    assert indices(coalesced(source, shapes, x=(1, 4))) == "i j"
    assert coalesced(source, shapes, x=(10, 2)).strides["x"] == (2,)


def test_the_text_names_the_merged_dimensions() -> None:
    done = coalesced(*MERGES["the plane of a channel"][:2])
    assert print_merged(done.merged) == [
        "coalesced x: dimensions 0, 1, 2*3",
        "coalesced y: dimensions 0, 1, 2*3",
    ]


@pytest.mark.parametrize("name", [*MERGES, *KEPT])
def test_the_merged_comprehension_means_the_same(name: str) -> None:
    source, shapes = MERGES[name][:2] if name in MERGES else KEPT[name]
    c, special = analysed(source, shapes)
    done = coalesce(c, special, {})
    inputs: dict[str, Any] = {
        n: values(c.tensors[n].dtype, shape, "whole", 7)
        for n, shape in zip(c.inputs, shapes, strict=True)
    }
    assert isinstance(done.special, Specialisation)
    merged = done.special.shapes
    flat = {n: array.reshape(merged[n]) for n, array in inputs.items()}
    before = evaluate(c, special, inputs)
    after = evaluate(done.comprehension, done.special, flat)
    for n in c.outputs:
        assert prod(merged[n]) == prod(special.shapes[n])
        assert (before[n] == after[n].reshape(before[n].shape)).all()


def test_coalescing_is_part_of_the_pipeline(compiled: Callable[..., Any]) -> None:
    stages = compiled(*MERGES["the plane of a channel"][:1], (2, 3, 4, 5), (3,)).stages
    assert stages["coalesced"].splitlines() == [
        "S0 before  y(n, c, h, w) = x(n, c, h, w) * s(c)",
        "   after   y(n, c, h_w) = x(n, c, h_w) * s(c)",
        "   merged  h, w -> h_w (4 * 5)",
        "   form    pointwise",
        "coalesced x: dimensions 0, 1, 2*3",
        "coalesced y: dimensions 0, 1, 2*3",
    ]
