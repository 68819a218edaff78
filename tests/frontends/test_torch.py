"""tcdsl.torch: operators and layers on a CPU; tests/gpu/test_torch_on_the_gpu.py has the others."""

import copy
import io
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl import library
from tcdsl.runtime.c_compiler import begun_shared

torch = pytest.importorskip("torch")
tct = pytest.importorskip("tcdsl.torch")
Form = pytest.importorskip("tcdsl.torch.family").Form
linear = torch.nn.functional.linear

PROGRAM = """
def linear(float(M, K) x, float(N, K) weight, float(N) bias) -> (y) {
    y(m, n) +=! x(m, k) * weight(n, k)
    y(m, n) = y(m, n) + bias(n)
}
def conv(float(H, W) image, float(KH, KW) weight) -> (out) {
    out(h, w) +=! image(h + kh, w + kw) * weight(kh, kw)
}
def smooth(double(N) x, double(K) w) -> (y) {
    y(n) +=! tanh(x(n + k)) * w(k)
}
def several(float(N) x, int32(N) at, float a, size C) -> (y, next) {
    y(n) = a * x(n) * C
    next(n) = at(n) + 1
}
def rows(float(E) value, int32(R1) start) -> (float(R1) sums) {
    sums(r) = 0 where r in 0:R1
    sums(r) += value(e) where r in 0:R1 - 1, e in start(r):start(r + 1)
}
def add_into(float(N) total, float(N) x) -> (total) {
    total(n) += x(n)
}
"""
prog = tcdsl.define(PROGRAM)
_number = count()


def register(name: str) -> Any:
    """Register a def under a name of its own."""
    return tct.op(prog[name], name=f"tests{next(_number)}::{name}")


def layer(*shape: int) -> tuple[Any, Any, Any]:
    generator = torch.Generator().manual_seed(1)
    shapes = shape, (3, shape[-1]), (3,)
    return tuple(torch.randn(s, generator=generator) for s in shapes)


def gradients(f: Callable[..., Any], *args: Any) -> list[Any]:
    args = tuple(arg.detach().clone().requires_grad_() for arg in args)
    return list(torch.autograd.grad(f(*args).square().sum(), args))


@pytest.mark.slow
def test_opcheck_finds_nothing() -> None:
    op, several = register("linear"), register("several")
    torch.library.opcheck(op, tuple(arg.requires_grad_() for arg in layer(4, 5)))
    at = torch.zeros(3, dtype=torch.int32)
    torch.library.opcheck(several, (torch.ones(3, requires_grad=True), at, torch.tensor(2.0), 3))


def test_the_operator_is_one_of_torch_ops() -> None:
    op = tct.op(prog.several, name="tests::several")
    at = torch.zeros(3, dtype=torch.int32)
    y, following = torch.ops.tests.several(x=torch.ones(3), at=at, a=torch.tensor(2.0), C=3)
    assert y.tolist() == [6, 6, 6] and following.tolist() == [1, 1, 1]
    assert tct.op(prog.several, name="tests::several") is op


def test_gradients_are_those_of_the_formula_for_any_layout() -> None:
    op, (x, weight, bias) = register("linear"), layer(4, 5)
    wide = torch.randn(5, 8)[:, ::2].T
    for own, other in zip(
        gradients(op, wide, weight, bias), gradients(linear, wide, weight, bias), strict=True
    ):
        torch.testing.assert_close(own, other, rtol=1e-4, atol=1e-4)
    weight.requires_grad_()
    op(x, weight, bias).sum().backward()  # of a gradient without strides, by one input only
    torch.testing.assert_close(weight.grad, x.sum(0).expand(3, 5))


def test_second_derivatives() -> None:
    op = register("smooth")
    args = tuple(torch.randn(n, dtype=torch.double, requires_grad=True) for n in (5, 2))
    assert torch.autograd.gradcheck(op, args)
    assert torch.autograd.gradgradcheck(op, args)


@pytest.mark.parametrize("dims", [(0, None, None), (1, 0, None), (None, None, 0), (2, 1, 1)])
def test_vmap_is_one_call_with_one_more_index(dims: tuple[int | None, ...]) -> None:
    op = register("linear")
    args = [
        torch.stack([arg + i for i in range(6)], dim) if dim is not None else arg
        for arg, dim in zip(layer(4, 5), dims, strict=True)
    ]
    found, expected = (torch.vmap(f, dims)(*args) for f in (op, linear))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_vmap_of_a_compiled_function_traces_nothing_of_a_call(backend: str) -> None:
    op, x = register("linear"), torch.randn(3, 4, 5, requires_grad=True)
    _, weight, bias = layer(4, 5)
    compiled = torch.compile(lambda x: op(x, weight, bias), backend=backend)
    found, expected = torch.vmap(compiled)(x), linear(x, weight, bias)
    torch.testing.assert_close(found, expected)
    own, other = (torch.autograd.grad(y.tanh().sum(), x)[0] for y in (found, expected))
    torch.testing.assert_close(own, other)


def test_vmap_of_what_is_updated_and_what_has_no_batched_text() -> None:
    x = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    total = torch.vmap(register("add_into"), (None, 0))(torch.ones(4), x)
    assert torch.equal(total, x + 1)
    start = torch.tensor([[0, 2, 4], [1, 1, 3], [0, 0, 0]], dtype=torch.int32)
    sums = torch.vmap(register("rows"))(x, start)
    assert sums.tolist() == [[1, 5, 0], [0, 11, 0], [0, 0, 0]]


def test_vmap_without_a_batched_text_is_a_call_for_each_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Form, "batch", lambda *_: None)  # every def of today has such a text
    op = register("rows")
    value = torch.randn(5, 4, requires_grad=True)  # the batch is last
    start = torch.tensor([[0, 1, 2, 5], [0, 0, 3, 5], [5, 5, 5, 5], [1, 2, 3, 4]])
    start = start.to(torch.int32)
    weight = torch.randn(4, 4)
    found = torch.vmap(op, (1, 0))(value, start)
    wanted = torch.stack([op(value[:, b].contiguous(), start[b]) for b in range(4)])
    torch.testing.assert_close(found, wanted)
    own, other = (torch.autograd.grad((sums * weight).sum(), value)[0] for sums in (found, wanted))
    torch.testing.assert_close(own, other)


@pytest.mark.slow
@pytest.mark.parametrize("case", library.cases(), ids=lambda case: case.name)
def test_the_library_batched(case: library.Case) -> None:
    f = tcdsl.define(case.source)[case.def_name]
    sizes = next(s for s in case.small_sizes if all(s.values()))
    rows = [
        [*case.make_inputs(sizes, np.random.default_rng(seed), case.dtypes[0]).values()]
        for seed in (1, 2, 3)
    ]
    for chosen in ((0,), tuple(range(len(rows[0])))):
        batch = Form(f).batch(chosen)
        assert batch is not None
        given = [[row[i] if i in chosen else rows[0][i] for i in range(len(row))] for row in rows]
        args = [
            np.stack([row[i] for row in given]) if i in batch.inputs else given[0][i]
            for i in range(len(rows[0]))
        ]
        found = as_tuple(batch.form.function.reference(*args))
        wanted = [as_tuple(f.reference(*row)) for row in given]
        for i, is_batched in enumerate(batch.outputs):
            for b in range(len(rows)):
                one = found[i][b] if is_batched else found[i]
                np.testing.assert_array_equal(one, wanted[b][i])


def as_tuple(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def test_gradients_of_each_sample_and_jacobians() -> None:
    op, (x, weight, bias) = register("linear"), layer(4, 6, 5)

    def of_samples(f: Callable[..., Any]) -> Any:
        gradient = torch.func.grad(lambda w, row: f(row, w, bias).square().sum())
        return torch.func.vmap(gradient, (None, 1))(weight, x)

    torch.testing.assert_close(of_samples(op), of_samples(linear), rtol=1e-4, atol=1e-4)
    smooth, values = register("smooth"), torch.randn(5, dtype=torch.double)

    def loss(w: Any) -> Any:
        return smooth(values, w).square().sum()

    hessian = torch.func.jacrev(torch.func.jacrev(loss))(torch.ones(2, dtype=torch.double))
    torch.testing.assert_close(hessian, hessian.T)


TWO_LAYERS = """def two(float(B,N) x, float(O,N) V, float(P,O) W) -> (y) {
    h(b,o) +=! x(b,n) * V(o,n)
    g(b,o) = tanh(h(b,o))
    y(b,p) +=! g(b,o) * W(p,o)
}"""


def two_layers(x: Any, V: Any, W: Any) -> Any:
    return torch.tanh(x @ V.T) @ W.T


def test_derivatives_take_what_the_forward_pass_has_kept() -> None:
    """The first product is no part of the backward pass; its cotangent comes back where needed."""
    op = tct.op(tcdsl.define(TWO_LAYERS).two, name=f"tests{next(_number)}::two")
    generator = torch.Generator().manual_seed(2)
    args = [torch.randn(s, generator=generator) for s in ((5, 7), (6, 7), (4, 6))]
    for of in (op, torch.compile(op, fullgraph=True, backend="aot_eager")):
        torch.testing.assert_close(gradients(of, *args), gradients(two_layers, *args))
    node = op(*(arg.requires_grad_() for arg in args)).grad_fn
    assert [tuple(x.shape) for x in node.saved_tensors] == [(5, 7), (6, 7), (4, 6), (5, 6)]

    def second(of: Callable[..., Any]) -> Any:
        first = torch.autograd.grad(of(*args).square().sum(), args, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), args)

    torch.testing.assert_close(second(op), second(two_layers), rtol=1e-4, atol=1e-3)
    x, V, W = (arg.detach() for arg in args)

    def hessian(of: Callable[..., Any]) -> Any:
        loss = torch.func.grad(lambda x: of(x, V, W).square().sum())
        return torch.func.jacrev(loss)(x)

    torch.testing.assert_close(hessian(op), hessian(two_layers), rtol=1e-4, atol=1e-3)


def test_derivatives_have_the_options_of_their_operator() -> None:
    options = tcdsl.Options(precision="bfloat16")
    form = Form(tcdsl.Function(tcdsl.define(TWO_LAYERS).two.comprehension, options))
    own = form.derivative((True, True, True))
    assert own.kept, "there are two passes"
    for path in (own.whole, own.forward, own.backward):
        assert form.at(path).function.options == options


def test_a_result_that_nobody_uses_has_no_cotangent() -> None:
    f = tcdsl.define(TWO_LAYERS.replace("(y)", "(y, g)")).two
    op = tct.op(f, name=f"tests{next(_number)}::two")
    args = [torch.randn(s) for s in ((5, 7), (6, 7), (4, 6))]
    found = gradients(lambda *a: op(*a)[1], *args[:2], args[2])
    wanted = gradients(lambda x, V, W: torch.tanh(x @ V.T) + 0 * W.sum(), *args)
    torch.testing.assert_close(found, wanted)


def test_what_has_no_derivative_has_a_forward_pass() -> None:
    text = "def f(float(N) y) -> (z) { z(i) = lgamma(y(i)) }"
    op = tct.op(tcdsl.define(text).f, name=f"tests{next(_number)}::f")
    y = op(torch.arange(3.0, requires_grad=True))
    with pytest.raises(tcdsl.SemanticError, match="the derivative of lgamma"):
        y.sum().backward()


@pytest.mark.slow
def test_one_graph_without_breaks_for_all_sizes() -> None:
    conv, graphs = register("conv"), []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)

    @torch.compile(fullgraph=True, dynamic=True, backend=backend)
    def loss(image: Any, weight: Any) -> Any:
        out = conv(image, weight)
        assert out.shape[0] == image.shape[0] - weight.shape[0] + 1
        return out.relu().sum()

    for n in (7, 9, 11):
        image, weight = torch.randn(n, n + 2), torch.randn(3, 4, requires_grad=True)
        loss(image, weight).backward()
        expected = torch.nn.functional.conv2d(image[None, None], weight[None, None]).relu().sum()
        torch.testing.assert_close(weight.grad, torch.autograd.grad(expected, weight)[0])
    assert len(graphs) == 1


def test_symbolic_sizes_are_open_in_the_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path))
    sources: list[str] = []

    def counted(source: str, *args: Any, **kwargs: Any) -> Any:
        sources.append(source)
        return begun_shared(source, *args, **kwargs)

    monkeypatch.setattr("tcdsl.executable.cpu.begun_shared", counted)
    text = "def scaled(float(M, N) x, float(N) w) -> (y) { y(m, n) = x(m, n) * w(n) * w(n) }"
    op = tct.op(tcdsl.define(text).scaled, name=f"tests{next(_number)}::scaled")
    f = torch.compile(lambda x, w: op(x, w).sum(), fullgraph=True, backend="aot_eager")
    w = torch.randn(8)
    for m in (5, 6, 7, 8):
        x = torch.randn(m, 8, requires_grad=True)
        torch._dynamo.mark_dynamic(x, 0)
        f(x, w).backward()
        torch.testing.assert_close(x.grad, (w * w).expand(m, 8))
    assert len(sources) == 2  # the function and its derivative
    assert all("int64_t M" in source for source in sources)


def test_export_keeps_the_operator_and_the_open_size() -> None:
    x, weight, bias = layer(4, 5)
    module = tct.Module(prog.linear, weight=weight, bias=bias)
    sizes = {"args": ({0: torch.export.Dim("batch")},)}
    exported = torch.export.export(module, (x,), dynamic_shapes=sizes)
    assert "torch.ops.tcdsl.linear" in exported.graph_module.code
    more = torch.randn(9, 5)
    torch.testing.assert_close(exported.module()(more), module(more))


def test_an_exported_program_is_saved_and_loaded() -> None:
    x, weight, bias = layer(4, 5)
    module = tct.Module(prog.linear, weight=weight, bias=bias)
    file = io.BytesIO()
    torch.export.save(torch.export.export(module, (x,)), file)
    file.seek(0)
    again = torch.export.load(file).module()
    assert set(again.state_dict()) == {"weight", "bias"}
    torch.testing.assert_close(again(x), module(x))


@pytest.mark.slow
@pytest.mark.parametrize("form", [torch.channels_last, torch.contiguous_format])
def test_memory_formats(form: Any) -> None:
    """An argument is read in its format; results are contiguous, also in a graph."""
    text = """def scaled(float(N, C, H, W) x, float(C) a) -> (y) {
        y(n, c, h, w) = tanh(x(n, c, h, w)) * a(c)
    }"""
    op = tct.op(tcdsl.define(text).scaled, name=f"tests{next(_number)}::scaled")
    x = torch.randn(2, 3, 4, 5).to(memory_format=form).requires_grad_()
    a = torch.randn(3, requires_grad=True)
    torch.library.opcheck(op, (x, a))
    wanted = torch.tanh(x) * a[:, None, None]
    for function in (op, torch.compile(op, backend="aot_eager", fullgraph=True)):
        y = function(x, a)
        assert y.is_contiguous()
        torch.testing.assert_close(y, wanted)
        own, other = (torch.autograd.grad(v.square().sum(), (x, a), retain_graph=True)
                      for v in (y, wanted))  # fmt: skip
        torch.testing.assert_close(own, other)


WIDTH = 2**44  # of rows that are one element each: no process has the addresses for a copy
VIEWS = {
    "expanded": lambda: torch.randn(2, 3, 5, 1).expand(-1, -1, -1, WIDTH),
    "transposed": lambda: torch.randn(5, 3, 2, 1).expand(-1, -1, -1, WIDTH).transpose(0, 2),
    "channels last": lambda: (
        torch.randn(2, 3, 5, 1)
        .contiguous(memory_format=torch.channels_last)
        .expand(-1, -1, -1, WIDTH)
    ),
    "sliced": lambda: torch.randn(4, 6, 9, 1).expand(-1, -1, -1, WIDTH)[1:3, ::2, 4:, 7:],
}


@pytest.mark.parametrize("view", VIEWS)
def test_views_are_read_in_place(view: str) -> None:
    """Neither pass copies a view: whatever copied this one would run out of memory."""
    op = tct.op(tcdsl.define("""def part(float(N, C, H, W) x, float(C) a) -> (y) {
        y(n, c, h) +=! x(n, c, h, w) * a(c) where w in 0:3
    }""").part, name=f"tests{next(_number)}::part")  # fmt: skip
    x, a = VIEWS[view](), torch.randn(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="memory"):
        x.contiguous()
    found, wanted = op(x, a), x[..., :3].sum(-1) * a[:, None]
    torch.testing.assert_close(found, wanted)
    own, other = (torch.autograd.grad(y.square().sum(), a) for y in (found, wanted))
    torch.testing.assert_close(own, other)


def test_autocast_gives_the_declared_types() -> None:
    op, (x, weight, bias) = register("linear"), layer(4, 5)
    half = x.bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = op(half, weight, bias)
    assert y.dtype == torch.float32
    y.sum().backward()
    assert half.grad.dtype == torch.bfloat16
    with pytest.raises(tcdsl.ShapeError, match="declared float32 but the array's type is float64"):
        op(x.double(), weight, bias)
    model = tct.Module(prog.linear, weight=weight, bias=bias)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(half.detach()), y.detach())


def test_a_layer_has_the_state_of_the_one_that_it_replaces() -> None:
    x, _, _ = layer(4, 5)
    usual = torch.nn.Linear(5, 3)
    own = tct.Module(prog.linear, weight=torch.zeros(3, 5), bias=torch.zeros(3))
    own.load_state_dict(usual.state_dict())
    torch.testing.assert_close(own(x), usual(x))
    assert torch.equal(own(x=x), own(x)) and "linear(float32(M, K) x" in repr(own)
    saved = io.BytesIO()
    torch.save(own, saved)
    saved.seek(0)
    for other in (copy.deepcopy(own), torch.load(saved, weights_only=False)):
        assert torch.equal(other(x), own(x))
    at = torch.zeros(2, dtype=torch.int32)
    several = tct.Module(prog.several, at=at, a=torch.tensor(2.0))
    assert [*several.state_dict()] == ["a", "at"] and [*dict(several.named_parameters())] == ["a"]
    assert several(torch.ones(2), 4)[0].tolist() == [8, 8]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tct.op(prog.conv, name="conv"), "'conv', without a namespace"),
        (lambda: tct.op(prog.conv, name="a b::c"), "'a b::c', which is no namespace and name"),
        (lambda: tct.op(prog, name="a::b"), "this is a program"),
        (lambda: tct.op(prog.conv, name="aten::relu"), "torch.ops.aten.relu is something else"),
        (lambda: tct.op(prog.conv, name="prim::conv"), "PyTorch refuses prim::conv"),
        (lambda: tct.op(prog.conv, name="_::conv"), "PyTorch refuses _::conv"),
        (lambda: tct.Module(prog.conv, weigth=torch.ones(1, 1)), "no parameter 'weigth'"),
        (lambda: tct.Module(prog.conv, weight=[1]), "'weight' is a list"),
        (lambda: tct.Module(prog.conv, weight=torch.ones(1, 1))(), "takes 1 argument, got 0"),
    ],
)
def test_wrong_uses(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(tcdsl.TCError, match=message):
        make()


def test_results_without_a_first_value_are_refused() -> None:
    with pytest.warns(tcdsl.TCWarning):
        f = tcdsl.define("def f(float(N) x) -> (y) { y(n) += x(n) }").f
    with pytest.raises(tcdsl.ShapeError, match="'out' is missing"):
        tct.op(f, name="tests::without")


def test_a_name_stands_for_one_definition() -> None:
    tct.op(prog.conv, name="tests::once")
    with pytest.raises(tcdsl.OptionError, match="'tests::once' is another definition's"):
        tct.op(prog.smooth, name="tests::once")


def test_shapes_that_do_not_fit_are_refused_before_anything_runs() -> None:
    op = register("conv")
    with pytest.raises(tcdsl.ShapeError):
        op(torch.ones(3), torch.ones(2, 2))
    with pytest.raises(tcdsl.RangeError), torch._subclasses.FakeTensorMode():
        op(torch.ones(2, 2), torch.ones(5, 5))


def test_mistakes_are_those_of_the_users_text_where_gradients_are_recorded() -> None:
    gate = tcdsl.define("""
    def gate(float(B, I) x, float(O, I) w) -> (y) {
        h(b, o) +=! x(b, i) * w(o, i)
        y(b, o) = fmax(h(b, o), 0.0)
    }""").gate
    layer = tct.Module(gate, w=torch.randn(3, 4))
    for x, part in (
        (torch.zeros(2, 5, 4), "'x' is declared with 2 dimensions"),
        (torch.zeros(5, 4).double(), "x.to(torch.float32)"),
        (torch.zeros(5, 4).bfloat16(), "a model of float32 under torch.autocast"),
        (torch.zeros(5, 7), "the size I is 7"),
    ):
        with pytest.raises(tcdsl.ShapeError) as error:
            layer(x)
        assert part in str(error.value) and "def gate(" in str(error.value)
        assert error.value.__cause__ is None and error.value.__suppress_context__
