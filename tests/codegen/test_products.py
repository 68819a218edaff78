"""Products of tensor cores: which loops are one call, and whose threads have its results."""

from dataclasses import replace

import pytest

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import ONE, ZERO
from tcdsl.codegen.cuda.products import Fragment, fragment_of, is_whole
from tcdsl.poly.loop_tree import AffineCoordinate, Coordinate, Leaf, Loop, LoopKind
from tests.codegen.written import code


@pytest.mark.parametrize(
    ("first", "last", "whole"), [(0, 15, True), (0, 14, False), (1, 15, False)]
)
def test_a_part_of_a_tile_is_no_call(first: int, last: int, whole: bool) -> None:
    product = loop_ast.Leaf("S0", ())
    begin = ZERO if first == 0 else code(str(first))
    node = loop_ast.Mark("k", loop_ast.For("c", begin, code(f"c <= {last}"), ONE, product))
    loop = Loop("k", {"S0": Coordinate(0)}, LoopKind.COLLECTIVE, Leaf("S0"), 16)
    assert is_whole(node, {"k": loop}) == whole


def path_of(warps: Coordinate) -> list[Loop]:
    """Return the loops of 8 warps that multiply 128 rows by 64 columns, 64 terms of each."""
    thread = AffineCoordinate(((4, Coordinate(0, 0, 1, 8)), (1, Coordinate(1, 0, 2, 4))))
    found = [
        Loop("warp", {"S0": warps}, LoopKind.THREAD, Leaf("S0"), 8, axis=2, width=8),
        Loop("thread", {"S0": thread}, LoopKind.THREAD, Leaf("S0"), 32, axis=0, width=32),
    ]
    for name, coordinate, extent in (
        ("term", Coordinate(2, 0, 1, 64), 64), ("half", Coordinate(0, 0, 8, 2), 2),
        ("eight", Coordinate(1, 0, 8, 8), 8), ("pair", Coordinate(1, 0, 1, 2), 2),
    ):  # fmt: skip
        loop = Loop(name, {"S0": coordinate}, LoopKind.COLLECTIVE, Leaf("S0"), extent, width=128)
        found.append(loop)
    return found


def test_warps_have_the_rows_that_the_instruction_gives_them() -> None:
    rows = Coordinate(0, 0, 16, 8)
    whole = Fragment((0, 16), (1, 64), (2, 64), 128, 2)
    assert fragment_of("S0", path_of(rows)) == whole
    for other in (replace(rows, div=8), replace(rows, mod=4), replace(rows, position=1)):
        assert fragment_of("S0", path_of(other)) is None
