"""Wrong command lines: exit code 2, and what is wrong in one or two lines, before anything runs."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

Tcdsl = Callable[..., tuple[int, str, str]]
SIZES = ("--size", "M=3", "--size", "K=4", "--size", "N=5")


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("folder").mkdir()
    Path("file").write_text("", encoding="utf-8")
    np.save("A.npy", np.ones((3, 4), np.float32))


@pytest.mark.parametrize(("command", "words", "parts"), [
    ("show", ("twise",), ["no 'twise'", "did you mean 'twice'?"]),
    ("show", ("--size", "MM=3"), ["matmul has no size symbol 'MM'", "did you mean 'M'?"]),
    ("show", ("--size", "M=3", "--size", "M=4"), ["'M' is given twice", "give it once"]),
    ("show", ("--size", "M=99999999999999999999"), ["'M=99999999999999999999' has no meaning"]),
    ("show", (*SIZES, "--target", ""), ["no target ''", "cuda, cpu, emulate, reference"]),
    ("show", (*SIZES, "--html", ""), ["--html: '' is no path"]),
    ("run", (*SIZES, "--input", "C=A.npy"), ["matmul has no parameter 'C'", "it has A, B"]),
    ("run", (*SIZES, "--input", "A=A.npy", "--input", "A=A.npy"), ["'A' is given twice"]),
    ("run", ("--size", "M=7", "--size", "N=5", "--input", "A=A.npy"),
     ["M is 7, but 3 in A's file", "leave --size M out"]),
    ("run", (*SIZES, "--save", "file"), ["--save: the folder file cannot be made"]),
    ("run", (*SIZES, "--save", "file/below"), ["--save: the folder file/below cannot be made"]),
    ("run", ("twice", "--size", "N=200000000000000"), ["needs 1600000000000000 bytes", "smaller"]),
])  # fmt: skip
def test_wrong_arguments_of_programs(
    command: str, words: tuple[str, ...], parts: list[str], tcdsl: Tcdsl, program: Path
) -> None:
    code, printed, errors = tcdsl(command, program, *words)
    assert (code, printed) == (2, "")
    assert all(part in errors for part in parts), errors


@pytest.mark.parametrize(("words", "parts"), [
    (("softmx",), ["no 'softmx'", "did you mean 'softmax'?"]),
    (("softmax", "--target", "gpu"), ["no target 'gpu'"]),
    (("softmax", "--only", "zzz"), ["--only: no case is called so", "softmax*N=65536"]),
    (("softmax", "--json", "no/such.json"), ["--json: no file can be written to no/such.json"]),
    (("softmax", "--lines", "folder"), ["--lines: no file can be written to folder"]),
    (("--from", "none.jsonl"), ["--from: there is no file none.jsonl"]),
])  # fmt: skip
def test_wrong_arguments_of_benchmarks(
    words: tuple[str, ...], parts: list[str], tcdsl: Tcdsl
) -> None:
    code, _, errors = tcdsl("bench", *words)
    assert code == 2 and "hint: " in errors
    assert all(part in errors for part in parts), errors


@pytest.mark.parametrize(("words", "part"), [
    (("show", "p.tc", "--stag", "code"), "unrecognized arguments: --stag code"),
    (("show", "p.tc", "--stage", "loops"), "invalid choice: 'loops'"),
    (("run", "p.tc", "--seed", "-1"), "'-1' is no integer of at least 0"),
    (("bench", "--seconds", "-1"), "'-1' is no number of seconds"),
    (("bench", "--seconds", "nan"), "'nan' is no number of seconds"),
    (("bench", "--limit", "inf"), "'inf' is no number of seconds"),
    (("bench", "--prepare", "-2"), "'-2' is no integer of at least 0"),
])  # fmt: skip
def test_what_argparse_refuses(
    words: tuple[str, ...], part: str, tcdsl: Tcdsl, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        tcdsl(*words)
    assert caught.value.code == 2 and part in capsys.readouterr().err
