"""Copies of results that data scatter: that they are chosen, verified, and right."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl import library
from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.options import Options
from tcdsl.plan.gpu_planner import plan_for_gpu
from tcdsl.poly.scop import Scop
from tcdsl.rewrites.scop.privatisation import why_not_private
from tcdsl.schedule.placement import Space
from tcdsl.strategies.templates import private

CheckAll = Callable[..., None]
Lower = Callable[..., Scop]

# A plan that fails falls back on a simpler one with a warning: here that is a find too.
pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")

SUMS = "def f({t}(K,D) s, int32(P) at, {t}(P,D) x) -> (s) {{ s(at(p),d) {op} x(p,d) }}"
HISTOGRAM = """def f(float(M,N) x) -> (int32(N,B) bins) {
    bin(i,j) = min(B - 1, max(0, int32(8.0 * x(i,j) + 4.0)))
    bins(j,b) = 0
    bins(j, bin(i,j)) += 1
}"""
COUNTS = """def f(float(T,X) x) -> (first, int32(X) count, mass) {
    first(t) argmax=! x(t,e)
    count(e) = 0 where e in 0:X
    count(first(t)) += 1
    mass(e) +=! x(t,e)
}"""
MEANS = """def f(float(P,D) x, float(P,K) far) -> (int32(P) near, int32(K) count, float(K,D) s) {
    near(p) argmin=! far(p,k)
    count(k) = 0
    count(near(p)) += 1
    s(k,d) = 0.0 where k in 0:K, d in 0:D
    s(near(p),d) += float(x(p,d))
}"""
SHIFTED = """def f(float(N) y, int32(P) at, float(P) g) -> (y) {
    y(at(p) + 2) max= g(p) where p in 1:P
}"""
TWICE = """def f(int32(P) a, int32(P) b, float(P) g) -> (float(9,7) y) {
    y(i,j) = 1.0 where i in 0:9, j in 0:7
    y(a(p), b(p)) += g(p)
}"""
SOME = """def f(int32(K) y, int32(P) at, float(P) g) -> (y) {
    y(at(p)) += 1 where exists g(p) > 0.0
}"""
BY_ROWS = """def f(float(B,K) y, int32(B,P) at, float(B,P) g) -> (y) { y(b, at(b,p)) += g(b,p) }"""
TYPES = ("float", "double", "half", "bfloat16", "int32", "int64", "uint8")


@pytest.fixture
def copies(small_chip: Chip, monkeypatch: pytest.MonkeyPatch) -> Chip:
    """A small chip on which copies in shared memory are always worth while."""
    monkeypatch.setattr(private, "WORTH", 1e9)
    monkeypatch.setattr(private, "IN_MEMORY", ())
    return small_chip


@pytest.fixture(params=["shared memory", "memory"])
def either(
    request: pytest.FixtureRequest, small_chip: Chip, monkeypatch: pytest.MonkeyPatch
) -> Chip:
    """A small chip on which copies are always worth while, in shared memory or in memory."""
    monkeypatch.setattr(private, "WORTH", 1e9)
    if request.param == "memory":
        monkeypatch.setattr(private, "IN_MEMORY", (2, 3))
        monkeypatch.setattr(private, "BLOCKS_EACH", ())
        monkeypatch.setattr(private, "_in_shared_memory", lambda _, schedule, *rest: schedule)
    else:
        monkeypatch.setattr(private, "IN_MEMORY", ())
    return small_chip


def places(count: int, of: int, seed: int = 3) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, of, count).astype(np.int32)


def copied(scop: Scop, gpu: Chip, options: Options | None = None) -> list[str]:
    """Return the copies in shared memory of a plan."""
    plan = plan_for_gpu(scop, options or Options(), gpu)
    shared = {name for name, p in plan.placements.items() if p.space is Space.SHARED}
    return [s.write.array for s in plan.scop.statements if s.is_atomic and s.write.array in shared]


@pytest.mark.slow
@pytest.mark.parametrize("op", ["+=", "max=", "min="])
def test_types_and_operators(op: str, either: Chip, check_emulated: CheckAll) -> None:
    given = [(5, 6), places(70, 5), (70, 6)]
    check_emulated([(SUMS.format(t=t, op=op), given) for t in TYPES], gpu=either)


@pytest.mark.slow_but("memory-shape0", "shared memory-shape1")
@pytest.mark.parametrize("shape", [(1, 1), (37, 3), (130, 33)])
def test_rows_and_columns(shape: tuple[int, int], either: Chip, check_emulated: CheckAll) -> None:
    m, n = shape
    check_emulated(
        [(HISTOGRAM.replace("B", "8"), [(m, n)]), (COUNTS, [(m, n)]), (MEANS, [(m, n), (m, 7)])],
        gpu=either,
    )


@pytest.mark.slow
def test_subscripts(either: Chip, check_emulated: CheckAll) -> None:
    check_emulated([
        (SHIFTED, [(40,), places(90, 38), (90,)]),
        (TWICE, [places(300, 9), places(300, 7, 4), (300,)]),
        (SOME, [(20,), places(300, 20), (300,)]),
        (BY_ROWS, [(3, 11), places(300, 11).reshape(3, 100), (3, 100)]),
    ], gpu=either)  # fmt: skip


def test_out_of_range_is_a_fault_and_touches_nothing(
    copies: Chip, cuda_unit: Any, emulated: Any
) -> None:
    unit = cuda_unit(SUMS.format(t="float", op="+="), (5, 6), (70,), (70, 6), gpu=copies)
    (program,) = emulated([unit])
    at, old, new = places(70, 5), np.zeros((5, 6), np.float32), np.zeros((5, 6), np.float32)
    at[33] = 5
    fault = program.run([old, at, np.ones((70, 6), np.float32)], [new])
    assert fault is not None and new.sum() == 69 * 6


def test_copies_are_in_shared_memory(copies: Chip, lower: Lower) -> None:
    assert len(copied(lower(MEANS, (130, 33), (130, 7)), copies)) == 2
    assert len(copied(lower(HISTOGRAM.replace("B", "8"), (130, 33)), copies)) == 1
    text = SUMS.format(t="float", op="+=")
    assert copied(lower(text, (5, 6), (70,), (70, 6)), copies)
    assert not copied(lower(text, (5, 6), (70,), (70, 6)), copies, Options(deterministic=True))


def test_folds_of_last_blocks_leave_copies_their_room(lower: Lower) -> None:
    """What does not fit would be in memory, and take three times as long."""
    text = """def f(float(M,N) x) -> (s, l, h, int32(N,64) bins) {
        s(j) +=! x(i,j)
        l(j) min=! x(i,j)
        h(j) max=! x(i,j)
        bin(i,j) = min(63, max(0, int32(8.0 * x(i,j) + 32.0)))
        bins(j,b) = 0
        bins(j, bin(i,j)) += 1
    }"""
    assert copied(lower(text, (262144, 96)), load_chip("h200"))


def test_copies_in_memory_are_added_up_by_a_kernel(lower: Lower, either: Chip) -> None:
    plan = plan_for_gpu(
        lower(SUMS.format(t="float", op="+="), (5, 6), (70,), (70, 6)), Options(), either
    )
    names = [kernel.name for kernel in plan.kernels]
    is_apart = names[-1] == "S0_part0_add" and names[0] == "S0_part0_init"
    assert is_apart == (not private.BLOCKS_EACH)


def test_they_are_chosen_where_updates_collide(lower: Lower) -> None:
    gpu, text = load_chip("h200"), SUMS.format(t="float", op="+=")
    counts = "def f(int32(K) y, int32(P) at) -> (y) { y(at(p)) += 1 }"
    assert copied(lower(counts, (64,), (1000000,)), gpu)
    for rows, terms, is_worth in (
        (64, 1000000, True), (64, 1000, False), (50000, 100000, False), (256, 4000, False),
    ):  # fmt: skip
        plan = plan_for_gpu(lower(text, (rows, 32), (terms,), (terms, 32)), Options(), gpu)
        assert any(kernel.template == "private" for kernel in plan.kernels) == is_worth


def test_what_has_no_copies_says_why(lower: Lower) -> None:
    scop = lower(SUMS.format(t="float", op="+="), (5, 6), (70,), (70, 6))
    (update,) = (s for s in scop.statements if s.value is not None and s.name == "S0")
    assert why_not_private(scop, update) == "its updates are not atomic"


def test_threads_of_a_warp_update_banks_of_their_own(lower: Lower) -> None:
    """Copies have neighbours along the threads, in rows that no padding makes longer."""
    plan = plan_for_gpu(
        lower(HISTOGRAM.replace("B", "64"), (262144, 96)), Options(), load_chip("h200")
    )
    (name,) = (
        n for n in plan.placements if ".part" in n and plan.placements[n].space is Space.SHARED
    )
    assert plan.placements[name].extents[-2:] == (64, 96) and not plan.placements[name].padding
    update = next(s for s in plan.scop.statements if s.write.array == name and s.value is not None)
    assert sorted(update.write.inexact) == [plan.scop.arrays[name].rank - 2]


def test_what_ends_copies_has_threads_along_the_target(cuda_unit: Any) -> None:
    text = cuda_unit(HISTOGRAM.replace("B", "64"), (262144, 96), gpu=load_chip("h200")).source.text
    (line,) = (x for x in text.splitlines() if "tc_atomic_add_i32(&bins[" in x)
    assert "j * 64 + e1" in line
    (before,) = (x for x in text.splitlines() if ", e1 = " in x)
    thread = before.split(", e1 = ")[1].split()[0].rstrip(";")
    assert f"const int {thread} = (int)threadIdx.x;" in text


def test_what_depends_on_whole_results_follows_copies(
    copies: Chip, check_emulated: CheckAll
) -> None:
    """The store of a half type's sums reads what ends the copies, though all are in one block."""
    check_emulated([(SUMS.format(t="half", op="+="), [(5, 6), places(70, 5), (70, 6)])], gpu=copies)


def test_what_starts_copies_shares_a_launch(lower: Lower) -> None:
    plan = plan_for_gpu(lower(MEANS, (1000000, 32), (1000000, 64)), Options(), load_chip("h200"))
    starts, *names = (kernel.name for kernel in plan.kernels)
    assert starts == "S1+S3+S4_part2_init" and names[:2] == ["S0+near.store+S4", "S4_part2_add"]


def test_what_a_fold_does_not_decide_is_loaded_before_it(cuda_unit: Any) -> None:
    program = library.source_for(library.case("kmeans_step"), "float32")
    shapes = (1000000, 32), (1000000, 64), (64,)
    text = cuda_unit(program, *shapes, gpu=load_chip("h200")).source.text
    (kernel,) = (k for k in text.split('extern "C"') if "tc_argfold_x" in k)
    assert kernel.index("= x[") < kernel.index("tc_argfold_x") and "__syncthreads" not in kernel


def test_threads_go_over_what_several_blocks_would_have(cuda_unit: Any) -> None:
    """As one part: the loads of many elements start together, and no turn waits for its own."""
    text = cuda_unit(
        "def f(int32(K) y, int32(P) at) -> (y) { y(at(p) & 63) += 1 }", (64,), (1000000,),
        gpu=load_chip("h200"),
    ).source.text  # fmt: skip
    assert "copies of the results of S0" in text and "w_turn0 < 15" in text
