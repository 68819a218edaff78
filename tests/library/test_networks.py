"""The pieces of networks in the library, on both targets, in every type and size."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl import library
from tcdsl.costmodel.chip import Chip

CheckAll = Callable[..., None]
pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
PARTS = range(4)


def batch(part: int, *, all_dtypes: bool) -> list[tuple[str, list[Any]]]:
    found = []
    for case in library.cases("network")[part :: len(PARTS)]:
        wanted = [(sizes, case.dtypes[0]) for sizes in case.small_sizes]
        if all_dtypes:
            wanted += [(case.small_sizes[1], dtype) for dtype in case.dtypes[1:]]
        for sizes, dtype in wanted:
            inputs = case.make_inputs(sizes, np.random.default_rng(len(found)), dtype)
            found.append((library.source_for(case, dtype), list(inputs.values())))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_on_the_cpu(part: int, check_all: CheckAll) -> None:
    check_all(batch(part, all_dtypes=True), threads=2)


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_on_the_emulator(part: int, check_emulated: CheckAll) -> None:
    check_emulated(batch(part, all_dtypes=True))


@pytest.mark.one_in(2)
@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_on_the_emulator_with_every_threshold_lowered(
    part: int, check_emulated: CheckAll, small_chip: Chip
) -> None:
    check_emulated(batch(part, all_dtypes=False), gpu=small_chip)
