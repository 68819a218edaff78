"""What packing loaders cost."""

from dataclasses import replace

import pytest

from tcdsl.costmodel.chip import load_chip
from tcdsl.costmodel.packing import Copied, with_loaders
from tcdsl.costmodel.work import Work

CHIP = load_chip("h200")
WORK = Work(132, 128, read_bytes=1 << 20, l2_bytes=1 << 22)
DENSE = Copied(1e6, 1, True, 1)


@pytest.mark.parametrize(("apart", "fetched"), [(1, 4), (2, 8), (8, 32), (3136, 32)])
def test_neighbours_that_are_apart_bring_the_rest_of_their_sectors(
    apart: float, fetched: int
) -> None:
    dense = with_loaders(WORK, [DENSE], 4, 0, CHIP)
    assert dense.l2_bytes == WORK.l2_bytes
    found = with_loaders(WORK, [DENSE._replace(apart=apart)], 4, 0, CHIP)
    assert found.l2_bytes == WORK.l2_bytes + 1e6 * (fetched - 4)
    assert replace(found, l2_bytes=dense.l2_bytes) == dense
