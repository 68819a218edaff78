"""The smallest program for every plan that was refused: each fell back on a slower one.

A plan that the verifier refuses is no wrong result, but nobody asked for what replaces it: here the
warning is an error.  Each program is planned at the sizes at which it was found, for which neither
a GPU nor arrays are needed, and run on the emulator at small ones.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.costmodel.chip import load_chip

CheckAll = Callable[..., None]
Shapes = list[tuple[int, ...]]

pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")

MERGED = """def f(float(I,J,K,L) x) -> (t5, t6) {
    t2(i,k) +=! x(i,j,k,l)
    t3(i,k) min=! x(i,j,k,l)
    t4(k) min=! t3(i,k) - 0.5 * t2(i,k)
    t5(j,k,l) max=! x(i,j,k,l)
    t6(j,k,l) +=! exp(x(i,j,k,l) - t5(j,k,l))
}"""
KEPT = """def f(bfloat16(K,I,J,L) x) -> (t2, t3, t6) {
    t2(k,j,l) max=! float(x(k,i,j,l))
    t3(k,j,l) +=! exp(float(x(k,i,j,l)) - t2(k,j,l))
    t5(j,k,l) = t2(k,j,l) - 0.5 * t3(k,j,l)
    t6(j,k,l) = t2(k,j,l) + t5(j,k,l)
    t7(j) min=! t2(k,j,l)
}"""
STORED = """def f(float(K,I,J) x, float(I,J,K) t2) -> (t4, t5, t6) {
    t3(i,j,k) = t2(i,j,k) + x(k,i,j) + t2(i,j,k)
    t4(i,j) min=! t3(i,j,k)
    t5(i,j,k) = x(k,i,j) / (1.0 + fabs(t4(i,j))) > 0.1 ? t4(i,j) : x(k,i,j) / (1.0 + fabs(t4(i,j)))
    t6(i,j,k) = x(k,i,j) - 0.5 * t5(i,j,k)
    t7(i) max=! t5(i,j,k) * tanh(t4(i,j)) + t2(i,j,k)
}"""
BARRIER = """def f(float(I,J) x) -> (t8) {
    t3 min=! x(i,j)
    t4(i) max=! x(i,j)
    t5(i) = fmax(t4(i), t3)
    t6 max=! t4(i)
    t7 +=! exp(t4(i) - t6)
    t8(i) = exp(t4(i) - t6) / t7
}"""
NAMES = """def f(bfloat16(I,J,K,L) x) -> (t1) {
    t0(i,j,k,l) = float(x(i,j,k,l))
    t1(k,i,l) +=! t0(i,j,k,l)
    t2(k,l) +=! t1(k,i,l)
}"""
CHUNKS = """def f(double(J,I,K) x) -> (t0) {
    t0(k) +=! x(j,i,k)
    t1(k) = t0(k)
}"""
OVER_BOTH = """def f(half(I,J,K) x) -> (t0) {
    t0(j) max=! x(i,j,k)
    t1(i) min=! float(x(i,j,k))
    t2 max=! x(i,j,k)
}"""
TAKEN = """def f(float(M,N) x) -> (y, z) {
    y(c0) +=! x(c0,l0)
    z(l0) max=! x(c0,l0)
}"""
WIDER = """def f(float(I) x, double(I) w) -> (s, t) {
    s +=! x(i)
    t +=! w(i) + x(i)
}"""
SHORTER = """def f(float(I) x, double(K) w) -> (y, s, t) {
    y(i) = x(i) * 2.0
    s +=! x(i)
    t +=! w(i) + y(i)
}"""
LATER = """def f(float(I) x) -> (s, t) {
    y(i) = x(i) * 2.0
    s +=! y(i)
    t +=! y(i) where i in I-9:I
}"""
FOUR = LATER.replace("I-9:I", "0:4")
NEAREST = "def f(float(N) x) -> (y) { y(i) = x(int32(floor(i * 0.4))) where i in 0:N }"
ON_A_CPU = {
    # The check that x has them accesses nothing, and the estimate took the widest of its accesses.
    "subscripts to be checked": (NEAREST, [[(7,)], [(90,)]]),
    # Sums of float32 had 64 lanes, of float64 32, and shared a vector loop of 64.
    "sums of two types": (WIDER, [[(128,), (128,)], [(1000,), (1000,)], [(9,), (9,)]]),
    # So did those of 100,000 and of 50,000 numbers, in chunks of the same length.
    "sums of two lengths": (SHORTER, [[(100_000,), (50_000,)]]),
    # isl initialised the sum of the first chunk before the parallel loop, in another array.
    "a sum in the first chunk": (SHORTER, [[(100_000,), (50,)], [(70_000,), (9,)]]),
    # Its chunks were counted from where it begins, those of the loop from 0.
    "a sum in the last chunk": (LATER, [[(100_000,)], [(70_000,)]]),
    # Too few terms for lanes, in the vector loop of those that have some.
    "a sum of four": (FOUR, [[(100_000,)]]),
}  # fmt: skip
TWO_SUMS = """def f(bfloat16(I, J, K) x) -> (t2) {
    t0(j, k) max=! float(x(i, j, k))
    t1(i, j, k) = exp(float(x(i, j, k)) - t0(j, k))
    t2(j, k) +=! t1(i, j, k)
    t5(k, j) max=! float(x(i, j, k))
    t6(i, j, k) = exp(float(x(i, j, k)) - t5(k, j))
    t7(k, j) +=! t6(i, j, k)
    t8(i, k, j) = t6(i, j, k) / t7(k, j)
}"""
SPREAD = """def f(float(N,H,F) a, float(R,F) b) -> (t) {
    t(n,h + 2*r) +=! a(n,h,f) * b(r,f)
}"""
CASES = {
    # Threads with nothing left of a block's copy were to share all values that blocks have of n.
    "a copy with fewer elements than threads": (
        SPREAD, [((3, 2, 33), "float32"), ((2, 33), "float32")],
        [[(3, 2, 33), (2, 33)], [(5, 2, 40), (3, 40)]],
    ),
    # Flattening put the merged index first on the left, the merged dimension last in the target.
    "merged axes": (MERGED, [((17, 8, 17, 31), "float32")], [[(3, 2, 3, 5)], [(5, 1, 4, 2)]]),
    "kept sums of merged axes": (
        KEPT, [((5, 33, 1, 100), "bfloat16")], [[(3, 4, 2, 5)], [(5, 7, 1, 9)]],
    ),
    # The groups were made twice, and what a kernel reads of its results was stored each time.
    "stored twice": (
        STORED, [((512, 3, 5), "float32"), ((3, 5, 512), "float32")], [[(16, 3, 5), (3, 5, 16)]],
    ),
    # The rows of the last block end before its threads do, of which all were to meet a barrier.
    "a barrier for some rows": (
        BARRIER, [((50257, 64), "float32")], [[(7, 64)], [(257, 16)], [(33, 64)]],
    ),
    # What last blocks add was aligned with tiles by the names of indices, which merging changes.
    "another name": (NAMES, [((65536, 1, 3, 1), "bfloat16")], [[(513, 1, 3, 1)]]),
    # Only some threads have a column there, but all are needed to fold along y.
    "a fold for some columns": (CHUNKS, [((14, 257, 100), "float64")], [[(3, 65, 20)]]),
    # Two sums of exponentials of one kernel: the first was in chunks when the second was looked at.
    "two sums in chunks": (TWO_SUMS, [((50257, 1, 1), "bfloat16")], [[(257, 1, 1)]]),
    # Sums of runs by columns took what reduces both axes of a run for a sum of runs, too.
    "sums over both axes of a run": (
        OVER_BOTH, [((30522, 31, 8), "float16")], [[(40, 5, 3)], [(7, 31, 8)]],
    ),
    # Partial accumulators have dimensions c0 and l0 of their own.
    "indices called c0 and l0": (
        TAKEN, [((5, 300_000), "float32")], [[(3, 70)], [(70, 3)], [(1, 500)]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_planned_as_usual(name: str, cuda_unit: Callable[..., Any]) -> None:
    source, specs, _ = CASES[name]
    assert not cuda_unit(source, *(shape for shape, _ in specs)).done.is_fallback


@pytest.mark.slow
@pytest.mark.parametrize("on", ["as it is", "small"])
def test_results_at_small_sizes(
    on: str, check_emulated: CheckAll, request: pytest.FixtureRequest
) -> None:
    gpu = request.getfixturevalue("small_chip") if on == "small" else load_chip("h200")
    cases = [(source, shapes) for source, _, runs in CASES.values() for shapes in runs]
    check_emulated(cases, gpu=gpu)


def test_on_a_cpu(check_all: CheckAll) -> None:
    cases = [(source, shapes) for source, runs in ON_A_CPU.values() for shapes in runs]
    check_all(cases, threads=16)
