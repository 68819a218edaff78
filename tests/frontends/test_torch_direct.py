"""Operators in Inductor's code: direct calls, what they check, and where they are not made."""

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.runtime import prepared_calls

torch = pytest.importorskip("torch")
tct = pytest.importorskip("tcdsl.torch")
direct = pytest.importorskip("tcdsl.torch.direct")
ops = pytest.importorskip("tcdsl.torch.ops")

prog = tcdsl.define("""
def scale(float(M, N) x, float(N) w, size C) -> (y) { y(m, n) = x(m, n) * w(n) * C }
def norm(float(M, N) x, float(N) w) -> (y) {
    s(m) +=! x(m, n) * x(m, n)
    y(m, n) = x(m, n) * rsqrt(s(m) / N + 0.00001) * w(n)
}
def several(float(N) x, int64(N) at) -> (y, z) {
    y(n) = x(at(n)) where n in 0:N
    z(n) = x(n) + 1.0
}
""")
_number = count()


def register(name: str) -> tuple[Any, str]:
    """Register a def under a name of its own; return the operator and that name."""
    full = f"direct{next(_number)}::{name}"
    return tct.op(prog[name], name=full), full


def code_of(f: Callable[..., Any], *args: Any) -> tuple[Any, str]:
    """Return what *f*, compiled anew, returns for *args*, and the code that Inductor made."""
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    with torch._inductor.config.patch(force_disable_caches=True):
        found, codes = run_and_get_code(f, *args)
    return found, "\n".join(codes)


def compiled_gradients(op: Any, x: Any, w: Any) -> tuple[Any, ...]:
    step = torch.compile(lambda x, w: op(x.relu(), w).square().sum(), fullgraph=True)
    return tuple(torch.autograd.grad(step(x, w), (x, w)))


def layout(x: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(x.shape), tuple(x.stride())


@pytest.fixture(params=["prepared", "of Python"])
def direct_call(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Direct calls, as objects of C and, without Python's headers, as those of Python."""
    if request.param == "of Python":
        monkeypatch.setattr(prepared_calls, "_call_type", lambda: None)
    return ops.direct_call


# --- without Inductor -------------------------------------------------------------------------


def test_a_direct_call_learns_what_it_goes_through(direct_call: Any) -> None:
    _, name = register("scale")
    x, w = torch.randn(5, 7), torch.randn(7)
    call = direct_call(name, "", (3,), (layout(x), layout(w)), (layout(x),))
    assert not call.is_prepared
    for _ in range(3):
        torch.testing.assert_close(call(x, w), 3 * x * w)
        assert call.is_prepared
    other = torch.randn(5, 7), torch.randn(7)
    assert torch.equal(call(*other), prog.scale(*other, 3))
    first, second = call(x, w), call(x, w)
    assert first.data_ptr() != second.data_ptr()  # results are new


def test_misaligned_and_lazily_negated_tensors_are_looked_at(direct_call: Any) -> None:
    _, name = register("scale")
    x, w = torch.randn(5, 7), torch.randn(7)
    call = direct_call(name, "", (2,), (layout(x), layout(w)), (layout(x),))
    shifted = torch.randn(36)[1:].view(5, 7)  # 4 bytes from where an allocation begins
    assert layout(shifted) == layout(x) and shifted.data_ptr() % 16 == 4
    torch.testing.assert_close(call(shifted, w), 2 * shifted * w)
    assert not call.is_prepared  # of such tensors nothing is learnt
    call(x, w)
    assert call.is_prepared
    torch.testing.assert_close(call(shifted, w), 2 * shifted * w)
    assert call.is_prepared
    fresh = direct_call(name, "", (2,), (layout(x), layout(w)), (layout(x),))
    negated = torch._neg_view(x)
    assert negated.is_neg()
    torch.testing.assert_close(fresh(negated, w), -2 * x * w)
    assert not fresh.is_prepared


def test_other_layouts_than_the_graph_s_are_not_learnt(direct_call: Any) -> None:
    _, name = register("scale")
    x, w = torch.randn(7, 5).t(), torch.randn(7)
    call = direct_call(name, "", (1,), (((5, 7), (7, 1)), layout(w)), (((5, 7), (7, 1)),))
    torch.testing.assert_close(call(x, w), x * w)
    assert not call.is_prepared


def test_a_result_of_another_shape_than_the_graph_s_is_an_error(direct_call: Any) -> None:
    _, name = register("scale")
    x, w = torch.randn(5, 7), torch.randn(7)
    call = direct_call(name, "", (1,), (layout(x), layout(w)), (((5, 8), (8, 1)),))
    with pytest.raises(AssertionError, match="shapes"):
        call(x, w)


def test_strides_of_extents_of_one_may_be_any(direct_call: Any) -> None:
    _, name = register("scale")
    x, w = torch.randn(1, 7).as_strided((1, 7), (99, 1)), torch.randn(7)
    call = direct_call(name, "", (1,), (((1, 7), (7, 1)), layout(w)), (((1, 7), (7, 1)),))
    torch.testing.assert_close(call(x, w), x * w)
    assert call.is_prepared


def test_a_derived_form_returns_a_list_and_faults_are_raised(direct_call: Any) -> None:
    _, name = register("several")
    x, at = torch.randn(6), torch.arange(6).flip(0)
    call = direct_call(name, "", (), (layout(x), layout(at)), (layout(x), layout(x)))
    for _ in range(2):
        y, z = call(x, at)
        assert torch.equal(y, x[at]) and torch.equal(z, x + 1)
    with pytest.raises(tcdsl.TCError) as error:
        call(x, at + 3)
    assert error.value.code == "TC080"
    derived = f"{name.replace('::', '::_')}_derived"
    gradient = direct_call(
        derived, "d0", (), (layout(x), layout(at), layout(x), layout(x)), (layout(x),)
    )
    dy, dz = torch.randn(6), torch.randn(6)
    for _ in range(2):
        (found,) = gradient(x, at, dy, dz)
        torch.testing.assert_close(found, dz.index_add(0, at, dy))


@pytest.mark.parametrize("shape", [(0, 7), (1, 1), (3, 0), (13, 17), (600, 700)])
def test_new_results_are_right_at_any_size(shape: tuple[int, int]) -> None:
    x, w = torch.randn(shape), torch.randn(shape[1:])
    prog.norm(x, w)  # what follows goes through what this one has made
    expected = torch.nn.functional.rms_norm(x, shape[1:], w, 1e-5) if x.numel() else x
    torch.testing.assert_close(prog.norm(x, w), expected)
    torch.testing.assert_close(prog.norm(x.t().contiguous().t(), w), expected)


def test_workspaces_are_not_shared_by_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    inputs = [(torch.randn(64, 96), torch.randn(96)) for _ in range(16)]
    wanted = [np.asarray(prog.norm(*pair)) for pair in inputs]
    with ThreadPoolExecutor(8) as pool:
        found = [pool.submit(lambda pair=pair: prog.norm(*pair)) for pair in inputs * 8]
    for n, future in enumerate(found):
        np.testing.assert_array_equal(np.asarray(future.result()), wanted[n % 16])


# --- in code of Inductor ----------------------------------------------------------------------


@pytest.mark.slow  # Inductor's C++ takes seconds
def test_inductor_calls_what_is_prepared_in_both_passes() -> None:
    op, _ = register("norm")
    x, w = torch.randn(16, 64, requires_grad=True), torch.randn(64, requires_grad=True)
    expected = torch.autograd.grad(op(x.relu(), w).square().sum(), (x, w))
    found, code = code_of(lambda: compiled_gradients(op, x, w))
    assert code.count("= tcdsl_call(") == 2 and f"torch.ops.{op.namespace}" not in code_only(code)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.slow
def test_symbolic_sizes_and_unknown_versions_go_through_the_dispatcher(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    op, _ = register("norm")
    w = torch.randn(64)
    of_any = torch.compile(lambda x: op(x.relu(), w), fullgraph=True, dynamic=True)
    found, code = code_of(of_any, torch.randn(16, 64))
    assert found.shape == (16, 64) and "tcdsl_call" not in code and "torch.ops.direct" in code
    x = torch.randn(9, 64)
    torch.testing.assert_close(of_any(x), op(x.relu(), w))
    monkeypatch.setattr(direct, "_UNTESTED", direct._FIRST)
    other, _ = register("norm")
    found, code = code_of(torch.compile(lambda x: other(x.relu(), w), fullgraph=True), x)
    assert "tcdsl_call" not in code and "torch.ops.direct" in code
    torch.testing.assert_close(found, op(x.relu(), w))


@pytest.mark.slow
def test_inputs_that_are_misaligned_later_are_right() -> None:
    op, _ = register("scale")
    f = torch.compile(lambda x, w: op(x, w, 2) + 1, fullgraph=True)
    w, memory = torch.randn(7), torch.randn(48)
    found, code = code_of(f, memory[:35].view(5, 7), w)
    assert "tcdsl_call" in code
    torch.testing.assert_close(found, memory[:35].view(5, 7) * w * 2 + 1)
    for start in (0, 1, 3, 4, 0):
        x = memory[start : start + 35].view(5, 7)
        torch.testing.assert_close(f(x, w), x * w * 2 + 1)


def code_only(code: str) -> str:
    """Return *code* without its comments, which name operators."""
    return "\n".join(line.partition("#")[0] for line in code.splitlines())
