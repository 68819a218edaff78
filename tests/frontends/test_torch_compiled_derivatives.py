"""Derivatives of compiled and exported models, with batches of them: they work, or say why not."""

from collections.abc import Callable
from typing import Any

import pytest

import tcdsl

torch = pytest.importorskip("torch")
tct = pytest.importorskip("tcdsl.torch")
func, forward_ad = torch.func, torch.autograd.forward_ad

f = tcdsl.define("""
def gated(double(M, N) x, double(N) w) -> (y) {
    s(m) +=! x(m, n) * w(n)
    y(m, n) = tanh(x(m, n) * s(m)) * w(n)
}""").gated
gated = tct.op(f, "tests_compiled::gated")
W = torch.arange(3, dtype=torch.double).cos()
Model = Callable[[Any], Any]


def formula(x: Any, w: Any) -> Any:
    return torch.tanh(x * (x @ w)[:, None]) * w


def model(layer: Any) -> Model:
    """Return two layers, with PyTorch's functions before and after."""
    return lambda x: layer(layer(x.sin(), W) + x, W.exp()).exp()


def loss(m: Model) -> Model:
    return lambda x: m(x).square().sum()


def rows(x: Any) -> Any:
    return torch.eye(x.numel(), dtype=x.dtype).reshape(-1, *x.shape)


def leaf(x: Any) -> Any:
    return x.detach().clone().requires_grad_()


def at_once(m: Model) -> Model:
    """Return the jacobian by a batch of cotangents, of ``torch.autograd``."""

    def run(x: Any) -> Any:
        y = m(x := leaf(x))
        return torch.autograd.grad(y, x, rows(y), is_grads_batched=True)[0]

    return run


def twice(m: Model, *, batched: bool = False) -> Model:
    def run(x: Any) -> Any:
        (d,) = torch.autograd.grad(loss(m)(x := leaf(x)), x, create_graph=True)
        if batched:
            return torch.autograd.grad(d, x, rows(d), is_grads_batched=True)[0]
        return torch.autograd.grad(d.square().sum(), x)[0]

    return run


def along(m: Model) -> Model:
    def run(x: Any) -> Any:
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(m(forward_ad.make_dual(x, x.cos()))).tangent

    return run


def vectorized(of: str, **how: Any) -> Callable[[Model], Model]:
    take = getattr(torch.autograd.functional, of)
    return lambda m: lambda x: take(m if of == "jacobian" else loss(m), x, vectorize=True, **how)


def pair(m: Model) -> Model:
    return lambda x: m(torch.stack([x, x.cos()]))


TRANSFORMS: dict[str, Callable[[Model], Model]] = {
    "forward": lambda m: m,
    "backward": lambda m: lambda x: torch.autograd.grad(loss(m)(x := leaf(x)), x)[0],
    "is_grads_batched": at_once,
    "jacobian": vectorized("jacobian"),
    "jacobian, forward": vectorized("jacobian", strategy="forward-mode"),
    "dual numbers": along,
    "jvp": lambda m: lambda x: func.jvp(m, (x,), (x.cos(),))[1],
    "vjp": lambda m: lambda x: func.vjp(m, x)[1](x.cos())[0],
    "vmap": lambda m: pair(torch.vmap(m)),
    "vmap of grad": lambda m: pair(torch.vmap(func.grad(loss(m)))),
    "grad of vmap": lambda m: pair(func.grad(loss(torch.vmap(m)))),
    "backward of vmap": lambda m: pair(TRANSFORMS["backward"](torch.vmap(m))),
    "jacrev": func.jacrev,
    "jacrev in chunks": lambda m: func.jacrev(m, chunk_size=4),
    "jacfwd": func.jacfwd,
    "hessian": lambda m: func.hessian(loss(m)),
    "jacrev of jacrev": lambda m: func.jacrev(func.jacrev(loss(m))),
    "vmap of jacrev": lambda m: pair(torch.vmap(func.jacrev(m))),
}
TWICE: dict[str, Callable[[Model], Model]] = {  # PyTorch has none of these of compiled models
    "double backward": twice,
    "double backward, batched": lambda m: twice(m, batched=True),
    "hessian of torch.autograd": vectorized("hessian"),
}


def exported(m: Model, x: Any) -> Model:
    class Exported(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return m(x)

    module: Model = torch.export.export(Exported(), (x,)).module()
    return module


def compiled(m: Model, backend: str = "aot_eager") -> Model:
    torch._dynamo.reset()
    found: Model = torch.compile(m, backend=backend)
    return found


@pytest.fixture
def x() -> Any:
    return torch.arange(6, dtype=torch.double).reshape(2, 3).cos()


@pytest.mark.parametrize("name", [*TRANSFORMS, *TWICE])
def test_eager_and_exported(name: str, x: Any) -> None:
    transform = {**TRANSFORMS, **TWICE}[name]
    wanted = transform(model(formula))(x)
    torch.testing.assert_close(transform(model(gated))(x), wanted)
    torch.testing.assert_close(transform(exported(model(gated), x))(x), wanted)


@pytest.mark.slow_but("is_grads_batched", "jvp", "vmap of grad", "hessian")
@pytest.mark.parametrize("name", TRANSFORMS)
def test_of_a_compiled_model(name: str, x: Any) -> None:
    transform = TRANSFORMS[name]
    wanted = transform(model(formula))(x)
    torch.testing.assert_close(transform(compiled(model(gated)))(x), wanted)


@pytest.mark.slow_but("is_grads_batched", "jvp", "vmap of grad", "hessian")
@pytest.mark.parametrize("name", TRANSFORMS)
def test_compiled_with_the_model(name: str, x: Any) -> None:
    transform = TRANSFORMS[name]
    wanted = transform(model(formula))(x)
    torch.testing.assert_close(compiled(transform(model(gated)))(x), wanted)


@pytest.mark.parametrize("name", ["jvp", "jacfwd", "vmap of grad", "hessian"])
def test_transforms_of_what_inductor_would_compile_trace_no_rule(name: str, x: Any) -> None:
    """Such a function runs as it is, and dynamo watches: it went down to the arrays' addresses."""
    transform = TRANSFORMS[name]
    wanted = transform(model(formula))(x)
    m = compiled(model(gated), "inductor")
    torch._dynamo.utils.counters.clear()
    torch.testing.assert_close(transform(m)(x), wanted)
    assert torch._dynamo.utils.counters["frames"]["total"] <= 2, "the model's own, at most"


@pytest.mark.parametrize("times", [0, 2])
def test_a_batch_of_cotangents_in_inductors_code_is_refused(times: int, x: Any) -> None:
    """Its kernels are of one cotangent, PyTorch's too; a call that is prepared says so as well."""
    m = compiled(lambda x: gated(x.sin(), W), "inductor")
    for _ in range(times):
        m(leaf(x)).sum().backward()
    with pytest.raises(tcdsl.ShapeError, match="tests_compiled::gated is a batch") as caught:
        at_once(m)(x)
    assert caught.value.code == "TC056"
    assert "torch.compile(torch.func.jacrev(f))" in caught.value.hint
    found = compiled(func.jacrev(lambda x: gated(x.sin(), W)), "inductor")(x)
    torch.testing.assert_close(found, func.jacrev(lambda x: formula(x.sin(), W))(x))
    # The call is as it was.
    backward = TRANSFORMS["backward"]
    wanted = backward(lambda x: formula(x.sin(), W))(x)
    torch.testing.assert_close(backward(m)(x), wanted)


@pytest.mark.parametrize("name", TWICE)
def test_what_pytorch_has_not_of_a_compiled_model(name: str, x: Any) -> None:
    """It refuses its own formulas alike; compiled together, or by torch.func, they are there."""
    for layer in (formula, gated):
        with pytest.raises(RuntimeError, match="double backward"):
            TWICE[name](compiled(model(layer)))(x)
    wanted = func.hessian(loss(model(formula)))(x)
    hessian = TRANSFORMS["hessian"]
    for found in (hessian(compiled(model(gated))), compiled(hessian(model(gated)))):
        torch.testing.assert_close(found(x), wanted)


def test_a_function_itself_in_a_compiled_model(x: Any) -> None:
    """Dynamo leaves it alone, and says how it becomes part of the graph."""
    m = lambda x: f(x.sin(), W) + 1  # noqa: E731
    torch.testing.assert_close(compiled(m)(x), m(x))
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"tcdsl\.torch\.op"):
        torch.compile(m, backend="aot_eager", fullgraph=True)(x)


def test_sizes_that_differ_in_a_graph_of_open_sizes(x: Any) -> None:
    torch._dynamo.reset()
    with pytest.raises(RuntimeError, match="N has two values: dimension 0 of 'w' is another"):
        torch.compile(gated, backend="aot_eager", dynamic=True)(x, torch.ones(4).double())
