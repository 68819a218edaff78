"""Blocks that share the terms of a window: the last one's steps go on where the terms have ended.

There the statement has zeros, but a request finds the pixels of a tap more: the printer refused it,
and the program was compiled statement by statement.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.errors import OptionError
from tcdsl.options import Options

SOURCE = """def f(bfloat16(N,H,C) I, bfloat16(F,3,C) K) -> (O) {
    O(n,h,f) +=! (h + r >= 1 && h + r <= H ? I(n, h + r - 1, c) : 0) * K(f,r,c) where h in 0:H
}"""
SHAPES = [(2, 9, 192), (72, 3, 192)]  # 9 steps of 64 terms
FOURS = {"rows": 16, "columns": 64, "warp_rows": 4, "warp_columns": 1, "together": 4, "step": 64}


@pytest.fixture(autouse=True)
def _may_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small a product may have tiles, and chunks of them."""
    monkeypatch.setattr("tcdsl.strategies.contracted.MIN_WORK", 1)
    monkeypatch.setattr("tcdsl.strategies.operand_orders.LEAST_TILE", float("inf"))
    name = "tcdsl.strategies.templates.tile_implicit"
    monkeypatch.setattr(f"{name}.LEAST_STEPS", 1)
    monkeypatch.setattr(f"{name}._is_filled", lambda *_: True)


def _asked(chunks: int, loader: str) -> Options:
    own = {"stages": 2, "chunks": chunks, "loader": loader}
    kernel = {"kernel": "S0", "template": "tile_implicit", **FOURS, **own}
    return Options(choices={"format": "tcdsl choices", "version": 1, "kernels": [kernel]})


@pytest.mark.parametrize(("chunks", "loader"), [(3, "boxes"), (2, "threads")])
def test_chunks_of_a_window(chunks: int, loader: str, check_emulated: Callable[..., None]) -> None:
    check_emulated([(SOURCE, SHAPES)], options=_asked(chunks, loader))


def test_chunks_that_are_not_whole(cuda_unit: Callable[..., Any]) -> None:
    """Requests bring no tile that goes beyond the last term."""
    with pytest.raises(OptionError, match="chunks=2 does not go"):
        cuda_unit(SOURCE, *SHAPES, options=_asked(2, "boxes"))
