"""The loops of isl's bands: counted from 0, in tiles, in fronts."""

from collections.abc import Callable

import pytest

from tcdsl.costmodel.locality import shape_of
from tcdsl.poly.loop_tree import Coordinate, Leaf, LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scheduler import Member
from tcdsl.poly.scop import Scop
from tcdsl.strategies.levels import Level, front_of, level_of, opened, points_of, tiles_of


@pytest.fixture
def scop(lower: Callable[..., Scop]) -> Scop:
    return lower("def f(float(N,M) x) -> (y) { y(i,j) = x(i,j) where i in 3:N, j in 5:M }", (20, 9))


def level(dim: int, extent: int = 17) -> Level:
    return Level({"S0": Coordinate(dim)}, extent, is_coincident=True)


def test_a_level_is_counted_from_its_least_value(scop: Scop) -> None:
    found = level_of(scop, Member({"S0": Coordinate(0)}, True))
    assert found == Level({"S0": Coordinate(0, shift=3)}, 17, is_coincident=True)
    assert level_of(scop, Member({"S0": Coordinate(1)}, False)).extent == 4


def test_nothing_is_in_no_range(lower: Callable[..., Scop]) -> None:
    scop = lower("def f(float(N) x) -> (y) { y(i) = x(i) }", (0,))
    assert level_of(scop, Member({"S0": Coordinate(0)}, True)).extent == 0


def test_tiles_and_points_are_the_level() -> None:
    tiles, points = tiles_of(level(0), 8), points_of(level(0), 8)
    assert (tiles.extent, points.extent) == (3, 8)
    assert tiles.coordinates == {"S0": Coordinate(0, div=8)}
    assert points.coordinates == {"S0": Coordinate(0, mod=8)}
    assert points_of(level(0), 17) == level(0)


def test_a_front_is_the_sum_of_its_levels(scop: Scop) -> None:
    front = front_of([level(0, 17), level(1, 4)])
    space = scop.by_name["S0"].domain.get_space()
    assert str(front.coordinates["S0"].function(space)) == "{ S0[i, j] -> [(i + j)] }"
    assert (front.extent, front.is_coincident) == (20, False)


def test_a_loop_is_named_after_its_index(scop: Scop) -> None:
    shapes = {"S0": shape_of(scop, scop.by_name["S0"], (Role.PARALLEL,) * 2)}
    loop = opened(level(1), Leaf("S0"), shapes, "k0", 7)
    assert (loop.name, loop.kind, loop.extent) == ("k0.j.7", LoopKind.SERIAL, 17)
    assert opened(front_of([level(0), level(1)]), Leaf("S0"), shapes, "k0", 8).name == "k0.t.8"
