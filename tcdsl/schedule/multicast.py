"""What the blocks of a cluster copy once, to the shared memory of all of them (sm_90).

    block x = 0    B.tile = B[.., n]                  the first half of B.tile, to both blocks
    block x = 1    B.tile = B[.., n]       --->       the second half, to both blocks

Each block has the copy as a statement of its own.  Where neighbours along an axis of the grid are
in one cluster (``Loop.cluster``), and what the copy reads does not depend on which of them runs it,
each block asks for a part of the box, which arrives in all.

Legal iff the neighbours meet the same steps: then the stage of a step is free where all readers of
all blocks have released it, and full where all parts have arrived (:func:`why_not_in_clusters`).
With the order that :mod:`tcdsl.schedule.pipelines` proves of one block, a part that another block
copies comes after all that read what was there, and before all that read it.
"""

from math import prod

import islpy as isl

from tcdsl.poly.isl_utils import greatest
from tcdsl.poly.loop_tree import Coordinate, Loop, LoopKind
from tcdsl.poly.scop import Scop, Statement
from tcdsl.records import dataclass
from tcdsl.schedule.mapping import Mapped

ATOM_LINES, LINE_BYTES = 8, 128  # of an atom: see device/cuda/wgmma.cuh


@dataclass(frozen=True, slots=True)
class Share:
    """A copy's *parts*, of blocks whose ranks in the cluster are a *stride* apart.

    They are atoms next to one another, or of each so many parts of the *lines*.
    """

    parts: int = 1
    stride: int = 1
    lines: int = 1


def share_of(mapped: Mapped, name: str) -> Share:
    """Return how the blocks of a cluster share the copy *name*; one part: each has its own."""
    copy, strides = mapped.scop.by_name[name], _strides(mapped)
    for loop in _clustered(mapped.paths[name]) if copy.bulk is None else []:
        parts, (lines, atoms) = loop.cluster, _sizes(mapped.scop, copy)
        of_lines = 1 if atoms % parts == 0 else parts
        if _is_same(copy, loop) and lines % (ATOM_LINES * of_lines) == 0:
            return Share(parts, strides[loop.axis], of_lines)
    return Share()


def _strides(mapped: Mapped) -> list[int]:
    """Return how far apart in rank the neighbours along x, y, z are."""
    return [prod(mapped.neighbours[:axis]) for axis in range(3)]


def _clustered(path: tuple[Loop, ...]) -> list[Loop]:
    return [loop for loop in path if loop.kind is LoopKind.BLOCK and loop.cluster > 1]


def _sizes(scop: Scop, copy: Statement) -> tuple[int, int]:
    """Return how many lines the tile has that *copy* fills, and atoms next to one another."""
    array = scop.arrays[copy.reads[0].array]
    sizes = scop.arrays[copy.write.array].shape[-array.rank :]
    *lines, length = (greatest(extent) or 0 for extent in sizes)
    return prod(lines), length * array.dtype.size_bytes // LINE_BYTES


def _is_same(copy: Statement, loop: Loop) -> bool:
    """Return whether all neighbours along *loop* read the same with *copy*."""
    coordinate = loop.coordinates[copy.name]
    if not isinstance(coordinate, Coordinate) or coordinate != Coordinate(coordinate.position):
        return False
    reads = copy.reads[0].relation
    together = _together(copy.domain, coordinate.position, loop.cluster)
    of_all = together.reverse().apply_range(reads)
    return bool(of_all.is_single_valued()) and all(
        _is_closed(domain, coordinate.position, loop.cluster)
        for domain in (copy.domain, reads.domain())
    )


def _together(domain: isl.Set, dim: int, size: int) -> isl.Map:
    """Return { i -> i with i[dim] / size }: the same for *size* neighbours along *dim*."""
    function = isl.MultiAff.identity_on_domain_space(domain.get_space()).set_tuple_id(
        isl.dim_type.out, isl.Id("neighbours")
    )
    own = function.get_aff(dim).scale_down_val(isl.Val(size)).floor()
    return isl.Map.from_multi_aff(function.set_aff(dim, own)).intersect_domain(domain)


def _is_closed(domain: isl.Set, dim: int, size: int) -> bool:
    """Return whether *domain* has all of *size* neighbours along *dim*, or none."""
    universe = isl.Set.universe(domain.get_space())
    together = _together(universe, dim, size)
    return bool(domain.apply(together).apply(together.reverse()).is_equal(domain))


def why_not_in_clusters(mapped: Mapped, path: tuple[Loop, ...], events: isl.Set) -> str | None:
    """Return why the blocks of a cluster do not take stages together, or None.

    :arg path: the loops down to that over the stages.
    :arg events: the iterations of these that meet an event.
    """
    for depth, loop in enumerate(path):
        if loop.cluster == 1:
            continue
        if loop.kind is not LoopKind.BLOCK or loop.width % loop.cluster:
            return f"{loop.name} has no whole clusters of blocks"
        if not _is_closed(events, depth, loop.cluster):
            return f"the blocks of a cluster along {loop.name} have different steps"
    return None
