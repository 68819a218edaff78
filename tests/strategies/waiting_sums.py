"""Programs whose reductions wait for one another, along rows or columns, and how they are tried.

Who reads their arrays once keeps them: a cluster its rows (``test_clusters``), threads their
columns (``test_columns``).
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tcdsl.costmodel import clusters, columns
from tcdsl.plan import search
from tcdsl.strategies import catalogue

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]
Shapes = Sequence[tuple[int, ...]]
Case = tuple[str, Sequence[Shapes]]  # a program, and the shapes of its inputs at every size


@dataclass(frozen=True, slots=True)
class Way:
    """Which elements are reduced to one: *at* is of *extents*, *kept* of a result, of a *count*."""

    extents: str
    at: str
    kept: str
    count: str


ROWS = Way("C,N", "c,j", "c", "N")
CHANNELS = Way("N,C,P", "n,c,p", "c", "(N * P)")
COLUMNS = Way("M,C", "i,c", "c", "M")
BATCHES = Way("B,M,C", "b,i,c", "b,c", "M")

_PROGRAMS = {
    "softmax": """def f(TYPE(EXTENTS) x) -> (y) {
        top(KEPT) max=! x(AT)
        e(AT) = exp(x(AT) - top(KEPT))
        total(KEPT) +=! e(AT)
        y(AT) = e(AT) / total(KEPT)
    }""",
    "softmax without e": """def f(TYPE(EXTENTS) x) -> (y) {
        top(KEPT) max=! x(AT)
        s(KEPT) +=! exp(x(AT) - top(KEPT))
        y(AT) = exp(x(AT) - top(KEPT)) / s(KEPT)
    }""",
    "logsumexp": """def f(TYPE(EXTENTS) x) -> (y) {
        top(KEPT) max=! x(AT)
        s(KEPT) +=! exp(x(AT) - top(KEPT))
        y(KEPT) = top(KEPT) + log(s(KEPT))
    }""",
    "batchnorm": """def f(TYPE(EXTENTS) x, TYPE(C) gamma, ARITHMETIC eps) -> (y) {
        mean(KEPT) +=! x(AT)
        mean(KEPT) = mean(KEPT) / COUNT
        var(KEPT) +=! (x(AT) - mean(KEPT)) * (x(AT) - mean(KEPT))
        r(KEPT) = rsqrt(var(KEPT) / COUNT + eps)
        y(AT) = (x(AT) - mean(KEPT)) * r(KEPT) * gamma(c)
    }""",
    "statistics as outputs": """def f(TYPE(EXTENTS) x) -> (y, mean, var) {
        mean(KEPT) +=! x(AT)
        mean(KEPT) = mean(KEPT) / COUNT
        var(KEPT) +=! (x(AT) - mean(KEPT)) * (x(AT) - mean(KEPT))
        y(AT) = x(AT) * mean(KEPT) - var(KEPT)
    }""",
    "two arrays": """def f(TYPE(EXTENTS) x, TYPE(EXTENTS) dy) -> (dx) {
        a(KEPT) +=! dy(AT)
        b(KEPT) +=! dy(AT) * x(AT)
        dx(AT) = dy(AT) - a(KEPT) / COUNT - x(AT) * b(KEPT) / COUNT
    }""",
    "operators": """def f(TYPE(EXTENTS) x) -> (y, low, any) {
        low(KEPT) min=! x(AT)
        high(KEPT) max=! x(AT)
        any(KEPT) or=! x(AT) > 0.5
        p(KEPT) *=! 1.0 + 0.001 * x(AT)
        y(AT) = (x(AT) - low(KEPT)) / (high(KEPT) - low(KEPT) + 1.0) * p(KEPT)
    }""",
    "integers": """def f(int32(EXTENTS) x) -> (y) {
        s(KEPT) +=! int64(x(AT))
        y(AT) = x(AT) - int32(s(KEPT) % 1000)
    }""",
}


def program(name: str, way: Way, dtype: str = "float") -> str:
    """Return the program *name* along *way*, of elements of *dtype*."""
    words = {
        "TYPE": dtype,
        "ARITHMETIC": "double" if dtype == "double" else "float",
        "EXTENTS": way.extents,
        "AT": way.at,
        "KEPT": way.kept,
        "COUNT": way.count,
    }
    return re.sub(rf"\b({'|'.join(words)})\b", lambda word: words[word[0]], _PROGRAMS[name])


def check_all_sizes(check_emulated: CheckAll, case: Case, **choices: Any) -> None:
    """Compare the results of *case* at all of its sizes with the oracle's."""
    source, sizes = case
    check_emulated([(source, shapes) for shapes in sizes], **choices)


def special_rows(n: int) -> Any:
    """Return rows of *n* numbers with NaN, infinities, and nothing but infinities."""
    x = np.linspace(-3, 3, 6 * n, dtype=np.float32).reshape(6, n)
    x[1, 7], x[2, n - 1], x[3, :], x[4, : n // 2] = np.nan, np.inf, -np.inf, -np.inf
    return x


def take_the_likeliest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the first choice make every kernel, however long it is estimated to take."""
    monkeypatch.setattr(catalogue, "ALIKE", math.inf)


def keep_programs_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the plan search rewrite no statement: sums stay whole, however small parts are."""
    monkeypatch.setattr(search, "REWRITES", ())


def share_short_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a block's part of a row so small that clusters share short rows."""
    for name, value in (
        ("BLOCK_BYTES", 1 << 10), ("LEAST_BYTES", 1 << 9), ("HELD_WELL", 1 / 256),
        ("HELD_VALUES", 1 / 128), ("LEAST_GROUPS", 1),
    ):  # fmt: skip
        monkeypatch.setattr(clusters, name, value)
    keep_programs_whole(monkeypatch)
    take_the_likeliest(monkeypatch)


def keep_all_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep all columns that fit."""
    take_the_likeliest(monkeypatch)
    keep_programs_whole(monkeypatch)
    monkeypatch.setattr(columns, "PASS_LAUNCHES", 1e6)
