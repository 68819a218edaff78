"""Neighbours that one thread takes at once: which they are, and what of them is loaded once."""

from itertools import product

import pytest

from tcdsl.lang.comprehension import Binary, Expr, Index
from tcdsl.lang.types.dtypes import INT32
from tcdsl.poly.loop_tree import Coordinate
from tcdsl.strategies.arithmetic import part_left
from tcdsl.strategies.lowering import point_pieces
from tcdsl.strategies.schedule import Tile


@pytest.mark.parametrize(
    ("threads", "repeat", "points", "vector"),
    [(4, 2, 3, 2), (8, 1, 2, 4), (2, 3, 1, 4), (4, 2, 2, 1)],
)
def test_the_threads_of_a_block_take_each_value_once(
    threads: int, repeat: int, points: int, vector: int
) -> None:
    """A thread has a run of points times vectors, and again a run as many threads later."""
    tile = Tile(0, 100, 0, 0, threads, repeat, vector, points)
    cuts = [piece.coordinate for piece in point_pieces(tile, 0)]
    assert all(isinstance(cut, Coordinate) for cut in cuts)
    of_thread = product(*(range(0, cut.div * cut.mod, cut.div) for cut in cuts))
    offsets = [sum(steps) for steps in of_thread]
    taken = sorted(thread * tile.run + offset for thread in range(threads) for offset in offsets)
    assert taken == list(range(tile.block))


M, N = Index("m"), Index("n")


@pytest.mark.parametrize(
    ("places", "part"),
    [
        (((M,),), 1 / 4),  # the same for all of the points along n
        (((M, N),), 1.0),
        (((Binary("+", M, N, INT32),),), 5 / 8),  # a window: 2 + 4 - 1 places
        (((M,), (N,)), 1.0),
    ],
)
def test_what_neighbouring_points_read_alike(
    places: tuple[tuple[Expr, ...], ...], part: float
) -> None:
    assert part_left(places, (("m", 1, 2), ("n", 1, 4))) == part
