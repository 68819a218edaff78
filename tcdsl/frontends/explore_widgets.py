"""The controls of ``tcdsl.explore`` in a notebook, by ipywidgets.

One control an option; a change compiles and times, and replaces what stands beside them.
"""

import os
import re
from dataclasses import fields
from typing import Any

from ipywidgets import (
    HTML,
    BoundedIntText,
    Checkbox,
    Dropdown,
    HBox,
    Layout,
    Tab,
    Text,
    VBox,
    Widget,
)

from tcdsl import cuda
from tcdsl.display.error import error_html
from tcdsl.display.html import Child, Html, fragment, tag
from tcdsl.errors import TCError
from tcdsl.frontends.explore import Explorer, kernels_html, stage_html, trials_html
from tcdsl.options import BAD_OPTION, CHOICES, Options

TITLES = ("schedule", "code", "kernels", "times")
# What has no meaning on a target stays visible, but cannot be changed.
_NOT_ON = {"threads": ("cuda", "emulate"), "cross_block": ("cpu",)}
_WIDE = {"description_width": "90px"}
_CONTROL = Layout(width="250px")


def controls(explorer: Explorer) -> Widget:
    """Return the view of *explorer*."""
    view = _View(explorer)
    explorer.listen(view.refresh)
    return view.box


def hiding(view: Widget, class_: str) -> Widget:
    """Return *view*, and with it a rule that hides elements of the class *class_*."""
    return VBox([HTML(str(tag("style", Html(f".{class_}{{display:none}}")))), view])


class _View:
    """The widgets, and what they show now."""

    def __init__(self, explorer: Explorer) -> None:
        self._explorer = explorer
        self._is_refreshing = False
        self.inputs = {"target": _target(explorer), **_option_controls(explorer.current.options)}
        self._head = HTML()
        self._pages = [HTML() for _ in TITLES]
        for name, widget in self.inputs.items():
            widget.observe(lambda change, name=name: self._changed(name, change["new"]), "value")
        tabs = Tab(children=self._pages, layout=Layout(flex="1 1 auto", min_width="0"))
        for position, title in enumerate(TITLES):
            tabs.set_title(position, title)
        column = VBox(list(self.inputs.values()), layout=Layout(flex="0 0 auto"))
        self.box = VBox([self._head, HBox([column, tabs])])
        self.refresh()

    def _changed(self, name: str, value: Any) -> None:
        if self._is_refreshing:
            return
        self._head.value = _html(tag("p", f"compiling with {name} = {value} ..."))
        try:
            changes: dict[str, Any] = {name: tile_of(value) if name == "tile" else value}
            self._explorer.set(**changes)
        except TCError as error:  # a value that the option does not take
            self._head.value = _html(error_html(error))

    def refresh(self) -> None:
        """Show the explorer's present choice."""
        now = self._explorer.current
        self._is_refreshing = True  # setting a control's value is no wish of the user's
        try:
            for name, widget in self.inputs.items():
                value: Any = now.target if name == "target" else getattr(now.options, name)
                if name == "target" and value not in widget.options:
                    widget.options = (*widget.options, value)
                widget.value = tile_text(value) if name == "tile" else value
                widget.disabled = now.target in _NOT_ON.get(name, ())
        finally:
            self._is_refreshing = False
        name = tag("strong", self._explorer.function.__name__)
        parts: list[Child] = [tag("p", name, f" on {now.label}: {now.time_text}")]
        if now.error is not None:
            parts += error_html(now.error)
        self._head.value = _html(parts)
        self._pages[-1].value = _html(trials_html(self._explorer))
        for page in self._pages[:-1]:
            page.value = ""
        if now.executable is not None:
            for page, stage in zip(self._pages, ("schedule", "code"), strict=False):
                page.value = _html(stage_html(now.executable, stage))
            self._pages[2].value = _html(kernels_html(now.executable.kernels))


def _html(part: Child) -> str:
    return str(fragment(part))


def _target(explorer: Explorer) -> Dropdown:
    known = ["cpu", *(["cuda"] if cuda.is_available() else []), "emulate"]
    now = explorer.current.target
    return Dropdown(
        description="target", options=known if now in known else [*known, now], value=now,
        style=_WIDE, layout=_CONTROL,
    )  # fmt: skip


def _option_controls(options: Options) -> dict[str, Widget]:
    """Return a control for each option but ``dynamic_sizes``, whose code is that of a call."""
    found: dict[str, Widget] = {}
    for field in fields(Options):
        name, value = field.name, getattr(options, field.name)
        common = {"description": name, "layout": _CONTROL}
        if name == "tile":
            found[name] = Text(value=tile_text(value), placeholder="32, 32", style=_WIDE,
                               continuous_update=False, **common)  # fmt: skip
        elif name == "threads":
            found[name] = BoundedIntText(value, min=0, max=4 * (os.cpu_count() or 1), style=_WIDE,
                                         **common)  # fmt: skip
        elif isinstance(value, bool):
            found[name] = Checkbox(value, indent=False, **common)
        elif name in CHOICES:
            found[name] = Dropdown(options=CHOICES[name], value=value, style=_WIDE, **common)
    return found


def tile_text(tile: tuple[int, ...]) -> str:
    """Return a tile as it is typed: ``32, 32``."""
    return ", ".join(map(str, tile))


def tile_of(text: str) -> tuple[int, ...]:
    """Return the tile that was typed, in whatever form; nothing is none.

    :raises OptionError: there is something else than integers.
    """
    words = re.findall(r"[^\s,;x()]+", text)
    if not all(word.isdecimal() for word in words):
        raise BAD_OPTION(name="tile", what=f"{text!r} are no sizes",
                         advice="type integers, outermost loop first: 32, 32")  # fmt: skip
    return tuple(map(int, words))
