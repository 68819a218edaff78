"""Every error has a section, and every section an example that raises the error."""

import subprocess
import sys
from pathlib import Path

import pytest

from tcdsl_site import error_page
from tcdsl_site.error_page import Example, catalogue, completed, examples, raised, why_not_here
from tcdsl_site.generated import regenerated

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "errors.md").read_text(encoding="utf-8")
EXAMPLES = examples(PAGE)
REGENERATE = "run: python docs/_ext/regenerate.py docs/errors.md"
# What a machine without a GPU cannot show; that there is none (TC067) it can.
ON_A_GPU = [code for code, e in EXAMPLES.items() if "GPU" in e.needs and e.needs != "no GPU"]

IN_A_CHILD = """
import sys
sys.path.insert(0, {folder!r})
from tcdsl_site.error_page import Example, raised
error = raised(Example({code!r}, "python", {text!r}, ""))
print("raised", error.code if error else error)
"""


def test_there_is_a_section_for_every_error_and_no_other() -> None:
    assert set(EXAMPLES) == set(catalogue())


@pytest.mark.parametrize("code", [code for code in EXAMPLES if code not in ON_A_GPU])
def test_the_example_raises_the_error(code: str) -> None:
    example = EXAMPLES[code]
    if why := why_not_here(example):
        pytest.skip(why)
    error = raised(example)
    assert error is not None and error.code == code, error
    assert type(error).__name__ in (catalogue()[code].kind.__name__, "EmulationError")
    (body,) = (body for found, body in error_page._SECTION.findall(PAGE) if found == code)
    assert f"\n```text\n{error_page.lasting_text(error)}\n```\n" in body, REGENERATE


def test_classes_messages_and_the_table_are_those_of_the_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(error_page, "_output", lambda example: "")  # compared above
    assert regenerated("errors", PAGE) == PAGE, REGENERATE


@pytest.mark.gpu
@pytest.mark.parametrize("code", ON_A_GPU)
def test_the_example_raises_the_error_on_a_gpu(code: str) -> None:
    torch = pytest.importorskip("torch", reason="the examples take tensors of PyTorch")
    example = EXAMPLES[code]
    if not torch.cuda.is_available() or ("two" in example.needs and torch.cuda.device_count() < 2):
        pytest.skip(f"it needs {example.needs}")
    # In a process of its own: some end the use of CUDA for good.
    script = IN_A_CHILD.format(folder=str(DOCS / "_ext"), code=code, text=example.text)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1:] == [f"raised {code}"], done.stdout + done.stderr


def test_sections_say_what_it_means_and_what_to_do() -> None:
    for code, body in error_page._SECTION.findall(PAGE):
        meaning, rest = body.split("```", 1)
        assert len(meaning.partition("\n\n")[2].split()) > 4, code
        assert rest.count("**What to do.**") == 1, code


def test_a_section_is_completed_with_class_message_and_output() -> None:
    page = PAGE[PAGE.index("### TC021") : PAGE.index("### TC023")]
    text = completed(page)
    assert completed(text) == text
    assert text.startswith("### TC021\n`SemanticError`: `<name> is defined twice`\n\n")
    assert "<tc>:1:19: error[TC021]: 'x' is defined twice" in text
    assert "has <declared> dimension(s) but is used with <used> subscript(s)" in text
    assert text.index("error[TC021]") < text.index("**What to do.** Rename one of them.")


def test_an_example_that_does_not_raise_stops_the_build() -> None:
    page = "### TC021\nTwice.\n\n```tc\ndef f(float(N) x) -> (y) { y(i) = x(i) }\n```\n"
    with pytest.raises(AssertionError, match="TC021: got None"):
        completed(page)


def test_examples_leave_no_trace(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import os

    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    text = "import os\nos.environ['TCDSL_THREADS'] = 'x'\nopen('left', 'w')\ntcdsl.define('')"
    error = raised(Example("TC012", "python", text, ""))
    assert error is not None and error.code == "TC012"
    assert dict(os.environ) == before and os.getcwd() == str(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_folders_of_this_machine_are_not_shown() -> None:
    text = completed(PAGE[PAGE.index("### TC074") : PAGE.index("### TC075")])
    assert "TCDSL_NVRTC=.../libnvrtc.so is no file" in text


def test_the_overview_has_a_line_for_each() -> None:
    table = error_page.overview(PAGE)
    assert all(table.count(f"| [{code}](#{code.lower()}) |") == 1 for code in catalogue())
    assert "| `RangeError` | The range of an index does not follow from the text. |" in table
