"""The order of loops around a register tile: what operands bring from beyond a cache."""

from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.driver import Compiled
from tcdsl.lang.comprehension import Binary, Index
from tcdsl.lang.types.dtypes import INT32
from tcdsl.options import Options
from tcdsl.poly.loop_tree import Node, loops_of
from tcdsl.strategies.templates import cpu_tile
from tcdsl.strategies.tile_traffic import Around, Operand, bytes_moved

CONV = """def f(float(N,H,W,C) I, float(R,C,F) K) -> (O) {
    O(n,h,w,f) +=! I(n,h+r,w+r,c) * K(r,c,f)
}"""


def operands() -> list[Operand]:
    window = Binary("+", Index("w"), Index("r"), INT32)
    image = Operand((Index("n"), window, Index("c")), 4)
    return [image, Operand((Index("r"), Index("c"), Index("f")), 4)]


def test_bytes_moved() -> None:
    tile = {"n": 1, "w": 4, "f": 32, "r": 3, "c": 10}
    n, f, w = Around("n", 7), Around("f", 8, 32), Around("w", 5, 4)
    images, filters = 7 * 22 * 10 * 4, 3 * 10 * 256 * 4
    assert bytes_moved(operands(), tile, [n, f, w], 1 << 20) == images + filters
    # A tile's filters and an image fit, all filters do not: they are read for each image ...
    near = 3 * 10 * 32 * 4 + images // 7
    assert bytes_moved(operands(), tile, [n, f, w], near) == images + 7 * filters
    assert bytes_moved(operands(), tile, [f, n, w], near) == 8 * images + filters  # or once


@pytest.mark.parametrize("threads", [1, 8])
def test_large_filters_are_read_once(threads: int, compiled: Callable[..., Compiled]) -> None:
    plan = compiled(CONV, (4, 9, 9, 1024), (3, 1024, 512), threads=threads).plan
    (kernel,) = plan.kernels
    assert _order(kernel.tree) == "fn"
    small = compiled(CONV, (4, 9, 9, 64), (3, 64, 512), threads=threads).plan
    assert _order(small.kernels[-1].tree) == "nf"


def _order(tree: Node) -> str:
    """Return the indices f and n in the order of their outermost loops."""
    names = [loop.name.split(".")[1][0] for loop in loops_of(tree)]
    return "".join(sorted("fn", key=names.index))


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("count", [1, 2])
def test_results(count: int, threads: int, check_all: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_tile.Surroundings, "others_inside", lambda *_: count)
    shapes = [
        [(3, 5, 11, 23), (3, 23, 71)],
        [(1, 4, 18, 16), (3, 16, 40)],
        [(2, 7, 9, 64), (3, 64, 33)],
    ]
    biased = CONV.replace("-> (O)", "-> (P)").replace("\n}", "\n P(n,h,w,f) = O(n,h,w,f) + 1.0\n}")
    check_all([(source, s) for source in (CONV, biased) for s in shapes], threads=threads)
    check_all([(CONV, shapes[0])], threads=threads, options=Options(fuse="none"))
