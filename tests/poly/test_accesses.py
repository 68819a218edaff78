"""Accesses: guarded reads, gathers and their checks, as isl relations."""

from collections.abc import Callable

import islpy as isl

from tcdsl.poly.scop import Access, Kind, Scop, Statement
from tcdsl.poly.verify import why_not_in_bounds

Lower = Callable[..., Scop]


def read(statement: Statement, array: str) -> Access:
    (found,) = [access for access in statement.reads if access.array == array]
    return found


def test_a_guarded_read_covers_only_what_its_guard_allows(lower: Lower) -> None:
    source = "def f(float(N) a) -> (o) { o(i) = i >= 1 && i < N ? a(i-1) : 0.0 where i in 0:N+2 }"
    scop = lower(source, (6,))
    relation = isl.Map("{ S0[i] -> a[i - 1] : 1 <= i < 6 }")
    assert read(scop.by_name["S0"], "a").relation.is_equal(relation)
    assert why_not_in_bounds(scop) is None


def test_a_load_in_both_branches_is_read_everywhere(lower: Lower) -> None:
    source = "def f(float(N) a) -> (o) { o(i) = i > 2 ? a(i) : -a(i) }"
    relation = read(lower(source, (6,)).by_name["S0"], "a").relation
    assert relation.is_equal(isl.Map("{ S0[i] -> a[i] : 0 <= i < 6 }"))


def test_a_gather_may_read_the_whole_extent_and_is_checked(lower: Lower) -> None:
    source = "def f(float(E,D) T, int32(B) I) -> (O) { O(b,d) = T(I(b),d) }"
    scop = lower(source, (7, 3), (4,))
    check, body = scop.statements
    assert check.kind is Kind.CHECK and check.writes == ()
    assert check.indices == ("b",), "once for all d"
    gathered = read(body, "T")
    assert gathered.inexact == {0} and not gathered.is_exact
    whole = isl.Map("{ S0[b, d] -> T[e, d] : 0 <= b < 4 and 0 <= d < 3 and 0 <= e < 7 }")
    assert gathered.relation.is_equal(whole)
    unchecked = lower(source, (7, 3), (4,), check_gathers=False)
    assert [s.kind for s in unchecked.statements] == [Kind.ASSIGN]
