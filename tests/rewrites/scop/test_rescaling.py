"""Sums of exponentials in chunks: the statements, and the room that the derived bound leaves."""

from collections.abc import Callable

import numpy as np
import pytest

from tcdsl.interp.derivatives import ULPS, ULPS_USUAL
from tcdsl.interp.error_bounds import evaluate_with_bounds
from tcdsl.lang.ranges.specialiser import specialise
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.types.dtypes import FLOAT32, FLOAT64
from tcdsl.lang.types.sema import analyse
from tcdsl.poly.scop import Scop
from tcdsl.rewrites.scop.exponential_sums import exponential_sums
from tcdsl.rewrites.scop.rescaling import rescaled, room_of, why_not_in_chunks
from tcdsl.source import Source

Lower = Callable[..., Scop]

SOURCE = """def f(float(M,N) x) -> (s, y) {
    m(i) max=! x(i,j)
    e(i,j) = exp(x(i,j) - m(i))
    s(i) +=! e(i,j)
    y(i) = log(s(i)) + m(i)
}"""


def described(scop: Scop) -> str:
    lines = []
    for s in scop.statements:
        reads = ", ".join(sorted({read.array for read in s.reads}))
        lines.append(f"{s.name}: {s.kind} {s.write.relation} <- {reads}")
    return "\n".join([*lines, ""])


def test_statements(lower: Lower, golden: Callable[[str, str], None]) -> None:
    scop = lower(SOURCE, (3, 300))
    (sums,) = exponential_sums(scop)
    done = rescaled(scop, sums, 64)
    assert done.members == ("S0", "S2", "S0_top") and done.wholes == ("S0_whole", "S2_whole")
    assert "e" not in done.scop.arrays, "nobody reads it any more"
    golden("rescaling", described(done.scop))


def test_names_of_the_users_are_left_alone(lower: Lower) -> None:
    source = """def f(float(M,N) x) -> (s) {
        m(j_chunk) max=! x(j_chunk,j)
        s(j_in) +=! exp(x(j_in,j) - m(j_in))
    }"""
    scop = lower(source, (3, 300))
    (sums,) = exponential_sums(scop)
    done = rescaled(scop, sums, 64)
    assert done.index == "j_chunk0"
    assert done.scop.by_name["S1"].indices == ("j_chunk", "j_chunk0", "j_in0")


def test_rows_with_too_few_terms(lower: Lower) -> None:
    scop = lower(SOURCE, (3, 300))
    (sums,) = exponential_sums(scop)
    assert why_not_in_chunks(scop, sums, 300) == "a row is one chunk"
    assert why_not_in_chunks(scop, sums, 150) is None
    reason = "300 terms leave no room for a second rounding of each"
    assert why_not_in_chunks(scop, sums, 1) == why_not_in_chunks(scop, sums, 200) == reason


# --- the derived bound covers the rescaled sum: nothing is compared more loosely ------------------


def test_room_is_that_of_a_second_exponential() -> None:
    units = ULPS.get("exp", ULPS_USUAL)
    for dtype in (FLOAT32, FLOAT64):
        kind = dtype.numpy.type
        largest = next(x for x in range(1, 2000) if np.exp(kind(-x)) == 0)
        assert room_of(dtype) >= 2 * units + 1 + largest - 1


@pytest.mark.parametrize("length", [64, 300, 1000])
@pytest.mark.parametrize("depth", [0, 1, 3, 8, 40])
@pytest.mark.parametrize("dtype", [FLOAT32, FLOAT64])
def test_the_worst_that_may_happen_is_in_the_bound(dtype, length, depth) -> None:  # type: ignore[no-untyped-def]
    """Every exponential as wrong as one may be, every operation rounded up, differences exact.

    The row is the shortest that may be cut, its exponents whole numbers, so that the program's own
    differences are exact and add nothing to its bound.
    """
    n = next(n for n in range(length + 1, 10**5) if n - length - -(-n // length) >= room_of(dtype))
    rng = np.random.default_rng(depth)
    x = -rng.integers(depth // 2, depth + 1, size=(1, n)).astype(dtype.numpy)
    x[0, n // 2] = 0.0
    source = SOURCE.replace("float", str(dtype)).replace("-> (s, y)", "-> (s)")
    source = "\n".join(line for line in source.splitlines() if "log" not in line)
    c = analyse(parse_program(Source(source)))[-1]
    s = specialise(c, {"M": 1, "N": n})
    value, bound = evaluate_with_bounds(c, s, {"x": x})["s"]
    u = np.longdouble(np.finfo(dtype.numpy).eps) / 2
    wrong = 1 + 2 * ULPS_USUAL * u
    total = np.longdouble(0)
    row = x[0].astype(np.longdouble)
    count = 0
    for start in range(0, n, length):
        chunk = row[start : start + length]
        top = chunk.max()
        terms = np.exp((chunk - top) * (1 - u)) * wrong
        scale = np.exp(top * (1 - u)) * wrong * (1 + u)
        total += terms.sum() * (1 + u) ** (len(chunk) - 1) * scale
        count += 1
    total *= (1 + u) ** (count - 1)
    assert total - np.longdouble(value[0]) <= bound[0]
