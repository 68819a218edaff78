"""The derivative of a read under a guard whose index may be out of range where the guard is not.

An embedding with -1 for padding: the scatter wrote 0 to the element -1, an error at the call.
"""

import numpy as np
import pytest

import tcdsl
from tests.derivatives.gradients import check_gradients

INDICES = np.array([1, -1, 3, 1], np.int32)
FORMS = {
    "a choice": "y(n, d) = I(n) >= 0 ? W(I(n), d) * W(I(n), d) : 0.0",
    "the other branch": "y(n, d) = I(n) < 0 ? 0.0 : W(I(n), d) * x(n)",
    "a factor": "y(n, d) = (I(n) >= 0 ? W(I(n), d) : 0.0) * x(n)",
    "a condition": "y(n, d) = 0.0 where d in 0:D  y(n, d) = W(I(n), d) where exists I(n) >= 0",
    "a sum": "y(n) +=! (I(n) >= 0 ? W(I(n), d) * x(n) : 0.0)",
}


@pytest.mark.parametrize("name", FORMS)
def test_nothing_is_written_where_nothing_is_read(name: str) -> None:
    head = "float64(V, D) W, int32(N) I, float64(N) x"
    result = "float64(N) y" if name == "a sum" else "float64(N, D) y"
    f = tcdsl.define(f"def f({head}) -> ({result}) {{ {FORMS[name]} }}").f
    rng = np.random.default_rng(1)
    inputs = rng.random((5, 3)), INDICES, rng.random(4)
    derivative = check_gradients(f, *inputs)
    given = rng.random((4,) if name == "a sum" else (4, 3))
    tcdsl.testing.check(derivative, *inputs, given, targets=("cpu", "emulate"))


def test_labels_to_ignore() -> None:
    """The comparison that stands for a scatter stays one."""
    text = """def loss(float64(B, V) logits, int32(B) label) -> (s) {
        top(b) max=! logits(b, v)
        total(b) +=! exp(logits(b, v) - top(b))
        s +=! (label(b) >= 0 ? log(total(b)) + top(b) - logits(b, label(b)) : 0.0)
    }"""
    f = tcdsl.define(text).loss
    derivative = check_gradients(f, np.random.default_rng(1).random((4, 5)), INDICES)
    assert "v == label(b)" in derivative.source
