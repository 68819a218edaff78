"""Wrong arguments of ``tcdsl.testing`` are errors that name them and say what is right."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.testing import (
    array,
    check,
    compare,
    fuzz,
    fuzz_programs,
    inputs_for,
    poisoned,
    replay,
    save_case,
)

PROGRAM = tcdsl.define("""
def softmax(float(Rows, Columns) x) -> (y) {
    top(m) max=! x(m, n)
    power(m, n) = exp(x(m, n) - top(m))
    total(m) +=! power(m, n)
    y(m, n) = power(m, n) / total(m)
}
def conv(float(N) signal, float(K) weight) -> (y) { y(i) +=! signal(i + k) * weight(k) }
def update(float(N) x) -> (float(N) y) { y(i) += x(i) }
def constant() -> (s) { s = 3.0 }
""")
F, CONV, UPDATE = PROGRAM.softmax, PROGRAM.conv, PROGRAM.update
X = np.ones((3, 4), np.float32)
ROW = np.ones(3, np.float32)
Call = Callable[[], Any]


def told(call: Call) -> str:
    with pytest.raises(tcdsl.TCError) as caught:
        call()
    assert caught.value.hint
    return str(caught.value)


# What is no def: each function says so itself.
NOT_DEFS = [3, "softmax", None, X, tcdsl.Function, lambda x: x]


@pytest.mark.parametrize("wrong", NOT_DEFS, ids=lambda wrong: type(wrong).__name__)
@pytest.mark.parametrize(
    ("caller", "call"),
    [
        ("inputs_for", inputs_for),
        ("fuzz", fuzz),
        ("check", lambda f: check(f, X)),
        ("save_case", lambda f: save_case("never", f, X)),
        ("explore", lambda f: tcdsl.explore(f, X)),
    ],
)
def test_what_is_no_def(caller: str, call: Callable[[Any], Any], wrong: object) -> None:
    text = told(lambda: call(wrong))
    assert f"{caller}: " in text and f"({type(wrong).__name__}) is not a def of a program" in text
    assert "hint: give a def" in text
    assert not Path("never").exists()


@pytest.mark.parametrize("call", [inputs_for, fuzz, lambda f: check(f, X), tcdsl.explore])
def test_a_program_is_not_one_def(call: Callable[[Any], Any]) -> None:
    text = told(lambda: call(PROGRAM))
    assert "this is a program, of softmax, conv, update, constant" in text
    assert "give one of its defs: program.constant" in text


@pytest.mark.parametrize("draw", [inputs_for, fuzz])
@pytest.mark.parametrize(
    ("f", "wishes", "problem", "hint"),
    [
        (F, {"sizes": {"Row": 3}}, "'softmax' has no size 'Row'", "did you mean 'Rows'?"),
        (F, {"sizes": {"Q": 3}}, "no size 'Q'", "its sizes are Rows, Columns"),
        (PROGRAM.constant, {"sizes": {"Q": 3}}, "'constant' has no size 'Q'", "its sizes are none"),
        (F, {"sizes": {"Rows": -1}}, "sizes['Rows']: it is -1", "an integer of at least 0"),
        (F, {"sizes": {"Rows": 2.0}}, "sizes['Rows']: it is 2.0", "an integer of at least 0"),
        (F, {"sizes": {"Rows": True}}, "sizes['Rows']: it is True", "an integer of at least 0"),
        (F, {"sizes": 3}, "sizes: 3 (int) is no mapping", "write sizes={'Rows': 3}"),
        (F, {"sizes": "Rows"}, "sizes: 'Rows' (str) is no mapping", "write sizes={'Rows': 3}"),
        (F, {"min_size": -1}, "min_size: it is -1", "at least 0"),
        (F, {"min_size": 5, "max_size": 2}, "max_size: it is 2", "at least 5"),
        (F, {"max_size": "a"}, "max_size: it is 'a'", "at least 0"),
        (F, {"layouts": ("contigous",)}, "no layout 'contigous'", "did you mean 'contiguous'?"),
        (F, {"layouts": "rows"}, "there is no layout 'rows'", "the layouts are contiguous, "),
        (F, {"layouts": ()}, "layouts: there is none", "write layouts=('contiguous',)"),
        (F, {"layouts": 3}, "layouts: 3 is not a layout", "write layouts=('contiguous',)"),
        (CONV, {"sizes": {"N": 3, "K": 9}}, "no call of 'conv' has N = 3, K = 9: the range of 'i'",
         "give other sizes"),
        (CONV, {"sizes": {"K": 19}}, "'conv' has K = 19, N from 0 to 16", "raise max_size"),
        (F, {"sizes": {"Rows": 1 << 20}, "min_size": 1}, "the inputs have 1048576 elements or more",
         "at most 65536 elements"),
    ],
)  # fmt: skip
def test_drawing_what_cannot_be_drawn(
    draw: Callable[..., Any], f: Any, wishes: dict[str, Any], problem: str, hint: str
) -> None:
    text = told(lambda: draw(f, **wishes))
    assert problem in text and hint in text.partition("hint: ")[2]


def test_one_layout_needs_no_tuple() -> None:
    inputs_for(F, layouts="contiguous")


@pytest.mark.parametrize(
    ("wishes", "problem", "hint"),
    [
        ({"examples": 0}, "examples: it is 0", "at least 1"),
        ({"examples": "3"}, "examples: it is '3'", "at least 1"),
        ({"seed": "a"}, "seed: it is 'a'", "at least 0"),
        ({"targets": ()}, "targets: there is none", "targets=('cpu', 'emulate')"),
        ({"targets": 3}, "targets: 3 is not a target", "targets=('cpu', 'emulate')"),
        ({"targets": ("cpu", 3)}, "targets: 3 is not a target", "targets=('cpu', 'emulate')"),
        ({"options": {"fuse": "none"}}, "'options': it is {'fuse': 'none'}", "tcdsl.Options(...)"),
        ({"save": 3}, "save: 3 is no path", "as a string"),
    ],
)
@pytest.mark.parametrize("search", [lambda **wishes: fuzz(F, **wishes), fuzz_programs])
def test_searching_in_a_way_that_cannot_be(
    search: Callable[..., Any], wishes: dict[str, Any], problem: str, hint: str
) -> None:
    text = told(lambda: search(**wishes))
    assert problem in text and hint in text.partition("hint: ")[2]


def test_a_search_knows_its_arguments() -> None:
    text = told(lambda: fuzz(F, tragets="cpu"))
    assert "fuzz: there is no argument 'tragets'" in text and "did you mean 'targets'?" in text
    assert "make: 3 is no function of a text" in told(lambda: fuzz_programs(make=3))


@pytest.mark.parametrize("run", [check, lambda *a, **n: save_case("never", *a, **n)])
@pytest.mark.parametrize(
    ("f", "inputs", "named", "parts"),
    [
        (F, (), {}, ["'softmax' takes 1 argument, got 0", "(float32(Rows, Columns) y)"]),
        (F, (X, X), {}, ["'softmax' takes 1 argument, got 2"]),
        (F, ("x",), {}, ["argument 'x' is of type str"]),
        (F, (tcdsl.spec((3, 4), "float32"),), {}, ["'x' is a placeholder, which has no data"]),
        (F, (ROW,), {}, ["'x' is declared with 2 dimensions", "declared is x(Rows, Columns)"]),
        (F, (X.astype(np.float64),), {}, ["'x' is declared float32", "is float64"]),
        (F, (X,), {"targets": ()}, ["targets: there is none"]),
        (F, (X,), {"targets": ("cpuu",)}, ["there is no target 'cpuu'", "cuda, cpu, emulate"]),
        (F, (X,), {"targets": 3}, ["targets: 3 is not a target"]),
        (F, (X,), {"options": 3}, ["option 'options': it is 3", "give tcdsl.Options(...)"]),
        (F, (X,), {"out": {"z": X}}, ["out 'z'", "no output has that name", "are y"]),
        (F, (X,), {"out": (X, X)}, ["it holds 2 arrays for 1 output"]),
        (UPDATE, (ROW,), {"out": {"yy": ROW}}, ["out 'yy'", "did you mean 'y'?"]),
        (UPDATE, (ROW,), {"out": "abc"}, ["out 'y' is of type str"]),
    ],
)  # fmt: skip
def test_calls_that_cannot_be(
    run: Callable[..., Any], f: Any, inputs: tuple[Any, ...], named: dict[str, Any],
    parts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    text = told(lambda: run(f, *inputs, **named))
    assert all(part in text for part in parts)
    assert not list(tmp_path.rglob("*.py"))


def test_first_values_have_the_shape_of_their_output() -> None:
    text = told(lambda: check(UPDATE, ROW, out=np.ones(4, np.float32)))
    assert "out 'y' cannot be written: its shape is (4,), the output's is (3,)" in text


def test_one_target_is_saved_as_one(tmp_path: Path) -> None:
    path = save_case(tmp_path, F, X, targets="reference")
    assert "TARGETS = ('reference',)" in path.read_text(encoding="utf-8")
    replay(path)


@pytest.mark.parametrize(("folder", "part"), [
    (3, "3 is no path"), ("", "'' is no path"), ("a\0b", "is no path"),
    ("file/below", "the folder file/below cannot be made: "),
])  # fmt: skip
def test_folders_that_cannot_be(
    folder: Any, part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("", encoding="utf-8")
    assert part in told(lambda: save_case(folder, F, X))
    assert part in told(lambda: fuzz(F, save=folder))


def test_a_case_says_what_it_is_in_words(tmp_path: Path) -> None:
    assert "message: 3 is no text" in told(lambda: save_case(tmp_path, F, X, message=3))
    assert "seed: it is 'a'" in told(lambda: save_case(tmp_path, F, X, seed="a"))


@pytest.mark.parametrize(("path", "part"), [
    (3, "3 is no path"), ("none.py", "none.py is not there"), (".", ". is a folder"),
])  # fmt: skip
def test_replaying_what_is_no_file(path: Any, part: str) -> None:
    assert f"replay: {part}" in told(lambda: replay(path))


@pytest.mark.parametrize(("arguments", "part"), [
    (("float33", (2,), [1, 2]), "the type float33"),
    (("float32", (3,), [1, 2]), "not those of an array of float32, of shape (3,)"),
    (("float32", (2,), "eJxj"), "not those of an array of float32, of shape (2,)"),
    (("float32", (2,), "???"), "not those of an array of float32, of shape (2,)"),
    (("float32", (-1,), [1]), "(-1,)"),
])  # fmt: skip
def test_arrays_that_cannot_be(arguments: tuple[Any, ...], part: str) -> None:
    assert part in told(lambda: array(*arguments))


def test_comparing_numbers_and_poisoning_by_name() -> None:
    assert compare(1.0, 0.5, 1.25) is None
    assert "got 3.0, expected 1.0" in str(compare(1.0, 0.5, 3.0))
    assert np.isnan(poisoned("float16", (2,)).astype(np.float64)).all()
    assert "the type float33" in told(lambda: poisoned("float33", (2,)))
