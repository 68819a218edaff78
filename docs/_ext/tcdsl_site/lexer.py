"""Colours: for programs, the lexer that tcdsl registers with Pygments (a plain one until there is
one), and for the rules of the grammar.
"""

import re
from importlib.metadata import entry_points

from docutils import nodes
from pygments.lexer import RegexLexer, words
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Whitespace
from sphinx.application import Sphinx

_TYPES = (
    "bool", "int", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float", "float16", "float32", "float64", "bfloat16", "double", "half",
    "float8_e4m3", "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip


class PlainLexer(RegexLexer):
    """Words, numbers and operators of the language."""

    name = "Tensor comprehensions"
    tokens = {  # noqa: RUF012
        "root": [
            (r"^%%tcdsl.*$", Name.Decorator),
            (r"#.*$", Comment.Single),
            (r"\s+", Whitespace),
            (words(("def", "where", "in", "exists"), suffix=r"\b"), Keyword),
            (words(_TYPES, suffix=r"\b"), Keyword.Type),
            (words(("true", "false", "inf", "nan"), suffix=r"\b"), Keyword.Constant),
            (r"(\+|\*|min|max|and|or)=!?|arg(min|max)=!", Operator),
            (r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\w*", Number),
            (r"[A-Za-z_]\w*", Name),
            (r"->|<=>|[-+*/%<>=!&|^~?:]", Operator),
            (r".", Punctuation),
        ]
    }


class GrammarLexer(RegexLexer):
    """What ``ebnf.rule_text`` writes."""

    name = "Grammar rules"
    tokens = {  # noqa: RUF012
        "root": [
            (r"\(\*.*?\*\)", Comment),
            (r"\s+", Whitespace),
            (r'"[^"]*"|\'[^\']*\'', String),
            (r"/\[(?:[^\]\\]|\\.)*\]/|/\\./", String.Regex),
            (r"^(\w+)(?= =)", Name.Function),
            (r"\w+", Name),
            (r"[=|]", Operator),
            (r"[][(){}]", Punctuation),
        ]
    }


def choose_lexers(app: Sphinx, page: nodes.document) -> None:
    """Colour cells of notebooks as what they are: programs, or Python with IPython's commands."""
    for block in page.findall(nodes.literal_block):
        if block.get("language") in ("python", "ipython", "ipython3"):
            is_program = block.astext().lstrip().startswith("%%tcdsl")
            is_cell = re.search(r"^\s*[%!]", block.astext(), re.MULTILINE)
            block["language"] = "tc" if is_program else "ipython3" if is_cell else "python"


def add_lexer(app: Sphinx) -> None:
    """Add the lexers; that for ``tc`` only if no installed package (tcdsl itself) has one."""
    app.add_lexer("grammar", GrammarLexer)
    if not any(point.name == "tc" for point in entry_points(group="pygments.lexers")):
        app.add_lexer("tc", PlainLexer)
