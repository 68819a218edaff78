"""What a search has found when its time runs out: a plan of these kernels is better than none.

    with followed() as reached:
        plan_for_gpu(...)            # which calls reach(...), again and again
    reached.groups, reached.arrays   # ((S1, S3), (S4,)), {x, y}: t is computed where it is read

Kept are names, not what isl has: when isl is stopped, what it was asked last is not known.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(slots=True)  # changes, as the search goes on
class Reached:
    """The members of each kernel, by their names, and the arrays that are left of the program's."""

    groups: tuple[tuple[str, ...], ...] = ()
    arrays: frozenset[str] = frozenset()


_reached: ContextVar[Reached | None] = ContextVar("tcdsl_reached", default=None)


@contextmanager
def followed() -> Iterator[Reached]:
    """Collect what is reached inside."""
    found = Reached()
    token = _reached.set(found)
    try:
        yield found
    finally:
        _reached.reset(token)


def reach(groups: Iterable[tuple[str, ...]], arrays: Iterable[str]) -> None:
    """Note that *groups* are the best that are known of a scop with these *arrays*."""
    found = _reached.get()
    if found is not None:
        found.groups, found.arrays = tuple(groups), frozenset(arrays)
