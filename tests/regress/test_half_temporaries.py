"""Forward passes and batched forms of programs whose temporaries and results are of half types.

The conversions that elaboration inserts were written: ``h(m, n) +=! float32(x(m, k)) * ...`` has
the type float32, where the definition's own text, ``x(m, k) * ...``, has the type bfloat16.
"""

import numpy as np
import pytest

import tcdsl
from tcdsl.frontends.derivatives import passes
from tests.derivatives.gradients import tupled

LAYERS = """def f(bfloat16(M, K) x, bfloat16(N, K) w) -> (bfloat16(M, N) y) {
    h(m, n) +=! x(m, k) * w(n, k) * 0.3
    g(m, n) = h(m, n) + 0.1
    y(m, n) = tanh(g(m, n))
}"""
PRODUCT = "def f(float16(M, K) x, float16(N, K) w) -> (y) { y(m, n) +=! x(m, k) * w(n, k) }"
CALLED = """def g(float(M, K) x) -> (bfloat16(M) s) { s(m) +=! x(m, k) }
def f(float(M, K) x) -> (y) {
    s = g(x)
    y(m) = s(m) * s(m)
}"""
MIXED = "def f(float16(M, K) x) -> (y) { y(m) +=! x(m, k) * int32(k) }"


def test_a_sum_whose_type_no_text_has_is_computed_again() -> None:
    assert passes(tcdsl.define(CALLED).f, ("x",)) is None


def test_a_forward_pass_has_the_types_of_the_function() -> None:
    f = tcdsl.define(LAYERS).f
    found = passes(f, ("x", "w"))
    assert found is not None
    own = f.comprehension.tensors
    for name, tensor in found.forward.comprehension.tensors.items():
        assert tensor.dtype == own[name].dtype, name
    rng = np.random.default_rng(1)
    dtype = own["x"].dtype.numpy
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in ((5, 40), (4, 40)))
    y, h = found.forward.reference(x, w)
    np.testing.assert_array_equal(y, f.reference(x, w))
    found.backward.reference(x, w, h, y)


def test_gradients_of_an_operator_that_keeps_a_sum_of_halves() -> None:
    torch = pytest.importorskip("torch")
    import tcdsl.torch as tct

    op = tct.op(tcdsl.define(LAYERS).f, "tcdsl_regress::half_layers")
    x = torch.randn(5, 40, dtype=torch.bfloat16, requires_grad=True)
    w = torch.randn(4, 40, dtype=torch.bfloat16, requires_grad=True)
    op(x, w).sum().backward()
    own = x.grad
    x.grad = None
    h = (x.float() @ w.float().T * 0.3).bfloat16()
    torch.tanh((h + 0.1).float()).sum().backward()
    torch.testing.assert_close(own, x.grad, rtol=0.05, atol=0.05)


@pytest.mark.parametrize(("source", "name"), [(PRODUCT, "half_product"), (MIXED, "half_mixed")])
def test_a_batched_form_has_the_types_of_the_function(source: str, name: str) -> None:
    torch = pytest.importorskip("torch")
    import tcdsl.torch as tct

    op = tct.op(tcdsl.define(source).f, f"tcdsl_regress::{name}")
    x, others = torch.randn(3, 5, 8).half(), (torch.randn(4, 8).half(),) * (source == PRODUCT)
    found = torch.vmap(lambda row: op(row, *others))(x)
    assert found.dtype == torch.float16
    assert torch.equal(found, torch.stack([op(row, *others) for row in x]))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(
    "update", ["y(n) += b(n) * x(0, 0)", "y(n) = y(n - 1) * b(n) where n in 1:N", "y(n) max= b(n)"]
)
def test_gradients_of_halves_that_are_updated(dtype: str, update: str) -> None:
    """The copy of the old values has a conversion, which an assertion did not expect."""
    text = """def f(T(N, K) x, T(K) w, T(N) b) -> (T(N) y) {
        y(n) +=! x(n, k) * w(k)
        UPDATE
    }""".replace("UPDATE", update)
    f, wide = (tcdsl.define(text.replace("T(", f"{t}(")).f for t in (dtype, "float64"))
    rng = np.random.default_rng(1)
    kind = f.comprehension.tensors["x"].dtype.numpy
    args = [rng.integers(-3, 4, shape).astype(kind) for shape in ((4, 5), (5,), (4,), (4,))]
    found = tcdsl.vjp(f).reference(*args)
    wanted = tcdsl.vjp(wide).reference(*(arg.astype(np.float64) for arg in args))
    for own, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(own.astype(np.float64), other, rtol=0.02)
    two = passes(f, ("x", "w", "b"))
    if two is not None:
        values = tupled(two.forward.reference(*args[:3]))
        kept = [values[position] for position in two.kept]
        again = two.backward.reference(*args[:3], *kept, args[3])
        for own, other in zip(again, wanted, strict=True):
            np.testing.assert_allclose(own.astype(np.float64), other, rtol=0.02)
