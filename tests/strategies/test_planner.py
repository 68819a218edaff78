"""Plans: legal for many programs, sizes, threads and options; the options do what they say."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from tcdsl.costmodel.machine import Cpu
from tcdsl.driver import Compiled, compile_to_c
from tcdsl.interp.arithmetic import Array
from tcdsl.lang.ranges.binding import bind_sizes
from tcdsl.lang.ranges.specialiser import specialise
from tcdsl.lang.request import Request
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.types.sema import analyse
from tcdsl.options import Options
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.loop_tree import LoopKind, loops_of, sequence, statements_of
from tcdsl.poly.verify import schedule_of, violated_dependences, why_not_legal
from tcdsl.schedule.plan import Plan
from tcdsl.source import Source
from tcdsl.testing import check, programs

Compile = Callable[..., Compiled]
Shapes = Sequence[tuple[int, ...]]

SIZES = (0, 1, 2, 7, 63, 64, 65)
SOURCES: dict[str, tuple[str, Callable[[int, int], Shapes]]] = {
    "matmul": (
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
        lambda m, n: [(m, 33), (33, n)],
    ),
    "dot": (
        "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }",
        lambda m, n: [(m, 40), (n, 40)],
    ),
    "softmax": (
        """def f(float(N,D) x) -> (y) {
            m(i) max=! x(i,j)
            s(i) +=! exp(x(i,j) - m(i))
            y(i,j) = exp(x(i,j) - m(i)) / s(i)
        }""",
        lambda m, n: [(m, n)],
    ),
    "rows and columns": (
        """def f(float(N,M) x) -> (y) {
            r(i) +=! x(i,j)
            c(j) +=! x(i,j)
            y(i,j) = x(i,j) - r(i) - c(j)
        }""",
        lambda m, n: [(m, n)],
    ),
    "recurrence": (
        """def f(float(T,N) a) -> (c) {
            c(t,i) = t >= 1 ? c(t-1,i) * 0.5 + a(t,i) : a(t,i) where t in 0:T, i in 0:N
        }""",
        lambda m, n: [(m, n)],
    ),
    "stencil": (
        """def f(float(N,M) x) -> (y) {
            t(i,j) = i >= 1 ? x(i,j) + x(i-1,j) : x(i,j) where i in 0:N
            y(i,j) = j >= 1 ? t(i,j) + t(i,j-1) : t(i,j) where j in 0:M, i in 0:N
        }""",
        lambda m, n: [(m, n)],
    ),
}


def legality(plan: Plan) -> str | None:
    tree = sequence([kernel.tree for kernel in plan.kernels])
    return why_not_legal(plan.scop, dependences_of(plan.scop), tree)


def violations(plan: Plan) -> bool:
    """Return whether isl finds a dependence that the kernels' schedule violates."""
    tree = sequence([kernel.tree for kernel in plan.kernels])
    schedule = schedule_of(plan.scop, tree)
    strict = dependences_of(plan.scop).strict
    return not violated_dependences(schedule, strict, plan.scop).is_empty()


@pytest.mark.slow_but("1-rows and columns")
@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("threads", [1, 4])
def test_plans_are_legal_at_every_size(name: str, threads: int, compiled: Compile) -> None:
    source, shapes = SOURCES[name]
    for m in SIZES:
        for n in SIZES[:: 1 if m in (0, 65) else 3]:
            plan = compiled(source, *shapes(m, n), threads=threads).plan
            assert legality(plan) is None, (m, n)


@pytest.mark.parametrize("name", SOURCES)
def test_isl_agrees_that_plans_are_legal(name: str, compiled: Compile) -> None:
    """The driver verifies loop by loop; this is the check on the whole schedule."""
    source, shapes = SOURCES[name]
    for m, n in ((7, 65), (64, 63)):
        assert not violations(compiled(source, *shapes(m, n)).plan)


@pytest.mark.parametrize("name", SOURCES)
def test_every_statement_runs_in_one_kernel(name: str, compiled: Compile) -> None:
    source, shapes = SOURCES[name]
    plan = compiled(source, *shapes(65, 64)).plan
    names = [s for kernel in plan.kernels for s in statements_of(kernel.tree)]
    assert sorted(names) == sorted(s.name for s in plan.scop.statements)


@pytest.mark.parametrize("name", SOURCES)
def test_loops_have_names_of_their_own(name: str, compiled: Compile) -> None:
    source, shapes = SOURCES[name]
    plan = compiled(source, *shapes(65, 64)).plan
    names = [loop.name for kernel in plan.kernels for loop in loops_of(kernel.tree)]
    assert len(names) == len(set(names))


def test_without_fusion_every_statement_has_its_kernel(compiled: Compile) -> None:
    source, shapes = SOURCES["softmax"]
    plan = compiled(source, *shapes(64, 65), options=Options(fuse="none")).plan
    for first, second in (("S0", "S1"), ("S1", "S2")):
        assert not any(
            {first, second} <= set(statements_of(kernel.tree)) for kernel in plan.kernels
        )


def test_one_thread_gets_serial_loops_and_no_pragma(compiled: Compile) -> None:
    source, shapes = SOURCES["matmul"]
    done = compiled(source, *shapes(640, 640), threads=1)
    kinds = {loop.kind for kernel in done.plan.kernels for loop in loops_of(kernel.tree)}
    assert LoopKind.PARALLEL not in kinds and "omp parallel" not in done.source.text


OPTIONS: Mapping[str, Options] = {
    "fuse": Options(fuse="none"),
    "coalesce": Options(coalesce=False),
    "vectorise": Options(vectorise=False),
    "deterministic": Options(deterministic=True),
    "fast_math": Options(fast_math=True),
    "check_indices": Options(check_indices=False),
    "isl": Options(scheduler="isl"),
    "source_order": Options(scheduler="source_order"),
    "tile": Options(tile=(16, 8, 4)),
    "threads": Options(threads=3),
}


@pytest.mark.slow
def test_every_option_gives_right_results(
    unit: Callable[..., Any], batch: Callable[..., Any]
) -> None:
    chosen = [
        (SOURCES[which][0], SOURCES[which][1](m, n))
        for which, m, n in (("matmul", 33, 40), ("softmax", 17, 70), ("recurrence", 5, 9))
    ]
    cases = [
        (name, shapes, unit(source, *shapes, options=options))
        for name, options in OPTIONS.items()
        for source, shapes in chosen
    ]
    rng = np.random.default_rng(0)
    for (name, shapes, _), loaded in zip(cases, batch([u for *_, u in cases]), strict=True):
        inputs = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
        try:
            check(loaded, *inputs)
        except AssertionError as error:
            raise AssertionError(f"with the option {name}: {error}") from None


# --- random programs ------------------------------------------------------------------------

RANDOM = settings(
    database=None, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)


def planned(source: str, inputs: Mapping[str, Array], options: Options, threads: int) -> Any:
    c = analyse(parse_program(Source(source)))[-1]
    special = specialise(c, bind_sizes(c, {name: a.shape for name, a in inputs.items()}))
    return compile_to_c(Request(c, special, {}, options), Cpu(threads))


@pytest.mark.slow
@seed(7)
@settings(RANDOM, max_examples=60)
@given(programs())
def test_plans_of_random_programs_are_legal(program: tuple[str, Mapping[str, Array]]) -> None:
    source, inputs = program
    plan = planned(source, inputs, Options(), 4).plan
    assert legality(plan) is None
    assert not violations(plan), source


@pytest.mark.fuzz
@pytest.mark.parametrize("name", OPTIONS)
def test_plans_of_many_random_programs_are_legal(name: str) -> None:
    @settings(RANDOM, max_examples=300)
    @given(programs())
    def run(program: tuple[str, Mapping[str, Array]]) -> None:
        plan = planned(*program, OPTIONS[name], 4).plan
        assert legality(plan) is None and not violations(plan), program[0]

    run()
