"""What a chain of products costs, and how much a block may have of it."""

from dataclasses import replace

import pytest

from tcdsl.costmodel.work import Work
from tcdsl.strategies.chain_work import BlockShape, chain_work, has_room, share_of, shares
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


THREE = """def f(float(B,N) x, float(N,N) U, float(N,N) V, float(N,N) W) -> (y) {
    g(b,n) +=! x(b,m) * U(n,m)
    h(b,n) +=! g(b,m) * V(n,m)
    y(b,n) +=! h(b,m) * W(n,m)
}"""


def work_of_the_first(number: int) -> Work:
    """Return what the first *number* products of THREE cost as one kernel, for 4 rows a block."""
    first, *_ = problems_of(THREE, [(64, 32), (32, 32), (32, 32), (32, 32)])
    names = tuple(f"S{n}" for n in range(number))
    group = replace(first.group, members=names, axes=(dict.fromkeys(names, 0),))
    problem = replace(first, group=group)
    return chain_work(problem, share_of(problem, (4,)), BlockShape(32, 4, 1, 1, 1))


def test_each_of_several_like_products_costs_what_one_does() -> None:
    one, two, three = map(work_of_the_first, (1, 2, 3))
    for cost in ("instructions", "lines", "shared_traffic_bytes"):
        assert getattr(three, cost) - getattr(two, cost) == getattr(two, cost) - getattr(one, cost)
    (_, products), (_, of_one) = *three.operations, *one.operations
    assert products == 3 * of_one == 3 * 64 * 32 * 32
    assert two.shared_traffic_bytes > 2 * one.shared_traffic_bytes  # x is not in shared memory
