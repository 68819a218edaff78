"""A case as a call in NumPy or PyTorch, as their users would write it.

Making and converting arrays is done before.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from tcdsl.library.case import Case

Arrays = Mapping[str, np.ndarray[Any, Any]]
Call = Callable[[], Any]


def numpy_call(case: Case, inputs: Arrays) -> Call:
    """Return the case's call in NumPy; half types in float32, for NumPy's own are emulated."""
    formula = case.numpy_formula or case.formula
    ready = {name: _without_halves(array) for name, array in inputs.items()}

    def call() -> Any:
        with np.errstate(all="ignore"):  # padding by infinities is meant
            return formula(**ready)

    return call


def _without_halves(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    is_half = array.dtype.name in ("float16", "bfloat16")
    return array.astype(np.float32) if is_half else array


def torch_call(case: Case, inputs: Arrays, *, compiled: bool) -> Call:
    """Return the case's call in PyTorch, without gradients, eager or through torch.compile."""
    torch = import_module("torch")  # an extra
    tensors = {name: as_tensor(torch, array) for name, array in inputs.items()}
    return call_on_tensors(case, tensors, compiled=compiled)


def call_on_tensors(
    case: Case, tensors: Mapping[str, Any], *, compiled: bool, mode: str | None = None
) -> Call:
    """Return the case's call on *tensors*, wherever they are; *mode* is torch.compile's."""
    torch = import_module("torch")
    formula = case.torch_formula
    if compiled:
        # A program of its own for each case and sizes, as tcdsl has.
        torch._dynamo.reset()
        formula = torch.compile(formula, dynamic=False, mode=mode)

    def call() -> Any:
        with torch.no_grad():
            return formula(**tensors)

    return call


def as_tensor(torch: Any, array: np.ndarray[Any, Any]) -> Any:
    """Return *array* as a tensor on the same memory."""
    if array.dtype.name == "bfloat16":  # NumPy's is an extension type, which torch does not know
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array) if array.ndim else torch.tensor(array[()])
