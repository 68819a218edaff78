"""Reductions of every type into every other: of columns, of rows, strided, scattered, of all.

    pytest -m fuzz -n 8 tests/test_reduction_types.py     all 6,776, on the CPU, the emulator and
                                                          the emulator with the small chip

A `slow` run takes some of each.  It found places in narrow integers, and instances that share one.
"""

import itertools
import random
import warnings
from collections.abc import Callable
from functools import cache

import pytest

import tcdsl
from tcdsl.costmodel.chip import Chip
from tcdsl.errors import TCError

Case = tuple[str, list[tuple[int, ...]]]
CheckAll = Callable[..., None]

TYPES = (
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "half",
    "bfloat16", "float8_e4m3", "float8_e5m2", "float", "double",
)  # fmt: skip
OPERATORS = "+=!", "*=!", "min=!", "max=!", "argmax=!", "argmin=!", "+=", "max="
# What a form reduces; the shape of x; the result, and whether it is a parameter in any case.
FORMS = {
    "columns": ("t(v) {op} x(m,v)", (150, 9), "(V)", False),
    "rows": ("t(v) {op} x(v,m)", (9, 150), "(V)", False),
    "all": ("t {op} x(m,v)", (150, 9), "", False),
    "strided": ("t(2*v + 1) {op} x(m,v)", (150, 9), "(25)", True),
    "scattered": ("t(i(v) % 25) {op} x(m,v)", (150, 9), "(25)", True),
}
SHAPES = {"(V)": (9,), "": (), "(25)": (25,)}
BATCHES = 160


def case_of(operator: str, result: str, given: str, form: str) -> Case:
    body, shape, extents, is_updated = FORMS[form]
    is_updated = is_updated or not operator.endswith("!")
    sizes = "(V,M)" if form == "rows" else "(M,V)"
    parameters, shapes = [f"{given}{sizes} x"], [shape]
    if form == "scattered":
        parameters, shapes = [*parameters, "int32(V) i"], [*shapes, (9,)]
    target = f"{result}{extents} t"
    if is_updated:
        parameters, shapes = [*parameters, target], [*shapes, SHAPES[extents]]
    head = f"def f({', '.join(parameters)}) -> ({'t' if is_updated else target})"
    return f"{head} {{ {body.format(op=operator)} }}", shapes


def is_program(source: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            _ = tcdsl.define(source).f.comprehension
        except TCError:
            return False
    return True


@cache
def cases() -> list[Case]:
    """Return all cases that are programs, in the same order every time."""
    every = itertools.product(OPERATORS, TYPES, TYPES, FORMS)
    found = [made for made in itertools.starmap(case_of, every) if is_program(made[0])]
    random.Random(0).shuffle(found)
    return found


def batch(number: int) -> list[Case]:
    found = cases()[number::BATCHES]
    assert len(found) > 20
    return found


BATCH = pytest.mark.parametrize(
    "number",
    [pytest.param(0, marks=pytest.mark.slow)]
    + [pytest.param(n, marks=pytest.mark.fuzz) for n in range(1, BATCHES)],
)
pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.filterwarnings("ignore::tcdsl.errors.TCWarning"),
]


@BATCH
def test_on_the_cpu(number: int, check_all: CheckAll) -> None:
    check_all(batch(number))


@BATCH
def test_on_the_emulator(number: int, check_emulated: CheckAll) -> None:
    check_emulated(batch(number))


@BATCH
def test_on_a_small_chip(number: int, check_emulated: CheckAll, small_chip: Chip) -> None:
    check_emulated(batch(number), gpu=small_chip)
