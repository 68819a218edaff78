"""Ranges whose bounds are read: what they mean on every target, and in what time they run."""

import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.rewrites.scop import long_rows
from tcdsl.strategies.templates import ragged_long

SOURCE = """
def csr(int32(P) ptr, int32(E) col, float(E) val, float(C) x) -> (y) {
    y(r) +=! val(e) * x(col(e)) where e in ptr(r):ptr(r + 1)
}
def wide(int64(P) ptr, int64(E) col, double(E) val, double(C) x) -> (y) {
    y(r) +=! val(e) * x(col(e)) where e in ptr(r):ptr(r + 1)
}
def spmm(int32(P) ptr, int32(E) col, float(E) val, float(C, D) x) -> (y) {
    y(r, d) +=! val(e) * x(col(e), d) where e in ptr(r):ptr(r + 1)
}
def extremes(int32(P) ptr, float(E) x) -> (low, high, at) {
    low(r) min=! x(e) where e in ptr(r):ptr(r + 1)
    high(r) max=! x(e) where e in ptr(r):ptr(r + 1)
    at(r) argmax=! x(e) where e in ptr(r):ptr(r + 1)
}
def softmax(int32(P) ptr, float(E) x) -> (p) {
    m(r) max=! x(e) where e in ptr(r):ptr(r + 1)
    s(r) +=! exp(x(e) - m(r)) where e in ptr(r):ptr(r + 1)
    p(e) +=! exp(x(e) - m(r)) / s(r) where e in ptr(r):ptr(r + 1)
}
def mean(int32(P) ptr, float(E) x) -> (y) {
    s(r) +=! x(e) where e in ptr(r):ptr(r + 1)
    y(r) = s(r) / float(max(ptr(r + 1) - ptr(r), 1)) where r in 0:P - 1
}
def bags(float(V, D) table, int32(N) word, int32(P) start) -> (y) {
    y(b, d) +=! table(word(n), d) where n in start(b):start(b + 1)
}
def batched(int32(B, P) ptr, float(B, E) x) -> (y) {
    y(b, r) +=! x(b, e) where e in ptr(b, r):ptr(b, r + 1)
}
def lengths(int32(B) n, float(B, L) x) -> (y) {
    y(b) +=! x(b, l) where l in 0:n(b)
}
def slices(int32(R) start, int32(R) stop, float(E) x) -> (y) {
    y(r) +=! x(e) where e in start(r):stop(r)
}
def chosen(int32(P) ptr, float(E) x, bool(E) on) -> (y) {
    y(r) +=! x(e) where e in ptr(r):ptr(r + 1), exists on(e)
}
"""
PROGRAMS = tcdsl.define(SOURCE)
CheckAll = Callable[..., None]


def pointers(lengths: list[int], dtype: str = "int32") -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(dtype)


def floats(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def integers(top: int, *shape: int, dtype: str = "int32") -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(0, top, shape).astype(dtype)


LENGTHS = [3, 0, 70, 1, 0, 5, 130]
PTR = pointers(LENGTHS)
E = int(PTR[-1])

CASES = {
    "csr": (PTR, integers(11, E), floats(E), floats(11)),
    "wide": (
        pointers(LENGTHS, "int64"), integers(11, E, dtype="int64"),
        floats(E, dtype="float64"), floats(11, dtype="float64"),
    ),
    "spmm": (PTR, integers(11, E), floats(E), floats(11, 9)),
    "extremes": (PTR, floats(E)),
    "softmax": (PTR, floats(E)),
    "mean": (PTR, floats(E)),
    "bags": (floats(17, 6), integers(17, E), PTR),
    "batched": (np.array([[0, 4, 4, 9], [2, 2, 3, 7]], np.int32), floats(2, 9)),
    "lengths": (np.array([4, 0, 9, -3], np.int32), floats(4, 9)),
    # Neither monotone nor disjoint; one ends before it begins.
    "slices": (np.array([5, 0, 8, 3], np.int32), np.array([9, 3, 2, 4], np.int32), floats(9)),
    "chosen": (PTR, floats(E), floats(E) > 0),
}  # fmt: skip


MORE = {
    "half": (
        "def f(int32(P) p, float16(E) x) -> (y) { y(r) +=! x(e) where e in p(r):p(r + 1) }",
        (PTR, floats(E, dtype="float16")),
    ),
    "continued": (
        "def f(int32(P) p, float(E) x, float(R) y) -> (y) { y(r) += x(e) where e in p(r):p(r+1) }",
        (PTR, floats(E), floats(7)),
    ),
    "before the first": (
        "def f(int32(P) p, float(E) x) -> (y) { y(r) +=! x(e + 2) where e in p(r)-2:p(r+1)-2 }",
        (PTR, floats(E)),
    ),
    "groups of rows": (
        "def f(int32(P) p, int32(Q) q, float(E) x) -> (y) {"
        " y(g) +=! x(e) where r in q(g):q(g + 1), e in p(r):p(r + 1) }",
        (PTR, np.array([0, 3, 3, 7], np.int32), floats(E)),
    ),
    "rows by number": (
        "def f(int32(P) p, int32(R) o, float(E) x) -> (y) {"
        " y(r) +=! x(e) where e in p(o(r)):p(o(r) + 1) }",
        (PTR, np.arange(6, -1, -1, np.int32), floats(E)),
    ),
    "products of rows": (
        "def f(int32(P) p, int32(E) c, float(R, K) a, float(C, K) b) -> (y) {"
        " y(e) +=! a(r, k) * b(c(e), k) where e in p(r):p(r + 1) }",
        (PTR, integers(5, E), floats(7, 33), floats(5, 33)),
    ),
    "triangle": (
        "def f(int32(P) p, float(E) x, float(D) w) -> (y) {"
        " y(r, d) +=! x(e) * w(k) where e in p(r):p(r + 1), k in 0:d + 1, d in 0:D }",
        (PTR, floats(E), floats(5)),
    ),
    "offsets of lengths": (
        "def f(int32(R) n, float(E) x) -> (y) { o(i) = 0 where i in 0:1"
        "  o(i) = o(i - 1) + n(i - 1) where i in 1:8  y(r) +=! x(e) where e in o(r):o(r + 1) }",
        (np.array(LENGTHS, np.int32), floats(E)),
    ),
    "written elsewhere": (
        "def f(int32(P) p, float(E) x, float(R, E) y) -> (y) {"
        " y(r, e) = 2.0 * x(e) where e in p(r):p(r + 1) }",
        (PTR, floats(E), floats(7, E)),
    ),
    "one range": (
        "def f(int32 a, int32 b, float(E) x) -> (y) { y +=! x(e) where e in a:b }",
        (np.array(3, np.int32), np.array(77, np.int32), floats(E)),
    ),
}


def everything() -> list[tuple[str, tuple[Any, ...]]]:
    """Return every program as a text of its own, with its inputs."""
    defs = [f"def {text}" for text in SOURCE.split("def ")[1:]]
    named = {text[4 : text.index("(")]: text for text in defs}
    return [*((named[name], args) for name, args in CASES.items()), *MORE.values()]


@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
def test_the_cpu_gives_what_the_reference_gives(check_all: CheckAll) -> None:
    check_all(everything())


@pytest.mark.slow
@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
def test_the_emulator_gives_what_the_reference_gives(check_emulated: CheckAll) -> None:
    check_emulated(everything(), is_ptx_read=True)


def test_a_def_with_ranges_from_data_is_called() -> None:
    f = tcdsl.define("""
        def seg(int32(P) p, float(E) x) -> (y) { y(r) +=! x(e) where e in p(r):p(r + 1) }
        def f(int32(P) p, float(E) x) -> (z) {
            a(e) = x(e) * x(e)  s = seg(p, a)  z(r) = s(r) + 1.0 }""").f
    tcdsl.testing.check(f, PTR, floats(E))


@pytest.mark.slow_but("options2", "options4", "options6")
@pytest.mark.parametrize("options", [
    {"scheduler": "isl"}, {"scheduler": "source_order"}, {"fuse": "none"}, {"threads": 2},
    {"summation": "compensated"}, {"vectorise": False}, {"dynamic_sizes": ("P", "E")},
])  # fmt: skip
def test_options_change_nothing_but_the_time(options: dict[str, Any]) -> None:
    f, args = PROGRAMS.softmax, CASES["softmax"]
    tcdsl.testing.check(f, *args, options=tcdsl.Options(**options))


def test_loops_run_between_loaded_bounds() -> None:
    text = PROGRAMS.softmax.compile(*CASES["softmax"], target="cpu").source
    assert text.count("w_range0 = max(") == 1 and "ptr[e]" not in text
    assert not any("if" in line and "<= ((int" in line for line in text.splitlines())


def by_loops(ptr: np.ndarray, col: np.ndarray, val: np.ndarray, x: np.ndarray) -> np.ndarray:
    rows = [range(a, b) for a, b in pairwise(ptr)]
    return np.array([sum(float(val[e]) * float(x[col[e]]) for e in row) for row in rows])


def test_the_reference_is_what_loops_compute() -> None:
    got = PROGRAMS.csr.reference(*CASES["csr"])
    np.testing.assert_allclose(got, by_loops(*CASES["csr"]), rtol=1e-4, atol=1e-5)


def test_positions_count_from_the_start_of_the_index() -> None:
    low, high, at = PROGRAMS.extremes(PTR, CASES["extremes"][1])
    assert at[1] == -1 and low[1] == np.inf and high[1] == -np.inf
    assert all(PTR[r] <= at[r] < PTR[r + 1] for r in (0, 2, 3, 5, 6))


def test_a_softmax_of_rows_sums_to_one_and_leaves_the_rest_zero() -> None:
    p = PROGRAMS.softmax(np.array([2, 5, 5, 9], np.int32), floats(12))
    assert np.allclose([p[2:5].sum(), p[5:9].sum()], 1) and not p[[0, 1, 9, 10, 11]].any()


EMPTY = [
    (np.array([0], np.int32), 4),  # no row
    (np.array([0, 0, 0], np.int32), 0),  # no entry
    (np.zeros(4, np.int32), 5),
]


@pytest.mark.parametrize("ptr, entries", EMPTY)
def test_rows_and_entries_may_be_none(ptr: np.ndarray, entries: int) -> None:
    f = PROGRAMS.csr
    args = (ptr, np.zeros(entries, np.int32), floats(entries), floats(3))
    for target in ("cpu", "emulate", "reference"):
        y = f(*args, target=target)
        assert y.shape == (len(ptr) - 1,) and not y.any()


OUT = [([0, 2, 9], "reaches 9, but e ends at 5"), ([-1, 2, 5], "begins at -1, before e does")]


@pytest.mark.parametrize("target", ["cpu", "emulate", "reference"])
@pytest.mark.parametrize("ptr, what", OUT)
def test_a_range_must_exist_where_it_is_not_empty(target: str, ptr: list[int], what: str) -> None:
    args = (np.array(ptr, np.int32), np.zeros(5, np.int32), floats(5), floats(3))
    with pytest.raises(tcdsl.TCError, match=what) as caught:
        PROGRAMS.csr(*args, target=target)
    assert caught.value.code == "TC079" and caught.value.line == 3
    assert "e in ptr(r):ptr(r + 1)" in str(caught.value)


@pytest.mark.parametrize("target", ["cpu", "emulate", "reference"])
def test_a_second_range_does_not_shorten_rows_but_a_condition_does(target: str) -> None:
    text = "def f(int32(P) p, float(E) x) -> (y) {{ y(r) +=! x(e) where e in p(r):p(r + 1), {} }}"
    args = (np.array([0, 3, 7, 10], np.int32), np.arange(10, dtype=np.float32))
    with pytest.raises(tcdsl.TCError, match="begins at 0, before e does") as caught:
        tcdsl.define(text.format("e in r + 5:E")).f(*args, target=target)
    assert "where e in p(r):p(r + 1), exists e >= ..." in (caught.value.hint or "")
    y = tcdsl.define(text.format("exists e >= r + 5")).f(*args, target=target)
    assert y.tolist() == [0, 6, 7 + 8 + 9]


def test_a_range_that_is_written_over_lines_has_its_place() -> None:
    f = tcdsl.define("""def f(int32(P) ptr, float(E) x) -> (y) {
        y(r) +=! x(e)
            where e in ptr(r):
                ptr(r + 1) }""").f
    for target in ("cpu", "reference"):
        with pytest.raises(tcdsl.TCError, match="reaches 9") as caught:
            f(np.array([0, 9], np.int32), floats(4), target=target)
        assert (caught.value.line, caught.value.column) == (3, 19)


def test_an_empty_range_may_lie_anywhere() -> None:
    args = (np.array([9, 7, -2], np.int32), np.zeros(5, np.int32), floats(5), floats(3))
    for target in ("cpu", "emulate", "reference"):
        assert not PROGRAMS.csr(*args, target=target).any()


def test_unchecked_ranges_touch_no_memory_outside() -> None:
    ptr = np.array([-(2**31), 2**31 - 1], np.int32)
    args = (ptr, np.zeros(5, np.int32), np.ones(5, np.float32), np.ones(3, np.float32))
    for target in ("cpu", "emulate"):
        options = tcdsl.Options(check_indices=False)
        assert PROGRAMS.csr(*args, target=target, options=options)[0] == 5.0


def test_the_time_is_in_proportion_to_the_entries() -> None:
    rows = 20_000  # 1.2e9 pairs of a row and an entry, of which 6e4 run
    ptr = pointers([3] * rows)
    args = (ptr, integers(rows, 3 * rows), floats(3 * rows), floats(rows))
    PROGRAMS.csr(*args, target="cpu")
    for target in ("cpu", "reference"):
        start = time.process_time()
        PROGRAMS.csr(*args, target=target)
        assert time.process_time() - start < 0.4


def test_a_range_needs_reads_or_a_range_of_its_own() -> None:
    text = "def f(int32(P) ptr) -> (n) {{ n(r) +=! 1 where {}e in ptr(r):ptr(r + 1) }}"
    with pytest.raises(tcdsl.TCError, match="cannot infer the range of e") as caught:
        tcdsl.define(text.format(""))
    assert "e in 0:P, e in" in str(caught.value.hint) and "ptr(r)" in str(caught.value.hint)
    n = tcdsl.define(text.format("e in 0:9, ")).f(np.array([0, 4, 9], np.int32))
    assert n.tolist() == [4, 5]


def test_one_value_for_each_entry_needs_a_reduction_over_rows() -> None:
    with pytest.raises(tcdsl.TCError, match="two values for p") as caught:
        tcdsl.define("""def f(int32(P) ptr, float(E) x, float(R) s) -> (p) {
            p(e) = x(e) / s(r) where e in ptr(r):ptr(r + 1) }""")
    assert "p(e) +=!" in str(caught.value.hint)


@pytest.fixture
def short_thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of more than 30 entries are long, and few blocks share them: no key knows of that."""
    monkeypatch.setenv("TCDSL_CACHE", "off")
    for name, value in {"LONG": 30, "CHUNK": 8, "LEAST": 64}.items():
        monkeypatch.setattr(long_rows, name, value)
    for name in ("CHUNK_BLOCKS", "ROW_BLOCKS"):
        monkeypatch.setattr(ragged_long, name, 3)


SKEWED = pointers([3, 0, 70, 1, 0, 5, 130, *[2] * 60, 40])


LONG_ROWS = """def f(int32(P) ptr, int32(E) col, float(E) val, float(C) x) -> (y, z) {
    y(r) +=! val(e) * x(col(e)) where e in ptr(r):ptr(r + 1)
    z(r) max=! val(e) where e in ptr(r):ptr(r + 1) }"""
BEFORE_0 = """def f(int32(P) ptr, int32(E) col, float(C) x) -> (y) {
    y(r) +=! (e < 20 ? x(col(e + 60)) : 0.0) where e in -60:E - 60, e in ptr(r):ptr(r + 1) }"""
GUARDED = BEFORE_0.replace("e < 20", "e % 2 == 0")
MATRIX_OF_COLUMNS = """def f(int32(P) ptr, int32(R, E) col, float(C) x) -> (y) {
    y(r) +=! x(col(r, e)) where e in ptr(r):ptr(r + 1) }"""


@pytest.mark.slow
@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
def test_blocks_share_long_rows(
    short_thresholds: None, check_emulated: CheckAll, cuda_unit: Callable[..., Any]
) -> None:
    entries, rows = int(SKEWED[-1]), len(SKEWED) - 1
    args = (SKEWED, integers(11, entries), floats(entries), floats(11))
    text = cuda_unit(LONG_ROWS, *map(np.shape, args)).source.text
    assert "w_place = atomicAdd(" in text and "long rows: 3 x 3 blocks" in text
    columns = integers(11, rows, entries)
    cases = [(LONG_ROWS, args), (MATRIX_OF_COLUMNS, (SKEWED, columns, floats(11)))]
    cases.append((BEFORE_0, (SKEWED - np.int32(60), columns[0], floats(11))))
    odd_are_none = np.where(np.arange(entries) % 2, 99, columns[0])
    cases.append((GUARDED, (SKEWED - np.int32(60), odd_are_none, floats(11))))
    check_emulated(cases, is_ptx_read=True)


@pytest.mark.slow  # builds of their own, for what the checks of long rows say
def test_checks_of_long_rows_name_what_is_the_programs(short_thresholds: None) -> None:
    entries, rows = int(SKEWED[-1]), len(SKEWED) - 1
    f, columns = tcdsl.define(MATRIX_OF_COLUMNS).f, integers(11, rows, entries)
    columns[2, 40] = 99
    with pytest.raises(tcdsl.TCError, match="index 99"):
        f(SKEWED, columns, floats(11), target="emulate")
    options = tcdsl.Options(deterministic=True)
    args = (SKEWED, columns, floats(11))
    assert "atomicAdd(" not in f.compile(*args, target="emulate", options=options).source
