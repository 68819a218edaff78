"""What is known of integers whatever the data, and which subscripts need no check for it."""

from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.poly.known_values import is_surely_inside
from tcdsl.poly.scop import Kind, Scop

CheckAll = Callable[..., None]
Lower = Callable[..., Scop]

# Statements that make t, of x (8 x 5): between which numbers its elements lie, if that is known.
MADE: dict[str, tuple[int, int] | None] = {
    "t(i) = min(4, max(0, int32(f(i,0))))": (0, 4),
    "t(i) = min(4, max(-1, int32(f(i,0))))": (-1, 4),
    "t(i) = min(4, int32(f(i,0)))": (-(2**31), 4),
    "t(i) = int32(f(i,0)) % 5": (0, 4),
    "t(i) = int32(f(i,0)) & 3": (0, 3),
    "t(i) = f(i,0) > 0.0 ? 2 : int32(u(i)) - 300": (-300, 2),
    "t(i) = i + 2 where exists f(i,0)": (2, 9),
    "t(i) argmax=! f(i,j)": (0, 4),
    "t(i) argmin=! f(i,j) where j in 1:N": None,  # from 0 on, but ranges are conditions
    "t(i) argmax=! f(i,j) where exists f(i,j) > 0.0": None,  # -1 where there is no candidate
    "t(2 * i) argmax=! f(i,j)": None,  # -1 between them
    "t(i) max=! int32(u(i)) where exists f(i,j)": None,
    "t(i) = int32(f(i,0))": (-(2**31), 2**31 - 1),
    "t(i) = min(4, max(0, int32(f(i,0)))) + 2147483647": (-(2**31), 2**31 - 1),  # it wraps
    "t(i) = 1 where exists f(i,0)\n t(i) = 2 * t(i)": None,  # two statements
}


@pytest.mark.parametrize("made", MADE)
def test_values(made: str, lower: Lower) -> None:
    scop = lower(f"def f(float(M,N) f, uint8(M) u) -> (t) {{ {made} }}", (8, 5), (8,))
    found = scop.arrays["t"].values
    assert (None if found is None else (found.low, found.high)) == MADE[made]


@pytest.mark.parametrize(
    ("subscript", "is_checked"),
    [
        ("t(i)", False), ("t(i) + 1", False), ("t(i) + 2", True), ("t(i) - 1", True),
        ("u(i)", True), ("u(i) / 64", False), ("k(i)", True), ("k(i) % 6", False),
        ("k(i) % N", False), ("(k(i) + i) & 3", False),
    ],
)  # fmt: skip
def test_subscripts(subscript: str, is_checked: bool, lower: Lower) -> None:
    scop = lower(
        f"""def f(float(N) y, float(M) x, uint8(M) u, int32(M) k) -> (z) {{
            t(i) = min(4, max(0, int32(x(i))))
            z(i) = y({subscript}) where i in 0:M
        }}""",
        (6,), (8,), (8,), (8,),
    )  # fmt: skip
    assert any(s.kind is Kind.CHECK for s in scop.statements) == is_checked
    (statement,) = (s for s in scop.statements if s.write.array == "z")
    (read,) = (r for r in statement.reads if r.array == "y")
    assert is_surely_inside(scop, statement, read, 0) != is_checked


def test_arrays_of_the_caller_are_any(lower: Lower) -> None:
    """What is both input and output holds what it held."""
    text = "def f(int32(N) t, float(N) y) -> (t, z) { t(i) = i\n z(i) = y(t(i)) where i in 0:N }"
    assert any(s.kind is Kind.CHECK for s in lower(text, (4,), (4,)).statements)


def test_bytes_of_a_bool_are_any(lower: Lower) -> None:
    """NumPy lets a caller have bools that are neither 0 nor 1."""
    scop = lower("def f(bool(M) b, float(2) y) -> (z) { z(i) = y(int32(b(i))) }", (8,), (2,))
    assert any(s.kind is Kind.CHECK for s in scop.statements)


def test_neither_guards_nor_clamps(check_emulated: CheckAll, cuda_unit: Any) -> None:
    lut = "def f(uint8(N) x, float(256) t) -> (y) { y(i) = t(x(i)) }"
    counts = """def f(float(P,K) x) -> (int32(K) count) {
        near(p) argmax=! x(p,k)
        count(k) = 0 where k in 0:K
        count(near(p)) += 1
    }"""
    for text, shapes in ((lut, [(70,), (256,)]), (counts, [(70, 5)])):
        source = cuda_unit(text, *shapes).source.text
        assert "tcdsl_clamp" not in source and "tc_fault" not in source
    check_emulated([(lut, [(70,), (256,)]), (counts, [(70, 5)])])
