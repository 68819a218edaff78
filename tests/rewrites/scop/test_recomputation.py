"""Recomputation: which temporaries are computed where they are read."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl.options import Options
from tcdsl.poly.scop import Scop
from tcdsl.rewrites.scop.recomputation import recomputed, without_conversions

Lower = Callable[..., Scop]
CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]

BACKWARD = """def f(float(M,N) x, float(M,N) dy, float(M) mean, float(M) rstd) -> (a, d) {
    h(i,j) = (x(i,j) - mean(i)) * rstd(i)
    a(i) +=! dy(i,j) * h(i,j)
    d(j) +=! dy(i,j) * h(i,j)
}"""


def names(scop: Scop) -> list[str]:
    return [statement.name for statement in scop.statements]


def test_a_cheap_temporary_is_not_stored(lower: Lower) -> None:
    scop = lower(BACKWARD, (64, 32), (64, 32), (64,), (64,))
    after = recomputed(scop)
    assert "h" in scop.arrays and "h" not in after.arrays
    assert names(after) == [name for name in names(scop) if name != "S0"]
    for statement in after.statements:
        assert all(read.array != "h" for read in statement.reads)
    (update,) = [s for s in after.statements if s.name == "S1"]
    assert {read.array for read in update.reads} == {"dy", "x", "mean", "rstd"}


def test_subscripts_move_with_the_value(lower: Lower, check_emulated: CheckAll) -> None:
    source = """def f(float(N) x) -> (a, b) {
        h(i) = x(i) * 2.0 + i
        a(j) = h(N - 1 - j)
        b(j) = h(j) - 1.0
    }"""
    after = recomputed(lower(source, (9,)))
    assert "h" not in after.arrays
    check_emulated([(source, [(9,)]), (source, [(1,)]), (source, [(300,)])])


def test_a_temporary_of_a_temporary(lower: Lower, check_emulated: CheckAll) -> None:
    """What reads a temporary that is gone is seen as it is then."""
    source = """def f(float(M,N) x) -> (s, y) {
        z(i,j) = x(i,j) * 0.5
        m(i) max=! z(i,j)
        d(i,j) = z(i,j) - m(i)
        s(i) +=! exp(d(i,j))
        y(i,j) = exp(d(i,j)) / s(i)
    }"""
    assert not {"z"} & set(recomputed(lower(source, (9, 40))).arrays)
    nested = """def f(float(N) x) -> (a, b) {
        z(i) = x(i) * 0.5
        d(i) = z(i) + 1.0
        a(i) = d(i) * z(i)
        b(i) = d(i)
    }"""
    assert not {"z", "d"} & set(recomputed(lower(nested, (40,))).arrays)
    check_emulated([(source, [(9, 40)]), (nested, [(40,)])])


KEPT = {
    "an output": "def f(float(N) x) -> (h, a, b) { h(i) = x(i) + 1.0\n a(i) = h(i)\n b(i) = h(i) }",
    "read once": "def f(float(N) x) -> (a) { h(i) = x(i) + 1.0\n a(i) = h(i) }",
    "not cheap": "def f(float(N) x) -> (a, b) { h(i) = exp(x(i))\n a(i) = h(i)\n b(i) = h(i) }",
    "two large inputs": """def f(float(N) x, float(N) z) -> (a, b) {
        h(i) = x(i) + z(i)
        a(i) = h(i)
        b(i) = h(i)
    }""",
    "of what is computed": """def f(float(N) x) -> (a, b) {
        s +=! x(i)
        h(i) = x(i) - s
        a(i) = h(i)
        b(i) = h(i)
    }""",
    "read more often than it has elements": """def f(float(M,K) x, float(K,N) y) -> (a, b) {
        h(i,k) = x(i,k) * 2.0
        a(i,j) +=! h(i,k) * y(k,j)
        b(i) +=! h(i,k)
    }""",
    "written twice": """def f(float(N) x) -> (a, b) {
        h(i) = x(i) + 1.0
        h(i) = x(i) * 2.0
        a(i) = h(i)
        b(i) = h(i)
    }""",
    "gathered": """def f(float(N) x, int32(N) k) -> (a, b) {
        h(i) = x(k(i)) * 2.0
        a(i) = h(i)
        b(i) = h(i)
    }""",
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_stored(name: str, lower: Lower) -> None:
    source = KEPT[name]
    shapes = {"two large inputs": [(8,), (8,)], "gathered": [(8,), (8,)],
              "read more often than it has elements": [(8, 8), (8, 8)]}  # fmt: skip
    scop = lower(source, *shapes.get(name, [(8,)]))
    assert names(recomputed(scop)) == names(scop)


def test_rounding_to_the_temporarys_type_is_kept(check_emulated: CheckAll) -> None:
    source = """def f(float(M,N) x, float(M) m) -> (a, d) {
        h(i,j) = half((x(i,j) - m(i)) * 3.0)
        a(i) +=! float(h(i,j))
        d(j) +=! float(h(i,j))
    }"""
    check_emulated([(source, [(33, 65), (33,)])])


def test_programs_are_right(check_emulated: CheckAll) -> None:
    check_emulated([
        (BACKWARD, [(m, n), (m, n), (m,), (m,)])
        for m, n in ((1, 1), (1, 64), (7, 3), (64, 64), (300, 17), (2000, 24))
    ])  # fmt: skip


def test_without_fusion_every_statement_is_a_kernel(cuda_unit: MakeUnit) -> None:
    shapes = [(64, 32), (64, 32), (64,), (64,)]
    alone = cuda_unit(BACKWARD, *shapes, options=Options(fuse="none"))
    assert "h[" in alone.source.text
    assert "h[" not in cuda_unit(BACKWARD, *shapes).source.text


def test_what_says_where_to_write_is_stored(check_emulated: CheckAll) -> None:
    source = """def f(int32(N) k, float(N) x, float(M) z) -> (z, w) {
        h(i) = k(i) + 1
        z(h(i)) += x(i)
        w(i) = h(i) * 2
    }"""
    k = np.arange(30, dtype=np.int32) % 8
    check_emulated([(source, [k, (30,), (9,)])], options=Options(check_indices=False))


CONVERTED = """def f({}(M,K) x, float(K,N) w) -> (C, r) {{
    h(m,k) = {}(x(m,k))
    C(m,n) +=! h(m,k) * w(k,n)
    r(m) = h(m, 0) + h(m, K - 1)
}}"""


@pytest.mark.slow_but("bfloat16-double-True", "half-bfloat16-False")
@pytest.mark.parametrize(
    ("own", "to", "is_left_out"),
    [
        ("half", "float", True),
        ("bfloat16", "double", True),
        ("float", "half", False),  # it rounds
        ("half", "bfloat16", False),
        ("int8", "float", False),  # integers are multiplied by others
    ],
)
def test_conversions_are_made_where_they_are_read(
    own: str, to: str, is_left_out: bool, lower: Lower, check_emulated: CheckAll
) -> None:
    source = CONVERTED.format(own, to)
    scop = lower(source, (48, 40), (40, 56))
    after = without_conversions(scop)
    assert (after is not scop) == is_left_out == ("h" not in after.arrays)
    if is_left_out:
        (update,) = (s for s in after.statements if s.name == "S1")
        assert {read.array for read in update.reads} == {"x", "w"}
    check_emulated([(source, [(48, 40), (40, 56)]), (source, [(3, 1), (1, 5)])])


def test_conversions_of_what_changes_are_stored(lower: Lower, check_emulated: CheckAll) -> None:
    source = """def f(half(N) x, float(N) y) -> (x, y) {
        h(i) = float(x(i))
        x(i) = half(2.0 * h(i))
        y(i) += h(i)
    }"""
    scop = lower(source, (33,), (33,))
    assert without_conversions(scop) is scop
    check_emulated([(source, [(33,), (33,)])])


MEAN_BACKWARD = """def f(float(M,N) x, float scale, float other) -> (d, e) {
    g = scale / M + other
    h = g * 2.0
    d(i,j) = x(i,j) * g
    e(i) = x(i,0) - h
}"""


def test_numbers_are_computed_where_they_are_assigned(
    lower: Lower, check_emulated: CheckAll, cuda_unit: MakeUnit
) -> None:
    after = recomputed(lower(MEAN_BACKWARD, (5, 7), (), ()))
    assert names(after) == ["S2", "S3"] and {"g", "h"}.isdisjoint(after.arrays)
    shapes = [((5, 7), (), ()), ((1, 1), (), ()), ((0, 3), (), ()), ((64, 130), (), ())]
    check_emulated([(MEAN_BACKWARD, [*sizes]) for sizes in shapes])
    # Without the mean's number in a kernel of its own, one kernel is left.
    one = "def f(float(N) x, float s) -> (d) { g = s / N  d(i) = x(i) * g }"
    assert cuda_unit(one, (300,), ()).source.text.count("__global__") == 1


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        ("g = s / N  d +=! x(i) * g", "a sum would compute it in each term"),
        ("g = exp(s)  d(i) = x(i) * g", "a function"),
        ("t +=! x(i)  g = t / N  d(i) = x(i) * g", "it is no input's"),
        ("g = s / N  d(i) = x(i) * g  u +=! x(i) * g", "one of two is a sum"),
    ],
)
def test_other_numbers_are_stored(statements: str, why: str, lower: Lower) -> None:
    scop = lower(f"def f(float(N) x, float s) -> (d) {{ {statements} }}", (300,), ())
    assert "g" in recomputed(scop).arrays, why
