"""Sizes that multiply indices or sizes: ranges and proofs at the sizes of a call."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

import tcdsl
from tcdsl.errors import RangeError, SemanticError, ShapeError, TCError
from tcdsl.lang.comprehension import Comprehension
from tcdsl.lang.ranges.binding import bind_sizes
from tcdsl.lang.ranges.specialiser import specialise
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.syntax.printer import print_comprehension, print_program
from tcdsl.lang.types import definition
from tcdsl.lang.types.sema import analyse
from tcdsl.source import Source
from tcdsl.testing import check, inputs_for, programs
from tests.lang.ranges.test_range_inference import PROGRAMS

TEXT = """
def kron(float(M,N) A, float(P,Q) B) -> (float(M*P, N*Q) C) {
    C(i*P + k, j*Q + l) = A(i,j) * B(k,l) }
def dilated(float(T) x, float(K) w, size D) -> (y) { y(t) +=! x(t + D*k) * w(k) }
def causal(float(T) x, float(K) w, size D) -> (y) {
    y(t) +=! (t >= D*k ? x(t - D*k) : 0.0) * w(k) where t in 0:T }
def flat(float(M*P) x, float(M) a, float(P) b) -> (y) { y(r) = x(r) + a(0) + b(0) where r in 0:M*P }
def repeated(float(N) x, size R) -> (y) { y(i*R + k) = x(i) where k in 0:R }
def strided(float(N) x, size S) -> (y) { y(i*S) = x(i) }
def twice(float(T) x, float(K) w) -> (z) { y = dilated(x, w, 2)  z = dilated(y, w, 3) }
def passed(float(T) x, float(K) w, size D) -> (z) { y(t) = x(t) * 2  z = dilated(y, w, D + 1) }
def upsampled(float(N) x, size R) -> (y) { y(i) = x(i / R) }
def grouped(float(C) x, size G) -> (y) { y(g) +=! x(g*(C/G) + c) where g in 0:G, c in 0:C/G }
def part(float(C) x, float(D) w) -> (y) { y(c) = x(c) + w(0) where c in 0:C/D }
def wrapped(float(N) x) -> (y) { y(i) = x((i + 1) % N) where i in 0:N }
def doubled(float(N) x) -> (float(2*N) y) { y(2*i) = x(i)  y(2*i + 1) = x(i) }
"""
PROGRAM = tcdsl.define(TEXT)
RNG = np.random.default_rng(0)
A, B = RNG.random((3, 2), np.float32), RNG.random((2, 4), np.float32)
X, W = RNG.random(20, np.float32), RNG.random(3, np.float32)


def dilated(x: Any, w: Any, by: int) -> Any:
    n = len(x) - by * (len(w) - 1)
    return sum(x[by * k : by * k + n] * w[k] for k in range(len(w)))


@pytest.mark.slow_but("reference", "cpu")
@pytest.mark.parametrize("target", ["reference", "cpu", "emulate"])
def test_every_target(target: str) -> None:
    def run(name: str, *args: Any) -> Any:
        return PROGRAM[name](*args, target=target)

    np.testing.assert_array_equal(run("kron", A, B), np.kron(A, B))
    for by in (1, 4):
        np.testing.assert_allclose(run("dilated", X, W, by), dilated(X, W, by), rtol=1e-6)
    padded = np.concatenate([np.zeros(4, np.float32), X])
    np.testing.assert_allclose(run("causal", X, W, 2), dilated(padded, W[::-1], 2), rtol=1e-6)
    np.testing.assert_array_equal(run("repeated", W, 2), np.repeat(W, 2))
    expected = dilated(dilated(X, W, 2), W, 3)
    np.testing.assert_allclose(run("twice", X, W), expected, rtol=1e-5)
    np.testing.assert_allclose(run("passed", X, W, 4), dilated(2 * X, W, 5), rtol=1e-5)
    np.testing.assert_array_equal(run("upsampled", W, 3), np.repeat(W, 3))
    np.testing.assert_allclose(run("grouped", X, 4), X.reshape(4, 5).sum(1), rtol=1e-6)
    np.testing.assert_array_equal(run("wrapped", X), np.roll(X, -1))
    assert run("flat", X[:6], W[:2], W).shape == run("doubled", W).shape == (6,)


def test_heads_shapes_and_ranges() -> None:
    assert PROGRAM.kron.output_shapes(A, B) == {"C": (6, 8)}
    assert PROGRAM.dilated.ranges(X, W, D=4) == [{"t": range(12), "k": range(3)}]
    assert repr(PROGRAM.kron).endswith("-> (float32(M*P, N*Q) C)>")
    assert repr(PROGRAM.dilated).endswith("size D) -> (float32(?) y)>")
    # A product with a number is affine; a remainder by an extent stays open, and checked.
    assert not PROGRAM.doubled.comprehension.is_deferred
    assert not PROGRAM.wrapped.comprehension.is_deferred
    assert PROGRAM.part.output_shapes(X, W) == {"y": (6,)}


def test_each_element_of_the_kronecker_product_is_written_once() -> None:
    # All in one statement, without initial zeros: what is left out or written twice is an error.
    at = {"M": 3, "N": 2, "P": 2, "Q": 4}
    c = PROGRAM.kron.comprehension.at(at)
    assert c.preconditions == () and not c.tensors["C"].needs_out
    overlapping = TEXT.replace("i*P + k, j*Q", "i*P + k - i, j*Q")
    with pytest.raises(TCError) as caught:
        tcdsl.define(overlapping).kron(A, B)
    codes = {error.code for error in (caught.value, *caught.value.others)}
    assert "TC025" in codes  # two values for one element


def test_what_is_wrong_at_the_sizes_of_a_call() -> None:
    with pytest.raises(RangeError, match="for T = 20, K = 3, D = 12") as caught:
        PROGRAM.dilated(X, W, 12)
    assert (caught.value.code, caught.value.line) == ("TC044", 4)
    with pytest.raises(RangeError, match=r"no statement writes y\(1\) of 'y' for N = 3, S = 2"):
        PROGRAM.strided(W, 2)
    assert PROGRAM.strided(W, 1).tolist() == W.tolist()
    with pytest.raises(ShapeError, match=r"declared to be M\*P = 6, but the array's is 7") as found:
        PROGRAM.flat(X[:7], W[:2], W)
    assert found.value.hint == "the sizes are M = 2, P = 3"


@pytest.mark.parametrize(
    ("text", "code", "column"),
    [
        # What does not depend on the values is found at once.
        ("def f(float(N) x, size D) -> (y) { y(i) +=! x(i + D*j) }", "TC040", 38),
        ("def f(float(N) x, size D) -> (float(D*E) y) { y(i) = x(i) }", "TC036", 37),
        ("def f(float(N*M) x, float(N) y) -> (z) { z(i) = x(i) }", "TC036", 13),
        ("def f(float(N*) x) -> (z) { z(i) = x(i) }", "TC010", 15),
    ],
)
def test_what_is_wrong_at_all_sizes(text: str, code: str, column: int) -> None:
    with pytest.raises(TCError) as caught:
        tcdsl.define(text)
    assert (caught.value.code, caught.value.column) == (code, column)


def test_the_range_that_is_proposed_has_sizes() -> None:
    text = "def f(float(T) x, float(K) w, size D) -> (y) { y(t) +=! t>=D*k ? x(t-D*k)*w(k) : 0.0 }"
    with pytest.raises(RangeError) as caught:
        tcdsl.define(text)
    assert caught.value.hint is not None and "where t in 0:T" in caught.value.hint


def test_a_size_of_zero_is_named_where_a_range_is_missing() -> None:
    f = tcdsl.define("def f(float(N) x, size S) -> (y) { y(i) = x(S * i) }").f
    assert f(X, 2).tolist() == X[::2].tolist()
    with pytest.raises(RangeError, match="of i: S is 0, so that no read bounds it") as caught:
        f(X, 0)
    assert (caught.value.hint or "").startswith("call it with S above 0, or give the range: where")


def test_a_call_needs_a_size_that_is_none() -> None:
    text = TEXT + "def f(float(T) x, float(K) w) -> (z) { z = dilated(x, w, K - 5) }"
    with pytest.raises(SemanticError, match="is -2, which is negative") as caught:
        tcdsl.define(text).f(X, W)
    assert caught.value.code == "TC030"


def test_compiled_code_and_open_sizes() -> None:
    f = PROGRAM.dilated
    assert [len(f(X, W, by)) for by in (1, 2, 3, 1)] == [18, 16, 14, 18]
    exe = f.compile(X, W, 2)
    assert exe(X, W, 2).shape == (16,) and exe.bind(X, W, 2)().shape == (16,)
    exe = f.compile(X, W, 2, options=tcdsl.Options(dynamic_sizes=("T",)))
    assert exe(X[:10], W, 2).shape == (6,) and "cannot be left open" in exe.explain()


def test_printed_and_read_again() -> None:
    program = parse_program(Source(TEXT))
    assert parse_program(Source(print_program(program))).defs == program.defs
    at = {"M": 3, "N": 2, "P": 2, "Q": 4}
    text = print_comprehension(PROGRAM.kron.comprehension.at(at))
    assert "float32(M*P, N*Q) C" in text
    np.testing.assert_array_equal(tcdsl.define(text).kron(A, B, target="reference"), np.kron(A, B))


@settings(max_examples=5, deadline=None, derandomize=True)
@given(inputs_for(PROGRAM.dilated, max_size=5))
def test_strategies_draw_what_a_call_takes(inputs: tuple[Any, ...]) -> None:
    check(PROGRAM.dilated, *inputs, targets=("reference",))


# --- the analysis at given sizes, against that for all sizes -----------------------------------
def both(text: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Comprehension, Comprehension]:
    """Return the last def of *text* as it is, and deferred."""
    program = parse_program(Source(text))
    general = analyse(program)[-1]
    with monkeypatch.context() as patch:
        patch.setattr(definition, "needs_sizes", lambda c: True)
        deferred = analyse(program)[-1]
    assert deferred.is_deferred and not general.is_deferred
    return general, deferred


def facts(c: Comprehension, sizes: dict[str, int]) -> Any:
    """Return what a call at *sizes* needs to know of *c*; "refused" if it is an error."""
    try:
        s = specialise(c.at(sizes), sizes)
    except TCError:
        return "refused"  # of several errors one may come first here, and another there
    needed = [t.name for t in c.at(sizes).tensors.values() if t.needs_out]
    return s.ranges, dict(s.shapes), dict(s.origins), needed


@pytest.mark.parametrize("text", PROGRAMS)
def test_both_analyses_agree(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    general, deferred = both(text, monkeypatch)
    some = (0, 1, 3, 4) if len(general.sizes) < 3 else (0, 3)
    for values in product(some, repeat=len(general.sizes)):
        sizes = dict(zip(general.sizes, values, strict=True))
        assert facts(deferred, sizes) == facts(general, sizes), sizes


def test_both_analyses_agree_on_random_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    @seed(16)
    @settings(max_examples=25, deadline=None, database=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(programs())
    def agree(drawn: tuple[str, Any]) -> None:
        text, inputs = drawn
        general, deferred = both(text, monkeypatch)
        sizes = bind_sizes(general, {name: array.shape for name, array in inputs.items()})
        assert facts(deferred, sizes) == facts(general, sizes), text

    agree()
