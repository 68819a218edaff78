"""Copies of a part of a target: what is between it and the array's end was read, never written."""

from collections.abc import Callable

import pytest

SOURCE = "def f({s}(M,V) x, {t}(W) t) -> (t) {{ t(2*v + 1) {op} x(m,v) }}"


@pytest.mark.slow_but("half-bfloat16-*=!", "float-float8_e5m2-max=")
@pytest.mark.parametrize("op", ["min=!", "*=!", "max="])
@pytest.mark.parametrize(("s", "t"), [("half", "bfloat16"), ("float", "float8_e5m2")])
def test_copies_are_of_what_is_updated(
    op: str, s: str, t: str, check_emulated: Callable[..., None]
) -> None:
    check_emulated([(SOURCE.format(s=s, t=t, op=op), [(150, 9), (25,)])])
