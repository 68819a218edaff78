"""Functions of the open sizes as plain data: what a launch's numbers are at the sizes of a call."""

from collections.abc import Sequence
from math import prod
from typing import Any

from tcdsl.records import dataclass

SCRATCH_ALIGNMENT = 256  # bytes


@dataclass(frozen=True, slots=True)
class Count:
    """``floor((constant + sum of factor * term) / denominator)``, a function of open sizes.

    A term is the position of a size among the integers of the call, or a count itself.
    """

    denominator: int
    constant: int
    terms: tuple[tuple[int, "int | Count"], ...]

    def at(self, integers: Sequence[int]) -> int:
        """Return the value where the call gives *integers*."""
        total = self.constant
        for factor, term in self.terms:
            total += factor * (integers[term] if isinstance(term, int) else term.at(integers))
        return total // self.denominator

    @property
    def text(self) -> str:
        """The value as an expression of Python, where the call gives integers ``i``."""
        terms = [
            f"{factor} * {f'i[{term}]' if isinstance(term, int) else term.text}"
            for factor, term in self.terms
        ]
        return f"(({' + '.join((str(self.constant), *terms))}) // {self.denominator})"

    def to_json(self) -> list[Any]:
        terms = [[f, t if isinstance(t, int) else t.to_json()] for f, t in self.terms]
        return [self.denominator, self.constant, terms]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> "Count":
        denominator, constant, terms = data
        read = ((int(f), t if isinstance(t, int) else cls.from_json(t)) for f, t in terms)
        return cls(int(denominator), int(constant), tuple(read))


Counts = tuple[Count, ...]  # the largest counts


def largest(counts: Counts, integers: Sequence[int]) -> int:
    """Return the value of *counts* where the call gives *integers*."""
    if len(counts) == 1:  # as nearly all are; the first call at a size waits for it
        return counts[0].at(integers)
    return max([count.at(integers) for count in counts])


def largest_text(counts: Counts) -> str:
    """Return the same as an expression of Python, where the call gives integers ``i``."""
    texts = [count.text for count in counts]
    return texts[0] if len(texts) == 1 else f"max({', '.join(texts)})"


@dataclass(frozen=True, slots=True)
class SharedCount:
    """What an array takes of a block's shared memory: *each* bytes of *most* values, or fewer."""

    each: int
    most: int
    counts: Counts

    def idle_bytes(self, integers: Sequence[int]) -> int:
        """Return the bytes that it does not take where the call gives *integers*."""
        return self.each * (self.most - max(0, largest(self.counts, integers)))

    @property
    def idle_text(self) -> str:
        """The same as an expression of Python, where the call gives integers ``i``."""
        return f"{self.each} * ({self.most} - max(0, {largest_text(self.counts)}))"

    def to_json(self) -> list[Any]:
        return [self.each, self.most, [count.to_json() for count in self.counts]]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> "SharedCount":
        each, most, counts = data
        return cls(int(each), int(most), tuple(map(Count.from_json, counts)))


@dataclass(frozen=True, slots=True)
class Room:
    """What a scratch array has of the workspace: *size_bytes* from *offset*, at the most.

    That is at the greatest open sizes; at others it takes what its *extents* say.
    """

    offset: int
    size_bytes: int
    element_bytes: int
    extents: tuple[Counts, ...]

    def taken(self, integers: Sequence[int]) -> int:
        """Return the bytes that the array takes where the call gives *integers*."""
        elements = prod(max(0, largest(counts, integers)) for counts in self.extents)
        size_bytes = -(-max(elements * self.element_bytes, 1) // SCRATCH_ALIGNMENT)
        return min(self.size_bytes, size_bytes * SCRATCH_ALIGNMENT)

    def to_json(self) -> list[Any]:
        extents = [[count.to_json() for count in counts] for counts in self.extents]
        return [self.offset, self.size_bytes, self.element_bytes, extents]

    @classmethod
    def from_json(cls, data: Sequence[Any]) -> "Room":
        offset, size_bytes, element_bytes, extents = data
        read = (tuple(map(Count.from_json, counts)) for counts in extents)
        return cls(int(offset), int(size_bytes), int(element_bytes), tuple(read))


def workspace_at(
    rooms: Sequence[Room], start: int, integers: Sequence[int]
) -> tuple[dict[int, int], int]:
    """Return { offset of a room -> its offset at the sizes of a call }, and the bytes of all.

    Rooms that end before another begins do so afterwards, too: what is apart stays apart.

    :arg start: the bytes before the first room.
    """
    moved: dict[int, int] = {}
    ends: list[tuple[int, int]] = []  # where rooms end: at most, and at these sizes
    for room in sorted(rooms, key=lambda room: room.offset):
        before = (now for end, now in ends if end <= room.offset)
        moved[room.offset] = max(before, default=start)
        ends.append((room.offset + room.size_bytes, moved[room.offset] + room.taken(integers)))
    return moved, max((now for _, now in ends), default=start)
