"""Moves: what may be done to a state, each a neighbour of it.

    merge    {a} {b}  --->  {a b}    loops of both are one, and a leaves b its values on chip

Two groups may be one kernel iff all members share an axis along which every dependence between them
has the distance zero, and no third group must run between them: if c needs a, and b needs c, then
{a b} and c would wait for each other.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tcdsl.plan.state import Evaluator, State
from tcdsl.transforms.fusion import Group

# A kernel is worth having where it is predicted to take less than its parts: estimates err.
WORTH = 0.98


@dataclass(frozen=True, slots=True)
class Merge:
    """Two groups as one."""

    one: Group
    other: Group
    both: Group
    saved_seconds: float


@dataclass(frozen=True, slots=True)
class NoMerge:
    """Two groups that stay two, and why."""

    one: Group
    other: Group
    reason: str


def merges(state: State, known: Evaluator) -> Iterator[Merge | NoMerge]:
    """Yield what may be merged in *state* and would be faster; and what was tried and would not."""
    free = [(n, group) for n, group in enumerate(state.groups) if not known.is_fixed(group)]
    for at, (first, one) in enumerate(free):
        for second, other in free[at + 1 :]:
            both = known.joined(one, other)
            if (
                both is None
                or in_order(_replaced(state.groups, first, second, both), known) is None
            ):
                continue
            apart = known.seconds(one) + known.seconds(other)
            seconds = known.seconds(both)
            if seconds < WORTH * apart:
                yield Merge(one, other, both, apart - seconds)
            else:
                yield NoMerge(one, other, _slower(seconds, apart))


def _slower(seconds: float, apart: float) -> str:
    return f"one kernel would take {1e6 * seconds:.3g} us, two take {1e6 * apart:.3g} us"


def merged(state: State, move: Merge, known: Evaluator) -> State:
    """Return *state* after *move*."""
    first, second = (state.groups.index(group) for group in (move.one, move.other))
    groups = in_order(_replaced(state.groups, first, second, move.both), known)
    assert groups is not None
    return State(tuple(groups), state.seconds - move.saved_seconds)


def _replaced(groups: Sequence[Group], first: int, second: int, both: Group) -> list[Group]:
    found = list(groups)
    found[first] = both
    del found[second]
    return found


def in_order(groups: Sequence[Group], known: Evaluator) -> list[Group] | None:
    """Return *groups* in an order that dependences allow, as near theirs as may be; None if none.

    An earlier one runs first, unless it waits for a later one.
    """
    place = {name: n for n, group in enumerate(groups) for name in group.members}
    waiting = [{place[p] for p in known.needs(group) if p in place} - {n}
               for n, group in enumerate(groups)]  # fmt: skip
    done: list[int] = []
    left = list(range(len(groups)))
    while left:
        ready = next((n for n in left if waiting[n] <= set(done)), None)
        if ready is None:
            return None
        left.remove(ready)
        done.append(ready)
    return [groups[n] for n in done]
