"""Tables of the public interface: each name with its parameters and the first sentence about it."""

import inspect
import re
from collections.abc import Mapping
from functools import reduce
from inspect import Parameter
from typing import Any

import tcdsl

_STARS: Mapping[Any, str] = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}
_DIRECTIVE = re.compile(r"\.\. auto(?:function|class|exception):: ([\w.]+)")
_MEMBERS = re.compile(r"\s+:(?:special-)?members: (.+)")
_ROLE = re.compile(r":\w+:`~?\.?([\w.]+)`")  # :class:`Function` in a docstring


def interface(section: str, page: str) -> str:
    """Return a row for each name that the directives of *section* of *page* document."""
    _, _, text = page.partition(f"\n## {section}\n")
    names = _names(text.partition("\n## ")[0])
    assert names, f"no directives under {section!r}"
    rows = [f"| `{_headline(name)}` | {_sentence(_found(name))} |" for name in names]
    return "\n".join(["| name | what it is |", "|---|---|", *rows]) + "\n"


def _names(directives: str) -> list[str]:
    """Return the dotted names of autodoc's *directives*, members after their class."""
    names, owner = [], ""
    for line in directives.splitlines():
        if one := _DIRECTIVE.match(line):
            owner = one[1]
            names.append(owner)
        elif members := _MEMBERS.match(line):
            names += [f"{owner}.{member.strip()}" for member in members[1].split(",")]
    return [name for name in names if inspect.getdoc(_found(name))]


def _found(name: str) -> Any:
    """Return what *name* stands for, such as ``tcdsl.Function.compile``."""
    return reduce(getattr, name.split(".")[1:], tcdsl)


def _headline(name: str) -> str:
    """Return *name* with the names of its parameters, if it is a function or a method."""
    found = _found(name)
    if not (inspect.isfunction(found) or inspect.ismethod(found)):
        return name
    shown = [
        _STARS.get(parameter.kind, "") + each
        for each, parameter in inspect.signature(found).parameters.items()
        if each != "self"
    ]
    return f"{name}({', '.join(shown)})"


def _sentence(found: Any) -> str:
    text = " ".join((inspect.getdoc(found) or "").partition("\n\n")[0].split())
    return _ROLE.sub(r"`\1`", text).replace("``", "`").replace("|", r"\|")
