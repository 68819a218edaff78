"""A chain of stencils that reads a result of the program, which is kept beside its store.

A long chain is cut into pieces in tiles.  The second piece read the copy that threads keep of a
result between both, and not the result: the check did not know that they are the same.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tcdsl.plan import gpu_planner
from tcdsl.strategies.stencils import Tiling

pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")

SOURCE = """def f(double(N, M, K) x) -> (t2, t4) {
    t0(i, j, k) = x(i, j, k + 1) - 0.5 * x(i, j, k) - 0.5 * x(i - 1, j, k + 1)
    t1(i, j, k) = t0(i, j, k + 2) - 0.5 * t0(i + 1, j, k + 1) - 0.5 * t0(i + 1, j, k)
    t2(i, j, k) +=! t0(i, j, k + r) where r in 0:3
    t3(i, j, k) = t2(i + 2, j, k) - 0.5 * t2(i, j, k)
    t4(i, j, k) = t3(i - 1, j, k) - 0.5 * t3(i, j, k + 2)
}"""


def test_what_is_kept_is_what_is_stored(
    check_emulated: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def tilings(*_: Any, **__: Any) -> Iterator[Tiling]:
        yield Tiling((4, 8), 1.0, 0.0)  # each piece is worth as much: as many as there can be

    monkeypatch.setattr(gpu_planner, "gpu_tilings", tilings)
    check_emulated([(SOURCE, [(13, 24, 24)])])
