"""Derivatives along directions: forward mode, alone and around, below and beside reverse mode."""

from collections.abc import Callable
from typing import Any

import pytest

import tcdsl

torch = pytest.importorskip("torch")
tct = pytest.importorskip("tcdsl.torch")
forward_ad = torch.autograd.forward_ad
func = torch.func

SOURCE = """
def two(double(B, N) x, double(O, N) V, double(P, O) W) -> (y) {
    h(b, o) +=! x(b, n) * V(o, n)
    g(b, o) = tanh(h(b, o))
    y(b, p) +=! g(b, o) * W(p, o)
}
def chosen(double(N) x, int64(K) at, double s, size C) -> (y, k, z) {
    y(j) = x(at(j)) * s
    k argmax=! x(j)
    z(c) = at(c) + 1 where c in 0:C
}
def log_gamma(double(N) x) -> (y) { y(i) = lgamma(x(i)) }
def first(double(N) x) -> (k) { k argmax=! x(i) }
"""
prog = tcdsl.define(SOURCE)
two = tct.op(prog.two, "tests_forward_mode::two")
KEPT = 20  # terms of a sum that a forward pass keeps


def two_layers(x: Any, V: Any, W: Any) -> Any:
    return torch.tanh(x @ V.T) @ W.T


def arguments() -> tuple[Any, ...]:
    shapes = (3, KEPT), (5, KEPT), (4, 5)
    waves = (torch.arange(m * n, dtype=torch.double).view(m, n) for m, n in shapes)
    return tuple((7 * wave + 1).cos() for wave in waves)


def assert_same(run: Callable[[Callable[..., Any]], Any]) -> None:
    """Compare what *run* gives for the operator with what it gives for PyTorch's formula."""
    torch.testing.assert_close(run(two), run(two_layers), rtol=1e-9, atol=1e-9)


def loss(f: Callable[..., Any]) -> Callable[[Any], Any]:
    _, V, W = arguments()
    return lambda x: f(x, V, W).square().sum()


def test_along_all_inputs() -> None:
    args = arguments()
    assert_same(lambda f: func.jvp(f, args, tuple(arg.cos() for arg in args)))


def test_along_one_input_without_torch_func() -> None:
    x, V, W = arguments()

    def run(f: Callable[..., Any]) -> Any:
        with forward_ad.dual_level():
            return tuple(forward_ad.unpack_dual(f(x, forward_ad.make_dual(V, V.cos()), W)))

    assert_same(run)


@pytest.mark.parametrize(
    "transform",
    [
        func.jacfwd, func.hessian,
        lambda f: func.jacfwd(func.jacfwd(f)), lambda f: func.jacrev(func.jacfwd(f)),
        lambda f: lambda x: func.jvp(func.grad(f), (x,), (x.cos(),)),
        lambda f: func.grad(lambda x: func.jvp(func.grad(f), (x,), (x,))[1].square().sum()),
        lambda f: lambda x: func.jvp(torch.vmap(f), (x[:, None],), (x[:, None],)),
        lambda f: lambda x: torch.vmap(lambda x: func.jvp(f, (x,), (x,)))(x[:, None]),
        lambda f: lambda x: func.linearize(f, x)[1](x.cos()),
    ],
    ids=["jacfwd", "hessian", "twice", "reverse of it", "of a gradient", "gradient of that",
         "of vmap", "under vmap", "linearize"],
)  # fmt: skip
def test_the_transforms_of_torch_func(transform: Callable[..., Any]) -> None:
    x = arguments()[0]
    assert_same(lambda f: transform(loss(f))(x))


def test_in_both_modes_at_once() -> None:
    """What is saved for a backward pass has tangents, and what is kept; tangents have gradients."""
    x, V, W = arguments()

    def tangents_of_gradients(f: Callable[..., Any]) -> Any:
        leaves = x.clone().requires_grad_(), V.clone().requires_grad_()
        with forward_ad.dual_level():
            y = f(forward_ad.make_dual(leaves[0], x.cos()), leaves[1], W)
            found = torch.autograd.grad(y.square().sum(), leaves)
            return [forward_ad.unpack_dual(gradient).tangent for gradient in found]

    def gradients_of_tangents(f: Callable[..., Any]) -> Any:
        leaves = [a.clone().requires_grad_() for a in (x, V, x.cos())]
        with forward_ad.dual_level():
            y = f(forward_ad.make_dual(leaves[0], leaves[2]), leaves[1], W)
            primal, tangent = forward_ad.unpack_dual(y)
            return torch.autograd.grad(primal.pow(3).sum() + tangent.square().sum(), leaves)

    assert_same(tangents_of_gradients)
    assert_same(gradients_of_tangents)


def test_gradcheck_of_both_modes() -> None:
    x, V, W = (a[:2].clone().requires_grad_() for a in arguments())
    args = x[:, :4], V[:, :4], W[:, :2]
    assert torch.autograd.gradcheck(two, args, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(two, args, check_fwd_over_rev=True)


def test_integers_and_what_does_not_move_have_no_tangents() -> None:
    op = tct.op(prog.chosen, "tests_forward_mode::chosen")
    x, at = torch.rand(5, dtype=torch.double), torch.tensor([1, 3, 1])
    with forward_ad.dual_level():
        found = op(forward_ad.make_dual(x, x.cos()), at, torch.tensor(2.0, dtype=torch.double), 2)
        tangents = [forward_ad.unpack_dual(y).tangent for y in found]
    torch.testing.assert_close(tangents[0], 2 * x.cos()[at])
    assert tangents[1:] == [None, None]
    first = tct.op(prog.first, "tests_forward_mode::first")
    assert func.jvp(first, (x,), (x,))[1] == 0


def test_what_has_no_derivative_says_so() -> None:
    op = tct.op(prog.log_gamma, "tests_forward_mode::log_gamma")
    x = torch.rand(5, dtype=torch.double)
    with pytest.raises(tcdsl.SemanticError, match="the derivative of lgamma"):
        func.jvp(op, (x,), (x,))


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_under_torch_compile(dynamic: bool) -> None:
    """Dynamo's graphs enter levels of tangents without Python's knowing: tangents were lost."""
    x, V, W = arguments()

    def along(f: Callable[..., Any]) -> Any:
        return lambda x: func.jvp(loss(f), (x,), (x.cos(),))

    def dual(f: Callable[..., Any]) -> Any:
        def run(x: Any) -> Any:
            with forward_ad.dual_level():
                return forward_ad.unpack_dual(f(forward_ad.make_dual(x, x.cos()), V, W)).tangent

        return run

    for form in (along, dual, lambda f: func.hessian(loss(f))):
        # Not None: PyTorch 2.13's own formulas fail when it opens a size at its second value, as
        # its dual numbers ask a tensor of symbolic sizes for its offset.
        compiled = torch.compile(form(two), fullgraph=True, dynamic=dynamic, backend="aot_eager")
        torch.testing.assert_close(compiled(x), form(two_layers)(x))
        torch.testing.assert_close(compiled(x[:2]), form(two_layers)(x[:2]))
