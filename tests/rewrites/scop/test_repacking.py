"""Operands whose rows no box brings, copied to rows that boxes do."""

from collections.abc import Callable
from typing import Any

import islpy as isl
import pytest

import tcdsl
from tcdsl.lang.ranges.open_sizes import leave_open
from tcdsl.lang.size_class import SizeClass
from tcdsl.lang.types.dtypes import FLOAT16
from tcdsl.plan.rewrites import REWRITES
from tcdsl.poly.isl_utils import greatest, rest_of
from tcdsl.poly.lowering import lower_comprehension
from tcdsl.poly.scop import Kind, Scop
from tcdsl.rewrites.scop.repacking import repacked, why_not_repacked, wide_strides
from tcdsl.testing.comparison import check
from tcdsl.testing.random_inputs import values
from tests.programs import comprehension_of

MakeUnit = Callable[..., Any]
Lower = Callable[..., Scop]

NN = "def f(half(M,K) A, half(K,N) B) -> (half(M,N) C) { C(m,n) +=! A(m,k) * B(k,n) }"
NT = "def f(half(M,K) A, half(N,K) B) -> (half(M,N) C) { C(m,n) +=! A(m,k) * B(n,k) }"
BATCHES = "def f(half(B,M,K) A, half(B,K,N) W) -> (C) { C(b,m,n) +=! A(b,m,k) * W(b,k,n) }"


@pytest.mark.slow_but("nn")
@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        (NN, [(71, 137), (137, 131)]),
        (NT, [(137, 201), (71, 201)]),
        (NN, [(72, 136), (136, 67)]),
        (BATCHES, [(2, 67, 75), (2, 75, 69)]),
    ],
    ids=["nn", "nt", "one operand", "batches"],
)
def test_products_of_odd_rows(
    source: str, shapes: Any, cuda_unit: MakeUnit, emulated: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr("tcdsl.strategies.templates.tile_mma.MIN_WORK", 1)
    monkeypatch.setattr("tcdsl.plan.search.WORTH", 1e9)
    own = tuple(one for one in REWRITES if one.apply is repacked)
    monkeypatch.setattr("tcdsl.plan.search.REWRITES", own)
    monkeypatch.setattr("tcdsl.rewrites.scop.repacking.LEAST_USES", 1)
    unit = cuda_unit(source, *shapes)
    assert "tc_copy_box" in unit.source.functions and not unit.done.is_fallback
    packed = [a for name, a in unit.done.plan.scop.arrays.items() if "packed" in name]
    packed = [array for array in packed if array.strides is not None]
    assert packed and all(array.strides[-2] % 8 == 0 for array in packed)
    arrays = unit.done.plan.scop.arrays.values()
    types = [array.dtype for array in arrays if array.is_input]
    inputs = [values(*of, "real", n) for n, of in enumerate(zip(types, shapes, strict=True))]
    (program,) = emulated([unit])
    check(program, *inputs)


REFUSED = {
    NN: ((264, 136), (136, 264), "rows of its operands begin at multiples of 16 bytes"),
    NT: ((8, 137), (8, 137), "its operands' elements are used a few times"),
}


@pytest.mark.parametrize("source", REFUSED, ids=["whole rows", "few uses"])
def test_what_is_refused(source: str, lower: Lower) -> None:
    *shapes, why = REFUSED[source]
    scop = lower(source, *shapes)
    update = next(s for s in scop.statements if s.kind is Kind.UPDATE)
    assert why_not_repacked(scop, update) == why


def test_only_odd_rows_are_copied(lower: Lower) -> None:
    scop = lower(NN, (264, 136), (136, 261))
    (name,) = (s.name for s in scop.statements if s.kind is Kind.UPDATE)
    done = repacked(scop, name)
    (copy,) = (s for s in done.statements if s.name not in scop.by_name)
    assert done.arrays[copy.write.array].strides == (264, 1)
    assert {read.array for read in done.by_name[name].reads} == {"A", copy.write.array}
    assert copy.reads[0].array == "B" and why_not_repacked(done, done.by_name[name]) is not None


# Products, which size is open, and what else there is; lengths of several classes.
OPEN = {
    "terms": (NT, "K", {"M": 72, "N": 136}, (261, 303, 67)),
    "columns": (NN, "N", {"M": 72, "K": 264}, (261, 257, 1003)),
    "rows": (NN, "K", {"M": 72, "N": 131}, (261, 67)),
    "batches": (BATCHES, "K", {"B": 2, "M": 67, "N": 69}, (261, 75)),
}


@pytest.mark.slow_but("terms")
@pytest.mark.parametrize("name", OPEN)
def test_rows_of_an_open_length(name: str, monkeypatch: Any) -> None:
    """The strides of a copy are functions of the length, and tensor maps have those of the call."""
    monkeypatch.setattr("tcdsl.strategies.templates.tile_mma.MIN_WORK", 1)
    monkeypatch.setattr("tcdsl.plan.search.WORTH", 1e9)
    own = tuple(one for one in REWRITES if one.apply is repacked)
    monkeypatch.setattr("tcdsl.plan.search.REWRITES", own)
    monkeypatch.setattr("tcdsl.rewrites.scop.repacking.LEAST_USES", 1)
    source, opened, others, lengths = OPEN[name]
    f, options = tcdsl.define(source).f, tcdsl.Options(dynamic_sizes=(opened,))
    tensors = f.comprehension.tensors
    for length in lengths:
        sizes = {**others, opened: length}
        shapes = [[sizes[str(d)] for d in tensors[n].dims] for n in f._head.inputs]
        inputs = [values(FLOAT16, tuple(s), "real", n) for n, s in enumerate(shapes)]
        exe = f.compile(*inputs, target="emulate", options=options)
        assert exe.opened == (opened,) and "_packed" in exe.source
        assert "tc_copy_box" in exe.source
        check(f, *inputs, targets=("emulate",), options=options)


def test_strides_of_rows_of_an_open_length() -> None:
    n = isl.PwAff("[q] -> { [(8 * q + 3)] : 32 <= q <= 127 }")
    strides = wide_strides((5, 7, n), FLOAT16)
    assert strides is not None and strides[-1] == 1
    assert [rest_of(stride, 8) for stride in strides[:-1]] == [0, 0]
    assert greatest(strides[1]) == 1024 and greatest(strides[0]) == 7 * 1024
    assert wide_strides((5, n, n), FLOAT16) is None
    assert wide_strides((n, 5, 131), FLOAT16) == (680, 136, 1)


@pytest.mark.parametrize(
    ("where", "why"),
    [("", None), (" where k in 0:K-1", "it reads a part of rows of an open length")],
)
def test_parts_of_rows_of_an_open_length_are_not_copied(where: str, why: str | None) -> None:
    c = comprehension_of(NT.replace(" }", f"{where} }}"))
    lengths = {"K": SizeClass(513, 1017, 8)}
    sizes = {"M": 720, "N": 1360, "K": 1017}
    scop = lower_comprehension(*leave_open(c, sizes, ("K",), {n: n for n in sizes}, lengths), {})
    (update,) = (s for s in scop.statements if s.kind is Kind.UPDATE)
    assert why_not_repacked(scop, update) == why
