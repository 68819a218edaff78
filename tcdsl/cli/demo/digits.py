"""A two-layer network on handwritten digits: forward, backward and update are comprehensions."""

from typing import Any

import numpy as np

import tcdsl
from tcdsl.records import dataclass

PROGRAM = """
def forward(float(N, D) x, float(D, H) w1, float(H) b1, float(H, C) w2, float(C) b2)
        -> (hidden, chance) {
    pre(n, h) +=! x(n, d) * w1(d, h)
    hidden(n, h) = relu(pre(n, h) + b1(h))
    logit(n, c) +=! hidden(n, h) * w2(h, c)
    logit(n, c) = logit(n, c) + b2(c)
    top(n) max=! logit(n, c)
    odds(n, c) = exp(logit(n, c) - top(n))
    total(n) +=! odds(n, c)
    chance(n, c) = odds(n, c) / total(n)
}

def backward(float(N, D) x, int32(N) label, float(N, H) hidden, float(N, C) chance,
             float(H, C) w2) -> (loss, d_w1, d_b1, d_w2, d_b2) {
    loss +=! -log(chance(n, label(n)) + 1e-30) / float(N)
    d_logit(n, c) = (chance(n, c) - (label(n) == c ? 1.0 : 0.0)) / float(N)
    d_w2(h, c) +=! hidden(n, h) * d_logit(n, c)
    d_b2(c) +=! d_logit(n, c)
    d_hidden(n, h) +=! d_logit(n, c) * w2(h, c)
    d_pre(n, h) = hidden(n, h) > 0.0 ? d_hidden(n, h) : 0.0
    d_w1(d, h) +=! x(n, d) * d_pre(n, h)
    d_b1(h) +=! d_pre(n, h)
}

# v is the velocity: gradients, remembered with a half-life.
def update(float(P) w, float(P) v, float(P) d_w, float rate, float memory) -> (w, v) {
    v(p) = memory * v(p) + d_w(p)
    w(p) = w(p) - rate * v(p)
}

def recognise(float(N, C) chance) -> (digit) {
    digit(n) argmax=! chance(n, c)
}
"""

PIXELS, HIDDEN, CLASSES = 64, 64, 10
EPOCHS = 30
BATCH = 64
RATE = 0.1
MEMORY = 0.9
REPORT_EVERY = 5
HELD_OUT = 0.25
SEED = 0

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Digits:
    """Pictures (N, 64) of values 0 to 1, and what they show; the test part is never trained on."""

    train: Array
    train_labels: Array
    test: Array
    test_labels: Array


def load() -> Digits:
    """Return scikit-learn's 1797 handwritten digits, a quarter of them held out at random."""
    from sklearn.datasets import load_digits  # an extra, and slow to import

    pictures, labels = load_digits(return_X_y=True)
    pictures, labels = (pictures / 16).astype(np.float32), labels.astype(np.int32)
    order = np.random.default_rng(SEED).permutation(len(labels))
    test, train = np.split(order, [int(HELD_OUT * len(labels))])
    return Digits(pictures[train], labels[train], pictures[test], labels[test])


def initial_weights(rng: np.random.Generator) -> list[Array]:
    """Return w1, b1, w2, b2: weights random with variance 2 / inputs, biases zero."""
    weights: list[Array] = []
    for inputs, outputs in ((PIXELS, HIDDEN), (HIDDEN, CLASSES)):
        random = rng.standard_normal((inputs, outputs)) * np.sqrt(2 / inputs)
        weights += [random.astype(np.float32), np.zeros(outputs, np.float32)]
    return weights


class Network:
    """The weights, their velocities, and the batches in an order that the seed fixes."""

    def __init__(self, data: Digits) -> None:
        self.program = tcdsl.define(PROGRAM)
        self.data = data
        self.rng = np.random.default_rng(SEED)
        self.weights = initial_weights(self.rng)
        self.velocities = [np.zeros_like(weight) for weight in self.weights]

    def train_step(self, batch: Array) -> float:
        """Learn from the digits that *batch* numbers; return the loss before learning."""
        x, label = self.data.train[batch], self.data.train_labels[batch]
        hidden, chance = self.program.forward(x, *self.weights)
        loss, *gradients = self.program.backward(x, label, hidden, chance, self.weights[2])
        rate, memory = np.float32(RATE), np.float32(MEMORY)
        for w, v, d_w in zip(self.weights, self.velocities, gradients, strict=True):
            flat = w.reshape(-1), v.reshape(-1)  # views: the update is in place
            self.program.update(*flat, d_w.reshape(-1), rate, memory, out=flat)
        return float(loss)

    def train_epoch(self) -> float:
        """Learn from every full batch once; return the mean loss."""
        order = self.rng.permutation(len(self.data.train))
        batches = np.split(order[: len(order) // BATCH * BATCH], len(order) // BATCH)
        return float(np.mean([self.train_step(batch) for batch in batches]))

    def accuracy(self) -> float:
        """Return the share of the held-out digits that is recognised."""
        _, chance = self.program.forward(self.data.test, *self.weights)
        return float(np.mean(self.program.recognise(chance) == self.data.test_labels))
