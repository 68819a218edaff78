"""The sparse programs of the library, on both targets, in every type and size; and drawn inputs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

import tcdsl
from tcdsl import library
from tcdsl.costmodel.chip import Chip

CheckAll = Callable[..., None]
pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")


def batch(*, all_dtypes: bool) -> list[tuple[str, list[Any]]]:
    found = []
    for case in library.cases("sparse"):
        wanted = [(sizes, case.dtypes[0]) for sizes in case.small_sizes]
        if all_dtypes:
            wanted += [(case.small_sizes[1], dtype) for dtype in case.dtypes[1:]]
        for sizes, dtype in wanted:
            inputs = case.make_inputs(sizes, np.random.default_rng(len(found)), dtype)
            found.append((library.source_for(case, dtype), list(inputs.values())))
    return found


@pytest.mark.slow
def test_on_the_cpu(check_all: CheckAll) -> None:
    check_all(batch(all_dtypes=True), threads=2)


@pytest.mark.slow
def test_on_the_emulator(check_emulated: CheckAll) -> None:
    check_emulated(batch(all_dtypes=True))


@pytest.mark.slow
def test_on_the_emulator_with_every_threshold_lowered(
    check_emulated: CheckAll, small_chip: Chip
) -> None:
    check_emulated(batch(all_dtypes=False), gpu=small_chip)


def test_what_is_drawn_for_a_range_is_one() -> None:
    f = tcdsl.define(library.load("segment_softmax")).segment_softmax

    @settings(max_examples=12, deadline=None, derandomize=True)
    @given(tcdsl.testing.inputs_for(f, min_size=1))
    def bounds_are_in_range(inputs: tuple[Any, ...]) -> None:
        x, ptr = inputs
        assert ((ptr >= 0) & (ptr <= len(x))).all()
        f.reference(x, ptr)

    bounds_are_in_range()
