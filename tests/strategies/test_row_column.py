"""Rows and columns of the same arrays in one kernel: that it is chosen, and that it is right."""

import re
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from tcdsl.costmodel import row_column as model
from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.options import Options
from tcdsl.poly.loop_tree import LoopKind, loops_around, statements_of
from tcdsl.schedule.placement import Space
from tcdsl.strategies import fused_directions, problem
from tcdsl.strategies.templates import row_column
from tests.strategies.crossing_programs import crossing_program
from tests.strategies.test_templates import problems_of
from tests.strategies.waiting_sums import take_the_likeliest

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]
Shapes = list[tuple[int, ...]]

# A plan that fails falls back on a simpler one with a warning: here that is a find too.
pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")

LAYERNORM_BACKWARD = """def f({t}(M,N) x, {t}(M,N) dy, {t}(N) gamma, float(M) mean, float(M) rstd)
        -> ({t}(M,N) dx, {t}(N) dgamma, {t}(N) dbeta) {{
    xhat(i,j) = (float(x(i,j)) - mean(i)) * rstd(i)
    g(i,j) = float(dy(i,j)) * gamma(j)
    gsum(i) +=! g(i,j)
    gdot(i) +=! g(i,j) * xhat(i,j)
    dx(i,j) = rstd(i) * (g(i,j) - (gsum(i) + xhat(i,j) * gdot(i)) / N)
    dgamma(j) +=! dy(i,j) * xhat(i,j)
    dbeta(j) +=! dy(i,j)
}}"""
SOFTMAX_BACKWARD = """def f({t}(M,N) y, {t}(M,N) dy) -> ({t}(M,N) dx, {t}(N) db) {{
    inner(i) +=! float(y(i,j)) * dy(i,j)
    dx(i,j) = y(i,j) * (dy(i,j) - inner(i))
    db(j) +=! dx(i,j)
}}"""
SUMS = "def f({t}(M,N) x) -> (r, c) {{ r(i) +=! x(i,j)\n c(j) +=! x(i,j) }}"
COLUMNS_FIRST = "def f({t}(M,N) x) -> (r, c) {{ c(j) max=! x(i,j)\n r(i) min=! x(i,j) }}"
WITH_TOTAL = """def f({t}(M,N) x) -> (r, t, c) {{
    r(i) max=! x(i,j)
    t +=! x(i,j) * r(i)
    c(j) +=! x(i,j) - r(i)
}}"""
ONTO_OLD = """def f({t}(M,N) x, {t}(N) c) -> (r, c) {{
    r(i) +=! x(i,j)
    c(j) += x(i,j) * r(i)
}}"""
GATHERED = """def f(float(V,N) T, int32(M) I) -> (r, c) {
    r(i) max=! T(I(i),j)
    c(j) +=! T(I(i),j) * r(i)
}"""
SOFTMAX = """def f({t}(M,N) x) -> (y, c) {{
    peak(i) max=! x(i,j)
    e(i,j) = exp(float(x(i,j)) - peak(i))
    total(i) +=! e(i,j)
    y(i,j) = e(i,j) / total(i)
    c(j) +=! y(i,j)
}}"""
ARGMAX = """def f({t}(M,N) x) -> (at, r, c) {{
    at(i) argmax=! x(i,j)
    r(i) max=! x(i,j)
    c(j) +=! x(i,j) - r(i)
}}"""
HEADS = """def f({t}(B,H,Q,K) y, {t}(B,H,Q,K) dy) -> (dx, db) {{
    inner(b,h,q) +=! float(y(b,h,q,k)) * dy(b,h,q,k)
    dx(b,h,q,k) = y(b,h,q,k) * (dy(b,h,q,k) - inner(b,h,q))
    db(h,k) +=! dx(b,h,q,k)
}}"""
MATRICES = {
    "layernorm_backward": LAYERNORM_BACKWARD,
    "softmax_backward": SOFTMAX_BACKWARD,
    "sums": SUMS,
    "columns_first": COLUMNS_FIRST,
    "with_total": WITH_TOTAL,
    "onto_old": ONTO_OLD,
    "softmax": SOFTMAX,
    "argmax": ARGMAX,
}
SIZES = [(0, 5), (5, 0), (1, 1), (1, 64), (64, 1), (3, 7), (13, 63), (37, 64), (97, 131), (5, 2053)]
DTYPES = ("float", "half", "bfloat16", "double")


def shapes_of(name: str, rows: int, columns: int) -> Shapes:
    matrix, row, column = (rows, columns), (columns,), (rows,)
    match name:
        case "layernorm_backward":
            return [matrix, matrix, row, column, column]
        case "softmax_backward":
            return [matrix, matrix]
        case "onto_old":
            return [matrix, row]
        case _:
            return [matrix]


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> Chip:
    """A chip of three multiprocessors, for which small programs are fused wherever they may be."""
    take_the_likeliest(monkeypatch)
    monkeypatch.setattr(model, "LEAST_ROWS", 1)
    monkeypatch.setattr(problem, "MIN_LANES", 2)
    monkeypatch.setattr(
        fused_directions.Estimates,
        "is_faster",
        lambda self, group, _: self.row_column(group) is not None,
    )
    return replace(load_chip("h200"), multiprocessors=3)


@pytest.fixture
def crowded(eager: Chip) -> Chip:
    """A chip whose blocks keep 512 elements of a row, 128 without vectors: clusters have more."""
    return replace(eager, multiprocessors=12, threads_per_block=32, blocks_per_cluster=4)


def crossing(unit: Any) -> list[Any]:
    """Return the kernels of fused row and column reductions."""
    return [k for k in unit.done.plan.kernels if k.template == "row_column"]


# --- chosen ---------------------------------------------------------------------------------


def test_layernorm_backward_reads_its_rows_once(cuda_unit: MakeUnit) -> None:
    source = LAYERNORM_BACKWARD.format(t="float")
    unit = cuda_unit(source, *shapes_of("layernorm_backward", 16384, 4096))
    kernel, fold = unit.done.plan.kernels
    assert [kernel] == crossing(unit)
    assert unit.source.text.count("tc_vload<4>(&x[") == unit.source.text.count("tc_vload<4>(&dy[")
    assert unit.source.text.count("tc_vload<4>(&x[") == 1
    names = set(statements_of(kernel.tree))
    assert {"S2", "S3", "S4", "S5", "S6"} <= names
    assert fold.name == "S5_part2_fold+S6_part4_fold"


def test_sums_of_columns_are_registers(cuda_unit: MakeUnit) -> None:
    source = LAYERNORM_BACKWARD.format(t="float")
    unit = cuda_unit(source, *shapes_of("layernorm_backward", 16384, 4096))
    plan = unit.done.plan
    (kernel,) = crossing(unit)
    for name in ("S5", "S6"):
        placement = plan.placements[plan.scop.by_name[name].write.array]
        assert placement.space is Space.PRIVATE
        kinds = [loop.kind for loop in loops_around(kernel.tree, name)]
        assert kinds[:3] == [LoopKind.BLOCK, LoopKind.SERIAL, LoopKind.THREAD]


def test_sums_are_stored_in_vectors_of_their_own_width(cuda_unit: MakeUnit) -> None:
    source = LAYERNORM_BACKWARD.format(t="bfloat16")
    unit = cuda_unit(source, *shapes_of("layernorm_backward", 16384, 4096))
    assert crossing(unit)
    assert "tc_vload<8>(&x[" in unit.source.text
    assert re.search(r"tc_vstore\(&u0_dgamma_part\d+\[", unit.source.text)


def test_all_blocks_are_on_the_chip_at_once(cuda_unit: MakeUnit) -> None:
    source = LAYERNORM_BACKWARD.format(t="float")
    unit = cuda_unit(source, *shapes_of("layernorm_backward", 16384, 4096))
    (kernel,) = crossing(unit)
    launch = unit.source.launches[0]
    assert launch.grid[0] <= kernel.code.resident_blocks * load_chip("h200").multiprocessors
    assert (
        f"__launch_bounds__({launch.block[0]}, {kernel.code.resident_blocks})" in unit.source.text
    )


def test_explained(cuda_unit: MakeUnit) -> None:
    (kernel,) = crossing(cuda_unit(SUMS.format(t="float"), (16384, 4096)))
    (reason,) = kernel.why
    assert reason.startswith("rows and columns: ") and "rows of x and the sums of columns" in reason


@pytest.mark.slow_but("layernorm_backward", "columns_first", "argmax")
@pytest.mark.parametrize("name", MATRICES)
def test_programs_with_fused_row_and_column_reductions(name: str, cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(MATRICES[name].format(t="float"), *shapes_of(name, 16384, 4096))
    assert len(crossing(unit)) == 1


def test_heads_of_attention_keep_their_own_sums(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(HEADS.format(t="float"), (64, 4, 128, 2048), (64, 4, 128, 2048))
    (kernel,) = crossing(unit)
    assert sorted(unit.source.launches[0].grid)[1] == 4
    assert kernel is unit.done.plan.kernels[0]


@pytest.mark.slow_but("rows too long for registers", "two rows")
@pytest.mark.parametrize(
    ("rows", "columns"),
    [(16384, 65536), (2, 4096), (16, 1024)],
    ids=["rows too long for registers", "two rows", "rows in the cache"],
)
def test_else_it_is_a_kernel_for_either_direction(
    rows: int, columns: int, cuda_unit: MakeUnit
) -> None:
    source = LAYERNORM_BACKWARD.format(t="float")
    assert not crossing(cuda_unit(source, *shapes_of("layernorm_backward", rows, columns)))


@pytest.mark.parametrize("options", [Options(fuse="none"), Options(tile=(8, 64))])
def test_what_is_asked_for_goes_one_way(options: Options, cuda_unit: MakeUnit) -> None:
    assert not crossing(cuda_unit(SUMS.format(t="float"), (16384, 4096), options=options))


# --- right ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", MATRICES)
def test_right_at_all_sizes(
    name: str, check_emulated: CheckAll, cuda_unit: MakeUnit, eager: Chip
) -> None:
    source = MATRICES[name].format(t="float")
    check_emulated([(source, shapes_of(name, *size)) for size in SIZES], gpu=eager)
    unit = cuda_unit(source, *shapes_of(name, 97, 131), gpu=eager)
    assert crossing(unit)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES[1:])
def test_right_in_other_types(dtype: str, check_emulated: CheckAll, eager: Chip) -> None:
    check_emulated([
        (MATRICES[name].format(t=dtype), shapes_of(name, *size))
        for name in ("layernorm_backward", "softmax_backward", "sums")
        for size in ((13, 63), (37, 64))
    ], gpu=eager)  # fmt: skip


@pytest.mark.slow
def test_right_for_heads(check_emulated: CheckAll, eager: Chip) -> None:
    shapes = [(2, 3, 5, 16), (1, 1, 7, 9), (4, 1, 1, 33), (3, 2, 4, 1)]
    check_emulated([(HEADS.format(t="float"), [shape, shape]) for shape in shapes], gpu=eager)


@pytest.mark.slow
@pytest.mark.parametrize("name", MATRICES)
def test_right_where_clusters_share_rows(
    name: str, check_emulated: CheckAll, cuda_unit: MakeUnit, crowded: Chip
) -> None:
    sizes = [(0, 131), (1, 131), (64, 129), (37, 192), (97, 263), (37, 516), (64, 1024), (5, 1021)]
    own = sizes[list(MATRICES).index(name) % 2 :: 2]
    source = MATRICES[name].format(t="float")
    check_emulated([(source, shapes_of(name, *size)) for size in own], gpu=crowded)
    found = [
        kernel
        for size in ((97, 263), (64, 1024))
        for kernel in crossing(cuda_unit(source, *shapes_of(name, *size), gpu=crowded))
    ]
    assert any(" clusters of " in why for kernel in found for why in kernel.why)


def test_right_with_gathered_rows(
    check_emulated: CheckAll, cuda_unit: MakeUnit, eager: Chip
) -> None:
    indices = np.random.default_rng(1).integers(0, 9, 37).astype(np.int32)
    check_emulated([(GATHERED, [(9, 64), indices])], gpu=eager)
    assert crossing(cuda_unit(GATHERED, (9, 64), (37,), gpu=eager))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [Options(cross_block="atomic"), Options(vectorise=False), Options(summation="compensated"),
     Options(deterministic=True)],
    ids=["atomic", "scalar", "compensated", "deterministic"],
)  # fmt: skip
def test_right_with_options(options: Options, check_emulated: CheckAll, eager: Chip) -> None:
    check_emulated([
        (MATRICES[name].format(t="float"), shapes_of(name, 37, 64))
        for name in ("layernorm_backward", "softmax_backward", "with_total")
    ], gpu=eager, options=options)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "count"), [(1, 25), pytest.param(2, 1000, marks=pytest.mark.fuzz)]
)
@pytest.mark.timeout(3600)
def test_random_programs(
    number: int, count: int, check_emulated: CheckAll, cuda_unit: MakeUnit, eager: Chip
) -> None:
    random = Random(number)
    cases = [crossing_program(random) for _ in range(count)]
    for start in range(0, count, 50):
        check_emulated(cases[start : start + 50], gpu=eager)
    found = sum(bool(crossing(cuda_unit(s, *shapes, gpu=eager))) for s, shapes in cases[:25])
    assert found >= 8, "most programs are of one direction"


def test_weights_that_all_rows_read_take_registers() -> None:
    """layernorm's derivative of bfloat16 spilled with three blocks of 256 threads (H200)."""
    found = {}
    for name, weight in (("plain", ""), ("weighted", " * w(j)")):
        source = f"""def f(bfloat16(M,N) x, bfloat16(M,N) d, bfloat16(N) w) -> (e, c, v) {{
            s(i) +=! float(d(i,j)){weight} * x(i,j)
            e(i,j) = float(d(i,j)) - x(i,j) * s(i)
            c(j) +=! float(d(i,j)) * x(i,j)
            v(j) = w(j) + 0.0
        }}"""
        problem_ = next(p for p in problems_of(source, [(16384, 4096)] * 2 + [(4096,)])
                        if row_column.crossing_of(p) is not None)  # fmt: skip
        crossing = row_column.crossing_of(problem_)
        assert crossing is not None
        found[name] = row_column.directions_of(problem_, crossing).kept_bytes
    assert found["weighted"] == found["plain"] + 4
