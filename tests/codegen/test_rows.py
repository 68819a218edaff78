"""Rows of a warp in shared memory: what is stored by way of them, and the waits that this needs."""

import re
from dataclasses import replace
from typing import Any

import pytest

from tcdsl.codegen.cuda.rows import runs_of
from tcdsl.emulator import emulated_programs
from tcdsl.errors import EmulationError
from tcdsl.testing.comparison import check
from tests.emulated_programs import Emulated
from tests.strategies.tile_configs import FEW, MakeUnit, asked, inputs_of, planned, tiles

PLAIN = "def f(half(M,K) A, half(N,K) B) -> ({t}(M,N) C) {{ C(m,n) +=! A(m,k) * B(n,k) }}"
ADDED = """def f(half(M,K) A, half(N,K) B, {t}(M,N) x, half(N) b) -> (half(M,N) C) {{
    c(m,n) +=! A(m,k) * B(n,k)
    C(m,n) = fmax(c(m,n) + b(n), 0.0) + x(m,n)
}}"""
TWO = """def f(half(M,K) A, half(N,K) B, half(M,N) x) -> (half(M,N) C, half(M,N) D) {{
    c(m,n) +=! A(m,k) * B(n,k)
    C(m,n) = c(m,n) + x(m,n)
    D(m,n) = c(m,n) * 0.5
}}"""


def unit_of(
    cuda_unit: MakeUnit, source: str, sizes: tuple[int, int, int], columns: int, **code: int
) -> Any:
    """Return *source* in blocks with several tiles of so many *columns*, and its shapes."""
    m, n, k = sizes
    head = source.partition("->")[0]
    of = {"M,K": (m, k), "N,K": (n, k), "M,N": (m, n), "N": (n,)}
    shapes = [of[dims] for dims in re.findall(r"\w+\(([MNK,]+)\)", head)]
    config = tiles((16, columns, 4, 1), loader="boxes", swath=2, is_persistent=True)
    config = {**config, "code": code} if code else config
    options = asked(planned(source, *shapes, gpu=FEW), config)
    unit = cuda_unit(source, *shapes, gpu=FEW, options=options)
    assert not unit.done.is_fallback
    return unit, shapes


CASES = {
    "halves": (PLAIN.format(t="half"), (256, 256, 136), 128, 1),
    "halves in short rows": (PLAIN.format(t="half"), (256, 128, 136), 64, 1),
    "missing columns": (PLAIN.format(t="half"), (256, 200, 136), 128, 1),
    "of four bytes": (PLAIN.format(t="float"), (256, 256, 136), 128, 1),
    "of four bytes, missing columns": (PLAIN.format(t="float"), (256, 200, 72), 128, 1),
    "a residual": (ADDED.format(t="half"), (256, 256, 136), 128, 2),
    "a residual, missing columns": (ADDED.format(t="half"), (256, 216, 136), 128, 2),
    "a residual of another type": (ADDED.format(t="float"), (256, 256, 136), 128, 1),
    "two results": (TWO.format(), (256, 256, 136), 128, 2),
}


@pytest.mark.slow_but("a residual, missing columns")
@pytest.mark.parametrize("case", CASES)
def test_lines_are_moved_by_way_of_rows(case: str, cuda_unit: MakeUnit, emulated: Any) -> None:
    source, sizes, columns, lines = CASES[case]
    unit, shapes = unit_of(cuda_unit, source, sizes, columns)
    assert unit.source.text.count("w_line++") == lines
    (program,) = emulated([unit])
    check(program, *inputs_of(unit, shapes))


def test_warps_with_missing_rows_exchange(cuda_unit: MakeUnit) -> None:
    """Some of their threads do not come there."""
    unit, _ = unit_of(cuda_unit, PLAIN.format(t="half"), (251, 128, 72), 64)
    assert "tc_rows_done" not in unit.source.text and "tc_vstore_quad" in unit.source.text
    unit, _ = unit_of(cuda_unit, PLAIN.format(t="half"), (240, 128, 72), 64)
    assert "tc_rows_done" in unit.source.text, "whole warps are missing"


def test_rows_are_a_choice(cuda_unit: MakeUnit) -> None:
    unit, _ = unit_of(cuda_unit, PLAIN.format(t="half"), (256, 128, 72), 64, row_bytes=0)
    assert "tc_rows_done" not in unit.source.text and "tc_vstore_quad" in unit.source.text


@pytest.mark.slow_but("stored-0", "loaded and stored-1")
@pytest.mark.parametrize("number", range(2))
@pytest.mark.parametrize("form", [PLAIN, ADDED], ids=["stored", "loaded and stored"])
def test_each_wait_is_needed(form: str, number: int, cuda_unit: MakeUnit) -> None:
    """Without one a thread reads or writes what another one has not yet stored, or read."""
    unit, shapes = unit_of(cuda_unit, form.format(t="half"), (256, 256, 72), 128)
    text = unit.source.text
    places = [found.span() for found in re.finditer(r"tc_rows_done\(\);", text)]
    assert len(places) == (2 if form == PLAIN else 3)
    begin, end = places[number - 2]  # where lines are loaded first, each by who read the last ones
    broken = replace(unit.source, text=text[:begin] + text[end:])
    (program,) = emulated_programs([broken])
    with pytest.raises(EmulationError, match=r"data race|never written"):
        check(Emulated(unit, program), *inputs_of(unit, shapes))


@pytest.mark.parametrize(
    ("row_bytes", "size_bytes", "count", "runs"),
    [
        (512, 2, 8, 8), (512, 2, 4, 4), (512, 4, 8, 4), (512, 4, 2, 2), (256, 2, 8, 4),
        (512, 2, 6, 0), (512, 1, 8, 0), (512, 8, 8, 0), (0, 2, 8, 0), (512, 2, 3, 0),
    ],
)  # fmt: skip
def test_runs_of_a_row(row_bytes: int, size_bytes: int, count: int, runs: int) -> None:
    assert runs_of(row_bytes, size_bytes, count) == runs
