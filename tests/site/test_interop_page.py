"""The programs of the pages that need PyTorch run as printed."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("page", ["interop.md", "coming_from.md", "pytorch.md"])
def test_programs_run(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 3
    exec(compile("\n".join(blocks), page, "exec"), {"__name__": page})
