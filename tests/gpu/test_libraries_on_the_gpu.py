"""Products that cuBLASLt computes, on a GPU: layouts, types, streams, graphs, bound calls."""

from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.lang.types.dtypes import BY_NAME
from tcdsl.testing import check

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")

SIZES = {"B": 3, "M": 129, "K": 200, "N": 65}
FORMS = {
    "NN": ("M,K", "K,N", "m,n"), "NT": ("M,K", "N,K", "m,n"), "TN": ("K,M", "K,N", "m,n"),
    "TT": ("K,M", "N,K", "m,n"), "to columns": ("M,K", "K,N", "n,m"),
    "batched": ("B,M,K", "B,K,N", "b,m,n"), "batch inside": ("M,B,K", "B,N,K", "m,b,n"),
    "one right operand": ("B,K,M", "K,N", "b,m,n"), "vector": ("M,K", "K", "m"),
}  # fmt: skip
TYPES = {"float32": "float32", "float64": "float64", "float16": "float16", "bfloat16": "bfloat16"}


def text(form: str, dtype: str, result: str = "", op: str = "+=!") -> str:
    left, right, target = FORMS[form]
    dims = ",".join(name.upper() for name in target.split(","))
    declared = f"{result or dtype}({dims}) C"
    parameters = f"{dtype}({left}) X, {dtype}({right}) Y"
    if op == "+=":
        parameters += f", {declared}"
    product = f"X({left.lower()}) * Y({right.lower()})"
    body = f"C({target}) {op} {product} <=> cublas(X, Y)"
    return f"def f({parameters}) -> ({declared if op != '+=' else 'C'}) {{ {body} }}"


def operands(form: str, dtype: str) -> list[Any]:
    torch.manual_seed(1)
    shapes = ([SIZES[n] for n in dims.split(",")] for dims in FORMS[form][:2])
    return [torch.randn(s, device="cuda").to(getattr(torch, dtype)) for s in shapes]


def check_(f: Any, *inputs: Any) -> None:
    """Compare with the reference, on copies of NumPy's arrays and on PyTorch's own."""
    given = [on_host(x) for x in inputs]
    check(f, *given, targets=("cuda",))
    expected = f(*given, target="cuda", out=given[-1].copy() if len(inputs) > 2 else None)
    found = f(*inputs, out=inputs[-1].clone() if len(inputs) > 2 else None)
    assert np.array_equal(on_host(found), expected), "the same call on a GPU's own arrays"


def on_host(x: Any) -> Any:
    is_half = x.dtype == torch.bfloat16
    array = x.view(torch.int16).cpu().numpy() if is_half else x.cpu().numpy()
    return np.ascontiguousarray(array).view(BY_NAME["bfloat16"].numpy) if is_half else array


def calls_of(executable: Any) -> int:
    return sum("library" in kernel for kernel in executable.kernels)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("form", FORMS)
def test_layouts_and_types(form: str, dtype: str) -> None:
    f = tcdsl.define(text(form, dtype)).f
    inputs = operands(form, dtype)
    assert calls_of(f.compile(*inputs)) == 1
    check_(f, *inputs)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_float32_result_of_half_types(dtype: str) -> None:
    f = tcdsl.define(text("NT", dtype, "float32")).f
    check_(f, *operands("NT", dtype))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_sum_that_goes_on_from_what_is_there(dtype: str) -> None:
    f = tcdsl.define(text("NN", dtype, op="+=")).f
    before = torch.randn(SIZES["M"], SIZES["N"], device="cuda").to(getattr(torch, dtype))
    check_(f, *operands("NN", dtype), before)


def test_float32_is_not_rounded_to_tf32() -> None:
    f = tcdsl.define(text("NN", "float32")).f
    left, right = operands("NN", "float32")
    exact = left.double() @ right.double()
    error = (f(left, right).double() - exact).abs().max().item()
    rough = f(left, right, options=tcdsl.Options(precision="tf32")).double()
    assert error < 1e-4 < (rough - exact).abs().max().item()


def test_strided_operands_are_not_copied() -> None:
    f = tcdsl.define(text("NN", "float32")).f
    wide, tall = torch.randn(129, 407, device="cuda"), torch.randn(65, 400, device="cuda")
    left, right = wide[:, 3:203], tall[:, ::2].t()
    fitting = torch.randn(400, 130, device="cuda")[::2, 1:66]
    found = f(left, fitting).double()
    torch.testing.assert_close(found, left.double() @ fitting.double(), atol=1e-3, rtol=1e-4)
    with pytest.raises(tcdsl.TCError, match="no rows or columns in memory"):
        f(left, right)


CHAIN = """
def f(float(M,K) X, float(K,N) Y, float(N) b) -> (D, s) {
    T(m,k) = relu(X(m,k))
    C(m,n) +=! T(m,k) * Y(k,n) <=> cublas(T, Y)
    D(m,n) = tanh(C(m,n) + b(n))
    s(n) +=! D(m,n)
}
"""


def chain_inputs() -> list[Any]:
    return [*operands("NN", "float32"), torch.randn(SIZES["N"], device="cuda")]


def expected(x: Any, y: Any, b: Any) -> Any:
    d = torch.tanh(torch.relu(x).double() @ y.double() + b.double())
    return d, d.sum(0)


def test_among_other_kernels_on_any_stream() -> None:
    f = tcdsl.define(CHAIN).f
    inputs = chain_inputs()
    assert calls_of(f.compile(*inputs)) == 1
    check(f, *map(on_host, inputs), targets=("cuda",))
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(20):
            found = f(*inputs)
            inputs[0].mul_(1.01)
        inputs[0].div_(1.01)
    stream.synchronize()
    for one, other in zip(found, expected(*inputs), strict=True):
        torch.testing.assert_close(one.double(), other, atol=1e-3, rtol=1e-4)


def test_bound_calls_and_captured_graphs() -> None:
    f = tcdsl.define(CHAIN).f
    inputs = chain_inputs()
    out = tuple(torch.empty(s, device="cuda") for s in ((SIZES["M"], SIZES["N"]), (SIZES["N"],)))
    bound = f.compile(*inputs).bind(*inputs, out=out)
    bound()
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        bound()
        with torch.cuda.graph(graph, stream=stream):
            bound()
    for scale in (0.5, 2.0):
        inputs[0].mul_(scale)
        for result in out:
            result.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        for one, other in zip(out, expected(*inputs), strict=True):
            torch.testing.assert_close(one.double(), other, atol=1e-3, rtol=1e-4)


def test_arrays_of_numpy_and_a_second_process_of_the_cache() -> None:
    f = tcdsl.define(text("TT", "float32")).f
    left, right = (x.cpu().numpy() for x in operands("TT", "float32"))
    found = f(left, right, target="cuda")
    np.testing.assert_allclose(found, left.T @ right.T, rtol=1e-4, atol=1e-3)


def test_the_same_bits_every_time() -> None:
    f = tcdsl.define("def f(bfloat16(M,K) X, bfloat16(K,N) Y) -> (bfloat16(M,N) C) "
                     "{ C(m,n) +=! X(m,k) * Y(k,n) <=> cublas(X, Y) }").f  # fmt: skip
    left = torch.randn(64, 20000, device="cuda").bfloat16()
    right = torch.randn(20000, 96, device="cuda").bfloat16()
    first = f(left, right)
    assert all(torch.equal(first, f(left, right)) for _ in range(5))
    torch.testing.assert_close(first.double(), left.double() @ right.double(), rtol=0.02, atol=2.0)


LAYER = """
def f(bfloat16(M,K) X, bfloat16(K,N) Y, bfloat16(N) b) -> (bfloat16(M,N) D) {
    C(m,n) +=! X(m,k) * Y(k,n)
    D(m,n) = relu(C(m,n) + b(n))
}
"""


@pytest.mark.parametrize(("m", "n", "k"), [(1024, 1536, 512), (777, 512, 300), (128, 128, 64)])
def test_calls_that_a_plan_weighs_by_itself(m: int, n: int, k: int) -> None:
    f = tcdsl.define(LAYER).f
    x, y, b = (torch.randn(s, device="cuda").bfloat16() for s in ((m, k), (k, n), (n,)))
    found = f(x, y, b, options=tcdsl.Options(libraries=True))
    executable = f.compile(x, y, b, options=tcdsl.Options(libraries=True))
    assert "cublas of S0" in executable.explain() or calls_of(executable)
    exact = torch.relu(x.double() @ y.double() + b.double())
    torch.testing.assert_close(found.double(), exact, rtol=0.02, atol=0.3)
    for options in (tcdsl.Options(), tcdsl.Options(libraries=False)):
        assert not calls_of(f.compile(x, y, b, options=options))
