"""What the command line's tests share: a program in a file, and ``tcdsl`` in this process."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tcdsl.cli.main import main

PROGRAM = """\
def twice(float(N) x) -> (y) {
    y(i) = x(i) + x(i)
}

def matmul(float(M, K) A, float(K, N) B) -> (C) {
    C(m, n) +=! A(m, k) * B(k, n)
}
"""

Tcdsl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The path of a file with two definitions, the last of them a matmul."""
    path = tmp_path / "program.tc"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


@pytest.fixture
def tcdsl(capsys: pytest.CaptureFixture[str]) -> Tcdsl:
    """A function that runs the command line: (exit code, standard output, standard error)."""

    def run(*words: object) -> tuple[int, str, str]:
        code = main([str(word) for word in words])
        return code, *capsys.readouterr()

    return run
