"""What a loop nest moves between the levels of memory: counts of lines, from strides and trips.

    for i (1000), j (1000):  y(i) += x(j,i)       x touches 64 KB of lines in a loop over j

From the innermost loop outwards, what all accesses touch grows until a cache no longer holds it.
Of the first loop whose iterations fit and which does not, neighbours share what they have in
common; each iteration of the loops around brings all that this one touches anew, but for arrays
that they leave as they are.  Calls follow one another: what fits as a whole is there already.

After M. E. Wolf, M. S. Lam, A data locality optimizing algorithm, PLDI 1991,
doi:10.1145/113445.113449 (reuse that the loops inside a cache's reach keep).
"""

from collections.abc import Sequence
from math import prod

from tcdsl.costmodel.cpu_thresholds import (
    HELD_SHARE,
    LINE_BYTES,
    PAGE_BYTES,
    STREAMS,
)
from tcdsl.records import dataclass


@dataclass(frozen=True, slots=True)
class Moves:
    """How an access moves: *strides* in bytes, none negative, one a loop, outermost first."""

    strides: tuple[int, ...]
    element_bytes: float
    is_written: bool = False


def pieces_of(moves: Moves, trips: Sequence[float], depth: int) -> tuple[float, float, int]:
    """Return how many pieces the loops from *depth* on touch, their bytes, and how far one is
    from the next.

    A piece is whole lines, one after another.
    """
    by_stride: dict[int, float] = {}
    for stride, count in zip(moves.strides[depth:], trips[depth:], strict=True):
        if stride and count > 1:
            by_stride[stride] = by_stride.get(stride, 1) + count - 1
    span, pieces, apart = float(moves.element_bytes), 1.0, 0
    for stride, count in sorted(by_stride.items()):
        if stride <= max(span, LINE_BYTES):
            span += stride * (count - 1)
        else:
            pieces, apart = pieces * count, apart or stride
    return pieces, max(span, LINE_BYTES), apart


def _held_bytes(pieces: float, span: float, apart: int) -> float:
    """Return the bytes of a cache that *pieces* take.

    Where they are on pages, at one offset, they share the sets of the cache that this offset has.
    """
    return pieces * max(span, min(PAGE_BYTES, apart & -apart))


class Touched:
    """What a nest touches inside each of its loops: a list an access, entry d from loop d on."""

    def __init__(self, moves: Sequence[Moves], trips: Sequence[float]) -> None:
        self.moves, self.trips = moves, trips
        depths = range(len(trips) + 1)
        self.pieces = [[pieces_of(one, trips, d) for d in depths] for one in moves]
        self.inside = [[_held_bytes(*own) for own in one] for one in self.pieces]
        self.together = [sum(own[d] for own in self.inside) for d in depths]

    def bytes_into(self, cache_bytes: float, restart_bytes: float = 0.0) -> list[float]:
        """Return how many bytes of each access come into a cache of *cache_bytes*, or go out.

        :arg restart_bytes: that a piece takes as long as, beside its own, if the next is a page
            away.
        """
        most, n_loops = HELD_SHARE * cache_bytes, len(self.trips)
        depth = next((d for d, all_bytes in enumerate(self.together) if all_bytes <= most), n_loops)
        if depth == 0:
            return [0.0] * len(self.moves)
        return [self._anew(number, depth - 1, restart_bytes) for number in range(len(self.moves))]

    def _anew(self, number: int, depth: int, restart_bytes: float) -> float:
        """Return what an access brings if the loops around that at *depth* bring all anew."""
        moves, around = self.moves[number], depth
        if not moves.strides[depth]:
            while around and not moves.strides[around - 1]:
                around -= 1
        times = 2 if moves.is_written else 1  # a line that is written is loaded, and stored
        pieces, span, _ = self.pieces[number][depth]
        restarts = 1 + restart_bytes * self._restarts(number) if restart_bytes else 1
        return float(times * restarts * prod(self.trips[:around]) * pieces * span)

    def _restarts(self, number: int) -> float:
        """Return how often, for each byte, a stream begins anew on another page.

        A few streams at once go on; where there are more, each comes back to find its place lost.
        """
        several = (one for one in reversed(self.pieces[number]) if one[0] > STREAMS)
        _, span, apart = next(several, (1.0, 1.0, 0))
        return min(1.0, apart / PAGE_BYTES) / span
