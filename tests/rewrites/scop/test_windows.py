"""Sums over small windows as plain statements."""

from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.poly.scop import Kind, Scop
from tcdsl.rewrites.scop.windows import MOST_TERMS, why_not_window, with_windows

Lower = Callable[..., Scop]


def why_not(lower: Lower, body: str, *shapes: tuple[int, ...], head: str = "float(N) x") -> Any:
    scop = lower(f"def f({head}) -> (y) {{ {body} }}", *shapes)
    return why_not_window(scop, scop.statements[-1])


def test_a_window_is_one_statement_a_result(lower: Lower) -> None:
    scop = lower("def f(float(N) x) -> (y) { y(i) +=! x(i + k) * k where k in 0:3 }", (10,))
    done = with_windows(scop, ["S0"])
    (statement,) = done.statements
    assert statement.kind is Kind.ASSIGN and statement.indices == ("i",)
    assert str(statement.domain) == "{ S0[i] : 0 <= i <= 7 }"
    assert [str(r.relation) for r in statement.reads] == [
        f"{{ S0[i] -> x[{e}] : 0 <= i <= 7 }}" for e in ("i", "1 + i", "2 + i")
    ]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y(i) +=! x(i + k) where k in 0:3", None),
        ("y(i) max=! x(i + k) where k in 0:3", None),
        (
            "y(i) argmax=! x(i + k) where k in 0:3",
            "its terms are not all of them, or no plain ones",
        ),
        (f"y(i) +=! x(i + k) where k in 0:{MOST_TERMS + 1}", "its window is no small box"),
        ("y(i) +=! x(k) where k in 0:3, i in 0:4, exists k <= i", "its window is not the same"),
        ("y(i) = x(i)", "it is no sum that starts from nothing"),
    ],
)
def test_which_sums_are_windows(lower: Lower, body: str, reason: str | None) -> None:
    assert why_not(lower, body, (100,)) == reason


def test_half_sums_are_rounded_once(lower: Lower) -> None:
    body = "y(i) +=! x(i + k) where k in 0:3"
    assert why_not(lower, body, (100,), head="float16(N) x") is None


@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
def test_windows_in_chains_have_the_values_of_sums(
    check_all: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tcdsl.plan import cpu_planner
    from tcdsl.strategies import stencils

    monkeypatch.setattr(
        cpu_planner, "cpu_tilings", lambda *_, **__: iter([stencils.Tiling((8,), 1.0, 0.0)])
    )
    check_all([
        (f"def f({kind}(N) x) -> (z) {{ y(i) {op} x(i + 1 - k) where k in -1:2\n"
         f"z(i) {op} y(i + 2 * k) where k in 0:3 }}", [(37,)])
        for kind in ("float", "double", "float16", "int32")
        for op in ("+=!", "*=!", "max=!", "min=!")
    ])  # fmt: skip
