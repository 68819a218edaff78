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
from tcdsl.library.peer_calls import Call
from tcdsl.library.single_reductions import SINGLE_REDUCTIONS, Operator, result_type

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


def call_on_tensors(case: Case, tensors: Mapping[str, Any]) -> Call:
    """Return the case's call on *tensors*, a copy to rows or to float32 included."""
    torch = import_module("torch")
    (x,) = tensors.values()
    single = SINGLE_REDUCTIONS[case.name]
    kept = single.kept_axes(x.ndim)
    arranged = _numbers(torch, x).permute(*kept, *single.axes)
    computed = torch.float32 if str(x.dtype) in _HALVES else arranged.dtype
    is_copied = arranged.dtype != computed or not arranged.is_contiguous()
    shape = arranged.shape
    rows = torch.empty(shape, dtype=computed, device=x.device) if is_copied else arranged
    reduced = _reducer(rows, single.operator, len(kept))
    result = getattr(torch, result_type(case.results, str(x.dtype).removeprefix("torch.")))

    def call() -> Any:
        if is_copied:
            rows.copy_(arranged)
        found = torch.as_tensor(reduced(), device=rows.device)
        return found.view(result) if result == torch.bool else found.to(result)

    return call


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
