"""``size C`` parameters: numbers given in the call, on every target and in every tool."""

import inspect
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import tcdsl
from tcdsl.cli.main import main
from tcdsl.errors import ParseError, ShapeError, TCError
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.syntax.printer import print_comprehension, print_program
from tcdsl.source import Source
from tcdsl.testing import check, inputs_for
from tcdsl.testing.cases import case_text

TEXT = """
def onehot(int64(N) label, size C) -> (y) { y(n, c) = label(n) == c ? 1.0 : 0.0 where c in 0:C }
def iota(size N) -> (int32(N) y) { y(i) = i }
def more(int64(N) label, size C) -> (z) { y = onehot(label, C + 1)  z(n) +=! y(n, c) * float(c) }
def ten(int64(N) label) -> (y) { y = onehot(label, 10) }
def same(size C, float(C) x) -> (y) { y(c) = x(c) * C }
"""
PROGRAM = tcdsl.define(TEXT)
LABELS = np.array([1, 0, 3])


@pytest.mark.parametrize("target", ["cpu", "emulate", "reference"])
def test_sizes_are_given_in_the_call(target: str) -> None:
    y = PROGRAM.onehot(LABELS, 4, target=target)
    assert np.array_equal(y, np.eye(4, dtype=np.float32)[LABELS])
    assert PROGRAM.iota(N=5, target=target).tolist() == [0, 1, 2, 3, 4]
    assert PROGRAM.iota(0, target=target).shape == (0,)
    assert PROGRAM.more(LABELS, C=3, target=target).tolist() == [1.0, 0.0, 3.0]
    assert PROGRAM.ten(LABELS, target=target).shape == (3, 10)


def test_shapes_ranges_and_the_reference() -> None:
    f = PROGRAM.onehot
    assert f.output_shapes(LABELS, 7) == {"y": (3, 7)}
    assert f.ranges(LABELS, np.int64(2)) == [{"n": range(3), "c": range(2)}]
    assert f.reference(LABELS, C=2).shape == (3, 2)
    assert str(inspect.signature(f)).startswith("(label: 'int64(N)', C: 'size'")
    assert repr(f) == "<tcdsl.Function onehot(int64(N) label, size C) -> (float32(N, C) y)>"


def test_every_size_has_its_code() -> None:
    f = tcdsl.define(TEXT).onehot
    assert [f(LABELS, n).shape for n in (4, 5, 6, 4)] == [(3, 4), (3, 5), (3, 6), (3, 4)]
    fixed = f.compile(LABELS, 4)
    assert fixed(LABELS, 4).shape == fixed.bind(LABELS, 4)().shape == (3, 4)
    with pytest.raises(ShapeError, match="this code is for 4, not for 5") as caught:
        fixed(LABELS, 5)
    assert caught.value.code == "TC078"
    opened = f.compile(LABELS, 4, options=tcdsl.Options(dynamic_sizes=("C",)))
    assert opened.opened == ("C",)
    assert [opened(LABELS, n).shape for n in (9, 5, 9)] == [(3, 9), (3, 5), (3, 9)]
    opened = f.compile(LABELS, 4, options=tcdsl.Options(dynamic_sizes=("N",)))
    assert opened(LABELS[:2], 4).shape == (2, 4)
    with pytest.raises(ShapeError, match="leave C open too"):
        opened(LABELS, 5)


@pytest.mark.parametrize(
    ("value", "why"),
    [(True, "no integer"), (2.0, "no integer"), (-1, "negative"), (None, "no integer"),
     (np.float32(2), "no integer"), (np.bool_(True), "no integer"), (np.ones(1, int), "no integer"),
     (1 << 70, "too large")],
)  # fmt: skip
def test_what_is_no_size(value: Any, why: str) -> None:
    with pytest.raises(ShapeError, match=why) as caught:
        PROGRAM.onehot(LABELS, value)
    error = caught.value
    assert (error.code, error.line, error.column) == ("TC078", 2, 28)
    assert error.hint is not None and "C=10" in error.hint


def test_missing_and_disagreeing_sizes() -> None:
    with pytest.raises(ShapeError, match="'onehot' takes 2 arguments, got 1"):
        PROGRAM.onehot(LABELS)
    with pytest.raises(ShapeError, match="missing argument C"):
        PROGRAM.onehot(label=LABELS)
    x = np.ones(3, np.float32)
    assert PROGRAM.same(3, x).tolist() == [3.0] * 3
    with pytest.raises(ShapeError, match="C, which this call gives as 4, but the array's is 3"):
        PROGRAM.same(4, x)


@pytest.mark.parametrize(
    ("text", "code", "place"),
    [
        ("def f(size) -> (y) { y = 1.0 }", "TC010", (1, 11)),
        ("def f(size C, float C) -> (y) { y = C }", "TC021", (1, 15)),
        ("def f(size C) -> (C) { C = 1 }", "TC038", (1, 19)),
        ("def g(size C) -> (y) { y = C } def f(float x) -> (y) { y = g(x) }", "TC030", (1, 62)),
        ("def g(size C) -> (y) { y = C } def f(float x) -> (y) { y = g() }", "TC024", (1, 56)),
    ],
)
def test_mistakes(text: str, code: str, place: tuple[int, int]) -> None:
    with pytest.raises(TCError) as caught:
        tcdsl.define(text)
    assert (caught.value.code, (caught.value.line, caught.value.column)) == (code, place)


def test_size_is_a_word_only_there() -> None:
    f = tcdsl.define("def f(float(N) size, size N2) -> (y) { y(i) = size(i) where i in 0:N2 }").f
    assert f(np.ones(3, np.float32), 2, target="reference").shape == (2,)


def test_it_is_printed_and_read_again() -> None:
    program = parse_program(Source(TEXT))
    assert parse_program(Source(print_program(program))).defs == program.defs
    text = print_comprehension(PROGRAM.onehot.comprehension)
    assert "def onehot(int64(N) label, size C)" in text and tcdsl.define(text).names == ("onehot",)


@settings(max_examples=5, deadline=None, derandomize=True)
@given(inputs_for(PROGRAM.onehot, max_size=4))
def test_strategies_draw_sizes(inputs: tuple[Any, ...]) -> None:
    assert isinstance(inputs[1], int)
    check(PROGRAM.onehot, *inputs, targets=("reference",))
    text = case_text(PROGRAM.onehot, *inputs, targets="cpu", options=None, out=None, seed=None,
                     message="")  # fmt: skip
    assert f"'C': {inputs[1]}," in text


def test_command_line(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "p.tc"
    file.write_text(TEXT)
    arguments = [str(file), "onehot", "--size", "N=3", "--size", "C=7"]
    assert main(["run", *arguments, "--check", "--target", "reference"]) == 0
    assert "(3, 7)" in capsys.readouterr().out
    assert main(["show", *arguments, "--stage", "comprehension"]) == 0
    assert "size C" in capsys.readouterr().out


def test_a_kept_head_knows_them() -> None:
    PROGRAM.onehot._definition.program.keep()
    again = tcdsl.define(TEXT)
    assert not again.onehot._definition.program.is_analysed
    assert str(inspect.signature(again.onehot)).startswith("(label: 'int64(N)', C: 'size'")
    with pytest.raises(ShapeError, match="the size C: -1 is negative"):
        again.onehot(LABELS, -1)
    assert not again.onehot._definition.program.is_analysed
    assert again.onehot(LABELS, 4, target="reference").shape == (3, 4)


@pytest.mark.slow
def test_benchmark_and_explore() -> None:
    from tcdsl.frontends.benchmark import benchmark
    from tcdsl.frontends.explore import explore

    measured = benchmark(PROGRAM.onehot, LABELS, 4, target="cpu", seconds=0.001)
    assert measured.rows
    assert "onehot" in str(explore(PROGRAM.onehot, LABELS, 4, target="cpu"))


def test_the_parser_says_what_may_stand_there() -> None:
    with pytest.raises(ParseError):
        tcdsl.define("def f(float(N) x) -> (size C) { C = 1 }")
