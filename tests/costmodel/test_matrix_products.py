"""Times of a library's calls as estimated, beside those that an H200 took."""

import pytest

from tcdsl.costmodel.chip import load_chip
from tcdsl.costmodel.matrix_products import (
    MOST_WORKSPACE,
    Matrix,
    MatrixProduct,
    bytes_of,
    estimated,
    leading_dimension,
    workspace_bytes,
)

# Type, rows, columns, terms, and microseconds of a bound call of cuBLASLt (CUDA 13, 2026-11-23).
MEASURED = [
    ("bfloat16", 4096, 4096, 4096, 179.0), ("bfloat16", 8192, 8192, 8192, 1623.1),
    ("bfloat16", 1024, 1024, 1024, 13.2), ("bfloat16", 256, 256, 256, 14.7),
    ("float16", 2048, 2048, 2048, 24.8), ("bfloat16", 96, 8192, 8192, 36.5),
    ("bfloat16", 64, 96, 200000, 25.9), ("bfloat16", 777, 1555, 3001, 92.3),
    ("float32", 1024, 1024, 1024, 56.3), ("float32", 2048, 2048, 2048, 341.0),
    ("float32", 4096, 4096, 4096, 2683.0),
]  # fmt: skip


def product(dtype: str, rows: int, columns: int, terms: int) -> MatrixProduct:
    left = Matrix("A", dtype, 0, 0, terms, 1)
    right = Matrix("B", dtype, 0, 0, columns, 1)
    result = Matrix("C", dtype, 0, 0, columns, 1)
    summed = "float64" if dtype == "float64" else "float32"
    return MatrixProduct(1, rows, columns, terms, result, left, right, summed)


@pytest.mark.parametrize(("dtype", "m", "n", "k", "measured_us"), MEASURED)
def test_estimates_are_near_what_was_measured(
    dtype: str, m: int, n: int, k: int, measured_us: float
) -> None:
    found = estimated(product(dtype, m, n, k), load_chip("h200"))
    assert 0.7 * measured_us < 1e6 * found.seconds < 1.3 * measured_us


def test_tf32_is_estimated_by_its_own_rate() -> None:
    plain, rough = (
        estimated(product("float32", 4096, 4096, 4096), load_chip("h200"), precision)
        for precision in ("float32", "tf32")
    )
    assert rough.seconds < plain.seconds / 3 and rough.limiter == "tensor_tf32"


def test_a_product_is_the_same_from_its_json() -> None:
    found = product("float64", 3, 4, 5)
    assert MatrixProduct.from_json(found.to_json()) == found
    assert bytes_of(found) == (8 * (3 * 5 + 5 * 4), 8 * 3 * 4)
    assert found.described() == "(3, 5) x (5, 4), float64"


@pytest.mark.parametrize(("strides", "shape", "leading"), [
    ((9, 1), (3, 7), (True, 9)), ((1, 4), (3, 7), (False, 4)), ((2, 4), (3, 7), None),
    ((5, 1), (3, 7), None), ((1, 2), (3, 7), None), ((0, 1), (1, 7), (True, 7)),
    ((1, 0), (3, 1), (True, 1)), ((5, 0), (3, 1), (True, 5)), ((0, 3), (1, 7), (False, 3)),
    ((0, 0), (1, 1), (True, 1)), ((1, 1), (3, 7), None),
])  # fmt: skip
def test_the_leading_dimension(
    strides: tuple[int, int], shape: tuple[int, int], leading: tuple[bool, int] | None
) -> None:
    matrix = Matrix("A", "float32", 0, 0, *strides)
    assert leading_dimension(matrix, *shape) == leading


def test_the_workspace_has_room_for_parts_of_the_terms() -> None:
    small, large = (workspace_bytes(product("float32", n, n, n)) for n in (16, 8192))
    assert 32 * 4 * 16 * 16 < small < 1 << 20 and small % 256 == 0
    assert large == MOST_WORKSPACE
