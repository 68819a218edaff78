"""Tiles whose steps run over the terms of two indices, in turn and in each tile of a block.

What a step reads along one of them was not found to be 64 of 512 elements: of the number of a step,
8 k + l / 64 and 1024 for each tile before, isl's least element has a piece too many.  The tile had
all of them, no buffers in turn, and planning ended with an internal error.
"""

from collections.abc import Callable
from typing import Any

SOURCE = """def f(bfloat16(M,K) x, bfloat16(K,N) w, bfloat16(M,L) u, bfloat16(L,N) v) -> (y) {
    y(m,n) +=! x(m,k) * w(k,n) + u(m,l) * v(l,n)
}"""


def test_boxes_of_a_step(cuda_unit: Callable[..., Any]) -> None:
    unit = cuda_unit(SOURCE, (2048, 128), (128, 2560), (2048, 512), (512, 2560))
    assert "tc_copy_box" in unit.source.text
