"""Syntax trees as text."""

from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.syntax.tree_text import tree_lines
from tcdsl.source import Source


def test_the_tree_of_a_definition() -> None:
    text = "def f(float(N) x) -> (y) { y(i) = x(i) + 1.0 }"
    (definition,) = parse_program(Source(text)).defs
    lines = list(tree_lines(definition))
    assert lines[0] == "Def name='f'"
    assert any(line.strip().startswith("value: Binary op='+'") for line in lines)
    assert any("Number value=1.0 dtype=float" in line for line in lines)
    assert not any("Span" in line for line in lines)
