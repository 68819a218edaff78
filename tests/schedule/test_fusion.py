"""Fusion: which statements share a kernel, along which axes, and in a legal order."""

from collections.abc import Callable

import pytest

from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.scop import Scop
from tcdsl.schedule.fusion import (
    Group,
    affinities_of,
    alignment_of,
    group_statements,
    leaders_of,
    textual,
    unit_dependences,
)
from tcdsl.strategies.shapes import shapes_of

Lower = Callable[..., Scop]

SOFTMAX = """def f(float(N,D) x) -> (y) {
    m(i) max=! x(i,j)
    s(i) +=! exp(x(i,j) - m(i))
    y(i,j) = exp(x(i,j) - m(i)) / s(i)
}"""
ALL_REDUCE = "def f(float(N) x) -> (y) { s +=! x(i)\n y(i) = x(i) / s }"
SHIFTED = "def f(float(N) x) -> (y) { a(i) = x(i)\n y(i) = a(i) + a(i+1) }"
TRANSPOSED = "def f(float(M,N) x) -> (y) { a(j,i) = x(i,j)\n y(i,j) = a(j,i) }"
BRANCHES = "def f(float(N) x, float(N) z) -> (a, b) { a(i) = x(i)\n b(i) = x(i) * z(i) }"
STRANGERS = "def f(float(N) x, float(M) z) -> (a, b) { a(i) = x(i)\n b(i) = z(i) }"
BETWEEN = """def f(float(N,M) x) -> (y) {
    a(i) +=! x(i,j)
    t +=! a(i)
    y(i) = a(i) / t
}"""
SCAN = (
    "def f(float(N) a) -> (c) { b(i) = a(i)\n c(i) = b(i)\n c(i) = c(i-1) + b(i) where i in 1:N }"
)


def groups(scop: Scop, policy: Callable[[Group, Group], str | None] | None = None) -> list[Group]:
    dependences = dependences_of(scop)
    accept = policy or (lambda group, grown: None)
    return group_statements(
        scop, alignment_of(scop, dependences), shapes_of(scop, dependences), accept
    )


def members(scop: Scop) -> list[str]:
    return ["+".join(group.members) for group in groups(scop)]


@pytest.mark.parametrize(
    ("source", "shapes", "expected"),
    [
        (SOFTMAX, [(4, 5)], ["S0+S1+S2"]),
        (ALL_REDUCE, [(6,)], ["S0", "S1"]),
        (SHIFTED, [(6,)], ["S0", "S1"]),
        (TRANSPOSED, [(4, 5)], ["S0+S1"]),
        (BRANCHES, [(6,), (6,)], ["S0+S1"]),
        (STRANGERS, [(6,), (6,)], ["S0", "S1"]),
        (BETWEEN, [(4, 5)], ["S0+S1", "S2"]),
        (SCAN, [(6,)], ["S0+S1", "S2"]),
    ],
)
def test_groups(
    source: str, shapes: list[tuple[int, ...]], expected: list[str], lower: Lower
) -> None:
    assert members(lower(source, *shapes)) == expected


def test_the_axes_of_a_group_are_what_all_members_share(lower: Lower) -> None:
    (group,) = groups(lower(SOFTMAX, (4, 5)))
    assert [dict(axis) for axis in group.axes] == [{"S0": 0, "S1": 0, "S2": 0}]
    (group,) = groups(lower(TRANSPOSED, (4, 5)))
    assert {tuple(sorted(axis.items())) for axis in group.axes} == {
        (("S0", 1), ("S1", 0)), (("S0", 0), ("S1", 1)),
    }  # fmt: skip


def test_an_axis_is_parallel_if_it_is_for_every_member(lower: Lower) -> None:
    scop = lower(SOFTMAX, (4, 5))
    shapes = shapes_of(scop, dependences_of(scop))
    group = Group(("S0", "S2"), ())
    assert group.has_parallel({"S0": 0, "S2": 0}, shapes)
    assert not group.has_parallel({"S0": 1, "S2": 1}, shapes)


def test_the_policy_has_the_last_word(lower: Lower) -> None:
    asked: list[tuple[str, ...]] = []

    def refuse(group: Group, grown: Group) -> str:
        asked.append(grown.members)
        return "no"

    assert [g.members for g in groups(lower(SOFTMAX, (4, 5)), refuse)] == [
        ("S0",), ("S1",), ("S2",),
    ]  # fmt: skip
    assert ("S0", "S1") in asked


def test_no_statement_overtakes_what_it_depends_on(lower: Lower) -> None:
    for source, shape in ((SOFTMAX, (4, 5)), (BETWEEN, (4, 5)), (SCAN, (6,)), (SHIFTED, (6,))):
        scop = lower(source, shape)
        place = {m: n for n, group in enumerate(groups(scop)) for m in group.members}
        for edge in unit_dependences(scop, dependences_of(scop)):
            assert place[edge.source] <= place[edge.sink]


def test_an_initialisation_is_led_by_its_updates(lower: Lower) -> None:
    scop = lower(SOFTMAX, (4, 5))
    assert leaders_of(scop) == {"S0_init": "S0", "S1_init": "S1"}
    edges = unit_dependences(scop, dependences_of(scop))
    assert {name for e in edges for name in (e.source, e.sink)} == {"S0", "S1", "S2"}


def test_affinities_are_pairs_of_reads_of_one_element(lower: Lower) -> None:
    of_branches = affinities_of(lower(BRANCHES, (6,), (6,)))
    (found,) = of_branches("S0", "S1")
    assert (found.source, found.sink, found.array) == ("S0", "S1", "x")
    assert not of_branches("S1", "S0")
    assert not affinities_of(lower(STRANGERS, (6,), (6,)))("S0", "S1")


def test_textual_order(lower: Lower) -> None:
    scop = lower(SOFTMAX, (4, 5))
    assert textual(scop, ["S2", "S0", "S1_init"]) == ("S0", "S1_init", "S2")
