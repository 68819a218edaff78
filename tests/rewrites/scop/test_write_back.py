"""Outputs that their kernels read, kept in temporaries and stored at the end."""

from collections.abc import Callable

import pytest

from tcdsl.lang.comprehension import Load
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.scop import Kind, Scop, Storage
from tcdsl.rewrites.scop.write_back import why_not_written_back, write_back

ROWS = """def f(float(M,N) x) -> (y, s) {
    s(i) +=! x(i,j)
    s(i) = s(i) / N
    y(i,j) = x(i,j) - s(i)
}"""


INSIDE = ("S0_init", "S0", "S1", "S2")


@pytest.fixture
def rows(lower: Callable[..., Scop]) -> Scop:
    return lower(ROWS, (5, 7))


def test_all_uses_are_of_the_temporary_but_the_last(rows: Scop) -> None:
    done = write_back(rows, "s", INSIDE)
    assert done.arrays["s.kept"].storage is Storage.SCRATCH
    store = done.by_name["s.store"]
    assert done.statements[-2] is store
    assert store.kind is Kind.ASSIGN and store.write.array == "s"
    assert [read.array for read in store.reads] == ["s.kept"]
    assert all(
        a.array != "s" for s in done.statements if s is not store for a in (*s.writes, *s.reads)
    )
    assert str(store.domain) == "{ s.store[i0] : 0 <= i0 <= 4 }"


def test_the_store_comes_after_every_write(rows: Scop) -> None:
    edges = dependences_of(write_back(rows, "s", INSIDE)).edges
    sources = {edge.source for edge in edges if edge.sink == "s.store"}
    assert sources == {"S0_init", "S0", "S1"}


def test_inputs_and_what_others_write_stay(lower: Callable[..., Scop]) -> None:
    scop = lower("def f(float(N) x, float(N) y) -> (y) { t(i) = x(i)\n y(i) += t(i) }", (4,), (4,))
    names = [s.name for s in scop.statements]
    assert why_not_written_back(scop, "y", names) == "it is an input"
    assert why_not_written_back(scop, "x", names) == "it is an input"
    assert why_not_written_back(scop, "t", names) is None
    assert why_not_written_back(scop, "t", names[1:]) == f"{names[0]} writes it elsewhere"


def test_scattered_outputs_stay(lower: Callable[..., Scop]) -> None:
    scop = lower("def f(float(N) x, int32(N) t) -> (float(8) y) { y(t(i)) +=! x(i) }", (4,), (4,))
    assert (
        why_not_written_back(scop, "y", ["S0", "S0_init"]) == "a subscript is gathered or scattered"
    )


CHECKED = """def f(float(M,N) x, int32(M) k, float(9) w) -> (int32(M) s, y) {
    s(i) = k(i) + 1
    y(i,j) = x(i,j) * w(s(i))
}"""


def test_what_is_checked_as_a_subscript_is_read_from_the_temporary(
    lower: Callable[..., Scop],
) -> None:
    """The fault still says which element of the output it was."""
    scop = lower(CHECKED, (5, 7), (5,), (9,))
    (check,) = (s for s in scop.statements if s.kind is Kind.CHECK)
    done = write_back(scop, "s", [s.name for s in scop.statements])
    kept = done.by_name[check.name]
    assert [read.array for read in kept.reads] == ["s.kept"]
    assert [str(load.tensor) for _, load in kept.checked if isinstance(load, Load)] == ["s.kept"]
    assert [load.tensor for load in kept.checked_loads if load is not None] == ["s"]
