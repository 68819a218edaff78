"""Calls of cuBLASLt without a GPU: a library that does in host memory what its arguments say.

It knows matrices as cuBLASLt does, whose neighbours are along columns; what it is told of layouts,
transposes, batches, alignments, scale and workspace is all that it has.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.cuda.source import LibraryCall
from tcdsl.errors import TCError
from tcdsl.options import Options
from tcdsl.runtime.cuda import cublas
from tcdsl.runtime.cuda.cublas import ProductStep
from tcdsl.runtime.host_products import matrices_at
from tests.codegen.test_library_calls import FORMS, ON_FROM, product, shapes

MakeUnit = Callable[..., Any]
_NUMPY = {0: np.float32, 1: np.float64, 2: np.float16}
_STREAM = 0x51


class FakeLibrary:
    """The functions of cublasLt.h that are called, on host memory."""

    def __init__(self) -> None:
        self.made: dict[int, dict[Any, Any]] = {}
        self.asked: list[dict[Any, Any]] = []  # preferences with which algorithms were asked for
        self.statuses: dict[str, int] = {}
        self.streams: list[int] = []

    def _new(self, out: Any, **values: Any) -> int:
        number = len(self.made) + 1
        out._obj.value = number
        self.made[number] = values
        return 0

    def _set(self, of: Any, attribute: int, value: Any, size: int) -> int:
        assert size == ctypes.sizeof(value._obj)
        self.made[of.value][attribute] = value._obj.value
        return 0

    def cublasLtCreate(self, out: Any) -> int:
        return self._new(out)

    def cublasLtMatmulDescCreate(self, out: Any, compute: int, scale: int) -> int:
        return self._new(out, compute=compute, scale=scale)

    def cublasLtMatrixLayoutCreate(self, out: Any, *values: int) -> int:
        return self._new(out, **dict(zip(("type", "rows", "columns", "leading"), values)))  # noqa: B905

    def cublasLtMatmulPreferenceCreate(self, out: Any) -> int:
        return self._new(out)

    def cublasLtMatmulPreferenceDestroy(self, preference: Any) -> int:
        return 0

    cublasLtMatmulDescSetAttribute = _set
    cublasLtMatrixLayoutSetAttribute = _set
    cublasLtMatmulPreferenceSetAttribute = _set

    def cublasLtMatmulAlgoGetHeuristic(self, *arguments: Any) -> int:
        preference, wanted, found, count = arguments[6:]
        self.asked.append(self.made[preference.value])
        count._obj.value = self.statuses.get("algorithms", 1)
        assert wanted == 1 and found._obj.state == 0
        return 0

    def cublasLtMatmul(self, handle: Any, description: Any, alpha: Any, a: int, a_layout: Any,
                       b: int, b_layout: Any, beta: Any, c: int, c_layout: Any, d: int,
                       d_layout: Any, algorithm: Any, workspace: int, size: int,
                       stream: int) -> int:  # fmt: skip
        if self.statuses.get("matmul"):
            return self.statuses["matmul"]
        told = self.made[description.value]
        assert c == d and c_layout is d_layout and alpha._obj.value == 1 and workspace % 256 == 0
        assert size == self.asked[-1][1] and self.asked[-1][3] == 2
        left, right = self._array(a, a_layout), self._array(b, b_layout)
        left = left.swapaxes(1, 2) if told.get(3) else left
        right = right.swapaxes(1, 2) if told.get(4) else right
        result = self._array(d, d_layout)
        kind = _NUMPY[told["scale"]]
        value = left.astype(kind) @ right.astype(kind)
        result[...] = value + beta._obj.value * result if beta._obj.value else value
        self.streams.append(stream)
        return 0

    def _array(self, address: int, layout: Any) -> Any:
        """Return the matrices (batch, row, column) of a layout along columns."""
        told = self.made[layout.value]
        dtype = np.dtype(_NUMPY[told["type"]])
        count, step = told.get(5, 1), told.get(6, 0)
        assert told["leading"] >= told["rows"]
        reach = (count - 1) * step + (told["columns"] - 1) * told["leading"] + told["rows"]
        memory = (ctypes.c_uint8 * (reach * dtype.itemsize)).from_address(address)
        strides = (step * dtype.itemsize, dtype.itemsize, told["leading"] * dtype.itemsize)
        shape = (count, told["rows"], told["columns"])
        return np.ndarray(shape, dtype, memoryview(memory), 0, strides)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    fake = FakeLibrary()
    monkeypatch.setattr(cublas, "library", lambda: fake)
    monkeypatch.setattr(cublas, "_handles", {})
    return fake


def call_of(unit: Any) -> LibraryCall:
    (call,) = [launch for launch in unit.source.launches if isinstance(launch, LibraryCall)]
    return call


def aligned(count: int, dtype: Any, place: int = 0) -> Any:
    """Return zeros whose address leaves the remainder *place*, divided by 256."""
    raw = np.zeros(count * np.dtype(dtype).itemsize + 512, np.uint8)
    start = -raw.ctypes.data % 256 + place
    return raw[start : start + count * np.dtype(dtype).itemsize].view(dtype)


def operands(call: LibraryCall, places: tuple[int, int, int] = (0, 0, 0)) -> list[Any]:
    draw = np.random.default_rng(5)
    found = []
    for (matrix, shape), place in zip(call.product.matrices, places, strict=True):
        reach = sum((n - 1) * s for n, s in zip(shape, matrix.strides, strict=True)) + 1
        array = aligned(matrix.offset + reach, matrix.dtype, place)
        array[...] = draw.standard_normal(array.shape)
        found.append(array)
    return [*found, aligned(call.workspace_bytes, np.uint8)]


def run(step: ProductStep, arrays: list[Any]) -> None:
    step.launch(tuple(array.ctypes.data for array in arrays), _STREAM)


def expected(call: LibraryCall, arrays: list[Any]) -> Any:
    left, right, before = matrices_at(call.product, [x.ctypes.data for x in arrays])
    value = left.astype(np.float64) @ right.astype(np.float64)
    return value + before if call.product.accumulates else value


def check_call(call: LibraryCall, places: tuple[int, int, int] = (0, 0, 0)) -> None:
    step = ProductStep(call, (0, 1, 2, 3), 1)
    arrays = operands(call, places)
    wanted = expected(call, arrays)
    run(step, arrays)
    found = matrices_at(call.product, [x.ctypes.data for x in arrays])[2]
    tolerance = 2e-3 if call.product.result.dtype == "float16" else 1e-5
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * 20)


@pytest.mark.parametrize("form", FORMS)
def test_every_layout_is_told_right(form: str, library: FakeLibrary, cuda_unit: MakeUnit) -> None:
    check_call(call_of(cuda_unit(product(form), *shapes(form))))
    assert library.streams == [_STREAM]


def test_types_and_sums(library: FakeLibrary, cuda_unit: MakeUnit) -> None:
    for dtype, result in (("double", ""), ("float16", "float16(M,N)"), ("float16", "float(M,N)")):
        check_call(call_of(cuda_unit(product("NT", dtype, result=result), *shapes("NT"))))
    check_call(call_of(cuda_unit(ON_FROM, (33, 20), (20, 17), (33, 17))))
    computed = [made["compute"] for made in library.made.values() if "compute" in made]
    assert computed == [70, 68, 68, 68], "float64; sums of float32, without tf32"


def test_tf32_is_only_what_was_asked_for(library: FakeLibrary, cuda_unit: MakeUnit) -> None:
    options = Options(precision="tf32")
    check_call(call_of(cuda_unit(product("NN"), *shapes("NN"), options=options)))
    assert [made["compute"] for made in library.made.values() if "compute" in made] == [77]


def test_an_algorithm_is_chosen_for_each_alignment(
    library: FakeLibrary, cuda_unit: MakeUnit
) -> None:
    call = call_of(cuda_unit(product("NN"), *shapes("NN")))
    step = ProductStep(call, (0, 1, 2, 3), 1)
    for places in ((0, 0, 0), (0, 0, 0), (4, 16, 8), (0, 128, 64), (4, 16, 8)):
        run(step, operands(call, places))
    # C' = B' A': the second operand is the library's first.  5 to 8: of A, B, C and D.
    assert [[one[n] for n in (5, 6, 7, 8)] for one in library.asked] == [
        [256, 256, 256, 256], [16, 4, 8, 8], [128, 256, 64, 64],
    ]  # fmt: skip


def test_failures_are_launch_errors(library: FakeLibrary, cuda_unit: MakeUnit) -> None:
    call = call_of(cuda_unit(product("NN"), *shapes("NN")))
    step = ProductStep(call, (0, 1, 2, 3), 1)
    library.statuses["algorithms"] = 0
    with pytest.raises(TCError, match="it has no algorithm for cublas of S0"):
        run(step, operands(call))
    library.statuses.update(algorithms=1, matmul=13)
    with pytest.raises(TCError, match="cublasStatus_t 13"):
        run(step, operands(call))


def test_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    cublas.library.cache_clear()
    monkeypatch.setattr(cublas, "in_process", lambda _: None)
    monkeypatch.setattr(cublas, "_found", lambda: None)
    with pytest.raises(TCError, match="not available") as caught:
        cublas.library()
    assert caught.value.code == "TC095"
    assert caught.value.hint is not None and "pip install nvidia-cublas" in caught.value.hint
