"""Autocast under ``torch.vmap``: the batched form met tensors that nobody had converted (TC057).

At a level of vmap the rule for batches comes before that of autocast, which only the operator
itself had.
"""

from collections.abc import Callable
from typing import Any

import pytest

import tcdsl

torch = pytest.importorskip("torch")
tct = pytest.importorskip("tcdsl.torch")
func = torch.func

SCALED = tcdsl.define("""def scaled(float(M, N) x, float(N) w, int64 k) -> (y) {
    s(m) +=! x(m, n) * x(m, n)
    y(m, n) = tanh(x(m, n) * s(m)) * w(n) * k
}""").scaled


def formula(x: Any, w: Any, k: Any) -> Any:
    x, w = x.float(), w.float()
    return torch.tanh(x * (x * x).sum(1, keepdim=True)) * w * k


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: lambda x: torch.vmap(lambda row: f(row[None]))(x),
        lambda f: torch.vmap(func.grad(lambda row: f(row[None]).sum())),
        lambda f: lambda x: torch.vmap(torch.vmap(lambda row: f(row[None])))(x[None]),
        lambda f: lambda x: func.jvp(f, (x,), (x,))[1],
    ],
    ids=["vmap", "vmap of grad", "vmap of vmap", "jvp"],
)
def test_batches_are_converted(transform: Callable[[Callable[..., Any]], Any]) -> None:
    op = tct.op(SCALED, "tcdsl_regress::scaled_batches")
    x = torch.arange(6.0).reshape(2, 3).cos().bfloat16()
    w, k = torch.tensor([0.5, 2.0, 1.0], dtype=torch.float16), torch.tensor(3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, wanted = (transform(lambda x, f=f: f(x, w, k))(x) for f in (op, formula))
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=1e-4)


def test_doubles_stay_and_are_refused() -> None:
    op = tct.op(SCALED, "tcdsl_regress::scaled_batches")
    x, w, k = torch.ones(2, 3, dtype=torch.double), torch.ones(3), torch.tensor(3)
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(tcdsl.ShapeError, match="declared float32"),
    ):
        torch.vmap(lambda row: op(row[None], w, k))(x)
