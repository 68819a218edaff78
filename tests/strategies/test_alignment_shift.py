"""Rows that begin anywhere in memory: they are read in vectors, and the results are right."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import islpy as isl
import numpy as np
import pytest

import tcdsl
from tcdsl.costmodel import alignment_shift, clusters
from tcdsl.costmodel.chip import Chip
from tcdsl.options import Options
from tcdsl.poly.scop import Scop
from tcdsl.rewrites.scop.alignment_shift import unaligned
from tcdsl.strategies import contracted
from tcdsl.testing.comparison import check
from tcdsl.testing.random_inputs import values
from tests.emulated_programs import CudaUnit, cuda_unit_of
from tests.programs import arrays_for

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]

SUM = """def f(float(M,N) x) -> (y) {
    y(i) +=! x(i,j)
}"""
SOFTMAX = """def f(float(M,N) x) -> (y) {
    top(i) max=! x(i,j)
    e(i,j) = exp(x(i,j) - top(i))
    total(i) +=! e(i,j)
    y(i,j) = e(i,j) / total(i)
}"""
LAYERNORM = """def f(float(M,N) x, float(N) gamma, float(N) beta) -> (y) {
    mean(i) +=! x(i,j)
    mean(i) = mean(i) / N
    var(i) +=! (x(i,j) - mean(i)) * (x(i,j) - mean(i))
    y(i,j) = (x(i,j) - mean(i)) * rsqrt(var(i) / N + 0.00001) * gamma(j) + beta(j)
}"""
CROSS_ENTROPY_BACKWARD = """def f(float(B,V) x, int64(B) labels) -> (dx) {
    top(b) max=! x(b,v)
    e(b,v) = exp(x(b,v) - top(b))
    total(b) +=! e(b,v)
    dx(b,v) = e(b,v) / total(b) - (labels(b) == v ? 1.0 : 0.0)
}"""
CROSS_ENTROPY = """def f(float(B,V) x, int64(B) labels) -> (loss) {
    top(b) max=! x(b,v)
    total(b) +=! exp(x(b,v) - top(b))
    loss +=! log(total(b)) + top(b) - x(b, labels(b))
}"""
BACKWARD = """def f(float(M,N) x, float(M,N) dy) -> (dx) {
    a(i) +=! dy(i,j)
    b(i) +=! dy(i,j) * x(i,j)
    dx(i,j) = dy(i,j) - a(i) / N - x(i,j) * b(i) / N
}"""
THREE_AXES = """def f(float(B,H,N) x) -> (y) {
    top(b,h) max=! x(b,h,j)
    y(b,h,j) = x(b,h,j) - top(b,h)
}"""
ROWS_AND_COLUMNS = """def f(float(M,N) x) -> (r, c) {
    r(i) +=! x(i,j)
    c(j) +=! x(i,j) * r(i)
}"""
UPDATED = """def f(float(M,N) y, float(M,N) x) -> (y) {
    s(i) +=! x(i,j)
    y(i,j) += x(i,j) - s(i)
}"""
SHIFTED = """def f(float(M,N) x) -> (s, t) {
    s(i) +=! x(i,j)
    t(i) +=! x(i,j) * x(i,j+1) where j in 0:N-1
}"""
OF_TWO_TYPES = """def f(bfloat16(M,N) x, float(M,N) w) -> (y) {
    s(i) +=! float32(x(i,j)) * w(i,j)
    y(i,j) = w(i,j) * s(i)
}"""
IN_PLACE = """def f(float(M,N) x) -> (s, float(M,N) x) {
    s(i) +=! x(i,j)
    x(i,j) = x(i,j) - s(i)
}"""
INDEX_AS_VALUE = """def f(float(M,N) x) -> (s, y) {
    s(i) +=! x(i,j) * j
    y(i,j) = (j % 3 == 0 ? x(i,j) : 0.0) + s(i)
}"""
CONDITION = """def f(float(M,N) x) -> (y) {
    y(i) +=! x(i,j) > 0.25 ? x(i,j) : 0.0 where j in 0:N-5
}"""
LOWER_TRIANGLE = """def f(float(M,N) x) -> (y) {
    y(i) +=! x(i,j) where j in 0:i*100+1
}"""
EVERY_THIRD = """def f(float(M,N) x) -> (y) {
    y(i) max=! x(i,j) where exists j % 3 == 0
}"""
POINTWISE = """def f(float(M,N) x, float(N) b) -> (float(M,N) y) {
    y(m,n) = fmax(x(m,n) + b(n), 0)
}"""
PLANES = """def f(float(C,H,W) x, float(C) b) -> (y) {
    y(c,h,w_) = x(c,h,w_) * b(c)
}"""
LABELS = np.array([0, 1002, 5], np.int64)

# The arrays that are shifted, and the inputs.
CASES: dict[str, tuple[str, list[list[Any]], tuple[str, ...]]] = {
    "sum": (SUM, [[(5, 1003)], [(3, 1001)], [(9, 1002)]], ("x",)),
    "softmax": (SOFTMAX, [[(5, 1003)], [(2, 1001)], [(33, 515)]], ("x", "y")),
    "layernorm": (LAYERNORM, [[(3, 1003), (1003,), (1003,)]], ("x", "y")),
    "cross entropy": (CROSS_ENTROPY, [[(3, 1003), LABELS]], ("x",)),
    "its gradient": (CROSS_ENTROPY_BACKWARD, [[(3, 1003), LABELS]], ("x", "dx")),
    "two arrays": (BACKWARD, [[(3, 1003)] * 2, [(2, 1031)] * 2], ("x", "dy", "dx")),
    "three axes": (THREE_AXES, [[(3, 5, 513)], [(2, 3, 1001)]], ("x", "y")),
    "half types": (SOFTMAX.replace("float(", "bfloat16("), [[(9, 1003)], [(3, 2050)]], ("x", "y")),
    "doubles": (SOFTMAX.replace("float(", "double("), [[(3, 1003)]], ("x", "y")),
    "bytes": (SUM.replace("float", "int8"), [[(17, 1003)], [(3, 1028)]], ("x",)),
    "two types": (OF_TWO_TYPES, [[(9, 1003)] * 2], ("x", "w", "y")),
    "the index as a value": (INDEX_AS_VALUE, [[(3, 1003)]], ("x", "y")),
    "conditions": (CONDITION, [[(3, 1003)]], ("x",)),
    "a triangle": (LOWER_TRIANGLE, [[(9, 803)]], ("x",)),
    "a neighbour": (SHIFTED, [[(3, 1003)]], ()),
    "rows and columns": (ROWS_AND_COLUMNS, [[(5, 1003)]], ()),
    "an update": (UPDATED, [[(5, 1003)] * 2], ()),
    "in place": (IN_PLACE, [[(5, 1003)]], ()),
    "every third": (EVERY_THIRD, [[(5, 1003)]], ()),
}


@pytest.fixture(autouse=True)
def short_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alignment_shift, "LEAST_VECTORS", 4)


def shifted(text: str) -> set[str]:
    """Return the arguments whose rows are moved in vectors of which some lanes are missing."""
    found = re.findall(r"tc_(?:v\w+_some|vload_some_once|copy_async_some)(?:<\d+>)?\((.*)", text)
    return {name for call in found for name in re.findall(r"&(?:u0_)?(\w+?)(?:_rows)?\[", call)}


@cache
def units_of(name: str) -> tuple[CudaUnit, ...]:
    source, given, _ = CASES[name]
    return tuple(cuda_unit_of(source, [getattr(x, "shape", x) for x in inputs]) for inputs in given)


@pytest.mark.parametrize("name", CASES)
def test_rows_are_moved_in_vectors(name: str) -> None:
    arrays = CASES[name][2]
    for unit in units_of(name):
        assert shifted(unit.source.text) >= set(arrays)
        if not arrays:
            assert "_some" not in unit.source.text


@pytest.mark.slow_but(
    "softmax",
    "layernorm",
    "cross entropy",
    "two arrays",
    "three axes",
    "bytes",
    "two types",
    "the index as a value",
    "conditions",
    "a triangle",
    "a neighbour",
    "rows and columns",
    "an update",
    "in place",
    "every third",
)
@pytest.mark.parametrize("name", CASES)
def test_the_results_are_right(name: str, emulated: Any) -> None:
    units = units_of(name)
    for number, (program, inputs) in enumerate(zip(emulated(units), CASES[name][1], strict=True)):
        check(program, *arrays_for(units[0].comprehension, inputs, number))


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_results_are_right_on_a_small_chip(
    name: str, check_emulated: CheckAll, small_chip: Chip
) -> None:
    source, given, _ = CASES[name]
    check_emulated([(source, inputs) for inputs in given], gpu=small_chip)


@pytest.mark.slow_but("softmax")
@pytest.mark.parametrize("name", ["softmax", "its gradient", "half types", "two arrays"])
def test_clusters_share_shifted_rows(
    name: str, check_emulated: CheckAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    for constant, value in (
        ("BLOCK_BYTES", 1 << 10), ("LEAST_BYTES", 1 << 9), ("HELD_WELL", 1 / 256),
        ("HELD_VALUES", 1 / 128), ("LEAST_GROUPS", 1),
    ):  # fmt: skip
        monkeypatch.setattr(clusters, constant, value)
    source, given, _ = CASES[name]
    check_emulated([(source, inputs) for inputs in given])


@pytest.mark.slow
def test_views(check_emulated: CheckAll) -> None:
    """Rows apart in memory, of a stride that is no multiple, or of one that is."""
    x = np.random.default_rng(0).random((5, 1100), np.float32)
    cases = [x[:, :1003], x[:, 4:1007], x[::2, :1003], x[:4, :1001]]
    odd = np.random.default_rng(0).random((5, 1101), np.float32)
    cases += [odd[:, :1000], odd[:, :1003], odd[::3, :1003]]
    check_emulated([(source, [view]) for source in (SUM, SOFTMAX) for view in cases])


@pytest.mark.slow
def test_lengths_around_a_vector(check_emulated: CheckAll, cuda_unit: MakeUnit) -> None:
    check_emulated([(SOFTMAX, [(6, n)]) for n in range(15, 36)])


def test_tails_of_flat_arrays(check_emulated: CheckAll, cuda_unit: MakeUnit) -> None:
    total = "def f(float(N) x) -> (s) {\n    s +=! x(i)\n}"
    scale = "def f(float(N) x) -> (y) {\n    y(i) = 2 * x(i)\n}"
    for source in (total, scale):
        assert "tc_vload_some" in cuda_unit(source, (1000003,)).source.text
        check_emulated([(source, [(n,)]) for n in (1, 3, 4, 5, 1023, 4097, 10007)])


def test_without_vectors_nothing_is_shifted(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(SUM, (5, 1003), options=Options(vectorise=False))
    assert "_rows" not in unit.source.text and "_some" not in unit.source.text


def test_registers_of_missing_lanes_are_kept_where_rows_are_parted(cuda_unit: MakeUnit) -> None:
    """A row that all statements run over whole is loaded without a select."""
    triangles = """def f(float(M,M) x) -> (s, y) {
        s(i) +=! x(i,j) where j in 0:i+1
        y(i) max=! x(i,j) * s(i) where j in i:M
    }"""
    select = r"x_rows_row\d+\[\w+\] = .* \? w_new"
    assert re.search(select, cuda_unit(triangles, (98, 98)).source.text)
    text = cuda_unit(SOFTMAX, (33, 515)).source.text
    assert "x_rows_row" in text and not re.search(select, text)


# Contractions whose operands' rows begin anywhere; other kernels' rows are shifted all the same.
TILED: dict[str, tuple[str, Callable[[int], list[Any]], set[str]]] = {
    "a product": (
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
        lambda k: [(40, k), (k, 33)], set(),
    ),
    "transposed": (
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(n,m) +=! A(m,k) * B(k,n) }",
        lambda k: [(40, k), (k, 33)], set(),
    ),
    "batched": (
        "def f(float(B,M,K) A, float(B,K,N) W) -> (C) { C(b,m,n) +=! A(b,m,k) * W(b,k,n) }",
        lambda k: [(2, 40, k), (2, k, 33)], set(),
    ),
    "a convolution": (
        """def f(float(N,H,W,C) I, float(F,3,3,C) K) -> (O) {
            O(n,h,w,f) +=! I(n,h+kh,w+kw,c) * K(f,kh,kw,c)
        }""",
        lambda k: [(1, 3, 35, k), (34, 3, 3, k)], set(),
    ),
    "its rows": (
        """def f(float(M,K) A, float(K,N) B) -> (C, s) {
            C(m,n) +=! A(m,k) * B(k,n)
            s(m) +=! A(m,k)
        }""",
        lambda k: [(40, k), (k, 33)], {"A"},
    ),
    "of rows": (
        """def f(float(M,K) A, float(K,N) B) -> (C) {
            top(m) max=! A(m,k)
            a(m,k) = A(m,k) - top(m)
            C(m,n) +=! a(m,k) * B(k,n)
        }""",
        lambda k: [(40, k), (k, 33)], set(),
    ),
}  # fmt: skip


@pytest.mark.slow_but("a product")
@pytest.mark.parametrize("name", TILED)
def test_contractions_keep_their_tiles(
    name: str, cuda_unit: MakeUnit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are numbered anew for the kernels that have rows, not for those that have tiles."""
    monkeypatch.setattr(contracted, "MIN_WORK", 1 << 10)
    source, shapes_at, rows = TILED[name]
    for length in (385, 1002):
        done = cuda_unit(source, *shapes_at(length)).done
        templates = {kernel.template for kernel in done.plan.kernels}
        assert templates & {"tile_simt", "tile_implicit"}, length
        assert shifted(done.source.text) == rows


@pytest.mark.slow_but("transposed")
@pytest.mark.parametrize("name", TILED)
def test_tiled_contractions_of_odd_rows_are_right(
    name: str, check_emulated: CheckAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contracted, "MIN_WORK", 1 << 10)
    source, shapes_at, _ = TILED[name]
    check_emulated([(source, shapes_at(35))])


# Programs and the open length of their rows; lengths of several classes by remainder.
OPEN = {
    "softmax": (SOFTMAX, "N", [(5, 1003), (2, 1001), (3, 515), (9, 257), (3, 1000)]),
    "half types": (SOFTMAX.replace("float(", "bfloat16("), "N", [(9, 1003), (3, 2050), (2, 1031)]),
    "bytes": (SUM.replace("float", "int8"), "N", [(17, 1003), (3, 1028)]),
    "two arrays": (BACKWARD, "N", [(3, 1003), (2, 1031)]),
    "three axes": (THREE_AXES, "N", [(3, 5, 513), (2, 3, 1001)]),
    "two types": (OF_TWO_TYPES, "N", [(9, 1003)]),
    "in place": (IN_PLACE, "N", [(5, 1003)]),
    "the index as a value": (INDEX_AS_VALUE, "N", [(3, 1003)]),
    "conditions": (CONDITION, "N", [(3, 1003)]),
    "pointwise": (POINTWISE, "N", [(5, 1003), (9, 261), (3, 1002)]),
    "of halves": (POINTWISE.replace("float(", "half("), "N", [(5, 1003), (9, 263)]),
    "planes": (PLANES, "W", [(3, 5, 261), (2, 4, 1001)]),
}


@pytest.mark.parametrize(
    ("middle", "factors"), [(12, (0, 3)), (7, (1, 3)), ("4 * q", (0, 3)), ("q", None)]
)
def test_every_stride_is_known_modulo_a_vector(
    middle: int | str, factors: tuple[int, ...] | None, lower: Callable[..., Scop]
) -> None:
    array = lower("def f(float(A,B,C) x) -> (y) { y(a) +=! x(a,b,c) }", (5, 7, 131)).arrays["x"]
    open_ = middle if isinstance(middle, int) else isl.PwAff(f"[q] -> {{ [({middle})] : q > 0 }}")
    assert unaligned(replace(array, shape=(5, open_, 131)), 4) == factors


FEW = ("pointwise", "of halves")  # elements of these arrays: threads have one each


@pytest.mark.slow_but("softmax", "pointwise")
@pytest.mark.parametrize("name", OPEN)
def test_rows_of_an_open_length(name: str) -> None:
    """One kernel for lengths that are the same modulo a vector, moved in vectors."""
    source, opened, shapes = OPEN[name]
    f = tcdsl.define(source).f
    for shape in shapes:
        sizes = dict(zip(f.comprehension.tensors["x"].dims, shape, strict=True))
        inputs = [
            values(tensor.dtype, tuple(sizes[d] for d in tensor.dims), "real", seed)
            for seed, tensor in enumerate(f.comprehension.tensors[n] for n in f._head.inputs)
        ]
        options = Options(dynamic_sizes=(opened,))
        exe = f.compile(*inputs, target="emulate", options=options)
        assert opened in exe.opened
        check(f, *inputs, targets=("emulate",), options=options)
        if name not in ("conditions", "in place", *FEW):
            rest = sizes[opened] % (16 // f.comprehension.tensors["x"].dtype.size_bytes)
            assert ("x" in shifted(exe.source)) == (rest > 0)


@pytest.mark.parametrize("name", FEW)
def test_pointwise_rows_of_an_open_length_are_moved_in_vectors(name: str) -> None:
    source, opened, _ = OPEN[name]
    f = tcdsl.define(source).f
    tensors = [f.comprehension.tensors[n] for n in f._head.inputs]
    specs = [tcdsl.spec((4099, 1003)[-t.rank :], t.dtype.name) for t in tensors]
    exe = f.compile(*specs, target="emulate", options=Options(dynamic_sizes=(opened,)))
    assert shifted(exe.source) == {"x", "y"}
