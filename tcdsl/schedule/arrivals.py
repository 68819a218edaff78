"""Which asynchronous copies have arrived after a barrier: all of them, or all but the last groups.

    for k                                    distance 2: what step k copies, step k + 2 reads
      copy of step k + 2
      reads of step k
      a group ends; wait for all but 1       before step k + 1: groups ..., k - 1 | k
      barrier

A barrier at the end of a loop's body ends a group in every iteration, and may leave the last
*groups_left* of them on their way.  What iteration i copies and iteration j reads has arrived iff
i's group is none of those that are left after iteration j - 1::

    i <= j - 1 - groups_left, and the barrier runs in iterations j - 1 - groups_left .. j - 1

so that d - 1 groups may be left where no reader is closer than d iterations to its copy: S - 2 with
S buffers, whose copies are S - 1 iterations ahead.  Such a barrier runs in iterations that have no
other work, too, where these are between others: in the first rows of a triangle the only copy is
S - 1 iterations before its reader, and no group would end between the two.
"""

from collections.abc import Sequence

import islpy as isl

from tcdsl.poly.isl_utils import constant_bounds, within
from tcdsl.poly.loop_tree import Loop, LoopKind, values_of
from tcdsl.poly.scop import Scop, Statement

Ends = tuple[str, str, isl.Map]  # a copy, what reads it, { copy -> reader }


def groups_left(scop: Scop, arrivals: Sequence[Ends], path: Sequence[Loop]) -> int:
    """Return how many groups a barrier at the end of the body of the last loop of *path* may leave.

    0 where it must wait for all copies.
    """
    if any(loop.kind is LoopKind.THREAD for loop in path):
        return 0
    distances = [_least_distance(scop, ends, path) for ends in arrivals]
    return max(0, min(distances, default=1) - 1)


def without_gaps(domain: isl.Set) -> isl.Set:
    """Return { [o,t] : b <= t <= e, [o,b] and [o,e] in *domain* }: no iteration is left out."""
    last = domain.dim(isl.dim_type.set) - 1
    space = domain.get_space()
    earlier = isl.Map.lex_le(space)
    for dim in range(last):
        earlier = earlier.equate(isl.dim_type.in_, dim, isl.dim_type.out, dim)
    later = domain.apply(earlier)
    filled = later.intersect(domain.apply(earlier.reverse()))
    return domain if filled.is_subset(domain) else filled.coalesce()


def has_arrived(scop: Scop, ends: Ends, path: Sequence[Loop], barrier: Statement) -> bool:
    """Return whether a *barrier* at the end of a body, inside *path*, lets all of *ends* arrive."""
    left = barrier.groups_left
    if _least_distance(scop, ends, path) <= left:
        return False
    readers = ends[2].range().apply(values_of(scop, ends[1], path))
    space = readers.get_space()
    last = readers.dim(isl.dim_type.set) - 1
    earlier = isl.Map.universe(space.map_from_domain_and_range(space))
    for dim in range(last):
        earlier = earlier.equate(isl.dim_type.in_, dim, isl.dim_type.out, dim)
    met = earlier.intersect_domain(readers).deltas_map()
    met = within(met, isl.dim_type.out, last, -left - 1, -1)
    needed = met.domain().unwrap().range()
    return bool(needed.is_subset(barrier.domain.reset_tuple_id()))


def _least_distance(scop: Scop, ends: Ends, path: Sequence[Loop]) -> int:
    """Return the least number of iterations of the last loop of *path* from copies to readers.

    0 where some are in different iterations of the loops around it.
    """
    copy, reader, relation = ends
    if relation.is_empty():
        return 1
    times = relation.apply_domain(values_of(scop, copy, path))
    deltas = times.apply_range(values_of(scop, reader, path)).deltas()
    *around, own = [constant_bounds(deltas, dim) for dim in range(len(path))]
    if own is None or any(bounds != (0, 0) for bounds in around):
        return 0
    return own[0]
