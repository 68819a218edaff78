"""``examples/train_digits.py``: a layer and a loss as comprehensions, beside PyTorch's formulas."""

import runpy
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("sklearn")

SCRIPT = Path(__file__).parents[2] / "examples" / "train_digits.py"


@pytest.mark.slow
def test_the_losses_are_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The script fails itself where the losses of a step are apart."""
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), "--steps", "30"])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines[:2]] == ["tcdsl", "torch"]
    assert "differ by" in lines[2]
