"""The oracle of a GPU's hunts means what the NumPy reference means, and notices what is wrong."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.interp.error_bounds import evaluate_with_bounds
from tcdsl.testing import graphs
from tests.hunts import drawn

pytest.importorskip("hypothesis")
torch = pytest.importorskip("torch")

from tests.dense_oracle import NotDense, as_tensor, check_dense, results, suspect  # noqa: E402

SEED, COUNT = 3050, 60
SUM = "def f(float(I, J) x) -> (y) { y(i) +=! x(i, j) }"


def tensors(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: as_tensor(x) for name, x in inputs.items()}


def test_random_graphs_have_the_values_of_the_reference() -> None:
    for source, values in drawn(SEED, COUNT, graphs()):
        f = tcdsl.define(source)["f"]
        c, s = f.comprehension, f.specialise(*values)
        inputs = dict(zip((t for t in c.tensors if c.tensors[t].is_input), values, strict=True))
        found = results(c, tensors(inputs))
        for name, (value, _) in evaluate_with_bounds(c, s, inputs).items():
            assert found[name].v.shape == value.shape, source
            assert not suspect(found[name], torch.tensor(value.astype(np.float64))), source


@pytest.mark.parametrize("factor", [1.001, 0.0, np.nan])
def test_a_wrong_element_is_suspect(factor: float) -> None:
    x = np.random.default_rng(3).random((50, 70), np.float32)
    expected = results(tcdsl.define(SUM)["f"].comprehension, tensors({"x": x}))["y"]
    found = torch.from_numpy(x.sum(axis=1))
    assert suspect(expected, found) == 0
    found[7] *= factor
    assert suspect(expected, found) == 1


def test_a_wrong_result_fails_the_check() -> None:
    class Wrong:
        """The def *f*, whose calls forget the last row."""

        def __init__(self, f: Any) -> None:
            self.comprehension, self.specialise, self._f = f.comprehension, f.specialise, f

        def __call__(self, x: Any, *, out: Any, target: str) -> None:
            self._f(x[:-1], out=out[:-1], target=target)

    f, x = tcdsl.define(SUM)["f"], np.ones((3, 5), np.float32)
    check_dense(f, {"x": x}, "cpu", "cpu")
    with pytest.raises(AssertionError, match="1 of 3 elements are wrong"):
        check_dense(Wrong(f), {"x": x}, "cpu", "cpu")


@pytest.mark.parametrize("read", ["x(i + 1, j)", "x(i, j) * i", "x(i, i) + x(i, j)"])
def test_other_subscripts_are_refused(read: str) -> None:
    f = tcdsl.define(f"def f(float(I, J) x) -> (y) {{ y(i) +=! {read} where i in 0:3 }}")["f"]
    with pytest.raises(NotDense):
        results(f.comprehension, tensors({"x": np.ones((4, 4), np.float32)}))
