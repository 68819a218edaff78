"""Planted defects are found, shrunk to small cases, and saved."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.errors import CUDA_FAILED, OptionError, TargetError
from tcdsl.lang.comprehension import (
    Comprehension,
    Load,
    Operator,
    Specialisation,
    Statement,
    walk,
)
from tcdsl.testing import fuzz, fuzz_programs, replay

SOFTMAX = """
def softmax(float(M, N) x) -> (y) {
    top(m) max=! x(m, n)
    power(m, n) = exp(x(m, n) - top(m))
    total(m) +=! power(m, n)
    y(m, n) = power(m, n) / total(m)
}
"""


@dataclass(frozen=True)
class Planted:
    """A function that the oracle computes, with a defect; *fault* is given the outputs."""

    f: tcdsl.Function
    fault: Any

    @property
    def comprehension(self) -> Comprehension:
        return self.f.comprehension

    def specialise(self, *inputs: Any) -> Specialisation:
        return self.f.specialise(*inputs)

    def __call__(self, *inputs: Any, out: Any = None, target: str | None = None) -> Any:
        self.f(*inputs, out=out, target="reference")
        self.fault(self, out if isinstance(out, tuple) else (out,))


def third_of_the_second_row(planted: Planted, outputs: tuple[Any, ...]) -> None:
    (y,) = outputs
    if y.shape[0] > 1 and y.shape[1] > 2:
        y[1, 2] *= 1.001


def test_what_is_right_passes() -> None:
    fuzz(tcdsl.define(SOFTMAX).softmax, targets=("reference",), special=True, examples=30)


def test_a_defect_is_shrunk_and_saved(tmp_path: Path) -> None:
    f = tcdsl.define(SOFTMAX).softmax
    with pytest.raises(AssertionError) as caught:
        fuzz(Planted(f, third_of_the_second_row), save=tmp_path, seed=5)
    (path,) = tmp_path.iterdir()
    message = str(caught.value)
    assert "for inputs of the shapes x (2, 3)" in message and f"saved as {path}" in message
    assert "the worst at (1, 2)" in message
    text = path.read_text()
    assert "[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]" in text and "SEED = 5" in text
    replay(path)  # tcdsl itself has no such defect


def test_without_a_folder_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    f = tcdsl.define(SOFTMAX).softmax
    with pytest.raises(AssertionError) as caught:
        fuzz(Planted(f, third_of_the_second_row), sizes={"M": 3})
    assert "x (3, 3)" in str(caught.value) and "saved" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_errors_of_the_compiler_are_finds_too() -> None:
    def fails(planted: Planted, outputs: tuple[Any, ...]) -> None:
        if outputs[0].size:
            raise CUDA_FAILED(call="cuLaunch", why="planted")

    with pytest.raises(AssertionError, match=r"TC088.*planted") as caught:
        fuzz(Planted(tcdsl.define(SOFTMAX).softmax, fails))
    assert "x (1, 1)" in str(caught.value)
    assert isinstance(caught.value.__cause__, tcdsl.LaunchError)


def test_what_always_fails_shrinks_to_the_simplest() -> None:
    def fails(planted: Planted, outputs: tuple[Any, ...]) -> None:
        raise CUDA_FAILED(call="cuLaunch", why="planted")

    with pytest.raises(AssertionError, match=r"x \(0, 0\)"):
        fuzz(Planted(tcdsl.define(SOFTMAX).softmax, fails))


def test_a_defect_that_comes_and_goes_is_reported() -> None:
    calls: list[int] = []

    def at_times(planted: Planted, outputs: tuple[Any, ...]) -> None:
        calls.append(1)
        if len(calls) % 2 and outputs[0].size:
            outputs[0][...] = 7

    with pytest.raises(AssertionError, match="elements are wrong"):
        fuzz(Planted(tcdsl.define(SOFTMAX).softmax, at_times))


def test_mistakes_of_the_caller_are_no_finds() -> None:
    f = tcdsl.define(SOFTMAX).softmax
    with pytest.raises(TargetError):
        fuzz(f, targets=("abacus",))
    with pytest.raises(OptionError):
        fuzz(f, options=tcdsl.Options(dynamic_sizes=("Q",)))


def test_subscripts_that_cannot_be_known_are_drawn_again() -> None:
    f = tcdsl.define("def f(float(E) t, int32(N) at) -> (y) { y(n) = t(at(n) + 1) }").f
    fuzz(f, targets=("reference",), examples=40)


# --- whole programs ----------------------------------------------------------------------------


def wrong_where(condition: Any) -> Any:
    """Return a ``make`` whose programs' last output is wrong if a statement meets *condition*."""

    def fault(planted: Planted, outputs: tuple[Any, ...]) -> None:
        last = outputs[-1]
        if last.size and any(map(condition, planted.comprehension.statements)):
            last.flat[0] = 0 if np.nan_to_num(last.flat[0].astype(np.float64)) else 1

    return lambda source: Planted(tcdsl.define(source)["f"], fault)


def is_least(s: Statement) -> bool:
    return s.reduction is not None and s.reduction.operator is Operator.MIN


def reads_itself(s: Statement) -> bool:
    loads = (node for node in walk(s.value) if isinstance(node, Load))
    return s.reduction is None and any(load.tensor == s.target for load in loads)


@pytest.mark.slow
@pytest.mark.parametrize(("condition", "statements"), [
    (is_least, ["T0 min=! A0(i)"]),
    (reads_itself, ["T0(i) = A0(i)", "T0(i) = float32(T0(i) + T0(i))"]),
])  # fmt: skip
def test_programs_shrink_to_the_statements_that_matter(
    condition: Any, statements: list[str], tmp_path: Path
) -> None:
    def is_small(seed: int) -> bool:
        folder = tmp_path / str(seed)
        with pytest.raises(AssertionError, match="for inputs of the shapes"):
            fuzz_programs(make=wrong_where(condition), save=folder, examples=1_000, seed=seed)
        (path,) = folder.iterdir()
        replay(path)
        source = path.read_text().split('SOURCE = """\n')[1].split('"""')[0]
        body = [line.strip() for line in source.splitlines()[1:-1]]
        return body == statements or (len(body) <= 2 and len(source) < 160)

    # Hypothesis promises no minimum: with one seed a search may keep a statement too many, which
    # one depends on its version and on what programs are drawn from, not on the tests before.
    assert any(is_small(seed) for seed in range(1, 6))
