"""GPU kernels without tiles: what goes to blocks, threads and lanes, and that it is right."""

import json
import re
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.options import Options
from tcdsl.poly.loop_tree import Loop, LoopKind, loops_of
from tcdsl.poly.scop import Kind
from tcdsl.schedule.mapping import Mapped
from tcdsl.strategies.lowering import grid_in_memory_order
from tcdsl.strategies.schedule import Tile
from tcdsl.testing import check

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]

REDUCTIONS = {
    "row": "y(i) +=! x(i,j)",
    "column": "y(j) +=! x(i,j)",
    "all": "y +=! x(i,j)",
    "row_max": "y(i) max=! x(i,j)",
    "column_min": "y(j) min=! x(i,j)",
    "arg": "y(i) argmax=! x(i,j)",
    "arg_column": "y(j) argmin=! x(i,j)",
}
SMALL = [
    (0, 5), (5, 0), (1, 1), (1, 64), (64, 1), (3, 7), (13, 63), (63, 13), (64, 64), (65, 63),
    (7, 127), (127, 7), (200, 65), (2, 1031),
]  # fmt: skip
# Enough for packed rows, blocks, columns with lanes, chunks of what is reduced.
LARGE = [(2000, 16), (700, 65), (65, 700), (4099, 9), (9, 4099), (20011, 3), (3, 16384), (1, 40001)]


def matrix(statement: str, dtype: str = "float") -> str:
    return f"def f({dtype}(M,N) x) -> (y) {{ {statement} }}"


def loops(unit: Any, kernel: int = 0) -> list[Loop]:
    return list(loops_of(unit.done.plan.kernels[kernel].tree))


def grid_and_block(unit: Any, kernel: int = 0) -> tuple[Any, Any]:
    launch = unit.source.launches[kernel]
    return launch.grid, launch.block


# --- right ----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_a_matrix(name: str, check_emulated: CheckAll) -> None:
    check_emulated([(matrix(REDUCTIONS[name]), [shape]) for shape in (*SMALL, *LARGE)])


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_on_a_small_chip(name: str, check_emulated: CheckAll, small_chip: Chip) -> None:
    check_emulated([(matrix(REDUCTIONS[name]), [shape]) for shape in SMALL], gpu=small_chip)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["double", "half", "bfloat16", "int8", "uint32", "int64"])
def test_reductions_in_other_types(dtype: str, check_emulated: CheckAll) -> None:
    shapes = [(3, 7), (2000, 16), (9, 4099), (700, 65)]
    check_emulated([
        (matrix(REDUCTIONS[name], dtype), [shape])
        for number, name in enumerate(("row", "column", "all", "arg"))
        for shape in shapes[number % 2 :: 2]
    ])  # fmt: skip


@pytest.mark.slow
def test_any_axes_of_a_cube(check_emulated: CheckAll) -> None:
    kept = ("i,k", "k,i", "j", "k", "i", "j,k", "k,j", "i,j", "")
    shapes = [(3, 5, 7), (0, 3, 4), (4, 64, 33), (65, 15, 7), (2, 700, 65), (3, 2000, 2)]
    targets = [f"y({indices})" if indices else "y" for indices in kept]
    check_emulated([
        (f"def f(float(A,B,C) x) -> (y) {{ {target} +=! x(i,j,k) }}", [shape])
        for number, target in enumerate(targets) for shape in shapes[number % 2 :: 2]
    ])  # fmt: skip


@pytest.mark.slow
def test_transpositions(check_emulated: CheckAll) -> None:
    names = ["i", "j", "k"]
    check_emulated([
        (f"def f(float(A,B,C) x) -> (y) {{ y({','.join(order)}) = x(i,j,k) + 1.0 }}", [shape])
        for order in permutations(names) for shape in ((3, 5, 7), (33, 65, 4), (2, 70, 132))
    ])  # fmt: skip


@pytest.mark.slow
def test_inputs_with_other_strides(check_emulated: CheckAll) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(66, 140)).astype(np.float32)
    views = [x.T, x[::-1], x[:, ::-2], x[1:, 3:], np.broadcast_to(x[:1], x.shape), x[::3, ::-1]]
    sources = [matrix(text) for text in (*REDUCTIONS.values(), "y(i,j) = x(i,j) * 2.0")]
    check_emulated([
        (source, [view])
        for number, source in enumerate(sources) for view in views[number % 2 :: 2]
    ])  # fmt: skip


# --- the mapping ----------------------------------------------------------------------------


def test_neighbours_in_memory_are_neighbouring_threads(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(matrix("y(i,j) = x(i,j) * 2.0"), (1000, 1000))
    (thread,) = [la for la in loops(unit) if la.kind is LoopKind.THREAD and la.axis == 0]
    statement = unit.done.plan.scop.by_name["S0"]
    last = statement.write.subscripts[-1].name
    assert statement.indices[thread.coordinates["S0"].position] == last


def test_blocks_start_in_the_order_of_memory(cuda_unit: MakeUnit) -> None:
    """Blocks along a row are neighbours, unless there are more rows than a grid has along y."""
    bias = "def f(float(M,N) x, float(N) b) -> (y) { y(i,j) = x(i,j) + b(j) }"
    (kernel,) = cuda_unit(bias, (3000, 8192), (8192,)).source.kernels
    assert kernel.grid[0] < kernel.grid[1] == 3000
    (kernel,) = cuda_unit(bias, (70000, 8192), (8192,)).source.kernels
    assert kernel.grid[0] == 70000 and kernel.grid[1] > 1


def test_axes_of_the_grid_are_in_the_order_of_memory_while_they_have_room() -> None:
    chip = load_chip("h200")
    assert chip.grid[1] == 65535

    def axes(*blocks: int) -> list[int]:
        return grid_in_memory_order([Tile({}, count, 0) for count in blocks], chip)

    assert axes(3, 65535) == [0, 1] and axes(1, 4000, 3) == [-1, 0, 1]
    assert axes(3, 65536) == [1, 0] and axes(2, 1, 65536) == [1, -1, 0]


def test_transposed_neighbours_are_vectors_of_loads_and_of_stores(cuda_unit: MakeUnit) -> None:
    """What is read is copied along its rows, and the result is stored along its own."""
    unit = cuda_unit(matrix("y(j,i) = x(i,j) * 2.0"), (1000, 1000))
    assert [kernel.template for kernel in unit.done.plan.kernels] == ["transpose"]
    lanes = [la for la in loops(unit) if la.kind is LoopKind.LANES]
    found = {name: c.position for la in lanes for name, c in la.coordinates.items()}
    copy, written = (unit.done.plan.scop.by_name[name] for name in ("x.tile0S0_copy", "S0"))
    assert found == {
        copy.name: copy.indices.index("e1"),  # of the tile [o0, o1, e0, e1] of x(i,j)
        written.name: written.indices.index(written.write.subscripts[-1].name),
    }


def test_short_rows_are_packed_into_a_block(cuda_unit: MakeUnit) -> None:
    """Each in part of a warp, so that their sums need no barrier."""
    unit = cuda_unit(matrix(REDUCTIONS["row"]), (2000, 64))
    grid, (x, y, _) = grid_and_block(unit)
    assert x <= 32 and y > 1 and grid[0] * y >= 2000 > grid[0]
    assert "__syncthreads" not in unit.source.text


def test_a_long_row_has_a_block(cuda_unit: MakeUnit) -> None:
    grid, block = grid_and_block(cuda_unit(matrix(REDUCTIONS["row"]), (300, 4096)))
    assert grid == (300, 1, 1) and block[0] >= 256 and block[1:] == (1, 1)
    _, wide = grid_and_block(cuda_unit(matrix(REDUCTIONS["row"]), (300, 100_000)))
    assert block[0] <= wide[0] <= 1024


@pytest.mark.parametrize(
    ("name", "shape"), [("all", (1000, 1000)), ("row", (4, 2_000_000)), ("column", (100_000, 8))]
)
def test_few_results_are_summed_in_chunks(
    name: str, shape: tuple[int, int], cuda_unit: MakeUnit
) -> None:
    """Blocks share a sum; the last one adds up what they found, always in the same order."""
    unit = cuda_unit(matrix(REDUCTIONS[name]), shape)
    (launch,) = unit.source.launches
    assert np.prod(launch.grid) >= 16 and "tc_last_block" in unit.source.text
    assert any("chunks of" in reason for reason in launch.why)
    assert "tc_atomic" not in unit.source.text


def test_no_chunks_where_blocks_are_many(cuda_unit: MakeUnit) -> None:
    assert len(cuda_unit(matrix(REDUCTIONS["row"]), (300, 4096)).source.launches) == 1
    assert len(cuda_unit(matrix(REDUCTIONS["row"]), (2, 64)).source.launches) == 1


def test_columns_share_what_is_reduced(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(matrix(REDUCTIONS["column"]), (1000, 67))
    _, (x, y, _) = grid_and_block(unit)
    assert x * y >= 64 and y > 1 and "tc_fold_y" in unit.source.text


@pytest.mark.parametrize(
    ("columns", "dtype", "width"),
    [(4096, "float", 4), (4098, "float", 4), (4097, "float", 4), (4096, "half", 8),
     (4100, "half", 8), (4096, "double", 2), (4096, "int8", 16), (202, "float", 2)],
)  # fmt: skip
def test_rows_are_read_in_vectors_that_fit_them(
    columns: int, dtype: str, width: int, cuda_unit: MakeUnit
) -> None:
    text = cuda_unit(matrix(REDUCTIONS["row_max"], dtype), (300, columns)).source.text
    found = {int(n) for n in re.findall(r"tc_vload(?:_some)?(?:_once)?<(\d+)>", text)}
    assert found == {width}


def test_a_graph_of_rows_is_one_kernel(cuda_unit: MakeUnit, check_emulated: CheckAll) -> None:
    source = """def f(float(N,D) x, float(D) g) -> (y) {
        mean(i) +=! x(i,j)
        c(i,j) = x(i,j) - mean(i) / float(D)
        var(i) +=! c(i,j) * c(i,j)
        y(i,j) = c(i,j) * rsqrt(var(i) / float(D) + 0.00001) * g(j)
    }"""
    for shape in ((300, 1000), (2000, 64)):
        unit = cuda_unit(source, shape, shape[1:])
        assert len(unit.source.launches) == 1
    check_emulated([(source, [s, s[1:]]) for s in ((3, 1000), (300, 64), (1, 1), (7, 33))])


def test_nothing_is_fused_that_must_not_be(cuda_unit: MakeUnit, check_emulated: CheckAll) -> None:
    """Each block would need the sum of all."""
    source = "def f(float(N) x) -> (y) { s +=! x(i)\n y(i) = x(i) / s }"
    assert len(cuda_unit(source, (1_000_000,)).source.launches) >= 2
    check_emulated([(source, [(n,)]) for n in (1, 1000, 20_000)])


@pytest.mark.slow
@pytest.mark.parametrize("form", ["y(i) = y(i - 1) * 0.5 + x(i)", "y(i) = y(i - 1) + x(i)"])
def test_a_recurrence_stays_in_order(form: str, check_emulated: CheckAll) -> None:
    source = f"def f(float(N) x) -> (y) {{ y(i) = x(i)\n {form} where i in 1:N }}"
    check_emulated([(source, [(n,)]) for n in (1, 2, 33, 300)])
    rows = source.replace("(N)", "(N,M)").replace("(i)", "(i,j)").replace("(i - 1)", "(i - 1,j)")
    rows = rows.replace("i in 1:N", "i in 1:N, j in 0:M")
    check_emulated([(rows, [shape]) for shape in ((1, 1), (9, 70), (30, 300))])


def test_initialisations_have_the_padded_domain(cuda_unit: MakeUnit) -> None:
    """Every thread that takes part in a fold has a partial sum, if only the identity."""
    plan = cuda_unit(matrix(REDUCTIONS["row"]), (300, 100)).done.plan
    mapped = Mapped(plan.scop, plan.kernels[0].tree)
    inits = [s for s in plan.scop.statements if s.kind is Kind.INIT and "part" in s.name]
    assert inits and all(not mapped.is_uniform(s.name, 0) for s in inits)
    width = mapped.block[0]
    assert all(str(width - 1) in str(s.domain) for s in inits)


GRAPHS = {
    "softmax": """def f(float(N,D) x) -> (y) {
        m(i) max=! x(i,j)
        s(i) +=! exp(x(i,j) - m(i))
        y(i,j) = exp(x(i,j) - m(i)) / s(i)
    }""",
    "rows_and_columns": """def f(float(N,M) x) -> (y) {
        r(i) +=! x(i,j)
        c(j) +=! x(i,j)
        y(i,j) = x(i,j) - r(i) - c(j)
    }""",
    "transposed": """def f(float(N,M) x) -> (y) {
        a(j,i) = x(i,j) * 2.0
        y(i) +=! a(j,i)
    }""",
    "twice": """def f(float(N,M) x) -> (y) {
        t +=! x(i,j)
        y(i) +=! x(i,j) * t
        t max=! y(i)
        y(i) = y(i) / (fabs(t) + 1.0)
    }""",
    "guarded": """def f(float(N,M) x) -> (y) {
        a(i,j) = x(i,j) * 2.0
        y(i,j) = a(i,j) + (j >= 1 ? a(i,j-1) : 0.0) + (i >= 2 ? a(i-2,j) : 0.0)
            where i in 0:N, j in 0:M
    }""",
    "triangle": """def f(float(N,M) x) -> (y, z) {
        y(i) +=! x(i,j) where i in 0:min(N, M), j in 0:i+1
        z(i,j) = j <= i ? x(i,j) : 0.0 where i in 0:N, j in 0:M
    }""",
}
GRAPH_SIZES = [(1, 1), (0, 5), (5, 0), (5, 7), (63, 64), (64, 65), (65, 300), (3000, 9)]


@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs(name: str, check_emulated: CheckAll) -> None:
    check_emulated([(GRAPHS[name], [shape]) for shape in GRAPH_SIZES])


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", GRAPHS)
def test_graphs_on_a_small_chip(name: str, check_emulated: CheckAll, small_chip: Chip) -> None:
    check_emulated([(GRAPHS[name], [shape]) for shape in GRAPH_SIZES[:-2]], gpu=small_chip)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        Options(vectorise=False), Options(fuse="none"), Options(coalesce=False),
        Options(scheduler="source_order"), Options(deterministic=True),
    ],
    ids=lambda options: str(options)[:60],
)  # fmt: skip
def test_graphs_whatever_the_options(options: Options, check_emulated: CheckAll) -> None:
    cases = [(graph, [shape]) for graph in GRAPHS.values() for shape in ((5, 7), (64, 65))]
    check_emulated(cases, options=options)


def test_few_short_rows_have_as_many_threads_as_vectors(cuda_unit: MakeUnit) -> None:
    """Idle threads would be a branch around every load, each of which waited for the one before."""
    source = "def f(float(N,C,P) x) -> (y) { y(c) +=! x(n,c,p) }"
    unit = cuda_unit(source, (4, 3, 64), options=Options(coalesce=False))
    assert grid_and_block(unit) == ((3, 1, 1), (16, 1, 1))
    assert "if (c" not in unit.source.text


STEPS = """def step(float(B,2,N) p, float(B,N) c) -> (float(B,N) d) {
    d(b,n) = sigmoid(p(b,0,n)) * tanh(c(b,n)) + sigmoid(p(b,1,n))
}
def f(float(B,N) c, float(B,2,N) p) -> (float(B,N) d0, float(B,N) d1, float(B,N) d2, float(B,N) y) {
    d0 = step(p, c)
    d1 = step(p, d0)
    d2 = step(p, d1)
    d3 = step(p, d2)
    d4 = step(p, d3)
    y = step(p, d4)
}"""


@pytest.mark.parametrize(("extent", "may_repeat"), [(512, True), (509, False)])
def test_long_chains_have_no_guards_between_their_loads(
    extent: int, may_repeat: bool, cuda_unit: MakeUnit
) -> None:
    unit = cuda_unit(STEPS, (255, extent), (255, 2, extent))
    (weighed,) = unit.done.plan.weighed
    repeats = {
        c["config"]["repeat"] for c in weighed.candidates() if c["template"] == "elementwise"
    }
    assert (len(repeats) > 1) == may_repeat
    (chosen,) = (c["config"] for c in weighed.candidates() if c.get("is_chosen"))
    assert chosen["repeat"] == 1 or may_repeat


@pytest.mark.slow_but("7-144")
@pytest.mark.parametrize(("rows", "columns"), [(100, 20), (7, 144), (1000, 9)])
def test_blocks_as_wide_as_rows(rows: int, columns: int) -> None:
    """Of short rows no thread is idle, whatever their length: 5 x 51 threads for five vectors."""
    source = "def f(float(N,C) x, float(C) b) -> (y) { y(n,c) = tanh(x(n,c)) + b(c) }"
    rng = np.random.default_rng(0)
    inputs = [rng.random(shape, dtype=np.float32) for shape in ((rows, columns), (columns,))]
    f = tcdsl.define(source)["f"]
    (kernel,) = {c["kernel"] for c in f.compile(*inputs, target="emulate").candidates}
    configs = [
        c["config"]
        for c in f.compile(*inputs, target="emulate").candidates
        if c["template"] == "elementwise" and c["config"]["threads_x"].bit_count() > 1
    ]
    assert configs
    for config in configs[:3]:
        entry = {"kernel": kernel, "template": "elementwise", **config}
        asked = {"format": "tcdsl choices", "version": 1, "kernels": [entry]}
        check(f, *inputs, targets="emulate", options=Options(choices=json.dumps(asked)))
