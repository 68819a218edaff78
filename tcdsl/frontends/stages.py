"""What a def becomes on its way to the machine, stage by stage, as text.

    ast -> comprehension -> coalesced -> scop -> schedule -> tree -> code        explain says why

The first two are of the def itself; the others of one compilation.  ``tcdsl show`` and
``%tcdsl_show`` print them.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tcdsl.display.highlight import highlighted, highlighted_tc
from tcdsl.display.html import Child, Html, block, mime_bundle
from tcdsl.lang.parser import parse_program
from tcdsl.lang.printer import print_comprehension
from tcdsl.lang.tree_text import tree_lines

if TYPE_CHECKING:
    from tcdsl.api import Function
    from tcdsl.executable import Executable
    from tcdsl.source import Source

OF_THE_DEF = ("ast", "comprehension")
STAGES = (*OF_THE_DEF, "coalesced", "scop", "schedule", "tree", "code", "explain")


def tree_text(source: "Source", name: str) -> str:
    """Return the syntax tree of the def *name* of *source*."""
    (chosen,) = (d for d in parse_program(source).defs if d.name == name)
    return "\n".join(tree_lines(chosen))


def text_of_def(function: "Function", stage: str) -> str:
    """Return a stage that needs no arguments, one of ``OF_THE_DEF``."""
    comprehension = function.comprehension
    if stage == "ast":
        return tree_text(comprehension.source, comprehension.name)
    return print_comprehension(comprehension)


def text_of(executable: "Executable", stage: str) -> str:
    """Return a stage of one compilation; says so where there is nothing to see."""
    if stage == "explain":
        return executable.explain()
    if stage == "code":
        return executable.source
    missing = f"the target {executable.target!r} has no stage {stage!r}"
    return executable.stages.get(stage, missing) or "nothing is merged"


# --- in notebooks ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StageView:
    """A stage that shows itself: ``print`` gives its text."""

    stage: str
    text: str
    language: str = ""  # "tc", or what Pygments calls it

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return mime_bundle(self.html(), self.text)

    def html(self) -> Html:
        """Return the stage as a part of a display."""
        return block(self._painted())

    def _painted(self) -> Child:
        text = self.text.rstrip("\n")
        if self.language == "tc":
            return highlighted_tc(text)
        if not self.language:
            return text
        from pygments.lexers import get_lexer_by_name

        return highlighted(text, get_lexer_by_name(self.language))


def view_of_def(function: "Function", stage: str) -> StageView:
    """Return the view of one of ``OF_THE_DEF``."""
    language = "tc" if stage == "comprehension" else ""
    return StageView(stage, text_of_def(function, stage), language)


def view_of(executable: "Executable", stage: str) -> StageView:
    """Return the view of another stage."""
    language = "" if stage != "code" else "c" if executable.target == "cpu" else "cuda"
    return StageView(stage, text_of(executable, stage), language)
