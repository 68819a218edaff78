"""FAULTS 31 and 32, as far as the doctor goes: what is missing, and what to type."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tcdsl.cli import doctor
from tcdsl.cli.doctor import Finding, State
from tcdsl.errors import BAD_SETTING

Tcdsl = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(doctor, "NVIDIA_DRIVER", tmp_path / "no-driver")


def make_compiler(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def test_a_machine_that_has_all_is_well(tcdsl: Tcdsl) -> None:
    code, printed, _ = tcdsl("doctor")
    assert code == 0
    assert printed.rstrip().endswith("all is well")
    for subject in (
        "Python",
        "numpy",
        "islpy",
        "C compiler",
        "flags",
        "OpenMP",
        "threads",
        "cache",
    ):
        assert f"\n{subject} " in "\n" + printed


def test_a_missing_compiler_names_the_command(
    tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(doctor.os, "geteuid", lambda: 1000)
    code, printed, _ = tcdsl("doctor")
    assert code == 1
    assert "broken: C compiler" in printed
    assert "'cc' is not in PATH" in printed
    assert doctor.install_command("gcc") in printed


def test_a_compiler_that_compiles_nothing_is_broken(
    tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bad = make_compiler(tmp_path / "badcc", 'test "$1" = --version && echo badcc 1.0')
    monkeypatch.setenv("TCDSL_CC", bad)
    code, printed, _ = tcdsl("doctor")
    assert code == 1
    assert "makes no shared objects" in printed.replace("\n", " ")
    assert "set TCDSL_CC to a C compiler, or unset it" in printed


def test_a_compiler_that_is_too_old_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    old = doctor.find_compiler().__class__(("gcc",), "gcc (Debian 4.9.2) 4.9.2", ("-O3",))
    monkeypatch.setattr(doctor, "find_compiler", lambda: old)
    finding = doctor.examine_compiler()
    assert finding.state is State.BROKEN
    assert "older than gcc" in finding.detail
    assert finding.remedy is not None


@pytest.mark.parametrize(
    ("identity", "major"),
    [
        ("gcc (Debian 12.2.0-14) 12.2.0", 12),
        ("cc (Ubuntu 9.4.0-1ubuntu1~20.04.2) 9.4.0", 9),
        ("x86_64-linux-gnu-gcc-13 (Debian 13.1.0) 13.1.0", 13),
        ("Debian clang version 14.0.6", None),
    ],
)
def test_gcc_version(identity: str, major: int | None) -> None:
    assert doctor.gcc_version(identity) == major


def test_a_package_that_fails_to_import_is_broken() -> None:
    finding = doctor.examine_package("no_such_package")
    assert finding.state is State.BROKEN
    assert "No module named 'no_such_package'" in finding.detail
    assert finding.remedy is not None
    assert "pip install" in finding.remedy


def test_a_compiler_without_openmp_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    serial = doctor.find_compiler().__class__(("gcc",), "gcc (x) 12.2.0", ("-O3",))
    monkeypatch.setattr(doctor, "find_compiler", lambda: serial)
    assert doctor.examine_openmp().state is State.NOTE


def test_an_unknown_setting_is_a_note_with_the_one_meant(
    tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TCDSL_THREDS", "2")
    code, printed, _ = tcdsl("doctor")
    assert code == 0
    assert "unset TCDSL_THREDS  (or did you mean TCDSL_THREADS?)" in printed


def test_a_setting_without_meaning_is_reported_once(
    tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TCDSL_CACHE", "perhaps")
    code, printed, _ = tcdsl("doctor")
    assert code == 1
    assert printed.rstrip().endswith("broken: settings")
    assert printed.count(BAD_SETTING.code) == 2  # in the table, and above its remedy


def test_a_cache_that_cannot_be_used_is_a_note(
    tcdsl: Tcdsl, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path / "file" / "cache"))
    code, printed, _ = tcdsl("doctor")
    assert code == 0
    assert "set TCDSL_CACHE_DIR to a folder of yours" in printed


class Driver:
    """What the doctor asks of the driver."""

    def __init__(self, version: tuple[int, int] = (13, 0), why: str | None = None) -> None:
        self.version, self.why = version, why

    def why_no_gpu(self) -> str | None:
        return self.why

    def device_count(self) -> int:
        return 2

    def driver_version(self) -> tuple[int, int]:
        return self.version


@pytest.fixture
def with_driver(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``with_driver(version, why, pycuda)``: a machine with that driver and PyCUDA's problem."""

    def set_up(
        version: tuple[int, int] = (13, 0),
        why: str | None = None,
        problem: tuple[str, str] | None = None,
    ) -> None:
        monkeypatch.setattr(doctor, "libcuda", Driver(version, why))
        monkeypatch.setattr(doctor.device, "pycuda_problem", lambda: problem)

    return set_up


def test_no_gpu_is_a_note(with_driver: Callable[..., None]) -> None:
    with_driver(why="no driver", problem=("PyCUDA is not installed", "pip install pycuda"))
    assert doctor.examine_gpu() == Finding("GPU", State.NOTE, "no driver; the CPU is used")
    finding = doctor.examine_pycuda()
    assert finding.state is State.NOTE and finding.remedy is None


def test_half_a_driver_is_broken(with_driver: Callable[..., None]) -> None:
    doctor.NVIDIA_DRIVER.write_text("NVRM version")
    with_driver(why="libcuda.so.1 cannot be loaded")
    finding = doctor.examine_gpu()
    assert finding.state is State.BROKEN
    assert finding.remedy is not None and "nvidia-smi" in finding.remedy


@pytest.mark.parametrize(("is_installed", "state"), [(True, State.BROKEN), (False, State.NOTE)])
def test_a_gpu_without_pycuda_names_the_command(
    is_installed: bool,
    state: State,
    with_driver: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_driver(problem=("no PyCUDA", "pip install pycuda"))
    monkeypatch.setattr(doctor, "find_spec", lambda _: object() if is_installed else None)
    assert doctor.examine_gpu().detail == "2 NVIDIA GPUs, driver for CUDA 13.0"
    finding = doctor.examine_pycuda()
    assert finding.state is state and finding.remedy == "pip install pycuda"


def test_an_nvrtc_newer_than_the_driver_is_broken(with_driver: Callable[..., None]) -> None:
    with_driver(version=(11, 8))
    finding = doctor.examine_nvrtc()
    assert finding.state is State.BROKEN
    assert "serves CUDA 11.8" in finding.detail
    assert finding.remedy is not None and finding.remedy.endswith("nvidia-cuda-nvrtc-cu11")
    with_driver()
    assert doctor.examine_nvrtc().state is State.GOOD


def test_a_wrong_path_of_nvrtc_names_the_variable(
    with_driver: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TCDSL_NVRTC", str(tmp_path / "none"))
    with_driver()
    finding = doctor.examine_nvrtc()
    assert finding.state is State.NOTE and "TCDSL_NVRTC" in finding.detail
    assert finding.remedy is not None


def test_an_examination_that_raises_is_a_finding() -> None:
    def raises() -> Finding:
        raise BAD_SETTING(name="X", value="y", what="odd", values="even")

    finding = doctor.examine("subject", raises)
    assert finding.state is State.BROKEN
    assert "odd" in finding.detail
    assert finding.remedy == "set it to even, or unset it"
