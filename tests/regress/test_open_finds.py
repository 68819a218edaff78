"""Wrong results that random programs found and that are not mended yet."""

from collections.abc import Callable

import numpy as np
import pytest

import tcdsl
from tcdsl.costmodel.chip import Chip
from tcdsl.testing import check

CheckAll = Callable[..., None]


@pytest.mark.xfail(reason="gcc 12 drops the guard of a vector loop that stores constants twice")
def test_a_short_sum_of_a_constant() -> None:
    source = """def f(uint32(3) A0, uint16(M) A1, float16(K) A2) -> (T0, T2) {
        T0 +=! 4 where i in 0:8
        T1(i + j) +=! A0(i) * A1(j) where i in 0:3
        T2(i + j) +=! A0(i) * A2(j) where j in 0:K
    }"""
    arrays = (np.ones(3, np.uint32), np.ones(5, np.uint16), np.ones(4, np.float16))
    check(tcdsl.define(source)["f"], *arrays, targets=("cpu",))


@pytest.mark.xfail(reason="a reduction over a part of the rows that others are over")
def test_a_reduction_over_a_part_of_rows(check_emulated: CheckAll, small_chip: Chip) -> None:
    source = """def f(float(N, M) x, float(N, M) w) -> (t1) {
        t0(i, j) = x(i, j) - 0.5 * x(i, j)
        t1 +=! x(i, j) - 0.5 * t0(i, j) where i in 0:2, j in 19:20
        t2(i, j) = w(i, j) - 0.5 * w(i, j)
    }"""
    check_emulated([(source, [(130, 20), (130, 20)])], gpu=small_chip)
