"""Products of matrices that lie apart, with so few terms that one step of a tile has them all.

Scores of attention with heads of 64: their two batch axes are apart in memory, so that boxes alone
bring tiles, and no number of stages that was tried may be as small as one step needs.  The product
had no kernel on tensor cores (803 us predicted on an H200 for 8 x 16 of 1024 x 1024 x 64).
"""

from collections.abc import Callable
from typing import Any

import pytest

import tcdsl
from tests.test_classes_of_products import FEW, small_tiles

__all__ = ["small_tiles"]

SCORES = """def f(bfloat16(B,S,H,D) q, bfloat16(B,T,H,D) k) -> (c) {
    c(b,h,s,t) +=! q(b,s,h,d) * k(b,t,h,d)
}"""


@pytest.mark.parametrize("head", [32, 64])
def test_scores_of_attention_are_on_tensor_cores(head: int) -> None:
    shape = tcdsl.spec((8, 512, 16, head), "bfloat16")
    exe: Any = tcdsl.define(SCORES).f.compile(shape, shape, target="emulate")
    (kernel,) = exe.choices["kernels"]
    assert (kernel["template"], kernel["loader"]) == ("tile_mma", "boxes")


@pytest.mark.parametrize("shapes", [
    [(2, 70, 3, 64), (2, 130, 3, 64)],
    pytest.param([(3, 77, 2, 40), (3, 33, 2, 40)], marks=pytest.mark.slow),
])  # fmt: skip
def test_their_results_are_right(
    shapes: list[tuple[int, ...]], check_emulated: Callable[..., None], small_tiles: None
) -> None:
    choice = {"kernel": "S0", "template": "tile_mma", "loader": "boxes", "stages": 2}
    asked = {"format": "tcdsl choices", "version": 1, "kernels": [choice]}
    check_emulated([(SCORES, shapes)], gpu=FEW, options=tcdsl.Options(choices=asked))
