"""A shell with the extension loaded, and what a cell of it shows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import pytest
from IPython.core.displayhook import DisplayHook
from IPython.core.interactiveshell import InteractiveShell

MATMUL = "def matmul(float(M, K) A, float(K, N) B) -> (C) {\n    C(m, n) +=! A(m, k) * B(k, n)\n}\n"


@dataclass
class Cell:
    """What running a cell gave: its value, the error, what was printed, what an error shows."""

    value: Any
    error: BaseException | None
    printed: str
    shown: str


class Notebook:
    """A shell in which cells are run as in a notebook."""

    def __init__(self, shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> None:
        self.shell = shell
        self._capsys = capsys

    def run(self, text: str) -> Cell:
        """Run a cell."""
        shown: list[str] = []
        before = self.shell._showtraceback
        self.shell._showtraceback = lambda kind, value, lines: shown.extend(lines)
        try:
            result = self.shell.run_cell(text, store_history=True)
        finally:
            self.shell._showtraceback = before
        printed = self._capsys.readouterr()
        error = result.error_in_exec or result.error_before_exec
        return Cell(result.result, error, printed.out + printed.err, "\n".join(shown))

    @property
    def names(self) -> dict[str, Any]:
        return self.shell.user_ns


@pytest.fixture
def matmul() -> str:
    return MATMUL


@pytest.fixture(scope="session")
def shell() -> Iterator[InteractiveShell]:
    """One shell for all tests: a process has one display hook."""
    shell = InteractiveShell.instance()
    shell.history_manager.enabled = False
    shell.run_line_magic("load_ext", "tcdsl")
    yield shell
    InteractiveShell.clear_instance()


@pytest.fixture
def notebook(shell: InteractiveShell, capsys: pytest.CaptureFixture[str]) -> Iterator[Notebook]:
    with mock.patch("gc.collect"):  # which takes 0.4 s with all that other tests hold
        shell.reset(new_session=False)
    assert isinstance(shell.displayhook, DisplayHook)
    rng = np.random.default_rng(0)
    shell.push({
        "np": np,
        "A": rng.standard_normal((6, 5), dtype=np.float32),
        "B": rng.standard_normal((5, 4), dtype=np.float32),
    })  # fmt: skip
    yield Notebook(shell, capsys)
