"""isl's schedules on blocks, threads and wavefronts, and the options of GPU kernels."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.interp.arithmetic import Array
from tcdsl.options import Options
from tcdsl.plan.gpu_planner import plan_for_gpu
from tcdsl.poly.loop_tree import LoopKind, Node, loops_of, statements_of
from tcdsl.poly.scop import Kind, Scop
from tcdsl.poly.verify import why_not_free_of_races
from tcdsl.schedule.fusion import Group
from tcdsl.strategies import gpu_bands, gpu_generic, requested
from tcdsl.strategies.gpu_generic import IslKernels
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.schedule import Bands
from tcdsl.strategies.shapes import shapes_of
from tcdsl.testing import programs

MakeUnit = Callable[..., Any]
CheckAll = Callable[..., None]
Lower = Callable[..., Scop]

pytestmark = pytest.mark.filterwarnings("error")  # no step down the driver's levels of fallback

ISL = Options(scheduler="isl")

MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
SOFTMAX = """def f(float(N,D) x) -> (y) {
    m(i) max=! x(i,j)
    s(i) +=! exp(x(i,j) - m(i))
    y(i,j) = exp(x(i,j) - m(i)) / s(i)
}"""
TRIANGLE = "def f(float(N,M) x) -> (y) { y(i) +=! x(i,j) where j in 0:i+1 }"
LOWER = """def f(float(N,M) x) -> (y) {
    y(i,j) = 0.0 where i in 0:N, j in 0:N
    y(i,j) = x(i,j) * 2.0 where i in 0:N, j in 0:i+1
}"""
HALF = "def f(float16(M,N) x) -> (y) { y(i) +=! x(i,j) }"
SUM = "def f(float(N) x) -> (s) { s +=! x(i) }"
MEAN = "def f(float(N) x) -> (y) { s +=! x(i)  y(i) = x(i) / s }"
SCAN = """def f(float(N) x) -> (y) {
    y(i) = x(i)
    y(i) = y(i-1) + x(i) where i in 1:N
}"""
SCATTER = "def f(float(V) y, int32(E) I, float(E) g) -> (y) { y(I(e)) += g(e) }"
STEPS = """def f(float(M,N) a) -> (d) {
    b(i,j) = 0.25 * (a(i-1,j) + a(i+1,j) + a(i,j-1) + a(i,j+1)) where i in 1:M-1, j in 1:N-1
    c(i,j) = 0.25 * (b(i-1,j) + b(i+1,j) + b(i,j-1) + b(i,j+1)) where i in 2:M-2, j in 2:N-2
    d(i,j) = c(i+2,j+2) + 1.0 where i in 0:M-4, j in 0:N-4
}"""


def recurrence(dims: str, sizes: str, terms: str, low: int = 1, high: int = 0) -> str:
    """Return ``c = a``, then ``c(dims) = terms`` away from the borders; dimension b is a batch."""
    names, ends = dims.split(","), sizes.split(",")
    whole = ", ".join(f"{n} in 0:{e}" for n, e in zip(names, ends, strict=True))
    inner = ", ".join(
        f"{n} in 0:{e}" if n == "b" else f"{n} in {low}:{e}{-high or ''}"
        for n, e in zip(names, ends, strict=True)
    )
    return f"""def f(float({sizes}) a) -> (c) {{
        c({dims}) = a({dims}) where {whole}
        c({dims}) = {terms} where {inner}
    }}"""


WAVE = recurrence("i,j", "M,N", "0.5 * c(i-1,j) + 0.25 * c(i,j-1) + a(i,j)")
CUBE = recurrence("i,j,k", "L,M,N", "0.5 * c(i-1,j,k) + 0.25 * c(i,j-1,k) + 0.25 * c(i,j,k-1)")
BATCH = recurrence("b,i,j", "B,M,N", "0.5 * c(b,i-1,j) + 0.25 * c(b,i,j-1)")
DIAGONAL = recurrence("i,j", "M,N", "0.5 * c(i-1,j-1) + a(i,j)")
COLUMNS = recurrence("i,b", "M,B", "0.5 * c(i-1,b) + a(i,b)")
JACOBI = recurrence("t,i", "T,N", "0.25 * c(t-1,i-1) + 0.5 * c(t-1,i) + 0.25 * c(t-1,i+1)", 1, 1)
JACOBI_2D = recurrence(
    "t,i,j", "T,M,N",
    "0.25 * (c(t-1,i-1,j) + c(t-1,i+1,j) + c(t-1,i,j-1) + c(t-1,i,j+1))", 1, 1,
)  # fmt: skip
SEIDEL = recurrence("t,i", "T,N", "0.25 * c(t-1,i) + 0.5 * c(t,i-1) + 0.25 * c(t-1,i+1)", 1, 1)
# The row before in reverse order: no function of t and i carries it but t.
REVERSED = "c({0}t-1,N-1-i) + 0.5 * c({0}t-1,i)"
MIRROR = recurrence("b,t,i", "B,T,N", REVERSED.format("b,")).replace("i in 1:N", "i in 0:N")
NETWORK = """def f(float(T,N) x, float(N,N) W) -> (h) {
    h(t,i) = x(t,i) where t in 0:T, i in 0:N
    h(t,i) += W(i,j) * h(t-1,j) where t in 1:T
}"""
SOLVE = """def f(float(B,N) x, float(N,N) W) -> (y) {
    y(b,i) = x(b,i) where b in 0:B
    y(b,i) += W(i,j) * y(b,j) where j in 0:i
}"""

CASES: tuple[tuple[str, Sequence[Any]], ...] = (
    *((MATMUL, [(m, k), (k, n)]) for m, k, n in ((7, 11, 9), (65, 3, 70), (1, 1, 1), (0, 3, 2))),
    *((SOFTMAX, [shape]) for shape in ((5, 13), (67, 41), (1, 1), (0, 5), (300, 2))),
    *((source, [(n, n)]) for source in (TRIANGLE, LOWER) for n in (0, 1, 2, 13, 71)),
    *((WAVE, [shape]) for shape in ((1, 1), (2, 1), (2, 2), (7, 11), (3, 71), (41, 4))),
    *((CUBE, [shape]) for shape in ((1, 1, 1), (2, 3, 2), (3, 4, 5))),
    *((BATCH, [shape]) for shape in ((1, 5, 7), (3, 5, 11), (0, 5, 5))),
    *((JACOBI, [shape]) for shape in ((2, 2), (3, 3), (5, 37))),
    *((JACOBI_2D, [shape]) for shape in ((2, 3, 3), (4, 7, 9))),
    *((SEIDEL, [shape]) for shape in ((3, 3), (7, 23))),
    *((MIRROR, [shape]) for shape in ((1, 2, 3), (5, 4, 7), (40, 3, 4))),
    *((STEPS, [shape]) for shape in ((4, 4), (5, 5), (37, 23))),
    (DIAGONAL, [(8, 7)]),
    (DIAGONAL, [(3, 40)]),
    (COLUMNS, [(9, 70)]),
    (NETWORK, [(5, 13), (13, 13)]),
    (SOLVE, [(3, 11), (11, 11)]),
    (SOLVE, [(40, 5), (5, 5)]),
    (HALF, [(5, 33)]),
    (HALF, [(65, 3)]),
    (SUM, [(100,)]),
    (MEAN, [(100,)]),
    (SCAN, [(13,)]),
    (SCATTER, [(9,), np.arange(50, dtype=np.int32) * 7 % 9, (50,)]),
    ("def f(float(M,N) x) -> (y) { y(i) argmax=! x(i,j) }", [(5, 7)]),
    ("def f(float(M,N) x) -> (y) { y(j,i) = x(i,j) }", [(37, 41)]),
    ("def f(float s, float(N) x) -> (y, t) { y(i) = s * x(i)  t = s + 1.0 }", [(), (7,)]),
)
OPTIONS = {
    "isl": ISL,
    "isl in tiles": Options(scheduler="isl", tile=(4, 5)),
    "isl, one value a tile": Options(scheduler="isl", tile=(1, 1, 1)),
    "isl, each alone": Options(scheduler="isl", fuse="none", coalesce=False),
    "isl, scalar": Options(scheduler="isl", vectorise=False, deterministic=True),
    "auto": Options(),
    "tiles": Options(tile=(4, 6, 5)),
    "long tiles": Options(tile=(100, 3)),
    "scalar": Options(vectorise=False),
}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, small_chip: Chip) -> Chip:
    """A chip on which small programs get many blocks, and blocks few threads."""
    monkeypatch.setattr(gpu_bands, "BLOCK_THREADS", 16)
    monkeypatch.setattr(gpu_bands, "WARP", 4)
    monkeypatch.setattr(gpu_bands, "ENOUGH_THREADS", 8)
    monkeypatch.setattr(gpu_generic, "ENOUGH_THREADS", 8)
    monkeypatch.setattr(gpu_generic, "MIN_RECURRENCE", 1)
    monkeypatch.setattr(requested, "BLOCK_THREADS", 16)
    return replace(
        load_chip("h200"),
        multiprocessors=3,
        threads_per_multiprocessor=32,
        threads_per_block=32,
        grid_x_blocks=7,
        grid_y_blocks=3,
        grid_z_blocks=2,
    )


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """isl is asked for recurrences of any length."""
    monkeypatch.setattr(gpu_generic, "MIN_RECURRENCE", 1)


def trees(unit: Any) -> list[Node]:
    return [kernel.tree for kernel in unit.done.plan.kernels]


def loop_kinds(tree: Node) -> list[str]:
    return [
        f"{loop.kind}.{'xyz'[loop.axis]}" if loop.width else loop.kind for loop in loops_of(tree)
    ]


def launches(unit: Any) -> list[tuple[Any, Any]]:
    return [(launch.grid, launch.block) for launch in unit.source.launches]


def n_barriers(unit: Any, tree: Node) -> int:
    statements = unit.done.plan.scop.by_name
    return sum(statements[name].kind is Kind.BARRIER for name in statements_of(tree))


# --- right ----------------------------------------------------------------------------------


@pytest.mark.one_in(2)  # the others are run on a small chip
@pytest.mark.slow
@pytest.mark.parametrize("name", ["isl in tiles", "isl", "long tiles", "tiles"])
def test_results_are_right(name: str, check_emulated: CheckAll, eager: None) -> None:
    check_emulated(CASES, options=OPTIONS[name])


# Those that no other test has are in the slow run.
ALONE = "isl, one value a tile", "isl, each alone", "isl, scalar", "scalar"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in ALONE else pytest.mark.fuzz) for n in OPTIONS],
)
def test_results_are_right_on_a_small_chip(name: str, check_emulated: CheckAll, tiny: Chip) -> None:
    check_emulated(CASES, gpu=tiny, options=OPTIONS[name])


def random_recurrence(draw: random.Random) -> tuple[str, list[tuple[int, ...]]]:
    """Return a recurrence over elements that come before in the order of its loops."""
    rank = draw.choice((1, 2, 2, 2, 3))
    names = ["i", "j", "k"][:rank]
    terms = ["a({})".format(",".join(names))]
    for _ in range(draw.randint(1, 3)):
        lead = draw.randrange(rank)
        offsets = [0] * lead + [-draw.randint(1, 2)]
        offsets += [draw.randint(-2, 2) for _ in range(rank - lead - 1)]
        terms.append("0.25 * c({})".format(",".join(
            n + f"{o:+d}" * bool(o) for n, o in zip(names, offsets, strict=True)
        )))  # fmt: skip
    sizes = ["L", "M", "N"][:rank]
    shape = tuple(draw.choice((4, 5, 7, 11)) for _ in names)
    return recurrence(",".join(names), ",".join(sizes), " + ".join(terms), 2, 2), [shape]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["isl", "auto"])
def test_random_recurrences(name: str, check_emulated: CheckAll, tiny: Chip) -> None:
    draw = random.Random(17)
    cases = [random_recurrence(draw) for _ in range(30)]
    check_emulated(cases, gpu=tiny, options=OPTIONS[name])
    check_emulated(cases[:10], options=OPTIONS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["isl", "isl in tiles", "tiles", "scalar"])
def test_random_programs(name: str, check_emulated: CheckAll, tiny: Chip) -> None:
    drawn: list[tuple[str, Mapping[str, Array]]] = []

    @seed(43)
    @settings(
        max_examples=16, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(programs())
    def draw(program: tuple[str, Mapping[str, Array]]) -> None:
        drawn.append(program)

    draw()
    cases = [(source, list(inputs.values())) for source, inputs in drawn]
    check_emulated(cases, gpu=tiny, options=OPTIONS[name])


# --- blocks and threads -----------------------------------------------------------------------


def test_coincident_members_go_to_blocks_and_threads(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(MATMUL, (256, 300), (300, 512), options=ISL)
    (tree,) = trees(unit)
    assert loop_kinds(tree) == ["block.x", "block.y", "thread.y", "thread.x", "serial"]
    (grid, block) = launches(unit)[0]
    assert prod(grid) * prod(block) == 256 * 512 and block == (32, 8, 1)
    inner = next(loop for loop in loops_of(tree) if loop.kind is LoopKind.THREAD and loop.axis == 0)
    assert inner.coordinates["S0"].position == 1, "threads.x walk neighbours of C and B"


def test_a_transposed_walk_has_neighbours_on_threads_x(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit("def f(float(M,N) x) -> (y) { y(i,j) = x(j,i) * x(j,i+1) where i in 0:N-1 }",
                     (256, 256), options=ISL)  # fmt: skip
    (tree,) = trees(unit)
    inner = next(loop for loop in loops_of(tree) if loop.kind is LoopKind.THREAD and loop.axis == 0)
    assert inner.coordinates["S0"].position == 0


@pytest.mark.parametrize("source, shapes", [
    (MATMUL, [(2, 3), (3, 1)]),
    (MATMUL, [(64, 64), (64, 64)]),
    (SOFTMAX, [(2, 3)]),
    (SOFTMAX, [(40, 300)]),
    (STEPS, [(6, 6)]),
    (LOWER, [(2, 2)]),
    (TRIANGLE, [(33, 33)]),
    (DIAGONAL, [(9, 9)]),
    (BATCH, [(2, 5, 5)]),
    (HALF, [(5, 33)]),
])  # fmt: skip
def test_outer_coincident_loops_are_on_several_blocks(
    source: str, shapes: Any, cuda_unit: MakeUnit
) -> None:
    grids = [prod(grid) for grid, _ in launches(cuda_unit(source, *shapes, options=ISL))]
    assert min(grids) > 1


def test_blocks_beyond_the_grid_take_turns(cuda_unit: MakeUnit, small_chip: Chip) -> None:
    unit = cuda_unit(MATMUL, (300, 5), (5, 200), gpu=small_chip, options=ISL)
    (grid, _) = launches(unit)[0]
    assert grid == (7, 3, 1)
    blocks = [loop for loop in loops_of(trees(unit)[0]) if loop.kind is LoopKind.BLOCK]
    assert all((loop.extent or 0) > loop.width for loop in blocks)


def test_tiles_are_those_that_were_asked_for(cuda_unit: MakeUnit) -> None:
    options = Options(scheduler="isl", tile=(6, 40, 50))
    unit = cuda_unit(MATMUL, (256, 300), (300, 512), options=options)
    (tree,) = trees(unit)
    (grid, block) = launches(unit)[0]
    assert sorted(grid) == [1, -(-512 // 40), -(-256 // 6)] and block == (40, 6, 1)
    divs = [loop.coordinates["S0"].div for loop in loops_of(tree)]
    assert divs.count(50) == 1, "the reduced loop is in tiles too"


def test_a_tile_with_more_points_than_threads_takes_turns(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(MATMUL, (64, 5), (5, 4096), options=Options(scheduler="isl", tile=(1, 1000)))
    (_, block) = launches(unit)[0]
    assert block == (256, 1, 1)


def test_parts_in_order_are_kernels_in_order(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(SOFTMAX, (500, 700), options=ISL)
    names = [set(statements_of(tree)) for tree in trees(unit)]
    assert names == [{"S0_init", "S0"}, {"S1_init", "S1"}, {"S2"}]
    assert all("isl" in launch.why[0] for launch in unit.source.launches)


def test_every_statement_may_be_a_kernel(cuda_unit: MakeUnit) -> None:
    twice = "def f(float(N) x) -> (y, z) { y(i) = x(i) + 1.0  z(i) = y(i) * 2.0 }"
    assert len(trees(cuda_unit(twice, (1000,), options=ISL))) == 1
    assert len(trees(cuda_unit(twice, (1000,), options=Options(scheduler="isl", fuse="none")))) == 2


def test_half_types_are_summed_in_their_own_accumulators(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(HALF, (500, 33), options=ISL)
    assert unit.source.workspace_bytes == 0, "the accumulator is a register"
    assert any("float " in line for line in unit.source.text.splitlines()), "in float32"


# --- recurrences ------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [ISL, Options()])
def test_a_recurrence_runs_as_a_wavefront(options: Options, cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(WAVE, (100, 90), options=options)
    tree = trees(unit)[-1]
    assert loop_kinds(tree) == ["serial", "thread.x"] and n_barriers(unit, tree) == 1
    front, threads = loops_of(tree)
    assert front.extent == 99 + 89 - 1 and threads.extent == 89, "the longer loop is what is left"
    assert launches(unit)[-1] == ((1, 1, 1), (89, 1, 1))
    assert any("wavefront" in reason for reason in unit.source.launches[-1].why)


@pytest.mark.parametrize("options", [ISL, Options()])
def test_time_steps_are_in_order_and_space_on_threads(
    options: Options, cuda_unit: MakeUnit
) -> None:
    unit = cuda_unit(JACOBI_2D, (20, 50, 60), options=options)
    tree = trees(unit)[-1]
    assert loop_kinds(tree) == ["serial", "thread.x", "thread.y"]
    time, x, y = loops_of(tree)
    positions = [loop.coordinates["S1"].position for loop in (time, x, y)]
    assert positions == [0, 2, 1], "t + i and t + j are threads i and j, neighbours along x"
    assert n_barriers(unit, tree) == 1 and launches(unit)[-1][1] == (58, 17, 1)


@pytest.mark.parametrize("options", [ISL, Options()])
def test_few_recurrences_have_a_block_each(options: Options, cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(BATCH, (7, 40, 50), options=options)
    assert loop_kinds(trees(unit)[-1]) == ["block.x", "serial", "thread.x"]
    assert launches(unit)[-1] == ((7, 1, 1), (39, 1, 1))


def test_many_recurrences_have_a_thread_each(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(BATCH, (5000, 4, 5), options=ISL)
    assert loop_kinds(trees(unit)[-1]) == ["block.x", "thread.x", "serial", "serial"]


def test_loops_further_inside_share_a_block_with_rows(
    cuda_unit: MakeUnit, monkeypatch: pytest.MonkeyPatch
) -> None:
    unit = cuda_unit(MIRROR, (3000, 7, 40), options=ISL)
    tree = trees(unit)[-1]
    assert loop_kinds(tree) == ["block.x", "thread.y", "serial", "thread.x"]
    assert n_barriers(unit, tree) == 1 and launches(unit)[-1][1] == (32, 8, 1)


def test_auto_asks_isl_only_where_threads_are_few(cuda_unit: MakeUnit, lower: Lower) -> None:
    def is_asked(source: str, *shapes: tuple[int, ...]) -> bool:
        unit = cuda_unit(source, *shapes)
        return any("isl" in reason for launch in unit.source.launches for reason in launch.why)

    assert is_asked(WAVE, (40, 50)) and not is_asked(WAVE, (5, 5))
    assert is_asked(BATCH, (7, 40, 50)) and not is_asked(BATCH, (5000, 10, 10))
    assert not is_asked(SCAN, (5000,)) and not is_asked(COLUMNS, (50, 50))
    assert not is_asked(MATMUL, (64, 64), (64, 64))


# --- what is left to others ---------------------------------------------------------------------


def test_sums_that_isl_leaves_to_one_thread_have_partial_sums(cuda_unit: MakeUnit) -> None:
    for source in (SUM, MEAN):
        unit = cuda_unit(source, (100_000,), options=ISL)
        assert max(prod(grid) * prod(block) for grid, block in launches(unit)) > 1000


def test_a_scan_stays_on_one_thread(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(SCAN, (1000,), options=ISL)
    assert launches(unit)[-1] == ((1, 1, 1), (1, 1, 1))


def test_atomic_updates_run_in_parallel(cuda_unit: MakeUnit) -> None:
    shapes = (900,), (50_000,), (50_000,)
    unit = cuda_unit(SCATTER, *shapes, options=ISL)
    (one,) = [la for la in unit.source.launches if f"{la.name}(" in unit.source.text
              and "S0" in la.label.split("+")]  # fmt: skip
    assert prod(one.grid) * prod(one.block) >= 50_000 and "tc_atomic_add" in unit.source.text
    ordered = Options(scheduler="isl", deterministic=True)
    assert "tc_atomic_add" not in cuda_unit(SCATTER, *shapes, options=ordered).source.text


def test_what_is_not_legal_is_refused(lower: Lower, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mapper is made to err: it takes every function to carry all dependences."""
    scop = lower(WAVE, (40, 50))
    group = Group(("S1",), ())
    shapes = shapes_of(scop, gpu_generic.dependences_of(scop))
    bands = Bands(256)

    def found() -> IslKernels | str:
        problem = Problem(scop, group, shapes, load_chip("h200"))
        return gpu_generic.kernels_by_isl(problem, bands)

    assert isinstance(found(), IslKernels)
    monkeypatch.setattr(gpu_bands.BandMapper, "_carries", lambda *_: True)
    assert isinstance(found(), str)


@pytest.mark.slow
def test_what_is_refused_is_compiled_all_the_same(
    cuda_unit: MakeUnit, check_emulated: CheckAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_bands.BandMapper, "_carries", lambda *_: True)
    assert launches(cuda_unit(WAVE, (40, 50)))[-1] == ((1, 1, 1), (1, 1, 1))
    check_emulated([(WAVE, [(40, 50)])])


def test_kernels_that_are_taken_are_free_of_races(lower: Lower) -> None:
    scop = lower(BATCH, (7, 40, 50))
    plan = plan_for_gpu(scop, ISL, load_chip("h200"))
    dependences = gpu_generic.dependences_of(plan.scop)
    tree = gpu_generic.sequence([kernel.tree for kernel in plan.kernels])
    assert why_not_free_of_races(plan.scop, dependences, tree) is None
