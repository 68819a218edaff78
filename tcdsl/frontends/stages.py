"""What a def becomes on its way to the machine, stage by stage, as text.

    program -> ast -> comprehension -> coalesced -> scop -> transforms -> schedule -> plan -> code

The first three are of the def itself; the others of one compilation, of which "tree" is the
schedule as isl has it, "choices" what may be asked for again, "candidates" what they were chosen
from, and "explain" the reasons.  ``tcdsl show`` and ``%tcdsl_show`` print them.

A stage has one name wherever it is shown: ``exe.stages``, ``exe.compilation``, reports, the tabs of
``tcdsl.explore`` and the files of TCDSL_DUMP have some of :data:`STAGES`, and no others.
"""

import json
from typing import TYPE_CHECKING, Any

from tcdsl.display.candidates_text import candidates_text, read_weighing
from tcdsl.display.highlight import highlighted_tc
from tcdsl.display.html import block, mime_bundle
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.syntax.printer import print_comprehension
from tcdsl.lang.syntax.tree_text import tree_lines
from tcdsl.records import dataclass

if TYPE_CHECKING:
    from tcdsl.api import Function
    from tcdsl.display.compilation import Stage
    from tcdsl.executable import Executable
    from tcdsl.source import Source

OF_THE_DEF = ("program", "ast", "comprehension")
STAGES = (
    *OF_THE_DEF, "coalesced", "scop", "transforms", "schedule", "tree", "plan", "choices",
    "candidates", "code", "explain",
)  # fmt: skip


def tree_text(source: "Source", name: str) -> str:
    """Return the syntax tree of the def *name* of *source*."""
    (chosen,) = (d for d in parse_program(source).defs if d.name == name)
    return "\n".join(tree_lines(chosen))


def text_of_def(function: "Function", stage: str) -> str:
    """Return a stage that needs no arguments, one of ``OF_THE_DEF``."""
    comprehension = function.comprehension
    match stage:
        case "program":
            return comprehension.source.text
        case "ast":
            return tree_text(comprehension.source, comprehension.name)
        case _:
            return print_comprehension(comprehension)


def text_of(executable: "Executable", stage: str) -> str:
    """Return a stage of one compilation; says so where its target has none."""
    match stage:
        case "explain":
            return executable.explain()
        case "code":
            return executable.source
        case "choices":
            return json.dumps(executable.choices, indent=1)
        case "candidates":
            return candidates_text(read_weighing(executable.stages.get("candidates", "")))
        case "transforms" | "plan":  # made anew where the code is from the cache
            shown = executable.compilation.stages.get(stage)
            text = shown.text if shown is not None else None
        case _:
            text = executable.stages.get(stage)
    return f"the target {executable.target!r} has no stage {stage!r}" if text is None else text


# --- in notebooks ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StageText:
    """A stage that is text and no more; ``print`` gives it."""

    text: str
    is_program: bool = False

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        text = self.text.rstrip("\n")
        return mime_bundle(block(highlighted_tc(text) if self.is_program else text), self.text)


def view_of_def(function: "Function", stage: str) -> StageText:
    """Return one of ``OF_THE_DEF``, which shows itself."""
    return StageText(text_of_def(function, stage), stage != "ast")


def view_of(executable: "Executable", stage: str) -> "Stage | StageText":
    """Return another stage, which shows itself."""
    shown = executable.compilation.stages.get(stage)
    return StageText(text_of(executable, stage)) if shown is None else shown
