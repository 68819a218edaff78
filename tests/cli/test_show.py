from collections.abc import Callable
from pathlib import Path

import pytest

from tcdsl.cli.show import tree_lines
from tcdsl.lang.parser import parse_program
from tcdsl.source import Source

Tcdsl = Callable[..., tuple[int, str, str]]
SIZES = ("--size", "M=7", "--size", "K=5", "--size", "N=3")


def test_the_tree_of_a_definition() -> None:
    text = "def f(float(N) x) -> (y) { y(i) = x(i) + 1.0 }"
    (definition,) = parse_program(Source(text)).defs
    lines = list(tree_lines(definition))
    assert lines[0] == "Def name='f'"
    assert any(line.strip().startswith("value: Binary op='+'") for line in lines)
    assert any("Number value=1.0 dtype=float32" in line for line in lines)
    assert not any("Span" in line for line in lines)


@pytest.mark.parametrize(
    ("stage", "part"),
    [
        ("ast", "Def name='matmul'"),
        ("comprehension", "matmul"),
        ("scop", "S0"),
        ("schedule", "S0"),
        ("code", "int"),
        ("explain", "kernel"),
    ],
)
def test_every_stage_is_shown(stage: str, part: str, tcdsl: Tcdsl, program: Path) -> None:
    code, printed, errors = tcdsl("show", program, "--stage", stage, *SIZES)
    assert (code, errors) == (0, "")
    assert part in printed


@pytest.mark.parametrize("stage", ["ast", "comprehension"])
def test_the_first_stages_need_no_sizes(stage: str, tcdsl: Tcdsl, program: Path) -> None:
    code, printed, _ = tcdsl("show", program, "twice", "--stage", stage)
    assert code == 0
    assert "twice" in printed
    assert "matmul" not in printed


@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_all_stages_go_to_a_page(target: str, tcdsl: Tcdsl, program: Path, tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    code, printed, errors = tcdsl("show", program, "--html", page, "--target", target, *SIZES)
    assert (code, errors) == (0, "") and printed.startswith("wrote ")
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>") and "matmul" in text


def test_a_page_that_cannot_be_written_is_an_error(
    tcdsl: Tcdsl, program: Path, tmp_path: Path
) -> None:
    code, _, errors = tcdsl("show", program, "--html", tmp_path / "no" / "out.html", *SIZES)
    assert code == 2
    assert "hint: name a file in a folder that exists" in errors


def test_later_stages_ask_for_sizes(tcdsl: Tcdsl, program: Path) -> None:
    code, _, errors = tcdsl("show", program, "--stage", "code")
    assert code == 2
    assert "hint: add --size M=64 --size K=64 --size N=64" in errors


@pytest.mark.parametrize("stage", ["ast", "code"])
def test_an_unknown_name_lists_the_known_ones(stage: str, tcdsl: Tcdsl, program: Path) -> None:
    code, _, errors = tcdsl("show", program, "nothing", "--stage", stage)
    assert code == 2
    assert "hint: it defines twice, matmul" in errors
