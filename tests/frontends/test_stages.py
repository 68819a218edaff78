"""A stage has one name on every surface, and other names are errors that list them."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.frontends.explore_widgets import TITLES
from tcdsl.frontends.jupyter.magics import TcdslMagics
from tcdsl.frontends.stages import OF_THE_DEF, STAGES, text_of

DOCS = Path(__file__).parents[2] / "docs"
F = tcdsl.define("def f(float(M, N) x) -> (y) { y(i) +=! x(i, j) }").f
X = np.ones((3, 4), np.float32)
NOT_STAGES = {"kernels", "times"}  # other tabs of tcdsl.explore


@pytest.mark.parametrize("target", ["cpu", "emulate", "reference"])
def test_surfaces_know_the_same_names(target: str) -> None:
    exe = F.compile(X, target=target)
    assert set(exe.stages) <= set(STAGES)
    assert set(exe.compilation.stages) <= set(STAGES)
    for stage in set(exe.stages) & set(exe.compilation.stages) - {"comprehension"}:
        assert str(exe.compilation.stages[stage]) == exe.stages[stage]


@pytest.mark.parametrize("target", ["cpu", "emulate"])
def test_stages_are_what_the_api_calls_so(target: str) -> None:
    exe = F.compile(X, target=target)
    assert exe.stages["code"] == exe.source == str(exe.compilation.code)
    assert exe.stages["schedule"] == exe.schedule == str(exe.compilation.schedule)
    assert exe.explain() == str(exe.compilation.explain) == text_of(exe, "explain")


def test_stages_come_in_the_order_of_the_pipeline() -> None:
    shown = list(F.compile(X, target="cpu").compilation.stages)
    assert shown == [stage for stage in STAGES if stage in shown]


def test_tabs_of_options_by_hand_are_stages() -> None:
    assert set(TITLES) - NOT_STAGES <= set(STAGES)


@pytest.mark.parametrize("page", ["cli.md", "jupyter.md"])
def test_pages_name_all_stages(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert all(re.search(rf"\b{stage}\b", text) for stage in STAGES)
    assert all(re.search(rf"\b{stage}\b", str(TcdslMagics.tcdsl_show.__doc__)) for stage in STAGES)


def test_the_page_on_displays_names_the_stages_of_a_compilation() -> None:
    text = (DOCS / "notebook_displays.md").read_text(encoding="utf-8")
    rows: list[Any] = re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)
    assert rows == list(F.compile(X, target="cpu").compilation.stages)


@pytest.mark.parametrize(("wrong", "right"), [("schedul", "schedule"), ("explains", "explain")])
def test_names_that_are_nearly_right(wrong: str, right: str) -> None:
    with pytest.raises(AttributeError, match=f"no stage '{wrong}'.*; did you mean '{right}'"):
        getattr(F.compile(X, target="cpu").compilation, wrong)


@pytest.mark.parametrize("name", ["loops", "explanation", "c", "cuda", "resources"])
def test_there_are_no_synonyms(name: str) -> None:
    exe = F.compile(X, target="cpu")
    assert name not in (*STAGES, *exe.stages, *TITLES, *OF_THE_DEF)
    with pytest.raises(AttributeError, match="its stages are program, "):
        getattr(exe.compilation, name)
