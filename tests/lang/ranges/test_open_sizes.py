"""Leaving sizes open: ranges, boxes and the context as functions of the open ones."""

import islpy as isl
import pytest

from tcdsl.lang.comprehension import Comprehension, Size, walk
from tcdsl.lang.ranges.open_sizes import (
    OpenRange,
    OpenSpecialisation,
    context_of,
    leave_open,
    open_names,
    times,
)
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.types.sema import analyse
from tcdsl.source import Source

MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
WINDOW = "def f(float(H) I, float(K) W) -> (O) { O(h) +=! I(h + k) * W(k) }"


def analysed(source: str) -> Comprehension:
    return analyse(parse_program(Source(source)))[-1]


def opened(source: str, sizes: dict[str, int], *names: str) -> OpenSpecialisation:
    c = analysed(source)
    return leave_open(c, sizes, names, {name: name for name in c.sizes})[1]


def test_what_is_fixed_stays_a_number() -> None:
    special = opened(MATMUL, {"M": 7, "K": 8, "N": 9}, "M")
    (ranges,) = special.ranges
    assert ranges["n"] == range(9) and ranges["k"] == range(8)
    assert isinstance(ranges["m"], OpenRange)
    assert ranges["m"].start == 0
    assert isinstance(ranges["m"].stop, isl.PwAff)
    assert ranges["m"].stop.is_equal(isl.PwAff("[M] -> { [(M)] }"))
    assert special.shapes["B"] == (8, 9) and special.shapes["C"][1] == 9
    assert special.sizes == {"M": None, "K": 8, "N": 9}
    assert open_names(special.sizes) == ("M",)


def test_preconditions_become_the_context() -> None:
    special = opened(WINDOW, {"H": 10, "K": 3}, "H")
    assert special.context.is_equal(isl.Set("[H] -> { : H >= 2 }"))
    both = opened(WINDOW, {"H": 10, "K": 3}, "H", "K")
    assert both.context.is_subset(isl.Set("[H, K] -> { : H >= 0 and K >= 0 and H >= K - 1 }"))
    (ranges,) = special.ranges
    assert isinstance(ranges["h"].stop, isl.PwAff)
    assert ranges["h"].stop.is_equal(isl.PwAff("[H] -> { [(H - 2)] }"))


def test_sizes_get_the_names_that_c_will_have() -> None:
    c = analysed("def f(float(c0) A) -> (O) { O(i) = A(i) / c0 }")
    general, special = leave_open(c, {"c0": 4}, ["c0"], {"c0": "u0_c0"})
    assert general.sizes == ("u0_c0",)
    (statement,) = general.statements
    assert [n.name for n in walk(statement.value) if isinstance(n, Size)] == ["u0_c0"]
    assert open_names(special.sizes) == ("u0_c0",)


def test_the_context_of_fixed_sizes_is_everything() -> None:
    from tcdsl.lang.ranges.specialiser import specialise

    context = context_of(specialise(analysed(WINDOW), {"H": 10, "K": 3}))
    assert context.plain_is_universe() and context.dim(isl.dim_type.param) == 0


@pytest.mark.parametrize("factor", [1, 3])
def test_times(factor: int) -> None:
    assert times(5, factor) == 5 * factor
    product = times(isl.PwAff("[N] -> { [(N + 1)] }"), factor)
    assert isinstance(product, isl.PwAff)
    assert product.is_equal(isl.PwAff(f"[N] -> {{ [({factor}N + {factor})] }}"))
