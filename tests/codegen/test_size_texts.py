"""Open sizes as C texts."""

from typing import cast

import islpy as isl
import pytest

from tcdsl.codegen.ast.nodes import Code, Name
from tcdsl.codegen.ast.text import lines, text
from tcdsl.codegen.c.size_texts import SizeTexts
from tcdsl.codegen.names import Names
from tcdsl.lang.types.dtypes import FLOAT32
from tcdsl.poly.isl_utils import Extent
from tcdsl.poly.scop import Array, Scop, Storage

N, M = isl.PwAff("[M, N] -> { [(N)] }"), isl.PwAff("[M, N] -> { [(M)] }")


def array(*shape: Extent, strides: tuple[int | None, ...] | None = None) -> Array:
    origin = (0,) * len(shape)
    return Array("A", FLOAT32, origin, shape, Storage.ARGUMENT, strides=strides)


def texts(of: Array, sizes: dict[str, int | None]) -> SizeTexts:
    context = isl.Set("[M, N] -> { : M >= 0 and N >= 0 }")
    return SizeTexts(Scop("f", {"A": of}, (), context, sizes), Names())


def test_integers_are_named_in_the_order_of_the_call() -> None:
    of = texts(array(4, 4, 4, strides=(None, 1, None)), {"K": 3, "M": None, "N": None})
    assert of.integers == (("M", -1), ("N", -1), ("A", 0), ("A", 2))
    declared = [line.text for line in lines(of.declarations())]
    assert declared[:2] == ["const int64_t M = integers[0];", "const int64_t N = integers[1];"]
    named, literal, also_named = of.strides(array(4, 4, 4, strides=(None, 1, None)))
    assert literal == 1
    assert isinstance(named, Name) and isinstance(also_named, Name)
    assert declared[2] == f"const int64_t {named.text} = integers[2];"
    assert declared[3] == f"const int64_t {also_named.text} = integers[3];"


@pytest.mark.parametrize(
    ("shape", "strides"),
    [((4, 5, 6), [30, 6, 1]), ((N, 5, 6), [30, 6, 1]), ((4, N, 6), ["(N * 6)", 6, 1]),
     ((4, M, N), ["(M * N)", "(N)", 1]), ((), [])],
)  # fmt: skip
def test_strides_are_products_of_extents(
    shape: tuple[Extent, ...], strides: list[int | str]
) -> None:
    of = array(*shape)
    found = texts(of, {"M": None, "N": None}).strides(of)
    assert [s if isinstance(s, int) else text(cast(Code, s)) for s in found] == strides


def test_elements() -> None:
    fixed, open_ = array(4, 5), array(4, N)
    assert texts(fixed, {}).elements(fixed) == 20
    found = texts(open_, {"M": None, "N": None}).elements(open_)
    assert not isinstance(found, int) and text(found) == "4 * tc_max_i64(N, 0)"


def test_fixed_sizes_have_no_names() -> None:
    of = texts(array(4, 5), {"M": 4, "N": 5})
    assert not of.is_open and of.declarations() == [] and of.integers == ()
    assert text(of.extent(7)) == "7"


def test_extents_are_expressions() -> None:
    of = texts(array(4), {"M": None, "N": None})
    extent = of.extent(isl.PwAff("[M, N] -> { [(floor((N + 1)/2))] }"))
    assert text(extent) == "tc_div_i64((N + 1), 2)"
