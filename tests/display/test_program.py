"""Displays of programs and of defs."""

from typing import Any

import pytest

import tcdsl
from tcdsl.library import cases

CONV = """# <script>alert(1)</script>
def conv(float(H, W) image, float(KH, KW) weight) -> (out) {
    out(h, w) +=! image(h + kh, w + kw) * weight(kh, kw)
}"""


def test_signatures_have_the_inferred_shapes() -> None:
    c = tcdsl.define(CONV).conv.comprehension
    assert c.signature == (
        "conv(float32(H, W) image, float32(KH, KW) weight) -> (float32(H - KH + 1, W - KW + 1) out)"
    )


def test_a_def_shows_ranges_shapes_and_roles(checked: Any) -> None:
    bundle = tcdsl.define(CONV).conv._repr_mimebundle_()
    text = checked(bundle["text/html"]).text
    assert "h in 0:H - KH + 1" in text
    assert "kh in 0:KH reduced" in text
    assert "h in 0:H - KH + 1 reduced" not in text
    assert "H - KH + 1 x W - KW + 1" in text
    assert bundle["text/plain"].startswith("conv(float32(H, W) image")


def test_a_program_shows_its_defs_and_its_text_escaped(checked: Any) -> None:
    page = checked(tcdsl.define(CONV)._repr_mimebundle_()["text/html"])
    assert "<script>alert(1)</script>" in page.text
    assert "script" not in page.tags
    assert page.tags.count("details") == 2


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("def f(float(N) x) -> (y) { y(i) = x(i - 1) }", "begins at"),
        ("def f(float(N) x) -> (s) { s +=! x(i) }", "a number"),
        ("def f(float(N, N) x) -> (s) { s(i) +=! x(i, j) where j in 0:i+1 }", "j <= i"),
        ("def f(float(N) x) -> (x) { x(i) = x(i) + 1.0 }", "input, updated"),
        ("def f(float(N) x) -> (float(N) y) { y(i) += x(i) }", "output, given"),
        ("def f() -> (s) { s = 3.0 }", "once"),
    ],
)
def test_what_is_special_is_told(text: str, part: str, checked: Any) -> None:
    assert part in checked(tcdsl.define(text).f._repr_mimebundle_()["text/html"]).text


def test_statements_of_inlined_defs_are_shown(checked: Any) -> None:
    text = (
        "def twice(float(N) a) -> (b) { b(i) = 2 * a(i) }\n"
        "def f(float(N) x) -> (y) { t = twice(x)  y(i) = t(i) }"
    )
    page = checked(tcdsl.define(text).f._repr_mimebundle_()["text/html"])
    assert "t(" in page.text and "y(i) = t(i)" in page.text


def test_every_program_of_the_library_is_shown(checked: Any) -> None:
    for case in cases("reduction")[::4] + cases("graph")[::4] + cases("contraction")[::6]:
        assert checked(tcdsl.define(case.source)._repr_mimebundle_()["text/html"]).text
