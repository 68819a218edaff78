"""Folds over threads that stand next to one another: one call for two of them.

    s = fold over threads of p         s, t = fold over threads of the vectors (p, q)
    t = fold over threads of q   --->

A row's sums that do not wait for one another then wait together: once at the block's barrier, or
for the other blocks of a cluster.  Legal iff the second reads nothing that the first writes; the
accumulators are registers, so that the call needs no guard, and both are folded by one operator in
one type over the same threads.  Each element of a vector is folded as it would be alone.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import prod

from tcdsl.costmodel.chip import WARP
from tcdsl.poly.loop_tree import RANK, Leaf, Loop, Node, Sequence
from tcdsl.poly.scop import Kind
from tcdsl.schedule.cross_thread import is_replicated
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.placement import Placements, is_private


def joint_folds(
    mapped: Mapped, placements: Placements, lanes: Mapping[str, Loop]
) -> Mapping[str, str]:
    """Return { fold -> the next one, which its call folds as well }.

    :arg lanes: the loops whose iterations one call of a fold folds: of these one is enough.
    """
    found: dict[str, str] = {}
    for one, other in _neighbours(mapped.tree):
        is_taken = bool({one, other} & {*found.values(), *lanes})
        if not is_taken and why_not_joint(mapped, placements, one, other) is None:
            found[one] = other
    return found


def _neighbours(tree: Node) -> Iterator[tuple[str, str]]:
    """Yield the names of statements that run one right after the other."""
    match tree:
        case Loop(body=body):
            yield from _neighbours(body)
        case Sequence(children=children):
            for one, other in pairwise(children):
                if isinstance(one, Leaf) and isinstance(other, Leaf):
                    yield one.statement, other.statement
            for child in children:
                yield from _neighbours(child)


def why_not_joint(mapped: Mapped, placements: Placements, name: str, following: str) -> str | None:
    """Return why no call folds for both *name* and *following*, None if one can."""
    one, other = mapped.scop.by_name[name], mapped.scop.by_name[following]
    if one.kind is not Kind.FOLD or other.kind is not Kind.FOLD:
        return "they are no folds"
    axes = mapped.fold_axes(one)
    stride = max(mapped.fold_stride(one), mapped.fold_stride(other))
    if axes != mapped.fold_axes(other) or not axes or stride > 1:
        return "they are over other threads"
    if RANK not in axes and prod(mapped.threads[axis] for axis in axes) <= WARP:
        return "a warp folds without waiting"
    assert one.reduction is not None and other.reduction is not None
    of_one, of_other = one.reduction, other.reduction
    if of_one.operator.is_arg or (of_one.operator, of_one.dtype) != (
        of_other.operator, of_other.dtype,
    ):  # fmt: skip
        return "they have other operators or types"
    if any(not is_private(read.array, placements) for read in (*one.parts, *other.parts)):
        return "their accumulators are in memory"
    if {w.array for w in one.writes} & {a.array for a in (*other.reads, *other.writes)}:
        return f"{following} waits for {name}"
    if is_replicated(one, placements) != is_replicated(other, placements):
        return "not all threads need both"
    return None
