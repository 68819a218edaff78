"""What each member of a chain of products has in a block, and which threads compute it."""

from dataclasses import replace

import pytest

from tcdsl.strategies.chained import Member, members_of
from tests.strategies.test_templates import problems_of

PART = """def f(float(B,N) x, float(O,N) V, float(P,O) W) -> (y, z) {{
    h(b,o) +=! x(b,n) * V(o,n)
    y(b,o) = h(b,o) + 1.0 where o in {}
    z(b,p) +=! h(b,o) * W(p,o)
}}"""
DIAGONAL = """def f(float(B,N) x, float(O,N) V, float(P,O) W) -> (z) {
    h(b,o,p) +=! x(b,n) * V(o,n) * W(p,n)
    y(b,o) = h(b,o,o) + 1.0
    z(b,p) +=! y(b,o) * W(p,o)
}"""


def second(source: str) -> Member:
    """Return what follows the first product of *source*, in a block for four values of b."""
    first, *_ = problems_of(source, [(33, 32), (32, 32), (32, 32)])
    names = ("S0", "S1", "S2")
    group = replace(first.group, members=names, axes=(dict.fromkeys(names, 0),))
    return members_of(replace(first, group=group), (4,))["S1"]


@pytest.mark.parametrize(
    ("source", "part", "column", "row"),
    [
        (PART.format("0:O"), "S0", 1, 0),
        (PART.format("3:9"), "S0", 1, 0),
        (PART.format("3:4"), "S1", 0, -1),  # the product has columns, and this has one of them
        (DIAGONAL, "S1", 1, 0),  # o is along rows and columns of the product
    ],
    ids=["whole", "part", "a column", "diagonal"],
)
def test_what_follows_a_product_has_its_threads_if_it_has_its_dimensions(
    source: str, part: str, column: int, row: int
) -> None:
    member = second(source)
    assert (member.part, member.column, member.row, member.depth) == (part, column, row, -1)
