"""The programs of the page on other libraries run as printed; they take PyTorch."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")


def test_programs_run() -> None:
    page = Path(__file__).parents[2] / "docs" / "interop.md"
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 5
    exec(compile("\n".join(blocks), "interop.md", "exec"), {"__name__": "interop"})
