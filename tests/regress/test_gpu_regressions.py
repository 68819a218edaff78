"""The smallest program for every bug that was found in the GPU target, on the emulator."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.codegen.device.cuda import FUNCTIONS, header_text, parts_for
from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.options import Options
from tcdsl.runtime.nvrtc import compile_cuda, why_no_cuda_compiler
from tcdsl.schedule.placement import Space
from tcdsl.testing import check
from tests.codegen.ptx import stale_loads_of
from tests.strategies.waiting_sums import share_short_rows

CheckAll = Callable[..., None]

pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")


@pytest.fixture(params=[pytest.param("as it is", marks=pytest.mark.slow), "on a small chip"])
def gpu(request: pytest.FixtureRequest) -> Chip:
    return (
        request.getfixturevalue("small_chip") if request.param != "as it is" else load_chip("h200")
    )


def test_a_register_declared_twice(check_emulated: CheckAll, gpu: Chip) -> None:
    """Of a loop with one iteration isl prints parts in two places: one declaration for both."""
    source = """def f(float(N) A0, float(K) A2) -> (T2) {
        T0(i) = A0(i)
        T0(i) += A0(i) * 2.0
        T2(i) +=! T0(2 * i + k) * A2(k) where i in 0:1
    }"""
    updated = """def f(float(N) T0, float(N) A0, float(K) A2) -> (T0, T2) {
        T0(i) += A0(i)
        T2(i) +=! T0(2 * i + k) * A2(k) where i in 0:1
    }"""
    check_emulated(
        [(source, [(7,), (5,)]), (source, [(16,), (16,)]), (updated, [(7,), (7,), (5,)])], gpu=gpu
    )


def test_vector_stores_that_are_guarded(check_emulated: CheckAll, gpu: Chip) -> None:
    """The lanes of a row or a block beyond the last one were guarded, their store was not."""
    bias = "def f(float(M,N) x, float(N) b) -> (y) { y(m,n) = exp(x(m,n)) + b(n) }"
    cube = "def f(int64(A,B,C) x) -> (T0) { T0(i,j,k) = x(i,j,k) * 3 + i }"
    turned = "def f(int64(B,A,C) x) -> (T0) { T0(i,j,k) = x(j,i,k) * 3 + i }"
    check_emulated(
        [
            (bias, [(65, 130), (130,)]), (bias, [(65, 132), (132,)]), (bias, [(33, 128), (128,)]),
            (cube, [(16, 19, 16)]), (turned, [(19, 16, 16)]), (turned, [(3, 70, 64)]),
        ],
        gpu=gpu,
    )  # fmt: skip


def test_initialisations_of_scattered_and_computed_targets(
    check_emulated: CheckAll, gpu: Chip
) -> None:
    """They run over elements, and share no loop with the updates, even with one value each."""
    scattered = "def f(float(V) T0, int32(E) I0, float(E) g) -> (T0) { T0(I0(i)) +=! g(i) }"
    computed = "def f(float(N) a, float(M) b) -> (T0) { T0(i + j) +=! a(i) * b(j) }"
    zeros = np.zeros
    cases: list[tuple[str, list[Any]]] = [
        (scattered, [(1,), zeros(1, np.int32), (1,)]),
        (scattered, [(7,), zeros(1, np.int32), (1,)]),
        (scattered, [(7,), np.array([3, 3, 6], np.int32), (3,)]),
        (computed, [(1,), (1,)]), (computed, [(1,), (7,)]), (computed, [(16,), (9,)]),
    ]  # fmt: skip
    check_emulated(cases, gpu=gpu)


def test_a_temporary_of_two_statements_in_one_vector_loop(
    check_emulated: CheckAll, gpu: Chip
) -> None:
    """mse: the difference, its square and the gradient in the same lanes."""
    source = """def f(float(N) x, float(N) t) -> (loss, grad) {
        d(i) = x(i) - t(i)
        loss +=! d(i) * d(i)
        grad(i) = d(i) * 2.0
    }"""
    check_emulated([(source, [(n,), (n,)]) for n in (1, 64, 1000, 20_000)], gpu=gpu)


@pytest.mark.slow
def test_a_fold_of_partial_sums_that_are_no_registers(check_emulated: CheckAll, gpu: Chip) -> None:
    """Cross-entropy on one block: each thread's partial sum is in shared memory or in memory."""
    source = """def f(float(B,C) x, int32(B) label) -> (loss) {
        top(b) max=! x(b,c)
        total(b) +=! exp(x(b,c) - top(b))
        part(b) = log(total(b)) + top(b) - x(b,label(b))
        loss +=! part(b)
    }"""
    rng = np.random.default_rng(3)
    cases: list[tuple[str, list[Any]]] = []
    for rows, columns in ((1, 7), (3, 300), (8, 1000), (40, 33)):
        label = rng.integers(0, columns, rows).astype(np.int32)
        cases.append((source, [(rows, columns), label]))
    check_emulated(cases, gpu=gpu)
    check_emulated(cases, gpu=gpu, options=Options(fuse="none"))


@pytest.mark.parametrize("operator", ["argmax=!", "argmin=!", "max=!", "+=!"])
def test_reductions_of_nothing(operator: str, check_emulated: CheckAll, gpu: Chip) -> None:
    """An arg reduction has no fold to carry its initialisation: nothing ran it."""
    alone = f"def f(int16(N,M,K) x) -> (y) {{ y(i,j) {operator} x(i,j,k) }}"
    used = f"def f(int16(N,M,K) x) -> (y, z) {{ y(i,j) {operator} x(i,j,k)\n z(i,j) = y(i,j) }}"
    shapes = (4, 11, 0), (0, 11, 4), (4, 0, 0)
    check_emulated([(source, [shape]) for source in (alone, used) for shape in shapes], gpu=gpu)


def test_a_scattered_sum_of_nothing(check_emulated: CheckAll, gpu: Chip) -> None:
    """The rounding of its wide accumulator stood where its updates had been, and lost the init."""
    source = """def f(bfloat16(N) A0, int64(M) I0, int8(M) A1) -> (T0) {
        T0(i) = A0(i)
        T0(I0(i)) +=! bfloat16(A1(i))
    }"""
    nothing = np.zeros(0, np.int64)
    check_emulated([(source, [(16,), nothing, (0,)]), (source, [(0,), nothing, (0,)])], gpu=gpu)


@pytest.mark.slow
def test_shared_memory_that_another_turn_of_a_block_reuses(check_emulated: CheckAll) -> None:
    """A product of one step had no barrier at its end; but the loop over blocks has turns."""
    source = """def f(float(N,C,H,W) I, float(F,C,3,3) K) -> (O) {
        O(n,f,h,w) +=! I(n,c,h+kh,w+kw) * K(f,c,kh,kw)
    }"""
    matmul = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
    few_blocks = replace(
        load_chip("h200"),
        multiprocessors=3,
        threads_per_multiprocessor=32,
        grid_x_blocks=3,
        grid_y_blocks=2,
        grid_z_blocks=1,
    )
    check_emulated(
        [
            (source, [(1, 16, 34, 34), (32, 16, 3, 3)]), (matmul, [(128, 16), (16, 128)]),
            (matmul, [(200, 16), (16, 70)]),
        ],
        gpu=few_blocks,
    )  # fmt: skip


def test_rows_that_one_statement_reads_twice(check_emulated: CheckAll, gpu: Chip) -> None:
    """Kept in registers from one statement to the next: by none, which was divided by."""
    source = "def f(int8(K,M,N) x) -> (y) { y(k) max=! x(k,j,i) * x(K - 1 - k,3,i) where k in 0:K }"
    check_emulated([(source, [(33, 11, 8)]), (source, [(3, 5, 300)])], gpu=gpu)
    once = "def f(bool(K,M,N) a, uint8(K,M,N) b) -> (t) { t(k) and=! a(k,j,i) == a(K - 1 - k,3,i) }"
    check_emulated([(once, [(33, 11, 8)] * 2)], gpu=gpu)


WAITING_SUMS = """def f(TYPE(P,C) x) -> (y) {
    a(c) +=! x(p,c)
    b(c) +=! (x(p,c) - a(c)) * x(p,c)
    d(c) +=! (x(p,c) - b(c)) * x(p,c)
    y(p,c) = x(p,c) - d(c)
}"""
FOUR_OPERATORS = """def f(TYPE(M,N) x) -> (a, b, c, d) {
    a(j) +=! x(i,j)
    b(j) max=! x(i,j)
    c(j) min=! x(i,j)
    d(j) *=! x(i,j)
}"""


def test_columns_are_no_rows_that_clusters_share(cuda_unit: Callable[..., Any]) -> None:
    """Long columns were put in one kernel in the hope of clusters, which then two blocks ran."""
    source = """def f(float(P,C) x) -> (y) {
        s(c) +=! x(p,c)
        y(p,c) = x(p,c) - s(c)
    }"""
    launches = cuda_unit(source, (100352, 256)).source.launches
    assert all(prod(launch.grid) >= load_chip("h200").multiprocessors for launch in launches)


@pytest.mark.slow_but("double")
@pytest.mark.skipif(why_no_cuda_compiler() is not None, reason="there is no NVRTC")
@pytest.mark.parametrize(
    ("text", "shape", "dtype"),
    [
        (WAITING_SUMS, (25000, 12), "half"), (FOUR_OPERATORS, (1_000_000, 32), "double"),
        (FOUR_OPERATORS, (20_000, 64), "half"), (FOUR_OPERATORS, (100_000, 96), "half"),
    ],
    ids=["waiting", "double", "20000 rows", "100000 rows"],
)  # fmt: skip
def test_folds_fit_shared_memory(
    text: str, shape: tuple[int, ...], dtype: str, cuda_unit: Callable[..., Any]
) -> None:
    """Each fold of its own operator, type or number has memory of its own: NVRTC refused 60 KB."""
    options = Options(summation="compensated")
    source = cuda_unit(text.replace("TYPE", dtype), shape, options=options).source
    parts = parts_for(source.functions & FUNCTIONS.keys())
    assert compile_cuda(f"{header_text(parts)}\n{source.text}", load_chip("h200").arch)


def test_turns_of_long_loops_are_numbered_in_64_bits(cuda_unit: Callable[..., Any]) -> None:
    source = "def f(uint8(V,N) T, int32(M) I) -> (y) { y(i) max=! T(I(i),j) }"
    text = cuda_unit(source, (2, 2_200_000_001), (200,)).source.text
    assert re.search(r"const int64_t c\d = \(int\)threadIdx.x \+ \d+ \* \(int64_t\)w_turn", text)


def test_a_flat_rows_address_is_computed_in_64_bits_on_its_way(
    cuda_unit: Callable[..., Any],
) -> None:
    """The array reaches 8 million elements; on the way there, index times step is 4 billion."""
    source = "def f(uint8(N,C,P) x) -> (y) { y(c) max=! x(n,c,p) }"
    strides = {"x": (0, 4_096_000, 1000)}
    text = cuda_unit(source, (1024, 2, 4096), strides=strides).source.text
    assert "int64_t" in text and "const int n_p" not in text


def test_an_outer_product_that_updates_is_no_contraction(cuda_unit: Callable[..., Any]) -> None:
    """It looked for the longest of no reduced axes, and was planned statement by statement."""
    source = "def f(float(M) a, float(N) b, float(M,N) y) -> (y) { y(i,j) min= a(i) * b(j) }"
    unit = cuda_unit(source, (4096,), (4096,), (4096, 4096))
    assert len(unit.source.launches) == 1


GATHERS = """def f(float(B,V) x, float(K) q, int64(B) k) -> (s, t, u) {
    r(b) +=! x(b,v)
    s +=! r(b) + (b > 0 ? x(b, k(b-1)) : 0.0)
    t +=! r(b) + (b > 1 ? x(b-1, k(b)) : x(b,0))
    u +=! r(b) + (k(b) > 1 ? q(k(b)) : 1.0)
}"""


def test_gathers_that_do_not_always_run(check_emulated: CheckAll, gpu: Chip) -> None:
    """Moved before a row's loads they ran always: outside of k, of x, and of an empty q."""
    k = np.array([1, 0, 1, 1])
    check_emulated([(GATHERS, [(4, 1025), (0,), k]), (GATHERS, [(4, 1025), (5,), 2 * k])], gpu=gpu)


def test_a_gather_from_nothing(cuda_unit: Callable[..., Any], emulated: Any, gpu: Chip) -> None:
    """A subscript that is out of range of no elements was clamped to the first of them."""
    (program,) = emulated(
        [cuda_unit("def f(float(K) q, int64(B) k) -> (y) { y(b) = q(k(b)) }", (0,), (3,), gpu=gpu)]
    )
    q, k, y = np.zeros(0, np.float32), np.array([0, 1, 2]), np.zeros(3, np.float32)
    assert program.run([q, k], [y]) is not None


TRIANGLES = """def f(float(M,M) x) -> (s, y) {
    s(i) +=! x(i,j) where j in 0:i+1
    y(i) max=! x(i,j) * s(i) where j in i:M
}"""
TWO_PARTS = """def f(float(M,N) x) -> (y) {
    s(i) +=! x(i,j)
    e(i,j) = x(i,j) - s(i)
    e(i,j) = x(i,j) + s(i) where i in 0:M, j in 37:N-6
    t(i) +=! e(i,j) * e(i,j)
    y(i,j) = e(i,j) * t(i)
}"""


def test_lanes_that_another_vector_has_loaded(check_emulated: CheckAll, gpu: Chip) -> None:
    """isl parts a row; lanes that the second part has not were written over what the first had."""
    cases: list[tuple[str, list[Any]]] = [(TRIANGLES, [(n, n)]) for n in (34, 50, 98)]
    check_emulated([*cases, (TWO_PARTS, [(33, 99)]), (TWO_PARTS, [(5, 103)])], gpu=gpu)


def test_every_third_element(check_emulated: CheckAll, gpu: Chip) -> None:
    """isl makes a loop in steps of 3 of it; lanes and threads took what is between, too."""
    column = "def f(float(M,N) x) -> (t) { t(i) max=! x(i,j) where exists j % 3 == 0 }"
    diagonal = "def f(float(M,N) x) -> (t) { t(i) +=! x(i,j) where exists (i + j) % 3 == 0 }"
    rows = "def f(float(M,N) x) -> (t) { t(j) +=! x(i,j) where exists i % 5 == 2 }"
    cases = [(text, [(33, n)]) for text in (column, diagonal, rows) for n in (99, 100)]
    check_emulated([*cases, (column, [(3, 20000)]), (diagonal, [(300, 7)])], gpu=gpu)


@pytest.mark.slow
def test_sums_of_nothing_at_the_ends(check_emulated: CheckAll, gpu: Chip) -> None:
    """Threads were made for the updates alone: each such program fell back, one could not."""
    last = "def f(float(M,N) x) -> (y) { y(i) max=! x(i,j) where i in 0:M, j in 0:N, exists j < i }"
    first = "def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) where i in 0:M, j in 0:N, exists j > i }"
    column = "def f(float(M,N) x) -> (y) { y(j) +=! x(i,j) where exists i < j }"
    index = """def f(float(M,N) x) -> (y) {
        y(i) argmax=! x(i,j) where i in 0:M, j in 0:N, exists j <= i, exists i >= 2
    }"""
    square = """def f(float(M,N) x) -> (y) {
        y(i,j) +=! x(i,k) * x(k,j) where i in 0:M, j in 0:N, k in 0:N, exists k < i, exists k < M
    }"""
    shapes = ((8, 3), (3, 8), (8, 1), (40, 33), (300, 1), (7, 4099), (1000, 64))
    texts = (last, first, column, index)
    cases: list[tuple[str, list[Any]]] = [(text, [shape]) for text in texts for shape in shapes]
    check_emulated([*cases, *((square, [shape]) for shape in shapes[:4])], gpu=gpu)


@pytest.mark.slow
@pytest.mark.parametrize(("stages", "is_held"), [(3, False), (4, False), (4, True)])
def test_tiles_with_fewer_steps_than_copies_are_ahead(
    stages: int, is_held: bool, check_emulated: CheckAll, small_chip: Chip
) -> None:
    """No group of copies ended between a copy and its reader, as nothing else ran there."""
    head = (
        "def f(float(N,N) x) -> (y) { y(i,j) +=! x(i,k) * x(k,j) where i in 0:N, j in 0:N, k in 0:N"
    )
    below, sparse = f"{head}, exists k <= i }}", f"{head}, exists k % 16 == 3 }}"
    late = """def f(float(B,M,K) x, float(B,K,N) z) -> (y) {
        y(b,i,j) +=! x(b,i,k) * z(b,k,j)
            where b in 0:B, i in 0:M, j in 0:N, k in 0:K, exists k <= 9 * b
    }"""
    kernel = {"kernel": "S0", "template": "tile_simt", "stages": stages, "is_held": is_held}
    choices = {"format": "tcdsl choices", "version": 1, "target": "cuda", "kernels": [kernel]}
    cases: list[tuple[str, list[Any]]] = [(below, [(17, 17)]), (late, [(2, 5, 17), (2, 17, 9)])]
    cases += [] if is_held else [(sparse, [(36, 36)])]
    check_emulated(cases, gpu=small_chip, options=Options(choices=json.dumps(choices)))


def test_a_row_that_is_staged_by_one_row_of_threads(check_emulated: CheckAll, gpu: Chip) -> None:
    """Each thread of a column copied the same element of B to shared memory."""
    source = "def f(float(M,K) A, float(N) B) -> (C) { C(m,n) +=! A(m,k) * B(n) }"
    check_emulated([(source, [(9, 7), (11,)]), (source, [(130, 70), (140,)])], gpu=gpu)


def test_columns_of_one_row_repeated(cuda_unit: Callable[..., Any]) -> None:
    """Vectors ended early, as nothing but their start is a multiple: not all lanes were folded."""
    source = "def f(half(K) a, half(K,M) b) -> (y) { y(j) +=! a(k) * b(k,j) }"
    unit = cuda_unit(source, (513,), (513, 999), strides={"a": (2,), "b": (0, 1)})
    assert "threads.y along what is reduced" in str(unit.source.launches)
    a, b = np.ones((513, 2), np.float16)[:, 0], np.ones((1, 999), np.float16)
    check(tcdsl.define(source).f, a, np.broadcast_to(b, (513, 999)), targets="emulate")


STAGED = """def f(TYPE(M,N) x) -> (y) {
    s(i) +=! float(x(i,j))
    v(i) +=! (x(i,j) - s(i)) * (x(i,j) - s(i))
    y(i,j) = x(i,j) * v(i)
}"""


@pytest.mark.slow_but("half")
@pytest.mark.parametrize("dtype", ["half", "float", "double"])
def test_rows_of_an_offset_view_that_clusters_share(
    dtype: str, cuda_unit: Callable[..., Any], emulated: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Shared memory was written in vectors, by asynchronous copies to the vectors' registers."""
    share_short_rows(monkeypatch)
    source = STAGED.replace("TYPE", dtype)
    units = [cuda_unit(source, shape, alignments={"x": 8}) for shape in ((2, 512), (1, 1021))]
    units += [cuda_unit(source, shape, alignments={"x": 2}) for shape in ((2, 512), (1, 1022))]
    assert all("tc_copy_wait" in unit.source.text for unit in units)
    rng = np.random.default_rng(1)
    for program in emulated(units):
        stored = program.comprehension.tensors["x"].dtype.numpy
        check(program, rng.random(program.unit.special.shapes["x"]).astype(stored))


def test_a_column_of_doubles_that_a_cluster_shares(
    check_emulated: CheckAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding tore the column in shared memory apart: asynchronous copies came from registers."""
    share_short_rows(monkeypatch)
    source = STAGED.replace("TYPE", "double").replace("M,N", "N,M").replace("i,j", "j,i")
    check_emulated([(source, [(rows, 1)]) for rows in (500, 1000)])


def test_compensated_sums_of_doubles_in_shared_memory(check_emulated: CheckAll) -> None:
    """They were copied at once, 16 bytes, but were aligned as one of their halves."""
    source = """def f(double(M,N) A) -> (L, d) {
        L(i,j) = 0.0 where i in 0:M, j in 0:M
        L(i,j) +=! j <= i ? A(i,k) * A(j,k) : 0.0
        d(i) +=! L(i,j) where j in 0:i+1, i in 0:M
    }"""
    check_emulated([(source, [(17, 11)])], options=Options(summation="compensated"))


@pytest.mark.slow_but("u(5)")
@pytest.mark.parametrize("bound", ["u(5)", "u(0) - 1"])
def test_a_source_that_a_condition_reads_when_it_has_changed(
    bound: str, check_emulated: CheckAll
) -> None:
    """The second kernel computed u again in the bound, from a p that it had written."""
    source = f"""def f(int32(N) p) -> (int32(N) p, t) {{
        u(i) = p(i)
        t +=! u(i)
        p(i) = u(i) + t where i in 0:{bound}
    }}"""
    cases = []
    for n in (100, 5000, 20_001):
        p = np.arange(n, dtype=np.int32) % 97
        p[[0, 5]] = n // 2
        cases.append((source, [p]))
    check_emulated(cases)


# A GPU gave wrong numbers for these: one load, through the read-only cache, of what was written.
CHOSEN = {
    "of a sum's terms": (
        """def f(float(I) t1, float t2) -> (t4, t5) {
            t4(i) = t1(i) * t2
            t5 +=! (t1(i) > 0.1 ? t4(i) : t1(i))
        }""",
        [((n,), ()) for n in (7, 1000, 3001)],
    ),
    "of a minimum and a number": (
        """def f(float(I,J,K) x, float s) -> (t3, t4) {
            t3(j) min=! x(i,j,k)
            t4(j) = t3(j) > 0.1 ? s : t3(j)
        }""",
        [((17, 65, 33), ()), ((3, 70, 5), ())],
    ),
    "of a kernel before": (
        """def f(half(M,N) x) -> (s, y) {
            s(j) +=! float(x(i,j))
            y(i,j) = x(i,j) > 0.1 ? half(s(j)) : x(i,j)
        }""",
        [((50_000, 1500),), ((301, 77),)],
    ),
    "of a kernel before alone": (
        """def f(float(M,N) x) -> (s, y) {
            s(j) +=! x(i,j)
            y(i,j) = s(j) where i in 0:64
        }""",
        [((50_000, 2048),), ((301, 64),)],
    ),
    "of a kernel before alone, at half its index": (
        """def f(float(M,N) x) -> (s, y) {
            s(j) +=! x(i,j)
            y(i) = s(i / 2) where i in 0:N
        }""",
        [((3000, 128),)],
    ),
    "of a gathered element": (
        """def f(float(N) x, int32(N) at) -> (t, y) {
            t(i) = x(i) * 2.0
            y(i) = x(i) > 0.1 ? t(at(i)) : x(at(i))
        }""",
        [((130,), (130,))],
    ),
}  # fmt: skip


def inputs_of_chosen(shapes: tuple[tuple[int, ...], ...], name: str) -> list[Any]:
    rng = np.random.default_rng(3)
    arrays: list[Any] = [rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]
    if "half" in CHOSEN[name][0]:
        arrays = [array.astype(np.float16) for array in arrays]
    if "int32" in CHOSEN[name][0]:
        arrays[1] = rng.integers(0, shapes[1][0], shapes[1]).astype(np.int32)
    return arrays


@pytest.mark.slow_but("of a sum's terms", "of a minimum and a number", "of a gathered element")
@pytest.mark.parametrize("name", CHOSEN)
def test_what_was_written_is_not_loaded_through_the_read_only_cache(
    name: str, cuda_unit: Callable[..., Any], check_emulated: CheckAll
) -> None:
    """The emulator has no such cache: that is read from PTX, where there is NVRTC."""
    source, every = CHOSEN[name]
    sources = [cuda_unit(source, *shapes).source for shapes in every]
    assert any("tc_changing(" in unit.text for unit in sources)
    if why_no_cuda_compiler() is None:
        assert stale_loads_of(sources) == []
    small = [shapes for shapes in every if prod(shapes[0]) < 100_000]
    check_emulated([(source, inputs_of_chosen(shapes, name)) for shapes in small])


@pytest.mark.gpu
@pytest.mark.parametrize("name", CHOSEN)
def test_what_was_written_is_seen_on_a_gpu(name: str) -> None:
    source, every = CHOSEN[name]
    program = tcdsl.define(source)["f"]
    for shapes in every:
        check(program, *inputs_of_chosen(shapes, name), targets="cuda")


STEPS_BY_CALLS = """def step(float(M,2,N) x, float(M,N) c) -> (float(M,N) h, float(M,N) d) {
    i(b,n) = sigmoid(x(b,0,n))
    d(b,n) = c(b,n) * i(b,n) + tanh(x(b,1,n))
    h(b,n) = i(b,n) * tanh(d(b,n))
}
def f(float(M,2,N) x, float(M,2,N) y, float(M,N) c)
        -> (float(M,N) h, float(M,N) k, float(M,N) e) {
    (h, d) = step(x, c)
    (k, e) = step(y, d)
}"""


def test_what_a_def_hands_to_the_next_stays_in_registers(
    cuda_unit: Callable[..., Any], check_emulated: CheckAll
) -> None:
    """The next read it at ``i + 0``, which was no index of its own: it went by memory."""
    unit = cuda_unit(STEPS_BY_CALLS, (4096, 2, 512), (4096, 2, 512), (4096, 512))
    assert unit.done.plan.placements["d"].space is Space.PRIVATE
    check_emulated([(STEPS_BY_CALLS, [(9, 2, 70), (9, 2, 70), (9, 70)])])
