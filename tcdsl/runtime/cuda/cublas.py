"""NVIDIA's cuBLASLt through ctypes: finding it, and one product of matrices as a step of a call.

    already in the process          PyTorch, CuPy and JAX bring theirs
    .../nvidia/cu13/lib, ...        Python's packages nvidia-cublas, nvidia-cublas-cu12
    CUDA_HOME, CUDA_PATH            a toolkit
    libcublasLt.so.13, .12          whatever the system's loader finds

The library's matrices have neighbours along columns.  A result whose rows are neighbours is that
of the transposed product, and an operand whose layout is the other one is given as transposed:

    C = A B   --->   C' = B' A'        nothing is copied

Sums are of the type that the language says: float32 for half types, also where parts of the terms
are summed apart; float32 without tf32 unless it was asked for.  Which algorithm runs is the
library's choice, made once for each alignment of the pointers; the same one gives the same bits.
"""

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from tcdsl.codegen.cuda.source import LibraryCall
from tcdsl.costmodel.matrix_products import SIZES, Matrix, MatrixProduct, leading_dimension
from tcdsl.errors import CUDA_FAILED, LIBRARY_MISSING, TCError
from tcdsl.runtime.cuda import libcuda
from tcdsl.runtime.cuda.shared_library import declared, in_process, opened
from tcdsl.runtime.cuda.steps import Prepared, Values
from tcdsl.runtime.selection import selector

_SONAMES = ("libcublasLt.so.13", "libcublasLt.so.12")
_PACKAGES = ("nvidia/cu13/lib", "nvidia/cublas/lib", "nvidia/cu12/lib")
_TOOLKIT_FOLDERS = ("lib64", "lib", "targets/x86_64-linux/lib")
_ADVICE = f"{sys.executable} -m pip install nvidia-cublas, or compile with Options(libraries=False)"

# cudaDataType, cublasComputeType_t, and attributes of cublasLt.h.
_TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 14}
_COMPUTE_32F, _COMPUTE_64F, _COMPUTE_TF32 = 68, 70, 77
_TRANSPOSED_A, _TRANSPOSED_B, _TRANSPOSE = 3, 4, 1
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
_WORKSPACE_BYTES, _REDUCTIONS, _FIRST_ALIGNMENT = 1, 3, 5
_SUMS_IN_THEIR_TYPE = 2  # CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE: in a fixed order
_MOST_ALIGNMENT = 256

_HANDLE, _INT, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cublasLtCreate": (_HANDLE,),
    "cublasLtMatmulDescCreate": (_HANDLE, _INT, _INT),
    "cublasLtMatmulDescSetAttribute": (_HANDLE, _INT, _HANDLE, _SIZE),
    "cublasLtMatrixLayoutCreate": (_HANDLE, _INT, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64),
    "cublasLtMatrixLayoutSetAttribute": (_HANDLE, _INT, _HANDLE, _SIZE),
    "cublasLtMatmulPreferenceCreate": (_HANDLE,),
    "cublasLtMatmulPreferenceSetAttribute": (_HANDLE, _INT, _HANDLE, _SIZE),
    "cublasLtMatmulPreferenceDestroy": (_HANDLE,),
    "cublasLtMatmulAlgoGetHeuristic": (*(_HANDLE,) * 7, _INT, _HANDLE, _HANDLE),
    "cublasLtMatmul": (*(_HANDLE,) * 14, _SIZE, _HANDLE),
}


class _Heuristic(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t, which begins with the algorithm."""

    _fields_ = (
        ("algorithm", ctypes.c_uint64 * 8), ("workspace_bytes", _SIZE), ("state", _INT),
        ("waves", ctypes.c_float), ("reserved", _INT * 4),
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
            library="cublas", why="there is no libcublasLt.so for this driver",
            advice=f"it comes with torch; or {_ADVICE}",
        )  # fmt: skip
    return declared(loaded, _SIGNATURES)


def _found() -> ctypes.CDLL | None:
    newest = libcuda.driver_version()[0]
    sonames = [name for name in _SONAMES if int(name.rpartition(".")[2]) <= newest]
    return opened((*map(str, _places(sonames)), *sonames))


def _places(sonames: Sequence[str]) -> Iterator[Path]:
    homes = [os.environ.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    folders = [Path(root, package) for root in sys.path for package in _PACKAGES]
    folders += [Path(home, name) for home in homes if home for name in _TOOLKIT_FOLDERS]
    folders.append(Path("/usr/local/cuda", _TOOLKIT_FOLDERS[0]))
    for folder in folders:
        for soname in sonames:
            if os.path.isfile(folder / soname):
                yield folder / soname


# --- calling ---------------------------------------------------------------------------------


def _call(name: str, *args: Any) -> None:
    """Call the library's function *name*.

    :raises LaunchError: (TC088) it failed.
    """
    status = getattr(library(), name)(*args)
    if status != 0:
        raise _error(name, status)


def _error(name: str, status: int) -> TCError:
    return CUDA_FAILED(call=name, why=f"cublasStatus_t {status}")


def _new(name: str, *args: Any) -> ctypes.c_void_p:
    """Return what the library's function *name* creates."""
    made = ctypes.c_void_p()
    _call(name, ctypes.byref(made), *args)
    return made


def _set(kind: str, of: ctypes.c_void_p, attribute: int, value: Any) -> None:
    _call(
        f"cublasLt{kind}SetAttribute", of, attribute, ctypes.byref(value), ctypes.sizeof(value)
    )  # fmt: skip


_handles: dict[int, ctypes.c_void_p] = {}  # by the context's; never destroyed, as contexts


def _handle(context: int) -> ctypes.c_void_p:
    """Return the library's handle in *context*, which is current."""
    if context not in _handles:
        _handles[context] = _new("cublasLtCreate")
    return _handles[context]


class ProductStep:
    """One product of the library, on any stream; a captured graph gets the nodes of it."""

    __slots__ = (
        "_algorithms", "_arrays", "_description", "_factors", "_handle", "_layouts", "_matmul",
        "_offsets", "_workspace_bytes", "name", "positions", "select",
    )  # fmt: skip
    needs_driver: bool = False

    def __init__(self, call: LibraryCall, positions: Sequence[int], context: int) -> None:
        """Take the *positions* of the operands among the slots; *context* is current.

        :raises TargetError: (TC095) the library is not there.
        """
        product = call.product
        assert isinstance(product, MatrixProduct)
        self.name, self.positions = call.name, tuple(positions)
        self.select = selector(self.positions)
        self._workspace_bytes = call.workspace_bytes
        self._handle = _handle(context)
        compute = _COMPUTE_64F if product.summed == "float64" else _COMPUTE_32F
        if call.precision == "tf32" and product.left.dtype == "float32":
            compute = _COMPUTE_TF32
        self._description = _new("cublasLtMatmulDescCreate", compute, _TYPES[product.summed])
        number = ctypes.c_double if product.summed == "float64" else ctypes.c_float
        self._factors = [ctypes.byref(number(x)) for x in (1.0, float(product.accumulates))]
        self._matmul = library().cublasLtMatmul
        found = leading_dimension(product.result, product.rows, product.columns)
        assert found is not None, "why no product"
        is_turned = found[0]
        order = (1, 0, 2) if is_turned else (0, 1, 2)
        self._layouts = []
        for place, number_ in enumerate(order):
            matrix, (batch, rows, columns) = product.matrices[number_]
            is_row_major, layout = _layout(matrix, batch, rows, columns)
            self._layouts.append(layout)
            if place < 2 and is_row_major != is_turned:
                attribute = (_TRANSPOSED_A, _TRANSPOSED_B)[place]
                _set("MatmulDesc", self._description, attribute, ctypes.c_int32(_TRANSPOSE))
        self._arrays = order
        self._offsets = [matrix.offset * SIZES[matrix.dtype] for matrix, _ in product.matrices]
        self._algorithms: dict[tuple[int, int, int], Any] = {}  # references to them

    def at(self, integers: Sequence[int]) -> "ProductStep":
        """Return the step itself: it has no grid."""
        return self

    def launch_at(self, integers: Sequence[int], values: Values, stream: int) -> None:
        """Launch as it is: programs with one have no open sizes."""
        self.launch(values, stream)

    def prepared(self, values: Values) -> Prepared:
        """Return the product at *values*, addresses, on the default stream."""
        return self.launch, (values, libcuda.DEFAULT_STREAM)

    def launch(self, values: Values, stream: int) -> None:
        """Multiply at *values*, addresses; the context must be current."""
        n, m, k = self._arrays
        first, second = values[n] + self._offsets[n], values[m] + self._offsets[m]
        result = values[k] + self._offsets[k]
        key = first % _MOST_ALIGNMENT, second % _MOST_ALIGNMENT, result % _MOST_ALIGNMENT
        algorithm = self._algorithms.get(key) or self._chosen(key)
        one, beta = self._factors
        a, b, c = self._layouts
        status = self._matmul(
            self._handle, self._description, one, first, a, second, b, beta, result, c, result, c,
            algorithm, values[3], self._workspace_bytes, stream,
        )  # fmt: skip
        if status != 0:
            raise _error("cublasLtMatmul", status)

    def _chosen(self, places: tuple[int, int, int]) -> Any:
        """Return the library's choice for pointers with the remainders *places*."""
        alignments = [place & -place or _MOST_ALIGNMENT for place in places]
        preference = _new("cublasLtMatmulPreferenceCreate")
        numbers = [(_WORKSPACE_BYTES, ctypes.c_uint64(self._workspace_bytes)),
                   (_REDUCTIONS, ctypes.c_uint32(_SUMS_IN_THEIR_TYPE))]  # fmt: skip
        numbers += [
            (_FIRST_ALIGNMENT + n, ctypes.c_uint32(alignment))
            for n, alignment in enumerate((*alignments, alignments[2]))
        ]
        for attribute, value in numbers:
            _set("MatmulPreference", preference, attribute, value)
        found, count = _Heuristic(), ctypes.c_int()
        a, b, c = self._layouts
        _call(
            "cublasLtMatmulAlgoGetHeuristic", self._handle, self._description, a, b, c, c,
            preference, 1, ctypes.byref(found), ctypes.byref(count),
        )  # fmt: skip
        _call("cublasLtMatmulPreferenceDestroy", preference)
        if count.value < 1 or found.state != 0:
            raise CUDA_FAILED(call="cublasLtMatmul", why=f"it has no algorithm for {self.name}")
        self._algorithms[places] = ctypes.byref(found)
        return self._algorithms[places]


def _layout(matrix: Matrix, batch: int, rows: int, columns: int) -> tuple[bool, ctypes.c_void_p]:
    """Return whether the rows of *matrix* are neighbours, and its layout as the library's."""
    found = leading_dimension(matrix, rows, columns)
    assert found is not None, "why no product"
    is_row_major, leading = found
    shape = (columns, rows) if is_row_major else (rows, columns)
    layout = _new("cublasLtMatrixLayoutCreate", _TYPES[matrix.dtype], *shape, leading)
    if batch > 1:
        _set("MatrixLayout", layout, _BATCH_COUNT, ctypes.c_int32(batch))
        _set("MatrixLayout", layout, _BATCH_STRIDE, ctypes.c_int64(matrix.batch))
    return is_row_major, layout
