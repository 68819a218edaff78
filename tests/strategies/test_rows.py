"""Rows: pointwise programs, reductions of every shape and graphs of them, against the oracle."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl.driver import Compiled
from tcdsl.options import Options
from tcdsl.poly.loop_tree import LoopKind, loops_of
from tcdsl.poly.scop import Kind

CheckAll = Callable[..., None]
Compile = Callable[..., Compiled]

MATRIX_SIZES = [
    (0, 5), (5, 0), (1, 1), (1, 64), (64, 1), (3, 7), (13, 63), (63, 13), (64, 64), (65, 63),
    (7, 127), (127, 7), (200, 65), (2, 1031),
]  # fmt: skip
# Enough work for threads: rows, columns, chunks of what is reduced.
LARGE = [(700, 65), (65, 700), (4099, 9), (9, 4099), (20011, 3), (3, 16384), (1, 40001), (40001, 1)]
# Open: regress/test_regressions.py::test_few_long_rows
REDUCTIONS = {
    "row": "y(i) +=! x(i,j)",
    "column": "y(j) +=! x(i,j)",
    "all": "y +=! x(i,j)",
    "row_max": "y(i) max=! x(i,j)",
    "column_min": "y(j) min=! x(i,j)",
    "product": "y(i) *=! x(i,j)",
}


def matrix(statement: str, dtype: str = "float") -> str:
    return f"def f({dtype}(M,N) x) -> (y) {{ {statement} }}"


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, pytest.param(4, marks=pytest.mark.fuzz)])
def test_reductions_of_a_matrix(threads: int, check_all: CheckAll) -> None:
    check_all(
        [(matrix(r), [shape]) for r in REDUCTIONS.values() for shape in MATRIX_SIZES],
        threads=threads,
    )


@pytest.mark.slow
@pytest.mark.parametrize("threads", [2, 7])
def test_large_reductions_in_threads(threads: int, check_all: CheckAll) -> None:
    check_all(
        [(matrix(REDUCTIONS[r]), [s]) for r in ("row", "column", "all") for s in LARGE],
        threads=threads,
    )


@pytest.mark.slow
def test_middle_axes(check_all: CheckAll) -> None:
    kept = ("i,k", "k,i", "j", "k", "i", "j,k", "k,j")
    shapes = [
        (3, 5, 7), (1, 1, 1), (0, 3, 4), (3, 0, 4), (4, 64, 33), (65, 15, 7), (2, 700, 65),
        (3, 9000, 2),
    ]  # fmt: skip
    check_all([
        (f"def f(float(M,N,K) x) -> (y) {{ y({left}) +=! x(i,j,k) }}", [shape])
        for left in kept for shape in shapes
    ])  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "dtype", ["half", "bfloat16", "double", "int8", "uint8", "int32", "int64", "bool"]
)
def test_types(dtype: str, check_all: CheckAll) -> None:
    operators = ("and", "or") if dtype == "bool" else ("+", "*", "min", "max")
    cases = [
        (matrix(f"{left} {operator}=! x(i,j)", dtype), [shape])
        for operator in operators
        for left in ("y(i)", "y(j)", "y")
        for shape in ((5, 67), (67, 5), (130, 301))
    ]
    check_all(cases)


def test_halves_accumulate_in_floats(check_all: CheckAll) -> None:
    """Each sum passes 65504, the largest float16, on its way to a small value."""
    x = np.full((3, 400), 1000.0, np.float16)
    x[:, 200:] = -1000.0
    cases: list[tuple[str, list[Any]]] = [
        (matrix("y(i) +=! x(i,j)", "half"), [x]),
        (matrix("y(j) +=! x(i,j)", "half"), [np.ascontiguousarray(x.T)]),
        (matrix("y +=! x(i,j)", "half"), [x]),
        ("def f(half(M,N) x) -> (y) { y(i+j) +=! x(i,j) }", [x]),
    ]
    check_all(cases)


GRAPHS = {
    "softmax": """def f(float(N,D) x) -> (y) {
        m(i) max=! x(i,j)
        s(i) +=! exp(x(i,j) - m(i))
        y(i,j) = exp(x(i,j) - m(i)) / s(i)
    }""",
    "layernorm": """def f(float(N,D) x) -> (y) {
        s(i) +=! x(i,j)
        mean(i) = s(i) / D
        v(i) +=! (x(i,j) - mean(i)) * (x(i,j) - mean(i))
        y(i,j) = (x(i,j) - mean(i)) * rsqrt(v(i) / D + 0.00001)
    }""",
    "rows_and_columns": """def f(float(N,M) x) -> (y) {
        r(i) +=! x(i,j)
        c(j) +=! x(i,j)
        y(i,j) = x(i,j) - r(i) - c(j)
    }""",
    "pointwise": """def f(float(N,M) x) -> (y) {
        a(i,j) = x(i,j) * 2.0
        b(i,j) = a(i,j) + 1.0
        y(i,j) = b(i,j) * a(i,j)
    }""",
    "transposed": """def f(float(N,M) x) -> (y) {
        a(j,i) = x(i,j) * 2.0
        y(i) +=! a(j,i)
    }""",
    "all_reduce": """def f(float(N,M) x) -> (y) {
        s +=! x(i,j) * x(i,j)
        y(i,j) = x(i,j) * rsqrt(s + 1.0)
    }""",
    "twice": """def f(float(N,M) x) -> (y) {
        t +=! x(i,j)
        y(i) +=! x(i,j) * t
        t max=! y(i)
        y(i) = y(i) / (fabs(t) + 1.0)
    }""",
}


@pytest.mark.slow
@pytest.mark.parametrize("threads", [4, pytest.param(1, marks=pytest.mark.fuzz)])
def test_graphs(threads: int, check_all: CheckAll) -> None:
    shapes = [(1, 1), (1, 65), (5, 7), (63, 64), (64, 65), (65, 300), (3000, 9)]
    check_all([(g, [s]) for g in GRAPHS.values() for s in shapes], threads=threads)


def test_empty_graphs(check_all: CheckAll) -> None:
    check_all([(g, [s]) for g in GRAPHS.values() for s in ((0, 5), (5, 0), (0, 0))])


STENCILS = {
    "smoothing": """def f(float(N,M) x) -> (y) {
        t(i,j) = (x(i,j) + x(i,j+1) + x(i,j+2)) / 3.0
        y(i,j) = (t(i,j) + t(i+1,j) + t(i+2,j)) / 3.0
    }""",
    "shifted": "def f(float(N,M) x) -> (y) { y(i,j) = x(i+1,j+2) - x(i,j) }",
    "interior": """def f(float(N,M) x) -> (y) {
        y(i,j) = i >= 1 && i < N - 1 ? x(i-1,j) + x(i+1,j) : x(i,j) where i in 0:N
    }""",
    "every_third": "def f(float(N,M) x) -> (y) { y(i,j) = x(3*i,j) + x(3*i+2,j) }",
    "folded": "def f(float(N,M) x) -> (y) { y(i,j) = x(i/2,j) + x(i%3,j) where i in 0:2*N }",
    "backwards": "def f(float(N,M) x) -> (y) { y(i,j) = x(N-1-i,M-1-j) where i in 0:N, j in 0:M }",
    "from_five": "def f(float(N,M) x) -> (y) { y(i,j) = x(i+1,j-2) }",
}


def test_stencils(check_all: CheckAll) -> None:
    shapes = [(3, 3), (7, 13), (64, 65), (300, 129)]
    check_all([(source, [shape]) for source in STENCILS.values() for shape in shapes])


WRITES = {
    "antidiagonals": "def f(float(N,M) x) -> (y) { y(i+j) +=! x(i,j) }",
    "interleaved": "def f(float(N,M) x) -> (y) { y(i,2*j) = x(i,j)\n y(i,2*j+1) = -x(i,j) }",
    "triangle": """def f(float(N,M) x) -> (y) {
        y(i) +=! x(i,j) where i in 0:N, j in 0:M, exists j <= i
    }""",
    "chosen": "def f(float(N,M) x) -> (y) { y(i) max=! x(i,j) where exists x(i,j) > 0.0 }",
    "again": "def f(float(N,M) x) -> (y) { y(i) +=! x(i,j)\n y(i) *= x(i,j)\n y(i) max= x(i,j) }",
    "reinitialised": "def f(float(N,M) x) -> (y) { y(i) +=! x(i,j)\n y(i) +=! x(i,j) * 2.0 }",
}


@pytest.mark.slow_but("1")
@pytest.mark.parametrize("threads", [1, 4])
def test_writes(threads: int, check_all: CheckAll) -> None:
    shapes = [(1, 1), (7, 13), (64, 65), (300, 200)]
    check_all([(w, [s]) for w in WRITES.values() for s in shapes], threads=threads)


def test_updates_of_an_argument(check_all: CheckAll) -> None:
    doubled = "def f(float(N) a) -> (a) { a(i) = a(i) * 2.0 + 1.0 }"
    added = "def f(float(N) a, float(N,M) x) -> (a) { a(i) += x(i,j) }"
    sizes = (1, 2, 63, 64, 65, 4001)
    check_all([(doubled, [(n,)]) for n in sizes] + [(added, [(n,), (n, 67)]) for n in sizes])


RECURRENCES = {
    "scan": "def f(float(N) a) -> (c) { c(i) = a(i)\n c(i) = c(i-1) + a(i) where i in 1:N }",
    "guarded": "def f(float(N) a) -> (c) { c(i) = i >= 1 ? c(i-1) + a(i) : a(i) where i in 0:N }",
    "ahead": "def f(float(N) a) -> (c) { c(i) = a(i)\n c(i) = c(i+1) + a(i) where i in 0:N-1 }",
}
GRIDS = {
    "columns": """def f(float(T,N) a) -> (c) {
        c(t,i) = a(t,i)
        c(t,i) = c(t-1,i) * 0.5 + a(t,i) where t in 1:T, i in 0:N
    }""",
    "wavefront": """def f(float(T,N) a) -> (c) {
        c(t,i) = a(t,i)
        c(t,i) = c(t-1,i-1) * 0.25 + c(t-1,i) * 0.5 + c(t,i-1) * 0.25 where t in 1:T, i in 1:N
    }""",
    "skewed": """def f(float(T,N) a) -> (c) {
        c(t,i) = a(t,i)
        c(t,i) = c(t-1,i+1) * 0.5 + a(t,i) where t in 1:T, i in 0:N-1
    }""",
    "transposed": """def f(float(T,N) a) -> (c) {
        c(i,t) = a(t,i)
        c(i,t) = c(i,t-1) * 0.5 + a(t,i) where t in 1:T, i in 0:N
    }""",
}


@pytest.mark.slow
@pytest.mark.parametrize("threads", [4, pytest.param(1, marks=pytest.mark.fuzz)])
def test_recurrences(threads: int, check_all: CheckAll) -> None:
    cases: list[tuple[str, list[Any]]] = [
        (source, [(n,)]) for source in RECURRENCES.values() for n in (1, 2, 63, 64, 65, 300)
    ]
    cases += [
        (source, [shape]) for source in GRIDS.values() for shape in ((2, 2), (3, 65), (17, 9))
    ]
    check_all(cases, threads=threads)


def test_extremes_and_where_they_are(check_all: CheckAll) -> None:
    source = """def f(float(N,M) x) -> (y, z, v) {
        y(j) argmin=! x(i,j)
        z(i) argmax=! x(i,j) where j in 1:M
        v(i) = x(i, z(i))
    }"""
    shapes = [(1, 2), (3, 7), (64, 65), (65, 2), (3, 9000), (9000, 3)]
    check_all([(source, [shape]) for shape in shapes])
    # The first of equal values, and NaN as numpy has it.
    ties = np.array([[1, 3, 3, 2], [0, 0, 0, 0], [np.nan, 1, np.nan, 9]], np.float32)
    check_all([(source, [ties])])


def test_gathers_and_scatters(check_all: CheckAll) -> None:
    rng = np.random.default_rng(0)
    lookup = "def f(float(E,D) T, int32(B,L) I) -> (O) { O(b,d) +=! T(I(b,l),d) }"
    rows = "def f(float(E,D) T, int32(B,L) I) -> (O) { O(b,l,d) = T(I(b,l),d) }"
    added = """def f(float(E,D) T, int32(B,L) I) -> (G) {
        G(e,d) = T(e,d) * 0.5
        G(I(b,l),d) += T(I(b,l),d)
    }"""
    cases = []
    for e, d, b, n in (
        (1, 1, 1, 1),
        (11, 13, 5, 7),
        (100, 64, 64, 20),
        (10, 1, 65, 3),
        (4, 5, 0, 3),
    ):
        indices = rng.integers(0, e, (b, n)).astype(np.int32)
        cases += [(source, [(e, d), indices]) for source in (lookup, rows, added)]
    check_all(cases)


def test_guarded_gathers_read_only_where_they_may(check_all: CheckAll) -> None:
    source = """def f(float(N) a, int32(M) I) -> (o) {
        o(i) = I(i) >= 0 && I(i) < N ? a(I(i)) : -1.0
    }"""
    rng = np.random.default_rng(0)
    indices = rng.integers(-(2**30), 2**30, 200).astype(np.int32)
    indices[::3] = rng.integers(0, 9, 67)
    check_all([(source, [(9,), indices])])


# --- what the plan is -----------------------------------------------------------------------


def kinds(compiled: Compiled) -> list[str]:
    kernel = compiled.plan.kernels[0]
    return [str(loop.kind) for loop in loops_of(kernel.tree)]


def test_small_programs_start_no_threads(compiled: Compile) -> None:
    small = compiled(matrix("y(i) +=! x(i,j)"), (4, 5), threads=8)
    assert "parallel" not in kinds(small)
    assert any("serial" in why for why in small.plan.kernels[0].why)


def test_rows_are_shared_by_threads_and_summed_in_lanes(compiled: Compile) -> None:
    rows = compiled(matrix("y(i) +=! x(i,j)"), (700, 640), threads=4)
    assert len(rows.plan.kernels) == 1
    assert kinds(rows)[0] == "parallel" and kinds(rows)[-1] == "vector"
    assert Kind.FOLD in {s.kind for s in rows.plan.scop.statements}
    assert rows.source.workspace_bytes == 0, "partials live in the thread"


def test_a_whole_sum_is_shared_in_chunks(compiled: Compile) -> None:
    whole = compiled(matrix("y +=! x(i,j)"), (700, 640), threads=4)
    assert len(whole.plan.kernels) == 2
    assert any("chunks" in why for why in whole.plan.kernels[0].why)
    (outer, *_) = loops_of(whole.plan.kernels[0].tree)
    assert outer.kind is LoopKind.PARALLEL and outer.extent == 4


def test_one_thread_needs_no_parallel_loop(compiled: Compile) -> None:
    for statement in REDUCTIONS.values():
        assert "parallel" not in kinds(compiled(matrix(statement), (700, 640), threads=1))


def test_a_graph_of_rows_is_one_kernel(compiled: Compile) -> None:
    for name in ("softmax", "layernorm"):
        done = compiled(GRAPHS[name], (640, 300), threads=4)
        assert len(done.plan.kernels) == 1, done.stages["schedule"]
        apart = compiled(GRAPHS[name], (640, 300), threads=4, options=Options(fuse="none"))
        assert len(apart.plan.kernels) > 1
