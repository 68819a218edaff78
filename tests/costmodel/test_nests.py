"""Bytes that loop nests move, beside those of a cache that holds the lines used last."""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import product

import pytest

from tcdsl.costmodel.cpu_thresholds import HELD_SHARE, LINE_BYTES
from tcdsl.costmodel.nests import Moves, Touched

CACHE = 4096


def missed_bytes(moves: Sequence[Moves], trips: Sequence[int], cache_bytes: float) -> list[int]:
    """Return the bytes that each access brings into a cache, in the second of two runs."""
    lines: OrderedDict[tuple[int, int], None] = OrderedDict()
    missed = [0] * len(moves)
    for run in range(2):
        for at in product(*map(range, trips)):
            for number, one in enumerate(moves):
                offset = sum(n * s for n, s in zip(at, one.strides, strict=True))
                line = number, int(offset) // LINE_BYTES
                if line in lines:
                    lines.move_to_end(line)
                    continue
                missed[number] += run * LINE_BYTES * (2 if one.is_written else 1)
                lines[line] = None
                if len(lines) * LINE_BYTES > cache_bytes:
                    lines.popitem(last=False)
    return missed


NESTS = {
    "stream": ((4000,), [(4,)]),
    "matrix by vector": ((40, 300), [(4, 0), (1200, 4), (0, 4)]),
    "sums of columns": ((40, 300), [(0, 4), (1200, 4)]),
    "columns first": ((36, 130), [(4, 0), (4, 36 * 4 + 4)]),
    "product": ((12, 12, 90), [(48, 4, 0), (360, 0, 4), (0, 4, 52)]),
    "window": ((20, 3, 200), [(800, 0, 4), (816, 816, 4)]),
    "fits": ((10, 50), [(200, 4)]),
}


@pytest.mark.parametrize("name", NESTS)
def test_bytes_are_those_of_a_cache(name: str) -> None:
    trips, strides = NESTS[name]
    moves = [Moves(own, 4, is_written=not number) for number, own in enumerate(strides)]
    found = sum(Touched(moves, trips).bytes_into(CACHE))
    expected = sum(missed_bytes(moves, trips, HELD_SHARE * CACHE))
    assert expected / 1.6 <= found <= 1.6 * expected


def test_pieces_at_one_offset_of_their_pages_do_not_stay() -> None:
    """100 pieces of 128 bytes fit, but for pages of which each has them in the same sets."""
    trips = (50, 100, 32)
    near, apart = (
        sum(Touched([Moves((0, stride, 4), 4)], trips).bytes_into(1 << 15))
        for stride in (4096 + 128, 4096)
    )
    assert near == 0 and apart == 50 * 100 * 128


def test_pages_restart_streams() -> None:
    touched = Touched([Moves((4096, 4), 4)], (1 << 14, 32))
    (plain,), (restarted,) = (touched.bytes_into(1 << 15, more) for more in (0, 1024))
    assert restarted == 9 * plain
