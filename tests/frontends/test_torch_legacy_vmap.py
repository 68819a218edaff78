"""Many derivatives at once by ``torch.autograd``, which has a vmap of its own."""

from typing import Any

import pytest

import tcdsl

torch = pytest.importorskip("torch")
tct = pytest.importorskip("tcdsl.torch")

smooth = tct.op(
    tcdsl.define("""
def smooth(double(N) x, double(K) w) -> (y, z) {
    y(n) +=! tanh(x(n + k)) * w(k)
    z = x(0) * w(1)
}""").smooth,
    "tests_legacy_vmap::smooth",
)


def arguments() -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(4)
    return tuple(
        torch.randn(n, generator=generator, dtype=torch.double, requires_grad=True) for n in (6, 3)
    )


def test_batched_gradients_are_those_one_by_one() -> None:
    args = arguments()
    y, z = smooth(*args)
    many = torch.randn(5, 4, dtype=torch.double), torch.randn(5, dtype=torch.double)
    found = torch.autograd.grad(
        (y, z), args, many, is_grads_batched=True, retain_graph=True, create_graph=True
    )
    rows = [torch.autograd.grad((y, z), args, one, retain_graph=True)
            for one in zip(*many, strict=True)]  # fmt: skip
    for position, gradient in enumerate(found):
        wanted = torch.stack([row[position] for row in rows])
        torch.testing.assert_close(gradient, wanted)
    assert found[0].requires_grad, "they can be differentiated again"


def test_jacobians_at_once() -> None:
    jacobian = torch.autograd.functional.jacobian
    wanted = jacobian(smooth, arguments())
    for strategy in ("reverse-mode", "forward-mode"):
        found = jacobian(smooth, arguments(), vectorize=True, strategy=strategy)
        for row, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(row, other)


def test_gradcheck_of_batches() -> None:
    assert torch.autograd.gradcheck(smooth, arguments(), check_batched_grad=True)


def test_an_operator_itself_within_it() -> None:
    """One batched operand, none of them, a batch of no elements, and one within another."""
    from torch._vmap_internals import _vmap

    x, w = (a.detach() for a in arguments())
    xs = torch.stack([x, x.cos()])
    for batch in (xs, xs[:0]):
        found = _vmap(lambda x: smooth(x, w)[0])(batch)
        torch.testing.assert_close(found, torch.vmap(lambda x: smooth(x, w)[0])(batch))
    found = _vmap(lambda y: y * smooth(x, w)[0])(xs[:, :4])
    torch.testing.assert_close(found, xs[:, :4] * smooth(x, w)[0])
    nested = _vmap(lambda x: _vmap(lambda w: smooth(x, w)[0])(xs[:, :3]))(xs)
    wanted = torch.stack([torch.stack([smooth(x, w[:3])[0] for w in xs]) for x in xs])
    torch.testing.assert_close(nested, wanted)
