"""Random programs are accepted and evaluated; wrong results are found and named."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, seed, settings

import tcdsl
from tcdsl.interp.arithmetic import Array
from tcdsl.interp.error_bounds import evaluate_with_bounds
from tcdsl.interp.oracle import evaluate
from tcdsl.lang.comprehension import Comprehension, Specialisation
from tcdsl.lang.ranges.binding import bind_sizes
from tcdsl.lang.ranges.specialiser import specialise
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.types.dtypes import ALL, BOOL, FLOAT32
from tcdsl.lang.types.sema import analyse
from tcdsl.source import Source
from tcdsl.testing import check, compare, poisoned, programs
from tcdsl.testing.random_inputs import LAYOUTS, laid_out, values
from tcdsl.testing.random_programs import drafted, is_accepted
from tcdsl.testing.random_statements import KINDS


@dataclass(frozen=True)
class Interpreted:
    """A function whose only target is the oracle, with a fault that may be switched on."""

    comprehension: Comprehension
    fault: str = ""

    def specialise(self, *inputs: Any) -> Specialisation:
        shapes = dict(zip(self.comprehension.inputs, map(np.shape, inputs), strict=True))
        return specialise(self.comprehension, bind_sizes(self.comprehension, shapes))

    def __call__(
        self, *inputs: Any, out: Any = None, target: str | None = None, options: Any = None
    ) -> Any:
        c = self.comprehension
        buffers = dict(zip(c.outputs, out if isinstance(out, tuple) else (out,), strict=True))
        given_inputs = dict(zip(c.inputs, map(np.asarray, inputs), strict=True))
        results = evaluate(c, self.specialise(*inputs), given_inputs, buffers)
        for name, buffer in buffers.items():
            buffer[...] = results[name]
            if self.fault == "unwritten" and buffer.size:
                buffer.flat[-1] = poisoned(buffer.dtype, ()).item()
            if self.fault == "roundoff" and buffer.size:
                buffer.flat[0] *= 1 + 1e-5
        if self.fault == "input":
            inputs[0][...] = 0


def function(text: str, fault: str = "") -> Interpreted:
    return Interpreted(analyse(parse_program(Source(text)))[0], fault)


ADD = "def add(float(N) A, float(N) B) -> (C) { C(i) = A(i) + B(i) }"


def add_inputs() -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    return rng.normal(size=5).astype(np.float32), rng.normal(size=5).astype(np.float32)


def test_check_accepts_what_is_right() -> None:
    check(function(ADD), *add_inputs())


@pytest.mark.parametrize("fault", ["unwritten", "roundoff"])
def test_check_names_the_output_the_element_and_the_target(fault: str) -> None:
    where = r"\(4,\)" if fault == "unwritten" else r"\(0,\)"
    message = rf"add on cpu: output 'C': 1 of 5 elements are wrong, the worst at {where}: got"
    with pytest.raises(AssertionError, match=message):
        check(function(ADD, fault), *add_inputs())


def test_check_finds_an_input_that_was_changed() -> None:
    with pytest.raises(AssertionError, match="input 'A' was changed"):
        check(function(ADD, "input"), *add_inputs())


@pytest.mark.parametrize("out", [
    np.array([10, 20], np.float32), (np.array([10, 20], np.float32),), {"O": np.array([10, 20])},
])  # fmt: skip
def test_check_hands_over_what_outputs_start_from(out: Any) -> None:
    f = function("def f(float(N) A) -> (float(N) O) { O(i) += A(i) }")
    check(f, np.array([1, 2], np.float32), out=out)


def test_compare_within_and_beyond_the_bound() -> None:
    expected, bound = np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.1, 0.0])
    assert compare(expected, bound, np.array([1.05, 1.95, 3.0], np.float32)) is None
    message = compare(expected, bound, np.array([1.3, 9.0, 3.0], np.float32))
    assert message is not None
    assert message.startswith("2 of 3 elements are wrong, the worst at (1,): got 9.0, expected 2.0")
    assert message.endswith("+- 0.1")


def test_compare_treats_nan_and_infinities_as_values() -> None:
    special, zero = np.array([np.nan, np.inf, -np.inf]), np.zeros(3)
    assert compare(special, zero, special.astype(np.float32)) is None
    assert compare(special, zero, np.array([0, np.inf, -np.inf])) is not None
    assert compare(special, zero, np.array([np.nan, np.inf, np.inf])) is not None
    assert compare(np.ones(1), np.full(1, 1e30), np.array([np.nan])) is not None
    assert compare(np.ones(1), np.array([np.inf]), np.array([np.nan])) is None


def test_compare_integers_exactly() -> None:
    big = np.array([2**62], np.int64)
    assert compare(big, np.zeros(1), big) is None
    assert compare(big, np.zeros(1), big + 1) is not None
    assert compare(big, np.ones(1), big + 1) is None
    assert compare(np.array([True]), np.zeros(1), np.array([False])) is not None
    assert compare(big, np.zeros(1), big.astype(np.int32)) is not None


def test_compare_shapes() -> None:
    assert compare(np.zeros((2, 3)), np.zeros(()), np.zeros((3, 2))) == (
        "its shape is (3, 2), expected (2, 3)"
    )
    assert compare(np.zeros((0, 3)), np.zeros(()), np.zeros((0, 3))) is None


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_poison_is_no_usual_value(dtype: Any) -> None:
    array = poisoned(dtype, (2, 3))
    assert array.shape == (2, 3) and array.dtype == dtype.numpy and array.flags.writeable
    if dtype.is_float:
        assert np.isnan(array.astype(np.float32)).all()
    elif dtype != BOOL:
        assert (np.abs(array.astype(np.float64)) > 100).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_keep_the_values(layout: str) -> None:
    array = values(FLOAT32, (3, 4), "real", 0)
    again = laid_out(array, layout)
    expected = np.broadcast_to(array[:1], array.shape) if layout == "broadcast" else array
    assert (again == expected).all()
    assert again.flags.c_contiguous == (layout == "contiguous")
    assert laid_out(array[:0], layout).shape == (0, 4)


def run_program(source: str, inputs: Mapping[str, Array]) -> None:
    """Analyse and evaluate a program; every plain result lies within its bound."""
    (c,) = analyse(parse_program(Source(source)))
    assert list(c.inputs) == list(inputs), source
    s = specialise(c, bind_sizes(c, {name: array.shape for name, array in inputs.items()}))
    expected = evaluate_with_bounds(c, s, inputs)
    for name, actual in evaluate(c, s, inputs).items():
        assert actual.shape == s.shapes[name]
        fault = compare(*expected[name], actual)
        assert fault is None, f"{name}: {fault}\n{source}"


RANDOM = settings(
    database=None, deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)


@pytest.mark.slow
@seed(2024)
@settings(RANDOM, max_examples=300)
@given(programs())
def test_300_random_programs_are_accepted_and_evaluated(
    program: tuple[str, Mapping[str, Array]],
) -> None:
    run_program(*program)


@pytest.mark.fuzz
@settings(RANDOM, max_examples=5000)
@given(programs())
def test_random_programs(program: tuple[str, Mapping[str, Array]]) -> None:
    run_program(*program)


@pytest.mark.slow
def test_random_programs_reach_every_kind_of_statement_and_of_expression() -> None:
    marks = {
        "+=!", "*=!", "min=!", "max=!", "and=!", "or=!", " argm", " += ", " *= ", " min= ",
        " max= ", "exists", " ? ", "&&", "||", "<<", "%", "bfloat16", "float16", "float64", "bool",
        "uint8", "int64", "tanh(", "T0(I0(i))", "T0(i - 1)", "2 * i + k", "i / 2", "- 1 - i",
        "where t = ", "exists j < i",
    }  # fmt: skip

    @seed(1)
    @settings(RANDOM, max_examples=800)
    @given(programs())
    def collect(program: tuple[str, Mapping[str, Array]]) -> None:
        seen.update(mark for mark in marks if mark in program[0])

    seen: set[str] = set()
    collect()
    assert seen == marks
    assert len(KINDS) == 8


def test_what_warns_is_not_drawn() -> None:
    """Of integer quotients those that promotion makes floats; of floats and integers none."""
    text = "def f(int32(N) A, float32(N) B) -> (T) {{ T(i) = {} }}"
    for accepted in ("A(i) / A(i)", "float32(A(i) / A(i)) * B(i)", "B(i) / A(i)"):
        assert is_accepted(text.format(accepted))
    assert not is_accepted(text.format("A(i) / A(i) * B(i)"))
    assert not is_accepted("def f(float32(N) A, float32(M) B) -> (T) { T(i + j) += A(i) * B(j) }")


def test_the_simplest_program_is_a_copy() -> None:
    """Hypothesis shrinks towards the simplest of every choice."""

    def simplest(strategy: Any) -> Any:
        return find(strategy, lambda _: True, settings=settings(database=None))

    source, inputs = drafted(simplest)
    assert source == "def f(float32(N) A0) -> (T0) {\n    T0(i) = A0(i)\n}\n"
    assert inputs["A0"].shape == (3,)


def test_one_target_may_be_named_alone() -> None:
    f = tcdsl.define("def f(float(N) x) -> (y) { y(i) = x(i) * 2.0 }").f
    tcdsl.testing.check(f, np.ones(5, np.float32), targets="cpu")
    with pytest.raises(tcdsl.TCError, match="there is no target 'zz'"):
        tcdsl.testing.check(f, np.ones(5, np.float32), targets="zz")
