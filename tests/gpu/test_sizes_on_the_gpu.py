"""Sizes that a call gives, that multiply indices and extents, and guarded ranges, on a GPU."""

from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.testing import check

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")]

PROGRAM = tcdsl.define("""
def onehot(int64(N) label, size C) -> (y) { y(n, c) = label(n) == c ? 1.0 : 0.0 where c in 0:C }
def iota(size N) -> (int32(N) y) { y(i) = i }
def kron(float(M,N) A, float(P,Q) B) -> (float(M*P, N*Q) C) {
    C(i*P + k, j*Q + l) = A(i,j) * B(k,l) }
def dilated(float(T) x, float(K) w, size D) -> (y) { y(t) +=! x(t + D*k) * w(k) }
def causal(float(T) x, float(K) w) -> (y) { y(t) +=! t >= k ? x(t - k) * w(k) : 0.0 where t in 0:T }
def running(float(N) x) -> (y) { y(0) = x(0)  y(i) = y(i - 1) * 0.5 + x(i) }
def padded(float(B) x) -> (float(B, 100) y) { y(b, i) = 0.0  y(b, 0) = x(b) }
""")
RNG = np.random.default_rng(0)
A, B = RNG.random((37, 11), np.float32), RNG.random((5, 64), np.float32)
X, W, LABELS = RNG.random(5000, np.float32), RNG.random(7, np.float32), np.arange(900) % 10
CALLS = [
    ("onehot", (LABELS, 10)), ("onehot", (LABELS, np.int64(33))), ("iota", (1000,)), ("iota", (0,)),
    ("kron", (A, B)), ("dilated", (X, W, 1)), ("dilated", (X, W, 100)), ("causal", (X, W)),
    ("running", (X[:300],)), ("padded", (X,)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "args"), CALLS, ids=[name for name, _ in CALLS])
def test_on_the_gpu(name: str, args: tuple[Any, ...]) -> None:
    check(PROGRAM[name], *args, targets=("cuda",))
    exe = PROGRAM[name].compile(*args, target="cuda")
    assert exe(*args).shape == exe.bind(*args)().shape == PROGRAM[name](*args, target="cpu").shape
