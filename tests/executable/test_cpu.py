"""The target "cpu": when the C compiler works on a program that is compiled for the first time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.costmodel.machine import Cpu
from tcdsl.driver import CpuBackend
from tcdsl.errors import TCWarning
from tcdsl.runtime.c_compiler import (
    begun_shared,
    c_flags,
    find_compiler,
    why_no_compiler,
    without_tiles,
)
from tcdsl.schedule.plan import Plan

pytestmark = pytest.mark.skipif(why_no_compiler() is not None, reason="needs a C compiler")
TEXT = "def f(float(N) x) -> (y) { y(i) = x(i) + 1 }"
PRODUCT = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What happens of these: the compiler begins, the verification, its code is waited for, end."""
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path))
    found: list[str] = []

    @contextmanager
    def recorded(*arguments: Any, **options: Any) -> Iterator[Callable[[], bytes]]:
        with begun_shared(*arguments, **options) as code_of:
            found.append("begins")

            def waited_for() -> bytes:
                found.append("waited for")
                return code_of()

            yield waited_for
        found.append("ended")

    why_not = CpuBackend.why_not_legal

    def verified(self: CpuBackend, plan: Plan) -> str | None:
        found.append("verified")
        return why_not(self, plan)

    monkeypatch.setattr("tcdsl.executable.cpu.begun_shared", recorded)
    monkeypatch.setattr(CpuBackend, "why_not_legal", verified)
    return found


def test_the_compiler_begins_before_the_verification(events: list[str]) -> None:
    f = tcdsl.define(TEXT).f
    x = np.ones(4, np.float32)
    np.testing.assert_array_equal(f.compile(x, target="cpu")(x), x + 1)
    assert events == ["begins", "verified", "waited for", "ended"]


def test_nobody_gets_the_code_of_a_plan_that_proves_to_be_wrong(
    events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    verified = CpuBackend.why_not_legal
    reasons = ["it was made wrong", None]

    def at_first_wrong(self: CpuBackend, plan: Plan) -> str | None:
        return verified(self, plan) or reasons.pop(0)

    monkeypatch.setattr(CpuBackend, "why_not_legal", at_first_wrong)
    monkeypatch.delenv("TCDSL_DEBUG", raising=False)
    f = tcdsl.define(TEXT).f
    x = np.ones(4, np.float32)
    with pytest.warns(TCWarning, match="it was made wrong"):
        compiled = f.compile(x, target="cpu")
    np.testing.assert_array_equal(compiled(x), x + 1)
    first, second = ["begins", "verified", "ended"], ["begins", "verified", "waited for", "ended"]
    assert events == first + second


@pytest.mark.parametrize("vector_bytes", [32, 64])
def test_narrow_tiles_of_registers_are_cleared_and_stored_by_no_calls(
    vector_bytes: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Copies of whole arrays are: calls of memcpy are faster."""
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path))
    cpu = Cpu(1, vector_bytes, has_byte_dots=False, has_bfloat16_dots=False)
    monkeypatch.setattr("tcdsl.executable.cpu.cpu_of", lambda threads: cpu)
    given: list[tuple[str, ...]] = []

    def recorded(text: str, flags: tuple[str, ...], **options: Any) -> Any:
        given.append(flags)
        return begun_shared(text, flags, **options)

    monkeypatch.setattr("tcdsl.executable.cpu.begun_shared", recorded)
    product = tcdsl.define(PRODUCT)
    a = np.arange(72 * 64, dtype=np.float32).reshape(72, 64) % 7
    b = np.arange(64 * 48, dtype=np.float32).reshape(64, 48) % 5
    np.testing.assert_array_equal(product.f.compile(a, b, target="cpu")(a, b), a @ b)
    x = np.ones(4, np.float32)
    np.testing.assert_array_equal(tcdsl.define(TEXT).f.compile(x, target="cpu")(x), x + 1)
    flags = c_flags(find_compiler())
    with_tiles = flags if vector_bytes == 32 else without_tiles(flags)
    assert given == [with_tiles, without_tiles(flags)]
