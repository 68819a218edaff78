"""A syntax error in the user's terms: what was expected, what was found, and the likely mistake.

    C(i) += A(i * 2
                   ^     expected an operator, ',' or ')', found the end of the text
                         hint: the '(' in line 1, column 10 is never closed

What was expected is the set of terminals that the parser would have accepted there, put into a few
words: twenty operators are "an operator".  The hints know common mistakes, the most certain first.
"""

import re
from collections.abc import Callable

from lark import Lark
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken
from lark.lexer import PatternStr

from tcdsl.errors import BAD_CHARACTER, SYNTAX, TCError
from tcdsl.lang.syntax.limits import shortened
from tcdsl.lang.syntax.other_languages import TYPES, Place, syntax_hint
from tcdsl.lang.syntax.spelling import close_match
from tcdsl.lang.types.dtypes import ALL
from tcdsl.records import dataclass
from tcdsl.source import Source, Span

_MAX_EXPECTATIONS = 4
_OPERAND_STARTS = frozenset(
    ("NAME", "INT", "FLOAT", "CONSTANT", "EXTREMUM", "DTYPE", "(", "-", "!", "~")
)
_OPERATORS = frozenset(
    "? || && == != < <= > >= | ^ & << >> + - * / %".split()  # noqa: SIM905 (as in the grammar)
)
_WORDS = {
    "NAME": "a name", "INT": "an integer", "FLOAT": "a number", "DTYPE": "a type", "SIZE": "a type",
    "DEF": "'def'", "WHERE": "'where'", "IN": "'in'", "EXISTS": "'exists'",
    "ASSIGN": "'='", "REDUCE": "an assignment such as '=' or '+=!'",
    "$END": "the end of the text",
}  # fmt: skip
# What is expected most often, and says most, comes first.
_ORDER = (
    "an expression", "an operator", "'def'", "a type", "a name", "an integer", "','", "')'",
    "'where'", "the next statement", "a statement", "'exists'",
)  # fmt: skip
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Characters that look like one of the language, as word processors and web pages leave them.
_LOOK_ALIKES = {
    "\u2212": "-", "\u2013": "-", "\u2014": "-", "\u00d7": "*", "\u00b7": "*", "\u22c5": "*",
    "\u00f7": "/", "\u2264": "<=", "\u2265": ">=", "\u2260": "!=", "\u2192": "->",
    "\u21d2": "->", "\u2227": "&&", "\u2228": "||", "\u00ac": "!", "\uff08": "(", "\uff09": ")",
    "\uff0c": ",", "\u221a": "sqrt(x)", "\u03c0": "3.141592653589793", "\u221e": "inf",
    "\u00b2": "x * x", "\u2211": "a sum as an assignment: y +=! x(i)",
    "\u03a3": "a sum as an assignment: y +=! x(i)",
}  # fmt: skip
_CHARACTERS = {
    "[": "subscripts stand in parentheses: A(i, j)",
    "]": "subscripts stand in parentheses: A(i, j)",
    ";": "remove it: a statement needs no terminator",
    "\x00": "remove it: it is a zero byte",
    '"': "the language has no strings; # starts a comment",
    "'": "the language has no strings; # starts a comment",
    "@": "a matrix product is a sum: C(i, k) +=! A(i, j) * B(j, k)",
    ".": "a name has no parts (transpose by subscripts: A(j, i)), and a number needs a digit",
}


def diagnosis(problem: UnexpectedInput, source: Source, parser: Lark, start: str) -> TCError:
    """Return the ParseError for what Lark found wrong with *source*, read as the rule *start*."""
    if isinstance(problem, UnexpectedToken):
        return _unexpected_token(problem, source, parser, start)
    assert isinstance(problem, UnexpectedCharacters) and problem.pos_in_stream is not None
    return _unexpected_character(source, problem.pos_in_stream)


def _unexpected_character(source: Source, offset: int) -> TCError:
    """Return the error for a character that begins no word or sign of the language."""
    char = source.text[offset]
    hint = _CHARACTERS.get(char)
    if char == "[" and re.search(r"\b(in\s*|(float|int|double|half)\w*)$", source.text[:offset]):
        hint = "write a range as in 0:N, and the dimensions of a type as float(N)"
    if char == "." and re.search(r"\bin\s+\w+\.?$", source.text[:offset]):
        hint = "a range is written with ':': in 0:N"
    if source.text.startswith("...", offset):
        hint = "there is no '...': name an index for each dimension, as in x(b, i)"
    if char == "." and re.match(r"\.(shape|size|dtype|ndim)\b", source.text[offset:]):
        hint = "sizes and types are in the declaration: N of float(N) x"
    if char == "." and (called := _function_of_a_module(source.text, offset)):
        hint = f"functions have no module: write {called}(...)"
    if char in _LOOK_ALIKES:
        hint = f"write {_LOOK_ALIKES[char]}"
    elif char.isspace() or char in "\ufeff\u200b\u200c\u200d\u2060":
        hint = "it looks like white space: replace it by a plain space"
    return BAD_CHARACTER(source, Span(offset, offset + 1), char=char, hint=hint)


def _function_of_a_module(text: str, dot: int) -> str | None:
    """Return ``exp`` of ``np.exp(``."""
    if not re.search(r"\b(np|numpy|torch|math|jnp|jax|tf|tl|F)$", text[:dot]):
        return None
    called = re.match(r"\.(?:\w+\.)*(\w+)\s*\(", text[dot:])
    return called[1] if called else None


def _unexpected_token(
    problem: UnexpectedToken, source: Source, parser: Lark, start: str
) -> TCError:
    """Return the error for a token that cannot stand where it does."""
    token = problem.token
    at_end = token.type == "$END"
    begin, end = token.start_pos or 0, token.end_pos or 0
    span = Span(end, end) if at_end else Span(begin, end)
    accepted = _accepted(source.text[: span.start], parser, start)
    found = "" if at_end else token.value
    mistake = Mistake(source, span, found, token.type, accepted, start)
    return SYNTAX(
        source,
        span,
        expected=expectation(accepted),
        found="the end of the text" if at_end else shortened(found),
        hint=hint_for(mistake),
    )


def _accepted(prefix: str, parser: Lark, start: str) -> frozenset[str]:
    """Return the labels of the terminals that may follow *prefix*.

    The parser's state at the error would not do: it may have finished rules before it noticed,
    and would then no longer accept an operator.  Parsing once more costs as long as before.
    """
    state = parser.parse_interactive(prefix.replace("\ufeff", " ", 1), start)
    state.exhaust_lexer()
    names: set[str] = state.accepts()  # type: ignore[no-untyped-call]
    return frozenset(_label(parser, name) for name in names)


def _label(parser: Lark, terminal: str) -> str:
    """Return the text that *terminal* stands for, or its name if it stands for many."""
    if terminal == "$END":
        return terminal
    pattern = parser.get_terminal(terminal).pattern
    return pattern.value if isinstance(pattern, PatternStr) else terminal


def expectation(accepted: frozenset[str]) -> str:
    """Return *accepted* (signs, and names of terminals) in words: "an operator, ',' or ')'"."""
    phrases = _phrases(accepted)
    rank = {phrase: place for place, phrase in enumerate(_ORDER)}
    phrases.sort(key=lambda phrase: (rank.get(phrase, len(rank)), phrase))
    *most, last = phrases[:_MAX_EXPECTATIONS]
    return f"{', '.join(most)} or {last}" if most else last


def _phrases(accepted: frozenset[str]) -> list[str]:
    """Return one phrase for each kind of thing that is accepted."""
    rest = set(accepted)
    phrases = []
    if "FLOAT" in rest:  # only where an operand may begin
        phrases.append("an expression")
        rest -= _OPERAND_STARTS
    if "+" in rest:  # only where an operand has ended
        phrases.append("an operator")
        rest -= _OPERATORS | {"<=>", "("}
    if "TARGETS_OPEN" in rest:
        follows = "an operator" in phrases or "," in rest
        phrases.append("the next statement" if follows else "a statement")
        rest -= {"TARGETS_OPEN", "NAME"}
    if "REDUCE" in rest:
        rest -= {"ASSIGN"}
    # (Once each: a parameter begins with a type, or with the word "size".)
    return phrases + list({_WORDS.get(label, f"'{label}'"): None for label in rest})


# --- hints -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Mistake:
    """What a hint is guessed from: the token *found* at *span*, and what was *accepted* there."""

    source: Source
    span: Span
    found: str  # "" at the end of the text
    kind: str  # the found token's terminal
    accepted: frozenset[str]
    start: str

    @property
    def before(self) -> str:
        """The text shortly before the token."""
        return self.source.text[max(0, self.span.start - 80) : self.span.start]

    @property
    def rest(self) -> str:
        """The text from the token on."""
        return self.source.text[self.span.start : self.span.start + 80]

    @property
    def place(self) -> Place:
        text, start = self.source.text, self.span.start
        return Place(text[max(0, start - 400) : start], text[start : start + 400], self.accepted)

    @property
    def operator_fits(self) -> bool:
        return "*" in self.accepted

    @property
    def operand_fits(self) -> bool:
        return "FLOAT" in self.accepted


def hint_for(mistake: Mistake) -> str | None:
    """Return what the user may have meant, or None."""
    return next((hint for guess in _GUESSES if (hint := guess(mistake))), None)


def _double_sign(mistake: Mistake) -> str | None:
    """``**``, ``++``, ``--``, ``//``, ``-=``, ``:=``: signs of other languages."""
    if mistake.found == "*" and mistake.before.endswith("*"):
        power = "use pow(x, y)" if mistake.operand_fits else "write N * N"
        return f"there is no power operator: {power}"
    if mistake.found == "/" and mistake.before.endswith("/"):
        return "'/' of integers floors already; # starts a comment"
    if mistake.found == ">" and mistake.before.endswith("<"):
        return "write '!=' instead of '<>'"
    if mistake.rest.startswith(":="):
        return "write '=' instead of ':='"
    if "REDUCE" in mistake.accepted and (sign := re.match(r"(//|[-/%|&^])=", mistake.rest)):
        return f"there is no '{sign[0]}'; the assignments are = += *= min= max= and= or="
    if "REDUCE" in mistake.accepted and re.match(r"\+\+|--", mistake.rest):
        return "write += 1"
    return None


def _comparison_or_assignment(mistake: Mistake) -> str | None:
    """``==`` where a value is assigned, ``argmin=`` without its ``!``."""
    if mistake.found == "==" and "ASSIGN" in mistake.accepted:
        return "'==' compares; write '=' to assign"
    if "REDUCE" in mistake.accepted and (word := re.match(r"arg(min|max)\s*=", mistake.rest)):
        return f"it always starts afresh: write arg{word[1]}=!"
    return None


def _word_operator(mistake: Mistake) -> str | None:
    """``a and b``: after ``a``, the words begin a statement ``and ...`` with no assignment.

    In parentheses no statement begins: there the word itself, or what follows ``not``, is wrong.
    """
    signs = {"and": "&&", "or": "||", "not": "!"}
    if mistake.found in signs and mistake.operator_fits:
        return f"write {signs[mistake.found]} for '{mistake.found}'"
    word = re.search(r"\b(?:(and|or)\s*|(not)\s*\w*\s*(?:\([^()]*\)\s*)?)$", mistake.before)
    if word is None or not ("REDUCE" in mistake.accepted or mistake.operator_fits):
        return None
    found = word[1] or word[2]
    return f"write {signs[found]} for '{found}'"


def _other_language(mistake: Mistake) -> str | None:
    """What Python, C and others write otherwise."""
    return syntax_hint(mistake.place)


def _arrow(mistake: Mistake) -> str | None:
    """``=>``, ``=`` or ``:`` for ``->``; returns without parentheses."""
    example = "def name(float(N) A) -> (B) { ... }"
    if "->" in mistake.accepted:
        return f"the returns follow '->' in parentheses: {example}"
    if mistake.before.rstrip().endswith("->"):
        return f"the returns stand in parentheses: {example}"
    return None


def _number_for_a_name(mistake: Mistake) -> str | None:
    """``def 2f(...)``."""
    if mistake.accepted != {"NAME"} or not mistake.found[:1].isdigit():
        return None
    return f"a name begins with a letter or '_': {mistake.found!r} is a number"


def _reserved_word(mistake: Mistake) -> str | None:
    """A keyword where a name is expected."""
    is_word = _NAME.fullmatch(mistake.found) is not None and mistake.kind != "NAME"
    if not is_word or "NAME" not in mistake.accepted or mistake.operator_fits:
        return None
    if mistake.kind == "DEF":
        return None
    if mistake.kind == "DTYPE" and "TARGETS_OPEN" in mistake.accepted:
        return (
            "a statement names no type: give it to a result, -> (float(N) y), or convert the value,"
            " y(i) = float(x(i))"
        )
    return f"'{mistake.found}' is a word of the language: choose another name"


def _untyped_parameter(mistake: Mistake) -> str | None:
    """``def f(A)``: only a return may do without its type."""
    if mistake.kind != "NAME" or "DTYPE" not in mistake.accepted or mistake.operand_fits:
        return None
    if re.match(r"\w+\s*(\([^)]*\)\s*)?[A-Za-z_]", mistake.rest):
        # A name follows: this was to be the type.
        known = list(map(str, ALL))
        name = mistake.found.lower()
        meant = name if name in known else TYPES.get(name) or close_match(name, known)
        listed = f"the types are {', '.join(known)}"
        return f"there is no type '{mistake.found}'; {f'write {meant}; ' if meant else ''}{listed}"
    return (
        f"give the type: float(N) {mistake.found} for a tensor, float {mistake.found} for a scalar"
    )


def _unclosed(mistake: Mistake) -> str | None:
    """A ``(`` or ``{`` that is still open where the text, its block or its line of thought ends."""
    stops = mistake.kind in ("$END", "DEF", "ASSIGN", "REDUCE", "WHERE", "NAME") or (
        mistake.found in ("{", "}", "->")
    )
    opened, is_closed = innermost(mistake.source.text, mistake.span.start)
    if not stops or is_closed or opened is None:
        return None
    line, column = mistake.source.position(opened)
    sign = mistake.source.text[opened]
    return f"the '{sign}' in line {line}, column {column} is never closed"


def innermost(text: str, offset: int) -> tuple[int | None, bool]:
    """Return where the innermost ``(`` or ``{`` around *offset* opens, and if all are closed."""
    opened, _ = _open_signs(text[:offset])
    never_closed, lost = _open_signs(text)
    return (opened[-1] if opened else None), not (never_closed or lost)


def _open_signs(text: str) -> tuple[list[int], bool]:
    """Return where those ``(`` and ``{`` are that are open at the end, and if any ``(`` is lost.

    A ``(`` is lost where a brace comes before its ``)``.
    """
    opened: list[int] = []
    lost = False
    for sign in re.finditer(r"#[^\r\n]*|[(){}]", text):
        while sign[0] in ("{", "}") and opened and text[opened[-1]] == "(":
            opened.pop()
            lost = True
        if sign[0] in ("(", "{"):
            opened.append(sign.start())
        elif opened and (text[opened[-1]], sign[0]) in (("(", ")"), ("{", "}")):
            opened.pop()
    return opened, lost


def _not_opened(mistake: Mistake) -> str | None:
    """A closing sign too many."""
    pairs = {")": "(", "}": "{"}
    if mistake.found not in pairs or mistake.found in mistake.accepted:
        return None
    if mistake.found == ")" and mistake.operator_fits and "," not in mistake.accepted:
        return "no '(' is open here: remove it"
    if mistake.found == "}" and "DEF" in mistake.accepted:
        return "no '{' is open here: remove it"
    return None


def _extremum(mistake: Mistake) -> str | None:
    """``min(a)`` and ``min(a, b, c)``."""
    opened, _ = innermost(mistake.source.text, mistake.span.start)
    if opened is None or mistake.found not in (")", ","):
        return None
    word = re.search(r"\b(min|max)\s*$", mistake.source.text[:opened][-80:])
    if word is None:
        return None
    if mistake.found == ",":
        return f"{word[1]} takes two operands: write {word[1]}(a, {word[1]}(b, c))"
    return f"{word[1]} takes two operands; over an index, reduce: m {word[1]}=! A(i)"


def _def(mistake: Mistake) -> str | None:
    """A program that does not begin with ``def``, statements that do."""
    if mistake.start == "statements" and mistake.kind == "DEF":
        return "give the statements alone, without a def around them"
    if re.fullmatch(r"\s*[^\s(){}=]+(\.\w+|/[^\s(){}=]+)\s*", mistake.source.text):
        path = mistake.source.text.strip()
        return f"give the text, not its path: open({path!r}).read()"
    if "DEF" in mistake.accepted and mistake.found not in ("}", ")"):
        return "every definition begins with 'def': def name(float(N) A) -> (B) { ... }"
    return None


def _clause(mistake: Mistake) -> str | None:
    """``where i = 0:N``, ``where i in 0:N:2``, ``where`` alone."""
    if mistake.accepted == {"NAME", "EXISTS"}:
        return "a clause is i in 0:N, t = x(i), or exists x(i) > 0"
    if mistake.found == ":" and (index := re.search(r"(\w+)\s+in\b[^:]+:[^:]+$", mistake.before)):
        name = index[1]
        return f"a range has no step: let {name} count the steps, and write 2*{name} in subscripts"
    if mistake.found == ":" and re.search(r"\w\s*=[^=]*$", mistake.before):
        return "a range is written with 'in': where i in 0:N"
    return None


def _extent(mistake: Mistake) -> str | None:
    """``float(N + 1) x``, ``float(:, :) x``, ``float(N, -1) x``."""
    is_open = mistake.found in ("?", ":", "*", "-") or mistake.kind == "FLOAT"
    if is_open and {"NAME", "INT"} <= mistake.accepted <= {"NAME", "INT", ")"}:
        return "name each dimension, as in float(M, N) x: a call says how long they are"
    if mistake.found in ("+", "-", "/", "%") and mistake.accepted <= {",", ")", "*"}:
        return (
            "an extent is a number, a size or a product of these: give the dimension a size of its"
            " own; a result may leave its dimensions out, which are inferred"
        )
    return None


def _one_target(mistake: Mistake) -> str | None:
    """``(P) = f(A)``, and ``f(A)(i)``."""
    if mistake.found == "(" and "TARGETS_OPEN" in mistake.accepted:
        if mistake.before.endswith(")"):  # f(x)(i)
            return (
                "what a call returns has no subscripts there: assign it, T = f(A), and read T(i) "
                "in another statement"
            )
        return "only a call with several outputs has its targets in parentheses: (P, Q) = f(A)"
    return None


def _half_a_choice(mistake: Mistake) -> str | None:
    """``y(i) = c ? a``."""
    if ":" in mistake.accepted and mistake.operator_fits and "?" in mistake.before:
        return "a choice has a value for either case: c ? a : b"
    return None


def _no_operator(mistake: Mistake) -> str | None:
    """``y(i) = a(i) b(i)``: ``b(i)`` begins the next statement, which is no assignment."""
    begun = re.search(r"[\w)]\s+(\w+(?:\s*\([^()=]*\))?)\s*$", mistake.before)
    if begun is None or "REDUCE" not in mistake.accepted:
        return None
    return (
        f"'{begun[1]}' begins a statement: if it belongs to the value before it, an operator is"
        " missing between them"
    )


def _assigned_in_expression(mistake: Mistake) -> str | None:
    """``A(i) = 0 ? 1 : 2``."""
    if mistake.kind == "ASSIGN" and mistake.operator_fits:
        return "write '==' to compare"
    return None


_GUESSES: tuple[Callable[[Mistake], str | None], ...] = (
    _double_sign,
    _comparison_or_assignment,
    _other_language,
    _word_operator,
    _arrow,
    _def,
    _half_a_choice,
    _unclosed,
    _number_for_a_name,
    _reserved_word,
    _untyped_parameter,
    _not_opened,
    _extremum,
    _clause,
    _extent,
    _one_target,
    _assigned_in_expression,
    _no_operator,
)
