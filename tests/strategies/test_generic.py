"""isl's schedules on threads and in tiles, loops as written, tiles on request: all are right."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

import tcdsl
from tcdsl.driver import Compiled
from tcdsl.interp.arithmetic import Array
from tcdsl.options import Options
from tcdsl.plan import cpu_planner
from tcdsl.poly.loop_tree import Loop, LoopKind, loops_of
from tcdsl.strategies import catalogue, generic, operations, tiling
from tcdsl.strategies.templates import cpu_loops, cpu_row
from tcdsl.testing import programs

Compile = Callable[..., Compiled]
CheckAll = Callable[..., None]
Shapes = Sequence[tuple[int, ...]]

MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
SOFTMAX = """def f(float(N,D) x) -> (y) {
    m(i) max=! x(i,j)
    s(i) +=! exp(x(i,j) - m(i))
    y(i,j) = exp(x(i,j) - m(i)) / s(i)
}"""
WAVE = """def f(float(M,N) a) -> (c) {
    c(i,j) = a(i,j) where i in 0:M, j in 0:N
    c(i,j) = 0.5 * c(i-1,j) + 0.25 * c(i,j-1) + a(i,j) where i in 1:M, j in 1:N
}"""
STENCIL = """def f(float(T,N) a) -> (c) {
    c(t,i) = a(t,i) where t in 0:T, i in 0:N
    c(t,i) = 0.25 * c(t-1,i-1) + 0.5 * c(t-1,i) + 0.25 * c(t-1,i+1) where t in 1:T, i in 1:N-1
}"""
DIAGONAL = """def f(float(M,N) a) -> (c) {
    c(i,j) = a(i,j) where i in 0:M, j in 0:N
    c(i,j) = 0.5 * c(i-1,j-1) + a(i,j) where i in 1:M, j in 1:N
}"""
CUBE = """def f(float(L,M,N) a) -> (c) {
    c(i,j,k) = a(i,j,k) where i in 0:L, j in 0:M, k in 0:N
    c(i,j,k) = 0.5 * c(i-1,j,k) + 0.25 * c(i,j-1,k) + 0.125 * c(i,j,k-1)
        where i in 1:L, j in 1:M, k in 1:N
}"""
TRANSPOSE = "def f(float(M,N) x) -> (y) { y(i,j) = x(j,i) }"
CHANNELS_LAST = "def f(float(B,C,H,W) x) -> (y) { y(b,h,w,c) = x(b,c,h,w) * 2.0 }"
SUM = "def f(float(N) x) -> (s) { s +=! x(i) }"
ROWS = "def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }"
HALF = "def f(float16(M,N) x) -> (y) { y(i) +=! x(i,j) }"
BEST = "def f(float(M,N) x) -> (y) { y(i) argmax=! x(i,j) }"
GATHER = "def f(float(N,D) T, int32(L) I) -> (O) { O(d) +=! T(I(l), d) }"
TRIANGLE = "def f(float(N,M) x) -> (y) { y(i) +=! x(i,j) where j in 0:i+1 }"

CASES: tuple[tuple[str, Sequence[Any]], ...] = (
    (MATMUL, [(7, 11), (11, 9)]),
    (SOFTMAX, [(5, 13)]),
    (SOFTMAX, [(0, 5)]),
    (WAVE, [(11, 14)]),
    (WAVE, [(2, 1)]),
    (STENCIL, [(11, 14)]),
    (DIAGONAL, [(8, 7)]),
    (CUBE, [(4, 5, 7)]),
    (TRANSPOSE, [(7, 13)]),
    (CHANNELS_LAST, [(2, 5, 3, 3)]),
    (HALF, [(5, 33)]),
    (BEST, [(5, 7)]),
    (TRIANGLE, [(8, 9)]),
    (GATHER, [np.ones((5, 4), np.float32), np.array([1, 4, 0], np.int32)]),
    ("def f(float s, float(N) x) -> (y, t) { y(i) = s * x(i)  t = s + 1.0 }", [(), (7,)]),
)
OPTIONS = {
    "isl": Options(scheduler="isl"),
    "isl in tiles": Options(scheduler="isl", tile=(4, 5)),
    "isl, each alone": Options(scheduler="isl", fuse="none", coalesce=False),
    "textual": Options(scheduler="source_order"),
    "tiles": Options(tile=(4, 5, 6)),
    "scalar": Options(vectorise=False),
    "scalar isl": Options(scheduler="isl", vectorise=False),
    "auto": Options(),
}


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads, wavefronts and tiles at sizes at which they do not pay."""
    # The first template that applies, whatever it takes.
    monkeypatch.setattr(catalogue, "ALIKE_ON_CPU", inf)
    for module in (operations, cpu_row, cpu_loops, generic, cpu_planner):
        monkeypatch.setattr(module, "PARALLEL_WORK", 1)
    monkeypatch.setattr(generic, "DEFAULT_TILE", 3)
    monkeypatch.setattr(generic, "WAVEFRONT_INSTANCES", 1)
    monkeypatch.setattr(generic, "WAVEFRONT_TILE", (2, 5))
    monkeypatch.setattr(tiling, "MIN_INSTANCES", 1)
    monkeypatch.setattr(tiling, "NEAR_TILE", 2)
    monkeypatch.setattr(tiling, "FAR_TILE", 3)


def all_loops(compiled: Compiled) -> Iterator[Loop]:
    for kernel in compiled.plan.kernels:
        yield from loops_of(kernel.tree)


def kinds(compiled: Compiled) -> list[str]:
    return [loop.kind.value for loop in all_loops(compiled)]


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", OPTIONS)
def test_results_are_right(check_all: CheckAll, name: str) -> None:
    check_all(CASES, threads=2, options=OPTIONS[name])


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", ["isl in tiles", "tiles", "scalar"])
def test_random_programs(check_all: CheckAll, name: str) -> None:
    drawn: list[tuple[str, Mapping[str, Array]]] = []

    @seed(41)
    @settings(
        max_examples=12, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(programs())
    def draw(program: tuple[str, Mapping[str, Array]]) -> None:
        drawn.append(program)

    draw()
    cases = [(source, list(inputs.values())) for source, inputs in drawn]
    check_all(cases, threads=2, options=OPTIONS[name])


# --- scheduler="isl" -------------------------------------------------------------------------


def test_isl_tiles_permutable_bands(compiled: Compile) -> None:
    done = compiled(MATMUL, (256, 256), (256, 256), options=Options(scheduler="isl"))
    loops = list(all_loops(done))
    divs = [loop.coordinates["S0"].div for loop in loops]
    mods = [loop.coordinates["S0"].mod for loop in loops]
    assert divs == [32, 32, 32, 1, 1, 1] and mods == [0, 0, 0, 32, 32, 32]
    assert loops[0].kind is LoopKind.PARALLEL and loops[0].coordinates["S0"].position == 0
    # The innermost loop walks neighbours, and no sum.
    assert loops[-1].kind is LoopKind.VECTOR and loops[-1].coordinates["S0"].position == 1
    assert kinds(done).count("parallel") == kinds(done).count("vector") == 1


def test_isl_takes_the_tiles_that_it_is_given(compiled: Compile) -> None:
    options = Options(scheduler="isl", tile=(8, 16))
    done = compiled(MATMUL, (256, 256), (256, 256), options=options)
    assert [loop.coordinates["S0"].div for loop in all_loops(done)] == [8, 16, 1, 1, 1]


def test_little_work_stays_on_one_thread(compiled: Compile) -> None:
    done = compiled(MATMUL, (8, 8), (8, 8), options=Options(scheduler="isl"))
    assert "parallel" not in kinds(done)


def test_one_loop_is_shared_out_between_threads_and_lanes(compiled: Compile) -> None:
    source = "def f(float(N) x) -> (y) { y(i) = x(i) + 1.0 }"
    done = compiled(source, (100_000,), options=Options(scheduler="isl"))
    assert kinds(done) == ["parallel", "vector"]


def test_sums_get_no_wavefront(compiled: Compile) -> None:
    """Their updates may run in any order, but not at once: a front would let them."""
    source = "def f(float(M,N) x) -> (s) { s +=! x(i,j) }"
    options = Options(scheduler="isl", coalesce=False)
    assert "parallel" not in kinds(compiled(source, (512, 512), options=options))


# --- scheduler="source_order" ---------------------------------------------------------------------


def test_textual_keeps_the_loops_as_written(compiled: Compile) -> None:
    source = "def f(float(M,K) A, float(N,K) B) -> (C) { C(n,m) +=! A(m,k) * B(n,k) }"
    done = compiled(source, (64, 64), (64, 64), options=Options(scheduler="source_order"))
    assert [kernel.name for kernel in done.plan.kernels] == ["S0_init", "S0"]
    init, update = (list(loops_of(kernel.tree)) for kernel in done.plan.kernels)
    assert [loop.coordinates["S0_init"].position for loop in init] == [0, 1]
    assert [loop.coordinates["S0"].position for loop in update] == [0, 1, 2]
    assert [loop.kind.value for loop in update] == ["parallel", "serial", "serial"]


def test_textual_runs_recurrences_in_order(compiled: Compile) -> None:
    done = compiled(WAVE, (256, 256), options=Options(scheduler="source_order"))
    assert [loop.kind.value for loop in loops_of(done.plan.kernels[-1].tree)] == ["serial"] * 2


def test_sums_of_half_types_have_an_accumulator_whatever_the_scheduler(
    compiled: Compile, check_all: CheckAll
) -> None:
    ones = np.ones((2, 4096), np.float16)  # a float16 sum would stay at 2048
    for options in (Options(scheduler="isl"), Options(scheduler="source_order")):
        assert any(
            ".part" in a for a in compiled(HALF, (2, 4096), options=options).plan.scop.arrays
        )
        check_all([(HALF, [ones])], options=options)


# --- scheduler="auto": recurrences -----------------------------------------------------------


@pytest.mark.parametrize(("source", "shape"), [(WAVE, (1000, 1000)), (CUBE, (90, 90, 90))])
def test_large_recurrences_get_parallel_wavefronts(
    compiled: Compile, source: str, shape: tuple[int, ...]
) -> None:
    front, lead, *rest = loops_of(compiled(source, shape).plan.kernels[-1].tree)
    assert front.coordinates["S1"].position == -1 and front.kind is LoopKind.SERIAL
    assert lead.kind is LoopKind.PARALLEL and lead.coordinates["S1"].div == 32
    assert all(loop.kind is LoopKind.SERIAL for loop in rest)


def test_small_recurrences_and_one_thread_stay_as_they_are(compiled: Compile) -> None:
    for shape, threads in (((100, 100), 4), ((1000, 1000), 1)):
        done = compiled(WAVE, shape, threads=threads)
        loops = list(loops_of(done.plan.kernels[-1].tree))
        assert [loop.kind.value for loop in loops] == ["serial", "serial"]


def test_a_wavefront_computes_what_the_loops_as_written_do() -> None:
    a = np.random.default_rng(0).normal(size=(800, 900)).astype(np.float32)
    for source in (WAVE, STENCIL):
        f = tcdsl.define(source).f
        serial = f(a, options=Options(threads=1), target="cpu")
        assert (f(a, options=Options(threads=2), target="cpu") == serial).all()


# --- Options(tile=...) -----------------------------------------------------------------------


def test_tiles_on_request(compiled: Compile) -> None:
    source = "def f(float(M,N) x, float(N) b) -> (y) { y(i,j) = x(i,j) + b(j) }"
    done = compiled(source, (100, 90), (90,), options=Options(tile=(4, 16)))
    parts = [
        (c.position, c.div, c.mod) for c in (loop.coordinates["S0"] for loop in all_loops(done))
    ]
    assert parts == [(0, 4, 0), (1, 16, 0), (0, 1, 4), (1, 1, 16)]


def test_only_as_many_axes_as_tiles_are_tiled_and_none_that_fits_in_one(compiled: Compile) -> None:
    source = "def f(float(M,N) x, float(N) b) -> (y) { y(i,j) = x(i,j) + b(j) }"
    first = compiled(source, (100, 90), (90,), options=Options(tile=(4,)))
    assert [loop.coordinates["S0"].div for loop in all_loops(first)] == [4, 1, 1]
    large = compiled(source, (10, 9), (9,), options=Options(tile=(100, 100)))
    assert [loop.coordinates["S0"].div for loop in all_loops(large)] == [1, 1]


def test_a_parallel_axis_in_tiles_stays_parallel(compiled: Compile) -> None:
    done = compiled(SOFTMAX, (512, 512), options=Options(tile=(8,)))
    assert next(loop.kind.value for loop in all_loops(done)) == "parallel"
    assert {c.div for c in next(all_loops(done)).coordinates.values()} == {8}


# --- crossing walks --------------------------------------------------------------------------


def parts_of(compiled: Compiled) -> list[tuple[str, int, int]]:
    (kernel,) = compiled.plan.kernels
    return [
        (compiled.plan.scop.by_name["S0"].indices[c.position], c.div, c.mod)
        for c in (loop.coordinates["S0"] for loop in loops_of(kernel.tree))
    ]


def test_a_transposition_runs_in_tiles_of_cache_lines(compiled: Compile) -> None:
    done = compiled(TRANSPOSE, (1000, 900))
    assert parts_of(done) == [("i", 128, 0), ("j", 16, 0), ("i", 1, 128), ("j", 1, 16)]
    assert kinds(done) == ["parallel", "parallel", "serial", "vector"]
    assert any("crossing" in why for kernel in done.plan.kernels for why in kernel.why)


def test_a_double_has_half_as_many_values_in_a_line(compiled: Compile) -> None:
    done = compiled(TRANSPOSE.replace("float", "float64"), (1000, 900))
    assert ("j", 1, 8) in parts_of(done)


def test_what_is_written_is_walked_innermost(compiled: Compile) -> None:
    done = compiled(CHANNELS_LAST, (4, 64, 30, 31), threads=1)
    assert parts_of(done) == [
        ("b", 1, 0), ("h_w", 128, 0), ("c", 16, 0), ("h_w", 1, 128), ("c", 1, 16),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        (TRANSPOSE, [(60, 70)]),  # stays in the cache
        ("def f(float(M,N) x, float(N) b) -> (y) { y(i,j) = x(i,j) + b(j) }", [(500, 500), (500,)]),
        ("def f(float(M,N) x) -> (y) { y(i,j) = x(i,j) * x(i,0) }", [(500, 500)]),
        (ROWS, [(500, 500)]),
    ],
)  # fmt: skip
def test_other_programs_are_not_tiled(compiled: Compile, source: str, shapes: Shapes) -> None:
    assert not any(
        "crossing" in why for k in compiled(source, *shapes).plan.kernels for why in k.why
    )


# --- Options(vectorise=False), Options(deterministic=True) -------------------------------------


NO_VECTORS: tuple[tuple[str, Shapes], ...] = (
    (MATMUL, [(64, 64), (64, 64)]),
    (SOFTMAX, [(200, 200)]),
    (ROWS, [(200, 200)]),
    (HALF, [(200, 200)]),
    (TRANSPOSE, [(200, 200)]),
    (CHANNELS_LAST, [(2, 40, 20, 20)]),
)


@pytest.mark.parametrize(("source", "shapes"), NO_VECTORS)
@pytest.mark.parametrize("scheduler", ["auto", "isl"])
def test_without_vectors_there_is_none(
    compiled: Compile, source: str, shapes: Shapes, scheduler: Any
) -> None:
    assert "vector" in kinds(compiled(source, *shapes, options=Options(scheduler=scheduler)))
    options = Options(vectorise=False, scheduler=scheduler)
    done = compiled(source, *shapes, options=options)
    assert "vector" not in kinds(done)
    assert "omp simd" not in done.source.body
    assert not any(statement.lanes for statement in done.plan.scop.statements)


@pytest.mark.parametrize("threads", [1, 2])
def test_results_repeat_bit_by_bit_for_a_number_of_threads(threads: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=200_000).astype(np.float32)
    options = Options(deterministic=True, threads=threads)
    total = tcdsl.define(SUM).f.compile(x, target="cpu", options=options)
    first = total(x)
    assert all(total(x) == first for _ in range(20))
    columns = tcdsl.define("def f(float(M,N) x) -> (y) { y(j) +=! x(i,j) }").f
    exe = columns.compile(x.reshape(2000, 100), target="cpu", options=options)
    expected = exe(x.reshape(2000, 100))
    assert all((exe(x.reshape(2000, 100)) == expected).all() for _ in range(20))
