"""C text: what a plan's function looks like, what it is called with, and that it is safe."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tcdsl.driver import Compiled
from tcdsl.options import Options

Compile = Callable[..., Compiled]
CheckAll = Callable[..., None]

SUM = "def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }"
GATHER = "def f(float(E,D) T, int32(B) I) -> (O) { O(b,d) = T(I(b),d) }"


def balanced(text: str) -> bool:
    depth = 0
    for char in text:
        depth += {"{": 1, "}": -1}.get(char, 0)
        if depth < 0:
            return False
    return depth == 0


def test_a_function_with_a_fixed_signature(compiled: Compile) -> None:
    c = compiled(SUM, (64, 65)).source
    entry = "int32_t tcdsl_entry(void *const *pointers, const int64_t *integers, int64_t *fault)"
    assert c.body.count(entry) == 1
    assert c.text.endswith(c.body) and balanced(c.body)
    assert c.pointers == ("x", "y")


def test_inputs_are_constant_and_outputs_are_not(compiled: Compile) -> None:
    body = compiled(SUM, (64, 65)).source.body
    assert re.search(r"^ *const float \*restrict x,", body, re.MULTILINE)
    assert re.search(r"^ *float \*restrict y,", body, re.MULTILINE)
    assert "  tcdsl_kernels(pointers[0], pointers[1], integers, fault);\n" in body


def test_an_argument_that_is_updated_is_one_restricted_pointer(compiled: Compile) -> None:
    """What is read and stored through two would be undefined."""
    source = "def f(float(N) x, float(N) y) -> (y) { y(i) = y(i) + x(i) }"
    c = compiled(source, (64,), (64,)).source
    assert c.pointers == ("x", "y") and c.body.count("float *restrict y,") == 1
    assert "const float *restrict y" not in c.body


def test_kernels_are_one_function_that_is_not_inlined(compiled: Compile) -> None:
    """gcc makes nothing of ``restrict`` on variables, and on parameters of inlined functions."""
    body = compiled(SUM, (64, 65)).source.body
    assert body.startswith("static __attribute__((noinline)) void tcdsl_kernels(\n")
    assert "restrict" not in body.partition("{")[2]


def test_each_line_is_of_its_statement(compiled: Compile) -> None:
    source = "def f(float(N) x) -> (y) { s +=! x(i)\n t max=! x(i)\n y(i) = x(i) * s + t }"
    for c in (compiled(source, (100_000,), threads=4).source, compiled(SUM, (64, 65)).source):
        lines = c.body.split("\n")
        assert len(lines) == len(c.statements)
        (last,) = (n for n, line in enumerate(lines) if line.startswith("int32_t tcdsl_entry("))
        assert not any(c.statements[last:]) and any(c.statements[:last])
        named = [line for line, name in zip(lines, c.statements, strict=True) if name]
        assert not [line for line in named if line.startswith(("static", "    const float *"))]


def test_scratch_in_memory_is_one_aligned_workspace(compiled: Compile) -> None:
    source = "def f(float(N) x) -> (y) { s +=! x(i)\n t max=! x(i)\n y(i) = x(i) * s + t }"
    c = compiled(source, (100_000,), threads=4).source
    assert c.pointers[-1] == "" and c.workspace_bytes
    assert c.workspace_bytes % 64 == 0
    offsets = [int(o) for o in re.findall(r"\(char \*\)pointers\[2\] \+ (\d+)", c.body)]
    assert offsets and all(o % 64 == 0 and o < c.workspace_bytes for o in offsets)
    assert len(set(offsets)) == len(offsets)


def test_no_workspace_where_there_is_nothing_to_keep(compiled: Compile) -> None:
    c = compiled(SUM, (4, 5)).source
    assert c.workspace_bytes == 0 and "" not in c.pointers


def test_kernels_say_why(compiled: Compile) -> None:
    body = compiled(SUM, (640, 650), threads=4).source.body
    assert "// threads over" in body and "#pragma omp parallel for" in body


def test_gathers_are_clamped_and_checked(compiled: Compile) -> None:
    c = compiled(GATHER, (7, 3), (4,)).source
    assert "tcdsl_clamp(" in c.body and "tc_fault(fault" in c.body
    assert [(s.tensor, s.dim, s.reads) for s in c.sites] == [("T", 0, "I")]
    unchecked = compiled(GATHER, (7, 3), (4,), options=Options(check_indices=False)).source
    assert "tcdsl_clamp(" in unchecked.body and "tc_fault" not in unchecked.body
    assert unchecked.sites == ()


def test_a_fault_is_reported_with_its_place(
    unit: Callable[..., Any], batch: Callable[..., Any]
) -> None:
    (loaded,) = batch([unit(GATHER, (7, 3), (4,))])
    table, rows = np.arange(21, dtype=np.float32).reshape(7, 3), np.zeros((4, 3), np.float32)
    assert loaded.run([table, np.array([0, 6, 6, 0], np.int32)], [rows]) is None
    assert (rows == table[[0, 6, 6, 0]]).all()
    for wrong in (7, -1, 2**31 - 1, -(2**31)):
        fault = loaded.run([table, np.array([0, 6, wrong, 0], np.int32)], [rows])
        assert (fault.site, fault.index, fault.extent) == (0, wrong, 7)


HOSTILE = [
    ("int", "for"), ("c0", "c1"), ("pointers", "fault"), ("floord", "min_"), ("w_part", "w_lane"),
    ("tc_add_i32", "__global__"), ("y0", "u0_x"), ("main", "exp_"), ("NULL", "stdin"),
]  # fmt: skip


def test_hostile_names_compile_and_run(check_all: CheckAll) -> None:
    cases = []
    for array, index in HOSTILE:
        source = (
            f"def f(float(SIZE) {array}, float(SIZE) q) -> (out) {{"
            f" t({index}) = {array}({index}) * {index}\n out +=! t({index}) + q({index}) }}"
        )
        if _is_keyword(array) or _is_keyword(index):
            continue
        cases.append((source, [(67,), (67,)]))
    assert len(cases) >= 6
    check_all(cases)


def _is_keyword(name: str) -> bool:
    return name in {"int", "min", "max", "float", "double", "half", "bool"}


def test_text_of_the_program_never_reaches_c(compiled: Compile) -> None:
    source = "def f(float(N) x) -> (y) { # */ #include \\\n y(i) = x(i) # ??/ trigraph\n }"
    body = compiled(source, (9,)).source.body
    assert "include" not in body and "trigraph" not in body and "\\" not in body


def test_wide_offsets(compiled: Compile) -> None:
    """Offsets are computed in 64 bits: 2^16 rows of 2^17 elements overflow 32."""
    body = compiled("def f(float(M,N) x) -> (y) { y(j,i) = x(i,j) }", (2**16, 2**17)).source.body
    assert "int64_t c0" in body and "(int32_t)" not in body


@pytest.mark.parametrize("n", [0, 1, 5])
def test_zero_dimensional_tensors_and_scalars(n: int, check_all: CheckAll) -> None:
    check_all([
        ("def f(float s) -> (y) { y = s * 2.0 }", [np.float32(1.5)]),
        ("def f(float s, float(N) x) -> (y, z) { y(i) = s * x(i)\n z = s }", [np.float32(2), (n,)]),
        ("def f(float(N) x) -> (y) { y = 3.0\n y += x(i) }", [(n,)]),
    ])  # fmt: skip


def test_an_unchanged_copy_of_the_source_is_printed_the_same(compiled: Compile) -> None:
    first, second = (compiled(SUM, (64, 65)).source for _ in range(2))
    assert first == second == replace(first)


def test_a_result_is_loaded_before_a_vector_loop_that_leaves_it_alone(
    compiled: Compile, check_all: CheckAll
) -> None:
    """Of a row's maximum that is a result the loop over the row was five times as long."""
    source = """def f(float(M,N) x) -> (y, top) {
        top(m) max=! x(m,n)
        y(m,n) = exp(x(m,n) - top(m))
    }"""
    lines = compiled(source, (33, 2048)).source.body.splitlines()
    (exponential,) = [line for line in lines if "tc_exp_f32" in line]
    assert "w_invariant" in exponential and "top" not in exponential
    check_all([(source, [(3, 7)]), (source, [(0, 5)]), (source, [(5, 0)]), (source, [(33, 67)])])


def test_a_guarded_load_of_what_is_there_in_any_case_comes_before_the_vector_loop(
    compiled: Compile, check_all: CheckAll
) -> None:
    """gcc does not vectorise a conditional load of one place."""
    source = """def f(float(M,N) x, int64(M) label) -> (y) {
        s(i) +=! x(i,j)
        d(i) = exp(-s(i) * s(i))
        y(i,j) = (j == label(i) ? d(i) : 0.0) + x(i,j)
    }"""
    body = compiled(source, (64, 12), (64,), threads=1).source.body
    assert re.search(r"const float w_invariant\d+ = d\[c0\];", body)
    check_all([(source, [(64, 12), np.arange(64) % 12])], threads=1)
    number = "def f(float(N) x, float a) -> (y) { y(i) = x(i) > 0 ? a / 3 : 0.0 }"
    body = compiled(number, (640,), (), threads=1).source.body
    assert re.search(r"const float w_invariant\d+ = a\[0\];", body)
    check_all([(number, [(640,), np.float32(2)])], threads=1)


def test_a_guarded_load_stays_where_its_guard_keeps_it_inside(
    compiled: Compile, check_all: CheckAll
) -> None:
    source = """def f(float(M,N) x) -> (r, y) {
        r(i) +=! x(i,j)
        y(i,j) = (i > 0 ? r(i - 1) : 0.0) + x(i,j) where i in 0:M
    }"""
    body = compiled(source, (64, 12), threads=1).source.body
    assert not re.search(r"w_invariant\d+ = r\[", body)
    check_all([(source, [(64, 12)])], threads=1)


def test_a_guard_that_stands_still_chooses_between_two_loops(
    compiled: Compile, check_all: CheckAll
) -> None:
    """gcc copies a line under such a guard one number after another, where it finds it too hard."""
    source = """def f(float(M,N) x) -> (y) {
        y(i,j) = i % 3 > 0 && i > 1 ? x(i - 2,j) : 0.5 where i in 0:M, j in 0:N
    }"""
    body = compiled(source, (64, 40), threads=1).source.body
    assert "?" not in body
    copied, rest = (re.findall(r"\] = (.*);", half) for half in body.partition("} else {")[::2])
    assert [value[:2] for value in copied] == ["x["] and rest == ["0x1.0000000000000p-1f"]
    check_all([(source, [(64, 40)]), (source, [(2, 5)]), (source, [(1, 0)])], threads=1)


@pytest.mark.parametrize("guard", ["j > 1", "i > 1 && j > 0", "k(i) > 0", "x(i,j) > 0"])
def test_a_guard_that_moves_or_loads_is_asked_in_the_loop(
    guard: str, compiled: Compile, check_all: CheckAll
) -> None:
    source = f"""def f(float(M,N) x, int32(M) k) -> (y) {{
        y(i,j) = {guard} ? x(i,j) : 0.5 where i in 0:M, j in 0:N
    }}"""
    assert "else" not in compiled(source, (64, 40), (64,), threads=1).source.body
    check_all([(source, [(64, 40), np.arange(64, dtype=np.int32) % 3])], threads=1)
