"""Statements as CUDA: collectives, atomics, and who of the uniform threads runs them."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.cuda.folds import fold_function, is_block_collective
from tcdsl.costmodel.chip import Chip
from tcdsl.lang.types.dtypes import BFLOAT16
from tcdsl.options import Options
from tcdsl.poly.scop import Kind
from tcdsl.schedule.mapping import Mapped

MakeUnit = Callable[..., Any]
CheckAll = Callable[..., None]

ROW = "def f({t}(M,N) x) -> (y) {{ y(i) {op} x(i,j) }}"
COLUMN = "def f({t}(M,N) x) -> (y) {{ y(j) {op} x(i,j) }}"
SCATTER = "def f({t}(V) y, int32(E) I, {t}(E) g) -> (y) {{ y(I(e)) {op} g(e) }}"


@pytest.mark.parametrize(
    ("op", "dtype", "called"),
    [
        ("+=!", "float", "tc_op_add_f32"), ("*=!", "double", "tc_op_mul_f64"),
        ("max=!", "half", "tc_op_max_f32"), ("min=!", "int8", "tc_op_min_"),
        ("and=!", "bool", "tc_op_and_b"), ("or=!", "bool", "tc_op_or_b"),
        ("+=!", "bfloat16", "tc_op_add_f32"),
    ],
)  # fmt: skip
def test_a_fold_is_in_the_reductions_type(
    op: str, dtype: str, called: str, cuda_unit: MakeUnit
) -> None:
    text = cuda_unit(ROW.format(t=dtype, op=op), (300, 4096)).source.text
    assert re.search(rf"tc_fold_x<{called}\w*, \d+, 1>", text)


ONE_HOT = """def f(int64(M) k, float(M,N) x) -> (y, z) {
    y(i,j) = x(i,j) - (k(i) == j ? 1.0 : 0.0)
    z(i,j) = j + 1 != k(i) ? x(i,j) : 0.0
}"""


def test_a_label_is_compared_in_32_bits(cuda_unit: MakeUnit, check_emulated: CheckAll) -> None:
    text = cuda_unit(ONE_HOT, (300,), (300, 1000)).source.text
    assert text.count("&& (int32_t)k[i] ==") == 2 and "tc_cast_i32_i64" not in text
    k = np.array([3, 0, -1, 2**32 + 3, 2**63 - 1, -(2**63), 2**31, 7], np.int64)
    check_emulated([(ONE_HOT, [k, (8, n)]) for n in (9, 64)])
    column = "def f(int64(N) k, float(M,N) x) -> (y) { y(i,j) = k(j) == 2 * i ? x(i,j) : 0.0 }"
    check_emulated([(column, [np.arange(9) + 2**32 * (np.arange(9) % 2), (20, 9)])])


PEAK = "def f({t}(M,N) x) -> (y) {{ y(i) {op} {x} }}"
HELD = """def f(bfloat16(M,N) x) -> (m, y) {
    m(i) max=! x(i,j)
    y(i,j) = x(i,j) - m(i)
}"""


@pytest.fixture
def as_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """No place is sought after its extreme value."""
    monkeypatch.setattr("tcdsl.plan.search.REWRITES", ())


@pytest.mark.slow_but(
    "half-max=!-x(i,j)-tc_vmax_f16", "bfloat16-max=!-float32(x(i,j))-tc_vmax_bf16"
)
@pytest.mark.slow_but(
    "half-max=!-x(i,j)-tc_vmax_f16",
    "bfloat16-min=!-x(i,j)-tc_vmin_bf16",
    "bfloat16-max=!-float32(x(i,j))-tc_vmax_bf16",
)
@pytest.mark.parametrize(
    ("dtype", "op", "value", "name"),
    [
        ("half", "max=!", "x(i,j)", "tc_vmax_f16"),
        ("bfloat16", "min=!", "x(i,j)", "tc_vmin_bf16"),
        ("bfloat16", "max=!", "float32(x(i,j))", "tc_vmax_bf16"),
        ("bfloat16", "max=", "x(i,j)", "tc_vmax_bf16"),
        ("bfloat16", "max=!", "-x(i,j)", ""),
        ("bfloat16", "max=!", "x(i,j) where exists x(i,0) > 0.0", ""),
        ("bfloat16", "argmax=!", "x(i,j)", ""),
        ("bfloat16", "+=!", "x(i,j)", ""),
        ("float", "max=!", "x(i,j)", ""),
        ("int8", "max=!", "x(i,j)", "tc_vmax_i8"),
        ("uint8", "min=!", "x(i,j)", "tc_vmin_u8"),
        ("int8", "min=!", "-x(i,j)", ""),
    ],
)
@pytest.mark.usefixtures("as_written")
def test_lanes_of_half_types_are_compared_in_pairs(
    dtype: str, op: str, value: str, name: str, cuda_unit: MakeUnit, check_emulated: CheckAll
) -> None:
    source = PEAK.format(t=dtype, op=op, x=value)
    shapes = [(300,), (300, 4096)] if op == "max=" else [(300, 4096)]
    if op == "max=":
        source = source.replace("(M,N) x)", "(M) y, bfloat16(M,N) x)")
    text = cuda_unit(source, *shapes).source.text
    found = re.findall(r"tc_v(?:max|min)_\w+", text)
    assert set(found) == ({name} if name else set())
    sizes = ((5, 1000), (3, 7), (40, 64), (2, 4097))
    check_emulated([(source, [*((m,) for _ in shapes[1:]), (m, n)]) for m, n in sizes])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("y(j) max=! x(i,j)", "tc_max_loaded_i32"),
        ("y(j) min=! x(i,j) where i in 0:M", "tc_min_loaded_i32"),
        ("y(j) max=! -x(i,j)", "tc_max_i32"),
        ("t(i,j) = -x(i,j)  y(j) max=! t(i,j)", "tc_max_i32"),
    ],
)
def test_extremes_of_what_memory_has_are_plain(
    text: str, name: str, cuda_unit: MakeUnit, check_emulated: CheckAll
) -> None:
    """Where no operand may be negated the assembler's defect is no concern (core.cuh)."""
    source = f"def f(int32(M,N) x) -> (y) {{ {text} }}"
    made = cuda_unit(source, (5000, 256)).source.text
    first, *_ = re.findall(r"tc_(?:max|min)(?:_loaded)?_i32", made)  # then parts, which are stored
    assert first == name
    check_emulated([(source, [shape]) for shape in ((300, 64), (7, 3))])


def test_columns_are_compared_one_by_one(cuda_unit: MakeUnit) -> None:
    column = COLUMN.format(t="bfloat16", op="max=!")
    assert "tc_vmax" not in cuda_unit(column, (5000, 256)).source.text


@pytest.mark.slow
@pytest.mark.parametrize("op", ["max", "min"])
@pytest.mark.parametrize("dtype", ["half", "bfloat16"])
def test_lanes_that_are_missing_are_not_compared(
    dtype: str, op: str, cuda_unit: MakeUnit, check_emulated: CheckAll
) -> None:
    source = PEAK.format(t=dtype, op=f"{op}=!", x="x(i,j)")
    call = rf"tc_v{op}_b?f16\(w_vector\d, w_from\d, w_to\d\)"
    assert re.search(call, cuda_unit(source, (3000, 4097)).source.text)
    x = np.random.default_rng(0).normal(size=(11, 4097))
    x = x.astype(np.float16 if dtype == "half" else BFLOAT16.numpy)
    x[0], x[1] = -np.inf, np.inf
    x[2, 0] = x[3, -1] = x[4, 77] = np.nan
    x[5] = x[6] = 60000 if op == "min" else -60000  # what is beside a row is nearer to 0
    held = HELD.replace("bfloat16(", f"{dtype}(").replace("max=!", f"{op}=!")
    check_emulated([(s, [x[:, :n].copy()]) for s in (source, held) for n in (4097, 1001, 13)])


@pytest.mark.slow_but("shape0", "shape2")
@pytest.mark.parametrize("shape", [(3000, 4096), (5, 1000), (2, 40_000), (64, 129), (3, 7)])
def test_a_row_that_is_held_is_compared_as_it_is_loaded(
    shape: tuple[int, int], cuda_unit: MakeUnit, check_emulated: CheckAll
) -> None:
    if shape[0] > 1000:
        text = cuda_unit(HELD, shape).source.text
        assert text.count("tc_vmax_bf16(w_vector0)") == 1 and text.count("tc_vload<") == 1
        return
    x = np.random.default_rng(0).normal(size=shape).astype(BFLOAT16.numpy)
    x[1, 1], x[0, -1] = np.nan, -np.inf
    check_emulated([(HELD, [x])])


def test_rows_packed_in_a_warp_fold_without_the_block(cuda_unit: MakeUnit) -> None:
    for shape, is_block in (((2000, 64), False), ((300, 4096), True)):
        plan = cuda_unit(ROW.format(t="float", op="+=!"), shape).done.plan
        mapped = Mapped(plan.scop, plan.kernels[0].tree)
        (fold,) = (s for s in plan.scop.statements if s.kind is Kind.FOLD)
        assert fold_function(mapped, fold) == ("x", (0,))
        assert is_block_collective(mapped, fold) == is_block


def test_one_thread_stores_what_all_hold(cuda_unit: MakeUnit) -> None:
    for source in (ROW, COLUMN):
        text = cuda_unit(source.format(t="float", op="+=!"), (300, 1000)).source.text
        stores = list(re.finditer(r"(y\w*|w_vector\d+)\[.*\] = w_folds?\d*(?:\[.*\])?;", text))
        assert stores
        for store in stores:  # under a guard that nothing has closed
            assert re.search(r"if \([^\n]*threadIdx\.[xy] == 0\)[^}]*$", text[: store.start()])


def test_a_fold_onto_what_is_there(cuda_unit: MakeUnit, check_emulated: CheckAll) -> None:
    source = "def f(float(M) y, float(M,N) x) -> (y) { y(i) += x(i,j) }"
    text = cuda_unit(source, (300,), (300, 4096)).source.text
    assert re.search(r"y\[\w+\] = \(tc_changing\(y\[\w+\]\) \+ w_fold\);", text)
    check_emulated([(source, [(3,), (3, 4096)]), (source, [(300,), (300, 70)])])


def test_an_arg_fold_takes_value_and_index(cuda_unit: MakeUnit, check_emulated: CheckAll) -> None:
    source = ROW.format(t="float", op="argmin=!")
    # Of elements as they are the extreme may come first, and its place in a second sum.
    text = cuda_unit(source.replace("x(i,j) }", "x(i,j) + x(i,j) }"), (300, 515)).source.text
    call = r"tc_argfold_x<tc_better_min_f32, \d+, 1>\(u0_y_part0_best, u0_y_part0\)"
    assert re.search(call, text)
    rng = np.random.default_rng(3)
    ties = rng.integers(-3, 3, (30, 515)).astype(np.float32)
    holes = np.where(rng.random((30, 515)) < 0.01, np.nan, ties).astype(np.float32)
    cases: list[tuple[str, list[Any]]] = []
    for op in ("argmin=!", "argmax=!"):
        for values in (ties, holes, ties.T.copy(), np.zeros((7, 300), np.float32)):
            cases += [(s.format(t="float", op=op), [values]) for s in (ROW, COLUMN)]
    check_emulated(cases)


@pytest.mark.parametrize(
    ("op", "dtype", "called"),
    [
        ("+=", "float", "tc_atomic_add_f32(&y["), ("+=", "half", "tc_atomic_add_f32(&u0_y_wide"),
        ("*=", "double", "tc_atomic_mul_f64(&y["),
        ("max=", "bfloat16", "tc_atomic_max_f32(&u0_y_wide"),
        ("min=", "int16", "tc_atomic_min_i16(&y["), ("or=", "bool", "tc_atomic_or_b(&y["),
        ("and=", "bool", "tc_atomic_and_b(&y["), ("+=", "uint64", "tc_atomic_add_u64(&y["),
    ],
)  # fmt: skip
def test_scattered_updates_are_atomics(
    op: str, dtype: str, called: str, cuda_unit: MakeUnit, check_emulated: CheckAll
) -> None:
    """Half types accumulate in float32, and are rounded once."""
    source = SCATTER.format(t=dtype, op=op)
    assert called in cuda_unit(source, (9,), (50,), (50,)).source.text
    where = np.random.default_rng(3).integers(0, 9, 500).astype(np.int32)
    check_emulated([(source, [(9,), where, (500,)])])


def test_an_extreme_by_atomics_is_the_same_each_time(
    cuda_unit: MakeUnit, emulated: Callable[..., Any]
) -> None:
    source = SCATTER.format(t="float", op="max=")
    (program,) = emulated([cuda_unit(source, (9,), (500,), (500,))])
    rng = np.random.default_rng(3)
    where, g = rng.integers(0, 9, 500).astype(np.int32), rng.normal(size=500).astype(np.float32)
    results = []
    for _ in range(5):  # blocks and threads in another order each time
        y = np.full(9, -10, np.float32)
        program.run([y.copy(), where, g], [y])
        results.append(y)
    assert all((y == results[0]).all() for y in results)


@pytest.mark.slow
def test_what_every_thread_could_write_is_written_by_one(check_emulated: CheckAll) -> None:
    """Scalars between rows: pinned where memory is written, replicated where it is not."""
    source = """def f(float(N) x) -> (s, t, y) {
        s +=! x(i)
        t = s * 2.0
        u = t + 1.0
        y(i) = x(i) * u
    }"""
    for options in (Options(), Options(fuse="none"), Options(deterministic=True)):
        check_emulated([(source, [(n,)]) for n in (1, 31, 300, 5000)], options=options)


@pytest.mark.slow
def test_half_types_are_rounded_once(check_emulated: CheckAll, small_chip: Chip) -> None:
    cases = [
        (form.format(t=dtype, op=op), [shape])
        for form in (ROW, COLUMN)
        for dtype in ("half", "bfloat16")
        for op in ("+=!", "*=!")
        for shape in ((3, 700), (700, 3))
    ]
    check_emulated(cases)
    check_emulated(cases, gpu=small_chip)
