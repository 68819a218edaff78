"""Threads along a reduced axis that blocks share in chunks: chunks are whole turns of the threads.

Lanes are counted from the axis' start, threads from a chunk's: in chunks of 44 values, eight
threads had other lanes in each chunk, and the fold took one of a thread's eight places.
"""

from collections.abc import Callable

from tcdsl.costmodel.chip import Chip

CheckAll = Callable[..., None]


def test_a_reduction_over_a_part_of_rows(check_emulated: CheckAll, small_chip: Chip) -> None:
    source = """def f(float(N, M) x, float(N, M) w) -> (t1) {
        t0(i, j) = x(i, j) - 0.5 * x(i, j)
        t1 +=! x(i, j) - 0.5 * t0(i, j) where i in 0:2, j in 19:20
        t2(i, j) = w(i, j) - 0.5 * w(i, j)
    }"""
    check_emulated([(source, [(130, 20), (130, 20)])], gpu=small_chip)
