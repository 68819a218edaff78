"""Tensor maps: an encoding for each array, and what the driver is told."""

import ctypes
import json
from typing import Any

import pytest

from tcdsl.codegen.cuda.counts import Count
from tcdsl.codegen.cuda.source import TensorMap
from tcdsl.runtime.cuda import libcuda, maps
from tcdsl.runtime.cuda.maps import MAP_BYTES, MapEncoder, encoded

MAP = TensorMap("bfloat16", (200, 36, 5), (400, 14400), (64, 8, 1))


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the driver is told; it writes the address to the map."""
    calls: list[tuple[Any, ...]] = []

    def call(name: str, place: int, *arguments: Any) -> None:
        assert name.removeprefix("cuTensorMapEncode") in ("Tiled", "Im2col") and place % 64 == 0
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


def test_the_driver_is_told_the_corners_of_pixels(told: list[tuple[Any, ...]]) -> None:
    sizes, strides = (64, 56, 28, 8), (128, 7168, 200704)
    corners = (-1, -2), (-1, -3)
    map_ = TensorMap("float16", sizes, strides, (64, 128), (), corners, (1, 2))
    assert TensorMap.from_json(json.loads(json.dumps(map_.to_json()))) == map_
    assert TensorMap.from_json(MAP.to_json()) == MAP
    encoded(map_, 4096)
    ((dtype, rank, address, _, _, lower, upper, channels, pixels, steps, *modes),) = told
    assert (dtype, rank, address, channels, pixels, modes) == (6, 4, 4096, 64, 128, [0, 3, 2, 0])
    assert (list(lower._obj)[:2], list(upper._obj)[:2]) == ([-1, -2], [-1, -3])
    assert list(steps._obj) == [1, 1, 2, 1]


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


def test_a_map_of_open_sizes_has_those_of_the_call(told: list[tuple[Any, ...]]) -> None:
    rows = (Count(1, 0, ((1, 0),)),)
    counts = (Count(1, 200, ()),), rows, (Count(1, 5, ()),)
    encode = MapEncoder(TensorMap(MAP.dtype, MAP.sizes, MAP.strides, MAP.box, counts))
    for size in (20, 36, 20):
        assert encode.at([size], 1024)[:8] == (1024).to_bytes(8, "little")
    assert [list(each[3]._obj) for each in told] == [[200, 20, 5], [200, 36, 5]]
    fixed = MapEncoder(MAP)
    assert [fixed.at([size], 2048)[:2] for size in (20, 36)] == [bytes([0, 8])] * 2
    assert len(told) == 3
