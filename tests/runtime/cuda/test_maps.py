"""Tensor maps: an encoding for each array, and what the driver is told."""

import ctypes
from typing import Any

import pytest

from tcdsl.codegen.cuda.source import TensorMap
from tcdsl.runtime.cuda import libcuda, maps
from tcdsl.runtime.cuda.maps import MAP_BYTES, MapEncoder, encoded

MAP = TensorMap("bfloat16", (200, 36, 5), (400, 14400), (64, 8, 1))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the driver is told; it writes the address to the map."""
    calls: list[tuple[Any, ...]] = []

    def call(name: str, place: int, *arguments: Any) -> None:
        assert name == "cuTensorMapEncodeTiled" and place % 64 == 0
        ctypes.memset(place, 0, MAP_BYTES)
        ctypes.c_uint64.from_address(place).value = arguments[2]
        calls.append(arguments)

    monkeypatch.setattr(libcuda, "call", call)
    return calls


def test_the_driver_is_told_the_array_and_its_boxes(told: list[tuple[Any, ...]]) -> None:
    assert len(encoded(MAP, 4096)) == MAP_BYTES
    ((dtype, rank, address, sizes, strides, box, steps, *modes),) = told
    assert (dtype, rank, address, modes) == (9, 3, 4096, [0, 3, 2, 0])
    assert list(sizes._obj) == [200, 36, 5] and list(strides._obj)[:2] == [400, 14400]
    assert list(box._obj) == [64, 8, 1] and list(steps._obj) == [1, 1, 1]


def test_each_array_has_its_own_map(
    told: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is encoded once, unless many others were since."""
    monkeypatch.setattr(maps, "_KEPT", 2)
    encode = MapEncoder(MAP)
    for address in (1024, 2048, 1024, 2048):
        assert encode(address)[:8] == address.to_bytes(8, "little")
    assert len(told) == 2
    for address in (4096, 1024):
        assert encode(address)[:8] == address.to_bytes(8, "little")
    assert len(told) == 4
