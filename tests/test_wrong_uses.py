"""Wrong uses of the public interface: each error names what the user wrote, and says what is right.

What a program or its arrays do wrong is tested beside the code that finds it; these are calls.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl import Options, library, spec

PROGRAM = tcdsl.define("""
def twice(float(N) x) -> (y) { y(i) = x(i) + x(i) }
def matmul(float(M, K) A, float(K, N) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }
""")
F = PROGRAM.matmul
A, B = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32)
SIGNATURE = "matmul(float32(M, K) A, float32(K, N) B) -> (float32(M, N) C)"
EINSUM = tcdsl.einsum("ij,jk->ik")

# (the call, parts of the message, parts of the hint)
WRONG: list[tuple[Callable[[], Any], list[str], list[str]]] = [
    (lambda: PROGRAM["twise"], ["no def 'twise'"], ["'twice'"]),
    (lambda: PROGRAM[""], ["no def ''"], ["twice, matmul"]),
    (lambda: PROGRAM[3], ["no def 3"], ["twice, matmul"]),
    (lambda: F(A), ["'matmul' takes 2 arguments, got 1"], [SIGNATURE]),
    (lambda: F(A, b=B), ["'matmul': unexpected argument b"], [SIGNATURE]),
    (lambda: F(A, B, targt="cpu"), ["unexpected argument targt"], ["'target'"]),
    (lambda: F(A, B, optoins=Options()), ["unexpected argument optoins"], ["'options'"]),
    (lambda: F(A, B, fast_math=True), ["unexpected argument fast_math"], ["Options(fast_math="]),
    (lambda: F(A, B, target=""), ["no target ''"], ["cuda, cpu, emulate, reference"]),
    (lambda: F(A, B, target="CPU"), ["no target 'CPU'"], ["cuda, cpu, emulate, reference"]),
    (lambda: F(A, B, target=["cpu"]), ["no target ['cpu']"], ["cuda, cpu"]),
    (lambda: F(A, B, options={"fuse": "max"}), ["{'fuse': 'max'}"], ["tcdsl.Options(...)"]),
    (lambda: F(A, B, options=Options), ["class 'tcdsl"], ["tcdsl.Options(...)"]),
    (lambda: tcdsl.compute("C(i, j) = target(i, j)", target=A), ["'target'"], ["another name"]),
    (lambda: tcdsl.compute("C(i, j) = A(i, j) * out", A=A, out=A), ["out is"], ["another name"]),
    (lambda: F(A, B, out=3), ["out 'C'", "it is a number"], ["0-D array"]),
    (lambda: F(A, B, out={"D": A}), ["out 'D'", "no output"], ["the outputs are C"]),
    (lambda: F(A, B, out=[]), ["0 arrays for 1 output"], ["each of C"]),
    (lambda: F(None, B), ["argument 'A' is of type NoneType"], ["an array of float32"]),
    (lambda: F([[1.0]], B), ["argument 'A' is of type list"], ["numpy.asarray(A"]),
    (lambda: PROGRAM(A, B), ["a program, of twice, matmul"], ["program.matmul(...)"]),
    (lambda: F.compile(A, B, choices="best.json"), ["'best.json' is a path"],
     ["open('best.json').read()"]),
    (lambda: F(A, "größe"), ["argument 'B' is of type str,"], ["an array of float32"]),
    (lambda: F(A, A=A), ["twice given argument A"], [SIGNATURE]),
    (lambda: F(A.astype("float64"), B), ["'A' is declared float32"], ['write A.astype("float32")']),
    (lambda: tcdsl.define("matmul.tc"), ["found 'matmul'"], ["open('matmul.tc').read()"]),
    (lambda: tcdsl.define("lib/all.tc"), ["expected 'def'"], ["open('lib/all.tc').read()"]),
    (lambda: tcdsl.compute("y(i) = A(0, i) + z(i)", A=A), ["'z'"], ["the arrays, z=..."]),
    (lambda: tcdsl.compute("y(i) = A(7, i)", A=A), ["A(7, i) is out of bounds"],
     ["'A' with at least 8 elements"]),
    (lambda: tcdsl.compute("y(i) = a(0, i)", A=A), ["'a'"], ["did you mean 'A'?"]),
    (lambda: tcdsl.compute("y(i) = pow(A(0, i))", A=A), ["'pow' takes 2"], ["pow(x, y)"]),
    (lambda: tcdsl.compute("y(i) = A(0, i) + 1.5f", A=A), ["'f' is not a suffix"], ["1.5f32"]),
    (lambda: F.output_shapes((3, 4), B), ["of type tuple"], ['tcdsl.spec(A, "float32")']),
    (lambda: F.compile(A, B, target="gpu"), ["no target 'gpu'"], ["cuda"]),
    (lambda: F.output_shapes(A, (4, 5)), ["argument 'B' is of type tuple,"], ["numpy.asarray"]),
    (lambda: F.ranges(A), ["takes 2 arguments, got 1"], [SIGNATURE]),
    (lambda: F.reference(A, 3.0), ["'B' is declared with 2 dimensions"], ["B(K, N)"]),
    (lambda: spec(3.0, "float32"), ["of shape 3.0"], ["integers"]),
    (lambda: spec(None, "float32"), ["of shape None"], ["integers"]),
    (lambda: spec("34", "float32"), ["of shape '34'"], ["integers"]),
    (lambda: spec((1 << 40, 1 << 40), "float32"), ["of shape (1099511627776"], ["2^63 bytes"]),
    (lambda: spec((0, 1 << 70), "float32"), ["of shape (0, 1180591620717411303424)"], ["2^63"]),
    (lambda: spec((3,), "flaot32"), ["the type flaot32"], ["float32"]),
    (lambda: spec((3,), ""), ["the type "], ["float32"]),
    (lambda: EINSUM(A, "x"), ["operand 1 is of type str,"], ["numpy.asarray"]),
    (lambda: EINSUM(A), ["'einsum' takes 2 arguments, got 1"], ["ij,jk->ik"]),
    (lambda: tcdsl.einsum(3), ["the first argument is no string of subscripts"], ["einsum('ij"]),
    (lambda: tcdsl.einsum("iλ->", A), ["'λ' cannot be a subscript"], ["a-z"]),
    (lambda: tcdsl.testing.check(EINSUM, A, B), ["not a def"], ["einsum.function(A, B)"]),
    (lambda: tcdsl.compute("C(i) +=! λ(i)", **{"λ": A}), ["'λ' has no name"], ["letters"]),
    (lambda: tcdsl.compute("", A=A), ["defines nothing"], ["C(i) = A(i) + B(i)"]),
    (lambda: Options(fusee="max"), ["no option 'fusee'"], ["did you mean 'fuse'?", "fuse, "]),
    (lambda: Options(open_sizes=("M",)), ["no option 'open_sizes'"], ["dynamic_sizes now"]),
    (lambda: Options(finish="atomic"), ["no option 'finish'"], ["cross_block now"]),
    (lambda: Options(check_gathers=False), ["no option 'check_gathers'"], ["check_indices now"]),
    (lambda: Options(scheduler="textual"), ["'textual' is not one"], ["'source_order' now"]),
    (lambda: Options(cross_block="auto"), ["'auto' is not one"], ["'ordered' now"]),
    (lambda: Options.from_json('{"finish": "auto"}'), ["no option 'finish'"], ["cross_block"]),
    (lambda: F(A, B, finish="atomic"), ["unexpected argument finish"], ["Options(cross_block="]),
    (lambda: tcdsl.explore(F, A, B).set(finish="atomic"), ["'finish'"], ["cross_block now"]),
    (lambda: Options(tile="32"), ["'tile'", "'32' is not a tuple"], ["tile=(32, 32)"]),
    (lambda: Options(tile=32), ["'tile'", "32 is not a tuple"], ["tile=(32,)"]),
    (lambda: Options(tile=(1.5,)), ["(1.5,) has what is no size"], ["positive"]),
    (lambda: Options(dynamic_sizes="N"), ["'N' is not a tuple"], ["dynamic_sizes=('N',)"]),
    (lambda: Options(coalesce=1), ["'coalesce'", "1 is not one"], ["True, False"]),
    (lambda: Options(fuse=""), ["'fuse'", "'' is not one"], ["'max', 'none'"]),
    (lambda: F(A, B, options=Options(dynamic_sizes=("n",))), ["no size 'n'"], ["mean 'N'?"]),
    (lambda: tcdsl.explore(F, A), ["takes 2 arguments, got 1"], [SIGNATURE]),
    (lambda: tcdsl.explore(F, A, B, target=""), ["no target ''"], ["cuda"]),
    (lambda: tcdsl.explore(F, A, B, options=3), ["it is 3"], ["tcdsl.Options"]),
    (lambda: library.cases("graphs"), ["no 'graphs'"], ["reduction, graph"]),
    (lambda: library.source_for("softmax", "float32"), ["'softmax' is no case"], ["case(name)"]),
    (lambda: library.source_for(library.case("softmax"), "half2"), ["no type 'half2'"], ["half"]),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message", "hint"), WRONG)
def test_what_is_wrong_is_named_and_the_hint_helps(
    call: Callable[[], Any], message: list[str], hint: list[str]
) -> None:
    with pytest.raises(tcdsl.TCError) as caught:
        call()
    error = caught.value
    assert not isinstance(error, tcdsl.InternalError)
    assert all(part in error.message for part in message), error.message
    assert all(part in (error.hint or "") for part in hint), error.hint


@pytest.mark.parametrize(("call", "parts"), [
    (lambda: tcdsl.define(3), ["the text of a program, not 3 (int)"]),
    (lambda: tcdsl.define("", name=3), ["a string for the name of the text, not 3 (int)"]),
    (lambda: tcdsl.compute(b"C = A", A=A), ["the text of statements, not b'C = A' (bytes)"]),
])  # fmt: skip
def test_texts_that_are_none_are_type_errors(call: Callable[[], Any], parts: list[str]) -> None:
    with pytest.raises(TypeError) as caught:
        call()
    assert all(part in str(caught.value) for part in parts)


def test_attributes_that_are_nearly_right() -> None:
    with pytest.raises(AttributeError, match="no def 'matmull'; did you mean 'matmul'"):
        PROGRAM.matmull  # noqa: B018
    with pytest.raises(AttributeError, match=r"no def 'compile'; its defs .*prog\.matmul\.compile"):
        PROGRAM.compile  # noqa: B018
    with pytest.raises(AttributeError, match=r"'kernels'; .*: matmul\.compile\(...\)\.kernels"):
        F.kernels  # noqa: B018
    with pytest.raises(AttributeError, match=r"'Function' object has no attribute 'nothing'$"):
        F.nothing  # noqa: B018
    with pytest.raises(KeyError, match=r"did you mean 'softmax'\?"):
        library.load("softmx")


def test_options_are_made_again_in_every_way() -> None:
    import copy
    import dataclasses
    import pickle

    options = Options(tile=(3,))
    made = (
        pickle.loads(pickle.dumps(options)), copy.deepcopy(options), dataclasses.replace(options),
        Options.from_json(options.to_json()),
    )  # fmt: skip
    assert set(made) == {options}


def test_options_show_what_differs_from_the_defaults() -> None:
    assert repr(Options()) == "Options()"
    options = Options(tile=(8, 8), cross_block="atomic", deterministic=True)
    assert repr(options) == "Options(tile=(8, 8), deterministic=True, cross_block='atomic')"
    assert eval(repr(options)) == options


@pytest.mark.parametrize("call", [
    lambda: F(A.astype("float64"), B), lambda: F.compile(A, A), lambda: F.output_shapes(A),
    lambda: tcdsl.define("def f(float(N) x) -> (y) { y(i) = z(i) }"),
    lambda: tcdsl.compute("y(i) = z(i)", x=A),
])  # fmt: skip
def test_the_traceback_ends_at_the_public_call(
    call: Callable[[], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def depth() -> int:
        with pytest.raises(tcdsl.TCError) as caught:
            call()
        return len(caught.traceback)

    short = depth()
    assert short <= 4  # of this test, and the call's own
    monkeypatch.setenv("TCDSL_DEBUG", "1")
    assert depth() > short
