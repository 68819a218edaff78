"""Operators in functions that ``torch.compile`` returned.

Where such a function ran as it is, dynamo traced the rules of its operators, down to the addresses
of arrays: InternalTorchDynamoError.  A batch of cotangents in Inductor's code was PyTorch's bare
"Cannot access data pointer", from a call that was prepared already.
"""

import pytest

import tcdsl

torch = pytest.importorskip("torch")
tct = pytest.importorskip("tcdsl.torch")

ROWS = tcdsl.define("""def rows(float(M, N) x) -> (y) {
    s(m) +=! x(m, n) * x(m, n)
    y(m, n) = tanh(x(m, n) * s(m))
}""").rows


def test_forward_mode_of_a_compiled_function() -> None:
    op = tct.op(ROWS, "tcdsl_regress::traced_rows")
    x = torch.arange(6.0).reshape(2, 3).cos()
    torch._dynamo.reset()
    f = torch.compile(lambda x: op(x.sin()))
    torch._dynamo.utils.counters.clear()
    found = torch.func.jvp(f, (x,), (x,))[1]
    assert torch._dynamo.utils.counters["frames"]["total"] <= 1, "the function's own"
    torch.testing.assert_close(found, torch.func.jvp(lambda x: op(x.sin()), (x,), (x,))[1])


def test_a_batch_after_a_call_was_prepared() -> None:
    op = tct.op(ROWS, "tcdsl_regress::prepared_rows")
    x = torch.arange(6.0).reshape(2, 3).cos().requires_grad_()
    torch._dynamo.reset()
    f = torch.compile(op)
    for _ in range(2):
        f(x).sum().backward()
    with pytest.raises(tcdsl.ShapeError, match="prepared_rows is a batch"):
        torch.autograd.grad(f(x), x, torch.ones(4, 2, 3), is_grads_batched=True)
