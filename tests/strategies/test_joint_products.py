"""Several products in one kernel: that they are right, and when they are apart."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tcdsl
from tcdsl.costmodel.chip import load_chip
from tcdsl.costmodel.registers import MANY_REGISTERS
from tcdsl.lang.types.dtypes import FLOAT16
from tcdsl.options import Options
from tcdsl.plan.state import Evaluator
from tcdsl.strategies import catalogue
from tcdsl.testing.comparison import check
from tcdsl.testing.random_inputs import values
from tests.strategies.tile_configs import (
    CONFIGS,
    FEW,
    MakeUnit,
    asked,
    inputs_of,
    kernels_of,
    planned,
)

FORMS = {
    "nn": ("A(m,k) * B(k,n)", "A(m,k) * V(k,n)"),
    "nt": ("A(m,k) * B(n,k)", "A(m,k) * V(n,k)"),
    "tn": ("A(k,m) * B(k,n)", "V(k,n) * A(k,m)"),
    "apart": ("A(m,k) * B(k,n)", "V(m,k) * W(n,k)"),
    "turned": ("A(m,k) * B(k,n)", "A(k,m) * V(k,n)"),
}
SIZES = {"m": 0, "n": 1, "k": 2}


def parts_of(form: str) -> list[str]:
    """Return the first read of each array."""
    found = [part for own in FORMS[form] for part in re.findall(r"\w\(.*?\)", own)]
    return list({part[0]: part for part in reversed(found)}.values())[::-1]


def source_of(form: str, dtype: str = "bfloat16", rest: str | None = None) -> str:
    """Return a gated layer: y = a sigmoid(a) b, of the two products of a *form*."""
    parts = parts_of(form)
    arguments = ", ".join(
        f"{dtype}({', '.join(re.findall('[mnk]', part[1:])).upper()}) {part[0]}" for part in parts
    )
    one, other = FORMS[form]
    rest = rest or "y(m,n) = float(a(m,n)) * sigmoid(float(a(m,n))) * b(m,n)"
    statements = f"a(m,n) +=! {one}  b(m,n) +=! {other}  {rest}"
    return f"def f({arguments}) -> ({dtype}(M,N) y) {{ {statements} }}"


def shapes_of(form: str, *sizes: int) -> list[tuple[int, ...]]:
    parts = parts_of(form)
    return [tuple(sizes[SIZES[index]] for index in re.findall("[mnk]", part[1:])) for part in parts]


PROJECTIONS = """def f(half(M,C) x, half(C,N) w, half(C,N) v, half(C,N) u, float(N) b)
    -> (half(M,N) q, half(M,N) k, float(M,N) z) {
    q(m,n) +=! x(m,c) * w(c,n)
    k(m,n) +=! x(m,c) * v(c,n)
    p(m,n) +=! float(x(m,c)) * u(c,n)
    z(m,n) = p(m,n) + b(n)
}"""
ADJOINTS = """def f(half(M,K) x, half(M,N) a, half(M,N) b) -> (half(K,N) d_w, half(K,N) d_v) {
    d_w(k,n) +=! x(m,k) * a(m,n)
    d_v(k,n) +=! x(m,k) * b(m,n)
}"""


def test_projections_of_equal_columns_are_one_kernel(cuda_unit: MakeUnit) -> None:
    """Keys and values of grouped queries: fewer columns than the queries."""
    source = PROJECTIONS.replace("half(C,N) w", "half(C,J) w").replace("half(M,N) q", "half(M,J) q")
    shapes = [(4096, 4096), (4096, 4096), (4096, 1024), (4096, 1024), (1024,)]
    unit = cuda_unit(source, *shapes)
    assert sorted(kernels_of(unit)) == ["S0", "S1+S2+S3"]


def test_threads_with_the_sums_of_two_products_have_many_registers(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(source_of("nn"), *shapes_of("nn", 4096, 4096, 4096))
    assert unit.done.plan.kernels[0].code.thread_registers == MANY_REGISTERS


@pytest.mark.slow_but("apart")
@pytest.mark.parametrize("form", ["nn", "nt", "tn", "apart"])
def test_what_both_products_read_is_copied_once(form: str, cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(source_of(form), *shapes_of(form, 1024, 1024, 1024))
    assert kernels_of(unit) == ["S0+S1+S2"]
    assert unit.source.text.count("tc_copy_box<") == (4 if form == "apart" else 3)
    assert unit.source.text.count("tc_wgmma<") == 2
    assert "tc_leave_products<2>" in unit.source.text


# --- right ------------------------------------------------------------------------------------


def gated_layers() -> Iterator[Any]:
    """Yield (forms, way): two forms in each way; of the others each in one, the rest for fuzz."""
    ways = [way for way in CONFIGS if way != "persistent"]
    yield pytest.param(("nn",), "persistent", id="nn-persistent")
    for number, way in enumerate(ways):
        yield pytest.param(("nn", "turned"), way, id=f"nn and turned-{way}")
        for other, form in enumerate(("nt", "tn", "apart")):
            marks = () if other == number else pytest.mark.fuzz
            yield pytest.param((form,), way, id=f"{form}-{way}", marks=marks)


@pytest.mark.slow_but("nn and turned-boxes")
@pytest.mark.parametrize(("forms", "way"), [*gated_layers()])
def test_gated_layers(forms: tuple[str, ...], way: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    units, inputs = [], []
    gpu = FEW if way == "persistent" else load_chip("h200")
    sizes = {
        "nn": (312, 72, 264),
        "nt": (137, 200, 200),
        "tn": (72, 136, 200),
        "apart": (64, 128, 72),
        "turned": (136, 72, 136),
    }
    for form in forms:
        shapes, source = shapes_of(form, *sizes[form]), source_of(form)
        bare = planned(source, *shapes, gpu=gpu)
        assert kernels_of(bare) == ["S0+S1+S2"]
        units.append(cuda_unit(source, *shapes, gpu=gpu, options=asked(bare, CONFIGS[way])))
        assert not units[-1].done.is_fallback
        inputs.append(inputs_of(units[-1], shapes))
    for program, own in zip(emulated(units), inputs, strict=True):
        check(program, *own)


# --- forms ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["half", "double", "int8", "float8_e4m3"])
def test_types(dtype: str, check_emulated: Callable[..., None], monkeypatch: Any) -> None:
    monkeypatch.setattr("tcdsl.strategies.templates.tile_mma.MIN_WORK", 1)
    source = source_of("nt", dtype, "y(m,n) = a(m,n) - b(m,n)")
    source = source.replace(f"({dtype}(M,N) y)", "(y)")
    sizes = [(72, 136, 200), (61, 40, 48), (0, 8, 8), (8, 0, 8), (8, 8, 0)]
    check_emulated([(source, shapes_of("nt", *size)) for size in sizes])


@pytest.mark.slow
def test_batches(cuda_unit: MakeUnit, emulated: Any) -> None:
    source = """def f(half(B,M,K) x, half(B,K,N) w, half(B,N,K) v) -> (half(B,M,N) y) {
        a(b,m,n) +=! x(b,m,k) * w(b,k,n)
        c(b,m,n) +=! x(b,m,k) * v(b,n,k)
        y(b,m,n) = tanh(a(b,m,n)) * c(b,m,n)
    }"""
    shapes = [(3, 136, 200), (3, 200, 264), (3, 264, 200)]
    unit = cuda_unit(source, *shapes)
    assert kernels_of(unit) == ["S0+S1+S2"] and not unit.done.is_fallback
    (program,) = emulated([unit])
    check(program, *inputs_of(unit, shapes))


@pytest.mark.slow
def test_what_follows_has_rows_that_are_added_up(cuda_unit: MakeUnit, emulated: Any) -> None:
    rest = "y(m,n) = a(m,n) * b(m,n) + fmax(float(a(m,n)), 0.0)  r(m) +=! float(y(m,n)) * y(m,n)"
    source = source_of("nn", "half", rest).replace("(half(M,N) y)", "(y, r)")
    shapes = shapes_of("nn", 264, 136, 200)
    unit = cuda_unit(source, *shapes)
    assert not unit.done.is_fallback and {"S0", "S1", "S2"} <= {*kernels_of(unit)[0].split("+")}
    (program,) = emulated([unit])
    check(program, *inputs_of(unit, shapes))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["projections", "adjoints"])
def test_results_that_are_stored_apart(
    form: str, cuda_unit: MakeUnit, emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what both read ties the products: nothing does along their columns."""
    seconds = Evaluator.seconds
    monkeypatch.setattr(Evaluator, "seconds", lambda self, g: seconds(self, g) / len(g.members))
    m, n, k = 72, 136, 200
    source, shapes, names = {
        "projections": (PROJECTIONS, [(m, k), (k, n), (k, n), (k, n), (n,)], "S0+S1+S2+S3"),
        "adjoints": (ADJOINTS, [(m, k), (m, n), (m, n)], "S0+S1"),
    }[form]
    unit = cuda_unit(source, *shapes)
    assert kernels_of(unit) == [names] and not unit.done.is_fallback
    (program,) = emulated([unit])
    check(program, *inputs_of(unit, shapes))


@pytest.mark.slow
@pytest.mark.parametrize("body", [
    "a(m,n) +=! float(x(m,k)) * w(k,n)  b(m,n) +=! float(x(m,k)) * v(k,n)"
    "  y(m,n) = a(m,n) * sigmoid(b(m,n))",
    "y(m,n) +=! float(x(m,k)) * w(k,n)  y(m,n) += float(x(m,k)) * v(k,n)",
], ids=["beside", "one sum"])  # fmt: skip
def test_open_rows(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "BRIEF_SECONDS", 0.0)  # else rows make them
    head = "def f(half(M,K) x, half(K,N) w, half(K,N) v) -> (float(M,N) y)"
    f = tcdsl.define(f"{head} {{ {body} }}").f
    options = Options(dynamic_sizes=("M",))
    for m in (264, 200):
        shapes = [(m, 200), (200, 136), (200, 136)]
        inputs = [values(FLOAT16, shape, "real", number) for number, shape in enumerate(shapes)]
        made = f.compile(*inputs, target="emulate", options=options).choices["kernels"]
        assert [kernel["template"] for kernel in made] == ["tile_mma"]
        check(f, *inputs, targets=("emulate",), options=options)


# --- when -------------------------------------------------------------------------------------

APART = {
    "other columns": (
        """a(m,n) +=! x(m,k) * w(k,n)
           b(m,n) +=! x(m,k) * v(k,n) where n in 0:N-8
           y(m,n) = a(m,n)  y(m,n) += b(m,n) where n in 0:N-8""",
        "S0",
        "S1",
    ),
    "other terms": (
        """a(m,n) +=! x(m,k) * w(k,n)
           b(m,n) +=! x(m,k) * v(k,n) where k in 0:K-64
           y(m,n) = a(m,n) * b(m,n)""",
        "S0",
        "S1",
    ),
    "a product of the other": (
        """a(m,n) +=! x(m,k) * w(k,n)
           y(m,n) +=! a(m,k) * v(k,n)""",
        "S0",
        "S1",
    ),
    "a sum that is rounded": (
        """y(m,n) +=! x(m,k) * w(k,n)
           y(m,n) += x(m,k) * v(k,n)""",
        "S0",
        "S1",
    ),
    "a sum that is read": (
        """a(m,n) +=! float(x(m,k)) * w(k,n)
           z(m,n) = fmax(a(m,n), 0.0)
           a(m,n) += float(x(m,k)) * v(k,n)
           y(m,n) = a(m,n) * z(m,n)""",
        "S0",
        "S2",
    ),
}


@pytest.mark.parametrize("form", APART)
def test_what_is_apart(form: str, cuda_unit: MakeUnit) -> None:
    body, one, other = APART[form]
    source = f"def f(half(M,K) x, half(K,N) w, half(K,N) v) -> (half(M,N) y) {{ {body} }}"
    unit = cuda_unit(source, (1024, 512), (512, 512), (512, 512))
    assert not any({one, other} <= {*name.split("+")} for name in kernels_of(unit))
    assert not unit.done.is_fallback


def test_they_are_apart_where_that_is_faster() -> None:
    """Products of few tiles have blocks that share their terms, which several products have not."""
    unit = planned(source_of("nn"), *shapes_of("nn", 64, 96, 200_000))
    assert not any({"S0", "S1"} <= {*name.split("+")} for name in kernels_of(unit))
