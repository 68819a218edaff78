"""Why statements are in two kernels: every pair of a plan's groups has a reason."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest

import tcdsl
from tcdsl.costmodel.chip import load_chip
from tcdsl.display.candidates_text import Weighing, apart_lines
from tcdsl.options import Options
from tcdsl.plan.gpu_planner import plan_for_gpu
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.scop import Scop
from tcdsl.schedule.fusion import Refused, alignment_of, group_statements, recording
from tcdsl.schedule.separation import BETWEEN, UNRELATED, Apart, Separation
from tcdsl.strategies.shapes import shapes_of
from tests.schedule.test_fusion import SOFTMAX

Lower = Callable[..., Scop]

BETWEEN_TWO = """def f(float(N,M) x) -> (y) {
    a(i) +=! x(i,j)
    t +=! a(i)
    y(i) = a(i) / t
}"""
AROUND = """def f(float(N) x, float(N) z) -> (u) {
    s +=! x(i)
    t max=! z(i) + s
    u(i) = z(i) * t
}"""
STRANGERS = "def f(float(N) x, float(M) z, float k) -> (a, b) { a(i) = x(i) * k\n b(i) = z(i) * k }"
TRANSPOSED = (
    "def f(float(M,N) x, float(N) p) -> (a, b) { a(i) +=! x(i,j)\n b(j) +=! x(i,j) * p(j) }"
)
# Only d ties the others: it joins c, both join b, and of a nobody asks then.
ONE_PASS = """def f(float(N) x, float(N) z, float(N) w) -> (d) {
    a(i) = x(i)
    b(i) = z(i)
    c(i) = w(i)
    d(i) = a(i) + b(i) + c(i)
}"""


def separated(
    scop: Scop, most: int = 100, *, reason: str = "no more than these"
) -> tuple[Apart, ...]:
    dependences = dependences_of(scop)
    alignment, shapes = alignment_of(scop, dependences), shapes_of(scop, dependences)
    refused: Refused = []
    policy = recording(lambda group, grown: reason if len(grown.members) > most else None, refused)
    groups = group_statements(scop, alignment, shapes, policy)
    return Separation(scop, groups, refused, alignment, shapes, "untried").pairs()


def strangers(count: int) -> str:
    inputs = ", ".join(f"float(N{n}) x{n}" for n in range(count))
    results = ", ".join(f"y{n}" for n in range(count))
    return (
        f"def f({inputs}) -> ({results}) {{"
        + "".join(f" y{n}(i) = x{n}(i) * 2\n" for n in range(count))
        + "}"
    )


def test_the_policy_s_word(lower: Lower) -> None:
    assert separated(lower(SOFTMAX, (4, 5)), 2) == (Apart("S0+S1", ("S2",), "no more than these"),)


def test_groups_that_share_no_loop_name_the_array(lower: Lower) -> None:
    (pair,) = separated(lower(BETWEEN_TWO, (4, 5)))
    assert (pair.one, pair.others, pair.around) == ("S0+S1", ("S2",), "")
    assert "no loop of both has S1 and S2 use the same elements of t" in pair.reason


def test_what_both_read_along_no_common_loop_is_named(lower: Lower) -> None:
    source = "def f(float(N) x) -> (a, b) { a(i) = x(i)\n b(i) = x(i+1) }"
    (pair,) = separated(lower(source, (6,)))
    assert pair.reason == (
        "no loop of both has S0 and S1 use the same elements of x in one iteration"
    )


def test_a_third_kernel_between_is_named(lower: Lower) -> None:
    first, around, last = separated(lower(AROUND, (6,), (6,)))
    assert (first.one, first.others) == ("S0", ("S1",)) and "elements of s" in first.reason
    assert around == Apart("S0", ("S2",), BETWEEN, "S1")
    assert (last.one, last.others) == ("S1", ("S2",)) and "elements of t" in last.reason


def test_groups_with_nothing_in_common_say_so(lower: Lower) -> None:
    """The one number that both read is not worth a kernel."""
    scop = lower(STRANGERS, (6,), (6,), ())
    assert separated(scop) == (Apart("S0", ("S1",), UNRELATED),)


def test_what_nobody_tried_is_said(lower: Lower) -> None:
    found = separated(lower(ONE_PASS, (6,), (6,), (6,)))
    assert found == (Apart("S0", ("S1+S2+S3",), "untried"),)


def test_groups_of_one_reason_are_told_together(lower: Lower) -> None:
    found = separated(lower(strangers(20), *[(n + 3,) for n in range(20)]))
    assert len(found) == 19 and found[0].others == tuple(f"S{n}" for n in range(1, 20))


# --- on both targets, as it is shown ---------------------------------------------------------


@pytest.mark.parametrize("target", ["cpu", "emulate"])
def test_two_strangers_are_told_on_both_targets(target: str) -> None:
    specs = tcdsl.spec((60,), "float32"), tcdsl.spec((70,), "float32"), tcdsl.spec((), "float32")
    exe = tcdsl.define(STRANGERS).f.compile(*specs, target=target)
    assert f"  separate  S0 | S1: {UNRELATED}\n" in exe.explain()


@pytest.mark.parametrize("target", ["cpu", "emulate"])
def test_many_strangers_are_one_line(target: str) -> None:
    specs = [tcdsl.spec((n + 30,), "float32") for n in range(12)]
    exe = tcdsl.define(strangers(12)).f.compile(*specs, target=target)
    lines = [line for line in exe.explain().splitlines() if line.startswith("  separate")]
    assert lines == [f"  separate  any two of S0, S1, S2, 9 more: {UNRELATED}"]


@pytest.mark.parametrize("target", ["cpu", "emulate"])
def test_the_third_kernel_is_shown(target: str) -> None:
    specs = [tcdsl.spec((300,), "float32")] * 2
    exe = tcdsl.define(AROUND).f.compile(*specs, target=target, options=Options(fuse="none"))
    assert f"  separate  S0 | S2 (around S1): {BETWEEN}\n" in exe.explain()


@pytest.mark.parametrize(
    "shapes", [(AROUND, (600000,), (600000,)), (TRANSPOSED, (40, 50), (50,)), (BETWEEN_TWO, (9, 7))]
)
def test_every_pair_of_a_gpu_s_kernels_has_one_reason(shapes: Any, lower: Lower) -> None:
    plan = plan_for_gpu(lower(*shapes), Options(fuse="none"), load_chip("h200"))
    pairs = [(pair.one, other) for pair in plan.apart() for other in pair.others]
    names = sorted({name for pair in pairs for name in pair})
    assert sorted(pairs) == list(combinations(names, 2)) and pairs


def test_pairs_are_named_unless_they_are_all_that_there_are() -> None:
    pairs = (("a", "b", "why"), ("a", "c", "why"), ("b", "c", "why"))
    assert apart_lines(Weighing(apart=pairs)) == ["separate  any two of a, b, c: why"]
    assert apart_lines(Weighing(apart=pairs[:2])) == ["separate  a | b, a | c: why"]
    assert apart_lines(Weighing(apart=pairs[:1])) == ["separate  a | b: why"]
