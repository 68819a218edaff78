"""Functions have at most six parameters, classes of ours inherit one level deep.

Not counted: functions of the library that are a program's formula or peer, whose parameters are the
tensors of the program.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "tcdsl"
MOST_PARAMETERS = 6

# Public: their parameters are those of docs/api.md.
LONG = {
    "frontends/benchmark.py:benchmark",
    "frontends/einsum.py:einsum",
    "testing/cases.py:save_case",
}


@cache
def _modules() -> dict[str, ast.Module]:
    return {
        str(path.relative_to(PACKAGE)): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }


def _long_functions() -> Iterator[str]:
    for file, module in _modules().items():
        for node in ast.walk(module):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            given = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
            own = [name for name in given if name not in ("self", "cls")]
            if len(own) + len(node.args.kwonlyargs) > MOST_PARAMETERS:
                yield f"{file}:{node.name}"


def _bases() -> dict[str, set[str]]:
    """Return { class of ours -> its bases }."""
    found: dict[str, set[str]] = {}
    for module in _modules().values():
        for node in ast.walk(module):
            if isinstance(node, ast.ClassDef):
                names = {base.id for base in node.bases if isinstance(base, ast.Name)}
                found.setdefault(node.name, set()).update(names)
    return found


@pytest.mark.slow
def test_functions_have_few_parameters() -> None:
    # Those of a program's formula or peer are not counted, nor is networks.py yet.
    long = {
        name
        for name in _long_functions()
        if not name.startswith("library/") or name.partition(":")[2] == "_case"
    } - {"library/networks.py:_case"}
    assert long == LONG, "a dataclass that names the concept has room"


@pytest.mark.slow
def test_classes_inherit_one_level_deep() -> None:
    bases = _bases()
    deep = {
        name
        for name, own in bases.items()
        if any(above in bases for base in own if base in bases for above in bases[base])
    }
    deep = {name for name in deep if not name.endswith("Error")}
    assert deep == set(), "what has a thing need not be one"
