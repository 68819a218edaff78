"""Convolutions by NumPy: what the emulator computes in cuDNN's place.

One product of matrices for each tap of the window; sums are of the type that the call says.
"""

import ctypes
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np

from tcdsl.costmodel.convolutions import Computed, Convolution
from tcdsl.lang.types.dtypes import BY_NAME

_Array = np.ndarray[Any, Any]


def tensors_at(call: Convolution, addresses: Sequence[int]) -> dict[Computed, _Array]:
    """Return image, filter and result, channels second.

    :arg addresses: of the two operands and what is computed, as ``Convolution.arrays`` has them.
    """
    return {
        kind: _view(call, kind, address)
        for kind, address in zip(call.kinds, addresses, strict=False)
    }


def _view(call: Convolution, kind: Computed, address: int) -> _Array:
    dtype, sizes = BY_NAME[call.dtype].numpy, call.sizes(kind)
    size_bytes = int(np.prod(sizes)) * dtype.itemsize
    memory = (ctypes.c_uint8 * size_bytes).from_address(address)
    strides = tuple(dtype.itemsize * step for step in call.strides(kind))
    return np.ndarray(sizes, dtype, memoryview(memory), 0, strides)


def convolved(call: Convolution, tensors: dict[Computed, _Array]) -> _Array:
    """Return what *call* computes of *tensors*, with what was there before if it accumulates."""
    summed = BY_NAME[call.summed].numpy
    wide = {kind: tensor.astype(summed) for kind, tensor in tensors.items()}
    own = wide[call.computed] if call.accumulates else np.zeros_like(wide[call.computed])
    padded = [(0, 0), (0, 0), *((w.padding, w.padding + w.dilation * w.window + w.step)
                                for w in call.windows)]  # fmt: skip
    gradient = call.computed is Computed.IMAGE
    image = np.pad(np.zeros_like(own) if gradient else wide[Computed.IMAGE], padded)
    with np.errstate(all="ignore"):
        for taps, seen in _taps(call, image):
            at: tuple[Any, ...] = (slice(None), slice(None), *taps)
            match call.computed:
                case Computed.RESULT:
                    own += np.einsum("nc...,fc->nf...", seen, wide[Computed.FILTER][at])
                case Computed.FILTER:
                    axes = [0, *range(2, seen.ndim)]
                    own[at] += np.tensordot(wide[Computed.RESULT], seen, (axes, axes))
                case Computed.IMAGE:
                    seen += np.einsum(
                        "nf...,fc->nc...", wide[Computed.RESULT], wide[Computed.FILTER][at]
                    )
        if gradient:
            inside = tuple(slice(w.padding, w.padding + w.image) for w in call.windows)
            own += image[(slice(None), slice(None), *inside)]
    return own


def _taps(call: Convolution, image: _Array) -> Iterator[tuple[tuple[int, ...], _Array]]:
    """Yield each tap, and the view of *image*, with its zeros, that results see through it."""
    for taps in product(*(range(w.window) for w in call.windows)):
        at = tuple(
            slice(w.dilation * tap, w.dilation * tap + w.step * (w.result - 1) + 1, w.step)
            for tap, w in zip(taps, call.windows, strict=True)
        )
        yield taps, image[(slice(None), slice(None), *at)]
