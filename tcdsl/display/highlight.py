"""Code in the colours of the style sheet, its words told apart by a lexer of Pygments.

"def f"   --->   <span class="ink-keyword">def</span> <span class="ink-call">f</span>
"""

from typing import Any

from pygments.token import Comment, Keyword, Name, Number, _TokenType

from tcdsl.display.html import Html, escape, join, tag

# The first that a token is of; what is of none keeps the colour of the text.
_PAINTS: tuple[tuple[_TokenType, str], ...] = (
    (Comment, "comment"),
    (Keyword.Type, "type"),
    (Keyword.Constant, "number"),
    (Keyword, "keyword"),
    (Name.Builtin, "call"),
    (Name.Function, "call"),
    (Number, "number"),
)


def highlighted(text: str, lexer: Any) -> Html:
    """Return *text* as *lexer* reads it; not a character is added or lost."""
    parts = lexer.get_tokens_unprocessed(text)
    return join(*(_painted(token, value) for _, token, value in parts))


def highlighted_tc(text: str) -> Html:
    """Return *text*, a program of the language."""
    # Lark's tables are loaded, and Pygments, where a program is shown for the first time.
    from tcdsl.lang.syntax.pygments_lexer import TcLexer

    return highlighted(text, TcLexer())


def _painted(token: _TokenType, value: str) -> Html:
    kinds = token.split()
    paint = next((paint for kind, paint in _PAINTS if kind in kinds), None)
    return tag("span", value, class_=f"ink-{paint}") if paint and value.strip() else escape(value)
