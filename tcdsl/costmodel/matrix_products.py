"""A product of matrices as a library takes it: sizes, strides, types, and how long it takes.

It is plain data: code in the cache has it, and is launched without what found it
(strategies/matrix_products).
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from tcdsl.costmodel.chip import Chip, Unit
from tcdsl.costmodel.estimate import Estimate
from tcdsl.records import dataclass

Dims = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Matrix:
    """An operand: element (i, j) of matrix b is at ``offset + b batch + i row + j column``."""

    array: str
    dtype: str
    offset: int  # in elements, as all of these
    batch: int
    row: int
    column: int

    @property
    def strides(self) -> Dims:
        return self.batch, self.row, self.column


@dataclass(frozen=True, slots=True)
class MatrixProduct:
    """``result(b,m,n) = sum over k of left(b,m,k) * right(b,k,n)``, plus the result before it.

    *accumulates*: the latter.  Sums are of type *summed*.
    """

    batch: int
    rows: int
    columns: int
    terms: int
    result: Matrix
    left: Matrix
    right: Matrix
    summed: str
    accumulates: bool = False

    @property
    def matrices(self) -> tuple[tuple[Matrix, Dims], ...]:
        """The left and the right operand and the result, each with its shape."""
        return (
            (self.left, (self.batch, self.rows, self.terms)),
            (self.right, (self.batch, self.terms, self.columns)),
            (self.result, (self.batch, self.rows, self.columns)),
        )

    @property
    def operations(self) -> int:
        """The multiplications, each with an addition."""
        return self.batch * self.rows * self.columns * self.terms

    def described(self) -> str:
        """Return the product as text: ``4 x (64, 32) x (32, 48), float32``."""
        times = f"{self.batch} x " if self.batch > 1 else ""
        shapes = f"({self.rows}, {self.terms}) x ({self.terms}, {self.columns})"
        return f"{times}{shapes}, {self.left.dtype}"

    def to_json(self, *, with_names: bool = True) -> list[Any]:
        """Return plain data, without the arrays' names if these are not wanted."""
        sizes = [self.batch, self.rows, self.columns, self.terms]
        matrices = (self.result, self.left, self.right)
        return [
            sizes,
            [[m.array if with_names else "", m.dtype, m.offset, *m.strides] for m in matrices],
            self.summed,
            self.accumulates,
        ]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> "MatrixProduct":
        sizes, matrices, summed, accumulates = data
        batch, rows, columns, terms = map(int, sizes)
        result, left, right = (
            Matrix(str(array), str(dtype), *map(int, numbers))
            for array, dtype, *numbers in matrices
        )
        return cls(
            batch, rows, columns, terms, result, left, right, str(summed), bool(accumulates)
        )  # fmt: skip


def leading_dimension(matrix: Matrix, rows: int, columns: int) -> tuple[bool, int] | None:
    """Return whether neighbours of a row are neighbours in memory, and the other stride.

    None: neither they nor those of a column are, or elements have two places in it.
    """
    if (matrix.column == 1 or columns == 1) and (matrix.row >= columns or rows == 1):
        return True, matrix.row if rows > 1 else columns
    if (matrix.row == 1 or rows == 1) and (matrix.column >= rows or columns == 1):
        return False, matrix.column if columns > 1 else rows
    return None


SIZES = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}  # bytes of an element
UNITS = {
    "float16": Unit.TENSOR_F16, "bfloat16": Unit.TENSOR_BF16, "float32": Unit.FMA_F32,
    "float64": Unit.TENSOR_F64,
}  # fmt: skip
# What cuBLASLt reaches of a unit's rate, by the times of eleven products on an H200
# (tests/costmodel/test_matrix_products.py); other chips' are taken to be alike.
FMA_SHARE, TENSOR_SHARE = 1.0, 0.93
TILE = 128  # of results, that a multiprocessor has
# Tensor cores' kernels want rows of whole vectors: of 2-byte elements in rows of an odd length one
# took seven times as long.
VECTOR_BYTES, UNALIGNED_SHARE = 16, 0.14
CALL_S = 12.5e-6  # that the host takes for a call; the GPU may take longer
# Of a call's workspace; NVIDIA recommends 32 MiB on Hopper.
LEAST_WORKSPACE, MOST_WORKSPACE, MOST_PARTS, ALIGNMENT = 64 << 10, 32 << 20, 32, 256


def bytes_of(product: MatrixProduct) -> tuple[float, float]:
    """Return the bytes that *product* reads and writes at least."""
    moved = [
        float(
            SIZES[matrix.dtype] * prod(e for e, s in zip(shape, matrix.strides, strict=True) if s)
        )
        for matrix, shape in product.matrices
    ]
    again = moved[2] if product.accumulates else 0.0
    return moved[0] + moved[1] + again, moved[2]


def workspace_bytes(product: MatrixProduct) -> int:
    """Return the memory that a call may use: for the sums of parts of the terms (split-K)."""
    results = product.batch * product.rows * product.columns
    wanted = LEAST_WORKSPACE + MOST_PARTS * SIZES[product.summed] * results
    return min(MOST_WORKSPACE, -(-wanted // ALIGNMENT) * ALIGNMENT)


def estimated(product: MatrixProduct, chip: Chip, precision: str = "float32") -> Estimate:
    """Return how long a library's call takes: units or memory, the launch, and the host.

    :arg precision: of float32, see ``Options``.
    """
    unit = UNITS[product.left.dtype]
    if unit is Unit.FMA_F32 and precision == "tf32":
        unit = Unit.TENSOR_TF32
    rate = chip.rate(unit) or chip.rate(Unit.FMA_F32)
    share = FMA_SHARE if unit in (Unit.FMA_F32, Unit.FMA_F64) else TENSOR_SHARE
    if SIZES[product.left.dtype] == 2 and not _has_whole_vectors(product):
        share *= UNALIGNED_SHARE
    read, written = bytes_of(product)
    tiles = product.batch * -(-product.rows // TILE) * -(-product.columns // TILE)
    # Terms are shared by blocks (split-K) where there are few tiles.
    filled = min(1.0, tiles * max(1, product.terms // TILE) / chip.multiprocessors)
    terms = {
        "launch": chip.launch_s,
        "memory": (read + written) / chip.dram_copy_bytes_per_s,
        str(unit): product.operations / (share * rate * filled),
        "host": CALL_S,
    }
    busy = max(terms["memory"], terms[str(unit)])
    seconds = max(CALL_S, terms["launch"] + chip.dram_latency_s + busy)
    return Estimate(seconds, terms)


def _has_whole_vectors(product: MatrixProduct) -> bool:
    """Return whether the lines of the operands begin at whole vectors, if the first do."""
    found = (leading_dimension(m, rows, columns) for m, (_, rows, columns) in product.matrices[:2])
    size_bytes = SIZES[product.left.dtype]
    return all(one is not None and one[1] * size_bytes % VECTOR_BYTES == 0 for one in found)
