"""What only fills an array is a memset: which kernels, by what, and that results are right."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.cuda.memsets import is_dense, memset_of
from tcdsl.codegen.cuda.printer import print_cuda
from tcdsl.codegen.cuda.source import Launch, Memset, Parameter, ParameterKind, launch_from_json
from tcdsl.costmodel.chip import Chip
from tcdsl.errors import EmulationError
from tcdsl.lang.types.dtypes import COMPENSATED64, FLOAT32
from tcdsl.options import Options
from tcdsl.poly.loop_tree import sequence, statements_of
from tcdsl.poly.scop import Array, Storage
from tcdsl.schedule.plan import Kernel

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]
ATOMIC = Options(cross_block="atomic")
COLUMNS = "def f({dtype}(M,N) x) -> (y) {{ y(j) {operator}=! x(i,j) }}"
SCATTER = """def f({dtype}(E) x, int32(E) k, {dtype}(M) like) -> ({dtype}(M) y) {{
    y(k(e)) {operator}=! x(e)
}}"""
N = 70
Y = Parameter("float *y", ParameterKind.ARRAY, "y")
INF, MINUS_INF = 0x7F800000, 0xFF800000

# The bytes of a number, the number, how many of them: of sums in N columns; None: a kernel.
FILLS: dict[tuple[str, str], tuple[int, int, int] | None] = {
    ("float", "+"): (4, 0, N),
    ("float", "*"): (4, 0x3F800000, N),
    ("float", "max"): (4, MINUS_INF, N),
    ("float", "min"): (4, INF, N),
    ("double", "+"): (4, 0, 2 * N),
    ("double", "*"): None,
    ("double", "max"): None,
    ("double", "min"): None,
    ("int32", "+"): (4, 0, N),
    ("int32", "*"): (4, 1, N),
    ("int32", "max"): (4, 0x80000000, N),
    ("int32", "min"): (4, 0x7FFFFFFF, N),
    ("int64", "+"): (4, 0, 2 * N),
    ("int64", "*"): None,
    ("int64", "max"): None,
    ("int64", "min"): None,
    ("uint64", "min"): (4, 0xFFFFFFFF, 2 * N),
    ("uint64", "max"): (4, 0, 2 * N),
    ("bool", "and"): (1, 1, N),
    ("bool", "or"): (1, 0, N),
}


def memsets(unit: Any) -> list[Memset]:
    return [launch for launch in unit.source.launches if isinstance(launch, Memset)]


@pytest.mark.parametrize(("dtype", "operator"), FILLS)
def test_blocks_that_add_at_once_find_the_identity(
    dtype: str, operator: str, cuda_unit: MakeUnit
) -> None:
    source = COLUMNS.format(dtype=dtype, operator=operator)
    first, second = cuda_unit(source, (200_000, N), options=ATOMIC).source.launches
    assert isinstance(second, Launch) and "S0_init" not in second.label
    fill = FILLS[dtype, operator]
    if fill is None:
        assert isinstance(first, Launch) and first.label == "S0_init"
    else:
        assert isinstance(first, Memset) and first.label == "S0_init"
        assert (first.width, first.value, first.count) == fill
        assert (first.target.kind, first.target.name) == (ParameterKind.ARRAY, "y")


@pytest.mark.parametrize(("dtype", "operator"), FILLS)
def test_scattered_sums_find_the_identity(dtype: str, operator: str, cuda_unit: MakeUnit) -> None:
    source = SCATTER.format(dtype=dtype, operator=operator)
    unit = cuda_unit(source, (999,), (999,), (N,))
    fill = FILLS[dtype, operator]
    assert [(m.width, m.value, m.count) for m in memsets(unit)] == ([] if fill is None else [fill])


@pytest.mark.slow
def test_sums_on_columns_are_right(check_emulated: CheckAll) -> None:
    check_emulated(
        [
            (COLUMNS.format(dtype=dtype, operator=operator), [(rows, columns)])
            for dtype, operator in FILLS
            for rows, columns in ((20_011, 5), (1, 1), (0, 7))
        ],
        options=ATOMIC,
    )


@pytest.mark.slow
def test_scattered_sums_are_right(check_emulated: CheckAll) -> None:
    rng = np.random.default_rng(5)
    cases: list[tuple[str, Sequence[Any]]] = []
    for dtype, operator in FILLS:
        for edges, elements in ((301, 23), (1, 1), (0, 7)):
            to = rng.integers(0, elements, edges).astype(np.int32)
            source = SCATTER.format(dtype=dtype, operator=operator)
            cases.append((source, [(edges,), to, (elements,)]))
    check_emulated(cases)


@pytest.mark.slow
def test_on_a_small_chip(check_emulated: CheckAll, small_chip: Chip) -> None:
    check_emulated(
        [
            (COLUMNS.format(dtype=dtype, operator=operator), [(rows, 9)])
            for dtype, operator in FILLS
            for rows in (1, 31, 131)
        ],
        gpu=small_chip,
        options=ATOMIC,
    )


# --- half types: sums of halves are rounded once, from sums in float32 ----------------------------

HALVES = {
    ("half", "max"): (2, 0xFC00),
    ("half", "min"): (2, 0x7C00),
    ("bfloat16", "max"): (2, 0xFF80),
    ("bfloat16", "*"): (2, 0x3F80),
    ("half", "+"): (2, 0),
}


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "operator"), HALVES)
def test_halves_of_no_rows(
    dtype: str, operator: str, cuda_unit: MakeUnit, check_emulated: CheckAll
) -> None:
    source = COLUMNS.format(dtype=dtype, operator=operator).replace("(y)", f"({dtype} y)")
    (memset,) = cuda_unit(source, (0, N)).source.launches
    assert (memset.width, memset.value) == HALVES[dtype, operator] and memset.count == N
    check_emulated([(source, [(0, N)]), (source, [(1201, N)])], options=ATOMIC)


@pytest.mark.slow
def test_scattered_halves_are_summed_in_what_is_filled(
    cuda_unit: MakeUnit, check_emulated: CheckAll
) -> None:
    source = SCATTER.format(dtype="half", operator="+")
    (memset,) = memsets(cuda_unit(source, (999,), (999,), (N,)))
    assert memset.target.kind is ParameterKind.SCRATCH
    assert (memset.width, memset.value, memset.count) == (4, 0, N)
    to = (np.arange(999) % 23).astype(np.int32)
    check_emulated([(source, [(999,), to, (23,)])])


# --- what is there, and what is not ---------------------------------------------------------------


def test_a_large_sum_is_a_memset_and_a_launch(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit("def f(float(N) x) -> (y) { y +=! x(i) }", (300_000,), options=ATOMIC)
    memset, launch = unit.source.launches
    assert memset.count == 1 and max(launch.grid) > 1
    assert unit.source.kernels == (launch,)
    assert (
        "// S0_init: a memset in place of a kernel: 1 x 4 bytes of 0x00000000" in unit.source.text
    )
    assert unit.source.text.count("__global__") == 1


def test_the_plan_keeps_the_initialisation(cuda_unit: MakeUnit) -> None:
    """What verifies a plan sees all that writes."""
    unit = cuda_unit("def f(float(N) x) -> (y) { y +=! x(i) }", (300_000,), options=ATOMIC)
    assert list(statements_of(unit.done.plan.kernels[0].tree)) == ["S0_init"]
    assert "S0_init" in unit.done.stages["schedule"]


def test_sums_that_go_on_from_what_out_holds_fill_nothing(
    cuda_unit: MakeUnit, check_emulated: CheckAll
) -> None:
    source = "def f(float(M,N) x) -> (y) { y(j) += x(i,j) }"
    (launch,) = cuda_unit(source, (1201, N), options=ATOMIC).source.launches
    assert isinstance(launch, Launch)
    check_emulated([(source, [(1201, N)])], options=ATOMIC)


def test_a_part_of_an_array_is_filled_by_a_kernel(
    cuda_unit: MakeUnit, check_emulated: CheckAll
) -> None:
    source = """def f(float(N) x, float(M) z) -> (y) {
        y(i) = x(i)
        y(i) +=! z(k) where i in 0:3, k in 0:M
    }"""
    apart = replace(ATOMIC, fuse="none")
    unit = cuda_unit(source, (N,), (300_000,), options=apart)
    assert memsets(unit) == []
    assert any(launch.label == "S1_init" for launch in unit.source.launches)
    check_emulated([(source, [(N,), (300_000,)])], options=apart)


def test_an_array_of_which_all_begins_elsewhere(
    cuda_unit: MakeUnit, check_emulated: CheckAll
) -> None:
    """Its box starts at 3, and so does its memory."""
    source = "def f(float(M,N) x) -> (y) { y(j) +=! x(i,j) where j in 3:N }"
    unit = cuda_unit(source, (1201, N), options=ATOMIC)
    (memset,) = memsets(unit)
    assert memset.count == unit.special.shapes["y"][0]
    check_emulated([(source, [(1201, N)])], options=ATOMIC)


@pytest.mark.slow
def test_temporaries_are_filled_in_the_workspace(
    cuda_unit: MakeUnit, check_emulated: CheckAll
) -> None:
    source = """def f(float(M,N) x) -> (v) {
        s(j) +=! x(i,j)
        q(j) max=! x(i,j)
        v(j) = q(j) - s(j) / M
    }"""
    apart = replace(ATOMIC, fuse="none")  # else both begin in one launch
    unit = cuda_unit(source, (1201, N), options=apart)
    first, second = memsets(unit)
    assert {first.target.kind, second.target.kind} == {ParameterKind.SCRATCH}
    assert first.target.offset != second.target.offset
    check_emulated([(source, [(1201, N)])], options=apart)


def test_two_arrays_in_one_kernel_stay_there(cuda_unit: MakeUnit) -> None:
    source = "def f(float(M,N) x) -> (y, z) { y(j) +=! x(i,j)\n z(j) max=! x(i,j) }"
    unit = cuda_unit(source, (0, N), options=Options(fuse="none"))
    assert len(memsets(unit)) == 2
    plan = unit.done.plan
    both = Kernel("both", sequence([kernel.tree for kernel in plan.kernels]))
    (launch,) = print_cuda(replace(plan, kernels=(both,))).launches
    assert isinstance(launch, Launch)


def test_two_numbers_in_one_array_are_stored_by_a_kernel(cuda_unit: MakeUnit) -> None:
    source = """def f(float(M,N) x) -> (y) {
        y(j) +=! x(i,j) where i in 0:M, j in 0:3
        y(j) max=! x(i,j) where i in 0:M, j in 3:N
    }"""
    plan = cuda_unit(source, (0, N)).done.plan
    both = Kernel("both", sequence([kernel.tree for kernel in plan.kernels]))
    assert memset_of(plan.scop, both, Y) is None


def test_pairs_of_an_argmax_are_filled_by_a_kernel(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit("def f(float(M,N) x) -> (y) { y(j) argmax=! x(i,j) }", (0, N))
    assert memsets(unit) == []
    assert memset_of(unit.done.plan.scop, unit.done.plan.kernels[0], Y) is None


@pytest.mark.parametrize("statement", ["y(i) += 2.0", "y(i) = 2.0"])
def test_a_number_that_is_no_identity_is_stored_by_a_kernel(
    statement: str, cuda_unit: MakeUnit
) -> None:
    source = f"def f(float(N) x) -> (y) {{ {statement} where i in 0:N }}"
    (launch,) = cuda_unit(source, (N,)).source.launches
    assert isinstance(launch, Launch)


def test_accumulators_of_compensated_sums_are_pairs_of_zeros(cuda_unit: MakeUnit) -> None:
    """As they would be in memory; strategies keep them in registers."""
    plan = cuda_unit(COLUMNS.format(dtype="double", operator="+"), (0, N)).done.plan
    (init,) = plan.scop.statements
    pair = replace(plan.scop.arrays["y"], dtype=COMPENSATED64)
    wide = replace(init, reduction=replace(init.reduction, dtype=COMPENSATED64))
    scop = replace(plan.scop, arrays={"y": pair}, statements=(wide,))
    memset = memset_of(scop, plan.kernels[0], Y)
    assert memset is not None and (memset.value, memset.width * memset.count) == (0, 16 * N)


def test_nothing_is_filled_where_there_is_nothing(cuda_unit: MakeUnit) -> None:
    source = COLUMNS.format(dtype="float", operator="+")
    assert cuda_unit(source, (5, 0), options=ATOMIC).source.launches == ()


# --- arrays with gaps -----------------------------------------------------------------------------


def array_of(shape: tuple[int, ...], strides: tuple[int | None, ...] | None) -> Array:
    return Array("y", FLOAT32, (0,) * len(shape), shape, Storage.ARGUMENT, strides=strides)


@pytest.mark.parametrize(
    ("shape", "strides", "expected"),
    [
        ((4, 5), None, True),
        ((4, 5), (5, 1), True),
        ((4, 5), (1, 4), True),
        ((1, 5), (77, 1), True),
        ((4, 5), (6, 1), False),
        ((4, 5), (10, 2), False),
        ((4, 5), (0, 1), False),
        ((4, 5), (-5, 1), False),
        ((4, 5), (None, 1), False),
        ((), (), True),
    ],
)
def test_dense_arrays(
    shape: tuple[int, ...], strides: tuple[int | None, ...] | None, expected: bool
) -> None:
    assert is_dense(array_of(shape, strides)) is expected


def test_an_array_with_gaps_is_filled_by_a_kernel(cuda_unit: MakeUnit) -> None:
    plan = cuda_unit(COLUMNS.format(dtype="float", operator="+"), (0, N)).done.plan
    assert memset_of(plan.scop, plan.kernels[0], Y) is not None
    for strides in ((2,), (None,), (-1,)):
        arrays = {**plan.scop.arrays, "y": replace(plan.scop.arrays["y"], strides=strides)}
        scop = replace(plan.scop, arrays=arrays)
        assert memset_of(scop, plan.kernels[0], Y) is None


# --- without it -----------------------------------------------------------------------------------


def test_the_emulator_misses_a_memset(cuda_unit: MakeUnit, emulated: Any) -> None:
    source = COLUMNS.format(dtype="float", operator="+")
    (program,) = emulated([cuda_unit(source, (1201, N), options=ATOMIC)])
    whole = program.program.source
    memset, launch = whole.launches
    for launches in ((launch,), (replace(memset, count=N - 1), launch)):
        program.program.source = replace(whole, launches=launches)
        with pytest.raises(EmulationError, match="never written"):
            program.run([np.ones((1201, N), np.float32)], [np.zeros(N, np.float32)])


def test_json() -> None:
    target = Parameter("float *s", ParameterKind.SCRATCH, "s", 512)
    memset = Memset(target, 4, MINUS_INF, N, "S0_init")
    assert launch_from_json(memset.to_json()) == memset
    launch = Launch("k", (1, 1, 1), (32, 1, 1), 0, (target,), "S0")
    assert launch_from_json(launch.to_json()) == launch
