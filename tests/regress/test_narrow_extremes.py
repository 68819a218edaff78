"""Extremes of a type without infinities, row by row: planning failed, and one thread did it all.

They run on accumulators in float32, which a planner has to know by the names of the indices.
"""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest

ROWS = "def f(float8_e4m3(M,N) x) -> (y) {{ y(i) {} x(i,j) }}"
COLUMNS = "def f(float8_e4m3(M,N) x) -> (float8_e4m3(N) y) {{ y(j) {} x(i,j) }}"

pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")


@pytest.mark.slow_but("rows-max=!", "columns-min=!")
@pytest.mark.parametrize("op", ["max=!", "min=!"])
@pytest.mark.parametrize("source", [ROWS, COLUMNS], ids=["rows", "columns"])
def test_planned_as_usual(
    source: str, op: str, check_all: Callable[..., None], check_emulated: Callable[..., None]
) -> None:
    x = np.random.default_rng(0).normal(size=(37, 333)).astype(ml_dtypes.float8_e4m3fn)
    for checked in (check_all, check_emulated):
        checked([(source.format(op), [x])])
