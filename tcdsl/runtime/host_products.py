"""Matrix products by NumPy: what the CPU's library computes, and the emulator in a GPU's place.

NumPy calls the BLAS that it was built with, for float32 and float64, in whatever layout has
neighbours along a dimension.  Half types are multiplied as float32.
"""

import ctypes
import json
from collections.abc import Iterator, Sequence
from threading import get_ident
from typing import Any

import numpy as np

from tcdsl.costmodel.matrix_products import Dims, Matrix, MatrixProduct
from tcdsl.lang.types.dtypes import BY_NAME

_Array = np.ndarray[Any, Any]


def matrices_at(product: MatrixProduct, addresses: Sequence[int]) -> tuple[_Array, _Array, _Array]:
    """Return the left and the right operand and the result as arrays (batch, row, column).

    :arg addresses: of the three, each its first element but for the matrix's offset.
    """
    left, right, result = (
        _view(matrix, shape, address)
        for (matrix, shape), address in zip(product.matrices, addresses, strict=False)
    )
    return left, right, result


def multiplied(product: MatrixProduct, left: _Array, right: _Array, result: _Array) -> _Array:
    """Return the product of the views of :func:`matrices_at`, with the result before it."""
    summed = BY_NAME[product.summed].numpy
    with np.errstate(all="ignore"):
        value: _Array = np.matmul(left.astype(summed, copy=False), right.astype(summed, copy=False))
        return value + result.astype(summed, copy=False) if product.accumulates else value


_by_text: dict[int, MatrixProduct] = {}  # by the text's address, in code that stays loaded
_failures: dict[int, BaseException] = {}  # by thread: what a call from C cannot raise


def serve_products(library: ctypes.CDLL) -> bool:
    """Let the code in *library* call NumPy; return whether it has products."""
    try:
        library["tcdsl_set_product"](_FUNCTION)
    except AttributeError:
        return False
    return True


def require_multiplied() -> None:
    """Raise what went wrong in this thread's products, such as an interrupt."""
    failure = _failures.pop(get_ident(), None)
    if failure is not None:
        raise failure


def _multiply(text: int, left: int, right: int, result: int) -> None:
    """Multiply what the product of the *text* says, at these addresses."""
    try:
        product = _by_text.get(text)
        if product is None:
            data = json.loads(ctypes.string_at(text))
            product = _by_text[text] = MatrixProduct.from_json(data)
        with np.errstate(all="ignore"):  # infinities and NaN are results like others
            _multiply_into(product, *matrices_at(product, (left, right, result)))
    except BaseException as error:
        _failures[get_ident()] = error


_FUNCTION = ctypes.CFUNCTYPE(None, *(ctypes.c_void_p,) * 4)(_multiply)


def _multiply_into(product: MatrixProduct, left: _Array, right: _Array, result: _Array) -> None:
    types = {matrix.dtype for matrix, _ in product.matrices}
    if product.accumulates or types != {product.summed}:
        result[...] = multiplied(product, left, right, result)
    elif product.batch == 1:
        np.matmul(left[0], right[0], out=result[0])
    else:
        np.matmul(left, right, out=result)


def row_starts(product: MatrixProduct, address: int, size_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield where runs of neighbours in the result begin, and how many elements each has."""
    matrix, (batch, rows, columns) = product.matrices[-1]
    outer, inner = ((matrix.row, rows), (matrix.column, columns))
    if inner[0] != 1 and inner[1] > 1:
        outer, inner = inner, outer
    for b in range(batch):
        for line in range(outer[1]):
            element = matrix.offset + b * matrix.batch + line * outer[0]
            yield address + size_bytes * element, inner[1]


def _view(matrix: Matrix, shape: Dims, address: int) -> _Array:
    dtype = BY_NAME[matrix.dtype].numpy
    reach = sum((n - 1) * step for n, step in zip(shape, matrix.strides, strict=True)) + 1
    first = address + matrix.offset * dtype.itemsize
    memory = (ctypes.c_uint8 * (reach * dtype.itemsize)).from_address(first)
    strides = tuple(step * dtype.itemsize for step in matrix.strides)
    return np.ndarray(shape, dtype, memoryview(memory), 0, strides)
