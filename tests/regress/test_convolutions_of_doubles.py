"""Implicit products of doubles: a warp's registers hold half as many sums as of other types.

Tiles of 128 x 256 had 128 doubles a thread, more than registers hold: sums stayed in memory, a
barrier came into each step, and the program was compiled for one thread.
"""

from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.driver import compile_to_cuda
from tcdsl.lang.request import Request
from tests.programs import comprehension_of, specialisation_of

pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")

LAST = """def f(double(N,H,W,C) x, double(P,Q,C,O) w) -> (y) {
    y(n,h,v,o) +=! x(n,h+p,v+q,c) * w(p,q,c,o)
}"""
SECOND = """def f(double(F,H,2,Y) x, double(S,C,L,R) w) -> (y) {
    y(f,c,r,s,t) +=! x(f,h,v,k) * w(h+r,c,k+t,v+s) where r in 0:2, s in 0:3, t in 0:5
}"""


def test_a_large_convolution_is_a_tile_of_a_gpu() -> None:
    c = comprehension_of(LAST)
    special = specialisation_of(c, [(8, 30, 30, 512), (3, 3, 512, 1024)])
    done = compile_to_cuda(Request(c, special), load_chip("h200"))
    assert not done.is_fallback


def test_few_multiprocessors_have_large_tiles(
    check_emulated: Callable[..., Any], small_chip: Chip
) -> None:
    check_emulated([(SECOND, [(16, 8, 2, 2), (9, 13, 6, 4)])], gpu=small_chip)
