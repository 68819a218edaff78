"""The compiled specialisation says what isl says, at every size."""

import itertools

import pytest

from tcdsl.errors import TCError
from tcdsl.lang.comprehension import Comprehension
from tcdsl.lang.ranges.specialiser import Specialiser, specialise
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.types.sema import analyse
from tcdsl.source import Source

SOURCES = {
    "matmul": "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
    "minimum": "def f(float(N) A, float(M) B, float(K) D) -> (C) { C(i) = A(i) + B(i) + D(i) }",
    "floor": "def f(float(N) A) -> (C) { C(i) = A(3*i + 1) }",
    "shift": "def f(float(N) A) -> (C) { C(i) = A(i - 5) }",
    "window": "def f(float(H) I, float(K) W) -> (O) { O(h) +=! I(h + k) * W(k) }",
    "bounds": "def f(float(N) A, float(M) B) -> (C) { C(i) = A(i) + B(0) where i in M:N }",
}


def analysed(source: str) -> Comprehension:
    return analyse(parse_program(Source(source)))[-1]


@pytest.mark.parametrize("name", SOURCES)
def test_it_agrees_with_isl(name: str) -> None:
    c = analysed(SOURCES[name])
    specialiser = Specialiser(c)
    # The sizes come in another order, as they do from the extents of arrays.
    places = {name: f"s[0][{len(c.sizes) - 1 - n}]" for n, name in enumerate(c.sizes)}
    integers = [places[name] for name in c.sizes]
    function = specialiser.of_values(places, "s[0][0] < 65", integers, c.outputs)
    assert function([(65,) * len(c.sizes)]) is None
    for values in itertools.product((0, 1, 2, 5, 64), repeat=len(c.sizes)):
        sizes = dict(zip(c.sizes, values, strict=True))
        try:
            expected = specialise(c, sizes)
        except TCError as error:
            with pytest.raises(type(error)) as caught:
                specialiser(sizes)
            assert str(caught.value) == str(error)
            assert function([values[::-1]]) is None
        else:
            shapes = tuple(expected.shapes[name] for name in c.outputs)
            assert function([values[::-1]]) == (values, shapes)
            assert specialiser(sizes) == expected
