"""Displays of errors."""

from typing import Any

import pytest

import tcdsl


def error_of(text: str) -> tcdsl.TCError:
    with pytest.raises(tcdsl.TCError) as caught:
        tcdsl.define(text)
    return caught.value


def test_an_error_shows_line_carets_and_hint(checked: Any) -> None:
    error = error_of("def f(float(N) x) -> (y) {\n  y(i) +=! x(i + j) # <b>\n}")
    bundle = error._repr_mimebundle_()
    page = checked(bundle["text/html"])
    assert bundle["text/plain"] == str(error)
    assert "TC040" in page.text and "line 2, column 5" in page.text
    assert "  y(i) +=! x(i + j) # <b>\n    ^" in page.text
    assert "hint: give the range" in page.text
    assert "b" not in page.tags


def test_all_errors_of_a_program_are_shown(checked: Any) -> None:
    error = error_of("def f(float(N) x) -> (y, z) { y(i) = u(i)\n z(i) = v(i) }")
    assert len(error.others) == 1
    assert checked(error._repr_mimebundle_()["text/html"]).tags.count("pre") == 2


def test_an_error_without_a_place(checked: Any) -> None:
    with pytest.raises(tcdsl.OptionError) as caught:
        tcdsl.Options(fuse="some")  # type: ignore[arg-type]
    page = checked(caught.value._repr_mimebundle_()["text/html"])
    assert "pre" not in page.tags
    assert "hint: use one of" in page.text
