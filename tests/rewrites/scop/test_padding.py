"""Statements on whole tiles: which may be, what is padded, and that copies bring zeros."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tcdsl.costmodel.chip import Chip
from tcdsl.emulator import emulated_programs
from tcdsl.errors import EmulationError
from tcdsl.poly.scop import Kind, Scop
from tcdsl.rewrites.scop.padding import padded
from tcdsl.rewrites.scop.rfactor import rfactor

MakeUnit = Callable[..., Any]
Lower = Callable[..., Scop]
MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"


def test_the_accumulator_and_its_initialisation_grow(lower: Lower) -> None:
    scop = rfactor(lower(MATMUL, (10, 7), (7, 5)), "S0", ()).scop
    done = padded(scop, "S0", {"m": (0, 16)})
    assert done is not None
    name = done.by_name["S0"].write.array
    assert done.arrays[name].shape == (16, 5)
    sizes = {s.name: s.domain.dim_max_val(0).to_python() + 1 for s in done.statements}
    inits = [s.name for s in done.statements if s.kind is Kind.INIT and s.write.array == name]
    assert sizes["S0"] == 16 and [sizes[name] for name in inits] == [16]
    (fold,) = (s.name for s in done.statements if s.name.endswith("_fold"))
    assert sizes[fold] == 10


def test_what_is_not_padded(lower: Lower) -> None:
    whole = lower(MATMUL, (10, 7), (7, 5))
    assert padded(whole, "S0", {"m": (0, 16)}) is None  # its sums are the result itself
    scop = rfactor(whole, "S0", ()).scop
    assert padded(scop, "S0", {"k": (0, 16)}) is None  # no subscript of a sum
    assert padded(scop, "S0", {"m": (1, 16)}) is None  # it begins before
    triangle = lower(MATMUL.replace("B(k,n) }", "B(k,n) where k in m:K }"), (5, 7), (7, 5))
    assert padded(rfactor(triangle, "S0", ()).scop, "S0", {"m": (0, 16)}) is None


@pytest.mark.parametrize("sizes", [((130, 100), (100, 90)), ((130, 101), (101, 92))])
def test_edges_have_no_guards_but_where_results_are_stored(
    cuda_unit: MakeUnit, sizes: tuple[tuple[int, int], ...]
) -> None:
    text = cuda_unit(MATMUL, *sizes).source.text
    assert "tc_copy_async_or_zero<1>" in text
    inside = text[text.index("tc_mad_f32") : text.rindex("tc_mad_f32")]
    guards = re.findall(r"if \((.*)\) \{", inside)
    assert all("threadIdx" not in guard and "c0" not in guard for guard in guards), guards


def test_vectors_are_copied_whole_or_not_at_all(cuda_unit: MakeUnit) -> None:
    text = cuda_unit(MATMUL, (130, 100), (100, 92)).source.text
    assert "tc_copy_async_or_zero<4>" in text
    assert "tc_copy_async_or_zero<4>" not in cuda_unit(MATMUL, (130, 100), (100, 90)).source.text


@pytest.mark.slow_but("fault0")
@pytest.mark.parametrize("fault", [("< 130", "< 131"), ("< 101", "< 102")])
def test_a_bound_too_large_is_found(cuda_unit: MakeUnit, fault: tuple[str, str]) -> None:
    unit = cuda_unit(MATMUL, (130, 101), (101, 92))
    text = unit.source.text.replace(*fault)
    assert text != unit.source.text
    (program,) = emulated_programs([replace(unit.source, text=text)])
    rng = np.random.default_rng(3)
    A, B = rng.normal(size=(130, 101)), rng.normal(size=(101, 92))
    arrays = {"A": A.astype("f4"), "B": B.astype("f4"), "C": np.zeros((130, 92), "f4")}
    with pytest.raises(EmulationError, match="out of bounds"):
        program.run(arrays, seed=1)


def test_tropical_and_other_sums(check_emulated: Callable[..., None], small_chip: Chip) -> None:
    """What is outside may be any number: nothing that is stored has seen it."""
    tropical = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) max=! A(m,k) + B(k,n) }"
    quotients = "def f(int32(M,K) A, int32(K,N) B) -> (C) { C(m,n) +=! A(m,k) / B(k,n) }"
    cases = [(source, [(17, 9), (9, 21)]) for source in (tropical, quotients)]
    check_emulated(cases, gpu=small_chip)
