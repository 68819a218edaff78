"""Predicted times have the order of the measured ones (benchmarks/predictions.py)."""

import pytest

from tests.scripts import script

predictions = script("predictions")


def _compared(step: int) -> tuple[list[float], list[float]]:
    rows = list(predictions.measured())[::step]
    pairs = [(row.us, predictions.predicted_us(row)) for row in rows]
    known = [(us, predicted) for us, predicted in pairs if predicted]
    assert len(known) > 0.9 * len(rows)
    return [us for us, _ in known], [predicted for _, predicted in known]


@pytest.mark.slow
@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.fuzz)])
def test_times_are_in_the_order_of_those_measured(step: int) -> None:
    assert predictions.rank_correlation(*_compared(step)) > 0.97


def test_the_opposite_order_is_noticed() -> None:
    measured, predicted = _compared(61)
    assert predictions.rank_correlation(measured, [-value for value in predicted]) < -0.9
