import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tcdsl.frontends.stages import OF_THE_DEF, STAGES

Tcdsl = Callable[..., tuple[int, str, str]]
SIZES = ("--size", "M=7", "--size", "K=5", "--size", "N=3")


@pytest.mark.parametrize(
    ("stage", "part"),
    [
        ("program", "def matmul"),
        ("ast", "Def name='matmul'"),
        ("comprehension", "matmul"),
        ("coalesced", "S0"),
        ("transforms", "S0"),
        ("plan", "kernel"),
        ("scop", "S0"),
        ("schedule", "S0"),
        ("tree", "domain"),
        ("choices", '"format": "tcdsl choices"'),
        ("candidates", "kernel S0"),
        ("code", "int"),
        ("explain", "kernel"),
    ],
)
def test_every_stage_is_shown(stage: str, part: str, tcdsl: Tcdsl, program: Path) -> None:
    code, printed, errors = tcdsl("show", program, "--stage", stage, *SIZES)
    assert (code, errors) == (0, "")
    assert part in printed


def test_no_stage_is_forgotten() -> None:
    tested = (
        "program ast comprehension coalesced scop transforms schedule tree plan choices candidates"
    )
    assert set(STAGES) == {*tested.split(), "code", "explain"}


def test_candidates_of_a_gpus_kernels_are_a_table(tcdsl: Tcdsl, tmp_path: Path) -> None:
    path = tmp_path / "rows.tc"
    path.write_text("def rows(float(M, N) x) -> (y) { y(i) +=! x(i, j) }")
    code, printed, _ = tcdsl(
        "show", path, "--stage", "candidates", "--target", "emulate", "-s", "M=512,N=512"
    )
    assert code == 0
    (chosen,) = [line for line in printed.splitlines() if line.startswith("  * ")]
    assert re.fullmatch(r"  \* +\d+\.\d us  \w+ +row: threads \d+, .*", chosen)
    assert "    not column, elementwise: neighbours in memory" in printed


@pytest.mark.parametrize("stage", OF_THE_DEF)
def test_the_first_stages_need_no_sizes(stage: str, tcdsl: Tcdsl, program: Path) -> None:
    code, printed, _ = tcdsl("show", program, "twice", "--stage", stage)
    assert code == 0
    assert "twice" in printed
    assert ("matmul" in printed) == (stage == "program")  # which is the whole text


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
    assert "hint: make the folder" in errors


def test_later_stages_ask_for_sizes(tcdsl: Tcdsl, program: Path) -> None:
    code, _, errors = tcdsl("show", program, "--stage", "code")
    assert code == 2
    assert "hint: add --size M=64,K=64,N=64" in errors


@pytest.mark.parametrize("stage", ["ast", "code"])
def test_an_unknown_name_lists_the_known_ones(stage: str, tcdsl: Tcdsl, program: Path) -> None:
    code, _, errors = tcdsl("show", program, "nothing", "--stage", stage)
    assert code == 2
    assert "hint: it defines twice, matmul" in errors


def test_the_precision_is_that_of_options(tcdsl: Tcdsl, tmp_path: Path) -> None:
    path = tmp_path / "mm.tc"
    path.write_text("def mm(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }")
    words = (path, "-s", "M=64,N=64,K=64", "--precision", "float16x3", "--target", "emulate")
    code, printed, _ = tcdsl("show", *words, "--stage", "candidates")
    assert code == 0 and "products of float16 parts" in printed
    assert tcdsl("run", *words, "--check")[0] == 0
