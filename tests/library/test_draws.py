"""Random inputs: in range, in type, and the same for the same seed."""

import numpy as np
import pytest

from tcdsl.lang.types.dtypes import BY_NAME
from tcdsl.library import draws

SHAPE = (50, 40)


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize(
    "name", ["float32", "float64", "float16", "bfloat16", "int32", "int64", "int8", "uint8", "bool"]
)
def test_ordinary_values_have_the_type_asked_for_and_are_repeatable(name: str) -> None:
    dtype = BY_NAME[name]
    drawn = draws.ordinary(rng(), SHAPE, dtype, {})
    assert drawn.dtype == dtype.numpy and drawn.shape == SHAPE
    assert len(np.unique(drawn.astype(np.float64))) > 1
    np.testing.assert_array_equal(drawn, draws.ordinary(rng(), SHAPE, dtype, {}))


def test_labels_stay_below_their_size() -> None:
    drawn = draws.below("V")(rng(), SHAPE, BY_NAME["int64"], {"V": 3})
    assert set(np.unique(drawn)) == {0, 1, 2}
    assert draws.below("V")(rng(), (0,), BY_NAME["int64"], {"V": 0}).shape == (0,)


def test_masks_leave_no_row_empty() -> None:
    drawn = draws.mask(rng(), (1000, 2), BY_NAME["bool"], {})
    assert drawn.any(axis=1).all() and not drawn.all()


@pytest.mark.parametrize("value", [True, False])
def test_mostly_gives_rows_of_both_kinds(value: bool) -> None:
    drawn = draws.mostly(value)(rng(), (200, 30), BY_NAME["bool"], {})
    whole = (drawn == value).all(axis=1)
    assert 0 < whole.sum() < 200


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int32"])
def test_products_of_values_near_one_stay_near_one(name: str) -> None:
    drawn = draws.near_one(rng(), (100_000,), BY_NAME[name], {}).astype(np.float64)
    assert 1e-3 < abs(drawn.prod()) < 1e3
    assert (drawn < 0).any() and (drawn > 0).any()


def test_uniform_keeps_its_interval_and_weights_their_scale() -> None:
    drawn = draws.uniform(0.5, 1.5)(rng(), SHAPE, BY_NAME["float32"], {})
    assert 0.5 <= drawn.min() < 0.6 and 1.4 < drawn.max() <= 1.5
    layer = draws.weights(rng(), (64, 400), BY_NAME["float32"], {})
    assert abs(layer.std() * 20 - 1) < 0.05
