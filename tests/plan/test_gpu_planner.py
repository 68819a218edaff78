"""The GPU's planner: groups, atomics, what never runs, levels of fallback."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.driver import GpuBackend
from tcdsl.errors import InternalError
from tcdsl.fallbacks import FallbackLevel
from tcdsl.options import Options
from tcdsl.plan.gpu_planner import plan_for_gpu
from tcdsl.poly.loop_tree import LoopKind, loops_of
from tcdsl.poly.scop import Scop
from tcdsl.strategies.problem import Scheme

Lower = Callable[..., Scop]
MakeUnit = Callable[..., Any]
CheckAll = Callable[..., None]

SOFTMAX = """def f(float(N,D) x) -> (y) {
    m(i) max=! x(i,j)
    s(i) +=! exp(x(i,j) - m(i))
    y(i,j) = exp(x(i,j) - m(i)) / s(i)
}"""
PROGRAMS = {
    "softmax": (SOFTMAX, [(30, 70)]),
    "scatter": (
        "def f(float(V) y, int32(E) I, float(E) g) -> (y) { y(I(e)) += g(e) }",
        [(9,), (50,), (50,)],
    ),
    "recurrence": (
        """def f(float(T,N) a) -> (c) {
            c(t,i) = a(t,i)
            c(t,i) = c(t-1,i) * 0.5 + c(t,i) where t in 1:T, i in 0:N
        }""",
        [(9, 70)],
    ),
    "matmul": (
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
        [(65, 70), (70, 67)],
    ),
    "polynomials": (
        "def f(float(N) a, float(M) b) -> (c) { c(i + j) +=! a(i) * b(j) }", [(33,), (20,)],
    ),
    "halves": ("def f(half(M,N) x) -> (y) { y(j) +=! x(i,j) }", [(70, 33)]),
}  # fmt: skip


def statements(plan: Any) -> set[str]:
    return {s.name for s in plan.scop.statements}


# --- what never runs ------------------------------------------------------------------------


def test_a_sum_of_nothing_leaves_its_initialisation(lower: Lower) -> None:
    scop = lower("def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }", (300, 0))
    plan = plan_for_gpu(scop, Options(), load_chip("h200"))
    assert statements(plan) == {"S0_init"} and len(plan.kernels) == 1
    kinds = {la.kind for la in loops_of(plan.kernels[0].tree)}
    assert LoopKind.THREAD in kinds


@pytest.mark.parametrize("scheme", [None, *Scheme])
def test_what_is_empty_is_no_kernel(scheme: Scheme | None, lower: Lower) -> None:
    scop = lower(SOFTMAX, (0, 70))
    assert plan_for_gpu(scop, Options(), load_chip("h200"), scheme).kernels == ()


# --- groups ---------------------------------------------------------------------------------


def test_rows_are_fused_and_fusion_can_be_switched_off(cuda_unit: MakeUnit) -> None:
    assert len(cuda_unit(SOFTMAX, (300, 1000)).source.launches) == 1
    apart = cuda_unit(SOFTMAX, (300, 1000), options=Options(fuse="none"))
    assert len(apart.source.launches) == 3


@pytest.mark.usefixtures("brief_tiles")
def test_a_product_keeps_its_tiles(cuda_unit: MakeUnit) -> None:
    """What follows the product joins only if tiles stay."""
    source = """def f(float(M,K) A, float(K,N) B) -> (C, y) {
        C(m,n) +=! A(m,k) * B(k,n)
        y(m) +=! C(m,n)
    }"""
    unit = cuda_unit(source, (256, 256), (256, 256))
    assert "operands in shared memory" in unit.source.text and len(unit.source.launches) >= 2


def test_a_kernel_says_what_it_runs_and_why(cuda_unit: MakeUnit) -> None:
    (launch,) = cuda_unit(SOFTMAX, (300, 1000)).source.launches
    assert launch.label == "S0+S1+S2_row0+S2"
    assert any("threads a row" in reason for reason in launch.why)


# --- atomics --------------------------------------------------------------------------------


def atomics(source: str, *shapes: tuple[int, ...], lower: Lower, **options: Any) -> set[str]:
    plan = plan_for_gpu(lower(source, *shapes), Options(**options), load_chip("h200"))
    return {s.name for s in plan.scop.statements if s.is_atomic}


def test_only_what_has_no_other_way_uses_atomics(lower: Lower) -> None:
    scatter = "def f({t}(V) y, int32(E) I, {t}(E) g) -> (y) {{ y(I(e)) {op} g(e) }}"
    shapes = (9,), (50,), (50,)
    row = "def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }"
    assert atomics(scatter.format(t="float", op="+="), *shapes, lower=lower)
    assert not atomics(row, (300, 400), lower=lower)
    for dtype, op, is_allowed in (
        ("float", "+=", False), ("double", "*=", False), ("float", "max=", True),
        ("int32", "+=", True), ("half", "+=", False),
    ):  # fmt: skip
        text = scatter.format(t=dtype, op=op)
        assert bool(atomics(text, *shapes, lower=lower, deterministic=True)) == is_allowed


def test_an_update_that_reads_its_target_has_its_order(lower: Lower) -> None:
    source = "def f(float(V) y, int32(E) I) -> (y) { y(I(e)) += y(I(e)) * 0.5 }"
    assert not atomics(source, (9,), (50,), lower=lower)


# --- every level of fallback ---------------------------------------------------------------

LEVELS = [
    None,
    FallbackLevel("plain", Scheme.PLAIN),
    FallbackLevel("source_order", Scheme.TEXTUAL),
    FallbackLevel("isl", Scheme.ISL),
    FallbackLevel("serial", Scheme.SERIAL),
]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_level_is_legal(name: str, lower: Lower) -> None:
    source, shapes = PROGRAMS[name]
    backend = GpuBackend(load_chip("h200"), {})
    for level in LEVELS:
        plan = backend.plan(lower(source, *shapes), Options(), level)
        assert backend.why_not_legal(plan) is None, level


@pytest.mark.slow_but("plain")
@pytest.mark.parametrize("level", LEVELS[1:], ids=lambda level: str(level.what))
def test_every_level_is_right(
    level: FallbackLevel, check_emulated: CheckAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = GpuBackend.plan

    def plan(self: GpuBackend, scop: Scop, options: Options, _: FallbackLevel | None) -> Any:
        return usual(self, scop, options, level)

    monkeypatch.setattr(GpuBackend, "plan", plan)
    where = np.random.default_rng(3).integers(0, 9, 50).astype(np.int32)
    check_emulated([
        (source, [where if name == "scatter" and n == 1 else s for n, s in enumerate(shapes)])
        for name, (source, shapes) in PROGRAMS.items()
    ])  # fmt: skip


def test_the_last_rung_is_one_thread(lower: Lower, cuda_unit: MakeUnit) -> None:
    plan = plan_for_gpu(lower(SOFTMAX, (30, 70)), Options(), load_chip("h200"), Scheme.SERIAL)
    kinds = {la.kind for kernel in plan.kernels for la in loops_of(kernel.tree)}
    assert kinds == {LoopKind.SERIAL}


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", ["source_order", "isl"])
def test_schedulers(scheduler: Any, check_emulated: CheckAll) -> None:
    check_emulated(
        [(s, shapes) for n, (s, shapes) in PROGRAMS.items() if n != "scatter"],
        options=Options(scheduler=scheduler),
    )


@pytest.mark.slow
def test_a_failure_leaves_a_script_for_the_emulator(
    cuda_unit: MakeUnit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TCDSL_DEBUG", "1")
    monkeypatch.setattr(GpuBackend, "why_not_legal", lambda *_: "two barriers met")
    with pytest.raises(InternalError, match="two barriers met") as caught:
        cuda_unit(SOFTMAX, (30, 70))
    (path,) = re.findall(r"\S+\.py", caught.value.hint or "")
    text = Path(path).read_text(encoding="utf-8")
    assert "target='emulate'" in text
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "the error is gone" in done.stdout, done.stderr
    Path(path).unlink()


NORMALISED = "def f(float(M,N) x) -> (y) { s +=! x(i,j) * x(i,j)\n y(i,j) = x(i,j) / sqrt(s) }"


def test_a_kernel_goes_back_over_what_the_cache_holds_a_part_of(cuda_unit: MakeUnit) -> None:
    first, second = cuda_unit(NORMALISED, (4096, 4096)).source.text.split("extern")[1:]
    assert "gridDim.x - 1 - blockIdx.x" in second and "gridDim" not in first
    assert "gridDim" not in cuda_unit(NORMALISED, (1024, 1024)).source.text


GROUPED = "def f(float(P,G,D) x) -> (y) { m(g) +=! x(p,g,d)\n y(p,g,d) = x(p,g,d) - m(g) }"


def test_small_kernels_between_leave_the_cache_as_it_is(cuda_unit: MakeUnit) -> None:
    launches = cuda_unit(GROUPED, (32768, 32, 10)).source.launches
    is_reversed = [any(why.startswith("reversed block order") for why in k.why) for k in launches]
    assert is_reversed.index(True) == len(launches) - 1 > 1


@pytest.mark.parametrize(("n_read", "is_reversed"), [(1 << 16, False), (1 << 25, True)])
def test_gathered_elements_are_as_many_as_are_read(
    n_read: int, is_reversed: bool, cuda_unit: MakeUnit
) -> None:
    source = "def f(float(N) x, int32(K) at) -> (y) { s +=! x(i)\n y(k) = x(at(k)) * s }"
    last = cuda_unit(source, (1 << 25,), (n_read,)).source.launches[-1]
    assert any(reason.startswith("reversed block order") for reason in last.why) is is_reversed


def test_kernels_with_a_half_each_share_nothing(cuda_unit: MakeUnit) -> None:
    source = """def f(float(M,N) x) -> (a, b) {
        a(i) +=! x(i,j) where i in 0:M/2
        b(j) +=! x(i+M/2,j) where i in 0:M/2
    }"""
    text = cuda_unit(source, (8192, 8192)).source.text
    assert text.count("extern") == 2 and "gridDim" not in text


def test_backwards_is_right(check_emulated: CheckAll, small_chip: Chip) -> None:
    chip = replace(small_chip, l2_bytes=64)
    check_emulated([(NORMALISED, [shape]) for shape in ((1, 1), (7, 31), (33, 67))], gpu=chip)


# --- few rows -------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(64, 4096), (4, 16384), (16, 32768), (3, 1000)])
def test_few_rows_are_read_once(shape: tuple[int, int], cuda_unit: MakeUnit) -> None:
    assert len(cuda_unit(SOFTMAX, shape).source.launches) == 1


def test_few_long_rows_are_not_left_to_a_block_each(cuda_unit: MakeUnit) -> None:
    (brief,) = cuda_unit(SOFTMAX, (16, 32768)).source.launches
    assert brief.cluster > 1 or brief.block[0] == 1024
    (long,) = cuda_unit(SOFTMAX, (16, 65536)).source.launches
    assert long.cluster > 1


def test_few_rows_are_right(check_emulated: CheckAll) -> None:
    check_emulated([(SOFTMAX, [(3, 1000)]), (SOFTMAX, [(2, 1537)]), (SOFTMAX, [(5, 6272)])])
