"""Tensors that are no arrays, given to operators: the dispatcher's table of backends was shown."""

import warnings

import pytest

import tcdsl

torch = pytest.importorskip("torch")


def test_errors_name_the_argument() -> None:
    import tcdsl.torch as tct

    f = tcdsl.define("""def f(float(M, N) x, float(N) w) -> (y) {
        s(m) +=! x(m, n) * x(m, n)
        y(m, n) = x(m, n) * w(n) * rsqrt(s(m))
    }""").f
    op = tct.op(f, "regress::unsupported_tensors")
    x = torch.ones(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, of prototypes
        nested = torch.nested.nested_tensor([x[0]])
        wrong = {"complex64": x.to(torch.complex64), "sparse_coo": x.to_sparse(),
                 "sparse_csr": x.to_sparse_csr(), "nested": nested,
                 "nested tensor": torch.nested.as_nested_tensor([x[0]], layout=torch.jagged),
                 "mkldnn": x.to_mkldnn(),
                 "quantised": torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)}  # fmt: skip
    for w in (torch.ones(3), torch.ones(3, requires_grad=True)):
        for what, value in wrong.items():
            for call in (op, f):
                with pytest.raises(tcdsl.ShapeError, match=rf"argument 'x'.*{what}") as caught:
                    call(value, w)
                # A forward pass that keeps something for the backward one has a text of its own.
                assert "forward pass" not in str(caught.value)


def test_tensors_without_memory_are_told_of_operators() -> None:
    f = tcdsl.define("def f(float(N) x) -> (y) { y(n) = 2.0 * x(n) }").f
    x = torch.ones(3)
    for call in (
        lambda: torch.vmap(f)(torch.ones(2, 3)),
        lambda: torch.func.grad(lambda x: f(x).sum())(x),
        lambda: torch.func.jvp(f, (x,), (x,)),
        lambda: f(x.to("meta")),
    ):
        with pytest.raises(tcdsl.ShapeError, match=r"argument 'x'.*tensor without.*\n(.*\n)*.*op"):
            call()
    assert f.output_shapes(x.to("meta")) == {"y": (3,)}


def test_shapes_are_not_told_of_tensors_on_two_devices() -> None:
    import tcdsl.torch as tct

    f = tcdsl.define("def f(float(N) x, float(N) y) -> (z) { z(n) = x(n) + y(n) }").f
    op = tct.op(f, "regress::two_devices")
    x = torch.ones(3)
    assert op(x.to("meta"), x.to("meta")).device.type == "meta"
    with pytest.raises(tcdsl.TargetError, match="'x' on meta, 'y' on cpu"):
        op(x.to("meta"), x)
