"""All programs of the library, by name."""

from functools import cache

from tcdsl.library import contractions, convolutions, graphs, reductions
from tcdsl.library.case import Case, Family


@cache
def _by_name() -> dict[str, Case]:
    modules = (reductions, graphs, contractions, convolutions)
    return {case.name: case for module in modules for case in module.CASES}


def cases(family: Family | None = None) -> tuple[Case, ...]:
    """Return the cases of *family*, or all of them, in the order of the catalogue."""
    return tuple(case for case in _by_name().values() if family in (None, case.family))


def case(name: str) -> Case:
    """Return the case called *name*; a KeyError names those that there are."""
    if name not in _by_name():
        raise KeyError(f"no program {name!r}; there are {', '.join(_by_name())}")
    return _by_name()[name]


def load(name: str) -> str:
    """Return the text of the program called *name*, with the defs that it calls."""
    return case(name).source
