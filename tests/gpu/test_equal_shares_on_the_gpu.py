"""Blocks with equal shares of all steps (stream-K) on a GPU, where they run at the same time."""

import numpy as np
import pytest

import tcdsl
from tcdsl.options import CHOICES_FORMAT, CHOICES_VERSION, Options
from tcdsl.testing.random_inputs import values

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")]
PLAIN = "def f(bfloat16(M,K) A, bfloat16(K,N) B) -> (float(M,N) C) { C(m,n) +=! A(m,k) * B(k,n) }"
SHAPES = [
    [(2304, 1024), (1024, 2304)], [(1000, 2048), (2048, 3000)], [(384, 8192), (8192, 640)],
]  # fmt: skip


@pytest.mark.parametrize("shapes", SHAPES)
def test_on_the_gpu(shapes: list[tuple[int, ...]]) -> None:
    """Sums of small integers are exact, whoever adds them."""
    f, draw = tcdsl.define(PLAIN).f, np.random.default_rng(0)
    dtype = values(f.comprehension.tensors["A"].dtype, (1,), "real", 0).dtype
    a, b = (draw.integers(-4, 5, shape).astype(dtype) for shape in shapes)
    expected = a.astype(np.float32) @ b.astype(np.float32)
    first = f.compile(a, b, target="cuda")
    found = [
        one for one in first.candidates
        if one.get("config", {}).get("shares") and "predicted_us" in one
    ]  # fmt: skip
    assert found, "some candidates have shares"
    one = min(found, key=lambda one: one["predicted_us"])
    choice = {"kernel": one["kernel"], "template": one["template"], **one["config"]}
    choices = {"format": CHOICES_FORMAT, "version": CHOICES_VERSION, "kernels": [choice]}
    exe = f.compile(a, b, target="cuda", options=Options(choices=choices))
    assert "tc_await_signal" in exe.source
    for _ in range(20):
        np.testing.assert_array_equal(np.asarray(exe(a, b)), expected)
