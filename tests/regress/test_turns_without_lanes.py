"""Turns of an unrolled loop in which no lane of a vector is there, though other statements run.

Bounds of lanes were left out in turns where no vector lacked some of them, and one that lacks all
of them was not counted: the last row's place was 0 where there is none.
"""

from collections.abc import Callable

import numpy as np
import pytest

from tcdsl.costmodel.chip import Chip

CheckAll = Callable[..., None]

pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")

PLACES = """def f(uint16(K, M) x, int32(M) at) -> (t) {
    t(j) argmax=! (x(i, j) > x(at(j), M - 1 - j) ? 1.0 : 0.5)
        where i in 0:K, j in 0:M, exists j <= i
}"""
SUMS = "def f(float(K, M) x) -> (t) { t(j) +=! x(i, j) where i in 0:K, j in 0:M, exists j <= i }"


@pytest.mark.slow_but("sums")
@pytest.mark.parametrize("source", [PLACES, SUMS], ids=["places", "sums"])
def test_rows_without_terms(source: str, check_emulated: CheckAll, small_chip: Chip) -> None:
    """x has its columns one after another, so that terms are lanes, and rows of a triangle ends."""
    draw = np.random.default_rng(0)
    cases = []
    for k, m in ((4, 8), (4, 9), (8, 17), (3, 16)):
        x = draw.integers(0, 9, (m, k)).astype(np.uint16 if source == PLACES else np.float32).T
        inputs = [x, draw.integers(0, k, m).astype(np.int32)]
        cases.append((source, inputs if source == PLACES else inputs[:1]))
    check_emulated(cases, gpu=small_chip)
    check_emulated(cases)
