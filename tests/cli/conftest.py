"""What the command line's tests share: a program in a file, ``tcdsl`` here, and JAX's queue."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tcdsl.cli.bench import jax_calls
from tcdsl.cli.bench.xla_queue import Queue
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


class HostClock:
    """Waits for everything, and reads the host's clock."""

    def __init__(self, jax: Any) -> None:
        self.was_late = False
        self._jax = jax
        self._times_s = [0.0, 0.0]

    def start(self, *after: Any) -> Any:
        return self._read(0, after)

    def stop(self, *after: Any) -> Any:
        return self._read(1, after)

    def elapsed_us(self) -> float:
        return (self._times_s[1] - self._times_s[0]) * 1e6

    def _read(self, number: int, after: Any) -> Any:
        self._jax.block_until_ready(after)
        self._times_s[number] = time.perf_counter()
        return self._jax.numpy.zeros(1, "int32")


@pytest.fixture
def host_queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    """The queue of ``jax_calls`` on this processor, where there is no stream to record in."""
    pytest.importorskip("jax")
    jax = jax_calls.import_jax()
    queue = Queue(jax, HostClock(jax), lead_bytes=1 << 20)
    monkeypatch.setattr(jax_calls, "queue", lambda: queue)
    return queue
