"""What Python's own tools see of the public interface: dir, signatures, containers, types."""

import dataclasses
import inspect
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tcdsl

ROOT = Path(__file__).parent.parent
PROGRAM = tcdsl.define("""
def twice(float(N) x, float s) -> (y) { y(i) = x(i) * s }
def both(float(M, N) x, int32(3) at) -> (low, high) { low(m) min=! x(m, n)  high(m) max=! x(m, n) }
""")


# --- programs ------------------------------------------------------------------------------------


def test_a_program_is_a_container_of_names() -> None:
    assert len(PROGRAM) == 2 and list(PROGRAM) == ["twice", "both"] == list(PROGRAM.names)
    assert "twice" in PROGRAM and "thrice" not in PROGRAM and 3 not in PROGRAM
    assert [PROGRAM[name].__name__ for name in PROGRAM] == ["twice", "both"]
    assert bool(PROGRAM) and repr(PROGRAM) == "<tcdsl.Program twice, both>"


# --- signatures ----------------------------------------------------------------------------------


def test_signatures_show_parameters_with_types_and_results() -> None:
    assert str(inspect.signature(PROGRAM.both)) == (
        "(x: 'float32(M, N)', at: 'int32(3)', *, out=None, target=None, options=None)"
        " -> '(float32(M) low, float32(M) high)'"
    )
    bound = inspect.signature(PROGRAM.twice).bind(np.ones(3), s=2.0, target="cpu")
    assert list(bound.arguments) == ["x", "s", "target"]
    assert "args" in inspect.signature(tcdsl.Function.__call__).parameters  # the class has its own


def test_the_signature_of_options_shows_its_fields() -> None:
    shown = inspect.signature(tcdsl.Options).parameters
    assert list(shown) == [field.name for field in dataclasses.fields(tcdsl.Options)]
    assert shown["tile"].default == ()


def test_parameters_that_no_call_can_name_are_positional() -> None:
    f = tcdsl.define("def f(float(N) a, float(N) lambda, float b) -> (y) { y(i) = a(i) }").f
    kinds = [p.kind.name for p in inspect.signature(f).parameters.values()]
    assert kinds[:3] == ["POSITIONAL_ONLY", "POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD"]
    g = tcdsl.define("def g(float(N) out) -> (y) { y(i) = out(i) }").g
    assert str(inspect.signature(g)).startswith("(out: 'float32(N)', /, *, target=None")


# --- spec ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dtype", "name"), [
    (np.float32, "float32"), (np.dtype("int64"), "int64"), (np.ones(1, np.int8).dtype, "int8"),
    (float, "float64"), (bool, "bool"), ("f4", "float32"), ("half", "float16"),
    (ml_dtypes.bfloat16, "bfloat16"), (np.dtype(ml_dtypes.bfloat16), "bfloat16"),
])  # fmt: skip
def test_spec_takes_the_types_of_numpy(dtype: Any, name: str) -> None:
    assert tcdsl.spec((2, 3), dtype).dtype.name == name


def test_spec_takes_the_types_of_torch() -> None:
    torch = pytest.importorskip("torch")
    for name in ("float32", "bfloat16", "int64", "bool"):
        assert tcdsl.spec(3, getattr(torch, name)).dtype.name == name


@pytest.mark.parametrize("dtype", [None, np.complex64, "flaot32", object, np.dtype(">f4"), 3])
def test_spec_refuses_other_types(dtype: Any) -> None:
    with pytest.raises(tcdsl.ShapeError, match="the placeholder has the type") as caught:
        tcdsl.spec((2,), dtype)
    assert caught.value.code == "TC055" and "float32" in (caught.value.hint or "")


# --- what dir shows ------------------------------------------------------------------------------


def shown(value: object) -> set[str]:
    return {name for name in dir(value) if not name.startswith("_")}


def documented(name: str) -> set[str]:
    """Return the members of a class that docs/api.md lists."""
    text = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    entry = re.search(rf"autoclass:: tcdsl\.{name}\b.*\n +:members: (.*)", text)
    members = entry[1].split(", ") if entry else []
    alone = re.findall(rf" (?:attribute|autoproperty):: tcdsl\.{name}\.(\w+)", text)
    assert members or alone
    return {*members, *alone}


def test_the_module_shows_its_public_names() -> None:
    assert shown(tcdsl) == {name for name in tcdsl.__all__ if not name.startswith("_")}
    assert {"__version__", "__doc__"} <= set(dir(tcdsl))


def test_classes_and_their_instances_show_what_is_documented() -> None:
    exe = PROGRAM.twice.compile(np.ones(3, np.float32), 2.0, target="reference")
    for value in (PROGRAM.twice, exe):
        cls = tcdsl.Function if value is PROGRAM.twice else tcdsl.Executable
        assert shown(value) == shown(cls) == documented(cls.__name__)
    assert shown(tcdsl.Program) == documented("Program")
    assert shown(PROGRAM) == {*documented("Program"), "twice", "both"}
    assert shown(tcdsl.Options()) == set(tcdsl.Options.__dataclass_fields__) | documented("Options")


@pytest.mark.parametrize("name", ["testing", "library", "cuda", "torch"])
def test_submodules_show_their_public_names(name: str) -> None:
    if name == "torch":
        pytest.importorskip("torch")
    module = import_module(f"tcdsl.{name}")
    page = (ROOT / "docs/api.md").read_text(encoding="utf-8")
    assert all(re.search(rf"\b{one}\b", page) for one in shown(module))
    assert shown(module) == {*getattr(module, "__all__", shown(module))}
    assert "__doc__" in dir(module)


def test_cases_show_what_is_documented() -> None:
    case = tcdsl.library.case("softmax")
    assert shown(case) == shown(tcdsl.library.Case) == documented("library.Case")
    assert all(hasattr(case, name) for name in shown(case))


def test_errors_show_what_is_documented_and_what_python_has() -> None:
    with pytest.raises(tcdsl.TCError) as caught:
        tcdsl.define("def f(float(N) x -> (y) {")
    assert shown(caught.value) - shown(Exception()) == documented("TCError")
    assert all(hasattr(caught.value, name) for name in documented("TCError"))


# --- arguments that are no arrays -----------------------------------------------------------------


@pytest.mark.parametrize(("args", "message", "hint"), [
    ((np.ones(2, np.float32), None), "argument 's' is of type NoneType, not an array",
     "s is a float32: give a number, s=1.0"),
    ((np.ones(2, np.float32), "2"), "argument 's' is of type str, not an array",
     "s is a float32: give a number, s=1.0"),
    (([1.0, 2.0], 2.0), "argument 'x' is of type list, not an array",
     'numpy.asarray(x, "float32")'),
    ((None, 2.0), "argument 'x' is of type NoneType, not an array", "an array of float32"),
])  # fmt: skip
def test_arguments_that_are_no_arrays(args: tuple[Any, ...], message: str, hint: str) -> None:
    with pytest.raises(tcdsl.ShapeError) as caught:
        PROGRAM.twice(*args)
    assert message in caught.value.message and hint in (caught.value.hint or "")


# --- types ---------------------------------------------------------------------------------------

TYPED = '''
from typing import Any, assert_type
import numpy as np
import tcdsl

NDArray = np.ndarray[Any, np.dtype[Any]]

class Other:
    """An array of another library."""
    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

x, i, t = np.ones(3, np.float32), np.ones(3, np.int32), Other()
prog = tcdsl.define("")
f = prog.f
assert_type(f, tcdsl.Function)
assert_type(f(x, i, 2.0), NDArray)
assert_type(f(x, s=2.0, target="cpu", options=tcdsl.Options()), NDArray)
assert_type(f(t, t), Other)
assert_type(f(2.0, t), Other)
assert_type(f.compile(x), tcdsl.Executable)
assert_type(f.compile(x)(x), NDArray)
assert_type(f.compile(t)(t), Other)
assert_type(tcdsl.compute("y(i) = x(i)", x=t), Other)
assert_type(tcdsl.einsum("i->", x), NDArray)
assert_type(tcdsl.einsum("i->", t), Other)
assert_type(tcdsl.einsum("i->")(t), Other)
for name in prog:
    assert_type(name, str)
low, high = f(x)
f(x, target=3)  # the only error
'''


@pytest.mark.slow
def test_calls_have_types(tmp_path: Path) -> None:
    """Takes seconds: mypy reads the stubs of NumPy (less where its cache is there)."""
    script = tmp_path / "typed.py"
    script.write_text(TYPED, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", "setup.cfg", str(script)],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    last = TYPED.splitlines().index("f(x, target=3)  # the only error") + 1
    assert len(errors) == 1 and f"typed.py:{last}: error: No overload" in errors[0], done.stdout
