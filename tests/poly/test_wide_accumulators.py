"""Results that do not hold what is accumulated: copies in the type of the reduction."""

from collections.abc import Callable

import pytest

from tcdsl.poly.scop import Kind, Scop

Lower = Callable[..., Scop]


@pytest.mark.parametrize("operator", ["+", "min", "*"])
def test_halves_that_several_instances_update_accumulate_in_floats(
    operator: str, lower: Lower
) -> None:
    scop = lower(f"def f(half(N,N) a) -> (c) {{ c(i+j) {operator}=! a(i,j) }}", (3, 3))
    update = scop.by_name["S0"]
    assert update.kind is Kind.UPDATE
    assert scop.arrays[update.write.array].dtype.name == "float32"
    assert [s.kind for s in scop.statements] == [Kind.INIT, Kind.UPDATE, Kind.ASSIGN]
    assert scop.statements[-1].write.array == "c"
