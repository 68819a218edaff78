"""Numbers that were measured here: kept by device and version, and used by later runs."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tcdsl.costmodel.chip import Unit, load_chip
from tcdsl.costmodel.machine import this_cpu
from tcdsl.runtime import calibrated
from tcdsl.runtime.cache import default_cache

H200 = "NVIDIA H200"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_nothing_is_kept_at_first(folder: Path) -> None:
    assert calibrated.kept(H200) == {}
    assert calibrated.chip_of(H200, "sm_90") == load_chip("h200")
    assert not folder.exists(), "looking makes no folder"


def test_a_chip_is_its_file_and_what_was_measured() -> None:
    numbers = {"launch_s": 3e-6, "l2_latency_s": 2.5e-7, "fma_f32": 2.6e13}
    assert calibrated.keep(H200, numbers)
    chip = calibrated.chip_of(H200, "sm_90")
    assert (chip.launch_s, chip.l2_latency_s, chip.rate(Unit.FMA_F32)) == (3e-6, 2.5e-7, 2.6e13)
    assert dict(chip.sources)["launch_s"] == dict(chip.sources)["fma_f32"] == "calibrated"
    assert dict(chip.sources)["atomic_s"] == "assumed"
    same = load_chip("h200")
    assert replace(chip, launch_s=same.launch_s, l2_latency_s=same.l2_latency_s,
                   operations_per_s=same.operations_per_s) == same  # fmt: skip
    assert calibrated.chip_of("NVIDIA H100 80GB HBM3", "sm_90") == load_chip("h100")


def test_another_version_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calibrated.keep(H200, {"launch_s": 3e-6})
    monkeypatch.setattr(calibrated, "VERSION", calibrated.VERSION + 1)
    assert calibrated.kept(H200) == {}


@pytest.mark.parametrize(
    "numbers", [{"launch_us": 3.0}, {"launch_s": -1.0}, {"multiprocessors": 0.5}, {"fma_f32": 0.0}]
)
def test_what_no_chip_is_changes_nothing(numbers: Mapping[str, float]) -> None:
    calibrated.keep(H200, numbers)
    assert calibrated.chip_of(H200, "sm_90") == load_chip("h200")


@pytest.mark.parametrize(
    "text", [b"{", b"[]", b"{}", b'{"numbers": 3}', b'{"numbers": {"a": "b"}}']
)
def test_a_defect_is_a_miss(text: bytes) -> None:
    default_cache().put(calibrated._key(H200), text, {})
    assert calibrated.kept(H200) == {}


def test_a_cpu() -> None:
    assert calibrated.cpu_of(3) == this_cpu(3)
    calibrated.keep(calibrated.cpu_name(), {"l2_bytes": 2.0 * (1 << 20), "fork_s": 1e-6})
    cpu = calibrated.cpu_of(3)
    assert cpu == replace(this_cpu(3), l2_bytes=2 << 20, fork_s=1e-6)
    assert isinstance(cpu.l2_bytes, int)
    calibrated.keep(calibrated.cpu_name(), {"threads": 7.0})
    assert calibrated.cpu_of(3) == this_cpu(3), "threads are the caller's"
