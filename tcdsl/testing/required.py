"""What the functions of ``tcdsl.testing`` ask of their arguments, before anything is drawn or run.

A wish that is misspelt would otherwise be no wish at all: ``inputs_for(f, sizes={"L": 3})`` would
draw any sizes, ``check(f, x, targets=())`` would check nothing.
"""

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any

import numpy as np

from tcdsl.api import require_choices, require_function, shortened
from tcdsl.errors import TCError
from tcdsl.interp.arithmetic import Array
from tcdsl.lang.comprehension import Comprehension
from tcdsl.lang.ranges.binding import bind_sizes
from tcdsl.lang.syntax.spelling import did_you_mean
from tcdsl.lang.types.head import Head
from tcdsl.options import BAD_ARGUMENT
from tcdsl.runtime.arguments import as_input
from tcdsl.runtime.arrays import describe
from tcdsl.runtime.fitting import require_type
from tcdsl.runtime.size_arguments import separated

CHECKABLE = ("comprehension", "specialise", "__call__")  # what a function to be checked must have


def require_checkable(f: object, caller: str, options: object = None) -> None:
    """Raise OptionError unless *f* is a def, or has what is asked of one; *options* may be None."""
    require_function(f, caller, CHECKABLE)
    require_choices(None, options)


def targets_of(targets: object) -> tuple[str, ...]:
    """Return the names of *targets*: one, or several.

    :raises OptionError: (TC064) there is none, or one is no name.
    """
    return _names("targets", targets, "a target", "targets=('cpu', 'emulate')")


def layouts_of(layouts: object, known: Sequence[str]) -> tuple[str, ...]:
    """Return the names of *layouts*, one or several of *known*.

    :raises OptionError: (TC064) there is none, or one is not known.
    """
    names = _names("layouts", layouts, "a layout", "layouts=('contiguous',)")
    for name in names:
        if name not in known:
            raise _unknown("layouts", "there is no layout", name, "the layouts are", known)
    return names


def _names(argument: str, given: object, what: str, example: str) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) or not isinstance(given, Sequence) else given
    for name in names:
        if not isinstance(name, str):
            problem = f"{shortened(name)} is not {what}"
            raise BAD_ARGUMENT(argument=argument, what=problem, advice=f"write {example}")
    if not names:
        raise BAD_ARGUMENT(argument=argument, what="there is none", advice=f"write {example}")
    return tuple(names)


def sizes_of(sizes: object, c: Head) -> dict[str, int]:
    """Return the values that *sizes* gives size symbols of *c*.

    :raises OptionError: (TC064) *c* has no such size, or a value is no size.
    """
    if sizes is None:
        return {}
    if not isinstance(sizes, Mapping):
        example = f"write sizes={{{c.sizes[0]!r}: 3}}" if c.sizes else f"{c.name!r} has no sizes"
        what = f"{shortened(sizes)} ({type(sizes).__name__}) is no mapping of names to numbers"
        raise BAD_ARGUMENT(argument="sizes", what=what, advice=example)
    for name in sizes:
        if name not in c.sizes:
            raise _unknown("sizes", f"{c.name!r} has no size", name, "its sizes are", c.sizes)
    return {name: whole_number(f"sizes[{name!r}]", value) for name, value in sizes.items()}


def whole_number(argument: str, value: object, least: int = 0) -> int:
    """Return *value*, which must be an integer of at least *least*.

    :raises OptionError: (TC064) it is not.
    """
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_whole or index(value) < least:  # type: ignore[arg-type]
        advice = f"give an integer of at least {least}"
        raise BAD_ARGUMENT(argument=argument, what=f"it is {shortened(value)}", advice=advice)
    return index(value)  # type: ignore[arg-type]


def require_keywords(
    given: Mapping[str, object], known: Sequence[str], caller: str, others: Sequence[str]
) -> None:
    """Raise OptionError unless every name of *given* is one of *known*; *others* may be meant."""
    meant = (*others, *known)
    for name in given:
        if name not in known:
            raise _unknown(caller, "there is no argument", name, "the arguments are", meant)


def _unknown(
    argument: str, problem: str, name: object, listed: str, known: Sequence[str]
) -> TCError:
    advice = did_you_mean(str(name), known) or f"{listed} {', '.join(known) or 'none'}"
    return BAD_ARGUMENT(argument=argument, what=f"{problem} {name!r}", advice=advice)


def require_inputs(c: Comprehension, inputs: Sequence[Any]) -> None:
    """Raise ShapeError unless *inputs* are what a call of *c* takes: their number, types, shapes.

    Whether such sizes are possible is for the call to say.
    """
    inputs, sizes = separated(c, inputs)
    specs = {
        name: describe(value, f"argument {name!r}")
        for name, value in zip(c.inputs, inputs, strict=True)
    }
    for name, spec in specs.items():
        require_type(c, name, spec)
    bind_sizes(c, {name: spec.shape for name, spec in specs.items()}, sizes)


def arrays_of(c: Comprehension, inputs: Sequence[Any]) -> dict[str, Array]:
    """Return *inputs* as arrays of the declared types, by their names."""
    arrays, _ = separated(c, inputs)
    return {
        name: as_input(value, c.tensors[name].dtype, f"argument {name!r}")
        for name, value in zip(c.inputs, arrays, strict=True)
    }
