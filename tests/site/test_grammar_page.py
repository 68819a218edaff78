"""The grammar in EBNF and as diagrams, from the file that the parser reads."""

from importlib.resources import files
from xml.etree import ElementTree

import pytest

from tcdsl_site.ebnf import expression, rule_text
from tcdsl_site.grammar_page import grammar
from tcdsl_site.grammar_rules import Rule, sections
from tcdsl_site.railroad import diagram
from tcdsl_site.regular_expressions import syntax_of
from tcdsl_site.syntax import (
    NOTHING,
    Choice,
    Literal,
    Name,
    Optional,
    Repeat,
    Sequence,
    Syntax,
    sequence,
    without_left_recursion,
)

GRAMMAR = files("tcdsl.grammar").joinpath("tc.lark").read_text(encoding="utf-8")
SECTIONS = sections(GRAMMAR)
RULES = {rule.name: rule for section in SECTIONS for rule in section.rules}


def names_in(body: Syntax) -> set[str]:
    match body:
        case Name(text):
            return {text}
        case Sequence(parts) | Choice(parts):
            return set().union(*map(names_in, parts))
        case Optional(part):
            return names_in(part)
        case Repeat(part, separator):
            return names_in(part) | names_in(separator)
    return set()


def test_every_rule_that_is_used_is_there() -> None:
    used = set().union(*(names_in(rule.body) for rule in RULES.values()))
    assert used <= set(RULES)
    assert set(RULES) - used == {"program", "statements", "COMMENT", "SPACE"}


def test_all_rules_of_the_file_are_there() -> None:
    from lark import Lark

    lark = Lark(GRAMMAR, start=["program", "statements"], parser="lalr")
    rules = {str(rule.origin.name) for rule in lark.rules if not rule.origin.name.startswith("_")}
    assert {name for name in rules if name.islower()} <= set(RULES)
    words = {"DEF", "WHERE", "IN", "EXISTS", "ASSIGN", "TARGETS_OPEN", "SIZE"}
    named = {t.name for t in lark.terminals if t.name in GRAMMAR and f"{t.name}:" in GRAMMAR}
    assert words <= named and named - words <= set(RULES)


@pytest.mark.parametrize(("name", "text"), [
    ("arguments", 'arguments = "(" [ expr { "," expr } ] ")"'),
    ("dims", 'dims = "(" [ dim { "," dim } ] ")"'),
    ("comparison", 'comparison = bit_or { ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) bit_or }'),
    ("unary", 'unary = atom | ( "-" | "!" | "~" ) unary'),
    ("EXTREMUM", 'EXTREMUM = "min" | "max"'),
    ("NAME", "NAME = /[A-Za-z_]/ { /[A-Za-z0-9_]/ }"),
    ("where", 'where = [ "where" clause { "," clause } ]'),
])  # fmt: skip
def test_rules_in_ebnf(name: str, text: str) -> None:
    assert rule_text(RULES[name]) == text


def test_comments_of_alternatives_are_kept() -> None:
    assert rule_text(RULES["typed"]).splitlines() == [
        "typed = DTYPE NAME        (* float s: a 0-D tensor or a host scalar *)",
        "      | DTYPE dims NAME   (* float(M, 3) A: size symbols and constants *)",
    ]


def test_sections_have_titles_and_introductions() -> None:
    titles = [section.title for section in SECTIONS]
    assert titles[1:4] == ["definitions", "statements", "expressions, loosest to tightest"]
    words = next(section for section in SECTIONS if section.title == "words")
    assert words.text.startswith("A word ends where no letter")


# --- parts -------------------------------------------------------------------------------------

A, B, COMMA = Name("a"), Name("b"), Literal(",")


def test_lists_with_separators_are_recognised() -> None:
    rest = Optional(Repeat(Sequence((COMMA, A)), NOTHING))
    assert sequence([A, rest]) == Repeat(A, COMMA)
    assert sequence([B, rest]) == Sequence((B, rest))


def test_left_recursion_becomes_repetition() -> None:
    body = Choice((A, Sequence((Name("sum"), Literal("+"), A))))
    assert without_left_recursion("sum", body) == Repeat(A, Literal("+"))
    assert without_left_recursion("other", body) == body


@pytest.mark.parametrize(("pattern", "text"), [
    (r"def\b", '"def"'),
    (r"=(?!=)", '"="'),
    (r"(true|false|inf|nan)\b", '"true" | "false" | "inf" | "nan"'),
    (r"u?int(8|16)", '[ "u" ] "int" ( "8" | "16" )'),
    (r"[0-9]+\.?[0-9]*", '/[0-9]/ { /[0-9]/ } [ "." ] { /[0-9]/ }'),
    (r"a*+b", '{ "a" } "b"'),
    ('"', "'\"'"),
])  # fmt: skip
def test_regular_expressions(pattern: str, text: str) -> None:
    assert expression(syntax_of(pattern)) == text


@pytest.mark.parametrize("pattern", ["(a", "a)"])
def test_what_cannot_be_read_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="has a"):
        syntax_of(pattern)


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda rule: rule.name)
def test_diagrams_hold_every_part_within_their_frame(rule: Rule) -> None:
    svg = ElementTree.fromstring(diagram(rule.body))
    width, height = float(svg.attrib["width"]), float(svg.attrib["height"])
    space = "{http://www.w3.org/2000/svg}"
    for box in svg.iter(f"{space}rect"):
        x, y = float(box.attrib["x"]), float(box.attrib["y"])
        assert x >= 0 and x + float(box.attrib["width"]) <= width
        assert y >= 0 and y + float(box.attrib["height"]) <= height
    links = {link.attrib["href"] for link in svg.iter(f"{space}a")}
    assert links == {f"#rule-{name}" for name in names_in(rule.body)}


def test_boxes_do_not_overlap() -> None:
    space = "{http://www.w3.org/2000/svg}"
    for rule in RULES.values():
        boxes = [
            tuple(float(box.attrib[key]) for key in ("x", "y", "width", "height"))
            for box in ElementTree.fromstring(diagram(rule.body)).iter(f"{space}rect")
        ]
        for n, (x, y, width, height) in enumerate(boxes):
            for other_x, other_y, other_width, other_height in boxes[:n]:
                is_beside = x >= other_x + other_width or other_x >= x + width
                assert is_beside or y >= other_y + other_height or other_y >= y + height, rule.name


def test_the_page_has_a_target_for_every_link() -> None:
    page = grammar(GRAMMAR, with_diagrams=True)
    for name in RULES:
        assert page.count(f'id="rule-{name}"') == 1
    assert 'aria-label="program = { definition }"' in page  # the drawing in words
