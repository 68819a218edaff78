"""``examples``: a layer and a loss as comprehensions are trained, and are PyTorch's formulas."""

import runpy
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

# Collecting does not import it: that takes two seconds.
pytestmark = pytest.mark.skipif(
    find_spec("sklearn") is None, reason="the extra of the demo is missing"
)

pytest.importorskip("torch")

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def train_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``train_digits`` a module that ``compare_training`` imports."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "train_digits", raising=False)


@pytest.mark.slow
def test_it_learns_and_the_losses_are_those_of_torch(
    train_digits: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The comparison fails itself where the losses of a step are apart."""
    script = EXAMPLES / "compare_training.py"
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)  # tests without a GPU are alike
    monkeypatch.setattr(sys, "argv", [str(script), "--steps", "30"])
    runpy.run_path(str(script), run_name="__main__")
    *trained, ours, theirs, rate, apart = capsys.readouterr().out.splitlines()
    assert float(trained[-1].partition("%")[0]) > 90
    assert [line.partition(":")[0] for line in (ours, theirs)] == ["tcdsl", "torch"]
    assert "of torch's rate" in rate and "differ by" in apart
