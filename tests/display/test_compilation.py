"""The stages of a compilation, each alone, all in a cell, all on a page."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tcdsl
from tcdsl.display.steps import WHAT
from tcdsl.executable import Executable

SOFTMAX = """def softmax(float(M, N) x) -> (y) {
    top(m) max=! x(m, n)  # <b>the largest</b>
    power(m, n) = exp(x(m, n) - top(m))
    total(m) +=! power(m, n)
    y(m, n) = power(m, n) / total(m)
}
"""
CHANNELS = "def channels(float(N, C, H, W) x) -> (s) { s(c) +=! x(n, c, h, w) }"
GRID = """def grid(float(N, M) cost) -> (best) {
    best(i, j) = cost(i, j)
    best(i, j) = cost(i, j) + min(best(i - 1, j), best(i, j - 1)) where i in 1:N, j in 1:M
}
"""
STAGES = [
    "program", "comprehension", "scop", "transforms", "schedule", "plan", "choices", "candidates",
    "code", "explain",
]  # fmt: skip
ON_A_PAGE = [
    "explain", "traffic", "candidates", "program", "code", "plan", "comprehension", "scop",
    "transforms", "schedule", "choices",
]  # fmt: skip

Checked = Callable[[str], Any]


def compiled(source: str, *shapes: tuple[int, ...], **choices: Any) -> Executable:
    program = tcdsl.define(source)
    specs = [tcdsl.spec(shape, "float32") for shape in shapes]
    return program[program.names[0]].compile(*specs, **choices)


@pytest.fixture(scope="module")
def softmax() -> Executable:
    return compiled(SOFTMAX, (64, 1000), target="cpu")


@pytest.fixture(scope="module")
def softmax_cuda() -> Executable:
    return compiled(SOFTMAX, (64, 1000), target="emulate")


def page_of(exe: Executable, folder: Path) -> str:
    path = folder / "report.html"
    exe.report(path)
    return path.read_text(encoding="utf-8")


def test_the_page_begins_with_reasons_and_folds_the_way_there(
    softmax: Executable, tmp_path: Path
) -> None:
    text = page_of(softmax, tmp_path)
    is_open = dict(re.findall(r'<section id="stage-(\w+)"><details( open[^>]*)?>', text))
    assert [name for name, mark in is_open.items() if not mark] == ON_A_PAGE[6:]
    program = text[text.index('id="stage-program"') : text.index('id="stage-code"')]
    assert '<span class="ink-keyword">def</span>' in program
    assert '<span class="ink-call">exp</span>' in program and "&lt;b&gt;the largest" in program
    traffic = text[text.index('id="stage-traffic"') : text.index('id="stage-candidates"')]
    assert "<code>x</code> loaded" in traffic and "250 KB" in traffic


def test_the_page_is_whole(softmax: Executable, checked: Checked, tmp_path: Path) -> None:
    text = page_of(softmax, tmp_path)
    page = checked(text)
    assert text.startswith("<!DOCTYPE html>")
    assert [name for name in page.ids if name.startswith("stage-")] == [
        f"stage-{name}" for name in ON_A_PAGE
    ]
    assert page.outside == ["data:,"]  # the icon; nothing is fetched
    for line in softmax.source.splitlines():
        assert line in page.text
    assert "target cpu" in page.text and "M = 64" in page.text


@pytest.mark.parametrize("name", STAGES)
def test_a_stage_shows_itself(name: str, softmax_cuda: Executable, checked: Checked) -> None:
    stage = getattr(softmax_cuda.compilation, name)
    bundle = stage._repr_mimebundle_()
    checked(bundle["text/html"])
    assert bundle["text/plain"] == str(stage) != ""
    assert name in repr(stage)


def test_a_cell_shows_all_stages(softmax: Executable, checked: Checked) -> None:
    first, second = (softmax._repr_mimebundle_()["text/html"] for _ in range(2))
    page = checked(first + second)  # two cells on a page share no anchors
    assert page.tags.count("style") == 2
    assert softmax._repr_mimebundle_()["text/plain"] == repr(softmax)


def test_unknown_stages_are_attribute_errors(softmax: Executable) -> None:
    with pytest.raises(AttributeError, match="no stage 'polyhedra': its stages are program, "):
        softmax.compilation.polyhedra  # noqa: B018
    assert not hasattr(softmax.compilation, "_repr_png_")
    assert {"scop", "plan"} <= set(dir(softmax.compilation))


def test_code_from_the_cache_is_planned_again() -> None:
    first = compiled(SOFTMAX, (40, 50), target="cpu")
    again = compiled(SOFTMAX, (40, 50), target="cpu")
    assert again is not first
    assert str(again.compilation.code) == first.source
    assert str(again.compilation.schedule) == first.schedule


def test_the_oracle_shows_its_program(checked: Checked, tmp_path: Path) -> None:
    page = checked(page_of(compiled(SOFTMAX, (4, 5), target="reference"), tmp_path))
    assert "stage-program" in page.ids and "stage-scop" not in page.ids


def test_open_sizes_are_shown(checked: Checked, tmp_path: Path) -> None:
    options = tcdsl.Options(dynamic_sizes=("M",))
    exe = compiled(SOFTMAX, (40, 50), target="cpu", options=options)
    page = checked(page_of(exe, tmp_path))
    assert "M = open" in page.text and "dynamic_sizes=('M',)" in page.text


# --- text of the user's --------------------------------------------------------------------


def test_text_of_the_users_is_escaped(checked: Checked, tmp_path: Path) -> None:
    text = page_of(compiled(SOFTMAX, (4, 5), target="cpu"), tmp_path)
    checked(text)
    assert "&lt;b&gt;the largest&lt;/b&gt;" in text and "<b>" not in text


def test_nothing_of_the_users_becomes_an_element(checked: Checked, tmp_path: Path) -> None:
    source = (
        "# </pre><script>alert(1)</script>\n"
        "def f(float(N) x) -> (y) { # \"><img src=x onerror='alert(1)'>\n"
        "  y(i) = x(i) < 1.0 && x(i) > 0.0 ? 1.0 : 0.0  # </style></details>\n}"
    )
    page = checked(page_of(compiled(source, (64,), target="cpu"), tmp_path))
    assert "img" not in page.tags and page.tags.count("script") == 1
    assert "onerror" not in page.attributes
    assert "onerror='alert(1)'" in page.text


# --- lines and statements ------------------------------------------------------------------


@pytest.mark.parametrize("target", ["cpu", "emulate"])
def test_lines_lead_to_their_statement_and_back(target: str, tmp_path: Path) -> None:
    exe = compiled(SOFTMAX, (64, 1000), target=target)
    text = page_of(exe, tmp_path)
    lines = str(exe.compilation.code).split("\n")
    found: dict[str, list[str]] = {}
    for number, source in re.findall(r'id="code-(\d+)"[^>]* data-s="(S\d)"', text):
        found.setdefault(source, []).append(lines[int(number) - 1])
        assert f'<a href="#source-{source}"' in text
    assert sorted(found) == ["S0", "S1", "S2", "S3"]
    assert any("exp" in line for line in found["S1"])
    assert not any("exp" in line for name in ("S0", "S2", "S3") for line in found[name])
    assert any("max" in line for line in found["S0"])
    assert any("y[" in line for line in found["S3"])
    # Each statement of the program leads to its first line.
    for source, link in re.findall(r'href="#(code-\d+)" id="source-(S\d)"', text):
        assert f'id="{source}" data-s="{link}"' in text


def test_statements_of_lines_survive_the_tidying(softmax_cuda: Executable) -> None:
    compiled_ = softmax_cuda.compilation.compiled
    assert compiled_ is not None
    source = compiled_.source
    assert len(source.statements) == source.text.count("\n") + 1
    named = {
        name: line
        for name, line in zip(source.statements, source.text.split("\n"), strict=True)
        if name
    }
    assert set(named) <= set(compiled_.plan.scop.by_name)
    assert "tc_vstore" in named["S3"] or "=" in named["S3"]


# --- what the stages say -------------------------------------------------------------------


def test_the_canonical_form_stands_beside_the_program(checked: Checked) -> None:
    exe = compiled(CHANNELS, (4, 8, 16, 20), target="cpu")
    page = checked(exe.compilation.comprehension._repr_mimebundle_()["text/html"])
    for text in (
        "s(c) +=! x(n, c, h, w)",
        "s(c) +=! x(n, c, h_w)",
        "alternation",
        "h, w -> h_w (16 * 20)",
        "n reduced, c kept, h_w reduced",
        "4 x 8 x 320",
    ):
        assert text in page.text  # fmt: skip


def test_transforms_are_shown_before_and_after(softmax_cuda: Executable, checked: Checked) -> None:
    stage = softmax_cuda.compilation.transforms
    names = [step.name for step in stage.value]
    # Invariants are those of the groups that were found, and join these.
    planned = ["shifted exponentials", "plan search", "loop-invariant code motion"]
    assert names[:5] == [*planned, "fusion", "rfactor"] and names[-1] == "synchronisation"
    page = checked(stage._repr_mimebundle_()["text/html"])
    assert page.text.count("before") == page.text.count("after") >= 2
    moved = "loop-invariant code motion\n  new S3_row0[m]: assign writes S3_row0.value[m]"
    assert moved in str(stage)
    assert "new S0_part0_init[m, l0]: init writes top.part0[m, l0]" in str(stage)
    assert "gone S0_init[m]: init writes top[m]" in str(stage)


def test_loops_have_the_colours_of_their_kinds(softmax_cuda: Executable) -> None:
    html = softmax_cuda.compilation.schedule._repr_mimebundle_()["text/html"]
    assert re.search(r'class="badge ink-block"[^>]*>block\.x\[\d+\]', html)
    assert re.search(r'class="badge ink-thread"[^>]*>thread\.x\[\d+\]', html)
    assert 'class="badge ink-registers"' in html  # what lives in a loop


def test_the_plan_says_where_arrays_live_and_what_moves(
    softmax_cuda: Executable, checked: Checked
) -> None:
    page = checked(softmax_cuda.compilation.plan._repr_mimebundle_()["text/html"])
    assert "64 blocks of 256 threads" in page.text
    assert "registers" in page.text and "memory" in page.text
    assert "250 KB" in page.text  # 64 * 1000 floats, loaded and stored


def test_every_transform_has_a_sentence() -> None:
    """The names are what ``record`` is called with."""
    root = Path(tcdsl.__file__).parent
    texts = [path.read_text(encoding="utf-8") for path in root.rglob("*.py")]
    names = {name for text in texts for name in re.findall(r'\brecord\(\s*"([^"]+)"', text)}
    assert "fusion" in names
    assert names - WHAT.keys() == set()
    assert WHAT.keys() - names == set()
