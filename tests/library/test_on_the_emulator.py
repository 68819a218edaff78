"""Every program of the library as CUDA, run on the emulator, in types that it admits.

Twice: as for the chip that tcdsl is tuned for, where small sizes give few blocks, and with every
threshold lowered, where they give several of everything.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest

from tcdsl import library
from tcdsl.costmodel.chip import Chip
from tcdsl.library import Case

CheckAll = Callable[..., None]

# A plan that fails, or is too hard for isl, falls back on a simpler one with a warning.
pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")


def batch(cases: list[Case], others: slice) -> list[tuple[str, list[Any]]]:
    """Return (source, inputs): cases in their first type at all sizes, in *others* at one."""
    found = []
    for case in cases:
        wanted = [(sizes, case.dtypes[0]) for sizes in case.small_sizes]
        largest = max(case.small_sizes, key=lambda sizes: prod(sizes.values()))
        wanted += [(largest, dtype) for dtype in case.dtypes[1:][others]]
        for sizes, dtype in wanted:
            inputs = case.make_inputs(sizes, np.random.default_rng(len(found)), dtype)
            found.append((library.source_for(case, dtype), list(inputs.values())))
    return found


GROUPS = {
    f"{family} {number}": group
    for family in ("reduction", "graph", "contraction")
    for number, group in enumerate(
        [list(library.cases(family))[start : start + 5] for start in range(0, 60, 5)]
    )
    if group
}


ALL = slice(None)
# Of the others each second one, now these and now those; all in the fuzz run.
SOME = [
    pytest.param(group, ALL if number == 0 else slice(number % 2, None, 2), id=group)
    for number, group in enumerate(GROUPS)
]


@pytest.mark.slow_but("reduction 0")
@pytest.mark.parametrize(("group", "others"), SOME)
def test_every_program(group: str, others: slice, check_emulated: CheckAll) -> None:
    check_emulated(batch(GROUPS[group], others))


@pytest.mark.slow
@pytest.mark.fuzz
@pytest.mark.parametrize("group", GROUPS)
def test_every_program_in_all_types(group: str, check_emulated: CheckAll) -> None:
    check_emulated(batch(GROUPS[group], ALL))


@pytest.mark.one_in(4)
@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_every_program_with_every_threshold_lowered(
    group: str, check_emulated: CheckAll, small_chip: Chip
) -> None:
    check_emulated(batch(GROUPS[group], ALL), gpu=small_chip)


def test_the_groups_are_the_library() -> None:
    assert [case for group in GROUPS.values() for case in group] == [
        case for family in ("reduction", "graph", "contraction") for case in library.cases(family)
    ]
