"""Strides, extents and the order of loops that they ask for."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tcdsl.costmodel.locality import (
    OPEN_EXTENT,
    Shape,
    access_stride,
    array_strides,
    constant_run,
    shape_of,
    usual_stride,
)
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.parallelism import roles_of
from tcdsl.poly.scop import Scop

Lower = Callable[..., Scop]


def shape(scop: Scop, name: str) -> Shape:
    statement = scop.by_name[name]
    return shape_of(scop, statement, roles_of(statement, dependences_of(scop)))


def order(scop: Scop, name: str = "S0") -> str:
    found = shape(scop, name)
    return " ".join(found.statement.indices[dim] for dim in found.order)


def test_extents_and_lower_bounds(lower: Lower) -> None:
    source = "def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) where j in 2:N }"
    found = shape(lower(source, (3, 7)), "S0")
    assert (found.lower, found.extents, found.instances) == ((0, 2), (3, 5), 15)


def test_nothing_has_no_extent(lower: Lower) -> None:
    found = shape(lower("def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }", (3, 0)), "S0")
    assert found.instances == 0 and 0 in found.extents


def test_strides_of_every_access(lower: Lower) -> None:
    source = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
    found = shape(lower(source, (4, 5), (5, 6)), "S0")
    assert found.strides == ((6, 1, 0), (5, 0, 1), (0, 1, 6))


@pytest.mark.parametrize(
    ("subscript", "stride"),
    [("2*i", 2), ("i + 3", 1), ("7 - i", 1), ("i / 2", 64), ("i - i", 0), ("p(i)", 64)],
)
def test_the_stride_of_a_subscript(subscript: str, stride: int, lower: Lower) -> None:
    source = f"def f(float(N) a, int32(N) p) -> (o) {{ o(i) = a({subscript}) where i in 0:4 }}"
    scop = lower(source, (30,), (30,), check_gathers=False)
    (access,) = [a for a in scop.by_name["S0"].reads if a.array == "a"]
    assert access_stride(scop.arrays["a"], access, "i") == stride
    assert access_stride(scop.arrays["a"], access, "other") in (0, 64)


@pytest.mark.parametrize(("subscript", "usual", "run"), [
    ("i / 32", 1 / 32, 32), ("(i + 64) / 32", 1 / 32, 32), ("(i + 8) / 32", 1 / 32, 8),
    ("(i + 3) / 32", 1 / 32, 1), ("(j * 4 + i) / 8", 1 / 8, 4), ("(j + i) / 8", 1 / 8, 1),
    ("i / 8 + j", 1 / 8, 8), ("i / 8 + i", 9 / 8, 1), ("i / 8 + i / 12", 5 / 24, 4),
    ("(2 * i) / 8", 1 / 4, 1), ("(i - 8) / 8 + 1", 1 / 8, 8), ("(7 - i) / 8 + 9", 1 / 8, 1),
    ("j", 0, 0), ("i / 4 % 3", 64, 1), ("3 * (i / 4)", 3 / 4, 4), ("p(i / 4)", 64, 1),
])  # fmt: skip
def test_quotients_are_the_same_for_a_run(
    subscript: str, usual: float, run: int, lower: Lower
) -> None:
    ranges = "where i in 0:9, j in 0:3"
    source = f"def f(float(N) a, int32(N) p) -> (o) {{ o(i,j) = a({subscript}) {ranges} }}"
    scop = lower(source, (300,), (300,), check_gathers=False)
    access = next(a for a in scop.by_name["S0"].reads if a.array == "a")
    assert usual_stride(scop.arrays["a"], access, "i") == pytest.approx(usual)
    assert constant_run(access, "i") == run
    # As it says: from each multiple of the run on the subscript has one value.
    if run > 1 and "p" not in subscript:
        for j in range(3):
            found = [eval(subscript.replace("/", "//"), {"i": i, "j": j}) for i in range(96)]
            assert all(len({*found[n : n + run]}) == 1 for n in range(0, 96, run))


def test_array_strides_are_the_callers_or_row_major(lower: Lower) -> None:
    array = lower("def f(float(M,N,K) x) -> (y) { y(i) +=! x(i,j,k) }", (3, 4, 5)).arrays["x"]
    assert array_strides(array) == (20, 5, 1)
    assert array_strides(replace(array, strides=(1, 3, 12))) == (1, 3, 12)
    assert array_strides(replace(array, strides=(None, 3, 12))) == (OPEN_EXTENT, 3, 12)


@pytest.mark.parametrize(
    ("source", "shapes", "loops"),
    [
        ("def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }", [(64, 64)], "i j"),
        ("def f(float(M,N) x) -> (y) { y(j) +=! x(i,j) }", [(64, 64)], "i j"),
        ("def f(float(M,N) x) -> (y) { y(j,i) = x(i,j) }", [(64, 64)], "j i"),
        ("def f(float(M,N,K) x) -> (y) { y(k) +=! x(i,j,k) }", [(8, 8, 8)], "i j k"),
        ("def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
         [(64, 64), (64, 64)], "m k n"),
    ],
)  # fmt: skip
def test_large_strides_are_outside(
    source: str, shapes: list[tuple[int, ...]], loops: str, lower: Lower
) -> None:
    assert order(lower(source, *shapes)) == loops


def test_a_recurrence_keeps_the_order_of_its_own_dimensions(lower: Lower) -> None:
    source = """def f(float(T,N) a) -> (c) {
        c(i,t) = a(t,i)
        c(i,t) = c(i+1,t-1) + a(t,i) where t in 1:T, i in 0:N-1
    }"""
    assert order(lower(source, (5, 6)), "S1") == "i t"


def test_strides_are_those_of_the_arrays_as_they_are(lower: Lower) -> None:
    scop = lower("def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }", (4, 6))
    (name,) = (s.name for s in scop.statements if s.value is not None and s.reads)
    assert shape(scop, name).strides[-1] == (6, 1)
    spread = replace(scop.arrays["x"], strides=(12, 2))
    other = replace(scop, arrays={**scop.arrays, "x": spread})
    assert other.by_name[name] is scop.by_name[name]
    assert shape(other, name).strides[-1] == (12, 2)
    assert shape(scop, name).strides[-1] == (6, 1)


@pytest.mark.parametrize(
    ("subscripts", "usual"),
    [
        ("i / 7, i % 7", 1),
        ("i / 49, i / 7 % 7 + 7 * (i % 7)", 7),
        ("i / 256, i % 256", 1),
        ("i % 7, i / 7", 49),
        ("i / 7, 0 * (i % 7)", 64),  # most steps move nothing: nobody knows
    ],
)
def test_digits_move_as_most_steps_of_their_index_do(
    subscripts: str, usual: float, lower: Lower
) -> None:
    source = f"def f(float(N,M) a) -> (o) {{ o(i) = a({subscripts}) where i in 0:49 }}"
    scop = lower(source, (300, 49), check_gathers=False)
    access = next(a for a in scop.by_name["S0"].reads if a.array == "a")
    assert usual_stride(scop.arrays["a"], access, "i") == pytest.approx(usual)
