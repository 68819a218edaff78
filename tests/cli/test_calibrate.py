"""``tcdsl calibrate`` on this machine's CPU, for real."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tcdsl.cli import calibrate
from tcdsl.runtime import calibrated, measure_cpu
from tcdsl.runtime.c_compiler import why_no_compiler

Tcdsl = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.slow
@pytest.mark.skipif(why_no_compiler() is not None, reason="no C compiler")
def test_the_cpu_is_measured_and_kept(tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_cpu, "RUNS", 1)
    code, printed, errors = tcdsl("calibrate", "--target", "cpu")
    assert (code, errors) == (0, "")
    assert "measured" in printed and "ratio" in printed and "assumed" in printed
    kept = calibrated.kept(calibrated.cpu_name())
    assert kept and all(name in printed for name in kept)
    assert calibrated.cpu_of(2).dram_read_bytes_per_s == kept["dram_read_bytes_per_s"]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU that was measured in no time."""
    numbers = {"fork_s": 2e-6, "l2_bytes": float(2 << 20)}
    monkeypatch.setattr(measure_cpu, "cpu_numbers", lambda _: numbers)


def test_a_dry_run_keeps_nothing(tcdsl: Tcdsl, measured: None) -> None:
    code, printed, _ = tcdsl("calibrate", "--target", "cpu", "--dry-run")
    assert code == 0 and "kept" not in printed
    assert calibrated.kept(calibrated.cpu_name()) == {}


def test_numbers_that_cannot_be_kept(
    tcdsl: Tcdsl, measured: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TCDSL_CACHE", "off")
    code, printed, _ = tcdsl("calibrate", "--target", "cpu")
    assert code == 1 and "cannot be kept" in printed


def test_without_a_gpu_cuda_is_an_error(tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch) -> None:
    if calibrate._has_gpu():
        pytest.skip("there is a GPU")
    code, _, errors = tcdsl("calibrate", "--target", "cuda")
    assert code == 2 and "TC0" in errors


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("dram_read_bytes_per_s", 4.378e12, "4378 GB/s"),
        ("launch_s", 2.5e-6, "2.5 us"),
        ("block_barrier_s", 3e-8, "30 ns"),
        ("clock_hz", 1.6e9, "1.6 GHz"),
        ("l2_bytes", 2 << 20, "2048 KiB"),
        ("fma_f32", 2.55e13, "2.55e+04 G/s"),
        ("fma_f32_per_s", 8e10, "80 G/s"),
    ],
)
def test_quantities_have_units(name: str, value: float, text: str) -> None:
    assert calibrate.quantity(name, value) == text
