"""Sums of exponentials of rows that no block holds: chunks with maxima of their own."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.options import Options
from tcdsl.strategies import block_sizes, finish, row_chunks, row_registers
from tests.strategies.waiting_sums import take_the_likeliest

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]

SOFTMAX = """def softmax(float(M,N) x) -> (float(M,N) y) {
    m(i) max=! x(i,j)
    e(i,j) = exp(float(x(i,j)) - m(i))
    s(i) +=! e(i,j)
    y(i,j) = e(i,j) / s(i)
}"""
LOG_SOFTMAX = """def f(float(M,N) x) -> (float(M,N) y) {
    m(i) max=! x(i,j)
    s(i) +=! exp(float(x(i,j)) - m(i))
    y(i,j) = x(i,j) - m(i) - log(s(i))
}"""
LOGSUMEXP = """def f(float(M,N) x) -> (y) {
    m(i) max=! x(i,j)
    s(i) +=! exp(x(i,j) - m(i))
    y(i) = log(s(i)) + m(i)
}"""
CROSS_ENTROPY = """def f(float(B,V) x, int64(B) t) -> (r, loss) {
    m(b) max=! x(b,v)
    s(b) +=! exp(x(b,v) - m(b))
    r(b) = log(s(b)) + m(b) - x(b,t(b))
    loss +=! r(b)
    loss = loss / B
}"""
MASKED = """def f(float(B,H,N) x, bool(B,N) k, float scale) -> (p) {
    z(b,h,j) = k(b,j) ? x(b,h,j) * scale : -inf
    m(b,h) max=! z(b,h,j)
    e(b,h,j) = exp(z(b,h,j) - m(b,h))
    s(b,h) +=! e(b,h,j)
    p(b,h,j) = e(b,h,j) / s(b,h)
}"""
# Several sums beside one maximum, by other indices: weighted, signed, through a temporary.
SEVERAL = """def f(float(M,N) x, half(N) w, int32(N) k) -> (m, s, n, h) {
    m(i) max=! x(i,j)
    s(i) +=! w(j) * exp(x(i,j) - m(i)) * 0.5
    n(i) +=! -(k(j) * exp(x(i,j) - m(i)))
    d(a,b) = x(a,b) - m(a)
    h(a) += -(exp(d(a,b)) * float(k(b)))
}"""


@pytest.fixture
def chip(monkeypatch: pytest.MonkeyPatch, small_chip: Chip) -> Chip:
    """A chip on which a block holds few values of a row, and longer rows are worth cutting."""
    for module, name, value in (
        (block_sizes, "MAX_ROW_THREADS", 16), (row_registers, "MAX_RESIDENT", 8),
        (row_registers, "MOST_RESIDENT", 4), (row_chunks, "MIN_ROW", 1),
        (row_chunks, "VALUES", (4,)), (row_chunks, "THREADS", (16,)),
        (row_chunks, "VECTOR_BYTES", 4),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(row_chunks, "_seconds_as_written", lambda *_, **__: math.inf)
    take_the_likeliest(monkeypatch)
    whole = load_chip("h200")
    return replace(
        small_chip, grid_x_blocks=whole.grid_x_blocks, grid_y_blocks=whole.grid_y_blocks,
        grid_z_blocks=whole.grid_z_blocks,
    )  # fmt: skip


Programs = dict[str, tuple[str, list[Any]]]

CUT: dict[str, tuple[str, list[Any], int]] = {
    "softmax": (SOFTMAX, [(3, 512)], 1),
    "softmax of much": (SOFTMAX, [(5, 1021)], 2),
    "log-softmax": (LOG_SOFTMAX, [(2, 300)], 1),
    "logsumexp": (LOGSUMEXP, [(3, 257)], 1),
    "one row": (LOGSUMEXP, [(1, 997)], 1),
    "cross-entropy": (CROSS_ENTROPY, [(3, 401), (3,)], 2),
    "masked": (MASKED, [(2, 2, 512), (2, 512), ()], 1),
    "several sums": (SEVERAL, [(3, 300), (300,), (300,)], 1),
}  # fmt: skip


@pytest.mark.parametrize("name", CUT)
def test_rows_are_read_once_in_chunks(name: str, cuda_unit: MakeUnit, chip: Chip) -> None:
    source, shapes, n_launches = CUT[name]
    unit = cuda_unit(source, *shapes, gpu=chip)
    assert len(unit.source.launches) == n_launches
    first = unit.source.launches[0]
    assert any("beside the largest of chunks" in why for why in first.why)
    assert any("in registers: 4 values a thread" in why for why in first.why)
    assert any("by the last of" in why for why in first.why)


SIZES = (1, 199, 211, 257, 1021)


def is_cut(unit: Any) -> bool:
    return any("beside the largest" in why for launch in unit.source.launches for why in launch.why)


@pytest.mark.slow
def test_sizes(check_emulated: CheckAll, chip: Chip) -> None:
    cases: list[tuple[str, list[Any]]] = [(SOFTMAX, [(2, n)]) for n in SIZES]
    cases += [(LOG_SOFTMAX, [(1, 257)]), (LOGSUMEXP, [(3, 256)]), (LOGSUMEXP, [(1, 1021)])]
    cases += [(CROSS_ENTROPY, [(3, 211), np.array([210, 0, 64])])]
    cases += [(MASKED, [(m, 2, n), (m, n), ()]) for m, n in ((2, 300), (1, 509))]
    cases += [(SEVERAL, [(3, n), (n,), (n,)]) for n in (300, 509)]
    check_emulated(cases, gpu=chip)


def test_several_turns_of_a_block(check_emulated: CheckAll, chip: Chip) -> None:
    """No block comes twice to a ticket: the rows have a kernel of their own."""
    cases: list[tuple[str, list[Any]]] = [
        (SOFTMAX, [(5, 509)]), (LOGSUMEXP, [(9, 509)]), (SEVERAL, [(4, 300), (300,), (300,)]),
    ]  # fmt: skip
    check_emulated(cases, gpu=replace(chip, grid_x_blocks=7, grid_y_blocks=3, grid_z_blocks=2))


def test_much_that_follows(
    check_emulated: CheckAll, chip: Chip, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finish, "MOST_WORK", 0)
    check_emulated([(SOFTMAX, [(3, 512)]), (MASKED, [(2, 3, 300), (2, 300), ()])], gpu=chip)


@pytest.mark.slow
def test_types(check_emulated: CheckAll, cuda_unit: MakeUnit, chip: Chip) -> None:
    cases: list[tuple[str, list[Any]]] = []
    for dtype in ("double", "bfloat16", "half"):
        n = 1021 if dtype == "double" else 300  # it wants room for exponents up to 746
        for source in (SOFTMAX, LOGSUMEXP):
            typed = source.replace("float(M,N)", f"{dtype}(M,N)")
            if dtype == "double":
                typed = typed.replace("float(x(i,j))", "x(i,j)")
            assert is_cut(cuda_unit(typed, (2, n), gpu=chip))
            cases.append((typed, [(2, n)]))
    check_emulated(cases, gpu=chip)


def special_rows(n: int) -> Any:
    """Rows that have NaN, infinities, chunks of nothing but -inf, and the least numbers."""
    rows = np.random.default_rng(5).normal(size=(12, n)).astype(np.float32)
    rows[0] = -np.inf
    rows[1, 7] = np.inf
    rows[2] = np.inf
    rows[3, n - 1] = np.nan
    rows[4, :130] = -np.inf
    rows[5, : n - 1] = -np.inf
    rows[6] = -np.inf
    rows[6, 100] = np.nan
    rows[7, 3], rows[7, n - 2] = -np.inf, np.inf
    rows[8] = np.finfo(np.float32).min
    rows[9, 64:] = np.finfo(np.float32).min
    rows[10, :200] = np.finfo(np.float32).max
    rows[11] = rows[11] * 300  # exponentials that vanish
    return rows


@pytest.mark.slow
def test_special_values(check_emulated: CheckAll, chip: Chip) -> None:
    x = special_rows(401)
    t = np.arange(12)
    k = np.arange(401, dtype=np.int32) % 2
    w = (np.arange(401) % 5).astype(np.float16)
    infinite = w.copy()
    infinite[3] = np.inf
    wide = x.astype(np.float64)
    wide[11] *= 10
    cases: list[tuple[str, list[Any]]] = [
        (SOFTMAX, [x]), (LOG_SOFTMAX, [x]), (LOGSUMEXP, [x]), (CROSS_ENTROPY, [x, t]),
        (SEVERAL, [x, w, k]), (SEVERAL, [x, infinite, k]),
        (MASKED, [x[:, None], np.isfinite(x), np.float32(1.0)]),
        (LOGSUMEXP.replace("float", "double"), [np.tile(wide, (1, 3))]),
    ]  # fmt: skip
    out = {"h": np.zeros(12, np.float32)}
    check_emulated([*cases[:4], *cases[6:]], gpu=chip)
    check_emulated(cases[4:6], gpu=chip, out=out)


def test_indices_in_any_order(check_emulated: CheckAll, cuda_unit: MakeUnit, chip: Chip) -> None:
    """Rows of a part of a table, their sums added to what is there."""
    source = """def f(float(A,B,N) x, float(A,B) s) -> (s, m) {
        m(b,a) max=! x(a,b,j) * 0.5 + j where j in 5:N-3
        s(p,q) += exp((x(p,q,r) * 0.5 + r) - m(q,p)) where r in 5:N-3
    }"""
    shapes = [(2, 3, 300), (2, 3)]
    assert is_cut(cuda_unit(source, *shapes, gpu=chip))
    check_emulated([(source, shapes), (source, [(3, 1, 411), (3, 1)])], gpu=chip)


def test_strided_rows(check_emulated: CheckAll, chip: Chip) -> None:
    x = np.random.default_rng(1).normal(size=(4, 700)).astype(np.float32)
    check_emulated([(SOFTMAX, [x[:, 3:500]]), (LOGSUMEXP, [x[::2, ::-1]])], gpu=chip)


@pytest.mark.slow_but("options0-False", "options1-False", "options2-False", "options3-True")
@pytest.mark.parametrize(
    ("options", "cut"),
    [
        (Options(fuse="none"), False), (Options(scheduler="source_order"), False),
        (Options(tile=(1, 32)), False), (Options(vectorise=False), True),
        (Options(cross_block="atomic", deterministic=True), True),
    ],
)  # fmt: skip
def test_options(
    options: Options, cut: bool, check_emulated: CheckAll, cuda_unit: MakeUnit, chip: Chip
) -> None:
    assert is_cut(cuda_unit(LOGSUMEXP, (2, 401), gpu=chip, options=options)) == cut
    if cut:
        check_emulated([(LOGSUMEXP, [(2, 401)])], gpu=chip, options=options)


# --- which rows are cut ---------------------------------------------------------------------------

LONG: Programs = {
    "softmax": (SOFTMAX, [(64, 1 << 20)]),
    "a row more than a block holds": (LOGSUMEXP, [(2048, 70000)]),
    "few rows": (LOG_SOFTMAX, [(4, 1 << 24)]),
    "one row": (LOGSUMEXP, [(1, 1 << 28)]),
    "of an odd length": (SOFTMAX, [(64, 1000003)]),
    "cross-entropy": (CROSS_ENTROPY, [(2048, 131072), (2048,)]),
    "halves": (SOFTMAX.replace("float(M,N)", "bfloat16(M,N)"), [(64, 1 << 20)]),
}


@pytest.mark.slow_but("softmax", "few rows", "of an odd length", "halves")
@pytest.mark.parametrize("name", LONG)
def test_long_rows_are_cut(name: str, cuda_unit: MakeUnit) -> None:
    source, shapes = LONG[name]
    unit = cuda_unit(source, *shapes, gpu=replace(load_chip("h200"), blocks_per_cluster=1))
    assert is_cut(unit) and len(unit.source.launches) <= 2
    first = unit.source.launches[0]
    kept = next(re.search(r"in registers: (\d+) values", w) for w in first.why if "in regis" in w)
    assert kept is not None and 8 <= int(kept[1]) <= 64
    assert first.block[0] * (int(kept[1]) + 16) <= 1 << 15, "two blocks' registers fit at once"
    assert math.prod(first.grid) >= 4 * load_chip("h200").multiprocessors
    assert unit.source.workspace_bytes < 1 << 20, "no row is stored"
    assert ("tc_vload<" in unit.source.text) == ("odd" not in name)


@pytest.mark.parametrize(
    ("rows", "clusters", "is_whole"), [(64, 7, False), (64, 64, True), (7, 7, True)]
)
def test_rows_that_few_clusters_hold_are_cut(
    rows: int, clusters: int, is_whole: bool, cuda_unit: MakeUnit
) -> None:
    """Sixteen blocks hold a row of 2 MB: seven at once for 64 rows are ten turns of 112 blocks."""
    gpu = replace(load_chip("h200"), largest_clusters=clusters)
    unit = cuda_unit(*LONG["halves"][:1], (rows, 1 << 20), gpu=gpu)
    assert is_cut(unit) is not is_whole
    assert is_whole == any(launch.cluster == 16 for launch in unit.source.launches)


WHOLE: Programs = {
    "a block holds it": (SOFTMAX, [(4096, 65536)]),
    "a block holds it, vocabulary": (CROSS_ENTROPY, [(4096, 50257), (4096,)]),
    "a cluster holds it, and writes it": (SOFTMAX, [(2048, 131072)]),
    "columns": (
        """def f(float(N,M) x) -> (s) {
            m(i) max=! x(j,i)
            s(i) +=! exp(x(j,i) - m(i))
        }""",
        [(1 << 18, 64)],
    ),
    "another value than the largest of": (
        """def f(float(M,N) x, float(M,N) z) -> (s) {
            m(i) max=! x(i,j)
            s(i) +=! exp(z(i,j) - m(i))
        }""",
        [(64, 1 << 20), (64, 1 << 20)],
    ),
    "factors that may be large": (
        """def f(float(M,N) x) -> (s) {
            m(i) max=! x(i,j)
            s(i) +=! x(i,j) * exp(x(i,j) - m(i))
        }""",
        [(64, 1 << 20)],
    ),
    "the least of a row": (
        """def f(float(M,N) x) -> (s) {
            m(i) min=! x(i,j)
            s(i) +=! exp(x(i,j) - m(i))
        }""",
        [(64, 1 << 20)],
    ),
    "a triangle": (
        """def f(float(N,N) x) -> (s) {
            m(i) max=! x(i,j) where i in 0:N, j in 0:i+1
            s(i) +=! exp(x(i,j) - m(i)) where i in 0:N, j in 0:i+1
        }""",
        [(1 << 17, 1 << 17)],
    ),
    "the largest of fewer": (
        """def f(float(M,N) x) -> (s) {
            m(i) max=! x(i,j) where j in 1:N
            s(i) +=! exp(x(i,j) - m(i))
        }""",
        [(64, 1 << 20)],
    ),
    "a largest value that is rounded": (
        """def f(float(M,N) x) -> (half(M) m, s) {
            m(i) max=! x(i,j)
            s(i) +=! exp(x(i,j) - float(m(i)))
        }""",
        [(64, 1 << 20)],
    ),
    "a maximum that goes on": (
        """def f(float(M,N) x, float(M) m) -> (m, s) {
            m(i) max= x(i,j)
            s(i) +=! exp(x(i,j) - m(i))
        }""",
        [(64, 1 << 20), (64,)],
    ),
    "what is written in between": (
        """def f(float(M,N) x) -> (x, s) {
            m(i) max=! x(i,j)
            x(i,j) = x(i,j) * 2.0
            s(i) +=! exp(x(i,j) - m(i))
        }""",
        [(64, 1 << 20)],
    ),
    "a sum that is read in between": (
        """def f(float(M,N) x, float(M) s) -> (s, z) {
            m(i) max=! x(i,j)
            z(i) = s(i)
            s(i) += exp(x(i,j) - m(i))
        }""",
        [(64, 1 << 20), (64,)],
    ),
    "a rounded exponential": (
        """def f(float(M,N) x) -> (s) {
            m(i) max=! x(i,j)
            e(i,j) = half(exp(x(i,j) - m(i)))
            s(i) +=! float(e(i,j))
        }""",
        [(64, 1 << 20)],
    ),
    "two maxima": (
        """def f(float(M,N) x) -> (s) {
            m(i) max=! x(i,j)
            m(i) max=! x(i,N-1-j) * 2.0 where j in 0:N
            s(i) +=! exp(x(i,j) - m(i))
        }""",
        [(64, 1 << 20)],
    ),
}  # fmt: skip


@pytest.mark.slow_but(
    "a block holds it",
    "a cluster holds it, and writes it",
    "columns",
    "another value than the largest of",
    "a triangle",
    "a largest value that is rounded",
    "a sum that is read in between",
    "two maxima",
)
@pytest.mark.parametrize("name", WHOLE)
def test_what_stays_as_it_is(name: str, cuda_unit: MakeUnit) -> None:
    source, shapes = WHOLE[name]
    assert not is_cut(cuda_unit(source, *shapes))


def test_what_stays_is_right(check_emulated: CheckAll, chip: Chip) -> None:
    names = ("what is written in between", "the largest of fewer", "factors that may be large")
    cases = [(WHOLE[name][0], [(3, 300)]) for name in names]
    check_emulated([*cases, (WHOLE["a triangle"][0], [(300, 300)])], gpu=chip)
