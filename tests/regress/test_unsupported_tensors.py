"""Tensors that are no arrays, given to operators: the dispatcher's table of backends was shown."""

import warnings

import pytest

import tcdsl

torch = pytest.importorskip("torch")


def test_errors_name_the_argument() -> None:
    import tcdsl.torch as tct

    f = tcdsl.define("def f(float(M, N) x, float(N) w) -> (y) { y(m, n) = x(m, n) * w(n) }").f
    op = tct.op(f, "regress::unsupported_tensors")
    x = torch.ones(2, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, of prototypes
        nested = torch.nested.nested_tensor([x[0]])
        wrong = {"complex64": x.to(torch.complex64), "sparse_coo": x.to_sparse(),
                 "sparse_csr": x.to_sparse_csr(), "nested": nested}  # fmt: skip
    for w in (torch.ones(3), torch.ones(3, requires_grad=True)):
        for what, value in wrong.items():
            for call in (op, f):
                with pytest.raises(tcdsl.ShapeError, match=rf"argument 'x'.*{what}"):
                    call(value, w)
