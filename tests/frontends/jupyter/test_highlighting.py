"""Colours of cells in IPython's terminal."""

from typing import Any

import pytest
from IPython.terminal.ptutils import IPythonPTLexer
from prompt_toolkit.document import Document

from tcdsl.frontends.jupyter.highlighting import colour_cells, uncolour_cells


class Terminal:
    """A shell with a prompt, as far as colours go: IPython makes the lexer anew each time."""

    def _extra_prompt_options(self) -> dict[str, Any]:
        return {"lexer": IPythonPTLexer()}


def painted(terminal: Terminal, text: str) -> dict[str, str]:
    """Return the style of each word in the second line of *text*."""
    lexer = terminal._extra_prompt_options()["lexer"]
    return {word: style for style, word, *_ in lexer.lex_document(Document(text))(1)}


@pytest.fixture
def terminal() -> Terminal:
    terminal = Terminal()
    colour_cells(terminal)
    return terminal


def test_a_cell_has_the_colours_of_the_language(terminal: Terminal) -> None:
    found = painted(terminal, "%%tcdsl prog\ndef f(float(N) x) -> (y) { y(i) max=! exp(x(i)) }")
    assert found["float"] == "class:pygments.keyword.type"
    assert found["max=!"] == "class:pygments.operator"
    assert found["f"] == "class:pygments.name.function"
    assert found["exp"] == "class:pygments.name.builtin"


def test_other_cells_stay_pythons(terminal: Terminal) -> None:
    assert painted(terminal, "1\nlambda: 0")["lambda"] == "class:pygments.keyword"
    found = painted(terminal, "%%tcdsl_bench f(A)\nlambda: 0")
    assert found["lambda"] == "class:pygments.keyword"


def test_it_can_be_taken_back(terminal: Terminal) -> None:
    colour_cells(terminal)
    uncolour_cells(terminal)
    assert painted(terminal, "%%tcdsl\nfloat")["float"] == "class:pygments.name.builtin"


def test_shells_without_a_prompt_are_left_alone() -> None:
    shell = object()
    colour_cells(shell)
    uncolour_cells(shell)
