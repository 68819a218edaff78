"""``check_on_the_gpu``: a program on the GPU, on arrays of whatever library is there, twice.

Twice, since a race shows itself when it likes.  The arrays keep their strides: PyTorch has none
that are negative, and neither it nor CuPy has every type; such calls take NumPy's arrays, which
tcdsl copies.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

import tcdsl
from tcdsl.lang.comprehension import Comprehension, Specialisation
from tcdsl.testing import check

Array = np.ndarray[Any, Any]

_TORCH_TYPES = {
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64",
}  # fmt: skip


class Library(Protocol):
    """Arrays on the GPU."""

    def why_not(self, array: Array) -> str | None: ...
    def to_device(self, array: Array) -> Any: ...
    def to_host(self, value: Any) -> Array: ...


class Torch:
    def __init__(self, torch: Any, device: str = "cuda") -> None:
        self.torch = torch
        self.device = device

    def why_not(self, array: Array) -> str | None:
        if array.dtype.name not in _TORCH_TYPES:
            return f"PyTorch has no {array.dtype.name}"
        return "PyTorch has no negative strides" if min(array.strides, default=0) < 0 else None

    def to_device(self, array: Array) -> Any:
        bits = array.view(np.int16) if array.dtype.name == "bfloat16" else array
        flat = self.torch.from_numpy(_memory(bits).copy()).to(self.device)
        steps = [stride // array.itemsize for stride in array.strides]
        value = flat.as_strided(array.shape, steps)
        return value.view(self.torch.bfloat16) if bits is not array else value

    def to_host(self, value: Any) -> Array:
        if value.dtype == self.torch.bfloat16:
            return self.to_host(value.view(self.torch.int16))
        return np.asarray(value.cpu().numpy())


class Cupy:
    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy

    def why_not(self, array: Array) -> str | None:
        if array.dtype.name == "bfloat16":
            return "CuPy has no bfloat16"
        return "not supported here" if min(array.strides, default=0) < 0 else None

    def to_device(self, array: Array) -> Any:
        flat = self.cupy.asarray(_memory(array))
        return self.cupy.lib.stride_tricks.as_strided(flat, array.shape, array.strides)

    def to_host(self, value: Any) -> Array:
        return np.asarray(value.get())


class Numpy:
    def why_not(self, array: Array) -> str | None:
        return None

    def to_device(self, array: Array) -> Any:
        return array

    def to_host(self, value: Any) -> Array:
        return np.asarray(value)


def _memory(array: Array) -> Array:
    """Return the memory from the first to the last element of *array* (no stride is negative)."""
    if array.size == 0:
        return np.zeros(1, array.dtype)
    reach = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
    size = reach // array.itemsize + 1
    return as_strided(
        array.reshape(-1)[:1] if array.ndim == 0 else array, (size,), (array.itemsize,)
    )


@dataclass(frozen=True)
class OnTheGpu:
    """A function that takes NumPy's arrays and runs on those of *library*."""

    function: tcdsl.Function
    library: Library
    target: str = "cuda"

    @property
    def comprehension(self) -> Comprehension:
        return self.function.comprehension

    def specialise(self, *inputs: Any) -> Specialisation:
        return self.function.specialise(*inputs)

    def __call__(
        self, *inputs: Any, out: Any = None, target: str | None = None, options: Any = None
    ) -> Any:
        buffers = list(out) if isinstance(out, tuple) else [out]
        library = self._fitting([*inputs, *buffers])
        given = [library.to_device(np.asarray(array)) for array in inputs]
        results = [library.to_device(buffer) for buffer in buffers]
        self.function(
            *given, out=tuple(results) if len(results) > 1 else results[0], target=self.target
        )
        for buffer, result in zip(buffers, results, strict=True):
            found = library.to_host(result)
            buffer[...] = found.view(buffer.dtype) if found.dtype != buffer.dtype else found

    def _fitting(self, arrays: Sequence[Array]) -> Library:
        reasons = [self.library.why_not(np.asarray(array)) for array in arrays]
        return Numpy() if any(reasons) else self.library


def _library() -> Library:
    try:
        import torch

        return Torch(torch)
    except ImportError:
        pass
    try:
        import cupy

        return Cupy(cupy)
    except ImportError:
        return Numpy()


@pytest.fixture(scope="session")
def check_on_the_gpu() -> Callable[[str, Sequence[Array]], str | None]:
    """A function: what is wrong with a program's results on the GPU, or None."""
    library = _library()

    def check_(source: str, inputs: Sequence[Array]) -> str | None:
        program = tcdsl.define(source)
        function = OnTheGpu(program[program.names[-1]], library)
        for attempt in ("first", "second"):
            try:
                check(function, *inputs, targets=("cuda",))
            except (AssertionError, tcdsl.TCError) as error:
                shapes = [np.shape(array) for array in inputs]
                return f"{attempt} run, {shapes}: {error}\n{source}"
        return None

    return check_
