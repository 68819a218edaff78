import subprocess
import sys
from pathlib import Path

import pytest

from tcdsl.cli.main import COMMANDS, main


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert all(command in printed for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"tcdsl {command}" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["nonsense"], ["run"], ["cache", "--no-such"]])
def test_misuse_exits_with_2_and_says_how_to_use_it(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert "usage: tcdsl" in capsys.readouterr().err


def test_without_a_command_it_prints_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("usage: tcdsl") and all(command in printed for command in COMMANDS)


def test_an_interrupt_is_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("tcdsl.cli.cache.run", interrupted)
    assert main(["cache"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_a_reader_that_has_had_enough_is_no_error(program: Path) -> None:
    shown = subprocess.run(
        f"{sys.executable} -m tcdsl show {program} --stage ast | head -n 1",
        shell=True, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert shown.stdout.startswith("Def")
    assert shown.stderr == ""
