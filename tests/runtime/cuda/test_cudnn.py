"""Calls of cuDNN without a GPU: a library that does in host memory what its arguments say.

What it is told of sizes, strides, layouts, windows, types, algorithms and workspace is all that it
has.
"""

import ctypes
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.cuda.source import LibraryCall
from tcdsl.costmodel.convolutions import Computed, Convolution
from tcdsl.errors import TCError
from tcdsl.options import Options
from tcdsl.runtime.cuda import cudnn
from tcdsl.runtime.cuda.cudnn import ConvolutionStep
from tests.emulated_programs import cuda_unit_of
from tests.strategies.test_convolutions import FORMS, text_of

_NUMPY = {0: np.float32, 1: np.float64, 2: np.float16}
_STREAM = 0x51
_FMA, _TENSOR = 3, 1


class FakeLibrary:
    """The functions of cudnn_ops.h and cudnn_cnn.h that are called, on host memory."""

    def __init__(self) -> None:
        self.made: dict[int, dict[str, Any]] = {}
        self.streams: list[int] = []
        self.algorithms: list[dict[str, int]] = [{"algorithm": 1}]
        self.status = 0

    def _new(self, out: Any) -> int:
        out._obj.value = len(self.made) + 1
        self.made[out._obj.value] = {}
        return 0

    cudnnCreate = cudnnCreateTensorDescriptor = cudnnCreateFilterDescriptor = _new
    cudnnCreateConvolutionDescriptor = _new

    def cudnnSetStream(self, handle: Any, stream: int) -> int:
        self.streams.append(stream)
        return 0

    def cudnnSetTensorNdDescriptor(
        self, of: Any, dtype: int, rank: int, sizes: Any, strides: Any
    ) -> int:
        assert rank >= 4 and len(sizes._obj) == len(strides._obj) == rank
        self.made[of.value] = {"type": dtype, "sizes": [*sizes._obj], "strides": [*strides._obj]}
        return 0

    def cudnnSetFilterNdDescriptor(
        self, of: Any, dtype: int, layout: int, rank: int, sizes: Any
    ) -> int:
        assert rank >= 4 and len(sizes._obj) == rank
        order = [0, *range(2, rank), 1] if layout == 1 else [*range(rank)]
        strides, step = [0] * rank, 1
        for dim in reversed(order):
            strides[dim] = step
            step *= sizes._obj[dim]
        self.made[of.value] = {"type": dtype, "sizes": [*sizes._obj], "strides": strides}
        return 0

    def cudnnSetConvolutionNdDescriptor(
        self, of: Any, rank: int, paddings: Any, steps: Any, dilations: Any, mode: int, dtype: int
    ) -> int:
        assert mode == 1, "a cross-correlation"
        own = [*zip(paddings._obj, steps._obj, dilations._obj, strict=True)]
        assert len(own) == rank
        self.made[of.value] = {"windows": own, "type": dtype}
        return 0

    def cudnnSetConvolutionMathType(self, of: Any, math: int) -> int:
        self.made[of.value]["math"] = math
        return 0

    def _offer(self, handle: Any, a: Any, b: Any, of: Any, c: Any, most: int, count: Any,
               found: Any) -> int:  # fmt: skip
        count._obj.value = len(self.algorithms)
        assert len(self.algorithms) <= most
        for one, told in zip(found._obj, self.algorithms, strict=False):
            one.algorithm, one.status = told["algorithm"], told.get("status", 0)
            one.determinism, one.math = told.get("determinism", 1), told.get("math", 0)
            one.workspace_bytes = told.get("workspace", 0)
        return 0

    cudnnGetConvolutionForwardAlgorithm_v7 = _offer
    cudnnGetConvolutionBackwardDataAlgorithm_v7 = _offer
    cudnnGetConvolutionBackwardFilterAlgorithm_v7 = _offer

    def _run(self, kind: Computed, *args: Any) -> int:
        if self.status:
            return self.status
        _, one, a, first, b, second, of, algorithm, space, size, before, c, third = args
        assert one._obj.value == 1 and space % 256 == 0 and size > 0
        assert algorithm in [told["algorithm"] for told in self.algorithms]
        names = {
            Computed.RESULT: (Computed.IMAGE, Computed.FILTER),
            Computed.IMAGE: (Computed.FILTER, Computed.RESULT),
            Computed.FILTER: (Computed.IMAGE, Computed.RESULT),
        }[kind]
        tensors = {
            names[0]: self._array(first, a), names[1]: self._array(second, b),
            kind: self._array(third, c),
        }  # fmt: skip
        told = self.made[of.value]
        value = convolved(kind, tensors, told["windows"], _NUMPY[told["type"]])
        tensors[kind][...] = value + before._obj.value * tensors[kind]
        return 0

    def cudnnConvolutionForward(self, *args: Any) -> int:
        return self._run(Computed.RESULT, *args)

    def cudnnConvolutionBackwardData(self, *args: Any) -> int:
        return self._run(Computed.IMAGE, *args)

    def cudnnConvolutionBackwardFilter(self, *args: Any) -> int:
        return self._run(Computed.FILTER, *args)

    def _array(self, address: int, of: Any) -> Any:
        told = self.made[of.value]
        dtype = np.dtype(_NUMPY[told["type"]])
        reach = sum((n - 1) * s for n, s in zip(told["sizes"], told["strides"], strict=True)) + 1
        memory = (ctypes.c_uint8 * (reach * dtype.itemsize)).from_address(address)
        strides = [step * dtype.itemsize for step in told["strides"]]
        return np.ndarray(told["sizes"], dtype, memoryview(memory), 0, strides)


def convolved(kind: Computed, tensors: Any, windows: Any, dtype: Any) -> Any:
    """Return what is computed, pixel by pixel and tap by tap."""
    image, weights, result = (
        tensors[k].astype(dtype) for k in (Computed.IMAGE, Computed.FILTER, Computed.RESULT)
    )
    own = np.zeros_like({Computed.IMAGE: image, Computed.FILTER: weights}.get(kind, result))
    for pixel in product(*map(range, result.shape[2:])):
        for tap in product(*map(range, weights.shape[2:])):
            at = tuple(
                step * p + dilation * t - padding
                for p, t, (padding, step, dilation) in zip(pixel, tap, windows, strict=True)
            )
            if not all(0 <= x < size for x, size in zip(at, image.shape[2:], strict=True)):
                continue
            x, w, y = (slice(None), slice(None), *at), (..., *tap), (..., *pixel)
            if kind is Computed.RESULT:
                own[y] += image[x] @ weights[w].T
            elif kind is Computed.FILTER:
                own[w] += result[y].T @ image[x]
            else:
                own[x] += result[y] @ weights[w]
    return own


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    fake = FakeLibrary()
    monkeypatch.setattr(cudnn, "library", lambda: fake)
    monkeypatch.setattr(cudnn, "_handles", {})
    return fake


def call_of(form: str, dtype: str = "float", options: Options | None = None) -> LibraryCall:
    unit = cuda_unit_of(text_of(form, dtype), FORMS[form][1], options=options)
    (call,) = [launch for launch in unit.source.launches if isinstance(launch, LibraryCall)]
    return call


def operands(call: LibraryCall) -> list[Any]:
    """Return the two operands, what is computed, and the workspace, flat."""
    draw, own = np.random.default_rng(5), call.product
    assert isinstance(own, Convolution)
    tensors = tensors_of(own)
    # As the generated code passes them: each array by its name.
    found = [
        draw.standard_normal(int(np.prod(own.sizes(tensors[operand.name])))).astype(own.dtype)
        for operand in call.operands[:3]
    ]
    raw = np.zeros(call.workspace_bytes + 512, np.uint8)
    start = -raw.ctypes.data % 256
    return [*found, raw[start : start + call.workspace_bytes]]


def tensors_of(own: Convolution) -> dict[str, Computed]:
    return {
        own.image: Computed.IMAGE, own.filter: Computed.FILTER, own.result: Computed.RESULT
    }  # fmt: skip


def check_call(call: LibraryCall, library: FakeLibrary) -> None:
    own = call.product
    assert isinstance(own, Convolution)
    arrays = operands(call)
    tensors, names = {}, tensors_of(own)
    for operand, array in zip(call.operands[:3], arrays, strict=False):
        kind = names[operand.name]
        strides = [array.itemsize * step for step in own.strides(kind)]
        tensors[kind] = np.ndarray(own.sizes(kind), array.dtype, array, 0, strides).astype(float)
    windows = [(w.padding, w.step, w.dilation) for w in own.windows]
    wanted = convolved(own.computed, tensors, windows, np.float64)
    step = ConvolutionStep(call, (0, 1, 2, 3), 1)
    step.launch(tuple(array.ctypes.data for array in arrays), _STREAM)
    strides = [arrays[2].itemsize * n for n in own.strides(own.computed)]
    found = np.ndarray(own.sizes(own.computed), arrays[2].dtype, arrays[2], 0, strides)
    tolerance = 4e-3 if own.dtype == "float16" else 1e-5
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * 20)
    assert library.streams[-1] == _STREAM


@pytest.mark.parametrize("form", FORMS)
def test_every_convolution_is_told_right(form: str, library: FakeLibrary) -> None:
    check_call(call_of(form), library)


def test_types_and_math(library: FakeLibrary) -> None:
    for dtype, asked in (("double", {}), ("half", {}), ("float", {"precision": "tf32"})):
        check_call(call_of("valid", dtype, Options(**asked)), library)
    check_call(call_of("valid"), library)
    told = [made for made in library.made.values() if "math" in made]
    assert [made["type"] for made in told] == [1, 0, 0, 0], "float64; sums of float32"
    assert told[2]["math"] == 0 and told[3]["math"] == _FMA, "tf32 only where it was asked for"


@pytest.mark.parametrize(
    "refused",
    [
        {"algorithm": 6},  # Winograd
        {"algorithm": 1, "status": 9},
        {"algorithm": 1, "determinism": 0},
        {"algorithm": 1, "math": _TENSOR},  # of float32
        {"algorithm": 1, "workspace": 1 << 40},
    ],
)
def test_algorithms_that_are_not_taken(refused: dict[str, int], library: FakeLibrary) -> None:
    library.algorithms = [refused, {"algorithm": 0}]
    call = call_of("valid")
    assert ConvolutionStep(call, (0, 1, 2, 3), 1)._algorithm == 0
    library.algorithms = [refused]
    with pytest.raises(TCError, match="it has no algorithm for cudnn of S0"):
        ConvolutionStep(call, (0, 1, 2, 3), 1)


def test_threads_keep_their_streams(library: FakeLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library has one handle in a context, and the handle has one stream at a time."""
    call, used = call_of("valid"), []
    step, arrays = ConvolutionStep(call, (0, 1, 2, 3), 1), operands(call)
    addresses = tuple(array.ctypes.data for array in arrays)
    both_told = threading.Barrier(2)

    def told(handle: Any, stream: int) -> int:
        library.streams.append(stream)
        with suppress(threading.BrokenBarrierError):
            both_told.wait(0.2)  # long enough for the other thread to tell its own, if it may
        return 0

    def run(*args: Any) -> int:
        used.append(library.streams[-1])
        return 0

    monkeypatch.setattr(step, "_set_stream", told)
    monkeypatch.setattr(step, "_run", run)
    threads = [threading.Thread(target=step.launch, args=(addresses, n)) for n in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(used) == [1, 2]


def test_failures_are_launch_errors(library: FakeLibrary) -> None:
    call = call_of("weights")
    step = ConvolutionStep(call, (0, 1, 2, 3), 1)
    library.status = 8
    with pytest.raises(TCError, match="cudnnStatus_t 8"):
        step.launch(tuple(array.ctypes.data for array in operands(call)), _STREAM)


def test_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find: Callable[[], Any] = cudnn.library
    cudnn.library.cache_clear()
    monkeypatch.setattr(cudnn, "in_process", lambda _: None)
    monkeypatch.setattr(cudnn, "_found", lambda: None)
    with pytest.raises(TCError, match="not available") as caught:
        find()
    assert caught.value.code == "TC095"
    assert caught.value.hint is not None and "nvidia-cudnn" in caught.value.hint
