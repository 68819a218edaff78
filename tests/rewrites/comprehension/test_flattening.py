"""Flattening: which interleaved rows become one index, and that they mean the same."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl.costmodel import flattening as costs
from tcdsl.costmodel.flattening import InterleavedRow
from tcdsl.interp.oracle import evaluate
from tcdsl.lang.comprehension import Specialisation
from tcdsl.options import Options
from tcdsl.poly.scop import Interleaved
from tcdsl.rewrites.comprehension.coalescing import coalesce
from tcdsl.rewrites.comprehension.flattening import flatten
from tcdsl.rewrites.comprehension.merging import Coalesced
from tcdsl.testing.random_inputs import values
from tests.rewrites.comprehension.test_coalescing import Shapes, analysed
from tests.strategies.waiting_sums import take_the_likeliest

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]


def always(_: InterleavedRow) -> str:
    return "it is a test"


def flattened(source: str, shapes: Shapes, **strides: tuple[int, ...]) -> Coalesced:
    return flatten(coalesce(*analysed(source, shapes), strides), always)


SUM = "def f(float(N,C,H,W) x) -> (y) { y(c) +=! x(n,c,h,w) }"
CENTRED = """def f(float(N,C,P) x) -> (y) {
    mean(c) +=! x(n,c,p)
    d(n,c,p) = x(n,c,p) - mean(c)
    y(n,c,p) = d(n,c,p) * 2.0
}"""
OF_PLANES = """def f(float(N,C,P) x) -> (y, z) {
    y(c) +=! x(n,c,p)
    z(n,p) +=! x(n,c,p) * y(c)
}"""
BATCHNORM = """def f(float(N,C,P) x, float(C) gamma, float eps) -> (y, mean, var) {
    mean(c) +=! x(n,c,p)
    mean(c) = mean(c) / (N * P)
    var(c) +=! (x(n,c,p) - mean(c)) * (x(n,c,p) - mean(c))
    y(n,c,p) = (x(n,c,p) - mean(c)) * rsqrt(var(c) / (N * P) + eps) * gamma(c)
}"""
BACKWARD = """def f(float(N,C,P) x, float(N,C,P) dy) -> (dx) {
    a(c) +=! dy(n,c,p)
    b(c) +=! dy(n,c,p) * x(n,c,p)
    dx(n,c,p) = dy(n,c,p) - a(c) - x(n,c,p) * b(c)
}"""
PART = """def f(float(N,C,P) x) -> (y) { y(c) max=! abs(x(n,c,p)) where n in 1:N-1 }"""
HALVES = BATCHNORM.replace("float(", "bfloat16(")
DEEP = "def f(float(A,B,C,D,E) x) -> (y) { y(b,d) +=! x(a,b,c,d,e) }"

FLAT: dict[str, tuple[str, Shapes, str]] = {
    "channels": (SUM, [(3, 4, 5, 2)], "c n_h_w"),
    "a temporary": (CENTRED, [(3, 4, 5)], "c n_p | c n_p | c n_p"),
    "sums along the channels": (OF_PLANES, [(3, 4, 5)], "c n_p | n_p c"),
    "two operands": (BACKWARD, [(3, 4, 5)] * 2, "c n_p | c n_p | c n_p"),
    "some of the images": (PART, [(5, 4, 3)], "c n_p"),
    "an axis before": (DEEP, [(2, 3, 2, 2, 3)], "b d a c_e"),
}  # fmt: skip


def indices(done: Coalesced) -> str:
    return " | ".join(" ".join(s.indices) for s in done.comprehension.statements)


@pytest.mark.parametrize("name", FLAT)
def test_interleaved_rows_become_one_index(name: str) -> None:
    source, shapes, expected = FLAT[name]
    assert indices(flattened(source, shapes)) == expected


KEPT: dict[str, tuple[str, Shapes]] = {
    "no reduction": ("def f(float(N,C,P) x) -> (y) { y(n,c,p) = x(n,c,p) }", [(3, 4, 5)]),
    "a column": ("def f(float(N,C,P) x) -> (y) { y(p) +=! x(n,c,p) }", [(3, 4, 5)]),
    "part of an inner range": (
        "def f(float(N,C,P) x) -> (y) { y(c) +=! x(n,c,p) where p in 0:P-1 }", [(3, 4, 5)],
    ),
    "an index used alone": (
        "def f(float(N,C,P) x, float(P) w) -> (y) { y(c) +=! x(n,c,p) * w(p) }", [(3, 4, 5), (5,)],
    ),
    "another statement's objection": (
        "def f(float(N,C,P) x) -> (y, z) { y(c) +=! x(n,c,p)\n z(n) +=! x(n,c,p) }", [(3, 4, 5)],
    ),
    "a result in another order": (
        "def f(float(N,C,P) x) -> (y, z) { y(c) +=! x(n,c,p)\n z(p,n,c) = x(n,c,p) + y(c) }",
        [(3, 4, 5)],
    ),
    "a product of matrices": (
        "def f(float(N,F,P) a, float(N,C,P) b) -> (w) { w(f,c) +=! a(n,f,p) * b(n,c,p) }",
        [(3, 4, 5), (3, 2, 5)],
    ),
    "a recurrence": (
        "def f(float(N,C,P) x) -> (y, s) { s(c) +=! x(n,c,p)\n y(n,c,p) = x(n,c,p)"
        " where c in 0:1\n y(n,c,p) = y(n,c-1,p) + x(n,c,p) where c in 1:C }", [(3, 4, 5)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_others_do_not(name: str) -> None:
    source, shapes = KEPT[name]
    done = flattened(source, shapes)
    assert "n_p" not in indices(done) and not done.notes


def test_strides_have_runs_where_memory_has_gaps() -> None:
    shapes: Shapes = [(3, 4, 5)]
    assert flattened(CENTRED, shapes).strides == {
        "x": (5, Interleaved(5, 20, 1)), "y": (5, Interleaved(5, 20, 1)), "mean": None, "d": None,
    }  # fmt: skip
    assert flattened(CENTRED, shapes, x=(-40, 10, 2)).strides["x"] == (10, Interleaved(5, -40, 2))
    assert flattened(CENTRED, shapes, x=(5, 15, 1)).strides["x"] == (15, 1)


def test_the_text_says_why() -> None:
    assert flattened(CENTRED, [(3, 4, 5)]).notes == ("flat rows of x, d, y: it is a test",)


@pytest.mark.parametrize("name", FLAT)
def test_the_flat_comprehension_means_the_same(name: str) -> None:
    source, shapes, _ = FLAT[name]
    c, special = analysed(source, shapes)
    done = flattened(source, shapes)
    assert isinstance(done.special, Specialisation)

    def flat(tensor: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        order = [dim for group in done.merged[tensor] for dim in group]
        return array.transpose(order).reshape(done.special.shapes[tensor])

    inputs: dict[str, Any] = {
        n: values(c.tensors[n].dtype, shape, "whole", 7)
        for n, shape in zip(c.inputs, shapes, strict=True)
    }
    before = evaluate(c, special, inputs)
    after = evaluate(done.comprehension, done.special, {n: flat(n, a) for n, a in inputs.items()})
    for n in c.outputs:
        assert (flat(n, before[n]) == after[n]).all()


@pytest.fixture
def flat_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flatten whatever may be."""
    monkeypatch.setattr(costs, "ENOUGH_WARPS", 1 << 20)


ODD = [(1, 3, 4), (2, 5, 7), (5, 3, 49), (3, 2, 196), (7, 2, 64), (33, 1, 6), (2, 3, 1031)]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float", "bfloat16", "double"])
@pytest.mark.usefixtures("flat_rows")
def test_the_results_are_right(dtype: str, check_emulated: CheckAll) -> None:
    norm, sums, back = (s.replace("float(", f"{dtype}(") for s in (BATCHNORM, CENTRED, BACKWARD))
    check_emulated([(norm, [shape, (shape[1],), ()]) for shape in ODD])
    check_emulated([(source, [shape] * n) for shape in ODD for source, n in ((sums, 1), (back, 2))])


@pytest.mark.slow
@pytest.mark.usefixtures("flat_rows")
def test_nothing_and_views_are_right(check_emulated: CheckAll) -> None:
    x = np.linspace(-3, 3, 4 * 6 * 40, dtype=np.float32).reshape(4, 6, 40)
    views: list[Any] = [x[::-1], x[::2, 1:, ::-1], x[:, ::2, 3:], x.transpose(1, 0, 2), x[:0]]
    check_emulated([(source, [view]) for view in views for source in (CENTRED, OF_PLANES)])
    check_emulated([(OF_PLANES, [(3, 4, 8)]), (DEEP, [(2, 3, 4, 5, 6)])])
    check_emulated([(CENTRED, [(4, 6, 40)])], options=Options(vectorise=False))


def test_it_is_part_of_the_pipeline_for_a_gpu(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(SUM, (32, 256, 14, 14))
    assert unit.done.stages["coalesced"].splitlines() == [
        "S0 before  y(c) +=! x(n, c, h, w)",
        "   after   y(c) +=! x(c, n_h_w)",
        "   merged  n, h, w -> n_h_w (32 * 14 * 14)",
        "   form    row: x(c kept, n_h_w reduced)",
        "coalesced x: dimensions 1, 0*2*3",
        "flat rows of x: 0.048 loads of a thread along the inner axis",
    ]
    assert "tc_vload<4>" in unit.source.text and "/ 196u" in unit.source.text
    as_written = cuda_unit(SUM, (32, 256, 14, 14), options=Options(coalesce=False))
    assert "/ 196u" not in as_written.source.text


def test_vectors_are_of_one_run(cuda_unit: MakeUnit) -> None:
    assert "tc_vload" not in cuda_unit(SUM, (32, 256, 7, 7)).source.text
    assert "tc_vload<2>" in cuda_unit(SUM, (32, 256, 7, 14)).source.text


def test_rows_are_kept_in_registers(cuda_unit: MakeUnit, monkeypatch: pytest.MonkeyPatch) -> None:
    take_the_likeliest(monkeypatch)
    unit = cuda_unit(BATCHNORM, (32, 256, 196), (256,), ())
    (launch,) = unit.source.launches
    assert launch.block[0] == 224 and launch.shared_bytes == 0  # 7 vectors a thread, none idle


def test_longer_images_stay_as_they_are(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(BATCHNORM, (32, 256, 56 * 56), (256,), ())
    (launch,) = unit.source.launches
    assert launch.cluster > 1 and "flat rows" not in unit.done.stages["coalesced"]
