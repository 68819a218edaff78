"""The folds of the C device library: all lanes of one vector, for every operator and type."""

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.c.expressions import c_type, suffix
from tcdsl.codegen.device.c import FUNCTIONS, header_text, parts_for
from tcdsl.lang.types.dtypes import ALL, BY_NAME, DType
from tcdsl.runtime.c_compiler import compile_shared

VECTOR_BYTES = 64
DTYPES = [dtype for dtype in ALL if not dtype.is_narrow_float]
OPERATORS: dict[str, Any] = {
    "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
    "and": np.logical_and, "or": np.logical_or,
}  # fmt: skip
CASES = [
    (operator, dtype)
    for dtype in DTYPES
    for operator in OPERATORS
    if f"tc_fold_{operator}_{suffix(dtype)}" in FUNCTIONS
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    names = [f"tc_fold_{operator}_{suffix(dtype)}" for operator, dtype in CASES]
    wrappers = "".join(
        f"void call_{name}(const void *p, void *r) {{ *({c_type(d)} *)r = {name}(p); }}\n"
        for name, (_, d) in zip(names, CASES, strict=True)
    )
    path = Path(tmp_path_factory.mktemp("folds")) / "folds.so"
    path.write_bytes(compile_shared(header_text(parts_for(names)) + wrappers))
    return ctypes.CDLL(str(path))


def fold(library: ctypes.CDLL, operator: str, lanes: np.ndarray[Any, Any], dtype: DType) -> Any:
    raw = np.empty(2 * VECTOR_BYTES, np.uint8)
    start = -raw.ctypes.data % VECTOR_BYTES
    aligned = raw[start : start + VECTOR_BYTES].view(lanes.dtype)
    aligned[:] = lanes
    result = np.empty(1, lanes.dtype)
    call: Callable[..., None] = library[f"call_tc_fold_{operator}_{suffix(dtype)}"]
    call(ctypes.c_void_p(aligned.ctypes.data), ctypes.c_void_p(result.ctypes.data))
    return result[0]


def test_every_operator_has_every_type() -> None:
    numbers = [d for d in DTYPES if d.name != "bool"]
    assert len(CASES) == 4 * len(numbers) + 4


@pytest.mark.parametrize(("operator", "dtype"), CASES, ids=lambda x: str(x))
def test_a_fold_combines_all_lanes(library: ctypes.CDLL, operator: str, dtype: DType) -> None:
    rng = np.random.default_rng(7)
    n = VECTOR_BYTES // dtype.size_bytes
    for _ in range(20):
        if dtype.is_float:
            lanes = rng.integers(-8, 9, n).astype(dtype.numpy) / 4
        elif dtype.name == "bool":
            lanes = rng.integers(0, 2, n).astype(bool)
        else:
            lanes = rng.integers(0, 256, n).astype(dtype.numpy)
        with np.errstate(over="ignore"):
            expected = functools.reduce(OPERATORS[operator], lanes)
        # Multiples of 1/4 add and compare exactly; products of 8 or 16 of them nearly so.
        assert fold(library, operator, lanes, dtype) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["float32", "float64"])
@pytest.mark.parametrize("operator", ["min", "max", "add", "mul"])
def test_one_nan_anywhere_is_the_result(library: ctypes.CDLL, operator: str, name: str) -> None:
    dtype = BY_NAME[name]
    n = VECTOR_BYTES // dtype.size_bytes
    for place in range(n):
        for sign in (1.0, -1.0):
            lanes = np.arange(1, n + 1).astype(dtype.numpy)
            lanes[place] = np.copysign(np.nan, sign)
            assert np.isnan(fold(library, operator, lanes, dtype))


@pytest.mark.parametrize("name", ["float32", "float64"])
def test_infinities_are_extremes(library: ctypes.CDLL, name: str) -> None:
    dtype = BY_NAME[name]
    n = VECTOR_BYTES // dtype.size_bytes
    lanes = np.full(n, -np.inf, dtype.numpy)
    assert fold(library, "max", lanes, dtype) == -np.inf
    lanes[3] = np.inf
    assert fold(library, "max", lanes, dtype) == np.inf
    assert fold(library, "min", lanes, dtype) == -np.inf
