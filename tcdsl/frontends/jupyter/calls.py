"""The calls that magics are given: ``f(A, B, target="cpu")``, taken apart instead of made."""

import ast
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tcdsl.api import Function, Program
from tcdsl.errors import TCError
from tcdsl.options import BAD_ARGUMENT, Options
from tcdsl.records import dataclass

_OWN = "write an expression a line, such as numpy = A @ B"
_CAPTURE = "_tcdsl_arguments"


@dataclass(frozen=True, slots=True)
class Call:
    """``function(*args, target=..., options=...)``, or only a function, *args* then None."""

    text: str
    function: Function
    args: tuple[Any, ...] | None
    out: Any = None
    target: str | None = None
    options: Options | None = None


def parsed_call(text: str, namespace: Mapping[str, Any], magic: str, usage: str) -> Call:
    """Return the call that *text* is, its names looked up in *namespace*.

    :arg usage: what to type, for the error if it is none.
    :raises TCError: it is no call of a def, or its arguments cannot be evaluated.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError:
        raise _wrong(magic, f"{text.strip()!r} is no call of a def", usage) from None
    is_call = isinstance(tree, ast.Call)
    function = evaluated(tree.func if isinstance(tree, ast.Call) else tree, namespace, magic)
    if isinstance(function, Program) and len(function.names) == 1:
        function = function[function.names[0]]
    if not isinstance(function, Function):
        name = ast.unparse(tree.func if isinstance(tree, ast.Call) else tree)
        advice = usage
        if isinstance(function, Program):
            advice = f"it has {', '.join(function.names)}: type {name}.{function.names[-1]}(...)"
        what = f"{name} is of type {type(function).__name__}, not a def of a program"
        raise _wrong(magic, what, advice)
    if not is_call:
        return Call(text.strip(), function, None)
    args, named = _arguments(tree, namespace, magic)
    out, target, options = (named.pop(name, None) for name in ("out", "target", "options"))
    if named:
        args = function.in_order(args, named)
    return Call(text.strip(), function, args, out, target, options)


def evaluated(
    tree: ast.expr, namespace: Mapping[str, Any], magic: str, text: str | None = None
) -> Any:
    """Return the value of an expression, which errors call *text*.

    :raises TCError: it has none, for the reason that the error tells.
    """
    try:
        return eval(compile(ast.Expression(tree), f"<{magic}>", "eval"), dict(namespace))
    except TCError:
        raise
    except Exception as error:  # whatever the user's expression may raise
        what = f"{text or ast.unparse(tree)} fails with {type(error).__name__}: {error}"
        raise _wrong(magic, what, "run what defines it first") from None


def own_peers(cell: str, namespace: Mapping[str, Any]) -> dict[str, Callable[[], Any]]:
    """Return what each line of *cell* computes, by its name: ``torch = ta @ tb``, or ``ta @ tb``.

    :raises TCError: a line is no expression, or cannot be evaluated.
    """
    magic = "%%tcdsl_bench"
    try:
        lines = ast.parse(cell).body
    except SyntaxError as error:
        number = (error.lineno or 1) + 1  # of the cell, whose first line is the magic's
        raise _wrong(magic, f"line {number} is no Python: {error.msg}", _OWN) from None
    found: dict[str, Callable[[], Any]] = {}
    for line in lines:
        match line:
            case ast.Expr(value=value):
                name = ast.unparse(value)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                pass
            case _:
                raise _wrong(magic, f"{ast.unparse(line)!r} is no expression", _OWN)
        if name in found or name == "tcdsl":
            raise _wrong(magic, f"two lines are called {name!r}", "give each a name of its own")
        evaluated(value, namespace, magic)  # now, where an error can be told
        code = compile(ast.Expression(value), f"<{magic}>", "eval")
        found[name] = partial(eval, code, dict(namespace))
    return found


def _arguments(
    call: ast.expr, namespace: Mapping[str, Any], magic: str
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the values of the positional and of the named arguments of *call*."""
    assert isinstance(call, ast.Call)
    capture = ast.copy_location(ast.Name(_CAPTURE, ast.Load()), call)
    again = ast.copy_location(ast.Call(capture, call.args, call.keywords), call)
    names = {**namespace, _CAPTURE: lambda *args, **named: (args, named)}
    args, named = evaluated(again, names, magic, ast.unparse(call))
    return args, named


def _wrong(magic: str, what: str, advice: str) -> TCError:
    return BAD_ARGUMENT(argument=magic, what=what, hint=advice)
