"""An update by an atomic of what a thread has in registers: an address that no GPU's atomic takes.

A scattered sum with few results for each of many blocks: a block's copy of the results had an
element a thread, and so no place in shared memory.
"""

from collections.abc import Callable

import pytest

import tcdsl

SCATTERED = """def f(float(G,F,H) x, float(G,F,C,1) w) -> (y) {
    y(g, c, h + r) +=! x(g, f, h) * w(g, f, c, r)
}"""
SHAPES = [(4, 500, 3), (4, 500, 50, 1)]


@pytest.mark.parametrize("operator", ["+", "max", "min"])
def test_copies_of_an_element_a_thread(operator: str, check_emulated: Callable[..., None]) -> None:
    check_emulated([(SCATTERED.replace("+=!", f"{operator}=!"), SHAPES)])


def test_the_plan_is_the_one_that_failed() -> None:
    specs = [tcdsl.spec(shape, "float32") for shape in SHAPES]
    exe = tcdsl.define(SCATTERED).f.compile(*specs, target="emulate")
    (kernel,) = [k for k in exe.choices["kernels"] if k["template"] == "private"]
    assert kernel["in_memory"] == 0
    assert "float u0_y_part0;" in exe.source
    assert exe.source.count("tc_atomic_add_f32") == 1
