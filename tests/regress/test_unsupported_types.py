"""A type that the language does not have, in a declaration."""

import pytest

import tcdsl
from tcdsl.errors import ParseError


@pytest.mark.parametrize("name", ["complex64", "string", "float128"])
def test_the_hint_lists_the_types(name: str) -> None:
    with pytest.raises(ParseError) as caught:
        tcdsl.define(f"def f({name}(N) x) -> (y) {{ y(i) = x(i) }}")
    assert name in caught.value.message
    for known in ("float32", "int64", "bool"):
        assert known in (caught.value.hint or "")
