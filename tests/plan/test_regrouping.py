"""Temporaries that one kernel stores for another: which are computed again instead."""

from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.codegen.cuda.source import ParameterKind

CheckAll = Callable[..., None]
MakeUnit = Callable[..., Any]
HEAD = "def f({0}(N) g, {0}(N) m, {0}(N) p, float b) -> (m, p) {{"
FIRST = "m(i) = b * m(i) + (1.0 - b) * g(i)"
NORM, STEP = "s +=! u(i) * u(i)", "p(i) = p(i) - b * u(i) * (s > 1.0 ? 0.5 : 1.0)"
U = "u(i) = m(i) * b + b * p(i)"
OF_THREE = "u(i) = m(i) * b + g(i) * g(i) + b * p(i)"

# Statements, element type -> whether u is stored.
PROGRAMS: dict[tuple[str, str], bool] = {
    (f"{FIRST}\n {U}\n {NORM}\n {STEP}", "bfloat16"): False,
    (f"{FIRST}\n {U}\n {NORM}\n {STEP}", "float"): False,
    # as many bytes again of g and m, but for half types
    (f"{FIRST}\n {OF_THREE}\n {NORM}\n {STEP}", "bfloat16"): False,
    (f"{FIRST}\n {OF_THREE}\n {NORM}\n {STEP}", "float"): True,
    # what it is made of changes before it is read
    (f"{FIRST}\n {U}\n {NORM}\n m(i) = m(i) * s\n {STEP}", "bfloat16"): True,
    # ... or elsewhere in the statement that reads it
    (f"{FIRST}\n u(i) = m(i) * b + b * p(N-1-i)\n {NORM}\n {STEP}", "bfloat16"): True,
    (f"{FIRST}\n {U}\n {NORM}\n p(i) = p(i) - b * u(N-1-i) * s", "bfloat16"): True,
    # or is read once more, when it has changed
    (f"{FIRST}\n {U}\n {NORM}\n {STEP}\n m(i) = m(i) + u(i) * s", "bfloat16"): True,
    # dear functions
    (f"{FIRST}\n u(i) = exp(m(i)) * sin(p(i)) * b\n {NORM}\n {STEP}", "bfloat16"): True,
}


def source_of(statements: str, dtype: str) -> str:
    return f"{HEAD.format(dtype)} {statements} }}"


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_what_is_stored(program: tuple[str, str], cuda_unit: MakeUnit) -> None:
    n = (2_000_000,)
    launches = cuda_unit(source_of(*program), n, n, n, ()).source.kernels
    assert len(launches) > 1
    stored = {
        p.name for k in launches for p in k.parameters if p.kind is ParameterKind.SCRATCH
    }  # fmt: skip
    assert ("u" in stored) == PROGRAMS[program]


@pytest.mark.slow
def test_results(check_emulated: CheckAll) -> None:
    check_emulated([
        (source_of(*program), [(n,), (n,), (n,), ()])
        for program in PROGRAMS
        for n in (1, 37, 70_001)
    ])  # fmt: skip


def test_rows_that_others_read_too_are_kept(cuda_unit: MakeUnit) -> None:
    """A thread would wait for what it has just stored, and others at a barrier for a subscript."""
    text = """def f(float(T,X) x) -> (first, second, int32(X) count, mass) {
        s(t) +=! exp(x(t,e))
        p(t,e) = exp(x(t,e)) / s(t)
        first(t) argmax=! p(t,e)
        rest(t,e) = first(t) == e ? -1.0 : p(t,e)
        second(t) max=! rest(t,e)
        count(e) = 0 where e in 0:X
        count(first(t)) += 1
        mass(e) +=! p(t,e)
    }"""
    source = cuda_unit(text, (65536, 64)).source
    (kernel,) = (k for k in source.text.split('extern "C"') if "fold_x<" in k)
    # Sums of columns are folded after all rows, with barriers; a row has none.
    row = kernel[kernel.index("fold_x<") : kernel.index("tc_fold_y_first<")]
    assert row.count("fold_x<") == 4
    assert "__syncthreads" not in row and "tc_changing" not in kernel
