"""Hunts tell all that they find."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tcdsl.codegen.c.printer import CSource
from tcdsl.costmodel.machine import Cpu
from tcdsl.driver import Compiled, compile_to_c
from tcdsl.errors import TCWarning
from tcdsl.lang.request import Request
from tcdsl.testing import contractions, graphs, programs
from tests import cpu_programs
from tests.hunts import Hunt, drawn, hunt_on_the_emulator
from tests.programs import comprehension_of

TIGHT = "def f(float(N) x) -> (y) { y +=! x(i) }"
BAD = "def g(float(N) x) -> (y) { y(i) = x(i }"


def test_all_finds_are_told_at_the_end(check_all: Callable[..., None]) -> None:
    with pytest.raises(pytest.fail.Exception) as told, Hunt() as found:
        for text, shape in ((TIGHT, (3, 3)), (TIGHT, (5,)), (BAD, (5,))):
            found.run(f"{text} of {shape}", check_all, [(text, [shape])])
    message = str(told.value)
    assert message.startswith("2 finds")
    assert "of (3, 3)" in message and "of (5,)" in message and "TC0" in message


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: graphs("real", with_values=False),
        programs,
        pytest.param(contractions, marks=pytest.mark.slow),
    ],
)
def test_no_program_is_drawn_twice(make: Callable[[], Any]) -> None:
    """Left to itself Hypothesis draws one graph in seven twice, and one program in three."""
    cases = drawn(3000, 100, make())
    keys = {(source, *(given.shape for given in inputs)) for source, inputs in cases}
    assert len(cases) == len(keys) == 100


def test_plans_that_fail_do_not_hide_wrong_results(
    check_all: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one batch: one plan is refused, and another program's code is that of a third."""

    def compiled(request: Request, cpu: Cpu) -> Compiled[CSource]:
        text = request.comprehension.source.text
        if "* 2" in text:
            raise TCWarning("refused")
        other = comprehension_of(text.replace("+ 1", "+ 2"))
        return compile_to_c(replace(request, comprehension=other), cpu)

    monkeypatch.setattr(cpu_programs, "compile_to_c", compiled)
    texts = [f"def f(float(N) x) -> (y) {{ y(i) = x(i) {form} }}" for form in ("* 2", "+ 1", "")]
    with pytest.raises(AssertionError) as told:
        check_all([(text, [(5,)]) for text in texts])
    message = str(told.value)
    assert "refused" in message and "5 of 5 elements are wrong" in message
    assert texts[0] in message and texts[1] in message and texts[2] not in message


def test_the_first_batch_of_a_hunt_on_the_emulator_is_read_as_ptx() -> None:
    read = []
    hunt_on_the_emulator([(TIGHT, [])] * 101, lambda _, *, is_ptx_read: read.append(is_ptx_read))
    assert read == [True, False, False]
