"""Blocks with equal shares of all steps (stream-K) on a GPU, where they run at the same time."""

import numpy as np
import pytest

import tcdsl
from tcdsl.options import CHOICES_FORMAT, CHOICES_VERSION, Options
from tcdsl.testing import check
from tcdsl.testing.random_inputs import values

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")]
PLAIN = "def f(bfloat16(M,K) A, bfloat16(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
BIASED = """
def f(half(M,K) A, half(N,K) B, float(N) b) -> (C) {
    c(m,n) +=! A(m,k) * B(n,k)
    C(m,n) = fmax(c(m,n) + b(n), 0.0)
}"""
CASES = [
    (PLAIN, [(2304, 1024), (1024, 2304)]), (PLAIN, [(1000, 2048), (2048, 3000)]),
    (PLAIN, [(384, 8192), (8192, 640)]), (BIASED, [(1544, 1032), (2000, 1032), (2000,)]),
]  # fmt: skip


@pytest.mark.parametrize(("source", "shapes"), CASES)
def test_on_the_gpu(source: str, shapes: list[tuple[int, ...]]) -> None:
    f = tcdsl.define(source).f
    types = [f.comprehension.tensors[name].dtype for name in f.comprehension.inputs]
    drawn = zip(types, shapes, strict=True)
    inputs = [values(dtype, shape, "real", n) for n, (dtype, shape) in enumerate(drawn)]
    first = f.compile(*inputs, target="cuda")
    found = {
        (one["config"]["columns"], one["config"]["shares"]): one
        for one in reversed(first.candidates)
        if one.get("config", {}).get("shares") and "predicted_us" in one
    }
    assert found, "some candidates have shares"
    for one in sorted(found.values(), key=lambda one: one["predicted_us"])[:2]:
        choice = {"kernel": one["kernel"], "template": one["template"], **one["config"]}
        choices = {"format": CHOICES_FORMAT, "version": CHOICES_VERSION, "kernels": [choice]}
        options = Options(choices=choices)
        exe = f.compile(*inputs, target="cuda", options=options)
        assert "tc_await_signal" in exe.source
        check(f, *inputs, targets=("cuda",), options=options)
        expected = np.asarray(exe(*inputs)).view(np.uint8)
        for _ in range(20):
            assert np.array_equal(np.asarray(exe(*inputs)).view(np.uint8), expected)
