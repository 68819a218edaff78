"""Random programs with ranges from data: operators, what is beside the rows, bounds of all kinds.

A run of more of them, on the emulator too: pytest -m fuzz tests/test_random_ranges.py
"""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

import tcdsl

TARGETS = ("y(r)", "y(r, d)", "y(e)", "y(d, r)", "y")
VALUES = (
    "x(e)",
    "x(e) * v(c(e))",
    "x(e) * w(r)",
    "x(e) + m(c(e), e)",
    "exp(x(e) - w(r))",
    "m(d, e)",
)
BOUNDS = (
    "p(r):p(r + 1)",
    "a(r):b(r)",
    "0:b(r)",
    "p(o(r)):p(o(r) + 1)",
    "a(r):E",
    "p(r) + 1:p(r + 1)",
)
OPERATORS = ("+=!", "max=!", "min=!", "+=", "argmax=!")


def uses(index: str, *texts: str) -> bool:
    return any(re.search(rf"\b{index}\b", text) for text in texts)


@st.composite
def cases(draw: Any) -> tuple[str, tuple[Any, ...]]:
    """Draw a program of one or two statements over the same rows, and its inputs."""
    rows, entries, depth = (
        draw(st.integers(1, 9)),
        draw(st.integers(1, 60)),
        draw(st.integers(1, 5)),
    )
    dtype = draw(st.sampled_from(("float", "double", "int32", "float16")))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    lines, made = [], []
    for name in ("y", "z")[: draw(st.integers(1, 2))]:
        target, op = draw(st.sampled_from(TARGETS)), draw(st.sampled_from(OPERATORS))
        value = draw(st.sampled_from(VALUES))
        if dtype == "int32":
            value = value.replace("exp(x(e) - w(r))", "x(e) - w(r)")
        if op == "argmax=!" and (target != "y(r)" or uses("d", value)):
            op = "max=!"
        bounds = draw(st.sampled_from(BOUNDS))
        clauses = [f"e in {bounds}", "e in 0:E"]
        if draw(st.booleans()):
            clauses.append("exists x(e) > w(r)")
        clauses += [f"{i} in 0:{i.upper()}" for i in "rd" if uses(i, target, value, *clauses)]
        if op == "+=":
            own = [f"{i} in 0:{i.upper()}" for i in "rde" if uses(i, target, "x(e)")]
            lines.append(f"{target} +=! x(e) where {', '.join(own)}".replace("y", name, 1))
        lines.append(f"{target} {op} {value} where {', '.join(clauses)}".replace("y", name, 1))
        made.append(name)
    text = (
        f"def f(int32(P) p, int32(R) a, int32(R) b, int32(R) o, int32(E) c, {dtype}(E) x,"
        f" {dtype}(C) v, {dtype}(R) w, {dtype}(D, E) m) -> ({', '.join(made)}) {{\n  "
        + "\n  ".join(lines) + "\n}"
    )  # fmt: skip
    ends = np.sort(rng.integers(0, entries + 1, rows + 1))
    if draw(st.booleans()):
        rng.shuffle(ends)
    start, stop = rng.integers(0, entries + 1, (2, rows))
    integers = (ends, start, stop, rng.integers(0, rows, rows), rng.integers(0, depth, entries))
    kind = {"float": "float32", "double": "float64"}.get(dtype, dtype)
    shapes = ((entries,), (depth,), (rows,), (depth, entries))
    floats = (np.asarray(rng.integers(-4, 5, shape), kind) for shape in shapes)
    return text, (*(i.astype(np.int32) for i in integers), *floats)


def check(case: tuple[str, tuple[Any, ...]], targets: tuple[str, ...]) -> None:
    text, args = case
    tcdsl.testing.check(tcdsl.define(text).f, *args, targets=targets)


@pytest.mark.slow
@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
@seed(15)
@settings(max_examples=12, deadline=None, database=None)
@given(cases())
def test_random_ranges_on_the_cpu(case: tuple[str, tuple[Any, ...]]) -> None:
    check(case, ("cpu",))


@pytest.mark.fuzz
@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
@settings(max_examples=150, deadline=None, database=None)
@given(cases())
def test_many_random_ranges(case: tuple[str, tuple[Any, ...]]) -> None:
    check(case, ("cpu", "emulate"))
