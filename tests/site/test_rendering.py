"""What the site adds to Sphinx: formulas, colours.  .ci/run runs this where Sphinx is installed."""

from importlib.resources import files

import pytest

pytest.importorskip("sphinx")

from docutils import nodes
from docutils.frontend import get_default_settings
from docutils.utils import new_document
from pygments.lexer import RegexLexer
from pygments.token import Error, Keyword, Operator, String

from tcdsl_site import ebnf, formulas, lexer
from tcdsl_site.formulas import mathml
from tcdsl_site.grammar_rules import sections


def test_formulas_become_mathml() -> None:
    block = mathml(nodes.math_block("", r"\sum_k A_{mk} \Big( B_{kn} \Big)"), as_block=True)
    assert block.startswith("<math") and 'display="block"' in block and "Big" not in block
    assert "<mi>i</mi>" in mathml(nodes.math("", "i = -5"), as_block=False)


def test_what_cannot_be_read_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    warned: list[tuple[object, ...]] = []
    monkeypatch.setattr(formulas._logger, "warning", lambda *args, location: warned.append(args))
    assert mathml(nodes.math("", r"\nonsense x"), as_block=False) == r"<code>\nonsense x</code>"
    assert len(warned) == 1


def tokens(text: str, made: type[RegexLexer]) -> list[tuple[object, str]]:
    return list(made().get_tokens(text))


def test_programs_have_colours() -> None:
    folder = files("tcdsl.library").joinpath("programs")
    texts = [path.read_text() for path in folder.iterdir() if path.name.endswith(".tc")]
    assert texts
    for text in texts:
        assert not [value for kind, value in tokens(text, lexer.PlainLexer) if kind is Error]
    found = tokens("def f(float(N) x) -> (y) { y +=! x(i) }", lexer.PlainLexer)
    assert (Keyword, "def") in found and (Keyword.Type, "float") in found
    assert (Operator, "+=!") in found


def test_rules_have_colours() -> None:
    grammar = files("tcdsl.grammar").joinpath("tc.lark").read_text(encoding="utf-8")
    for section in sections(grammar):
        for rule in section.rules:
            found = tokens(ebnf.rule_text(rule), lexer.GrammarLexer)
            assert not [value for kind, value in found if kind is Error], rule.name
    assert (String, '"def"') in tokens('definition = "def" NAME', lexer.GrammarLexer)


@pytest.mark.parametrize(("language", "text", "chosen"), [
    ("ipython3", "%%tcdsl --target cpu\ndef f() -> () {}", "tc"),
    ("python", "%load_ext tcdsl", "ipython3"),
    ("ipython3", "x = 1", "python"),
    ("c", "%%tcdsl", "c"),
])  # fmt: skip
def test_cells_are_coloured_as_what_they_are(language: str, text: str, chosen: str) -> None:
    page = new_document("page", get_default_settings())
    page += nodes.literal_block(text, text, language=language)
    lexer.choose_lexers(None, page)  # type: ignore[arg-type]
    assert page[0]["language"] == chosen
