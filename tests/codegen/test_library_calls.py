"""Statements that a library computes: which call stands for them, and that results are right."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.codegen.cuda.printer import print_cuda
from tcdsl.codegen.cuda.source import LibraryCall, ParameterKind, launch_from_json
from tcdsl.errors import EmulationError, TCError
from tcdsl.options import Options
from tcdsl.testing import check

MakeUnit = Callable[..., Any]
PRODUCT = "def f({t}({a}) X, {t}({b}) Y) -> ({r}C) {{ C({c}) +=! X({i}) * Y({j}) <=> {lib}(X, Y) }}"
SIZES = {"B": 3, "M": 33, "K": 20, "N": 17}
# Dimensions of the operands, of the result, and the product that a library gets: batch, rows,
# columns, terms.
FORMS = {
    "NN": ("M,K", "K,N", "m,n", (1, 33, 17, 20)),
    "NT": ("M,K", "N,K", "m,n", (1, 33, 17, 20)),
    "TN": ("K,M", "K,N", "m,n", (1, 33, 17, 20)),
    "TT": ("K,M", "N,K", "n,m", (1, 33, 17, 20)),
    "batched": ("B,M,K", "B,K,N", "b,m,n", (3, 33, 17, 20)),
    "batch inside": ("M,B,K", "B,N,K", "m,b,n", (3, 33, 17, 20)),
    "rows of a batch": ("B,M,K", "K,N", "b,m,n", (1, 99, 17, 20)),
    "one right operand": ("B,K,M", "K,N", "b,m,n", (3, 33, 17, 20)),
    "two sums": ("M,B,K", "B,K,N", "m,n", (1, 33, 17, 60)),
    "vector": ("M,K", "K", "m", (1, 33, 1, 20)),
    "dot": ("K", "K", "", (1, 1, 1, 20)),
}  # fmt: skip


def product(form: str, dtype: str = "float", library: str = "cublas", result: str = "") -> str:
    a, b, c, _ = FORMS[form]
    text = PRODUCT.format(
        t=dtype, a=a, b=b, c=c, i=a.lower(), j=b.lower(), lib=library, r=result and f"{result} "
    )
    return text.replace("C()", "C")


def shapes(form: str) -> list[tuple[int, ...]]:
    return [tuple(SIZES[name] for name in dims.split(",")) for dims in FORMS[form][:2]]


def calls(unit: Any) -> list[LibraryCall]:
    return [launch for launch in unit.source.launches if isinstance(launch, LibraryCall)]


@pytest.mark.parametrize("form", FORMS)
def test_the_product_that_a_library_gets(form: str, cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(product(form), *shapes(form))
    (call,) = calls(unit)
    got = call.product
    assert (got.batch, got.rows, got.columns, got.terms) == FORMS[form][3] or (
        (got.batch, got.columns, got.rows, got.terms) == FORMS[form][3]
    )
    assert not got.accumulates and not unit.source.kernels
    assert launch_from_json(call.to_json()) == call
    assert [p.kind for p in call.operands] == [ParameterKind.ARRAY] * 3 + [ParameterKind.SCRATCH]
    assert call.workspace_bytes <= unit.source.workspace_bytes


CHAIN = """
def f(float(M,K) X, float(K,N) Y, float(N) b) -> (D, s) {
    T(m,k) = relu(X(m,k))
    C(m,n) +=! T(m,k) * Y(k,n) <=> cublas(T, Y)
    D(m,n) = tanh(C(m,n) + b(n))
    s(n) +=! D(m,n)
}"""
ON_FROM = """
def f(float(M,K) X, float(K,N) Y, float(M,N) C) -> (C) {
    C(m,n) += X(m,k) * Y(k,n) <=> cublas(X, Y)
}"""
PARTS = """
def f(float(N,N) x, float(N,N) w) -> (y) {
    y(i,j) +=! x(i,k) * w(k,j) <=> cublas(x, w) where k in 3:11, i in 2:9, j in 1:30
}"""


def test_results_on_the_emulator(check_emulated: Callable[..., None]) -> None:
    check_emulated([
        *((product(form), shapes(form)) for form in FORMS),
        (product("NT", "bfloat16", result="bfloat16(M,N)"), shapes("NT")),
        (product("TN", "float16", result="float(M,N)"), shapes("TN")),
        (product("NN", "double"), shapes("NN")),
        (CHAIN, [(33, 20), (20, 17), (17,)]),
        (ON_FROM, [(33, 20), (20, 17), (33, 17)]),
        (PARTS, [(31, 31), (31, 31)]),
        (product("NN"), [(33, 0), (0, 17)]),
        (product("NN"), [(1, 1), (1, 1)]),
    ])  # fmt: skip


def test_a_call_is_a_kernel_of_its_own(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(CHAIN, (33, 20), (20, 17), (17,))
    kinds = [type(launch).__name__ for launch in unit.source.launches]
    assert kinds == ["Launch", "LibraryCall", "Launch"]
    (call,) = calls(unit)
    assert [p.kind for p in call.operands] == [
        ParameterKind.SCRATCH, ParameterKind.ARRAY, ParameterKind.SCRATCH, ParameterKind.SCRATCH,
    ]  # fmt: skip
    first, *_, last = (p.offset for p in call.operands)
    assert last >= first + 33 * 20 * 4, "the workspace of the call is not a scratch array's"


@pytest.mark.parametrize("options", [
    Options(fuse="none"), Options(scheduler="isl"), Options(scheduler="source_order"),
    Options(coalesce=False), Options(vectorise=False), Options(deterministic=True),
], ids=repr)  # fmt: skip
def test_options_leave_the_call(options: Options, cuda_unit: MakeUnit) -> None:
    assert len(calls(cuda_unit(CHAIN, (33, 20), (20, 17), (17,), options=options))) == 1


def test_without_libraries_the_program_is_any_program(cuda_unit: MakeUnit) -> None:
    plain = CHAIN.replace("<=> cublas(T, Y)", "")
    options = Options(libraries=False)
    arrays = (33, 20), (20, 17), (17,)
    unit = cuda_unit(CHAIN, *arrays, options=options)
    assert unit.source.text == cuda_unit(plain, *arrays, options=options).source.text
    blas = cuda_unit(CHAIN.replace("cublas", "blas"), *arrays)
    assert blas.source.text == unit.source.text, "a CPU's library is none of a GPU's"


def test_a_product_that_lost_its_form_is_refused(cuda_unit: MakeUnit) -> None:
    plan = cuda_unit(product("NN"), *shapes("NN")).done.plan
    (kernel,) = plan.kernels
    changed = tuple(
        replace(s, reduction=None) if s.kind == "update" else s for s in plan.scop.statements
    )
    wrong = replace(plan, scop=plan.scop.with_statements(changed))
    with pytest.raises(TCError, match="is no product: "):
        print_cuda(replace(wrong, kernels=(kernel,)))


def test_the_emulator_checks_where_the_result_goes(cuda_unit: MakeUnit, emulated: Any) -> None:
    unit = cuda_unit(product("NN"), *shapes("NN"))
    (call,) = calls(unit)
    beyond = replace(call.product, rows=34)
    wrong = replace(unit.source, launches=(replace(call, product=beyond),))
    (found,) = emulated([replace(unit, done=replace(unit.done, source=wrong))])
    arrays = {n: np.ones(s, np.float32) for n, s in zip("XY", shapes("NN"), strict=True)}
    with pytest.raises(EmulationError):
        found.program.run({**arrays, "C": np.zeros((33, 17), np.float32)})


@pytest.mark.parametrize(("library", "target"), [("cublas", "emulate"), ("blas", "cpu")])
def test_open_sizes_are_compiled_one_by_one(library: str, target: str) -> None:
    f = tcdsl.define(product("NN", library=library)).f
    executable = f.compile(
        *random_inputs("NN"), target=target, options=Options(dynamic_sizes=("M",))
    )
    assert executable.opened == () and "cannot be left open" in executable.explain()
    assert [kernel["library"] for kernel in executable.kernels] == [library]


# --- a CPU ----------------------------------------------------------------------------------


def random_inputs(form: str) -> list[Any]:
    draw = np.random.default_rng(3)
    return [draw.standard_normal(shape).astype(np.float32) for shape in shapes(form)]


@pytest.mark.parametrize(
    "form", [f if f == "TN" else pytest.param(f, marks=pytest.mark.slow) for f in FORMS]
)
def test_results_on_a_cpu(form: str) -> None:
    f = tcdsl.define(product(form, library="blas")).f
    inputs = random_inputs(form)
    executable = f.compile(*inputs, target="cpu")
    assert [kernel["library"] for kernel in executable.kernels] == ["blas"]
    assert "1 library call(s)" in executable.explain() and "tcdsl_product(" in executable.source
    check(f, *inputs, targets=("cpu",))
    bound = executable.bind(*inputs)
    np.testing.assert_array_equal(bound(), executable(*inputs))


def test_products_whose_code_is_alike_are_two() -> None:
    """The text of a call tells the product: a shared object is loaded once for one text."""
    one, other = (tcdsl.define(product(form, library="blas")).f for form in ("NN", "NT"))
    x, y = random_inputs("NN")
    np.testing.assert_allclose(one(x, y, target="cpu"), x @ y, rtol=1e-4, atol=1e-4)
    found = other(x, np.ascontiguousarray(y.T), target="cpu")
    np.testing.assert_allclose(found, x @ y, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_cpus_call_among_other_kernels() -> None:
    f = tcdsl.define(CHAIN.replace("cublas", "blas")).f
    draw = np.random.default_rng(4)
    inputs = [draw.standard_normal(s).astype(np.float32) for s in ((33, 20), (20, 17), (17,))]
    check(f, *inputs, targets=("cpu",))
    half = tcdsl.define(product("NT", "float16", "blas", "float16(M,N)")).f
    check(half, *(x.astype(np.float16) for x in random_inputs("NT")), targets=("cpu",))


def test_what_a_call_raises_reaches_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    from tcdsl.runtime import host_products

    f = tcdsl.define(product("NN", library="blas")).f
    inputs = random_inputs("NN")
    executable = f.compile(*inputs, target="cpu")

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(host_products, "_multiply_into", interrupted)
    with pytest.raises(KeyboardInterrupt):
        executable(*inputs)
    with pytest.raises(KeyboardInterrupt):
        executable.bind(*inputs)()
    monkeypatch.undo()
    np.testing.assert_allclose(executable(*inputs), inputs[0] @ inputs[1], rtol=1e-4, atol=1e-4)
