"""Bytes that a kernel moves between memory and itself, array by array.

    once     each element that the kernel touches, one time: what no cache can save
    blocks   each element once for every block that touches it: what a GPU's blocks ask for, if
             each keeps what it has loaded; from the footprint of an iteration of the BLOCK loops,
             and of the THREAD loops over the blocks of a cluster
    all      each access of each instance: what there would be without any reuse

An array that a kernel reads and writes counts as both.  Elements are counted by the box around
them, which is exact for dense accesses.
"""

from collections.abc import Collection, Sequence
from math import prod

import islpy as isl

from tcdsl.poly.footprints import Use, box_hull
from tcdsl.poly.isl_utils import points_of_box
from tcdsl.poly.loop_tree import RANK, Loop, LoopKind, Node, loops_around, loops_of, statements_of
from tcdsl.poly.scop import Access, Kind, Scop, Statement
from tcdsl.records import dataclass


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a kernel reads, or writes, of one array; None: not known."""

    array: str
    is_write: bool
    once_bytes: int | None
    all_bytes: int | None
    blocks_bytes: int | None = None  # None too where there are no blocks


def traffic_of(scop: Scop, tree: Node, local: Collection[str]) -> list[Traffic]:
    """Return the traffic of the kernel *tree*; the arrays *local* are not in memory."""
    reads: dict[str, list[tuple[Statement, Access]]] = {}
    writes: dict[str, list[tuple[Statement, Access]]] = {}
    for name in statements_of(tree):
        statement = scop.by_name[name]
        for found, accesses in ((reads, _loads(statement)), (writes, statement.writes)):
            for access in accesses:
                if access.array not in local:
                    found.setdefault(access.array, []).append((statement, access))
    return [
        _traffic(scop, tree, array, found[array], found is writes)
        for array in scop.arrays
        for found in (reads, writes)
        if array in found
    ]


def common_bytes(scop: Scop, one: Node, other: Node) -> int:
    """Return the bytes that both kernels touch, at most; arrays of open sizes count as nothing.

    Which elements are gathered is not known, but how many they are at most.
    """
    uses = [_uses(scop, kernel) for kernel in (one, other)]
    total = 0
    for array in scop.arrays:
        found = [own[array] for own in uses if array in own]
        if len(found) < 2:
            continue
        touched = [_union([access.relation.range() for _, access in own]) for own in found]
        counts = [points_of_box(touched[0].intersect(touched[1])), *map(_accesses, found)]
        elements = min((count for count in counts if count is not None), default=0)
        total += elements * scop.arrays[array].dtype.size_bytes
    return total


def _uses(scop: Scop, tree: Node) -> dict[str, list[tuple[Statement, Access]]]:
    """Return the accesses of the kernel *tree* to each array."""
    uses: dict[str, list[tuple[Statement, Access]]] = {}
    for statement in (scop.by_name[name] for name in statements_of(tree)):
        for access in (*statement.writes, *_loads(statement)):
            uses.setdefault(access.array, []).append((statement, access))
    return uses


def _loads(statement: Statement) -> Collection[Access]:
    """Return the reads of *statement*, of its accumulator too where it goes on from its value."""
    is_fresh = statement.reduction is not None and statement.reduction.initialise
    return statement.reads if statement.kind is Kind.FOLD and is_fresh else statement.all_reads


def _traffic(
    scop: Scop,
    tree: Node,
    array: str,
    uses: Sequence[tuple[Statement, Access]],
    is_write: bool,
) -> Traffic:
    size = scop.arrays[array].dtype.size_bytes
    touched = points_of_box(_union([access.relation.range() for _, access in uses]))
    accesses, by_blocks = _accesses(uses), _by_blocks(scop, tree, uses)
    if accesses is not None and by_blocks is not None:
        by_blocks = min(accesses, by_blocks)  # where a block's tiles lie apart, its box is larger
    return Traffic(
        array, is_write, _times(touched, size), _times(accesses, size), _times(by_blocks, size)
    )


def _accesses(uses: Sequence[tuple[Statement, Access]]) -> int | None:
    """Return how often an element is accessed, None if that depends on open sizes."""
    # A statement may access an element twice in one instance: it is loaded once.
    distinct = {(s.name, tuple(map(str, a.subscripts))): s for s, a in uses}
    instances = [points_of_box(statement.domain) for statement in distinct.values()]
    return None if None in instances else sum(n for n in instances if n is not None)


def _union(sets: Sequence[isl.Set]) -> isl.Set:
    union = sets[0]
    for other in sets[1:]:
        union = union.union(other)
    return union


def _by_blocks(scop: Scop, tree: Node, uses: Sequence[tuple[Statement, Access]]) -> int | None:
    """Return the elements that all blocks touch, together; None without blocks or a box."""
    around = {s.name: _blocks_around(tree, s.name) for s, _ in uses}
    shared = set.intersection(*({loop.name for loop in loops} for loops in around.values()))
    loops = [loop for loop in loops_of(tree) if loop.name in shared]
    if not loops or any(loop.extent is None for loop in loops):
        return None
    found = [Use(s, a, tuple(loop.coordinates[s.name] for loop in loops)) for s, a in uses]
    box = box_hull(scop, found)
    if box is None:
        return None
    return prod(box.sizes) * prod(loop.extent or 1 for loop in loops)


def _blocks_around(tree: Node, statement: str) -> list[Loop]:
    return [loop for loop in loops_around(tree, statement) if _is_over_blocks(loop)]


def _is_over_blocks(loop: Loop) -> bool:
    # Beyond z is the rank of a block in its cluster.
    return loop.kind is LoopKind.BLOCK or (loop.kind is LoopKind.THREAD and loop.axis == RANK)


def _times(count: int | None, size: int) -> int | None:
    return None if count is None else count * size
