"""Outputs that their kernels read, kept in temporaries and stored at the end."""

from collections.abc import Callable

import pytest

from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.scop import Kind, Scop, Storage
from tcdsl.transforms.write_back import why_not_written_back, write_back

ROWS = """def f(float(M,N) x) -> (y, s) {
    s(i) +=! x(i,j)
    s(i) = s(i) / N
    y(i,j) = x(i,j) - s(i)
}"""


@pytest.fixture
def rows(lower: Callable[..., Scop]) -> Scop:
    return lower(ROWS, (5, 7))


def test_all_uses_are_of_the_temporary_but_the_last(rows: Scop) -> None:
    done = write_back(rows, "s")
    assert done.arrays["s.kept"].storage is Storage.SCRATCH
    *others, store = done.statements
    assert store.kind is Kind.ASSIGN and store.write.array == "s"
    assert [read.array for read in store.reads] == ["s.kept"]
    assert all(a.array != "s" for s in others for a in (*s.writes, *s.reads))
    assert str(store.domain) == "{ s.store[i0] : 0 <= i0 <= 4 }"


def test_the_store_comes_after_every_write(rows: Scop) -> None:
    edges = dependences_of(write_back(rows, "s")).edges
    sources = {edge.source for edge in edges if edge.sink == "s.store"}
    assert sources == {"S0_init", "S0", "S1"}


def test_inputs_and_temporaries_stay(lower: Callable[..., Scop]) -> None:
    scop = lower("def f(float(N) x, float(N) y) -> (y) { t(i) = x(i)\n y(i) += t(i) }", (4,), (4,))
    assert why_not_written_back(scop, "y") == "it is no output, or an input too"
    assert why_not_written_back(scop, "t") == "it is no output, or an input too"
    assert why_not_written_back(scop, "x") == "it is no output, or an input too"


def test_scattered_outputs_stay(lower: Callable[..., Scop]) -> None:
    scop = lower("def f(float(N) x, int32(N) t) -> (float(8) y) { y(t(i)) +=! x(i) }", (4,), (4,))
    assert why_not_written_back(scop, "y") == "a subscript is gathered or scattered"
