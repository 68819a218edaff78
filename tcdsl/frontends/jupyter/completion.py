"""Completion of the language in ``%%tcdsl`` cells, and of stages and defs behind other magics.

What may stand at the cursor is guessed from the words around it, for a text that is being typed
seldom parses:

    outside of defs     def
    in a header         types, and the sizes of this header
    in a body           the def's tensors, sizes and indices, keywords, types, builtins, other defs
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import Any, cast

from IPython.core.completer import (
    CompletionContext,
    SimpleCompletion,
    SimpleMatcherResult,
)
from pygments.token import Comment, Keyword, Name, Whitespace, _TokenType

from tcdsl.api import Function, Program
from tcdsl.frontends.stages import STAGES
from tcdsl.lang.syntax.parser import lark_parser
from tcdsl.lang.syntax.pygments_lexer import TcLexer, pattern
from tcdsl.lang.types.builtins import BUILTINS
from tcdsl.lang.types.dtypes import BY_NAME
from tcdsl.records import dataclass

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_CELL = re.compile(r"\s*%%tcdsl(?=\s)[^\n]*\n")
_SHOW = re.compile(r"\s*%tcdsl_show\s+(?:(?P<stage>\w+)\s+)?[\w.]*$")
_BENCH = re.compile(r"\s*%%?tcdsl_bench\s+[\w.]*$")
_DOTTED = re.compile(r"[A-Za-z_][\w.]*\Z")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A word that may stand at the cursor, and what it is, for the symbol beside it."""

    text: str
    kind: str


class Matcher:
    """What IPython asks for completions."""

    matcher_api_version = 2
    matcher_priority = 100.0  # before Python's own
    matcher_identifier = "tcdsl"

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self.__qualname__ = "tcdsl.Matcher"  # IPython takes a matcher for a function

    def __call__(self, context: CompletionContext) -> SimpleMatcherResult:
        """Return the completions at the cursor; nothing outside of tcdsl's magics."""
        text, offset = context.full_text, _offset(context)
        cell = _CELL.match(text)
        if cell and offset >= cell.end():
            found = candidates(text[cell.end() :], offset - cell.end())
            return _result(found, _prefix(text[:offset], _WORD), suppress=True)
        line = text[:offset].rpartition("\n")[2]
        prefix = _prefix(line, _DOTTED)
        if show := _SHOW.match(line):
            if show["stage"] is None:
                stages = [Candidate(stage, "keyword") for stage in STAGES]
                return _result(stages, prefix, suppress=True)
            return _result(_defs_of(self._shell.user_ns), prefix, suppress=False)
        if _BENCH.match(line):
            return _result(_defs_of(self._shell.user_ns), prefix, suppress=False)
        return SimpleMatcherResult(completions=[])


def matchers_of(shell: Any) -> list[Any]:
    """Return the list of those that *shell* asks before its own."""
    return cast(list[Any], shell.Completer.custom_matchers)


def _offset(context: CompletionContext) -> int:
    """Return where the cursor is in the whole text; of a line alone, IPython says line 0."""
    lines = context.full_text.split("\n")[: context.cursor_line]
    return sum(len(line) + 1 for line in lines) + context.cursor_position


def _prefix(before: str, form: re.Pattern[str]) -> str:
    match = form.search(before)
    return match[0] if match else ""


def _result(
    found: Iterable[Candidate], prefix: str, *, suppress: bool
) -> SimpleMatcherResult:  # fmt: skip
    completions = [
        SimpleCompletion(text=one.text, type=one.kind)
        for one in found
        if one.text.startswith(prefix)
    ]
    return SimpleMatcherResult(
        completions=completions, matched_fragment=prefix, suppress=suppress, ordered=True
    )


def _defs_of(namespace: Mapping[str, Any]) -> Iterator[Candidate]:
    """Yield the defs that *namespace* has, also within programs."""
    for name, value in namespace.items():
        if name.startswith("_"):  # IPython's own: earlier results
            continue
        if isinstance(value, Function):
            yield Candidate(name, "function")
        elif isinstance(value, Program):
            yield from (Candidate(f"{name}.{one}", "function") for one in value.names)


# --- the language --------------------------------------------------------------------------


def words_of(terminal: str) -> tuple[str, ...]:
    """Return the words that a keyword's terminal of the grammar stands for."""
    expression = pattern(lark_parser().get_terminal(terminal)).removesuffix(r"\b")
    return tuple(re.findall(r"[a-z]+", expression))


def candidates(text: str, offset: int) -> list[Candidate]:
    """Return what may stand at *offset* of the program *text*, the most likely first."""
    prefix = _prefix(text[:offset], _WORD)
    words = _words(text, offset - len(prefix))
    scope = _scope(words, offset - len(prefix))
    match scope.region:
        case "nowhere":
            return []
        case "top":
            return [Candidate("def", "keyword")]
        case "header":
            types = [Candidate(name, "type") for name in BY_NAME]
            return _once([*scope.names(("size",)), *types])
    keywords = [
        Candidate(word, "keyword")
        for terminal in ("WHERE", "IN", "EXISTS", "CONSTANT")
        for word in words_of(terminal)
    ]
    return _once([
        *scope.names(("tensor", "size", "index")),
        *keywords,
        *(Candidate(name, "function") for name in scope.callable_defs),
        *(Candidate(name, "function") for name in BUILTINS),
        *(Candidate(name, "type") for name in BY_NAME),
    ])  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Word:
    offset: int
    token: _TokenType
    text: str


@dataclass(slots=True)
class _Scope:
    """Where the cursor is, and the names of the def around it."""

    region: str = "top"  # "header", "body", or "nowhere": in a comment, behind "def"
    kinds: dict[str, str] = field(default_factory=dict)
    callable_defs: list[str] = field(default_factory=list)

    def names(self, kinds: Sequence[str]) -> list[Candidate]:
        return [
            Candidate(name, kind) for wanted in kinds
            for name, kind in self.kinds.items() if kind == wanted
        ]  # fmt: skip


def _words(text: str, cursor: int) -> list[_Word]:
    """Return the words and signs of *text*, without the one that is being typed at *cursor*."""
    found = [_Word(*one) for one in TcLexer().get_tokens_unprocessed(text)]
    return [
        word for word in found
        if word.token is not Whitespace and (word.offset != cursor or word.token is Comment.Single)
    ]  # fmt: skip


def _scope(words: Sequence[_Word], cursor: int) -> _Scope:
    before = [word for word in words if word.offset < cursor]
    scope = _Scope()
    if before and _is_open_comment(before[-1], cursor):
        scope.region = "nowhere"
        return scope
    before = [word for word in before if word.token is not Comment.Single]
    starts = [at for at, word in enumerate(before) if word.token is Keyword.Declaration]
    if not starts:
        return scope
    depth = sum({"{": 1, "}": -1}.get(word.text, 0) for word in before[starts[-1] :])
    has_opened = any(word.text == "{" for word in before[starts[-1] :])
    if has_opened and depth <= 0:
        return scope
    scope.region = "body" if has_opened else "header"
    if before[-1].token is Keyword.Declaration:
        scope.region = "nowhere"  # a new name
    scope.callable_defs = [w.text for w in before[: starts[-1]] if w.token is Name.Function]
    _name(scope, _rest_of_def(words, before[starts[-1]]))
    return scope


def _is_open_comment(word: _Word, cursor: int) -> bool:
    return word.token is Comment.Single and cursor <= word.offset + len(word.text)


def _rest_of_def(words: Sequence[_Word], start: _Word) -> list[_Word]:
    """Return the words of the def that begins with *start*, also those behind the cursor."""
    rest = [w for w in words if w.offset > start.offset and w.token is not Comment.Single]
    ends = [at for at, word in enumerate(rest) if word.token is Keyword.Declaration]
    return rest[: ends[0]] if ends else rest


def _name(scope: _Scope, words: Sequence[_Word]) -> None:
    """Find out what the names among the *words* of a def are."""
    body = next((at for at, word in enumerate(words) if word.text == "{"), len(words))
    depth = 0  # of parentheses: a size is deeper than its tensor
    for word in words[:body]:
        depth += {"(": 1, ")": -1}.get(word.text, 0)
        if word.token is Name:
            scope.kinds.setdefault(word.text, "size" if depth > 1 else "tensor")
    for at, word in enumerate(words[body:], body):
        if word.token is Name:
            follows = words[at + 1].text if at + 1 < len(words) else ""
            is_tensor = follows == "(" or _assignment().fullmatch(follows) is not None
            is_let = is_tensor and follows != "(" and _is_in_where(words[body:at])
            kind = "tensor" if is_tensor and not is_let else "index"
            scope.kinds.setdefault(word.text, kind)


@cache
def _assignment() -> re.Pattern[str]:
    signs = (pattern(lark_parser().get_terminal(name)) for name in ("ASSIGN", "REDUCE"))
    return re.compile("|".join(signs))


def _is_in_where(words: Sequence[_Word]) -> bool:
    """Return whether a ``where`` or a comma is just before: ``where t = A(i)`` names no tensor."""
    return bool(words) and words[-1].text in ("where", ",")


def _once(found: Iterable[Candidate]) -> list[Candidate]:
    """Return *found* without repetitions."""
    return list({one.text: one for one in reversed(list(found))}.values())[::-1]
