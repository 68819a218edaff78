"""Operands that are computed in registers, by the threads that multiply them."""

from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.device.cuda import header_text, parts_for
from tcdsl.costmodel.chip import load_chip
from tcdsl.options import Options
from tcdsl.runtime.nvrtc import compile_cuda, why_no_cuda_compiler
from tcdsl.strategies import tensor_configs
from tcdsl.strategies.templates import tile_mma
from tcdsl.testing.comparison import check
from tests.strategies.register_forms import CASES, FORMS, RELU_TO_K, Shapes, Y, source_of
from tests.strategies.tile_configs import inputs_of, planned

MakeUnit = Callable[..., Any]
needs_nvrtc = pytest.mark.skipif(why_no_cuda_compiler() is not None, reason="no NVRTC")
H200 = load_chip("h200")
FEW = replace(H200, multiprocessors=4)  # blocks have several tiles
BY_DEFAULT = 4  # of these cases


@pytest.fixture(autouse=True)
def _wherever_possible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operands are in registers wherever they may be, whatever the size."""
    monkeypatch.setattr("tcdsl.costmodel.tensor_tiles.HELD_MARGIN", 1e3)
    monkeypatch.setattr(tile_mma, "least_seconds", lambda *_: inf)
    monkeypatch.setattr(tile_mma, "MIN_WORK", 1)


def in_registers(unit: Any) -> list[dict[str, Any]]:
    """Return the configurations of the kernels of *unit* that have operands in registers."""
    choices = [weighed.choice for weighed in unit.done.plan.weighed]
    return [choice for choice in choices if choice.get("in_registers")]


def check_all(cases: list[tuple[str, Shapes]], cuda_unit: MakeUnit, emulated: Any) -> list[Any]:
    """Compare *cases* with the reference, and return their units."""
    units = [cuda_unit(source_of(form), *shapes, gpu=FEW) for form, shapes in cases]
    for unit in units:
        assert in_registers(unit) and "tc_wgmma_from" in unit.source.functions
    for program, unit, (_, shapes) in zip(emulated(units), units, cases, strict=True):
        check(program, *inputs_of(unit, shapes))
    return units


def test_products(cuda_unit: MakeUnit, emulated: Any) -> None:
    units = check_all(CASES[:BY_DEFAULT], cuda_unit, emulated)
    text = units[0].source.text
    assert len(units[0].done.plan.kernels) == 1  # nothing is computed first
    assert "tc_copy_box<" in text and "tc_release<" in text


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES[BY_DEFAULT:], ids=lambda case: case[0])
def test_other_products(case: tuple[str, Shapes], cuda_unit: MakeUnit, emulated: Any) -> None:
    check_all([case], cuda_unit, emulated)


def test_all_values_are_what_they_are(cuda_unit: MakeUnit, emulated: Any) -> None:
    """Each int8 reaches its place: of rows that have one 1 the products are the weights."""
    shapes: Shapes = [(128, 128), (64, 128), (64, 4)]
    (program,) = emulated([cuda_unit(source_of("groups"), *shapes, gpu=FEW)])
    rng = np.random.default_rng(0)
    w = (np.arange(64 * 128) * 37 % 256 - 128).astype(np.int8).reshape(64, 128)
    s = rng.choice(2.0 ** np.arange(-40, 40), (64, 4)).astype(np.float32)
    one = inputs_of(program.unit, shapes)[0].dtype.type(1)
    x = np.where(np.eye(128, dtype=bool), one, one - one)
    y = np.full((128, 64), np.nan, x.dtype)
    assert program.run([x, w, s], [y]) is None
    exact = w * np.repeat(s, 32, axis=1)
    np.testing.assert_array_equal(y.astype(np.float32), exact.T.astype(x.dtype).astype(np.float32))


def test_what_is_beyond_a_sum_is_not_multiplied(cuda_unit: MakeUnit, emulated: Any) -> None:
    """Boxes bring elements after the last term, which may be infinite, beside zeros."""
    source = f"def f(bfloat16(M,K) x, bfloat16(N,L) w) {Y} {{ {RELU_TO_K} }}"
    shapes: Shapes = [(40, 72), (64, 104)]
    unit = cuda_unit(source, *shapes, gpu=FEW)
    assert in_registers(unit)
    (program,) = emulated([unit])
    x, w = inputs_of(unit, shapes)
    w[:, 72:] = np.inf
    check(program, x, w)


@pytest.mark.parametrize(
    ("way", "form", "shapes"),
    [
        ("is_persistent", "int8", [(72, 256), (448, 256), (448,)]),
        ("is_finished", "int8", [(24, 1024), (64, 1024), (64,)]),
        ("chunks", "int8, turned", [(24, 512), (512, 128)]),
    ],
    ids=["tiles in turn", "added by the last block", "added by a kernel"],
)
@pytest.mark.slow
def test_blocks(
    way: str,
    form: str,
    shapes: Shapes,
    cuda_unit: MakeUnit,
    emulated: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stages run on over the tiles of a block, and blocks may share the terms of a tile."""
    configs = tensor_configs.in_chunks

    def some(*args: Any) -> Any:
        return (c for c in configs(*args) if getattr(c, way) > (way == "chunks"))

    monkeypatch.setattr(tile_mma, "in_chunks", some)
    (unit,) = check_all([(form, shapes)], cuda_unit, emulated)
    assert in_registers(unit)[0][way] > (way == "chunks")


@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        ("def f(bfloat16(M,K) x, int32(K) i, int8(N,L) w) -> (y)"
         " { y(m,n) +=! x(m,k) * float(w(n,i(k))) }", [(64, 4096), (4096,), (4096, 4096)]),
        (source_of("int8"), [(64, 4088), (4096, 4088), (4096,)]),
        ("def f(bfloat16(M,K) x, int8(N,K) w) -> (y)"
         " { y(m,n) +=! fmax(x(m,k), 0.0) * float(w(n,k)) }", [(64, 4096), (4096, 4096)]),
    ],
    ids=["gathered", "rows of 4088 bytes", "both factors"],
)  # fmt: skip
def test_where_it_is_not_possible(source: str, shapes: Shapes) -> None:
    unit = planned(source, *shapes)
    assert not in_registers(unit)


def test_it_is_taken_where_it_is_surely_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights are read once, at half of bfloat16's bytes; large products have them stored first."""
    monkeypatch.undo()
    few = planned(source_of("int8"), (16, 4096), (4096, 4096), (4096,))
    many = planned(source_of("int8"), (8192, 4096), (4096, 4096), (4096,))
    assert in_registers(few) and not in_registers(many)
    assert len(few.done.plan.kernels) == 1


def test_scales_of_groups_are_looked_up_once_for_most_terms(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A quotient for a subscript stays where it is: not a line of the cache for each element."""
    monkeypatch.undo()
    shapes: Shapes = [(4096, 4096), (4096, 4096), (4096, 128)]
    first, second = planned(source_of("groups"), *shapes).done.plan.weighed
    assert (first.choice["template"], second.choice["template"]) == ("elementwise", "tile_mma")
    chosen = next(one for one in first.candidates() if one.get("is_chosen"))
    assert chosen["predicted_us"] < 40  # 60 MB


def test_it_may_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    form, shapes = "int8", [(2048, 2048), (2048, 2048), (2048,)]
    (choice,) = in_registers(planned(source_of(form), *shapes))
    monkeypatch.undo()
    assert not in_registers(planned(source_of(form), *shapes))
    (kernel,) = [w.kernel for w in planned(source_of(form), *shapes).done.plan.weighed][-1:]
    asked = {k: v for k, v in choice.items() if k != "code"}
    kernels = [{"kernel": kernel, **asked}]
    options = Options(choices={"format": "tcdsl choices", "version": 1, "kernels": kernels})
    assert in_registers(planned(source_of(form), *shapes, options=options))


@pytest.mark.one_in(3)
@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_what_is_printed_for_a_gpu_compiles(form: str, cuda_unit: MakeUnit) -> None:
    for size in (4096, 192):
        shapes = [
            tuple({"G": size // 32, "B": 2}.get(name, size) for name in dims.split(","))
            for dims in _dims(FORMS[form])
        ]
        unit = cuda_unit(source_of(form), *shapes)
        assert in_registers(unit) and not unit.done.is_fallback
        text = header_text(parts_for(unit.source.functions)) + unit.source.text
        assert compile_cuda(text, unit.source.arch(H200.arch))


def _dims(form: str) -> list[str]:
    """Return the sizes of the inputs of *form*, as they are written."""
    inputs = form.partition(") ->")[0]
    return [one.partition(")")[0] for one in inputs.split("(")[1:]]


def test_floats_that_threads_cast_are_not_rounded_on_their_way(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(source_of("cast"), (70, 136), (80, 136), gpu=FEW)
    (kernel,) = unit.source.kernels
    types = {p.name: p.map.dtype for p in kernel.parameters if p.map is not None}
    assert in_registers(unit) and types["w"] == "float32"
