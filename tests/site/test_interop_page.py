"""The programs of the pages that need PyTorch run as printed."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

DOCS = Path(__file__).parents[2] / "docs"


def run_programs(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 3
    exec(compile("\n".join(blocks), page, "exec"), {"__name__": page})


@pytest.mark.parametrize("page", ["interop.md", "coming_from.md", "pytorch.md"])
def test_programs_run(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)  # the target is the CPU here
    run_programs(page)


@pytest.mark.gpu
def test_programs_run_on_a_gpu() -> None:
    run_programs("pytorch.md")
