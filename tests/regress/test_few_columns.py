"""Products of one or two columns on tensor cores: a fourth of a warp's threads has results."""

from collections.abc import Callable

import pytest

from tcdsl.costmodel.chip import Chip

SOURCE = "def f(bfloat16(M,K) a, bfloat16(N,K) b) -> (c) { c(m,n) +=! a(m,k) * b(n,k) }"


@pytest.mark.slow_but("shape2")
@pytest.mark.parametrize("shape", [(20, 1), (20, 2), (20, 3), (1, 20), (2, 20), (1, 1)])
def test_few_rows_or_columns(
    shape: tuple[int, int], check_emulated: Callable[..., None], small_chip: Chip
) -> None:
    rows, columns = shape
    check_emulated([(SOURCE, [(rows, 96), (columns, 96)])], gpu=small_chip)
