"""What a chain of products costs, and how much a block may have of it."""

from dataclasses import replace

import pytest

from tcdsl.strategies.chain_work import has_room, share_of, shares
from tcdsl.strategies.problem import Problem
from tests.strategies.test_product_chain import TWO
from tests.strategies.test_templates import problems_of


def chain(b: int, o: int) -> Problem:
    """Return TWO as one kernel: *o* floats of h lie between its products, for each of *b* rows."""
    first, _ = problems_of(TWO, [(b, 32), (o, 32), (16, o)])
    both = replace(first.group, members=("S0", "S1"), axes=({"S0": 0, "S1": 0},))
    return replace(first, group=both)


@pytest.mark.parametrize("rows", [1, 2, 8])
def test_a_block_has_what_lies_between_for_each_of_its_rows(rows: int) -> None:
    assert share_of(chain(33, 64), (rows,)).shared_bytes == rows * 64 * 4


def test_a_block_has_as_many_rows_as_its_shared_memory_has_room_for() -> None:
    """16 KB lie between for each row, and a block of an H200 may have 227 KB."""
    problem = chain(100, 4096)
    assert problem.gpu.shared_bytes_per_block == 227 * 1024
    assert [share.sizes for share in shares(problem)] == [(1,), (2,), (4,), (8,)]
    assert has_room(problem) and not has_room(chain(100, 60_000))
