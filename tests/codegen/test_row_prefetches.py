"""Prefetches of gathered rows: of which, and at which addresses."""

import re
from collections.abc import Callable

import numpy as np
import pytest

import tcdsl
from tcdsl.costmodel.cpu_thresholds import ROWS_AHEAD
from tcdsl.driver import Compiled
from tcdsl.options import Options

Compile = Callable[..., Compiled]

TEXT = """def f(float(E) v, int32(E) word, int32(P) ptr, float(V, D) x) -> (y) {{
    y(b, d) {op} {value} where e in ptr(b):ptr(b + 1)
}}"""
SHAPES = ((3000,), (3000,), (41,), (50, 40))


@pytest.mark.parametrize(
    ("op", "value"),
    [
        ("+=!", "x(word(e), d)"),
        ("+=!", "v(e) * x(word(e), d)"),
        ("max=!", "exp(x(word(e), d)) + v(e)"),
    ],
)
def test_a_row_is_prefetched_some_entries_before(compiled: Compile, op: str, value: str) -> None:
    """Each of its lines, of 16 floats, in front of the loop that adds it; both in short rows and
    in blocks of long ones."""
    text = compiled(TEXT.format(op=op, value=value), *SHAPES).source.body
    later = f"word[(min(c1 + {ROWS_AHEAD}, 2999))]"
    rows = re.findall(r"const float \*w_row = &(.*);", text)
    assert rows == [f"x[(tcdsl_clamp(((int64_t){later}), 50)) * 40 + (0)]"] * len(rows) and rows
    lines = re.findall(r"__builtin_prefetch\((.*)\);", text)
    assert lines == ["w_row", "w_row + 16", "w_row + 32"] * len(rows)


@pytest.mark.parametrize(
    "value",
    [
        "x(e / 8, d)",  # the processor sees these rows
        "v(e) > 0.5 ? x(word(e), d) : 0.0",  # the subscript may be read where the condition holds
        "v(e) * float(d)",
    ],
)
def test_what_is_not_prefetched(compiled: Compile, value: str) -> None:
    text = TEXT.format(op="+=!", value=f"{value} + 0.0 * x(0, d)")
    assert "w_row" not in compiled(text, *SHAPES).source.body


def test_subscripts_that_the_program_writes_are_not_read_early(compiled: Compile) -> None:
    """Another thread may be writing them."""
    text = """def f(int32(E) word, int32(P) ptr, float(V, D) x) -> (next, y) {
        next(e) = word(e) + 1
        y(b, d) +=! x(next(e), d) where e in ptr(b):ptr(b + 1)
    }"""
    shapes = ((3000,), (41,), (50, 40))
    assert "w_row" not in compiled(text, *shapes).source.body
    assert "w_row" in compiled(text.replace("x(next", "x(word"), *shapes).source.body


def test_open_sizes_end_where_the_subscripts_do() -> None:
    f = tcdsl.define(TEXT.format(op="+=!", value="x(word(e), d)"))["f"]
    options = Options(dynamic_sizes=("E",))
    exe = None
    for entries in (3000, 1, 5, 17, 40):
        v, word = np.zeros(entries, np.float32), np.arange(entries, dtype=np.int32) % 3
        ptr = np.array([0, entries // 2, entries], np.int32)
        x = np.arange(120, dtype=np.float32).reshape(3, 40)
        exe = exe or f.compile(v, word, ptr, x, options=options, target="cpu")
        assert "min(c1 + 16, " in exe.source
        expected = [x[word[: entries // 2]].sum(axis=0), x[word[entries // 2 :]].sum(axis=0)]
        assert np.array_equal(exe(v, word, ptr, x), expected)
