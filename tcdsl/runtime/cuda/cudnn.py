"""NVIDIA's cuDNN through ctypes: one convolution, or gradient of one, as a step of a call.

    already in the process          PyTorch, JAX and CuPy bring theirs
    .../nvidia/cudnn/lib            Python's packages nvidia-cudnn-cu12, nvidia-cudnn-cu13
    libcudnn.so.9                   whatever the system's loader finds

Sums are of the type that the language says, float32 for half types, and of float32 without tf32
unless it was asked for.  Of the library's algorithms those are taken that add up the products as
written (no transforms of Winograd or Fourier, whose errors are others), give the same bits every
time and fit the workspace; of these the one that the library takes for the fastest.
"""

import ctypes
import sys
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tcdsl.codegen.cuda.source import LibraryCall
from tcdsl.costmodel.convolutions import Computed, Convolution
from tcdsl.errors import CUDA_FAILED, LIBRARY_MISSING, TCError
from tcdsl.runtime.cuda import libcuda
from tcdsl.runtime.cuda.shared_library import declared, in_process, opened
from tcdsl.runtime.cuda.steps import Prepared, Values
from tcdsl.runtime.selection import selector

_SONAMES = ("libcudnn.so.9", "libcudnn.so.8")
_PACKAGE = "nvidia/cudnn/lib"
_ADVICE = (
    f"{sys.executable} -m pip install nvidia-cudnn-cu12, or compile with Options(libraries=False)"
)

# The enumerations of cudnn_ops.h and cudnn_cnn.h.
_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
_NCHW, _NHWC = 0, 1
_CROSS_CORRELATION = 1
_DEFAULT_MATH, _TENSOR_MATH, _FMA_MATH = 0, 1, 3
_DETERMINISTIC = 1
_MOST_ALGORITHMS = 8
# Those that multiply and add as the sum says: GEMM, implicit or not, and direct.
_ALGORITHMS = {Computed.RESULT: (0, 1, 2, 3), Computed.IMAGE: (1,), Computed.FILTER: (1,)}
_NAMES = {
    Computed.RESULT: "Forward", Computed.IMAGE: "BackwardData", Computed.FILTER: "BackwardFilter"
}  # fmt: skip
_KINDS = {Computed.IMAGE: "Tensor", Computed.FILTER: "Filter", Computed.RESULT: "Tensor"}
_LEAST_RANK = 2  # spatial dimensions

_HANDLE, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_INTS = ctypes.c_void_p  # of numbers
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cudnnCreate": (_HANDLE,),
    "cudnnSetStream": (_HANDLE, _HANDLE),
    "cudnnCreateTensorDescriptor": (_HANDLE,),
    "cudnnSetTensorNdDescriptor": (_HANDLE, _INT, _INT, _INTS, _INTS),
    "cudnnCreateFilterDescriptor": (_HANDLE,),
    "cudnnSetFilterNdDescriptor": (_HANDLE, _INT, _INT, _INT, _INTS),
    "cudnnCreateConvolutionDescriptor": (_HANDLE,),
    "cudnnSetConvolutionNdDescriptor": (_HANDLE, _INT, _INTS, _INTS, _INTS, _INT, _INT),
    "cudnnSetConvolutionMathType": (_HANDLE, _INT),
    **{
        f"cudnnGetConvolution{name}Algorithm_v7": (*(_HANDLE,) * 5, _INT, _HANDLE, _HANDLE)
        for name in _NAMES.values()
    },
    **{
        f"cudnnConvolution{name}": (
            *(_HANDLE,) * 7, _INT, _HANDLE, _SIZE, *(_HANDLE,) * 3
        )
        for name in _NAMES.values()
    },
}  # fmt: skip


class Performance(ctypes.Structure):
    """cudnnConvolutionFwdAlgoPerf_t, and those of both gradients, which have the same fields."""

    _fields_ = (
        ("algorithm", _INT), ("status", _INT), ("milliseconds", ctypes.c_float),
        ("workspace_bytes", _SIZE), ("determinism", _INT), ("math", _INT), ("reserved", _INT * 3),
    )  # fmt: skip


# --- finding ---------------------------------------------------------------------------------


def is_loaded() -> bool:
    """Return whether the process has the library already, so that a call of it costs no loading."""
    return in_process(_SONAMES) is not None


@lru_cache(maxsize=1)
def library() -> Any:
    """Return the library, with the types of its functions declared.

    :raises TargetError: (TC095) there is none.
    """
    loaded = in_process(_SONAMES) or _found()
    if loaded is None:
        raise LIBRARY_MISSING(
            library="cudnn", why="there is no libcudnn.so",
            advice=f"it comes with torch; or {_ADVICE}",
        )  # fmt: skip
    return declared(loaded, _SIGNATURES)


def _found() -> ctypes.CDLL | None:
    packaged = (Path(root, _PACKAGE, soname) for root in sys.path for soname in _SONAMES)
    return opened((*(str(path) for path in packaged if path.is_file()), *_SONAMES))


# --- calling ---------------------------------------------------------------------------------


def _call(name: str, *args: Any) -> None:
    """Call the library's function *name*.

    :raises LaunchError: (TC088) it failed.
    """
    status = getattr(library(), name)(*args)
    if status != 0:
        raise _error(name, status)


def _error(name: str, status: int) -> TCError:
    return CUDA_FAILED(call=name, why=f"cudnnStatus_t {status}")


def _new(kind: str) -> ctypes.c_void_p:
    made = ctypes.c_void_p()
    _call(f"cudnnCreate{kind}", ctypes.byref(made))
    return made


_handles: dict[int, ctypes.c_void_p] = {}  # by the context's; never destroyed, as contexts
_running = (
    threading.Lock()
)  # a handle has one stream at a time, and other threads have other streams


def _handle(context: int) -> ctypes.c_void_p:
    """Return the library's handle in *context*, which is current."""
    if context not in _handles:
        _handles[context] = _new("")
    return _handles[context]


def _ints(numbers: Sequence[int]) -> Any:
    return ctypes.byref((_INT * len(numbers))(*numbers))


class ConvolutionStep:
    """One convolution of the library, on any stream; a captured graph gets the nodes of it."""

    __slots__ = (
        "_algorithm", "_descriptors", "_factors", "_handle", "_order", "_run", "_set_stream",
        "_what", "_workspace_bytes", "name", "positions", "select",
    )  # fmt: skip
    needs_driver: bool = False

    def __init__(self, call: LibraryCall, positions: Sequence[int], context: int) -> None:
        """Take the *positions* of the operands among the slots; *context* is current.

        :raises TargetError: (TC095) the library is not there.
        """
        product = call.product
        assert isinstance(product, Convolution)
        self.name, self.positions = call.name, tuple(positions)
        self.select = selector(self.positions)
        self._workspace_bytes = call.workspace_bytes
        self._handle = _handle(context)
        self._what = _NAMES[product.computed]
        number = ctypes.c_double if product.summed == "float64" else ctypes.c_float
        self._factors = [ctypes.byref(number(x)) for x in (1.0, float(product.accumulates))]
        tensors = {kind: _tensor(product, kind) for kind in Computed}
        described = _described(product)
        # The library takes the filter before a gradient, and images before it.
        ways = {
            Computed.RESULT: (Computed.IMAGE, Computed.FILTER),
            Computed.IMAGE: (Computed.FILTER, Computed.RESULT),
            Computed.FILTER: (Computed.IMAGE, Computed.RESULT),
        }[product.computed]
        first, second = ways
        self._descriptors = (
            tensors[first], tensors[second], described, tensors[product.computed]
        )  # fmt: skip
        self._order = product.kinds.index(first), product.kinds.index(second)
        is_cut = call.precision == "tf32" and product.dtype == "float32"
        self._algorithm = self._chosen(product, is_cut=is_cut)
        self._run = getattr(library(), f"cudnnConvolution{self._what}")
        self._set_stream = library().cudnnSetStream

    def at(self, integers: Sequence[int]) -> "ConvolutionStep":
        """Return the step itself: it has no grid."""
        return self

    def launch_at(self, integers: Sequence[int], values: Values, stream: int) -> None:
        """Launch as it is: programs with one have no open sizes."""
        self.launch(values, stream)

    def prepared(self, values: Values) -> Prepared:
        """Return the convolution at *values*, addresses, on the default stream."""
        return self.launch, (values, libcuda.DEFAULT_STREAM)

    def launch(self, values: Values, stream: int) -> None:
        """Convolve at *values*, addresses; the context must be current."""
        n, m = self._order
        a, b, convolution, c = self._descriptors
        one, before = self._factors
        with _running:
            status = self._set_stream(self._handle, stream) or self._run(
                self._handle, one, a, values[n], b, values[m], convolution, self._algorithm,
                values[3], self._workspace_bytes, before, c, values[2],
            )  # fmt: skip
        if status != 0:
            raise _error(f"cudnnConvolution{self._what}", status)

    def _chosen(self, product: Convolution, *, is_cut: bool) -> int:
        """Return the library's choice among the algorithms that are allowed, and tell it the math.

        :arg is_cut: float32 may be rounded to tf32.
        """
        found, count = (Performance * _MOST_ALGORITHMS)(), ctypes.c_int()
        a, b, convolution, c = self._descriptors
        plain = _DEFAULT_MATH if is_cut else _FMA_MATH
        _call("cudnnSetConvolutionMathType", convolution, _math(product, plain))
        _call(
            f"cudnnGetConvolution{self._what}Algorithm_v7", self._handle, a, b, convolution, c,
            _MOST_ALGORITHMS, ctypes.byref(count), ctypes.byref(found),
        )  # fmt: skip
        for one in found[: count.value]:
            if one.status == 0 and self._is_allowed(one, product, is_cut=is_cut):
                math = one.math if _is_half(product) else plain
                _call("cudnnSetConvolutionMathType", convolution, math)
                return int(one.algorithm)
        what = f"cudnnConvolution{self._what}"
        raise CUDA_FAILED(call=what, why=f"it has no algorithm for {self.name}")

    def _is_allowed(self, one: Performance, product: Convolution, *, is_cut: bool) -> bool:
        """Return whether the algorithm *one* adds up products as written, in the workspace."""
        is_plain = is_cut or product.dtype != "float32" or one.math != _TENSOR_MATH
        return (
            is_plain
            and one.workspace_bytes <= self._workspace_bytes
            and one.algorithm in _ALGORITHMS[product.computed]
            and one.determinism == _DETERMINISTIC
        )


def _is_half(product: Convolution) -> bool:
    return product.dtype in ("float16", "bfloat16")


def _math(product: Convolution, plain: int) -> int:
    return _TENSOR_MATH if _is_half(product) else plain


def _tensor(product: Convolution, kind: Computed) -> ctypes.c_void_p:
    """Return the descriptor of a tensor of *product*."""
    made = _new(f"{_KINDS[kind]}Descriptor")
    sizes, strides = [*product.sizes(kind)], [*product.strides(kind)]
    for _ in range(len(product.windows), _LEAST_RANK):  # an axis of extent 1 before the others
        sizes.insert(2, 1)
        strides.insert(2, strides[2] * sizes[3])
    dtype = _TYPES[product.dtype]
    if kind is Computed.FILTER:
        layout = _NHWC if product.is_channels_last else _NCHW
        _call("cudnnSetFilterNdDescriptor", made, dtype, layout, len(sizes), _ints(sizes))
    else:
        told = len(sizes), _ints(sizes), _ints(strides)
        _call("cudnnSetTensorNdDescriptor", made, dtype, *told)
    return made


def _described(product: Convolution) -> ctypes.c_void_p:
    """Return the descriptor of the windows of *product*, and of the type of its sums."""
    made, more = _new("ConvolutionDescriptor"), max(0, _LEAST_RANK - len(product.windows))
    paddings = [0] * more + [w.padding for w in product.windows]
    steps = [1] * more + [w.step for w in product.windows]
    dilations = [1] * more + [w.dilation for w in product.windows]
    _call(
        "cudnnSetConvolutionNdDescriptor", made, len(steps), _ints(paddings), _ints(steps),
        _ints(dilations), _CROSS_CORRELATION, _TYPES[product.summed],
    )  # fmt: skip
    return made
