"""Folds over threads below a short loop: one call for all of its lanes.

    LANES l in 0:4                          s0, s1, s2, s3 = fold over threads of p[0] .. p[3]
      s[l] = fold over threads of p[l] ---> LANES l in 0:4
                                              s[l] = what the fold found of lane l

The call stands before the loop.  Legal iff the accumulators are registers that nothing else in the
loop writes, and all that the loop runs has all of its lanes wherever it runs: no guard stands in
it.  A call takes a power of two of lanes, as vectors have.
"""

import islpy as isl

from tcdsl.poly.loop_tree import MAPPED, Loop, LoopKind, loops_of, statements_of, values_of
from tcdsl.poly.scop import Statement
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.placement import Placements, is_private

_SHORT = (LoopKind.UNROLL, LoopKind.LANES)


def short_loop_around(mapped: Mapped, fold: Statement) -> Loop | None:
    """Return the innermost loop around *fold* that has several iterations, if it is a short one."""
    for loop in reversed(mapped.paths[fold.name]):
        if not _has_one_iteration(mapped, loop):
            return loop if loop.kind in _SHORT else None
    return None


def why_not_at_once(
    mapped: Mapped, placements: Placements, fold: Statement, loop: Loop
) -> str | None:
    """Return why no call folds all lanes of the short *loop* around *fold*, None if one can."""
    if fold.reduction is None or fold.reduction.operator.is_arg or not mapped.fold_axes(fold):
        return f"{fold.name} is no fold of values over threads"
    n = loop.extent or 0
    if n < 2 or n & (n - 1):
        return f"no vector has {n} lanes"
    (part,) = fold.parts
    if not is_private(part.array, placements):
        return f"{part.array} is not in registers"
    inside = [mapped.scop.by_name[name] for name in statements_of(loop.body)]
    if any(w.array == part.array for s in inside if s is not fold for w in s.writes):
        return f"{part.array} is written in {loop.name}"
    if not all(_has_one_iteration(mapped, inner) for inner in loops_of(loop.body)):
        return f"there are loops in {loop.name}"
    return None


def has_all_lanes(mapped: Mapped, loop: Loop) -> bool:
    """Return whether all that *loop* runs has all of its iterations wherever any has one."""
    name, *others = statements_of(loop.body)
    around = mapped.paths[name][: mapped.paths[name].index(loop)]
    lanes = isl.Set(f"{{ [lane] : 0 <= lane < {loop.extent} }}")
    everything = values_of(mapped.scop, name, around).range().flat_product(lanes)
    return all(
        values_of(mapped.scop, own, (*around, loop)).range().is_equal(everything)
        for own in (name, *others)
    )


def _has_one_iteration(mapped: Mapped, loop: Loop) -> bool:
    """Return whether *loop*, if it is not mapped, has one value in an iteration of those around."""
    if loop.kind in MAPPED:
        return False
    for name in statements_of(loop.body):
        path = mapped.paths[name]
        around = values_of(mapped.scop, name, path[: path.index(loop)])
        own = values_of(mapped.scop, name, (loop,))
        if not around.reverse().apply_range(own).is_single_valued():
            return False
    return True
