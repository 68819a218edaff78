"""What libraries compute: products of matrices (cublas, blas), convolutions (cudnn)."""

from collections.abc import Sequence
from typing import Any

from tcdsl.costmodel import convolutions, matrix_products
from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.convolutions import Convolution
from tcdsl.costmodel.estimate import Estimate
from tcdsl.costmodel.matrix_products import MatrixProduct

CUDNN = "cudnn"
AnyProduct = MatrixProduct | Convolution


def from_json(library: str, data: Sequence[Any]) -> AnyProduct:
    """Return what a call of *library* computes, from plain data."""
    return Convolution.from_json(data) if library == CUDNN else MatrixProduct.from_json(data)


def operands_of(product: AnyProduct) -> tuple[str, str, str]:
    """Return the arrays that a call reads, and the one that it computes."""
    if isinstance(product, Convolution):
        return product.arrays
    return product.left.array, product.right.array, product.result.array


def bytes_of(product: AnyProduct) -> tuple[float, float]:
    """Return the bytes that *product* reads and writes at least."""
    if isinstance(product, Convolution):
        return convolutions.bytes_of(product)
    return matrix_products.bytes_of(product)


def workspace_bytes(product: AnyProduct) -> int:
    """Return the memory that a call may use."""
    if isinstance(product, Convolution):
        return convolutions.workspace_bytes(product)
    return matrix_products.workspace_bytes(product)


def estimated(product: AnyProduct, chip: Chip, precision: str = "float32") -> Estimate:
    """Return how long a call takes on *chip*."""
    if isinstance(product, Convolution):
        return convolutions.estimated(product, chip, precision)
    return matrix_products.estimated(product, chip, precision)
