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


@pytest.mark.parametrize(("has_pycuda", "words"), [(True, "is installed"), (False, "is not")])
def test_a_driver_without_use_is_a_note(
    has_pycuda: bool, words: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "driver").write_text("NVRM version")
    monkeypatch.setattr(doctor, "NVIDIA_DRIVER", tmp_path / "driver")
    monkeypatch.setattr(doctor, "find_spec", lambda _: object() if has_pycuda else None)
    finding = doctor.examine_gpu()
    assert finding.state is State.NOTE
    assert words in finding.detail


def test_an_examination_that_raises_is_a_finding() -> None:
    def raises() -> Finding:
        raise BAD_SETTING(name="X", value="y", what="odd", values="even")

    finding = doctor.examine("subject", raises)
    assert finding.state is State.BROKEN
    assert "odd" in finding.detail
    assert finding.remedy == "set it to even, or unset it"
