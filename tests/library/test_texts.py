"""The programs' text: cut into defs as the parser does, and made for an element type."""

from importlib import resources

import pytest

from tcdsl.lang.syntax.parser import parse_program
from tcdsl.library import texts
from tcdsl.source import Source

FILES = sorted(
    path.name.removesuffix(".tc")
    for path in resources.files("tcdsl.library").joinpath("programs").iterdir()
    if path.name.endswith(".tc")
)


@pytest.mark.parametrize("stem", FILES)
def test_defs_and_declarations_are_those_that_the_parser_finds(stem: str) -> None:
    program = parse_program(Source(texts.file_text(stem), stem))
    assert [definition.name for definition in program.defs] == list(texts.defs(stem))
    for definition in program.defs:
        found = texts.defs(stem)[definition.name].params
        assert [(p.name, p.dtype_for("float32"), p.dims) for p in found] == [
            (p.name, str(p.dtype), tuple(map(str, p.dims))) for p in definition.params
        ]


@pytest.mark.parametrize("stem", FILES)
def test_every_def_has_a_comment_and_fits_the_page(stem: str) -> None:
    assert all(definition.text.startswith("# ") for definition in texts.defs(stem).values())
    assert max(map(len, texts.file_text(stem).splitlines())) <= 100


def test_a_program_brings_the_defs_that_it_calls_and_no_others() -> None:
    program = parse_program(Source(texts.program_text("graphs", "four_graphs")))
    assert [definition.name for definition in program.defs] == [
        "row_softmax",
        "row_mean",
        "four_graphs",
    ]


def test_elements_are_half_but_what_is_computed_is_float32() -> None:
    text = (
        "def f(float(N) x, float s, int32(N) l) -> (float(N) y, float t) {\n"
        " y(i) = float(x(i))\n}\n"
    )
    assert texts.with_element(text, "float16") == (
        "def f(float16(N) x, float32 s, int32(N) l) -> (float16(N) y, float32 t) {\n"
        " y(i) = float32(x(i))\n}\n"
    )
    assert texts.with_element(text, "float64").count("float64") == 5


def test_comments_between_defs_keep_their_words() -> None:
    text = "# a float(N) is a float\ndef f(float(N) x) -> (y) {\n y(i) = x(i)\n}\n"
    assert texts.with_element(text, "int64").startswith("# a float(N) is a float\ndef f(int64(N)")
