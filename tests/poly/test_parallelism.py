"""Roles: which dimensions of a statement may run in parallel."""

from collections.abc import Callable

import pytest

from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.parallelism import Role, roles_of
from tcdsl.poly.scop import Scop

Lower = Callable[..., Scop]
P, R, O = Role.PARALLEL, Role.REDUCED, Role.ORDERED  # noqa: E741 - one column a role

CASES = [
    ("def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }", [(4, 5)], "S0", (P, R)),
    ("def f(float(M,N) x) -> (y) { y(j) +=! x(i,j) }", [(4, 5)], "S0", (P, R)),
    ("def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }", [(4, 5)], "S0_init", (P,)),
    ("def f(float(M,N) x) -> (y) { y(i) = x(i,0) }", [(4, 5)], "S0", (P,)),
    ("def f(float(N) a) -> (c) { c(i) = a(i)\n c(i) = c(i-1) + a(i) where i in 1:N }",
     [(6,)], "S1", (O,)),
    ("def f(float(T,N) a) -> (c) { c(t,i) = a(t,i)\n c(t,i) = c(t-1,i) + a(t,i) where t in 1:T }",
     [(4, 5)], "S1", (O, P)),
    ("def f(float(T,N) a) -> (c) { c(t,i) = a(t,i)\n"
     " c(t,i) = c(t-1,i+1) where t in 1:T, i in 0:N-1 }", [(4, 5)], "S1", (O, O)),
    ("def f(float(N,N) a) -> (c) { c(k) = 0.0 where k in 0:2*N-1\n c(i+j) += a(i,j) }",
     [(4, 4)], "S1", (R, R)),
    ("def f(float(N) x, int32(N) p, float(E) e) -> (g) { g(k) = e(k)\n g(p(i)) += x(i) }",
     [(4,), (4,), (3,)], "S1", (R,)),
    # A reduced index with one value names no accumulator either.
    ("def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }", [(4, 1)], "S0", (P, R)),
]  # fmt: skip


@pytest.mark.parametrize(("source", "shapes", "name", "roles"), CASES)
def test_roles(
    source: str, shapes: list[tuple[int, ...]], name: str, roles: tuple[Role, ...], lower: Lower
) -> None:
    scop = lower(source, *shapes)
    assert roles_of(scop.by_name[name], dependences_of(scop)) == roles


def test_equal_dimensions(lower: Lower) -> None:
    scop = lower("def f(float(M,N) x) -> (y) { a(j,i) = x(i,j)\n y(i,j) = a(j,i) }", (3, 4))
    (edge,) = dependences_of(scop).between("S0", "S1")
    assert edge.has_equal(0, 1) and edge.has_equal(1, 0)
    assert not edge.has_equal(0, 0)
    assert not edge.has_equal(2, 0), "a dimension that is not there equals nothing"
