"""Syntax trees as text: a node a line, its plain fields beside it, its children below.

Assign target='y' op='='
  subscripts:
    Name id='i'
  value: ...
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

from tcdsl.lang.types.dtypes import DType
from tcdsl.source import Source, Span


def tree_lines(value: Any, label: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the lines of *value*, a node or a tuple of them, *depth* steps to the right."""
    indent = "  " * depth
    prefix = f"{label}: " if label else ""
    if isinstance(value, tuple):
        yield f"{indent}{prefix}{'' if value else '()'}".rstrip()
        for item in value:
            yield from tree_lines(item, "", depth + 1)
        return
    if not _has_children(value):
        yield f"{indent}{prefix}{_plain(value)}"
        return
    members = [
        (field.name, getattr(value, field.name))
        for field in fields(value)
        # A flag is shown where it is set.
        if not (isinstance(field.default, bool) and getattr(value, field.name) == field.default)
    ]
    members = [(name, member) for name, member in members if not _is_position(member)]
    plain = [f"{name}={_plain(member)}" for name, member in members if not _has_children(member)]
    yield f"{indent}{prefix}{type(value).__name__} {' '.join(plain)}".rstrip()
    for name, member in members:
        if _has_children(member):
            yield from tree_lines(member, name, depth + 1)


def _is_position(member: Any) -> bool:
    if isinstance(member, tuple):
        return bool(member) and all(_is_position(item) for item in member)
    return isinstance(member, Span | Source)


def _plain(value: Any) -> str:
    return str(value) if isinstance(value, DType) else repr(value)


def _has_children(member: Any) -> bool:
    if isinstance(member, tuple):
        return any(_has_children(item) for item in member)
    return is_dataclass(member) and not isinstance(member, DType)
