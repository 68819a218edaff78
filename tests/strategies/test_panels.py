"""Contractions on packed panels: which are, and that their results are right."""

from collections.abc import Callable
from math import inf
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tcdsl.costmodel import cpu_thresholds, panels
from tcdsl.costmodel.machine import Cpu
from tcdsl.costmodel.panels import Blocking, Product, blockings, work_on_panels
from tcdsl.driver import Compiled
from tcdsl.options import Options
from tcdsl.plan import cpu_planner
from tcdsl.poly.scop import Scop
from tcdsl.schedule.placement import MAX_LOCAL_BYTES
from tcdsl.strategies import catalogue, contraction
from tcdsl.strategies.templates import cpu_panels
from tcdsl.testing import contractions
from tests.hunts import drawn, hunt_in_batches, with_seeds
from tests.strategies.test_contraction import (
    BATCHED,
    BIASED,
    CHANNELS_LAST,
    DILATED,
    DOT,
    GROUPED,
    IN_PLACE,
    KEPT,
    MM,
    OUTER,
    PADDED,
    STRIDED,
    TRANSPOSED,
    operands,
)

CheckAll = Callable[..., None]
Compile = Callable[..., Compiled]
Lower = Callable[..., Scop]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every contraction one on panels, in several blocks along each index."""
    # The first template that applies, whatever it takes.
    monkeypatch.setattr(catalogue, "ALIKE_ON_CPU", inf)
    monkeypatch.setattr(cpu_planner, "ALIKE_ON_CPU", inf)
    monkeypatch.setattr(cpu_panels, "LEAST_TERMS", 1)
    monkeypatch.setattr(cpu_panels, "LEAST_USES", 1)
    monkeypatch.setattr(cpu_panels, "MOST_WITHIN", 360)
    monkeypatch.setattr(contraction, "MIN_WORK", 1)
    monkeypatch.setattr(contraction, "MIN_REUSE", 1)
    monkeypatch.setattr(contraction, "NARROW_TERMS", 1)
    monkeypatch.setattr(contraction, "NARROW_USES", 1)
    monkeypatch.setattr(contraction, "WINDOW_TERMS", 1)
    monkeypatch.setattr(contraction, "WINDOW_USES", 1)
    monkeypatch.setattr(cpu_panels, "WINDOW_USES", 1)
    monkeypatch.setattr(cpu_thresholds, "BLOCKED_ROWS", (20,))
    monkeypatch.setattr(cpu_thresholds, "BLOCKED_COLUMNS", (64,))
    monkeypatch.setattr(panels, "TERMS_A_BLOCK", 24)


def templates_of(compiled: Compiled) -> list[str]:
    return [kernel.template for kernel in compiled.plan.kernels]


PART = """def f(float(M,K) A, float(K,N) B) -> (y) {{
    C(m,n) +=! A(m,k) * B(k,n)
    y(i,n) = 2 * C(i,n) where i in {}
}}"""


# --- when -------------------------------------------------------------------------------------


def test_large_products_are_packed_and_small_ones_are_not(compiled: Compile) -> None:
    assert "cpu_panels" in templates_of(compiled(MM, (2048, 2048), (2048, 2048), threads=16))
    assert templates_of(compiled(MM, (128, 16384), (16384, 4096), threads=1)) == ["cpu_panels"]
    assert templates_of(compiled(MM, (256, 256), (256, 256), threads=1)) == ["cpu_tile"]


@pytest.mark.parametrize(
    ("source", "shapes", "reason"),
    [
        (MM, [(64, 64), (64, 64)], "few terms"),
        ("def f(float(M,K) A) -> (y) { y(m) +=! A(m,k) * 2.0 }", [(600, 600)], "no one member"),
        ("def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) max=! A(m,k) * B(k,n) }",
         [(600, 600), (600, 600)], "no sum"),
        (PART.format("3:M"), [(600, 600), (600, 600)], "S1 has other ranges"),
        (PART.format("0:M - 3"), [(600, 600), (600, 600)], "S1 has other ranges"),
    ],
)  # fmt: skip
def test_why_not(
    source: str, shapes: list[tuple[int, ...]], reason: str, compiled: Compile
) -> None:
    (weighed,) = compiled(source, *shapes, threads=1).plan.weighed
    (found,) = [c for c in weighed.candidates() if c["template"] == "cpu_panels"]
    assert reason in found["why_not"]


def test_blocks_fit_the_caches() -> None:
    cpu = Cpu(4)
    product = Product(3000, 3000, 3000, 1, (10, 32), 4)
    found = list(blockings(product, cpu))
    assert found
    for one in found:
        held = one.rows * one.terms + one.columns * one.terms + one.rows * one.columns
        assert 4 * held <= cpu.l2_bytes
        assert one.rows % 10 == 0 and one.columns % 32 == 0


def test_columns_that_other_threads_have_packed_are_not_near() -> None:
    product, blocking = Product(1000, 1000, 900, 1, (10, 32), 4), Blocking(200, 256, 300, True)
    near = 4 * 256 * 900  # of a block
    alone, many = (
        work_on_panels(product, blocking, Cpu(1)),
        work_on_panels(product, blocking, Cpu(8)),
    )
    assert many.phases[1].l3_bytes == 5 * 4 * near and alone.phases[1].l3_bytes == 0
    own = work_on_panels(product, Blocking(200, 256, 300, False), Cpu(8))
    assert own.phases[1].l3_bytes == 0 and own.phases[2].l3_bytes > many.phases[2].l3_bytes


def test_operands_that_no_cache_holds_are_read_from_memory() -> None:
    """Those that fit have been there before."""
    for terms, is_far in ((1000, False), (60_000, True)):
        product = Product(128, 40, terms, 2, (10, 32), 4)
        work = work_on_panels(product, Blocking(40, 64, 300, False), Cpu(8))
        assert work.dram_bytes == (4 * (2 * 128 + 40) * terms if is_far else 0)


def test_results_that_no_cache_holds_are_stored_to_memory() -> None:
    for rows, is_far in ((10_000, False), (100_000, True)):
        product = Product(rows, 512, 64, 1, (10, 32), 4)
        work = work_on_panels(product, Blocking(40, 64, 64, True), Cpu(8))
        filled, read = 2 * 4 * 512 * 64, 4 * rows * 64  # columns, rows
        stored = 2 * 4 * rows * 512
        assert work.dram_bytes == filled + (read + stored if is_far else 0)


def test_few_blocks_of_long_sums_leave_threads_idle(compiled: Compile) -> None:
    """128 x 32 x 65536 for 8 threads: 4.9 ms on panels, 2.4 in tiles of partial sums."""
    found = compiled(DOT, (128, 1 << 16), (32, 1 << 16), threads=8)
    assert templates_of(found)[0] == "cpu_tile"


@pytest.mark.parametrize("terms", [4096, 16384])
def test_long_terms_favour_panels(terms: int, compiled: Compile) -> None:
    weighed = compiled(MM, (128, terms), (terms, 4096), threads=1).plan.weighed[-1]
    least = {
        name: min(c["predicted_us"] for c in weighed.candidates() if c["template"] == name)
        for name in ("cpu_panels", "cpu_tile")
    }
    assert least["cpu_panels"] < least["cpu_tile"]


# --- results ----------------------------------------------------------------------------------

SIZES = [(7, 33, 5), (41, 131, 53), (40, 128, 48), (10, 32, 24), (1, 64, 300), (64, 1, 300)]


@pytest.mark.slow_but("mm-1")
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("source", [MM, DOT, OUTER, TRANSPOSED], ids=["mm", "dot", "outer", "t"])
@pytest.mark.usefixtures("small_blocks")
def test_products(source: str, threads: int, check_all: CheckAll) -> None:
    check_all([(source, operands(source, s)) for s in SIZES], threads=threads)


@pytest.mark.slow
@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.usefixtures("small_blocks")
def test_where_columns_are_packed(
    is_shared: bool, check_all: CheckAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        cpu_panels, "blockings", lambda *a: (b for b in blockings(*a) if b.is_shared is is_shared)
    )
    batches = [(BATCHED, [(3, 23, 31), (3, 31, 70)])]
    cases = [(source, operands(source, SIZES[1])) for source in (MM, DOT, OUTER, BIASED)]
    check_all([*cases, *batches], threads=4)


@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
@pytest.mark.usefixtures("small_blocks")
def test_each_product_of_a_batch_has_its_panels(
    check_all: CheckAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the columns, too, which a kernel of its own fills."""
    shared = lambda *a: (b for b in blockings(*a) if b.is_shared)  # noqa: E731
    monkeypatch.setattr(cpu_panels, "blockings", shared)
    check_all([(BATCHED, [(3, 23, 31), (3, 31, 70)])], threads=4)


@pytest.mark.usefixtures("small_blocks")
def test_a_reduction_of_the_sums_has_a_kernel_of_its_own(check_all: CheckAll) -> None:
    source = """def f(float16(M,K) A, float16(K,N) B, float16(M) b) -> (t) {
        C(m,n) +=! A(m,k) * B(k,n)
        C(m,n) = fmax(C(m,n) + b(m), 0.0)
        t(n) max=! C(m,n)
    }"""
    check_all([(source, [(33, 96), (96, 40), (33,)])])


@pytest.mark.slow
@pytest.mark.parametrize("fuse", ["max", "none"])
@pytest.mark.usefixtures("small_blocks")
def test_what_follows_the_sums(fuse: str, check_all: CheckAll) -> None:
    cases = [(s, operands(s, z)) for s in (BIASED, IN_PLACE, KEPT) for z in SIZES[:3]]
    check_all(cases, options=Options(fuse=fuse))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["half", "bfloat16", "double", "int8", "uint8", "int32", "int64"])
@pytest.mark.usefixtures("small_blocks")
def test_types(dtype: str, check_all: CheckAll) -> None:
    sources = (source.replace("float", dtype) for source in (MM, OUTER))
    plain = (MM, OUTER)
    check_all([(s, operands(p, SIZES[1])) for s, p in zip(sources, plain, strict=True)])


PAIRED = "def f({}(M,K) A, {}(K,N) B) -> (C) {{ C(m,n) +=! A(m,k) * B(k,n) }}"
BY_ROWS = "def f({}(M,K) A, {}(N,K) B) -> (C) {{ C(m,n) +=! int32(A(m,k)) * int32(B(n,k)) }}"
BY_COLUMNS = "def f({}(K,M) A, {}(K,N) B) -> (C) {{ C(m,n) +=! A(k,m) * B(k,n) }}"
THEN = (
    "def f({}(M,K) A, {}(K,N) B, int32(N) b) -> (D)"
    " {{ C(m,n) +=! A(m,k) * B(k,n) D(m,n) = max(C(m,n) + b(n), 0) }}"
)


NARROW = [
    ("int8", "int8"), ("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8"), ("int16", "int8"),
    ("bfloat16", "bfloat16"),
]  # fmt: skip
FUNCTIONS = [
    "tc_dots_i8_i8", "tc_dots_u8_i8", "tc_dots_i8_u8", "tc_dots_u8_u8", "tc_dots_i16",
    "tc_dots_bf16",
]  # fmt: skip


def drawn_of(dtype: str, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
    if dtype == "bfloat16":
        return rng.standard_normal(shape).astype(ml_dtypes.bfloat16)
    return rng.choice([np.iinfo(dtype).min, np.iinfo(dtype).max, 1, 3], shape).astype(dtype)


@pytest.mark.slow
@pytest.mark.parametrize("types", NARROW, ids=FUNCTIONS)
@pytest.mark.usefixtures("small_blocks")
def test_several_terms_at_once(
    types: tuple[str, str], check_all: CheckAll, compiled: Compile, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    cases = []
    for source in (PAIRED, BY_ROWS, BY_COLUMNS, THEN):
        for m, n, k in SIZES if source is PAIRED else SIZES[:1]:
            text = source.format(*types)
            text = text.replace("int32", "float") if types[0] == "bfloat16" else text
            shapes = [(k, m) if source is BY_COLUMNS else (m, k)]
            shapes.append((n, k) if source is BY_ROWS else (k, n))
            given = [drawn_of(t, shape, rng) for t, shape in zip(types, shapes, strict=True)]
            kind = np.float32 if types[0] == "bfloat16" else np.int32
            more = [rng.integers(-9, 9, n).astype(kind)] if source is THEN else []
            cases.append((text, [*given, *more]))
    name = FUNCTIONS[NARROW.index(types)]
    assert name in compiled(PAIRED.format(*types), (41, 53), (53, 131)).source.body
    check_all(cases)
    monkeypatch.setattr(Cpu.__init__, "__defaults__", (32, *(Cpu.__init__.__defaults__ or ())[1:]))
    is_there = name in compiled(PAIRED.format(*types), (41, 53), (53, 131)).source.body
    assert is_there is (types[0] != "bfloat16"), "which 16 registers have no place for"
    check_all(cases[:3])


@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        (PAIRED.format("uint16", "int8"), [(64, 256), (256, 64)]),  # beyond 16 bits with a sign
        (PAIRED.format("int8", "int8"), [(64, 64), (64, 64)]),
        ("def f(int8(M,K) A, int8(K,N) B) -> (C) { C(m,n) +=! int64(A(m,k)) * int64(B(k,n)) }",
         [(64, 256), (256, 64)]),
        ("def f(int8(N,C,W) I, int8(F,C,3) K) -> (O) { O(n,f,w) +=! I(n,c,w+r) * K(f,c,r) }",
         [(2, 16, 66), (64, 16, 3)]),
    ],
)  # fmt: skip
def test_other_integers_are_multiplied_one_by_one(
    source: str, shapes: list[tuple[int, ...]], compiled: Compile
) -> None:
    assert "tc_dots" not in compiled(source, *shapes, threads=1).source.body


@pytest.mark.parametrize("types", NARROW[::5], ids=FUNCTIONS[::5])
def test_narrow_terms_are_multiplied_several_at_once(
    types: tuple[str, str], compiled: Compile
) -> None:
    for shapes in ([(128, 128), (128, 128)], [(512, 512), (512, 512)], [(16, 512), (512, 64)]):
        done = compiled(PAIRED.format(*types), *shapes, threads=1)
        assert FUNCTIONS[NARROW.index(types)] in done.source.body


WINDOW = """def f({0}(N,H,W,C) x, {1}(F,R,S,C) k) -> (y) {{
    y(n,p,q,f) +=! x(n,p+r,q+s,c) * k(f,r,s,c) }}"""
PADDED_WINDOW = """def f({0}(N,H,W,C) x, {1}(F,3,3,C) k) -> (y) {{ y(n,p,q,f) +=!
    (p+r >= 1 && p+r <= H && q+s >= 1 && q+s <= W ? x(n,p+r-1,q+s-1,c) : 0) * k(f,r,s,c)
    where p in 0:H, q in 0:W }}"""
SECOND = """def f({0}(N,C,H,W) x, {1}(F,C,R,S) k) -> (y) {{
    y(n,f,p,q) +=! x(n,c,p+r,q+s) * k(f,c,r,s) }}"""


def test_windows_of_narrow_terms_are_multiplied_several_at_once(
    compiled: Compile, check_all: CheckAll
) -> None:
    rng, cases = np.random.default_rng(4), []
    for types in NARROW[::5]:
        for source in (WINDOW, PADDED_WINDOW, SECOND):
            shapes = [(1, 9, 17, 36), (19, 3, 3, 36)]
            if source is SECOND:
                shapes = [(1, 36, 9, 17), (19, 36, 3, 3)]
            text = source.format(*types)
            is_there = FUNCTIONS[NARROW.index(types)] in compiled(text, *shapes).source.body
            assert is_there is (source is not SECOND or types[0] == "int8")
            given = [drawn_of(t, shape, rng) for t, shape in zip(types, shapes, strict=True)]
            cases.append((text, given))
    check_all(cases)


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize("types", NARROW, ids=FUNCTIONS)
@pytest.mark.usefixtures("small_blocks")
def test_narrow_windows_in_blocks(types: tuple[str, str], check_all: CheckAll) -> None:
    rng, cases = np.random.default_rng(5), []
    for c, f in ((5, 33), (32, 7), (67, 20)):
        for source in (WINDOW, PADDED_WINDOW, SECOND):
            shapes = [(2, 5, 11, c), (f, 3, 3, c)]
            if source is SECOND:
                shapes = [(2, c, 5, 11), (f, c, 3, 3)]
            given = [drawn_of(t, shape, rng) for t, shape in zip(types, shapes, strict=True)]
            cases.append((source.format(*types), given))
    check_all(cases)


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
def test_convolutions(check_all: CheckAll) -> None:
    image, weights = (2, 5, 9, 23), (13, 5, 3, 3)
    cases: list[tuple[str, list[Any]]] = [
        (source, [image, weights]) for source in (STRIDED, DILATED, PADDED)
    ]
    cases += [
        (CHANNELS_LAST, [(2, 9, 8, 16), (3, 3, 16, 33)]),
        (GROUPED, [(2, 2, 4, 9, 19), (2, 4, 4, 3, 3), (2, 4)]),
    ]
    check_all(cases)


@pytest.mark.slow
@with_seeds(5050, 12, range(5500, 5510))
@pytest.mark.timeout(4 * 3600)
@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
@pytest.mark.usefixtures("small_blocks")
def test_random_contractions(number: int, count: int, check_all: CheckAll) -> None:
    pytest.importorskip("hypothesis")
    hunt_in_batches(drawn(number, count, contractions()), check_all)


def test_what_a_block_has_in_the_cache_is_asked_for(compiled: Compile) -> None:
    """Its panels and sums may be larger than arrays on a stack are, of the second kernel, too."""
    plan = compiled(MM, (2048, 2048), (2048, 2048), threads=8).plan
    assert [kernel.template for kernel in plan.kernels] == ["panel copies", "cpu_panels"]
    large = {name: one for name, one in plan.placements.items() if one.is_blocked}
    assert set(large) == {"A.panel0S0", "C.part0"}
    assert max(one.elements() for one in large.values()) * 4 > MAX_LOCAL_BYTES


@pytest.mark.parametrize(("terms", "lanes"), [(600, 16), (1024, 8), (2048, 8)])
def test_lines_that_share_a_set_are_few(terms: int, lanes: int, compiled: Compile) -> None:
    """Columns whose terms are neighbours in memory are lines apart, of a set where pages are."""
    lines = compiled(DOT, (640, terms), (640, terms), threads=1).source.body.split("\n")
    (copy,) = (number for number, line in enumerate(lines) if "] = B[" in line)
    simd = max(n for n in range(copy) if "omp simd" in lines[n])
    assert f" <= {lanes - 1};" in lines[simd + 1]


@pytest.mark.slow
@pytest.mark.usefixtures("small_blocks")
def test_columns_that_are_lines_apart(check_all: CheckAll) -> None:
    filters = """def f(float(N,C,H,W) I, float(F,C,R,S) K) -> (O) {
        O(n,f,h,w) +=! I(n,c,h+r,w+s) * K(f,c,r,s)
    }"""
    shapes = [[(2, 40, 6, 7), (70, 40, 3, 3)], [(1, 128, 5, 4), (33, 128, 2, 4)]]
    products = [(DOT, [(21, terms), (97, terms)]) for terms in (17, 512, 1024, 1100)]
    check_all([*products, *((filters, list(one)) for one in shapes)])
