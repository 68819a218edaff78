"""New arrays of the libraries: of the output's shape and type, on the call's device."""

from types import SimpleNamespace
from typing import Any

import pytest

from tcdsl.errors import LaunchError
from tcdsl.lang.types.dtypes import BFLOAT16, FLOAT32, INT64
from tcdsl.runtime.cuda.device import primary_context
from tcdsl.runtime.cuda.libraries import library

torch = pytest.importorskip("torch")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, fake: Any) -> list[Any]:
    """Which of torch's two ways of allocation was taken, and on which device."""
    ways: list[Any] = []
    empty = torch.empty

    def general(*extents: Any, dtype: Any, device: Any) -> Any:
        ways.append(device)
        return empty(*extents, dtype=dtype)

    def quick(shape: Any, strides: Any, dtype: Any) -> Any:
        ways.append("current")
        return torch.empty_strided(shape, strides, dtype=dtype)

    monkeypatch.setattr(torch, "empty", general)
    guards = SimpleNamespace(_empty_strided_cuda=quick)
    monkeypatch.setattr(torch._C, "_dynamo", SimpleNamespace(guards=guards))
    return ways


@pytest.mark.parametrize("is_quick", [True, False])
@pytest.mark.parametrize("shape", [(), (0,), (7,), (3, 0, 2), (4, 1, 5)])
def test_new_tensors(
    made: list[Any], fake: Any, shape: tuple[int, ...], is_quick: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    fake.n_devices = 1
    if not is_quick:  # an older torch
        monkeypatch.setattr(torch._C, "_dynamo", None)
    for dtype, kind in [(FLOAT32, torch.float32), (BFLOAT16, torch.bfloat16), (INT64, torch.int64)]:
        x = library("torch").maker_of(dtype, primary_context())(shape)(None)
        assert x.shape == shape and x.dtype == kind and x.is_contiguous()
    assert made == (["current"] if is_quick else [torch.device("cuda", 0)]) * 3


def test_among_several_devices_the_device_is_named(made: list[Any]) -> None:
    library("torch").maker_of(FLOAT32, primary_context(1))((3,))(None)
    assert made == [torch.device("cuda", 1)]


def test_no_memory(made: list[Any], fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> Any:
        raise torch.OutOfMemoryError

    fake.n_devices = 1
    monkeypatch.setattr(torch._C._dynamo.guards, "_empty_strided_cuda", full)
    make = library("torch").maker_of(FLOAT32, primary_context())((3, 5))
    with pytest.raises(LaunchError, match=r"shape \(3, 5\) needs 60 bytes on cuda:0"):
        make(None)
