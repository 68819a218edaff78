"""Paths that cannot be written are errors that say what to do, whoever asked for them."""

from collections.abc import Callable
from errno import EACCES
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.cli.main import main
from tcdsl.runtime.files import make_folder, write_file

TEXT = "def twice(float(N) x) -> (y) { y(i) = x(i) + x(i) }"
PLACES = [
    ("no/such/page.html", "No such file or directory", "make the folder no/such first"),
    ("folder", "Is a directory", "folder is a folder: name a file in it"),
    ("file/page.html", "Not a directory", "file is no folder"),
    ("x" * 300, "File name too long", "name another file"),
]


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("file").write_text("", encoding="utf-8")
    Path("twice.tc").write_text(TEXT, encoding="utf-8")


def report(path: Any) -> None:
    tcdsl.define(TEXT).twice.compile(np.ones(3, np.float32), target="cpu").report(path)


def told(call: Callable[[], Any]) -> tcdsl.TCError:
    with pytest.raises(tcdsl.OptionError) as caught:
        call()
    assert caught.value.code == "TC064"
    return caught.value


@pytest.mark.parametrize(("path", "reason", "hint"), PLACES)
def test_a_report_that_cannot_be_written(path: str, reason: str, hint: str) -> None:
    error = told(lambda: report(path))
    assert error.message == f"report: {path} cannot be written: {reason}"
    assert hint in (error.hint or "")


@pytest.mark.parametrize(("path", "reason", "hint"), PLACES)
def test_a_page_that_cannot_be_written(
    path: str, reason: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", "twice.tc", "--size", "N=3", "--html", path]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"--html: {path} cannot be written: {reason}" in printed.err and hint in printed.err


def test_a_place_that_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: Any, **__: Any) -> None:  # root may write everywhere
        raise PermissionError(EACCES, "Permission denied")

    monkeypatch.setattr(Path, "write_text", denied)
    monkeypatch.setattr(Path, "mkdir", denied)
    error = told(lambda: write_file("page.html", "", "report"))
    assert "Permission denied" in error.message and "of your own" in (error.hint or "")
    assert "Permission denied" in told(lambda: make_folder("below", "save")).message


@pytest.mark.parametrize("path", [3, None, "", "a\0b", b"bytes"])
def test_what_is_no_path(path: Any) -> None:
    error = told(lambda: report(path))
    assert error.message == f"report: {path!r} is no path" and error.hint


def test_paths_of_any_kind_are_written() -> None:
    for path in ("a.html", Path("b.html"), "folder/größe.html"):
        assert write_file(path, "µ", "report").read_text(encoding="utf-8") == "µ"


def test_folders_are_made_and_may_be_there() -> None:
    for _ in range(2):
        assert make_folder("folder/a/b", "save").is_dir()
    assert "cannot be made: " in told(lambda: make_folder("file", "save")).message
