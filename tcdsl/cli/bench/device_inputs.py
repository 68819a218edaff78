"""Inputs of library cases as PyTorch's tensors on a GPU.

What is large is drawn there: a billion bytes of normal floats take NumPy seconds.  Draws that have
no counterpart here are made by NumPy and copied.  A host scalar is a Python number.
"""

import math
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from tcdsl.lang.types.dtypes import BY_NAME, DType
from tcdsl.library import Case
from tcdsl.library.draws import Draw, Mostly, Uniform, near_one, ordinary, weights

Shape = tuple[int, ...]
_DEVICE = "cuda"
_SEED = 0
_INTEGER_BOUND = 100


def device_inputs(case: Case, sizes: Mapping[str, int], dtype: str) -> dict[str, Any]:
    """Return random inputs by parameter name, the same ones every time."""
    torch = import_module("torch")
    torch.manual_seed(_SEED)
    rng = np.random.default_rng(_SEED)
    shapes = case.input_shapes(sizes)
    inputs = {}
    for param in case.params:
        draw = case.draws.get(param.name, ordinary)
        kind, shape = BY_NAME[param.dtype_for(dtype)], shapes[param.name]
        if shape and (drawn := drawn_there(torch, draw, shape, kind)) is not None:
            inputs[param.name] = drawn
        else:
            inputs[param.name] = to_device(draw(rng, shape, kind, sizes))
    return inputs


def drawn_there(torch: Any, draw: Draw, shape: Shape, dtype: DType) -> Any | None:
    """Return what *draw* gives as a tensor that was made on the GPU, or None if NumPy makes it."""
    match draw:
        case Uniform(low, high):
            return (low + (high - low) * _random(torch, shape)).to(
                getattr(torch, dtype.library_name)
            )
        case Mostly(value):
            return (_random(torch, shape) * max(1, shape[-1]) >= 1.0) == value
    return _DRAWS[draw](torch, shape, dtype) if draw in _DRAWS else None


def to_device(array: np.ndarray[Any, Any]) -> Any:
    """Return *array* as a tensor on the GPU, or a 0-D one as a Python number."""
    if array.ndim == 0:
        return array.item()
    moved = import_module("tcdsl.library.torch_peers").tensors({"": array}, _DEVICE)
    return moved[""]


def fresh_output(shape: Shape, dtype: DType, *, is_read: bool) -> Any:
    """Return a tensor for an output: zeros if the program reads it first, else poison."""
    torch = import_module("torch")
    fill = math.nan if dtype.is_float and not is_read else 0
    return torch.full(shape, fill, dtype=getattr(torch, dtype.library_name), device=_DEVICE)


# --- draws, as those of library/draws.py of the same names -----------------------------------


def _ordinary(torch: Any, shape: Shape, dtype: DType) -> Any:
    if dtype.is_float:
        return _normal(torch, shape, dtype).to(getattr(torch, dtype.library_name))
    if not dtype.is_integer:
        return torch.rand(shape, device=_DEVICE) < 0.5
    info = np.iinfo(dtype.numpy)
    low, high = max(info.min, -_INTEGER_BOUND), min(info.max, _INTEGER_BOUND)
    drawn = torch.randint(low, high + 1, shape, device=_DEVICE, dtype=torch.int32)
    return drawn.to(getattr(torch, dtype.library_name))


def _weights(torch: Any, shape: Shape, dtype: DType) -> Any:
    fan_in = max(1, math.prod(shape[1:]))
    return (_normal(torch, shape, dtype) / math.sqrt(fan_in)).to(getattr(torch, dtype.library_name))


def _near_one(torch: Any, shape: Shape, dtype: DType) -> Any:
    drawn = torch.randint(0, 2, shape, device=_DEVICE, dtype=torch.int8) * 2 - 1
    drawn = drawn.to(getattr(torch, dtype.library_name))
    if dtype.is_float:
        # About 16 factors, at places that may coincide.
        flat = drawn.view(-1)
        places = torch.randint(0, max(flat.numel(), 1), (min(16, flat.numel()),), device=_DEVICE)
        factors = torch.exp(0.3 * torch.randn(places.shape, device=_DEVICE))
        flat[places] *= factors.to(drawn.dtype)
    return drawn


def _random(torch: Any, shape: Shape) -> Any:
    return torch.rand(shape, device=_DEVICE)


def _normal(torch: Any, shape: Shape, dtype: DType) -> Any:
    """Standard normal floats in the type that *dtype* is computed in."""
    kind = torch.float64 if dtype.size_bytes == 8 else torch.float32
    return torch.randn(shape, device=_DEVICE, dtype=kind)


_DRAWS: Mapping[Draw, Callable[[Any, Shape, DType], Any]] = {
    ordinary: _ordinary,
    weights: _weights,
    near_one: _near_one,
}
