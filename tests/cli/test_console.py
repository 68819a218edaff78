import pytest

from tcdsl.cli.console import markdown_table, progress_steps, standard_output


def test_progress_is_silent_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_steps(2) as steps:
        steps.begin("one")
        steps.begin("two")
    assert capsys.readouterr() == ("", "")


def test_progress_is_shown_in_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with progress_steps(2) as steps:
        steps.begin("the first step")
        steps.begin("the second step")
    assert "the second step" in capsys.readouterr().err


def test_a_markdown_table_aligns_numbers_to_the_right() -> None:
    assert markdown_table(("what", "n"), [("x", "1"), ("a long name", "12")]) == (
        "| what        |  n |\n| ----------- | -: |\n| x           |  1 |\n| a long name | 12 |"
    )


def test_text_that_goes_to_a_pipe_is_not_squeezed(capsys: pytest.CaptureFixture[str]) -> None:
    standard_output().print("x" * 300)
    assert capsys.readouterr().out == "x" * 300 + "\n"
