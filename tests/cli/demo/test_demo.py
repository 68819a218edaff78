import argparse
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tcdsl.cli import demo
from tcdsl.cli.demo import digits, photographs, times
from tcdsl.errors import TargetError

# Collecting does not import it: that takes two seconds.
pytestmark = pytest.mark.skipif(
    find_spec("sklearn") is None or find_spec("PIL") is None,
    reason="the extra of the demo is missing",
)


@pytest.mark.slow_but("edges, 427x640 photograph")
@pytest.mark.parametrize("name", times.OPERATIONS)
def test_both_sides_of_every_time_compute_the_same(name: str) -> None:
    assert times.agree(times.OPERATIONS[name]())


def test_different_results_are_not_timed() -> None:
    pair = times.Pair(lambda: np.zeros(3), lambda: np.ones(3))
    assert not times.agree(pair)
    with pytest.raises(AssertionError, match="different things"):
        times.compare(pair)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the demo short: one photograph, few epochs, no real times."""
    monkeypatch.setattr(photographs, "NAMES", ("flower",))
    monkeypatch.setattr(digits, "EPOCHS", 10)
    monkeypatch.setattr(times, "compare", lambda _: (2.0, 3.0))


@pytest.mark.slow
@pytest.mark.usefixtures("short")
def test_the_demo_shows_all_three_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo.run(argparse.Namespace(out=tmp_path)) == 0
    printed = capsys.readouterr().out
    assert f"{tmp_path}/flower-edges.png" in printed
    assert "goal 95%: reached" in printed
    assert "| matmul, 512x512 (NumPy: BLAS)" in printed
    assert "1.5x" in printed


@pytest.mark.usefixtures("short")
@pytest.mark.slow
def test_a_network_that_learns_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(digits, "RATE", 0.0)
    monkeypatch.setattr(digits, "EPOCHS", 1)
    assert demo.run(argparse.Namespace(out=tmp_path)) == 1
    assert "NOT reached" in capsys.readouterr().out


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "find_spec", lambda module: None if module == "PIL" else object())
    with pytest.raises(TargetError) as caught:
        demo.require_packages()
    assert caught.value.hint == "python -m pip install pillow"
