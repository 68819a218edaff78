"""Generated C or CUDA: coloured, every line linked to the statement of the program it prints.

Colours need Pygments, which is used where it is installed.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Any

from tcdsl.display.html import Anchors, Child, Html, code, escape, join, tag

# Pygments' token types, by the start of their names, and the colours they get.
_INKS = (
    ("Token.Comment.Preproc", "type"),
    ("Token.Comment", "comment"),
    ("Token.Keyword.Type", "type"),
    ("Token.Keyword", "keyword"),
    ("Token.Literal.Number", "number"),
    ("Token.Literal.String", "good"),
    ("Token.Name.Function", "call"),
    ("Token.Name.Builtin", "keyword"),
)
_WORD_INKS = (
    ("tc_", "call"), ("tcdsl_", "call"), ("threadIdx", "thread"), ("blockIdx", "block"),
    ("blockDim", "thread"), ("gridDim", "block"), ("__sync", "last"),
)  # fmt: skip


def highlighted_lines(text: str, language: str) -> list[Html]:
    """Return the lines of *text* as HTML.

    :arg language: c or cuda.
    """
    lexer = _lexer(language)
    if lexer is None:
        return [escape(line) for line in text.split("\n")]
    lines: list[list[Html]] = [[]]
    for token, value in lexer.get_tokens(text):
        ink = _ink(str(token), value)
        for number, part in enumerate(value.split("\n")):
            if number:
                lines.append([])
            if part:
                lines[-1].append(tag("span", part, class_=f"ink-{ink}") if ink else escape(part))
    # The lexer ends every text with a line break.
    wanted = text.count("\n") + 1
    return [join(line) for line in lines[:wanted]] + [Html("")] * (wanted - len(lines))


@cache
def _lexer(language: str) -> Any:
    try:
        from pygments.lexers.c_cpp import CLexer
        from pygments.lexers.c_like import CudaLexer
    except ImportError:
        return None
    lexer = CudaLexer if language == "cuda" else CLexer
    return lexer(stripnl=False, stripall=False)


def _ink(token: str, value: str) -> str:
    for start, ink in _WORD_INKS:
        if value.startswith(start):
            return ink
    return next((ink for start, ink in _INKS if token.startswith(start)), "")


def code_block(
    text: str, language: str, statements: Sequence[str], sources: Mapping[str, str],
    anchors: Anchors,
) -> Html:  # fmt: skip
    """Return *text* with a number before each line.

    :arg statements: of each line, the statement of the scop that it prints, "" for none.
    :arg sources: of a scop's statement, the statement of the program that it comes from.
    """
    lines = []
    for number, line in enumerate(highlighted_lines(text, language), start=1):
        name = statements[number - 1] if number <= len(statements) else ""
        source = sources.get(name, "")
        gutter: Child = f"{number:4d} "
        if source:
            title = f"prints {name}, of {source}"
            gutter = anchors.link(gutter, "source", source, title=title)
        lines.append(
            tag(
                "span", tag("span", gutter, class_="gutter"), line, "\n",
                class_="line", id=anchors("code", number), data_s=source or None,
            )
        )  # fmt: skip
    return tag("pre", lines, class_="code")


def first_lines(
    statements: Sequence[str], sources: Mapping[str, str], anchors: Anchors
) -> dict[str, str]:
    """Return, for each statement of the program, the id of the first line that it became."""
    return {
        source: anchors("code", runs[0][0]) for source, runs in runs_of(statements, sources).items()
    }


def runs_of(
    statements: Sequence[str], sources: Mapping[str, str]
) -> dict[str, list[tuple[int, int]]]:
    """Return the runs of lines, first and last, that each statement of the program became."""
    found: dict[str, list[tuple[int, int]]] = {}
    numbered = enumerate((sources.get(name, "") for name in statements), start=1)
    for source, group in groupby(numbered, key=lambda item: item[1]):
        numbers = [number for number, _ in group]
        if source:
            found.setdefault(source, []).append((numbers[0], numbers[-1]))
    return found


def line_index(
    statements: Sequence[str], sources: Mapping[str, str], order: Iterable[str], anchors: Anchors
) -> Html:
    """Return a list: which lines each statement of the program became, as links."""
    runs = runs_of(statements, sources)
    items = []
    for name in order:
        own = runs.get(name, [])
        links: list[Child] = []
        for first, last in own:
            text = str(first) if first == last else f"{first}-{last}"
            links += [anchors.link(text, "code", first), ", "]
        where: Child = links[:-1] if own else "no line of its own"
        items.append(tag("li", anchors.link(code(name), "source", name), ": ", where, data_s=name))
    return tag("ul", items, class_="plain")
