"""Tensor maps, which the driver encodes from a kernel's plan and an array's address.

A kernel takes a map as a parameter of 128 bytes.  It holds the address, so that there is one for
each array that a kernel is called on; the last ones are kept.
"""

import ctypes
from collections.abc import Hashable, Sequence

from tcdsl.codegen.cuda.counts import largest
from tcdsl.codegen.cuda.source import TFLOAT32, TensorMap
from tcdsl.runtime.cuda import libcuda

MAP_BYTES = 128
_ALIGNMENT = 64
_KEPT = 64  # encodings of one parameter
# CUtensorMapDataType; a swizzle of 128 bytes, promotion to 128 bytes in the second-level cache.
_TYPES = {
    "uint8": 0, "uint16": 1, "uint32": 2, "int32": 3, "uint64": 4, "int64": 5, "float16": 6,
    "float32": 7, "float64": 8, "bfloat16": 9, "int8": 0, TFLOAT32: 11,
    "float8_e4m3": 0, "float8_e5m2": 0,
}  # fmt: skip
_NOT_INTERLEAVED, _SWIZZLE, _PROMOTION, _ZEROS = 0, 3, 2, 0


class MapEncoder:
    """Encodes one parameter's map for the addresses that come."""

    __slots__ = ("_known", "_map")

    def __init__(self, map_: TensorMap) -> None:
        self._map = map_
        self._known: dict[Hashable, bytes] = {}

    def __call__(self, address: int) -> bytes:
        """Return the map's bytes for an array at *address*."""
        found = self._known.get(address)
        return self._learnt(address, self._map, address) if found is None else found

    def at(self, integers: Sequence[int], address: int) -> bytes:
        """Return the bytes for an array at *address* at the open sizes among *integers*."""
        if not self._map.counts:
            return self(address)
        sizes = tuple([largest(counts, integers) for counts in self._map.counts])
        key = address, sizes
        found = self._known.get(key)
        if found is None:
            found = self._learnt(key, self._map.of_sizes(sizes), address)
        return found

    def _learnt(self, key: Hashable, map_: TensorMap, address: int) -> bytes:
        if len(self._known) >= _KEPT:
            self._known.clear()
        found = self._known[key] = encoded(map_, address)
        return found


def encoded(map_: TensorMap, address: int) -> bytes:
    """Return the map of the array at *address*, as the driver encodes it.

    :raises LaunchError: (TC085) the driver does not take these numbers.
    """
    rank = len(map_.sizes)
    room = ctypes.create_string_buffer(MAP_BYTES + _ALIGNMENT)
    place = -(-ctypes.addressof(room) // _ALIGNMENT) * _ALIGNMENT
    sizes, strides = ((ctypes.c_uint64 * rank)(*row) for row in (map_.sizes, map_.strides))
    array = (
        place, _TYPES[map_.dtype], rank, address, ctypes.byref(sizes), ctypes.byref(strides),
    )  # fmt: skip
    every = (1, *map_.steps, 1) if map_.corners else (1,) * rank
    steps = (ctypes.c_uint32 * rank)(*every)
    last = ctypes.byref(steps), _NOT_INTERLEAVED, _SWIZZLE, _PROMOTION, _ZEROS
    if map_.corners:
        lower, upper = ((ctypes.c_int * rank)(*corner) for corner in map_.corners)
        corners = ctypes.byref(lower), ctypes.byref(upper)
        libcuda.call("cuTensorMapEncodeIm2col", *array, *corners, *map_.box, *last)
    else:
        box = (ctypes.c_uint32 * rank)(*map_.box)
        libcuda.call("cuTensorMapEncodeTiled", *array, ctypes.byref(box), *last)
    return ctypes.string_at(place, MAP_BYTES)
