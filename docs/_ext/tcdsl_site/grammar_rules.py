"""The rules of a Lark grammar, in sections, read with Lark's own grammar of grammars.

    // --- words ---                      Section("words", "A word ends ...", (
    // A word ends ...            --->        Rule("IN", (Alternative(Literal("in"), ""),)),
    IN: /in\\b/                           ))

Comments after a rule's alternatives are kept; those between rules are for who changes the grammar.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from lark import Lark, Token, Tree

from tcdsl_site.regular_expressions import syntax_of
from tcdsl_site.syntax import (
    Choice,
    Literal,
    Name,
    Optional,
    Repeat,
    Sequence,
    Syntax,
    choice,
    optional,
    repeated,
    sequence,
    without_left_recursion,
)

_HEADING = re.compile(r"^// --- (.*?) -*$")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"|/(?:[^/\\]|\\.)+/')


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule, or a terminal; *notes* belong to its alternatives, in order."""

    name: str
    body: Syntax
    notes: tuple[str, ...] = ()

    @property
    def alternatives(self) -> tuple[Syntax, ...]:
        return self.body.parts if isinstance(self.body, Choice) else (self.body,)


@dataclass(frozen=True, slots=True)
class Section:
    """Rules under one heading of the grammar, with what it says about all of them."""

    title: str
    text: str
    rules: tuple[Rule, ...]


def sections(grammar: str) -> tuple[Section, ...]:
    """Return the sections of *grammar*; terminals that are one word stand in the rules as such."""
    rules = dict(_rules(grammar))
    words = {rule.name: rule.body for rule in rules.values() if isinstance(rule.body, Literal)}
    result = []
    for title, first, last in _headings(grammar):
        inside = [
            Rule(rule.name, _with_words(rule.body, words), rule.notes)
            for line, rule in rules.items()
            if first < line <= last and rule.name not in words
        ]
        if inside:
            result.append(Section(title, _introduction(grammar, first), tuple(inside)))
    return tuple(result)


def _headings(grammar: str) -> Iterator[tuple[str, int, int]]:
    """Yield title, line, and last line of each section; lines count from 1."""
    lines = grammar.splitlines()
    starts = [(n, m[1]) for n, line in enumerate(lines, 1) if (m := _HEADING.match(line))]
    ends = [n - 1 for n, _ in starts[1:]] + [len(lines)]
    for (start, title), end in zip(starts, ends, strict=True):
        yield title, start, end


def _introduction(grammar: str, heading: int) -> str:
    """Return the comment that follows a heading at once."""
    words = []
    for line in grammar.splitlines()[heading:]:
        if not line.startswith("//"):
            break
        words.append(line.removeprefix("//").strip())
    return " ".join(words).strip()


@cache
def _parser() -> Lark:
    text = files("lark.grammars").joinpath("lark.lark").read_text(encoding="utf-8")
    return Lark(text, parser="lalr", propagate_positions=True, maybe_placeholders=False)


def _rules(grammar: str) -> Iterator[tuple[int, Rule]]:
    """Yield the first line and the content of each rule and each terminal."""
    lines = grammar.splitlines()
    for item in _parser().parse(grammar + "\n").children:
        if not isinstance(item, Tree) or item.data not in ("rule", "token"):
            continue
        name = str(item.children[0]).lstrip("?!")
        expansions = item.children[-1]
        assert isinstance(expansions, Tree)
        body = without_left_recursion(name, _syntax(expansions))
        notes = _notes(lines, expansions)
        yield item.meta.line, Rule(name, body, notes if any(notes) else ())


def _notes(lines: list[str], expansions: Tree[Token]) -> tuple[str, ...]:
    """Return for each alternative the comment at the end of its line, or ""."""
    found = []
    for alternative in expansions.children:
        end = alternative.meta if isinstance(alternative, Tree) else alternative
        number = getattr(end, "end_line", None)  # None: nothing is written there
        line = lines[number - 1] if number else ""
        comment = _STRING.sub("", line).partition("//")[2]
        found.append(re.sub(r"\s{2,}", ": ", comment.strip()))
    return tuple(found)


def _syntax(node: Tree[Token] | Token) -> Syntax:
    if isinstance(node, Token):
        return _token(node)
    match node.data, node.children:
        case "expansions", parts:
            return choice(_syntax(part) for part in parts)
        case "expansion", parts:
            return sequence(_syntax(part) for part in parts)
        case "alias", [part, *_]:
            return _syntax(part)
        case "expr", [part, Token(value=operator)]:
            return repeated(_syntax(part), operator)
        case "maybe", [part]:
            return optional(_syntax(part))
        case "atom" | "value" | "name" | "literal" | "expr", [part]:
            return _syntax(part)
    raise ValueError(f"the grammar has a {node.data}, which this page cannot show")


def _token(token: Token) -> Syntax:
    if token.type in ("RULE", "TOKEN"):
        return Name(str(token))
    if token.type == "STRING":
        return Literal(ast.literal_eval(str(token)))
    pattern, _, flags = str(token)[1:].rpartition("/")
    return syntax_of(pattern.replace("\\/", "/"), verbose="x" in flags)


def _with_words(body: Syntax, words: Mapping[str, Syntax]) -> Syntax:
    """Return *body* with the terminals in *words* replaced by what they are."""
    match body:
        case Name(name):
            return words.get(name, body)
        case Sequence(parts):
            return Sequence(tuple(_with_words(part, words) for part in parts))
        case Choice(parts):
            return Choice(tuple(_with_words(part, words) for part in parts))
        case Optional(part):
            return Optional(_with_words(part, words))
        case Repeat(part, separator):
            return Repeat(_with_words(part, words), _with_words(separator, words))
    return body
