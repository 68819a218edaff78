"""Moves: what may be done to a state, each a neighbour of it.

    merge    {a} {b}    --->  {a b}      loops of both are one, and a leaves b its values on chip
    begin    {a} {b c}  --->  {a b} {c}  a product begins what is reduced of it, c reads the results

Several groups may be one kernel iff all members share an axis along which every dependence between
them has the distance zero, and no other group must run between them: if c needs a, and b needs c,
then {a b} and c would wait for each other.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from tcdsl.plan.state import Evaluator, State
from tcdsl.records import dataclass
from tcdsl.schedule.fusion import Group
from tcdsl.strategies.catalogue import ALIKE


@dataclass(frozen=True, slots=True)
class Merge:
    """Several groups as one; the *rest* of them stays by itself."""

    parts: tuple[Group, ...]
    whole: Group
    saved_seconds: float
    rest: tuple[Group, ...] = ()


@dataclass(frozen=True, slots=True)
class NoMerge:
    """Two groups that stay two, and why."""

    one: Group
    other: Group
    reason: str


def merges(state: State, known: Evaluator) -> Iterator[Merge | NoMerge]:
    """Yield what may be merged in *state* and would be faster; and which pairs would not."""
    free = [group for group in state.groups if not known.is_fixed(group)]
    after = _successors(state.groups, known)
    number = {group.members: n for n, group in enumerate(state.groups)}

    def has_between(parts: Sequence[Group]) -> bool:
        own = [number[part.members] for part in parts]
        return len(_between(own, after)) > len(own)

    # Of a chain most pairs have others between them, and it takes long to say what two share.
    near = [pair for pair in combinations(state.groups, 2) if not has_between(pair)]
    pairs = (pair for pair in near if not any(map(known.is_fixed, pair)))
    several = (parts for parts in _readers(free, known) if not has_between(parts))
    for parts in (*pairs, *several, *_products(near, known)):
        whole = known.joined(parts)
        if whole is None:
            continue
        # A kernel that waits for another has nothing on its way when it may begin.
        waiting = (len(parts) - 1) * known.gpu.dram_latency_s
        apart, seconds = sum(map(known.seconds, parts)), known.seconds(whole)
        if seconds < apart + waiting and ALIKE * seconds < known.seconds_in_one_launch(parts):
            yield Merge(parts, whole, apart + waiting - seconds)
        elif len(parts) == 2:
            yield NoMerge(*parts, _slower(seconds, apart))
    yield from _begun(state, known)


def _begun(state: State, known: Evaluator) -> Iterator[Merge]:
    """Yield products that begin what is reduced of them, while the rest of its group stays."""
    for one, other in combinations(state.groups, 2):
        if known.is_fixed(other) or not known.is_fixed(one) or not known.is_read(one, other):
            continue
        if known.is_product((one, other)):
            continue
        parts = one, other
        found = next(known.begun(one, other), None)
        if found is None:
            continue
        whole, rest = found
        groups = [*_replaced(state.groups, parts, whole), *rest]
        if in_order(groups, known) is None:
            continue
        apart = sum(map(known.seconds, parts)) + known.gpu.dram_latency_s
        seconds = sum(map(known.seconds, (whole, *rest))) + len(rest) * known.gpu.dram_latency_s
        if seconds < apart:
            yield Merge(parts, whole, apart - seconds, rest)


def _products(
    pairs: Iterable[tuple[Group, Group]], known: Evaluator
) -> Iterator[tuple[Group, Group]]:
    """Yield those *pairs*, one of them fixed, that are a product and what one kernel may add.

    A further product of a chain, or what reduces its rows.
    """
    for one, other in pairs:
        if (known.is_fixed(one) or known.is_fixed(other)) and known.is_product((one, other)):
            yield one, other


def _readers(groups: Sequence[Group], known: Evaluator) -> Iterator[tuple[Group, ...]]:
    """Yield groups that read one array, three or more, with those that must run between them.

    Three passes over rows may be worth a kernel that keeps them, where two of them are not.
    """
    readers: dict[str, list[int]] = {}
    for number, group in enumerate(groups):
        for array in known.reads(group):
            readers.setdefault(array, []).append(number)
    after = _successors(groups, known)
    found = {tuple(_between(own, after)) for own in readers.values() if len(own) > 1}
    yield from (tuple(groups[n] for n in own) for own in sorted(found) if len(own) > 2)


def _successors(groups: Sequence[Group], known: Evaluator) -> list[set[int]]:
    """Return for each of *groups* those that wait for it, directly or not."""
    place = {name: n for n, group in enumerate(groups) for name in group.members}
    after: list[set[int]] = [set() for _ in groups]
    for number in reversed(range(len(groups))):
        for earlier in {place[p] for p in known.needs(groups[number]) if p in place} - {number}:
            after[earlier] |= {number, *after[number]}
    return after


def _between(own: Sequence[int], after: Sequence[set[int]]) -> list[int]:
    """Return *own*, and what waits for one of them and is waited for by another."""
    later = set().union(*(after[n] for n in own))
    return sorted({*own, *(n for n in later if after[n] & set(own))})


def _slower(seconds: float, apart: float) -> str:
    return f"one kernel would take {1e6 * seconds:.3g} us, two take {1e6 * apart:.3g} us"


def merged(state: State, move: Merge, known: Evaluator) -> State:
    """Return *state* after *move*."""
    groups = in_order([*_replaced(state.groups, move.parts, move.whole), *move.rest], known)
    assert groups is not None
    return State(tuple(groups), state.seconds - move.saved_seconds)


def alike(moves: Sequence[Merge]) -> list[list[Merge]]:
    """Return *moves* that make as many statements one kernel, and save the same time, together.

    Steps of a recurrence and layers of a network are alike: what one of them gains, all do.
    """
    found: dict[tuple[int, int, float], list[Merge]] = {}
    for move in moves:
        key = len(move.whole.members), len(move.rest), move.saved_seconds
        found.setdefault(key, []).append(move)
    return list(found.values())


def all_merged(state: State, moves: Sequence[Merge], known: Evaluator) -> State:
    """Return *state* after all *moves*, but for those of groups that one before has merged."""
    groups, saved = list(state.groups), 0.0
    for move in moves:
        if any(part not in groups for part in move.parts):
            continue
        found = in_order([*_replaced(groups, move.parts, move.whole), *move.rest], known)
        if found is not None:
            groups, saved = found, saved + move.saved_seconds
    return State(tuple(groups), state.seconds - saved)


def _replaced(groups: Sequence[Group], parts: Sequence[Group], whole: Group) -> list[Group]:
    """Return *groups* with *whole* in the place of the first of its *parts*."""
    first = groups.index(parts[0])
    return [
        whole if n == first else g for n, g in enumerate(groups) if n == first or g not in parts
    ]


def in_order(groups: Sequence[Group], known: Evaluator) -> list[Group] | None:
    """Return *groups* in an order that dependences allow, as near theirs as may be; None if none.

    An earlier one runs first, unless it waits for a later one.
    """
    place = {name: n for n, group in enumerate(groups) for name in group.members}
    waiting = [{place[p] for p in known.needs(group) if p in place} - {n}
               for n, group in enumerate(groups)]  # fmt: skip
    done: dict[int, Group] = {}
    left = list(range(len(groups)))
    while left:
        ready = next((n for n in left if waiting[n] <= done.keys()), None)
        if ready is None:
            return None
        left.remove(ready)
        done[ready] = groups[ready]
    return list(done.values())
