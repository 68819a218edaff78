"""The stages of one compilation: what ``exe.compilation`` is.

    program -> comprehension -> scop -> transforms -> schedule -> plan -> choices -> code -> explain

A notebook shows each of them, ``print`` writes its text, and ``value`` is the object itself.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import count as counter
from typing import Any

from tcdsl.codegen.c.printer import CSource
from tcdsl.display.candidates import candidates_section
from tcdsl.display.candidates_text import read_weighing
from tcdsl.display.code import code_block, first_lines, line_index
from tcdsl.display.comprehension import comprehension_section, source_block, statement_spans
from tcdsl.display.html import (
    Anchors,
    Child,
    Html,
    badge,
    block,
    code,
    details,
    join,
    mime_bundle,
    tag,
)
from tcdsl.display.loops import WHAT, kernel_trees
from tcdsl.display.pipelines import pipelines_section
from tcdsl.display.plan import plan_section, traffic_section
from tcdsl.display.scop import scop_section
from tcdsl.display.steps import steps_section, steps_text
from tcdsl.driver import Compiled
from tcdsl.lang.comprehension import Comprehension
from tcdsl.lang.ranges.open_sizes import AnySpecialisation
from tcdsl.lang.syntax.spelling import did_you_mean
from tcdsl.options import Options, changed
from tcdsl.poly.isl_utils import COMPILE_LOCK
from tcdsl.records import dataclass

# What a page begins with, and what it shows folded: the way there, for those who want to see it.
FIRST = ("explain", "traffic", "candidates", "program", "code", "plan")
FOLDED = ("comprehension", "scop", "transforms", "schedule", "choices")

_numbers = counter(1)  # of the displays of this process: their anchors differ


def fresh_anchors() -> Anchors:
    """Return the anchors of a new display."""
    return Anchors(f"tc{next(_numbers)}-")


@dataclass(frozen=True, eq=False)
class Stage:
    """One stage: *value* is the object, *text* says it, *body* shows it.

    The body is told whether the stages around it are shown too: else links stay inside.
    """

    name: str
    title: str
    what: str  # a sentence
    value: Any
    text: str
    body: Callable[[Anchors, bool], Html]

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<tcdsl stage {self.name}: print it for its text, .value is the object>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        with COMPILE_LOCK:
            return mime_bundle(self.body(fresh_anchors(), False), self.text)


@dataclass(frozen=True, eq=False)
class Compilation:
    """What an executable was made from; *compiled* is None for a target without stages."""

    definition: Comprehension
    special: AnySpecialisation
    target: str
    options: Options
    opened: tuple[str, ...]
    kernels: Sequence[Mapping[str, Any]]
    explained: str
    compiled: Compiled[Any] | None
    kept: Mapping[str, str]  # the stages as text, as they are kept with the code

    @cached_property
    def stages(self) -> Mapping[str, Stage]:
        """The stages by name, in the order of the pipeline."""
        found = [_program(self)]
        if self.compiled is not None:
            found += _compiled_stages(self, self.compiled)
        return {stage.name: stage for stage in found}

    def in_reading_order(self) -> list[Stage]:
        """Return what a page shows: the stages, and the bytes that move; reasons come first."""
        found = dict(self.stages)
        if self.compiled is not None:
            found["traffic"] = _traffic(self.compiled)
        return [found[name] for name in (*FIRST, *FOLDED) if name in found]

    def __getattr__(self, name: str) -> Stage:
        """Return the stage *name*: ``compilation.scop``."""
        if name.startswith("_"):
            raise AttributeError(f"a compilation has no {name!r}")
        if name not in self.stages:
            known = f"its stages are {', '.join(self.stages)}"
            advice = "; ".join(filter(None, (known, did_you_mean(name, self.stages))))
            raise AttributeError(f"this compilation has no stage {name!r}: {advice}")
        return self.stages[name]

    def __dir__(self) -> list[str]:
        return sorted([*super().__dir__(), *self.stages])

    def __repr__(self) -> str:
        names = ", ".join(self.stages)
        return f"<tcdsl.Compilation of {self.definition.name} for {self.target}: {names}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        return mime_bundle(self.folded(), repr(self))

    def folded(self) -> Html:
        """Return all stages, each folded under its title."""
        anchors = fresh_anchors()
        with COMPILE_LOCK:
            parts = [
                details(
                    [tag("strong", stage.title), tag("span", f" {stage.what}", class_="note")],
                    stage.body(anchors, True), is_open=stage.name == "program",
                )
                for stage in self.in_reading_order()
            ]  # fmt: skip
        return join(self.facts(), parts)

    def facts(self) -> Html:
        """Return what the code is for: its target, sizes, options other than the defaults."""
        sizes = [
            f"{name} = {'open' if name in self.opened else value}"
            for name, value in self.special.sizes.items()
        ]
        parts: list[Child] = [badge(f"target {self.target}", "block")]
        parts += [[" ", badge(text, "muted")] for text in sizes]
        parts += [[" ", badge(text, "unroll")] for text in changed(self.options)]
        return tag("p", code(self.definition.name), " ", parts, class_="facts")


def _program(compilation: Compilation) -> Stage:
    c, compiled = compilation.definition, compilation.compiled

    def body(anchors: Anchors, is_whole: bool) -> Html:
        if compiled is None or not is_whole:
            return source_block(c, anchors, {})
        lines = first_lines(compiled.source.statements, _sources(c, compiled), anchors)
        return source_block(c, anchors, lines)

    what = "The source; each statement links to its first line of code."
    if compiled is None:
        what = "The source. The NumPy reference evaluates it: nothing is compiled."
    return Stage("program", "Program", what, c.source, c.source.text, body)


def _sources(c: Comprehension, compiled: Compiled[Any]) -> dict[str, str]:
    """Return the statement of the text that each statement of the plan comes from."""
    shown = {name for names in statement_spans(c).values() for name in names}
    statements = compiled.plan.scop.statements
    return {s.name: s.source_name for s in statements if s.source_name in shown}


def _compiled_stages(compilation: Compilation, compiled: Compiled[Any]) -> list[Stage]:
    plan, canonical, texts = compiled.plan, compiled.canonical, compiled.stages
    explained = compilation.explained
    return [
        Stage(
            "comprehension", "Comprehension",
            "Explicit types, ranges and conversions; the canonical form with merged indices.",
            canonical, f"{texts['comprehension']}\n{texts['coalesced']}\n",
            lambda *_: comprehension_section(compiled.comprehension, compiled.special, canonical),
        ),
        Stage(
            "scop", "Polyhedral program",
            "Iteration domains, accesses and dependences, before any transform.",
            compiled.scop, texts["scop"], lambda *_: scop_section(compiled.scop, plan),
        ),
        Stage(
            "transforms", "Transforms", "The changes made by each, before and after.",
            compiled.steps, steps_text(compiled.scop, compiled.steps),
            lambda *_: steps_section(compiled.scop, compiled.steps),
        ),
        Stage(
            "schedule", "Schedule", "The loops of each kernel, and the arrays that live in them.",
            tuple(kernel.tree for kernel in plan.kernels), texts["schedule"],
            lambda *_: _schedule(compiled),
        ),
        Stage(
            "plan", "Plan", "Kernels, and where arrays live.",
            plan, explained,
            lambda _, is_whole: join(
                plan_section(plan, compilation.kernels),
                None if is_whole else [tag("h3", "Traffic"), traffic_section(plan)],
            ),
        ),
        *_decisions(compilation.kept),
        _code(compilation, compiled),
        Stage(
            "explain", "Explanation", "The decisions and their reasons, as explain() returns them.",
            explained, explained, lambda *_: block(explained),
        ),
    ]  # fmt: skip


def _decisions(kept: Mapping[str, str]) -> list[Stage]:
    """Return what was chosen, and from what, where the target has choices."""
    if "choices" not in kept:
        return []
    choices, weighing = kept["choices"], read_weighing(kept["candidates"])
    return [
        Stage(
            "choices", "Choices", "The choices as data; compile(..., choices=...) takes them.",
            json.loads(choices), choices, lambda *_: block(choices),
        ),
        Stage(
            "candidates", "Candidates",
            "What each kernel was chosen from; times are predictions of the cost model.",
            weighing, kept["candidates"], lambda *_: candidates_section(weighing),
        ),
    ]  # fmt: skip


def _traffic(compiled: Compiled[Any]) -> Stage:
    plan = compiled.plan
    return Stage(
        "traffic", "Traffic", "Bytes between memory and each kernel, array by array.",
        plan, "", lambda *_: traffic_section(plan),
    )  # fmt: skip


def _code(compilation: Compilation, compiled: Compiled[Any]) -> Stage:
    c, source = compilation.definition, compiled.source
    is_c = isinstance(source, CSource)
    text, language = (source.body, "c") if is_c else (source.text, "cuda")
    sources = _sources(c, compiled)
    order = [s.name for s in c.statements if s.name in sources.values()]

    def body(anchors: Anchors, is_whole: bool) -> Html:
        lines = first_lines(source.statements, sources, anchors)
        return join(
            None if is_whole else source_block(c, anchors, lines),
            line_index(source.statements, sources, order, anchors),
            code_block(text, language, source.statements, sources, anchors),
        )

    what = "The generated code; each line number links to its statement."
    return Stage("code", "C" if is_c else "CUDA", what, source, text, body)


def _schedule(compiled: Compiled[Any]) -> Html:
    plan = compiled.plan
    entries = [
        [badge(str(kind), str(kind)), " ", tag("span", what, class_="note")]
        for kind, what in WHAT.items()
    ]
    return join(
        details("kinds of loops", tag("ul", [tag("li", e) for e in entries], class_="plain")),
        kernel_trees(plan.scop, plan.kernels, plan.placements),
        pipelines_section(plan),
        details("isl's schedule tree", block(compiled.stages["tree"])),
    )
