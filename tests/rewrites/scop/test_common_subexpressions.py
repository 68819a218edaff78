"""Values that are stored: where they are read instead of computed, and where not."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tcdsl.lang.comprehension import Const, Expr
from tcdsl.lang.rewrite import rewrite
from tcdsl.plan import search
from tcdsl.plan.rewrites import REWRITES
from tcdsl.poly.scop import Scop
from tcdsl.rewrites.scop.common_subexpressions import why_not_shared, with_shared
from tcdsl.stages import print_scop
from tcdsl.testing.comparison import check

MakeUnit = Callable[..., Any]
Lower = Callable[..., Scop]

SUMS = """def f(float(M, N) x, float(M, N) g, float(N) b) -> (s, y) {
    t(m, n) = x(m, n) + b(n) > 0.0 ? g(m, n) * x(m, n) : 0.0
    s(j) +=! x(i, j) + b(j) > 0.0 ? g(i, j) * x(i, j) : 0.0
    y(m, k) = t(m, k) * (x(m, k) + b(k) > 0.0 ? g(m, k) * x(m, k) : 0.0)
}"""
SHAPES = (40, 24), (40, 24), (24,)


def test_statements(lower: Lower, golden: Callable[[str, str], None]) -> None:
    scop = lower(SUMS, *SHAPES)
    for name in ("S1", "S2"):
        scop = with_shared(scop, name)
        assert why_not_shared(scop, scop.by_name[name]) == "it computes nothing that is stored"
    golden("common_subexpressions", print_scop(scop))
    assert [read.array for read in scop.by_name["S2"].reads] == ["t"]


def test_zeros_of_two_signs_are_two_values(lower: Lower) -> None:
    scop = lower(SUMS, *SHAPES)

    def negative(node: Expr) -> Expr:
        is_zero = isinstance(node, Const) and node.value == 0
        return Const(-0.0, node.dtype) if is_zero else node

    values = {s.name: s.value for s in scop.statements if s.name != "S0" and s.value is not None}
    statements = tuple(
        replace(s, value=rewrite(values[s.name], negative)) if s.name in values else s
        for s in scop.statements
    )
    other = scop.with_statements(statements)
    assert why_not_shared(scop, scop.by_name["S1"]) is None
    assert why_not_shared(other, other.by_name["S1"]) == "it computes nothing that is stored"


@pytest.mark.parametrize("shapes", [SHAPES, ((1, 7), (1, 7), (7,)), ((0, 5), (0, 5), (5,))])
def test_results(
    shapes: Any, cuda_unit: MakeUnit, emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "WORTH", 1e9)
    own = tuple(one for one in REWRITES if one.apply is with_shared)
    monkeypatch.setattr(search, "REWRITES", own)
    unit = cuda_unit(SUMS, *shapes)
    assert not unit.done.is_fallback
    sites = 2 if 0 not in shapes[0] else 0
    assert [one.rewrite for one in unit.done.plan.tried] == ["a value that is stored"] * sites
    (program,) = emulated([unit])
    rng = np.random.default_rng(0)
    check(program, *(rng.normal(size=shape).astype(np.float32) for shape in shapes))


REFUSED = {
    "another value": SUMS.replace("s(j) +=! x(i, j) + b(j) > 0.0", "s(j) +=! x(i, j) + b(j) > 1.0"),
    "another zero": SUMS.replace("g(i, j) * x(i, j) : 0.0", "g(i, j) * x(i, j) : -0.0"),
    "an element that was not written": """def f(float(M, N) x, float(M, N) g) -> (s) {
        t(m, n) = g(m, n) * x(m, n) where m in 0:M - 1
        s(n) +=! g(m, n) * x(m, n)
        s(n) += t(m, n) where m in 0:M - 1
    }""",
    "what changes": """def f(float(M, N) x, float(M, N) g) -> (s, u) {
        u(m, n) = x(m, n) + 1.0
        t(m, n) = g(m, n) * u(m, n)
        u(m, n) = t(m, n)
        s(n) +=! g(m, n) * u(m, n)
    }""",
    "what is rounded": """def f(half(M, N) x, half(M, N) g) -> (half(N) s, half(M, N) t) {
        t(m, n) = g(m, n) * x(m, n)
        s(n) +=! g(m, n) * x(m, n)
    }""",
    "what is one array": """def f(float(M, N) x, float(N) b) -> (s, y) {
        t(m, n) = x(m, n) * b(n)
        s(n) +=! x(m, n) * b(n)
        y(m) +=! t(m, n)
    }""",
    "a result": SUMS.replace("-> (s, y)", "-> (s, t, y)"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_refused(why: str, lower: Lower) -> None:
    rank = REFUSED[why].count(" b")
    scop = lower(REFUSED[why], *(SHAPES if rank and "float(M, N) g" in REFUSED[why]
                                 else SHAPES[1:] if rank else SHAPES[:2]))  # fmt: skip
    sums = [s for s in scop.statements if s.reduction is not None and s.value is not None]
    assert why_not_shared(scop, sums[0]) == "it computes nothing that is stored"
