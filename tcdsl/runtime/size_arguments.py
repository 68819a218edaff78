"""The arguments of a call that are sizes: ``size C`` parameters, apart from the arrays.

    def onehot(int64(N) label, size C) -> (y) { ... }
    onehot(label, 10)       --->    arrays (label,), sizes {C: 10}

A size is part of what code is specialised to, as the extents of the arrays are.
"""

import operator
from collections.abc import Mapping, Sequence
from typing import Any

from tcdsl.errors import BAD_ARGUMENTS, BAD_SIZE
from tcdsl.lang.types.head import Head
from tcdsl.runtime.arguments import shown_number

MAX_SIZE = (1 << 63) - 1


def separated(head: Head, args: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, int]]:
    """Return the arrays among *args*, and the sizes by their names.

    :raises ShapeError: there are too few arguments or too many, or a size is none.
    """
    names = head.parameters
    if len(args) != len(names):
        raise BAD_ARGUMENTS(
            name=head.name, expected=len(names), got=len(args),
            s="" if len(names) == 1 else "s", signature=head.signature,
        )  # fmt: skip
    arrays, sizes, given = [], {}, head.size_parameters
    for name, value in zip(names, args, strict=True):  # of every call: it takes a microsecond
        if name not in given:
            arrays.append(value)
        elif type(value) is int and 0 <= value <= MAX_SIZE:
            sizes[name] = value
        else:
            sizes[name] = as_size(head, name, value)
    return tuple(arrays), sizes


def as_size(head: Head, name: str, value: Any) -> int:
    """Return *value* as the size *name*: an integer of Python or NumPy, at least 0.

    :raises ShapeError: (TC078) it is none.
    """
    if why := _why_not_size(value):
        raise BAD_SIZE(head.source, head.size_parameters[name], name=name, why=why)
    number: int = operator.index(value)
    return number


def _why_not_size(value: Any) -> str | None:
    is_number = not isinstance(value, bool) and not getattr(value, "ndim", 0)
    if not (is_number and hasattr(value, "__index__")):
        shown = " ".join(repr(value).split())
        return f"{shown[:40]} ({type(value).__name__}) is no integer"
    try:
        number = operator.index(value)
    except TypeError:  # NumPy's bools and 0-D arrays of floats
        return f"{value!r} ({type(value).__name__}) is no integer"
    if number < 0:
        return f"{shown_number(number)} is negative"
    return None if number <= MAX_SIZE else f"{shown_number(number)} is too large"


def without_sizes(head: Head, args: Sequence[Any], sizes: Mapping[str, int]) -> Sequence[Any]:
    """Return *args* of code for *sizes* without its size arguments, which must be those.

    :raises ShapeError: (TC078) a size is another one.
    """
    if not head.size_parameters:
        return args
    arrays, given = separated(head, args)
    for name, value in given.items():
        if value != sizes[name]:
            why = f"this code is for {sizes[name]}, not for {value}"
            hint = "compile again, or call the function itself, which compiles for every size"
            span = head.size_parameters[name]
            raise BAD_SIZE(head.source, span, hint=hint, name=name, why=why)
    return arrays
