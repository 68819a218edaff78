"""Reductions of a product's rows and columns in its kernel: that they are right, and when apart."""

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pytest

from tcdsl.costmodel.chip import load_chip
from tcdsl.errors import TCWarning
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.scop import Scop
from tcdsl.schedule.fusion import Group
from tcdsl.strategies.fragments import Level, WarpTiles
from tcdsl.strategies.gpu_shapes import gpu_shapes_of
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.templates import tile_mma
from tcdsl.strategies.tile_folds import Fold, folds_of, levels_of_parts
from tcdsl.testing.comparison import check
from tcdsl.testing.random_inputs import values
from tests.strategies.tile_configs import CONFIGS as TILE_CONFIGS
from tests.strategies.tile_configs import FEW, MakeUnit, asked, planned, tiles

PRODUCTS = {"nn": "A(m,k) * B(k,n)", "nt": "A(m,k) * B(n,k)", "tn": "A(k,m) * B(k,n)"}
RESIDUAL = """
    C(m,n) +=! {product}
    D(m,n) = fmax(C(m,n) + b(n), 0.0) + x(m,n)
    r(m) +=! D(m,n) * D(m,n)
"""
OTHERS = {
    "greatest": "r(m) max=! D(m,n)",
    "two": "r(m) max=! D(m,n)  s(m) +=! C(m,n)",
    "of a half type": "r(m) +=! D(m,n)",
    "update": "r(m) += D(m,n)",
    "some columns": "r(m) +=! D(m,n) where n in 0:{few}",
    "greatest of columns": "r(n) max=! D(m,n)",
    "both": "r(m) max=! D(m,n)  s(n) +=! D(m,n)",
    "of columns, of a half type": "r(n) +=! D(m,n)",
    "update of columns": "r(n) += D(m,n)",
    "some rows": "r(n) +=! D(m,n) where m in 0:{few}",
    "product of columns": "r(n) *=! 1.0 + 0.01 * D(m,n)",
}


def by_turns(names: Iterable[str], either: tuple[str, str]) -> list[tuple[str, str]]:
    """Return each of *names* with *either*, every other one with the second of them first."""
    return [(name, own) for n, name in enumerate(names) for own in (either, either[::-1])[n % 2]]


def source_of(product: str, dtype: str, outputs: str = "D, r") -> str:
    """Return a product with a bias, a residual, and the sums of squares of its rows."""
    a, b = (", ".join(re.findall("[mnk]", part)).upper() for part in product.split("*"))
    head = f"def f({dtype}({a}) A, {dtype}({b}) B, float(N) b, {dtype}(M,N) x) -> ({outputs})"
    return f"{head} {{{RESIDUAL.format(product=product)}}}"


def shapes_of(product: str, m: int, n: int, k: int) -> list[tuple[int, ...]]:
    extents = {"m": m, "n": n, "k": k}
    left, right = (
        tuple(extents[index] for index in re.findall("[mnk]", part)) for part in product.split("*")
    )
    return [left, right, (n,), (m, n)]


CONFIGS = {**TILE_CONFIGS, "single warps": tiles((32, 16, 2, 2), step=32, together=1)}


def groups_of(unit: Any) -> list[str]:
    return [weighed.kernel for weighed in unit.done.plan.weighed]


def inputs_of(unit: Any, shapes: list[tuple[int, ...]]) -> list[Any]:
    c = unit.comprehension
    types = [c.tensors[name].dtype for name in c.inputs]
    return [values(*of, "real", n) for n, of in enumerate(zip(types, shapes, strict=True))]


@pytest.mark.one_in(2)  # of each way, rows and columns by turns
@pytest.mark.slow
@pytest.mark.parametrize(("way", "of"), by_turns(CONFIGS, ("rows", "columns")))
def test_sums(way: str, of: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    units, inputs = [], []
    gpu = FEW if way == "persistent" else load_chip("h200")
    sizes = {"nn": (312, 72, 264), "nt": (137, 200, 136), "tn": (72, 136, 200)}
    if way != "persistent":
        sizes["nn"] = 168, 72, 264
    for form in ("nn",) if way == "persistent" else PRODUCTS:
        size = sizes[form]
        shapes, source = shapes_of(PRODUCTS[form], *size), source_of(PRODUCTS[form], "bfloat16")
        source = source.replace("r(m)", "r(n)") if of == "columns" else source
        bare = planned(source, *shapes, gpu=gpu)
        assert groups_of(bare)[0] == "S0+S1+S2"
        units.append(
            cuda_unit(source, *shapes, gpu=gpu, options=asked(bare, CONFIGS[way], kernel=0))
        )
        assert not units[-1].done.is_fallback
        assert ("tc_fold_x_apart" in units[-1].source.functions) == (of == "columns")
        inputs.append(inputs_of(units[-1], shapes))
    for program, own in zip(emulated(units), inputs, strict=True):
        check(program, *own)


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "of"), by_turns(["half", "double", "int8", "float8_e4m3"], ("r(m)", "r(n)"))
)
def test_types(dtype: str, of: str, check_emulated: Callable[..., None], monkeypatch: Any) -> None:
    monkeypatch.setattr("tcdsl.strategies.templates.tile_mma.MIN_WORK", 1)
    source = source_of(PRODUCTS["nt"], dtype).replace("r(m)", of)
    sizes = [(72, 136, 200), (61, 40, 48), (0, 8, 8), (8, 0, 8), (8, 8, 0)]
    check_emulated([(source, shapes_of(PRODUCTS["nt"], *size)) for size in sizes])


@pytest.mark.slow_but("both")
@pytest.mark.parametrize("form", OTHERS)
def test_other_reductions(form: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    shapes = shapes_of(PRODUCTS["nn"], 136, 104, 72)
    own = OTHERS[form].format(few=100)
    outputs = {
        "two": "D, r, s", "both": "D, r, s", "of a half type": "bfloat16(M) r",
        "of columns, of a half type": "bfloat16(N) r",
    }.get(form, "D, r")  # fmt: skip
    source = source_of(PRODUCTS["nn"], "bfloat16", outputs)
    source = source.replace("r(m) +=! D(m,n) * D(m,n)", own)
    if form.startswith("update"):
        size, length = ("N", 104) if "columns" in form else ("M", 136)
        source = source.replace("def f(", f"def f(float({size}) r, ")
        shapes = [(length,), *shapes]
    unit = cuda_unit(source, *shapes)
    first = groups_of(unit)[0].split("+")
    assert {name for name in ("S2", "S3") if name in unit.done.plan.scop.by_name} <= {*first}
    assert not unit.done.is_fallback
    (program,) = emulated([unit])
    check(program, *inputs_of(unit, shapes))


def test_no_member_reads_what_is_whole_after_the_kernel(lower: Callable[..., Scop]) -> None:
    source = """def f(half(M,K) A, half(K,N) B) -> (y) {
        C(m,n) +=! A(m,k) * B(k,n)
        r(m) +=! C(m,n)
        y(m,n) = C(m,n) * r(m)
    }"""
    scop = lower(source, (512, 256), (256, 512))
    shapes = gpu_shapes_of(scop, dependences_of(scop))
    row, column = (dict.fromkeys(("S0", "S1", "S2"), dim) for dim in (0, 1))
    group = Group(("S0", "S1", "S2"), (row, column))
    problem = Problem(scop, group, shapes, load_chip("h200"))
    assert folds_of(problem) == ("S1",)
    assert tile_mma.why_not(problem) == "S1 is read before it is whole"


def test_results_that_nothing_else_reads_are_not_stored(cuda_unit: MakeUnit) -> None:
    source = source_of(PRODUCTS["nn"], "bfloat16", "r")
    unit = cuda_unit(source, *shapes_of(PRODUCTS["nn"], 1024, 1024, 512))
    assert not re.search(r"\*(__restrict__ )?(u0_)?[CD]\b", unit.source.text)


@pytest.mark.slow
def test_batches(cuda_unit: MakeUnit, emulated: Any) -> None:
    source = """def f(half(B,M,K) A, half(B,K,N) W) -> (C, r) {
        C(b,m,n) +=! A(b,m,k) * W(b,k,n)
        r(b,m) max=! fabs(C(b,m,n))
    }"""
    shapes = [(3, 136, 200), (3, 200, 264)]
    for one in (source, source.replace("r(b,m)", "r(b,n)")):
        unit = cuda_unit(one, *shapes)
        assert {"S0", "S1"} <= {*groups_of(unit)[0].split("+")} and not unit.done.is_fallback
        (program,) = emulated([unit])
        check(program, *inputs_of(unit, shapes))


# --- when -----------------------------------------------------------------------------------


def test_what_reads_the_sums_is_another_kernel(cuda_unit: MakeUnit) -> None:
    source = """def f(bfloat16(M,K) A, bfloat16(K,N) B) -> (y) {
        C(m,n) +=! A(m,k) * B(k,n)
        r(m) +=! C(m,n) * C(m,n)
        y(m,n) = C(m,n) * rsqrt(r(m))
    }"""
    unit = cuda_unit(source, (2048, 2048), (2048, 2048))
    assert not any({"S1", "S2"} <= {*name.split("+")} and "S0" in name for name in groups_of(unit))


@pytest.mark.slow_but("r() +=! D(m,n)")
@pytest.mark.parametrize("statement", ["r() +=! D(m,n)", "r(n) argmax=! D(m,n)"])
def test_others_are_apart(statement: str, cuda_unit: MakeUnit) -> None:
    source = source_of(PRODUCTS["nn"], "bfloat16")
    source = source.replace("r(m) +=! D(m,n) * D(m,n)", statement)
    unit = cuda_unit(source, *shapes_of(PRODUCTS["nn"], 512, 512, 512))
    assert groups_of(unit)[0] == "S0+S1"


def test_they_are_apart_where_that_is_faster(cuda_unit: MakeUnit) -> None:
    """A product of few tiles has blocks that share its terms, and no sums of rows beside them."""
    source = source_of(PRODUCTS["nn"], "bfloat16")
    unit = cuda_unit(source, *shapes_of(PRODUCTS["nn"], 64, 96, 200_000))
    assert groups_of(unit)[0] == "S0+S1"
    # What the last block adds up, in another loop of the kernel, each thread has stored by itself.
    stores = re.findall(r"(tc_\w+)\(&u0_C_part1\[", unit.source.text)
    assert "tc_vstore" in stores and "tc_vstore_twin" not in stores


def test_a_layers_bias_is_begun_with_the_product_of_its_adjoint(cuda_unit: MakeUnit) -> None:
    """What is added up alone is not stored in float32."""
    source = """def f(bfloat16(B,O) g, bfloat16(I,O) w, float(B,I) h) -> (bfloat16(B,I) d, db) {
        a(b,i) +=! g(b,o) * w(i,o)
        d(b,i) = h(b,i) > 0.0 ? a(b,i) : 0.0
        db(i) +=! h(b,i) > 0.0 ? a(b,i) : 0.0
    }"""
    unit = cuda_unit(source, (4096, 1024), (4096, 1024), (4096, 4096))
    assert groups_of(unit)[0] == "S0+S1+S2"
    assert not re.search(r"\*(__restrict__ )?u0_a\b", unit.source.text)
    # Both statements load the same vectors of h, whose places isl writes otherwise for each.
    # They are loaded before the loop, and in each of its iterations for a later one.
    assert unit.source.text.count("tc_vload<2>(&h[") == 2


@pytest.mark.slow
def test_parts_on_other_threads_are_found(cuda_unit: MakeUnit, monkeypatch: Any) -> None:
    """Parts whose warps are along the axis of their threads are not legal."""

    def turned(fold: Fold, shape: WarpTiles) -> dict[str, list[Level]]:
        return {
            name: [replace(level, axis=0) for level in levels]
            for name, levels in levels_of_parts(fold, shape).items()
        }

    source, shapes = source_of(PRODUCTS["nn"], "half"), shapes_of(PRODUCTS["nn"], 264, 136, 200)
    assert not cuda_unit(source, *shapes).done.is_fallback
    monkeypatch.setattr("tcdsl.strategies.tensor_kernel.levels_of_parts", turned)
    with pytest.warns(TCWarning, match="internal error in the verification"):
        assert cuda_unit(source, *shapes).done.is_fallback
