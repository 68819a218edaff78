"""Which statements have their long rows in a kernel of their own."""

import pytest

import tcdsl
from tcdsl.lang.ranges.specialiser import specialise
from tcdsl.poly.lowering import lower_comprehension
from tcdsl.poly.scop import Kind, Scop
from tcdsl.rewrites.scop import long_rows


@pytest.fixture(autouse=True)
def thresholds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LONG": 40, "CHUNK": 8, "LEAST": 64}.items():
        monkeypatch.setattr(long_rows, name, value)


def scop_of(statements: str, entries: int = 90) -> Scop:
    """Return the scop of 10 rows."""
    c = tcdsl.define(f"def f(int32(P) p, float(E) x) -> (y) {{ {statements} }}").f.comprehension
    return lower_comprehension(c, specialise(c, {"P": 11, "E": entries}), {})


SUM = "y(r) +=! x(e) where e in p(r):p(r + 1)"


def test_rows_are_collected_and_their_chunks_added() -> None:
    done = long_rows.with_long_rows(scop_of(SUM))
    names = [s.name for s in done.statements]
    assert names == [
        "S0_range0", "S0_count_init", "S0_collect", "S0_init", "S0", "S0_sum_init", "S0_long",
        "S0_add",
    ]  # fmt: skip
    assert done.by_name["S0_collect"].is_atomic and done.by_name["S0_add"].is_atomic
    assert done.arrays["S0.sums"].shape == (10, 12)


@pytest.mark.parametrize("statements, entries, why", [
    (SUM, 50, "few entries"),
    (SUM, 900, "long on average"),
    ("y(r) argmax=! x(e) where e in p(r):p(r + 1)", 90, "argmin or argmax"),
    ("y(r) *=! x(e) where e in p(r):p(r + 1)", 90, "no atomic"),
    ("t(r) +=! x(e) where e in p(r):p(r + 1)  y(r) = t(r) * 2.0", 90, "reads its result"),
    ("y(r, d) +=! x(e) where e in p(r):p(r + 1), d in 0:3", 90, "rows of one range"),
    ("y(e) +=! x(e) where e in p(r):p(r + 1)", 90, "which elements it updates"),
    (SUM + ", exists e > 3*r", 90, "not data alone"),
    (SUM + ", exists e % 2 == 0", 90, "not data alone"),
    ("y +=! x(e)", 90, "rows of one range"),
])  # fmt: skip
def test_why_not(statements: str, entries: int, why: str) -> None:
    scop = scop_of(statements, entries)
    (update,) = (s for s in scop.statements if s.kind is Kind.UPDATE)
    assert why in (long_rows.why_not_split(scop, update) or "")
    assert long_rows.with_long_rows(scop) is scop
