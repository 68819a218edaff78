"""The pipeline as a whole: its stages, its verification, and what it computes."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import tcdsl
from tcdsl.costmodel.machine import Cpu
from tcdsl.driver import Compiled, CpuBackend
from tcdsl.options import Options
from tcdsl.poly.loop_tree import Loop, LoopKind
from tcdsl.schedule.plan import Plan
from tcdsl.testing import check

Compile = Callable[..., Compiled]

SUM = "def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }"
PROGRAMS: dict[str, tuple[str, list[tuple[int, ...]]]] = {
    "matmul": (
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
        [(65, 64), (64, 70)],
    ),
    "softmax": (
        """def f(float(N,D) x) -> (y) {
            m(i) max=! x(i,j)
            s(i) +=! exp(x(i,j) - m(i))
            y(i,j) = exp(x(i,j) - m(i)) / s(i)
        }""",
        [(300, 130)],
    ),
    "column": ("def f(float(M,N) x) -> (y) { y(j) +=! x(i,j) }", [(600, 130)]),
    "all_reduce": ("def f(float(N) x) -> (y) { s +=! x(i)\n y(i) = x(i) / s }", [(20_000,)]),
    "recurrence": (
        """def f(float(T,N) a) -> (c) {
            c(t,i) = t >= 1 ? c(t-1,i) * 0.5 + a(t,i) : a(t,i) where t in 0:T, i in 0:N
        }""",
        [(9, 70)],
    ),
    "convolution": (
        """def f(float(N,C,H,W) I, float(F,C,3,3) K) -> (O) {
            O(n,f,h,w) +=! (h+kh-1 >= 0 && h+kh-1 < H && w+kw-1 >= 0 && w+kw-1 < W
                            ? I(n,c,h+kh-1,w+kw-1) : 0.0) * K(f,c,kh,kw) where h in 0:H, w in 0:W
        }""",
        [(2, 4, 14, 18), (8, 4, 3, 3)],
    ),
}


def test_every_stage_is_text(compiled: Compile) -> None:
    stages = compiled(SUM, (64, 65)).stages
    assert {"comprehension", "coalesced", "scop", "schedule", "tree", "code"} <= set(stages)
    assert "S0_init (init)" in stages["scop"] and "writes" in stages["scop"]
    assert stages["schedule"].startswith("kernel ")
    assert "tcdsl_entry" in stages["code"]


def test_a_compilation_repeats_itself(compiled: Compile) -> None:
    for source, shapes in PROGRAMS.values():
        first, second = (compiled(source, *shapes) for _ in range(2))
        assert first.source == second.source and first.stages == second.stages


def spoilt(plan: Plan) -> Plan:
    """Return *plan* with the outermost loop of every kernel run in parallel."""
    kernels = []
    for kernel in plan.kernels:
        assert isinstance(kernel.tree, Loop)
        tree = replace(kernel.tree, kind=LoopKind.PARALLEL)
        kernels.append(replace(kernel, tree=tree))
    return replace(plan, kernels=tuple(kernels))


def test_an_illegal_plan_is_an_internal_error(compiled: Compile) -> None:
    source = "def f(float(N) a) -> (c) { c(i) = i >= 1 ? c(i-1) + a(i) : a(i) where i in 0:N }"
    plan = compiled(source, (9,)).plan
    backend = CpuBackend(Cpu(4))
    assert backend.why_not_legal(plan) is None
    assert "conflict" in (backend.why_not_legal(spoilt(plan)) or "")


def test_coalescing_can_be_switched_off(compiled: Compile) -> None:
    source = "def f(float(M,N) x) -> (y) { y(i,j) = x(i,j) * 2.0 }"
    merged = compiled(source, (64, 65)).stages
    written = compiled(source, (64, 65), options=Options(coalesce=False)).stages
    assert "merged" in merged["coalesced"] and "merged" not in written["coalesced"]
    assert "i_j" in merged["scop"] and "i_j" not in written["scop"]


@pytest.mark.slow_but("softmax", "column", "all_reduce", "matmul")
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_public_function_agrees_with_the_oracle(name: str) -> None:
    """With all optimisation, through the compiler's own path."""
    source, shapes = PROGRAMS[name]
    rng = np.random.default_rng(3)
    inputs = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    check(tcdsl.define(source).f, *inputs)


def test_inputs_with_other_strides() -> None:
    f = tcdsl.define(SUM).f
    rng = np.random.default_rng(3)
    x = rng.normal(size=(66, 140)).astype(np.float32)
    for view in (x.T, x[::-1], x[:, ::-2], x[1:, 3:], np.broadcast_to(x[:1], x.shape)):
        check(f, view)


# --- golden text: read it when it changes ---------------------------------------------------


@pytest.mark.parametrize("name", PROGRAMS)
def test_golden_loops_and_c(
    name: str, compiled: Compile, golden: Callable[[str, str], None]
) -> None:
    source, shapes = PROGRAMS[name]
    stages = compiled(source, *shapes, threads=4).stages
    golden(name, f"{source}\n\n{stages['schedule']}\n{stages['code']}")
