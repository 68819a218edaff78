"""Every program of the library, compiled for the CPU, in every type that it admits."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl import library
from tcdsl.library import Case

CheckAll = Callable[..., None]


def batch(cases: list[Case], *, all_dtypes: bool) -> list[tuple[str, list[Any]]]:
    """Return (source, inputs) of every case: all types at one size, or one type at all sizes."""
    found = []
    for case in cases:
        if all_dtypes:
            wanted = [(case.small_sizes[-1], dtype) for dtype in case.dtypes]
        else:
            wanted = [(sizes, case.dtypes[0]) for sizes in case.small_sizes]
        for sizes, dtype in wanted:
            rng = np.random.default_rng(len(found))
            inputs = case.make_inputs(sizes, rng, dtype)
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


@pytest.mark.slow_but("reduction 0")
@pytest.mark.parametrize("group", GROUPS)
def test_every_program_in_every_type(group: str, check_all: CheckAll) -> None:
    check_all(batch(GROUPS[group], all_dtypes=True))


@pytest.mark.slow_but("reduction 0")
@pytest.mark.parametrize("group", GROUPS)
def test_every_program_at_every_small_size(group: str, check_all: CheckAll) -> None:
    check_all(batch(GROUPS[group], all_dtypes=False), threads=2)


def test_the_groups_are_the_library() -> None:
    assert [case for group in GROUPS.values() for case in group] == [
        case for family in ("reduction", "graph", "contraction") for case in library.cases(family)
    ]
