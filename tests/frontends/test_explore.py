"""Exploring options: by hand, as still HTML, and by the controls."""

import re
from typing import Any

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell

import tcdsl
from tcdsl.frontends import explore as module
from tcdsl.frontends.explore import Explorer
from tcdsl.frontends.explore_widgets import hiding, tile_of, tile_text
from tcdsl.options import CHOICES, Options

WIDGET = "application/vnd.jupyter.widget-view+json"
STEPS = "def steps(float(M, N) x) -> (y) { t(m, n) = exp(x(m, n))  y(m, n) = t(m, n) + 1.0 }"


@pytest.fixture
def explorer(monkeypatch: pytest.MonkeyPatch) -> Explorer:
    monkeypatch.setattr(module, "SECONDS", 0.001)
    x = np.ones((6, 5), np.float32)
    return tcdsl.explore(tcdsl.define(STEPS).steps, x, target="cpu")


@pytest.fixture
def inputs(explorer: Explorer) -> dict[str, Any]:
    """The controls, by the names of their options."""
    column = explorer.widget().children[1].children[0]
    return {control.description: control for control in column.children}


def test_a_change_compiles_and_times_again(explorer: Explorer) -> None:
    assert len(explorer.current.executable.kernels) == 1
    assert explorer.set(fuse="none") is explorer
    assert len(explorer.current.executable.kernels) == 2
    assert [trial.label for trial in explorer.trials] == ["cpu", "cpu, fuse='none'"]
    assert all(trial.timing.median_us > 0 for trial in explorer.trials)
    assert explorer.best in explorer.trials


def test_changes_add_up(explorer: Explorer) -> None:
    explorer.set(fuse="none").set(tile=(2, 2), threads=1)
    assert explorer.current.options == Options(fuse="none", tile=(2, 2), threads=1)
    assert explorer.set(target="emulate").current.label.startswith("emulate, tile=(2, 2)")
    assert "__global__" in explorer.current.executable.source
    assert explorer.current.timing is None


def test_wrong_options_are_told_and_change_nothing(explorer: Explorer) -> None:
    with pytest.raises(tcdsl.OptionError, match="there is no option 'tille'"):
        explorer.set(tille=3)
    with pytest.raises(tcdsl.OptionError, match="not one of its values"):
        explorer.set(fuse="some")
    assert len(explorer.trials) == 1


def test_what_does_not_compile_is_shown(
    explorer: Explorer, checked: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcdsl.cuda, "is_available", lambda: False)
    explorer.set(target="cuda")
    assert isinstance(explorer.current.error, tcdsl.TargetError)
    assert "error[TC0" in repr(explorer)
    assert explorer.current.error.code in checked(explorer._repr_mimebundle_()["text/html"]).text
    assert explorer.set(target="cpu").current.error is None


def test_placeholders_are_looked_at_but_not_timed() -> None:
    function = tcdsl.define(STEPS).steps
    view = tcdsl.explore(function, tcdsl.spec((4, 4), "float32"), target="cpu")
    assert view.current.timing is None
    assert "not timed" in repr(view)
    with pytest.raises(tcdsl.ShapeError):
        tcdsl.explore(function)


def test_as_text(explorer: Explorer) -> None:
    text = repr(explorer.set(fuse="none"))
    assert text.startswith("steps on cpu, fuse='none': ")
    assert "kernel S1" in text
    assert text.splitlines()[-3] == "tried so far:"


def test_the_still_picture(explorer: Explorer, checked: Any) -> None:
    page = checked(explorer.set(fuse="none")._repr_mimebundle_()["text/html"])
    assert not page.outside
    assert {"details", "table", "pre"} <= set(page.tags)
    assert "fuse='none'" in page.text
    assert "tcdsl_entry" in page.text


# --- controls ----------------------------------------------------------------------------------


def test_controls_hide_the_picture_below_them(
    explorer: Explorer, monkeypatch: pytest.MonkeyPatch, checked: Any
) -> None:
    shown = displayed(explorer, monkeypatch)
    assert [set(bundle) for bundle in shown] == [{WIDGET}, {"text/html", "text/plain"}]
    (class_,) = re.findall('^<div class="(tcdsl-still-[0-9]+)">', shown[1]["text/html"])
    rule, controls = hiding(explorer.widget(), class_).children
    assert rule.value == f"<style>.{class_}{{display:none}}</style>"
    assert controls is explorer.widget()
    assert "tcdsl_entry" in checked(shown[1]["text/html"]).text


def test_the_picture_follows_the_controls(
    explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = displayed(explorer, monkeypatch)
    explorer.set(fuse="none")
    assert "fuse=" not in shown[1]["text/html"]
    assert "fuse=" in shown[-1]["text/html"]


def test_without_ipywidgets_it_is_still(
    explorer: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert explorer.widget() is None
    assert [set(b) for b in displayed(explorer, monkeypatch)] == [{"text/html", "text/plain"}]


def displayed(explorer: Explorer, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the bundles that the display of *explorer* publishes, now and later."""
    found: list[dict[str, Any]] = []

    def published(data: dict[str, Any], **more: Any) -> None:
        found.append(data)

    shell = InteractiveShell.instance()
    monkeypatch.setattr(shell.display_pub, "publish", published)
    monkeypatch.setattr(InteractiveShell, "initialized", classmethod(lambda cls: True))
    explorer._ipython_display_()
    return found


def test_every_option_has_a_control(inputs: dict[str, Any]) -> None:
    assert set(inputs) == {"target", "tile", "threads", *CHOICES}
    assert all(tuple(inputs[name].options) == values for name, values in CHOICES.items()
               if hasattr(inputs[name], "options"))  # fmt: skip


def test_a_control_changes_its_option(
    explorer: Explorer, inputs: dict[str, Any], checked: Any
) -> None:
    inputs["fuse"].value = "none"
    inputs["tile"].value = "2, 3"
    inputs["vectorise"].value = False
    assert explorer.current.options == Options(fuse="none", tile=(2, 3), vectorise=False)
    assert len(explorer.trials) == 4
    head, body = explorer.widget().children
    assert "fuse=&#x27;none&#x27;" in head.value
    schedule, code, kernels, times = body.children[1].children
    assert "kernel S1" in checked(schedule.value).text
    assert "tcdsl_entry" in checked(code.value).text
    assert "S1" in checked(kernels.value).text
    assert checked(times.value).tags.count("tr") == 1 + len(explorer.trials)


def test_controls_follow_the_explorer(explorer: Explorer, inputs: dict[str, Any]) -> None:
    explorer.set(tile=(4,), target="emulate")
    assert (inputs["tile"].value, inputs["target"].value) == ("4", "emulate")
    assert inputs["threads"].disabled and not inputs["cross_block"].disabled
    explorer.set(target="cpu")
    assert inputs["cross_block"].disabled and not inputs["threads"].disabled
    assert len(explorer.trials) == 3


def test_a_tile_that_is_none_is_told(
    explorer: Explorer, inputs: dict[str, Any], checked: Any
) -> None:
    inputs["tile"].value = "2, many"
    assert "type integers" in checked(explorer.widget().children[0].value).text
    assert len(explorer.trials) == 1


@pytest.mark.parametrize(
    ("text", "tile"), [("32, 32", (32, 32)), ("(8,)", (8,)), ("4x2", (4, 2)), ("", ())]
)
def test_tiles_may_be_typed_in_any_form(text: str, tile: tuple[int, ...]) -> None:
    assert tile_of(text) == tile
    assert tile_of(tile_text(tile)) == tile


def test_a_target_that_does_not_exist_changes_nothing() -> None:
    f = tcdsl.define("def f(float(N) x) -> (y) { y(i) = x(i) }").f
    view = tcdsl.explore(f, np.ones(8, np.float32))
    with pytest.raises(tcdsl.TCError, match="TC065"):
        view.set(target="zz")
    assert len(view.trials) == 1 and view.current.target == "cpu"
