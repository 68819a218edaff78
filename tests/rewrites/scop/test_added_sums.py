"""Sums that are only added up become one: where, and where not."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tcdsl.poly.scop import Kind, Scop
from tcdsl.rewrites.scop.added_sums import added, why_not_added
from tcdsl.rewrites.scop.separate_sums import separate
from tcdsl.stages import print_scop
from tcdsl.testing.comparison import check
from tcdsl.testing.random_inputs import values

MakeUnit = Callable[..., Any]
Lower = Callable[..., Scop]

HEAD = "def f(half(M,K) x, half(K,N) w, half(M,J) u, half(J,N) v, float(N) c) -> "
GATE = """(y) {
    a(m,n) +=! float(x(m,k)) * w(k,n)
    b(m,n) +=! float(u(m,j)) * v(j,n)
    y(m,n) = fmax(a(m,n) + b(m,n) + c(n), 0.0)
}"""
TWO = """def f(half(M,K) x, half(K,N) w, half(M,K) u, half(K,N) v) -> (float(M,N) y) {
    y(m,n) +=! float(x(m,k)) * w(k,n) + float(u(m,k)) * v(k,n)
}"""
THREE = TWO.replace("* v(k,n)", "* v(k,n) + float(x(m,k)) * v(k,n)")


def shapes_of(m: int, k: int, j: int, n: int) -> list[tuple[int, ...]]:
    return [(m, k), (k, n), (m, j), (j, n), (n,)]


def separated(lower: Lower, source: str) -> Scop:
    """Return the scop of *source*, whose statement is a sum for each of its products."""
    scop = lower(source, *shapes_of(72, 136, 136, 104)[:-1])
    (name,) = (s.name for s in scop.statements if s.kind is Kind.UPDATE)
    return separate(scop, name)


def of_one_statement(scop: Scop) -> Scop:
    """Return *scop* as if all of it were made of one statement."""
    return scop.with_statements(tuple(replace(s, source_name="S0") for s in scop.statements))


def readers(scop: Scop) -> list[str]:
    return [s.name for s in scop.statements if s.kind is Kind.ASSIGN]


def test_statements(lower: Lower, golden: Callable[[str, str], None]) -> None:
    scop = separated(lower, TWO)
    (name,) = readers(scop)
    golden("added_sums", print_scop(added(scop, name)))


def test_all_of_several_are_one(lower: Lower) -> None:
    scop = separated(lower, THREE)
    (name,) = readers(scop)
    assert len({s.write.array for s in scop.statements if s.kind is Kind.UPDATE}) == 3
    done = added(scop, name)
    assert len({s.write.array for s in done.statements if s.kind is Kind.UPDATE}) == 1
    assert len([s for s in done.statements if s.kind is Kind.INIT]) == 1


@pytest.mark.parametrize("size", [(72, 136, 104), (3, 0, 4), (1, 5, 3)])
@pytest.mark.parametrize("source", [TWO, THREE], ids=["two", "three"])
def test_results(
    source: str, size: tuple[int, int, int], cuda_unit: MakeUnit, emulated: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("tcdsl.plan.search.WORTH", 1e9)
    m, k, n = size
    shapes = shapes_of(m, k, k, n)[:-1]
    unit = cuda_unit(source, *shapes)
    assert not unit.done.is_fallback
    (program,) = emulated([unit])
    types = [unit.comprehension.tensors[name].dtype for name in unit.comprehension.inputs]
    own = zip(types, shapes, strict=True)
    check(program, *(values(*of, "real", number) for number, of in enumerate(own)))


def test_sums_of_two_statements_stay_two(lower: Lower) -> None:
    """A term of one would be rounded where it is added to all of the other."""
    scop = lower(HEAD + GATE, *shapes_of(72, 136, 40, 104))
    reasons = {why_not_added(scop, scop.by_name[name]) for name in readers(scop)}
    assert reasons == {"it adds up no two sums of products"}
    scop = of_one_statement(scop)
    assert {why_not_added(scop, scop.by_name[name]) for name in readers(scop)} == {None}


OTHERS = {
    "read elsewhere": GATE.replace("(y)", "(y, z)").replace("}", "z(m,n) = a(m,n) }"),
    "a result": GATE.replace("(y)", "(y, a)"),
    "a half type": GATE.replace("float(x(m,k))", "x(m,k)"),
    "other elements": GATE.replace("+ b(m,n)", "+ b(M - 1 - m,n)"),
    "more elements": GATE.replace("* w(k,n)", "* w(k,n) where n in 0:N-8"),
    "a product of sums": GATE.replace("a(m,n) + b", "a(m,n) * b"),
    "not from 0": GATE.replace("a(m,n) +=!", "a(m,n) = c(n) where m in 0:M  a(m,n) +="),
    "greatest": GATE.replace("b(m,n) +=!", "b(m,n) max=!"),
    "no product": GATE.replace("* w(k,n)", "+ w(k,n)"),
    "one sum twice": GATE.replace("b(m,n) + c", "a(m,n) + c"),
}


@pytest.mark.parametrize("form", OTHERS)
def test_what_is_refused(form: str, lower: Lower) -> None:
    scop = of_one_statement(lower(HEAD + OTHERS[form], *shapes_of(72, 136, 40, 104)))
    reasons = {why_not_added(scop, scop.by_name[name]) for name in readers(scop)}
    assert reasons == {"it adds up no two sums of products"}
