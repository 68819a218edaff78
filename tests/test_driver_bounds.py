"""isl is bounded, and our own bugs are survived: cheaper plans, warnings, scripts."""

import runpy
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import islpy as isl
import numpy as np
import pytest

import tcdsl
from tcdsl import driver
from tcdsl.codegen.c.printer import print_plan
from tcdsl.codegen.cuda.source import CudaSource
from tcdsl.costmodel.chip import load_chip
from tcdsl.costmodel.machine import Cpu
from tcdsl.driver import Compiled
from tcdsl.errors import InternalError, ShapeError, TCWarning
from tcdsl.fallbacks import FALLBACK_LEVELS
from tcdsl.lang.ranges.isl_bounds import QuotaExceededError, bounded
from tcdsl.lang.request import Request
from tcdsl.options import Options
from tcdsl.plan.cpu_planner import plan_scop
from tcdsl.poly.loop_tree import Loop, LoopKind
from tcdsl.poly.scop import Scop
from tcdsl.runtime.repro import Failure, repro_script
from tcdsl.schedule.plan import Plan
from tcdsl.strategies.problem import Scheme

Compile = Callable[..., Compiled]
CheckAll = Callable[..., None]

MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
SOFTMAX = """def soft(float(N,D) x) -> (y) {
    m(i) max=! x(i,j)
    s(i) +=! exp(x(i,j) - m(i))
    y(i,j) = exp(x(i,j) - m(i)) / s(i)
}"""
HALF = "def f(float16(M,N) x) -> (y) { y(i) +=! x(i,j) }"
SCAN = "def f(float(N) x, float(N) y) -> (y) { y(i) = y(i-1) + x(i) where i in 1:N }"
CASES: Sequence[tuple[str, Sequence[tuple[int, ...]]]] = [
    (MATMUL, [(9, 17), (17, 33)]), (SOFTMAX, [(7, 40)]), (HALF, [(5, 70)]), (SCAN, [(50,), (50,)]),
]  # fmt: skip


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No debugging, and scripts go to the test's folder."""
    monkeypatch.delenv("TCDSL_DEBUG", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def schemes_of(monkeypatch: pytest.MonkeyPatch) -> list[Scheme | None]:
    """Return a list that gets the scheme of every plan that is made."""
    seen: list[Scheme | None] = []
    original = plan_scop

    def plan(scop: Scop, options: Options, cpu: Cpu, scheme: Scheme | None = None) -> Plan:
        seen.append(scheme)
        return original(scop, options, cpu, scheme)

    monkeypatch.setattr(driver, "plan_scop", plan)
    return seen


# --- the quota -------------------------------------------------------------------------------


@pytest.mark.slow_but("auto-1", "isl-4000")
@pytest.mark.parametrize("operations", [1, 1000, 4000, 12_000])
@pytest.mark.parametrize("scheduler", ["auto", "isl"])
def test_programs_over_the_quota_are_right(
    check_all: CheckAll, monkeypatch: pytest.MonkeyPatch, operations: int, scheduler: Any
) -> None:
    monkeypatch.setenv("TCDSL_ISL_OPERATIONS", str(operations))
    with pytest.warns(TCWarning, match="isl took more than"):
        check_all(CASES, options=Options(scheduler=scheduler))


def test_a_step_down_names_the_program_and_what_to_do(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TCDSL_ISL_OPERATIONS", "1")
    seen = schemes_of(monkeypatch)
    with pytest.warns(TCWarning) as caught:
        done = compiled(SOFTMAX, (64, 64))
    assert done.is_fallback
    assert seen == [None, Scheme.PLAIN, Scheme.TEXTUAL]
    (warning,) = caught
    texts = str(warning.message).split("\n")
    assert len(texts) == 2
    assert texts[0] == (
        "isl took more than 1 operations for the planning of 'soft', which is now compiled "
        "statement by statement, without fusion: set TCDSL_ISL_OPERATIONS higher (0: no bound), "
        "or split the def"
    )
    assert "as written, with parallel outer loops" in texts[1]
    assert [kernel.name for kernel in done.plan.kernels] == [
        "S0_init", "S0", "S1_init", "S1", "S2",
    ]  # fmt: skip


def test_a_quota_that_suffices_and_none_warn_of_nothing(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    for operations in ("10000000", "0"):
        monkeypatch.setenv("TCDSL_ISL_OPERATIONS", operations)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert not compiled(SOFTMAX, (64, 64)).is_fallback


def test_fallbacks_are_not_kept_on_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path / "cache"))
    x = np.ones((3, 4), np.float32)
    with monkeypatch.context() as patch, pytest.warns(TCWarning):
        patch.setenv("TCDSL_ISL_OPERATIONS", "1")
        assert len(tcdsl.define(SOFTMAX).soft.compile(x, target="cpu").kernels) == 5
    assert len(tcdsl.define(SOFTMAX).soft.compile(x, target="cpu").kernels) == 1


def test_an_exhausted_quota_cannot_pass_unnoticed() -> None:
    """islpy turns some of isl's null pointers into None, and code may catch its errors."""
    with pytest.raises(QuotaExceededError, match="more than 5 operations"), bounded(5):
        for _ in range(9):
            try:
                isl.Set("{ [i] : 0 <= i < 9 }").dim_max_val(0).to_python()
            except Exception:
                continue
    with pytest.raises(QuotaExceededError), bounded(5):
        raise_after_exhausting()
    assert isl.DEFAULT_CONTEXT.get_max_operations() == 0
    assert isl.Set("{ [i] : 0 <= i < 9 }").dim_max_val(0).to_python() == 8


def raise_after_exhausting() -> None:
    try:
        isl.Set("{ [i] : 0 <= i < 9 }")
    except isl.Error as error:
        raise TypeError("int() argument must not be None") from error


def test_isl_may_take_its_time_and_no_more() -> None:
    start = time.monotonic()
    with pytest.raises(QuotaExceededError, match=r"more than 0\.05 s"), bounded(0, 0.05):
        while time.monotonic() < start + 10:
            isl.Set("{ [i] : 0 <= i < 9 }")
    assert time.monotonic() < start + 5
    time.sleep(0.06)
    assert not isl.Set("{ [i] : 0 <= i < 9 }").is_empty()


def test_time_in_which_others_work_does_not_count() -> None:
    with bounded(0, 0.1):
        time.sleep(0.3)
        assert not isl.Set("{ [i] : 0 <= i < 9 }").is_empty()


def test_a_timer_that_is_not_needed_rings_for_nobody() -> None:
    with bounded(0, 0.01):
        pass
    time.sleep(0.05)
    assert not isl.Set("{ [i] : 0 <= i < 9 }").is_empty()


def test_bounds_nest() -> None:
    with bounded(100_000):
        with pytest.raises(QuotaExceededError), bounded(2):
            isl.Set("{ [i] : 0 <= i < 9 }")
        assert isl.DEFAULT_CONTEXT.get_max_operations() == 100_000
        assert not isl.Set("{ [i] : 0 <= i < 9 }").is_empty()


# --- our own bugs ----------------------------------------------------------------------------


def spoil(monkeypatch: pytest.MonkeyPatch, *, everywhere: bool) -> None:
    """Let the planner run sums in parallel; unless *everywhere*, only as the usual plan."""
    original = plan_scop

    def plan(scop: Scop, options: Options, cpu: Cpu, scheme: Scheme | None = None) -> Plan:
        done = original(scop, options, cpu, scheme)
        if scheme is not None and not everywhere:
            return done
        kernels = tuple(replace(k, tree=parallel(k.tree)) for k in done.kernels)
        return replace(done, kernels=kernels)

    monkeypatch.setattr(driver, "plan_scop", plan)


def parallel(node: Any) -> Any:
    if isinstance(node, Loop):
        return replace(node, kind=LoopKind.PARALLEL, body=parallel(node.body))
    if hasattr(node, "children"):
        return replace(node, children=tuple(parallel(child) for child in node.children))
    return node


def fail(error: Exception) -> Callable[..., Any]:
    def failing(*_: Any, **__: Any) -> Any:
        raise error

    return failing


def scripts(folder: Path) -> list[Path]:
    return sorted(folder.glob("tcdsl-*.py"))


def test_an_illegal_plan_is_replaced_and_reported(
    check_all: CheckAll, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spoil(monkeypatch, everywhere=False)
    with pytest.warns(TCWarning, match=r"the verification of 'f': .* conflict") as caught:
        check_all([(MATMUL, [(9, 17), (17, 33)])])
    (warning,) = caught
    (script,) = scripts(tmp_path)
    assert str(script) in str(warning.message)
    assert "compiled statement by statement" in str(warning.message)


def test_what_was_printed_last_is_what_is_returned(
    cuda_unit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler may begin with a text before it is verified."""
    unit = cuda_unit(SOFTMAX, (7, 40))
    seen: list[tuple[CudaSource, int]] = []
    verified: list[bool] = []
    original = driver.GpuBackend.why_not_legal

    def why_not_legal(self: driver.GpuBackend, plan: Plan) -> str | None:
        verified.append(bool(verified))
        return original(self, plan) if verified[-1] else "for a test"

    monkeypatch.setattr(driver.GpuBackend, "why_not_legal", why_not_legal)
    with pytest.warns(TCWarning, match="for a test"):
        done = driver.compile_to_cuda(
            Request(unit.comprehension, unit.special), load_chip("h200"),
            lambda source: seen.append((source, len(verified))),
        )  # fmt: skip
    assert [count for _, count in seen] == [0, 1]  # each before its verification
    assert done.source.text == seen[-1][0].text != seen[0][0].text
    assert done.is_fallback


def test_no_legal_plan_at_all_is_an_internal_error(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    spoil(monkeypatch, everywhere=True)
    with pytest.warns(TCWarning), pytest.raises(InternalError) as caught:
        compiled(SCAN, (9,), (9,))
    error = caught.value
    assert error.code == "TC090" and error.line == 1
    assert "the verification of 'f': iterations of the parallel loop" in error.message
    assert str(scripts(tmp_path)[-1].parent) in (error.hint or "")
    assert len(scripts(tmp_path)) == len(FALLBACK_LEVELS)


@pytest.mark.parametrize(
    "error",
    [KeyError("S7"), isl.Error("spaces do not match"), AssertionError(), RecursionError()],
)
def test_exceptions_never_escape_bare(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(driver, "plan_scop", fail(error))
    with pytest.warns(TCWarning) as warned, pytest.raises(InternalError) as caught:
        compiled(MATMUL, (4, 4), (4, 4))
    (warning,) = warned
    assert str(warning.message).count("it is now compiled") == len(FALLBACK_LEVELS) - 1
    assert f"the planning of 'f': {type(error).__name__}" in caught.value.message
    assert caught.value.__cause__ is error


def test_one_failing_step_is_survived(
    check_all: CheckAll, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    original = print_plan
    calls: list[int] = []

    def flaky(*args: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise IndexError("tuple index out of range")
        return original(*args)

    monkeypatch.setattr(driver, "print_plan", flaky)
    with pytest.warns(TCWarning, match="the printing of 'soft': IndexError: tuple index") as caught:
        check_all([(SOFTMAX, [(7, 40)])])
    assert len(caught) == 1 and len(calls) == 2 and len(scripts(tmp_path)) == 1


def test_debugging_raises_at_once(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TCDSL_DEBUG", "on")
    spoil(monkeypatch, everywhere=False)
    with warnings.catch_warnings(), pytest.raises(InternalError):
        warnings.simplefilter("error")
        compiled(MATMUL, (9, 17), (17, 33))
    assert len(scripts(tmp_path)) == 1


def test_mistakes_of_the_user_and_interrupts_pass(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for error in (ShapeError("it does not fit"), KeyboardInterrupt()):
        monkeypatch.setattr(driver, "coalesce", fail(error))  # type: ignore[arg-type]
        with warnings.catch_warnings(), pytest.raises(type(error)):
            warnings.simplefilter("error")
            compiled(MATMUL, (4, 4), (4, 4))
    assert not scripts(tmp_path)
    assert isl.DEFAULT_CONTEXT.get_max_operations() == 0


def test_loops_as_written_fall_back_on_one_thread(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, everywhere=False)
    with pytest.warns(TCWarning, match="compiled as written, on one thread"):
        done = compiled(MATMUL, (64, 64), (64, 64), options=Options(scheduler="source_order"))
    assert "omp parallel" not in done.source.body


# --- the script ------------------------------------------------------------------------------


def failing_script(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, call: Callable[[], Any]
) -> Path:
    """Return the script that *call* leaves when planning fails."""
    with monkeypatch.context() as patch:
        patch.setenv("TCDSL_DEBUG", "on")
        patch.setenv("TCDSL_CACHE", "off")
        patch.setattr(driver, "plan_scop", fail(IndexError("no such loop")))
        with pytest.raises(InternalError):
            call()
    (script,) = scripts(tmp_path)
    return script


def run_again(monkeypatch: pytest.MonkeyPatch, script: Path) -> None:
    """Run *script* with the bug, and without it."""
    for name in ("TCDSL_DEBUG", "TCDSL_CACHE", "TCDSL_ISL_OPERATIONS"):
        monkeypatch.setenv(name, "0" if name == "TCDSL_ISL_OPERATIONS" else "off")  # restored after
    with monkeypatch.context() as patch:
        patch.setattr(driver, "plan_scop", fail(IndexError("no such loop")))
        with pytest.raises(InternalError, match="no such loop"):
            runpy.run_path(str(script))
    runpy.run_path(str(script))


def test_the_script_of_a_def_reproduces_the_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = '# "quotes" \\ and {braces}\n' + MATMUL + "\ndef g(float(N) x) -> (y) { y(i) = x(i) }"
    a = np.ones((6, 8), np.float32)[::-1, ::2]
    b = np.ones((4, 3), np.float32)
    options = Options(scheduler="isl", threads=2)
    script = failing_script(
        monkeypatch, tmp_path,
        lambda: tcdsl.define(source).f.compile(a, b, target="cpu", options=options),
    )  # fmt: skip
    text = script.read_text()
    assert "in planning" in text.splitlines()[0]
    assert "# IndexError: no such loop" in text
    assert "'A': spec((6, 4), 'float32', (-8, 2))," in text
    assert "'B': spec((4, 3), 'float32')," in text
    assert '"scheduler": "isl"' in text and '"threads": 2' in text
    run_again(monkeypatch, script)


def test_the_script_of_statements_without_a_header_reproduces_the_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    a = np.ones((6, 4), np.float32)
    script = failing_script(
        monkeypatch, tmp_path, lambda: tcdsl.compute("s(i) +=! a(i,j)", a=a, target="cpu")
    )
    run_again(monkeypatch, script)


def test_a_folder_that_cannot_be_written_is_said_instead_of_a_path(
    compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TCDSL_DEBUG", "on")
    monkeypatch.setattr("tempfile.mkstemp", fail(OSError(28, "No space left on device")))
    monkeypatch.setattr(driver, "plan_scop", fail(KeyError("x")))
    with pytest.raises(InternalError) as caught:
        compiled(MATMUL, (4, 4), (4, 4))
    assert "no script: No space left on device" in (caught.value.hint or "")


def test_the_script_holds_the_settings_that_matter(
    monkeypatch: pytest.MonkeyPatch, compiled: Compile
) -> None:
    monkeypatch.setenv("TCDSL_CFLAGS", "-g")
    f = tcdsl.define("def f(bfloat16(N) x) -> (y) { y(i) = x(i) }").f
    special = f.specialise(tcdsl.spec((7,), "bfloat16"))
    text = repro_script(Request(f.comprehension, special), Failure("lowering", KeyError("x")))
    assert "os.environ['TCDSL_CFLAGS'] = '-g'" in text
    assert "'x': spec((7,), 'bfloat16')," in text


def test_warnings_point_at_the_line_that_called_tcdsl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCDSL_ISL_OPERATIONS", "1")
    monkeypatch.setenv("TCDSL_CACHE", "off")
    with pytest.warns(TCWarning) as caught:
        tcdsl.define(SOFTMAX).soft(np.ones((3, 4), np.float32), target="cpu")
    assert {warning.filename for warning in caught} == {__file__}
