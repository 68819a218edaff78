"""Gathered subscripts out of range that no target but the reference reported."""

import numpy as np
import pytest

import tcdsl

# What is read at the nearest element instead makes the condition false, or the range empty.
PROGRAM = tcdsl.define("""
def condition(int32(R) g, float(E) x, float(R) w) -> (y) { y +=! w(r) where exists x(g(r)) > 0.0 }
def second(int32(R) g, float(E) x, float(R) w) -> (y) {
    y +=! w(r) where exists w(r) > 0.0, exists x(g(r)) > 0.0 }
def bounds(int32(R) g, int32(P) ptr, float(E) x) -> (y) {
    y(r) +=! x(e) where e in ptr(g(r)):ptr(g(r) + 1) }
""")
X, W, PTR = -np.ones(9, np.float32), np.ones(2, np.float32), np.array([0, 3, 9], np.int32)


@pytest.mark.parametrize("target", ["reference", "cpu", "emulate"])
def test_a_check_does_not_depend_on_what_it_is_of(target: str) -> None:
    calls = [("condition", (X, W)), ("second", (X, W)), ("bounds", (PTR, X))]
    for name, args in calls:
        with pytest.raises(tcdsl.TCError, match=r"index 99 of .* is from g\(1\)"):
            PROGRAM[name](np.array([0, 99], np.int32), *args, target=target)


@pytest.mark.parametrize("target", ["reference", "cpu", "emulate"])
def test_a_condition_before_guards_what_is_gathered(target: str) -> None:
    y = PROGRAM.second(np.array([0, 99], np.int32), X, np.zeros(2, np.float32), target=target)
    assert y == 0.0
    y = PROGRAM.bounds(np.array([1, 0], np.int32), PTR, X, target=target)
    assert y.tolist() == [-6.0, -3.0]


@pytest.mark.parametrize("target", ["reference", "cpu", "emulate"])
def test_a_guarded_read_of_an_empty_tensor_is_none(target: str) -> None:
    """The reference clipped the position along each dimension, not in memory."""
    f = tcdsl.define("""def f(float(N,M) x) -> (y) {
        y(i,j) = i < N ? x(i,j) : 0.5 where i in 0:N + 2, j in 0:M }""").f
    assert (f(np.zeros((0, 3), np.float32), target=target) == np.full((2, 3), 0.5)).all()
