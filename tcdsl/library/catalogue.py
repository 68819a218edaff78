"""All programs of the library, by name."""

from functools import cache
from typing import get_args

from tcdsl.lang.syntax.spelling import did_you_mean
from tcdsl.library import contractions, convolutions, graphs, networks, reductions, sparse
from tcdsl.library.case import Case, Family
from tcdsl.options import BAD_ARGUMENT


@cache
def _by_name() -> dict[str, Case]:
    modules = (reductions, graphs, contractions, convolutions, sparse, networks)
    return {case.name: case for module in modules for case in module.CASES}


def cases(family: Family | None = None) -> tuple[Case, ...]:
    """Return the cases of *family*, or all of them, in the order of the catalogue.

    :raises OptionError: (TC064) there is no such family.
    """
    if family not in (None, *get_args(Family)):
        advice = f"the families are {', '.join(get_args(Family))}"
        raise BAD_ARGUMENT(argument="family", what=f"there is no {family!r}", advice=advice)
    return tuple(case for case in _by_name().values() if family in (None, case.family))


def case(name: str) -> Case:
    """Return the case called *name*.

    :raises KeyError: there is none; the message names similar ones and all names.
    """
    if name not in _by_name():
        meant = did_you_mean(str(name), _by_name())
        there_are = f"there are {', '.join(_by_name())}"
        raise KeyError(f"no program {name!r}; {f'{meant} ' if meant else ''}{there_are}")
    return _by_name()[name]


def load(name: str) -> str:
    """Return the text of the program called *name*, with the definitions that it calls.

    :raises KeyError: as :func:`case`.
    """
    return case(name).source
