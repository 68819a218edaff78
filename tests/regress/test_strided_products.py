"""Products of views: what lies between the rows of an operand is nobody's."""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

from tcdsl.costmodel.chip import Chip

SOURCE = "def f(bfloat16(N,N) x) -> (y) { y(i,j) +=! x(i,k) * x(k,j) }"


@pytest.mark.parametrize("kind", ["rows", "columns", "reversed", "every other"])
@pytest.mark.parametrize("length", [17, 18, 20, 24])
@pytest.mark.slow_but("17-columns", "24-reversed")
def test_rows_that_end_inside_of_a_vector(
    length: int, kind: str, check_emulated: Callable[..., None], small_chip: Chip
) -> None:
    """Rows of 17 elements, some bytes apart: a copy of 4 bytes read beyond the last one."""
    whole = np.random.default_rng(0).normal(size=(34, length)).astype(ml_dtypes.bfloat16)
    whole[:, 17:] = np.nan
    view = {
        "rows": whole[:17], "columns": whole[:17].T, "reversed": whole[16::-1],
        "every other": whole[::2],
    }[kind]  # fmt: skip
    view = view[:, :17] if kind != "columns" else view[:17]
    assert view.shape == (17, 17)
    check_emulated([(SOURCE, [view])], gpu=small_chip)
