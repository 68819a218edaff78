"""Loop trees: coordinates, their schedule in isl's terms, and their text."""

from collections.abc import Callable

import islpy as isl
import pytest

from tcdsl.poly.loop_tree import (
    Coordinate,
    Leaf,
    Loop,
    LoopKind,
    Sequence,
    loops_around,
    loops_of,
    print_tree,
    schedule_of,
    sequence,
    statements_of,
)
from tcdsl.poly.scop import Scop

Lower = Callable[..., Scop]
SUM = "def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }"


def tree() -> Loop:
    j1 = Loop("j1", {"S0": Coordinate(1, 0, 1, 4)}, LoopKind.VECTOR, Leaf("S0"))
    j0 = Loop("j0", {"S0": Coordinate(1, 0, 4)}, LoopKind.SERIAL, j1, 2)
    body = sequence([Leaf("S0_init"), j0])
    coordinates = {"S0_init": Coordinate(0), "S0": Coordinate(0)}
    return Loop("i0", coordinates, LoopKind.PARALLEL, body, 3)


@pytest.mark.parametrize(
    ("coordinate", "value"),
    [
        (Coordinate(0), lambda i, j: i),
        (Coordinate(1, 3), lambda i, j: j - 3),
        (Coordinate(1, 2, 4), lambda i, j: (j - 2) // 4),
        (Coordinate(1, 2, 4, 3), lambda i, j: ((j - 2) // 4) % 3),
        (Coordinate(0, -5, 1, 7), lambda i, j: (i + 5) % 7),
    ],
)
def test_a_coordinate_is_its_function(
    coordinate: Coordinate, value: Callable[[int, int], int]
) -> None:
    space = isl.Set("{ S[i, j] }").get_space()
    function = isl.PwAff.from_aff(coordinate.function(space))
    for i in (-3, 0, 4):
        for j in (-9, 0, 1, 2, 11, 30):
            point = isl.Set(f"{{ S[{i}, {j}] }}").sample_point()
            assert function.eval(point).to_python() == value(i, j)


def test_a_sequence_is_flat_and_never_single() -> None:
    a, b, c = Leaf("a"), Leaf("b"), Leaf("c")
    assert sequence([a]) is a
    assert sequence([a, sequence([b, c])]) == Sequence((a, b, c))


def test_what_is_where() -> None:
    assert list(statements_of(tree())) == ["S0_init", "S0"]
    assert [loop.name for loop in loops_of(tree())] == ["i0", "j0", "j1"]
    assert [loop.name for loop in loops_around(tree(), "S0")] == ["i0", "j0", "j1"]
    assert [loop.name for loop in loops_around(tree(), "S0_init")] == ["i0"]
    assert loops_around(tree(), "nothing") == ()


def test_the_schedule_has_the_scops_instances_in_the_trees_order(lower: Lower) -> None:
    scop = lower(SUM, (3, 7))
    schedule = schedule_of(scop, tree())
    assert schedule.get_domain().is_equal(scop.domain)
    when = isl.UnionMap(
        "{ S0_init[i] -> [i, 0, 0, 0]; S0[i, j] -> [i, 1, floor(j/4), j mod 4] }"
    ).intersect_domain(scop.domain)
    assert schedule.get_map().intersect_domain(scop.domain).is_equal(when)


def test_every_loop_is_marked_by_its_name(lower: Lower) -> None:
    text = schedule_of(lower(SUM, (3, 7)), tree()).get_root().to_str()
    assert all(f'mark: "{name}"' in text for name in ("i0", "j0", "j1"))


def test_whole_tiles_are_set_apart(lower: Lower) -> None:
    inner = Loop("j1", {"S0": Coordinate(1, 0, 1, 4)}, LoopKind.VECTOR, Leaf("S0"))
    outer = Loop("j0", {"S0": Coordinate(1, 0, 4)}, LoopKind.SERIAL, inner, 2, 7)
    rows = Loop("i0", {"S0": Coordinate(0)}, LoopKind.SERIAL, outer)
    init = Loop("i1", {"S0_init": Coordinate(0)}, LoopKind.SERIAL, Leaf("S0_init"))
    scop = lower(SUM, (3, 7))
    build = isl.AstBuild.from_context(scop.context)
    schedule = schedule_of(scop, sequence([init, rows]))
    text = build.node_from_schedule(schedule).to_C_str()
    # Seven columns in fours: one whole tile with constant bounds, and three columns.
    assert "c2 <= 3;" in text and "c2 <= 2;" in text
    assert text.count("S0(") == 2 and "min" not in text


def test_the_text_shows_loops_coordinates_and_extents(lower: Lower) -> None:
    assert print_tree(tree(), lower(SUM, (3, 7))) == (
        "parallel i0: i  # 3 iterations\n"
        "  S0_init[i]\n"
        "  serial j0: j / 4  # 2 iterations\n"
        "    vector j1: j % 4\n"
        "      S0[i, j]\n"
    )
