"""Gradients of gradients by torch.func: the outer one was 0, silently.

``autograd.Function`` runs its forward pass without grad mode, and with it the next level's rule.
"""

import pytest

import tcdsl

torch = pytest.importorskip("torch")
import tcdsl.torch as tct  # noqa: E402

CUBE = tcdsl.define("def cube(float(N) x) -> (y) { y(i) = x(i) * x(i) * x(i) }").cube


def test_the_outer_gradient_of_torch_func() -> None:
    op = tct.op(CUBE, "tcdsl_regress::cube")
    x = torch.tensor([1.0, -2.0, 0.5])
    inner = torch.func.grad(lambda x: op(x).sum())
    torch.testing.assert_close(torch.func.grad(lambda x: inner(x).sum())(x), 6 * x)
    hessian = torch.func.jacrev(inner)(x)
    torch.testing.assert_close(hessian, torch.diag(6 * x))


def test_no_gradient_is_recorded_where_grad_mode_is_off() -> None:
    op = tct.op(CUBE, "tcdsl_regress::cube")
    x = torch.tensor([1.0, -2.0, 0.5], requires_grad=True)
    with torch.no_grad():
        found = torch.func.grad(lambda x: op(x).sum())(x)
    assert not found.requires_grad
    torch.testing.assert_close(found, 3 * x.detach() ** 2)
    outer = torch.func.grad(lambda x: op(x).sum())(x)
    (second,) = torch.autograd.grad(outer.sum(), x)
    torch.testing.assert_close(second, 6 * x.detach())


def test_forward_mode_around_a_gradient() -> None:
    """The tangent was lost: the derivative along it was 0, silently; later it was refused."""
    op = tct.op(CUBE, "tcdsl_regress::cube")
    x = torch.tensor([1.0, -2.0, 0.5])
    inner = torch.func.grad(lambda x: op(x).sum())
    torch.testing.assert_close(torch.func.jvp(inner, (x,), (x,))[1], 6 * x * x)
    torch.testing.assert_close(torch.func.jacfwd(inner)(x), torch.diag(6 * x))
