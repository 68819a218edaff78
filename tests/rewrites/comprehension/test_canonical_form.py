"""The forms of reductions, and what explain() says of coalescing."""

from typing import Any

import pytest

import tcdsl
from tcdsl.rewrites.comprehension.canonical_form import CanonicalForm, canonical_form
from tcdsl.rewrites.comprehension.coalescing import coalesce

FORMS = {
    "all": ("def f(float(N, M) x) -> (s) { s +=! x(i, j) }", "x(i_j reduced)"),
    "row": (
        "def f(float(A, B, C) x) -> (s) { s(a) +=! x(a, b, c) * 2.0 }", "x(a kept, b_c reduced)",
    ),
    "column": ("def f(float(N, M) x) -> (s) { s(j) max=! x(i, j) }", "x(i reduced, j kept)"),
    "alternation": (
        "def f(float(N, C, H, W) x) -> (s) { s(c) +=! x(n, c, h, w) }",
        "x(n reduced, c kept, h_w reduced)",
    ),
    "window": ("def f(float(N) x) -> (y) { y(i) +=! x(i + k) where k in 0:3 }",
               "x(i kept, k reduced)"),
    "contraction": (
        "def f(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }",
        "A(m kept, k reduced), B(k reduced, n kept)",
    ),
    "pointwise": ("def f(float(N) x) -> (y) { y(i) = x(i) }", ""),
}  # fmt: skip


def forms(source: str, sizes: dict[str, int]) -> list[CanonicalForm]:
    program = tcdsl.define(source)
    function = program[program.names[0]]
    c = function.comprehension
    shapes = [[d if isinstance(d, int) else sizes[str(d)] for d in c.tensors[n].dims]
              for n in c.inputs]  # fmt: skip
    special = function.specialise(*(tcdsl.spec(tuple(s), "float32") for s in shapes))
    done = coalesce(c, special, {})
    pairs = zip(done.comprehension.statements, done.special.ranges, strict=True)
    return [canonical_form(statement, ranges) for statement, ranges in pairs]


SIZES = {name: size for size, name in enumerate("ABCHKMNW", start=4)}


@pytest.mark.parametrize("name", FORMS)
def test_every_form(name: str) -> None:
    source, operands = FORMS[name]
    (form,) = forms(source, SIZES)
    assert form.name == name
    assert str(form) == (f"{name}: {operands}" if operands else name)


def test_axes_of_one_value_do_not_count() -> None:
    source = FORMS["alternation"][0]
    assert [f.name for f in forms(source, {"N": 1, "C": 5, "H": 6, "W": 7})] == ["row"]
    assert [f.name for f in forms(source, {"N": 3, "C": 5, "H": 1, "W": 1})] == ["column"]
    assert [f.name for f in forms(source, {"N": 3, "C": 1, "H": 6, "W": 7})] == ["all"]


def test_the_operand_with_all_indices_decides() -> None:
    source = "def f(float(M, N) x, float(M) m) -> (v) { v(i) +=! (x(i, j) - m(i)) * x(i, j) }"
    assert [str(f) for f in forms(source, SIZES)] == ["row: x(i kept, j reduced)"]


def test_sums_without_operands_are_all() -> None:
    source = "def f(float(N) x) -> (s) { s +=! 1.0 where i in 0:N }"
    assert [f.name for f in forms(source, SIZES)] == ["all"]


def explained(source: str, shape: tuple[int, ...], **options: Any) -> str:
    program = tcdsl.define(source)
    function = program[program.names[0]]
    spec = tcdsl.spec(shape, "float32")
    return function.compile(spec, target="cpu", options=tcdsl.Options(**options)).explain()


def test_explain_shows_before_and_after() -> None:
    text = explained(FORMS["alternation"][0], (4, 8, 16, 20))
    lines = [line.strip() for line in text.splitlines()]
    at = lines.index("indices and reductions")
    assert lines[at + 1 : at + 6] == [
        "S0 before  s(c) +=! x(n, c, h, w)",
        "after   s(c) +=! x(n, c, h_w)",
        "merged  h, w -> h_w (16 * 20)",
        "form    alternation: x(n reduced, c kept, h_w reduced)",
        "coalesced x: dimensions 0, 1, 2*3",
    ]


def test_without_coalescing_explain_shows_the_program() -> None:
    text = explained(FORMS["alternation"][0], (4, 8, 16, 20), coalesce=False)
    assert "merged" not in text and "h_w" not in text
    assert "S0         s(c) +=! x(n, c, h, w)" in text


def test_open_sizes_are_named_open() -> None:
    source = "def f(float(N, M) x) -> (s) { s +=! x(i, j) }"
    text = explained(source, (64, 32), dynamic_sizes=("N",))
    assert "merged  i, j -> i_j (open * 32)" in text
