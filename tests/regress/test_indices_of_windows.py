"""Factors that are computed first: a window's dimension had the name of one of the sum's indices.

`e0` was the window i + r, and the channel as well: the copy had one index for two dimensions.
"""

from collections.abc import Callable

import pytest

SOURCE = """def f(half(H,C) x, half(R,C,N) w) -> (y) {
    y(i,n) +=! relu(x(i+r,e0)) * w(r,e0,n)
}"""


@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
def test_results(check_emulated: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tcdsl.plan.search.WORTH", 1e9)
    monkeypatch.setattr("tcdsl.rewrites.scop.computed_factors.LEAST_USES", 1)
    check_emulated([(SOURCE, [(35, 24), (3, 24, 40)])])
