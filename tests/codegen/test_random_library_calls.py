"""Random products that name a library: whatever the layout, they are right or refused.

Indices of each class (batch, rows, columns, terms), their order in each tensor, offsets, steps and
extents are drawn.  A product whose indices do not coalesce is refused with TC094, and is then
compiled without the library.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.options import Options
from tcdsl.testing import check

pytestmark = pytest.mark.slow
CLASSES = {"b": "CAB", "m": "CA", "n": "CB", "k": "AB"}  # which tensors have an index of the class
PROGRAMS = 60


def drawn(number: int, library: str) -> tuple[str, list[tuple[int, ...]]]:
    """Return a program, and the shapes of its inputs."""
    draw = random.Random(number)
    counts = {"b": draw.choice((0, 0, 1, 2)), "m": draw.choice((0, 1, 1, 2)),
              "n": draw.choice((0, 1, 1, 2)), "k": draw.choice((1, 1, 2))}  # fmt: skip
    indices = [f"{c}{i}" for c, count in counts.items() for i in range(count)]
    extents = {index: draw.choice((1, 2, 3, 5, 8)) for index in indices}
    orders, shapes, clauses = {}, {}, []
    for tensor in "CAB":
        own = [index for index in indices if tensor in CLASSES[index[0]]]
        if draw.random() < 0.4:
            draw.shuffle(own)
        orders[tensor] = own
    texts = {}
    for tensor in "AB":
        subscripts, shape = [], []
        for index in orders[tensor]:
            step, offset = draw.choice((1, 1, 1, 2)), draw.choice((0, 0, 0, 1))
            text = index if step == 1 else f"{step}*{index}"
            subscripts.append(f"{text} + {offset}" if offset else text)
            shape.append(step * (extents[index] - 1) + offset + 1 + draw.choice((0, 0, 2)))
        texts[tensor] = f"{tensor}({', '.join(subscripts)})" if subscripts else tensor
        shapes[tensor] = tuple(shape)
    clauses = [f"{index} in 0:{extents[index]}" for index in indices]
    target = f"C({', '.join(orders['C'])})" if orders["C"] else "C"
    parameters = ", ".join(
        f"float({', '.join(f'{tensor}{d}' for d in range(len(shape)))}) {tensor}"
        if shape else f"float {tensor}"
        for tensor, shape in shapes.items()
    )  # fmt: skip
    source = (
        f"def f({parameters}) -> (C) {{ {target} +=! {texts['A']} * {texts['B']} "
        f"<=> {library}(A, B) where {', '.join(clauses)} }}"
    )
    return source, [shapes["A"], shapes["B"]]


def refused(source: str, shapes: list[tuple[int, ...]], cuda_unit: Callable[..., Any]) -> bool:
    """Return whether the product of *source* is none of matrices; it compiles without a library."""
    try:
        cuda_unit(source, *shapes)
    except tcdsl.TCError as error:
        assert error.code == "TC094", source
        cuda_unit(source, *shapes, options=Options(libraries=False))
        return True
    return False


def test_random_products_on_the_emulator(
    check_emulated: Callable[..., None], cuda_unit: Callable[..., Any]
) -> None:
    programs = [drawn(number, "cublas") for number in range(PROGRAMS)]
    taken = [program for program in programs if not refused(*program, cuda_unit)]
    assert PROGRAMS // 3 < len(taken) < PROGRAMS, "some of both"
    check_emulated(taken)


@pytest.mark.parametrize("number", range(1000, 1000 + PROGRAMS // 3))
def test_random_products_on_a_cpu(number: int) -> None:
    source, shapes = drawn(number, "blas")
    draw = np.random.default_rng(number)
    inputs = [draw.standard_normal(shape).astype(np.float32) for shape in shapes]
    f = tcdsl.define(source).f
    options = Options()
    try:
        f.compile(*inputs, target="cpu")
    except tcdsl.TCError as error:
        assert error.code == "TC094"
        options = Options(libraries=False)
    check(f, *inputs, targets=("cpu",), options=options)
