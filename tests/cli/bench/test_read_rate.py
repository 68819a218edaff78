"""The kernel that only reads: it compiles, and is launched with what it expects."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from tcdsl.cli.bench import read_rate
from tcdsl.runtime.nvrtc import compile_cuda, find_cuda_compiler, why_no_cuda_compiler


@pytest.mark.skipif(why_no_cuda_compiler() is not None, reason="no compiler for CUDA")
def test_the_kernel_compiles() -> None:
    code = compile_cuda(read_rate._TEXT, "sm_90", compiler=find_cuda_compiler())
    assert b"read_all" in code


@contextmanager
def nothing() -> Iterator[None]:
    yield


def test_a_launch_has_the_arguments_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: list[tuple[Any, ...]] = []
    monkeypatch.setattr(read_rate.libcuda, "call", lambda *args: launched.append(args))
    context = SimpleNamespace(current=nothing)
    monkeypatch.setattr(read_rate, "primary_context", lambda: context)
    numbers = SimpleNamespace(numel=lambda: 1000, data_ptr=lambda: 256)
    out = SimpleNamespace(numel=lambda: 1, data_ptr=lambda: 512)
    keeps = read_rate.read_call(7, numbers, out, 264, 1024)()
    ((name, function, *shape, pointers, extra),) = launched
    assert (name, function, shape, extra) == (
        "cuLaunchKernel", 7, [264, 1, 1, 1024, 1, 1, 0, None], None,
    )  # fmt: skip
    values = [ctypes.c_uint64.from_address(pointer).value for pointer in pointers]
    assert values == [256, 250, 512]  # 1000 numbers are 250 vectors
    assert keeps
