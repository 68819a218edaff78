from importlib.util import find_spec

import numpy as np
import pytest

import tcdsl
from tcdsl.cli.demo import digits

# Collecting does not import it: that takes two seconds.
pytestmark = pytest.mark.skipif(
    find_spec("sklearn") is None, reason="the extra of the demo is missing"
)


def weights_in_double() -> list[digits.Array]:
    return [w.astype(np.float64) for w in digits.initial_weights(np.random.default_rng(0))]


def loss(x: digits.Array, label: digits.Array, weights: list[digits.Array]) -> float:
    w1, b1, w2, b2 = weights
    logit = np.maximum(x @ w1 + b1, 0) @ w2 + b2
    logit -= logit.max(axis=1, keepdims=True)
    chance = np.exp(logit) / np.exp(logit).sum(axis=1, keepdims=True)
    return float(-np.log(chance[np.arange(len(x)), label]).mean())


def test_nothing_is_both_trained_and_held_out() -> None:
    data = digits.load()
    assert len(data.train) + len(data.test) == 1797
    assert len(data.test) == 449
    assert data.train.max() <= 1
    assert set(np.unique(data.test_labels)) == set(range(10))
    again = digits.load()
    assert np.array_equal(data.test, again.test)


def test_backward_gives_the_slope_of_the_loss() -> None:
    data = digits.load()
    x, label = data.train[:7], data.train_labels[:7]
    program = tcdsl.define(digits.PROGRAM)
    weights = digits.initial_weights(np.random.default_rng(0))
    hidden, chance = program.forward(x, *weights)
    value, *gradients = program.backward(x, label, hidden, chance, weights[2])
    exact = weights_in_double()
    assert float(value) == pytest.approx(loss(x, label, exact), rel=1e-5)
    rng = np.random.default_rng(1)
    for number, gradient in enumerate(gradients):
        direction = rng.standard_normal(gradient.shape)
        there, back = (
            [w + sign * 1e-5 * direction if n == number else w for n, w in enumerate(exact)]
            for sign in (1, -1)
        )
        slope = (loss(x, label, there) - loss(x, label, back)) / 2e-5
        assert float((gradient * direction).sum()) == pytest.approx(slope, rel=1e-3, abs=1e-4)


def test_update_works_in_place() -> None:
    update = tcdsl.define(digits.PROGRAM).update
    w, v, d_w = (np.full(5, value, np.float32) for value in (1.0, 2.0, 3.0))
    update(w, v, d_w, np.float32(0.1), np.float32(0.5), out=(w, v))
    assert v == pytest.approx(np.full(5, 4.0))
    assert w == pytest.approx(np.full(5, 0.6))


@pytest.mark.slow
def test_the_network_learns() -> None:
    network = digits.Network(digits.load())
    before = network.accuracy()
    losses = [network.train_epoch() for _ in range(8)]
    assert before < 0.3
    assert losses[-1] < losses[0] / 3
    assert network.accuracy() > 0.93
