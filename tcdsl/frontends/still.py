"""A live view and its still picture as two outputs of one cell, of which a reader sees one.

The picture is in an element that a rule of style within the live view hides: where the live view
cannot be shown, its rule is not there either.
"""

from itertools import count
from typing import TYPE_CHECKING, Any

from IPython.display import display as _display

from tcdsl.display.html import fragment, tag

if TYPE_CHECKING:
    from tcdsl.frontends.explore import Explorer

_WIDGET = "application/vnd.jupyter.widget-view+json"
_numbers = count(1)
display: Any = _display  # it has no types


class _Still:
    """The picture of what *explorer* shows now."""

    def __init__(self, explorer: "Explorer", class_: str) -> None:
        self._explorer = explorer
        self._class = class_

    def __repr__(self) -> str:
        return repr(self._explorer)

    def _repr_html_(self) -> str:
        return str(tag("div", fragment(self._explorer.html()), class_=self._class))


def display_both(explorer: "Explorer") -> None:
    """Display the controls of *explorer*, if there are some, and its picture."""
    controls = explorer.widget()
    class_ = f"tcdsl-still-{next(_numbers)}"
    if controls is not None:
        from tcdsl.frontends.explore_widgets import hiding  # ipywidgets is an extra

        bundle = hiding(controls, class_)._repr_mimebundle_()
        # Not its text, which would stand above the picture: "VBox(children=...".
        display({_WIDGET: bundle[_WIDGET]}, raw=True)
    handle = display(_Still(explorer, class_), display_id=True)
    if handle is not None:
        explorer.listen(lambda: handle.update(_Still(explorer, class_)))
