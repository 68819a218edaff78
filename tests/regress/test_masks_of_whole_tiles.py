"""A mask of an operand in registers, in tiles without edges: it was taken for the zeros of one."""

from collections.abc import Callable

from tcdsl.options import Options
from tests.test_classes_of_products import FEW, small_tiles

__all__ = ["small_tiles"]

SOURCE = """def f(bfloat16(M,K) x, bfloat16(K,N) w) -> (y) {
    y(m,n) +=! (k <= m + 9 ? x(m,k) : 0) * w(k,n) }"""
CHOICE = {"kernel": "S0", "template": "tile_mma", "in_registers": True}


def test_the_mask_stays(check_emulated: Callable[..., None], small_tiles: None) -> None:
    asked = {"format": "tcdsl choices", "version": 1, "kernels": [CHOICE]}
    cases = [(SOURCE, [(64, 128), (128, 64)])]
    check_emulated(cases, gpu=FEW, options=Options(choices=asked))
