"""tcdsl.torch on a real GPU: devices, streams, graphs, torch.compile."""

from typing import Any

import pytest

import tcdsl

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
tct = pytest.importorskip("tcdsl.torch")

PROGRAM = """
def rmsnorm(float(M, N) x, float(N) weight, float eps) -> (y) {
    s(m) +=! x(m, n) * x(m, n)
    y(m, n) = x(m, n) * rsqrt(s(m) / N + eps) * weight(n)
}
"""


def expected(x: Any, weight: Any, eps: Any) -> Any:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


@pytest.fixture(scope="module")
def op() -> Any:
    return tct.op(tcdsl.define(PROGRAM).rmsnorm, name="tests_gpu::rmsnorm")


def arguments(device: str = "cuda") -> tuple[Any, Any, Any]:
    return torch.randn(64, 200, device=device), torch.rand(200, device=device), torch.tensor(1e-5)


def test_opcheck_and_gradients(op: Any) -> None:
    x, weight, eps = arguments()
    x.requires_grad_()
    weight.requires_grad_()
    torch.library.opcheck(op, (x, weight, eps))
    found = torch.autograd.grad(op(x, weight, eps).square().sum(), (x, weight))
    wanted = torch.autograd.grad(expected(x, weight, eps).square().sum(), (x, weight))
    for own, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-4)


def test_compiled_by_inductor_without_a_graph_break(op: Any) -> None:
    x, weight, eps = arguments()
    compiled = torch.compile(lambda x: op(x.relu(), weight, eps) * 2, fullgraph=True, dynamic=True)
    for rows in (64, 65, 66):
        x = torch.randn(rows, 200, device="cuda", requires_grad=True)
        y = compiled(x)
        wanted = expected(x.relu(), weight, eps) * 2
        torch.testing.assert_close(y, wanted, rtol=1e-4, atol=1e-4)
        own, other = (torch.autograd.grad(v.sum(), x)[0] for v in (y, wanted))
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-4)


def test_on_the_callers_stream_and_in_a_graph(op: Any) -> None:
    x, weight, _ = arguments()
    eps = torch.tensor(1e-5, device="cuda")
    op(x, weight, eps)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(10_000_000)
        x.add_(1)
        y = op(x, weight, eps)
    torch.cuda.current_stream().wait_stream(stream)
    torch.testing.assert_close(y, expected(x, weight, eps), rtol=1e-4, atol=1e-4)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = op(x, weight, eps)
    x.copy_(torch.randn_like(x))
    graph.replay()
    torch.testing.assert_close(y, expected(x, weight, eps), rtol=1e-4, atol=1e-4)


def test_backward_in_a_graph(op: Any) -> None:
    x, weight, eps = arguments()
    leaf = x.detach().clone().requires_grad_()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # the first call compiles
        torch.autograd.grad(op(leaf, weight, eps).square().sum(), leaf)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        (found,) = torch.autograd.grad(op(leaf, weight, eps).square().sum(), leaf)
    with torch.no_grad():
        leaf.copy_(torch.randn_like(leaf))
    graph.replay()
    (wanted,) = torch.autograd.grad(expected(leaf, weight, eps).square().sum(), leaf)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def test_views_vmap_and_autocast(op: Any) -> None:
    x, weight, eps = arguments()
    view = torch.randn(200, 64, device="cuda").T
    torch.testing.assert_close(
        op(view, weight, eps), expected(view, weight, eps), rtol=1e-4, atol=1e-4
    )
    batch = torch.randn(8, 64, 200, device="cuda")
    found = torch.vmap(op, (0, None, None))(batch, weight, eps)
    torch.testing.assert_close(found, expected(batch, weight, eps), rtol=1e-4, atol=1e-4)
    with torch.autocast("cuda", dtype=torch.float16):
        assert op(x.half(), weight, eps).dtype == torch.float32


def test_tensors_of_two_devices_are_refused(op: Any) -> None:
    x, weight, eps = arguments()
    with pytest.raises(tcdsl.TargetError):
        op(x, weight.cpu(), eps)
