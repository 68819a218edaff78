"""CUDA text: what a kernel looks like, what it is launched with, and that it is safe."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.cuda.source import TICKETS_BYTES, CudaSource, ParameterKind
from tcdsl.costmodel.chip import load_chip
from tcdsl.options import Options
from tests.strategies.waiting_sums import take_the_likeliest

MakeUnit = Callable[..., Any]
CheckAll = Callable[..., None]
Emulated = Callable[..., Any]
Shapes = list[tuple[int, ...]]

ROW_SUM = "def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }"
COLUMN_SUM = "def f(float(M,N) x) -> (y) { y(j) +=! x(i,j) }"
ALL_SUM = "def f(float(N) x) -> (y) { y +=! x(i) }"
MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
GATHER = "def f(float(E,D) T, int32(B) I) -> (O) { O(b,d) = T(I(b),d) }"
TWICE = "def f(float(M,N) x) -> (y) { y(i,j) = x(i,j) * 2.0 }"

# Telling kernels, each at sizes that leave a rest.
GOLDEN: dict[str, tuple[str, Shapes]] = {
    "pointwise": (
        "def f(float(M,N) x, float(N) b) -> (y) { y(i,j) = x(i,j) * 2.0 + b(j) }",
        [(65, 132), (132,)],
    ),
    "vector_tail": ("def f(float(N) x) -> (y) { y(i) = x(i) * 2.0 }", [(100_003,)]),
    "row_packed": (ROW_SUM, [(2000, 64)]),
    "row_block": (ROW_SUM, [(300, 4096)]),
    "column": (COLUMN_SUM, [(1000, 67)]),
    "all_reduce": (ALL_SUM, [(1_000_003,)]),
    "softmax": (
        """def f(float(N,D) x) -> (y) {
            m(i) max=! x(i,j)
            s(i) +=! exp(x(i,j) - m(i))
            y(i,j) = exp(x(i,j) - m(i)) / s(i)
        }""",
        [(300, 1000)],
    ),
    "row_column": (
        """def f(float(M,N) y, float(M,N) dy) -> (dx, db) {
            inner(i) +=! y(i,j) * dy(i,j)
            dx(i,j) = y(i,j) * (dy(i,j) - inner(i))
            db(j) +=! dx(i,j)
        }""",
        [(2000, 512), (2000, 512)],
    ),
    "argmax": ("def f(float(M,N) x) -> (y) { y(i) argmax=! x(i,j) }", [(300, 515)]),
    "matmul": (MATMUL, [(64, 64), (64, 64)]),
    "scatter_add": (
        """def f(float(E,D) g, int32(E) I, float(V,D) W) -> (o) {
            o(v,d) = W(v,d)
            o(I(e),d) += g(e,d)
        }""",
        [(300, 64), (300,), (77, 64)],
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_loops_and_cuda(
    name: str, cuda_unit: MakeUnit, golden: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    take_the_likeliest(monkeypatch)  # what is printed is not to change with the estimate
    source, shapes = GOLDEN[name]
    unit = cuda_unit(source, *shapes)
    schedule = unit.done.stages["schedule"]
    launches = "\n".join(
        f"{la.name} {la.grid} {la.block} {[p.declaration for p in la.parameters]}"
        for la in unit.source.launches
    )
    golden(f"{name}.cuda", f"{source}\n\n{schedule}\n{unit.source.text}\n{launches}\n")


@pytest.mark.slow
def test_golden_kernels_are_right(check_emulated: CheckAll) -> None:
    rng = np.random.default_rng(3)
    cases: list[tuple[str, list[Any]]] = []
    for name, (source, shapes) in GOLDEN.items():
        inputs: list[Any] = list(shapes)
        if name == "scatter_add":
            inputs[1] = rng.integers(0, 77, 300).astype(np.int32)
        cases.append((source, inputs))
    check_emulated(cases)


@pytest.mark.slow
def test_a_text_repeats_itself(cuda_unit: MakeUnit) -> None:
    for source, shapes in GOLDEN.values():
        first, second = (cuda_unit(source, *shapes).source for _ in range(2))
        assert first == second


@pytest.mark.slow
def test_a_source_survives_json(cuda_unit: MakeUnit) -> None:
    for source, shapes in GOLDEN.values():
        made = cuda_unit(source, *shapes).source
        assert CudaSource.from_json(made.to_json()) == made


# --- what a kernel is called with -----------------------------------------------------------


def test_inputs_are_constant_and_nothing_overlaps(cuda_unit: MakeUnit) -> None:
    (launch,) = cuda_unit(ROW_SUM, (300, 4096)).source.launches
    assert [p.declaration for p in launch.parameters] == [
        "const float *__restrict__ x",
        "float *__restrict__ y",
    ]
    assert {p.kind for p in launch.parameters} == {ParameterKind.ARRAY}


def test_partial_sums_of_blocks_are_aligned_scratch(cuda_unit: MakeUnit) -> None:
    source = cuda_unit(ALL_SUM, (1_000_003,)).source
    (launch,) = source.launches
    (scratch,) = [p for p in launch.parameters if p.kind is ParameterKind.SCRATCH]
    assert scratch.offset % 256 == 0 and scratch.offset >= TICKETS_BYTES
    assert not scratch.declaration.startswith("const") and "restrict" not in scratch.declaration
    blocks = launch.grid[0]
    assert blocks > 1 and source.workspace_bytes >= TICKETS_BYTES + 4 * blocks
    assert source.workspace_bytes % 256 == 0
    assert source.has_tickets and f"tc_last_block(tickets, {blocks})" in source.text


@pytest.mark.parametrize(("rows", "is_shared"), [(4_000_000, True), (4_000, False)])
def test_large_scratch_whose_kernels_do_not_meet_shares_memory(
    rows: int, is_shared: bool, cuda_unit: MakeUnit
) -> None:
    source = """def f(float(M,N) x) -> (y) {
        a(i) +=! x(i,j)
        b(j) +=! x(i,j) * a(i)
        c(i) +=! x(i,j) * b(j)
        d(j) +=! x(i,j) * c(i)
        e(i) +=! x(i,j) * d(j)
        y(j) +=! x(i,j) * e(i)
    }"""
    made = cuda_unit(source, (rows, 8), options=Options(fuse="none")).source
    used = {
        p.name: p.offset
        for launch in made.launches
        for p in launch.parameters
        if p.kind is ParameterKind.SCRATCH
    }
    assert (len(used) > len(set(used.values()))) == is_shared


def test_large_scratch_of_one_kernel_does_not_share_memory(cuda_unit: MakeUnit) -> None:
    """The last kernel that reads a writes c."""
    source = """def f(float(M,N) x) -> (y) {
        a(i) +=! x(i,j)
        b(j) +=! x(i,j) * a(i)
        c(i) +=! x(i,j) * b(j) * a(i)
        y(j) +=! x(i,j) * c(i)
    }"""
    rows = 400_000
    launches = cuda_unit(source, (rows, 8), options=Options(fuse="none")).source.launches
    scratch = [
        {p.name: p.offset for p in launch.parameters if p.kind is ParameterKind.SCRATCH}
        for launch in launches
    ]
    (both,) = [used for used in scratch if {"a", "c"} <= used.keys()]
    assert abs(both["a"] - both["c"]) >= 4 * rows


def test_small_scratch_is_not_in_large_scratch(cuda_unit: MakeUnit) -> None:
    source = """def f(float(N) x, float(M,K) z) -> (a, d) {
        u(i) = exp(sin(x(i))) * cos(x(i))
        s +=! u(i)
        a(i) = u(i) * s
        c(j) +=! z(i,j)
        d(i) +=! z(i,j) * c(j)
    }"""
    made = cuda_unit(source, (3_000_000,), (3000, 700)).source
    used = {
        p.name: p.offset
        for launch in made.launches
        for p in launch.parameters
        if p.kind is ParameterKind.SCRATCH
    }
    end = used["u"] + 4 * 3_000_000
    assert not [n for n, offset in used.items() if n != "u" and used["u"] <= offset < end]


def test_a_fault_record_only_where_something_is_checked(cuda_unit: MakeUnit) -> None:
    source = cuda_unit(GATHER, (7, 64), (40,)).source
    kinds = [[p.kind for p in la.parameters] for la in source.launches]
    assert any(ParameterKind.FAULT in kind for kind in kinds)
    assert {(s.tensor, s.dim, s.reads) for s in source.sites} == {
        ("T", 0, "I")
    } and "tcdsl_clamp(" in source.text
    options = Options(check_indices=False)
    unchecked = cuda_unit(GATHER, (7, 64), (40,), options=options).source
    assert "tc_fault" not in unchecked.text and "tcdsl_clamp(" in unchecked.text
    assert not any(
        p.kind is ParameterKind.FAULT for la in unchecked.launches for p in la.parameters
    )


def test_a_fault_is_reported_with_its_place(cuda_unit: MakeUnit, emulated: Emulated) -> None:
    (program,) = emulated([cuda_unit(GATHER, (7, 3), (4,))])
    table, rows = np.arange(21, dtype=np.float32).reshape(7, 3), np.zeros((4, 3), np.float32)
    assert program.run([table, np.array([0, 6, 6, 0], np.int32)], [rows]) is None
    assert (rows == table[[0, 6, 6, 0]]).all()
    for wrong in (7, -1, 2**31 - 1, -(2**31)):
        fault = program.run([table, np.array([0, 6, wrong, 0], np.int32)], [rows])
        assert fault is not None and (fault.index, fault.extent) == (wrong, 7)
        assert program.program.source.sites[fault.site][:2] == ("T", 0)


def test_a_scattered_index_out_of_range_touches_nothing(
    cuda_unit: MakeUnit, emulated: Emulated
) -> None:
    source, _ = GOLDEN["scatter_add"]
    (program,) = emulated([cuda_unit(source, (4, 3), (4,), (7, 3))])
    g, w, o = (np.ones(shape, np.float32) for shape in ((4, 3), (7, 3), (7, 3)))
    fault = program.run([g, np.array([1, -1, 7, 1], np.int32), w], [o])
    assert fault is not None and fault.index in (-1, 7)
    assert (o[1] == 3).all() and (np.delete(o, 1, axis=0) == 1).all()


# --- names ----------------------------------------------------------------------------------

HOSTILE = [
    ("c0", "c1"), ("threadIdx", "blockIdx"), ("tcdsl_0_f", "tc_fold_x"), ("w_fold", "w_active0"),
    ("u0_x", "tile"), ("fault", "__syncthreads"), ("w_vector0", "gridDim"), ("main", "template"),
    ("tc_vec", "extern"), ("class", "namespace"), ("warpSize", "__shared__"),
]  # fmt: skip


def test_hostile_names_compile_and_run(check_emulated: CheckAll) -> None:
    cases = [
        (
            f"def f(float(SIZE) {array}, float(SIZE) q) -> (out) {{"
            f" t({index}) = {array}({index}) * {index}\n out +=! t({index}) + q({index}) }}",
            [(67,), (67,)],
        )
        for array, index in HOSTILE
    ]
    check_emulated(cases)


def test_text_of_the_program_never_reaches_cuda(cuda_unit: MakeUnit) -> None:
    source = "def f(float(N) x) -> (y) { # */ #include \\\n y(i) = x(i) # ??/ trigraph\n }"
    text = cuda_unit(source, (9,)).source.text
    assert "include" not in text and "trigraph" not in text and "\\" not in text


# --- index types (row 23) -------------------------------------------------------------------


def index_types(text: str) -> set[str]:
    """Return the types of the loops' variables; an unrolled loop has an int."""
    found = re.findall(r"(?:const |for \()(int|int64_t) c\d+ = (?!0; c\d+ < )", text)
    return set(found)


def test_row_23_indices_have_64_bits_only_where_32_do_not_do(cuda_unit: MakeUnit) -> None:
    assert index_types(cuda_unit(TWICE, (1000, 4096)).source.text) == {"int"}
    assert index_types(cuda_unit(TWICE, (2**17, 2**15)).source.text) == {"int64_t"}
    assert index_types(cuda_unit(ROW_SUM, (2**16, 2**16)).source.text) == {"int64_t"}
    # 2^31 - 1 elements: the last index fits, what a block adds to it would not.
    assert index_types(cuda_unit(ALL_SUM, (2**31 - 1,)).source.text) >= {"int64_t"}


def test_row_23_large_strides_have_64_bits(cuda_unit: MakeUnit) -> None:
    """Few elements, far apart."""
    wide = cuda_unit(TWICE, (3, 5), strides={"x": (2**30, 2**28)}).source.text
    assert index_types(wide) == {"int64_t"}
    assert index_types(cuda_unit(TWICE, (3, 5), strides={"x": (64, 2)}).source.text) == {"int"}
    negative = cuda_unit(TWICE, (3, 5), strides={"x": (-(2**30), 1)}).source.text
    assert index_types(negative) == {"int64_t"}


def test_row_23_an_offset_beyond_32_bits_is_computed_in_64(cuda_unit: MakeUnit) -> None:
    source = "def f(uint8(M,N) x) -> (y) { y(i,j) = x(i,j) }"
    text = cuda_unit(source, (9, 5), strides={"x": (2**29, 1)}).source.text
    offsets = re.findall(r"x\[(.*?)\]", text)
    assert offsets and all("536870912" in offset for offset in offsets)
    assert "int64_t" in text and "(int)(" not in text


# --- launches (rows 17, 24) -----------------------------------------------------------------


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0)])
def test_row_17_nothing_to_do_is_no_launch(shape: tuple[int, int], cuda_unit: MakeUnit) -> None:
    assert cuda_unit(TWICE, shape).source.launches == ()


@pytest.mark.slow
def test_row_17_a_sum_of_nothing_is_zero(check_emulated: CheckAll, cuda_unit: MakeUnit) -> None:
    for source in (ROW_SUM, COLUMN_SUM, ALL_SUM.replace("(N)", "(M,N)").replace("(i)", "(i,j)")):
        for operator in ("+=!", "max=!", "min=!", "*=!"):
            text = source.replace("+=!", operator)
            check_emulated([(text, [(5, 0)]), (text, [(0, 5)]), (text, [(0, 0)])])
    product = ROW_SUM.replace("float", "double").replace("+=!", "*=!")  # no memset does 1.0
    (launch,) = cuda_unit(product, (100_000, 0)).source.launches
    assert launch.grid[0] * launch.block[0] >= 100_000 // 4  # on the whole chip


def test_row_17_dimensions_of_one_and_none(check_emulated: CheckAll) -> None:
    check_emulated([
        (ROW_SUM, [(1, 1)]), (ROW_SUM, [(1, 300)]), (ROW_SUM, [(300, 1)]), (COLUMN_SUM, [(1, 1)]),
        (MATMUL, [(1, 1), (1, 1)]), (ALL_SUM, [(1,)]),
        ("def f(float s) -> (y) { y = s * 2.0 }", [()]),
        ("def f(float s, float(N) x) -> (y, z) { y(i) = s * x(i)\n z = s }", [(), (5,)]),
        ("def f(float(N) x) -> (y) { y = 3.0\n y += x(i) }", [(5,)]),
    ])  # fmt: skip


CUBE = "def f(float(A,B,C,D) x) -> (y) { y(d,b,a,c) = x(a,b,c,d) + 1.0 }"


def test_row_24_grids_beyond_a_limit_become_loops(
    cuda_unit: MakeUnit, check_emulated: CheckAll
) -> None:
    """Blocks take several iterations where the grid may not have one for each."""
    gpu = replace(load_chip("h200"), grid_x_blocks=4, grid_y_blocks=3, grid_z_blocks=2)
    launches = cuda_unit(CUBE, (7, 9, 8, 300), gpu=gpu).source.launches
    assert all(n <= most for la in launches for n, most in zip(la.grid, gpu.grid, strict=True))
    text = cuda_unit(CUBE, (7, 9, 8, 300), gpu=gpu).source.text
    assert re.search(r"for \(int c\d = \(int\)blockIdx.x; c\d <= \d+; c\d \+= 4\)", text)
    check_emulated([(CUBE, [(7, 9, 8, 300)]), (CUBE, [(5, 13, 1, 70)])], gpu=gpu)


def test_row_24_what_a_launch_may_have(cuda_unit: MakeUnit) -> None:
    """y and z of a grid end at 65,535."""
    gpu = load_chip("h200")
    for shape in ((70_000, 70_000, 3, 40), (3, 100_000, 90_000, 300), (1, 2**27, 1, 64)):
        for launch in cuda_unit(CUBE, shape).source.launches:
            assert all(0 < n <= most for n, most in zip(launch.grid, gpu.grid, strict=True))
            assert np.prod(launch.block) <= gpu.threads_per_block and launch.block[2] <= 64
            assert launch.shared_bytes <= gpu.static_shared_bytes_per_block


# --- options --------------------------------------------------------------------------------


@pytest.mark.slow_but("float", "bfloat16")
@pytest.mark.parametrize("dtype", ["float", "half", "bfloat16", "double"])
def test_deterministic_forbids_sums_by_atomics(dtype: str, cuda_unit: MakeUnit) -> None:
    source = GOLDEN["scatter_add"][0].replace("float", dtype)
    shapes = GOLDEN["scatter_add"][1]
    assert "tc_atomic_add" in cuda_unit(source, *shapes).source.text
    options = Options(deterministic=True)
    assert "tc_atomic" not in cuda_unit(source, *shapes, options=options).source.text
    for order_free in (source.replace("+=", "max="), source.replace(dtype, "int")):
        text = cuda_unit(order_free, *shapes, options=options).source.text
        assert "tc_atomic" in text, "extremes and integers do not depend on the order"


def test_deterministic_is_right_too(check_emulated: CheckAll) -> None:
    rng = np.random.default_rng(3)
    source, _ = GOLDEN["scatter_add"]
    given = [(50, 7), rng.integers(0, 9, 50).astype(np.int32), (9, 7)]
    check_emulated([(source, given)], options=Options(deterministic=True))
