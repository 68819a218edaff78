"""Settings of the compiler that change within a process: code of before was called further."""

import numpy as np
import pytest

import tcdsl
from tcdsl.errors import TCError


def test_flags_count_from_the_next_call_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TCDSL_CFLAGS", raising=False)
    f = tcdsl.define("def twice(float(N) x) -> (y) { y(i) = 2 * x(i) }").twice
    x = np.ones(3, np.float32)
    plain = f.compile(x, target="cpu")
    assert f(x, target="cpu").tolist() == [2, 2, 2]
    monkeypatch.setenv("TCDSL_CFLAGS", "-Dfloat=fraction")  # no C any more
    for call in (f.compile, f):
        with pytest.raises(TCError, match="TC071"):
            call(x, target="cpu")
    with pytest.raises(TCError, match="TC071"):  # and where N is open
        f(np.ones(4, np.float32), target="cpu")
    monkeypatch.delenv("TCDSL_CFLAGS")
    assert f.compile(x, target="cpu") is plain
    assert f(x, target="cpu").tolist() == [2, 2, 2]
