"""Tiles of two factors that follow one another: where they lie, and which do."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.schedule.placement import Placement
from tests.strategies.test_joint_products import shapes_of, source_of

MakeUnit = Callable[..., Any]


def tiles(unit: Any) -> dict[str, Placement]:
    """Return { the first letter of its array -> each tile of *unit* }."""
    placements = unit.done.plan.placements.values()
    return {placement.array[0]: placement for placement in placements if placement.ring}


@pytest.mark.parametrize("form", ["nn", "nt", "tn"])
def test_the_second_tile_follows_the_first_in_each_stage(form: str, cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(source_of(form), *shapes_of(form, 1024, 1024, 1024))
    found = tiles(unit)
    ((second, after),) = ((name, one) for name, one in found.items() if one.follows)
    first = after.follows[0]
    assert found[first].neighbours == after.neighbours == 2
    assert found[first].ring == after.ring and after.ring is not None
    begins = {
        match[1][0]: int(match[2])
        for match in re.finditer(r"\*const u0_(\w+) = .*w_staged \+ (\d+)\)", unit.source.text)
    }
    stage = 2 * after.elements() // after.ring.buffers  # bytes of a half type
    assert begins[second] - begins[first] == stage
    *_, own, _ = after.spans[after.ring.dim :]
    assert own == 2 * after.extents[-2]
    other = next(name for name in found if name not in (first, second))
    ends = (begins[first] + 2 * stage * after.ring.buffers, begins[other])
    assert begins[other] < begins[first] or ends[0] <= ends[1]


@pytest.mark.parametrize(
    ("form", "dtype", "why"),
    [
        ("apart", "bfloat16", "they share no tile"),
        ("nt", "float8_e4m3", "the instruction of other types has no such call"),
    ],
)
def test_other_tiles_are_apart(form: str, dtype: str, why: str, cuda_unit: MakeUnit) -> None:
    source = source_of(form, dtype, "y(m,n) = a(m,n) - b(m,n)")
    unit = cuda_unit(source, *shapes_of(form, 1024, 1024, 1024))
    assert not any(one.follows for one in tiles(unit).values()), why
