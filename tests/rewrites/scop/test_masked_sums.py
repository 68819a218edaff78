"""Guards in the domain of a sum of products as masks of its factors."""

from collections.abc import Callable
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

import tcdsl
from tcdsl.costmodel.chip import load_chip
from tcdsl.plan import search
from tcdsl.poly.scop import Kind, Scop
from tcdsl.rewrites.scop.masked_sums import masked, why_not_masked
from tcdsl.rewrites.scop.rfactor import Partial, rfactor, why_conditions_differ
from tcdsl.strategies import contracted
from tcdsl.strategies.templates import tile_implicit, tile_mma
from tcdsl.testing import check
from tests.emulated_programs import cuda_unit_of
from tests.programs import arrays_for, comprehension_of

Lower = Callable[..., Scop]
FEW = replace(load_chip("h200"), multiprocessors=4)
AMPERE = replace(load_chip("a100"), multiprocessors=4)
SUM = "y(m,n) +=! wide(x(m,k)) * w(k,n)"
GUARDS = {
    "lower": (f"T(M,K) x, T(K,N) w) -> (y) {{ {SUM} where m in 0:M, k in 0:m+1 }}", "MK KN"),
    "upper": (f"T(M,K) x, T(K,N) w) -> (y) {{ {SUM} where m in 0:M, k in m:K }}", "MK KN"),
    "band": (
        f"""T(M,K) x, T(K,N) w) -> (y) {{
        {SUM} where m in 0:M, k in 0:K, exists m - 9 <= k, exists k <= m + 9 }}""",
        "MK KN",
    ),
    "columns": (f"T(M,K) x, T(K,N) w) -> (y) {{ {SUM} where n in 0:N, k in 0:n+1 }}", "MK KN"),
    "both": (
        f"""T(M,K) x, T(K,N) w) -> (y) {{
        {SUM} where k in 0:K, exists m <= k, exists k <= n + 20 }}""",
        "MK KN",
    ),
    "batch": (
        """T(B,M,K) x, T(B,K,N) w) -> (y) {
        y(b,m,n) +=! wide(x(b,m,k)) * w(b,k,n) where m in 0:M, k in b:m+1 }""",
        "BMK BKN",
    ),
    "inside": (
        """T(B,H,W,C) x, T(F,R,S,C) w) -> (y) {
        y(b,h,v,f) +=! wide(x(b,h+r,v+s,c)) * w(f,r,s,c)
            where h in 0:H, v in 0:W, exists h + r < H, exists v + s < W }""",
        "BHWC FRSC",
    ),
    "triangle, then bias": (
        """T(M,K) x, T(K,N) w, float(N) b) -> (y) {
        p(m,n) +=! wide(x(m,k)) * w(k,n) where m in 0:M, k in 0:m+1
        y(m,n) = relu(p(m,n) + b(n)) }""",
        "MK KN N",
    ),
}  # fmt: skip
SIZES = {"M": 70, "K": 70, "N": 53, "B": 2, "H": 9, "W": 8, "C": 16, "F": 24, "R": 3, "S": 3}
WIDE = {"bfloat16": "float", "float": "", "int8": "int32", "float8_e4m3": "float", "double": ""}


def text_of(name: str, dtype: str) -> str:
    source = GUARDS[name][0].replace("wide", WIDE[dtype]).replace("T(", f"{dtype}(")
    return f"def f({source}"


def shapes_of(name: str, **sizes: int) -> list[tuple[int, ...]]:
    own = SIZES | sizes
    return [tuple(own[axis] for axis in axes) for axes in GUARDS[name][1].split()]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch, brief_tiles: None) -> None:
    """Small sums are worth tiles and masks."""
    monkeypatch.setattr(contracted, "MIN_WORK", 1)
    monkeypatch.setattr(tile_mma, "MIN_WORK", 1)
    monkeypatch.setattr(tile_implicit, "LEAST_EXTENT", 1)
    monkeypatch.setattr(tile_implicit, "least_seconds", lambda *_: inf)
    monkeypatch.setattr(search, "WORTH", 100.0)


def planted(source: str, shapes: list[tuple[int, ...]]) -> list[Any]:
    """Return inputs with infinities and NaN in places of both factors."""
    inputs = arrays_for(comprehension_of(source), shapes, 7)
    for array in inputs[:2]:
        flat = array.reshape(-1)
        for place, value in ((5, inf), (flat.size // 2, nan), (flat.size - 3, -inf)):
            flat[place] = value
    return inputs


def cases_of(name: str, dtype: str) -> list[tuple[str, Any]]:
    """Return the sum in a type; of floats that have infinities, with some of them, too."""
    source, shapes = text_of(name, dtype), shapes_of(name)
    found: list[tuple[str, Any]] = [(source, shapes)]
    if dtype in ("bfloat16", "float"):
        found.append((source, planted(source, shapes)))
    return found


# Each guard in one type, each type in a guard.
SOME = [(name, [*WIDE][number % len(WIDE)], FEW) for number, name in enumerate(GUARDS)]
SOME += [("upper", "bfloat16", AMPERE), ("inside", "float", AMPERE)]


@pytest.mark.parametrize(("name", "dtype", "chip"), SOME)
def test_sums_are_as_written(
    name: str, dtype: str, chip: Any, check_emulated: Callable[..., None], always: None
) -> None:
    check_emulated(2 * cases_of(name, dtype), gpu=chip)


@pytest.mark.one_in(5)
@pytest.mark.slow
@pytest.mark.parametrize("name", GUARDS)
@pytest.mark.parametrize("chip", [FEW, AMPERE], ids=["h200", "a100"])
def test_sums_are_as_written_in_every_type(
    name: str, chip: Any, check_emulated: Callable[..., None], always: None
) -> None:
    dtypes = [dtype for dtype in WIDE if chip is FEW or dtype != "float8_e4m3"]
    cases = [case for dtype in dtypes for case in cases_of(name, dtype)]
    check_emulated(2 * cases, gpu=chip)


def test_the_last_result_and_whole_rows_are_made_again(
    check_emulated: Callable[..., None], always: None
) -> None:
    source, shapes = text_of("lower", "bfloat16"), shapes_of("lower")
    cases = []
    for k, n in ((69, 52), (60, slice(None)), (1, 52)):  # of columns whose rows have no such term
        inputs = arrays_for(comprehension_of(source), shapes, 3)
        inputs[1][k, n] = inf
        cases.append((source, inputs))
    check_emulated(cases, gpu=FEW)


def test_flags_are_found_with_the_product() -> None:
    unit = cuda_unit_of(text_of("lower", "bfloat16"), ((1024, 1024), (1024, 1024)))
    kernels = {one.kernel: one.choice["template"] for one in unit.done.plan.weighed}
    assert kernels["S0+S0_again_flags"] == "tile_mma"
    assert kernels["S0_again+S0_again_store"] == "ragged"
    parameters = unit.source.text.rpartition("__global__")[2].partition("{")[0]
    assert "S0_again_flags" in parameters and "S0_again_sum" not in parameters, "in registers"


def test_parts_of_sums_are_of_the_rows_that_are_begun(lower: Lower) -> None:
    """Data say which rows are summed up again: folds find out of the same flags."""
    scop = masked(lower(text_of("lower", "float"), (9, 9), (9, 5)), "S0")
    init, again = scop.by_name["S0_again_init"], scop.by_name["S0_again"]
    done, of_parts, fold = rfactor(scop, "S0_again", [Partial("k", 0, 1, 8, 8, is_lane=True)])
    assert init.conditions == of_parts.conditions == fold.conditions != ()
    flags = {read.array for read in init.reads}
    assert flags == {"S0_again.flags"} == {read.array for read in of_parts.reads}
    assert {read.array for read in fold.reads} - flags == {part.array for part in fold.parts}
    assert len(fold.parts) == 1 and fold.parts[0].array in done.arrays

    assert why_conditions_differ(scop, init, again) is None
    unasked = replace(again, conditions=again.conditions[2:])
    reason = why_conditions_differ(scop, init, unasked)
    assert reason == "S0_again updates what S0_again_init has not begun"
    flag = scop.by_name["S0_again_flags"]
    late = [s for s in scop.statements if s is not flag]
    late.insert(late.index(again), flag)
    reason = why_conditions_differ(scop.with_statements(tuple(late)), init, again)
    assert reason == "S0_again_flags writes what the conditions of S0_again_init read"


def test_what_is_no_matrix_is_left(lower: Lower) -> None:
    source = """def f(float(M,K) a, float(K) x) -> (y) {
        y(m) +=! a(m,k) * x(k) where m in 0:M, k in 0:m+1 }"""
    scop = lower(source, (9, 9), (9,))
    sums = next(s for s in scop.statements if s.kind is Kind.UPDATE)
    assert why_not_masked(scop, sums) == "it is no product of matrices"


@pytest.mark.gpu
@pytest.mark.parametrize("name", GUARDS)
def test_sums_are_as_written_on_a_gpu(name: str, always: None) -> None:
    sizes = {"M": 333, "K": 333, "N": 217, "H": 29, "W": 13, "C": 64, "F": 72}
    for dtype in ("bfloat16", "float", "int8"):
        f = tcdsl.define(text_of(name, dtype))["f"]
        shapes = shapes_of(name, **sizes)
        check(f, *arrays_for(f.comprehension, shapes, 1), targets=("cuda", "cuda"))
        if dtype in ("bfloat16", "float"):
            check(f, *planted(text_of(name, dtype), shapes), targets=("cuda",))
