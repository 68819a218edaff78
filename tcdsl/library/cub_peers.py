"""The single reductions by CUB, whose device-wide functions CuPy brings compiled.

    x(i,j) over i and j     DeviceReduce
    x(i,j) over j           DeviceSegmentedReduce: a segment's elements are neighbours
    x(i,j) over i           copied to (j,i), then as rows; the copy is part of the call

Half types are copied to float32, in the same copy where there is one, and the result is converted
back, as Panamera (PACT 2022, doi:10.1145/3559009.3569656) has it of CUB.  Bools are bytes of 0 and
1.  Arrays are PyTorch's, on the default stream, which is CuPy's too.
"""

import math
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from tcdsl.library.case import Case
from tcdsl.library.single_reductions import SINGLE_REDUCTIONS, Operator, result_type

ROWS = "cub-rows"  # its time without copies
_HALVES = ("torch.float16", "torch.bfloat16")
_MOST_ELEMENTS = 2**31 - 1  # CuPy counts them in an int


def why_missing() -> str | None:
    """Return why CUB cannot be timed here, or None if it can."""
    if find_spec("cupy") is None:
        return "CuPy, which brings it, is not installed (pip install cupy-cuda13x)"
    try:
        import_module("cupy.cuda.cub")
    except ImportError as error:
        return f"this CuPy is without it: {error}"
    return None


def version_text() -> str:
    """Return the version of the CUB that CuPy was built with."""
    number = import_module("cupy.cuda.cub").get_build_version()  # 300102: 3.1.2
    return f"{number // 100000}.{number // 100 % 1000}.{number % 100}"


def offers(case: Case, dtype: str) -> bool:
    """Return whether CUB has *case*; of its types it has all, halves through float32."""
    return case.name in SINGLE_REDUCTIONS


class CubCall:
    """A case's call on tensors; *rows* is what is reduced, a copy of *arranged* if that is none."""

    def __init__(self, case: Case, x: Any) -> None:
        torch = import_module("torch")
        single = SINGLE_REDUCTIONS[case.name]
        kept = single.kept_axes(x.ndim)
        self._arranged = rows = _numbers(torch, x).permute(*kept, *single.axes)
        computed = torch.float32 if str(x.dtype) in _HALVES else rows.dtype
        self.is_copied = rows.dtype != computed or not rows.is_contiguous()
        if self.is_copied:
            rows = torch.empty(rows.shape, dtype=computed, device=x.device)
        self._rows = rows
        self._reduced = _reducer(rows, single.operator, len(kept))
        element = str(x.dtype).removeprefix("torch.")
        self._result = getattr(torch, result_type(case.results, element))

    def __call__(self) -> Any:
        if self.is_copied:
            self._rows.copy_(self._arranged)
        return self.without_copy()

    def without_copy(self) -> Any:
        """Return the result of the rows that the last call has copied, if it has."""
        torch = import_module("torch")
        found = torch.as_tensor(self._reduced(), device=self._rows.device)
        return found.view(self._result) if self._result == torch.bool else found.to(self._result)


def call_on_tensors(case: Case, tensors: Mapping[str, Any]) -> CubCall:
    """Return the case's call on *tensors*, a copy to rows or to float32 included."""
    (x,) = tensors.values()
    return CubCall(case, x)


def _numbers(torch: Any, x: Any) -> Any:
    return x.view(torch.uint8) if x.dtype == torch.bool else x


def _reducer(rows: Any, operator: Operator, n_kept: int) -> Callable[[], Any]:
    """Return what reduces the last axes of *rows*, all but *n_kept*, to an array of CuPy."""
    cupy, cub = import_module("cupy"), import_module("cupy.cuda.cub")
    if rows.numel() > _MOST_ELEMENTS:
        raise ValueError(f"CuPy's CUB takes at most {_MOST_ELEMENTS} elements")
    array = cupy.asarray(rows)
    code = getattr(cub, f"CUPY_CUB_{operator.upper()}")
    kept, reduced = tuple(range(n_kept)), tuple(range(n_kept, rows.ndim))
    if not kept:
        return lambda: cub.device_reduce(array, code, reduced, kept)
    length = math.prod(rows.shape[n_kept:])
    return lambda: cub.device_segmented_reduce(array, code, reduced, kept, contiguous_size=length)
