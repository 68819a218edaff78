"""How copies to shared memory move: by which instructions, as the printer makes them.

    tma_box     a request of a whole box (TMA), by a producer's warp; im2col: a box of pixels
    cp_async    asynchronous copies of 4, 8 or 16 bytes, memory to memory, by all threads
    vector      loads to registers and stores from there, of neighbours at once, or of one element
    repack      the same where elements change their type, or neighbours in memory are not those of
                the tile: each is stored by itself

The kind of a copy follows from its schedule: a producer's role, a placement that is filled by
asynchronous copies, and the lanes that are around it.
"""

from math import prod

from tcdsl.codegen.cuda.copies import copy_of
from tcdsl.costmodel.locality import array_strides
from tcdsl.lang.comprehension import Expr, Index, walk
from tcdsl.poly.bulk_copies import is_box, walked
from tcdsl.poly.loop_tree import LoopKind, Node, loops_around, statements_of
from tcdsl.poly.scop import PRODUCER, Array, Scop, Statement
from tcdsl.schedule.placement import Placements, Space

ASYNCHRONOUS_BYTES = (4, 8, 16)  # of cp.async; what is less is loaded and stored


def print_copies(scop: Scop, tree: Node, placements: Placements) -> list[str]:
    """Return a line for each copy from memory to shared memory below *tree*.

    ``copy of A to A.tile0: cp_async, 16 bytes``
    """
    lines = []
    for name in statements_of(tree):
        statement = scop.by_name[name]
        if (how := mechanism_of(scop, tree, statement, placements)) is not None:
            lines.append(f"copy of {statement.reads[0].array} to {statement.write.array}: {how}")
    return lines


def mechanism_of(
    scop: Scop, tree: Node, statement: Statement, placements: Placements
) -> str | None:
    """Return how *statement* moves what it copies, None if it is no copy to shared memory."""
    placement = placements.get(statement.write.array)
    if placement is None or placement.space is not Space.SHARED or copy_of(statement) is None:
        return None
    from_, to = scop.arrays[statement.reads[0].array], scop.arrays[statement.write.array]
    if from_.name in placements:
        return None
    if statement.role == PRODUCER:
        bulk = statement.bulk
        is_whole = bulk is None or is_box(walked(from_, array_strides(from_), bulk))
        return "tma_box" if is_whole else "tma_box, im2col"
    loops = loops_around(tree, statement.name)
    lanes = prod(loop.extent or 1 for loop in loops if loop.kind is LoopKind.LANES)
    size_bytes = lanes * to.dtype.size_bytes
    if placement.is_staged and size_bytes in ASYNCHRONOUS_BYTES:
        return f"cp_async, {size_bytes} bytes"
    if from_.dtype != to.dtype or not _has_same_neighbours(statement, from_):
        return "repack"
    return f"vector, {size_bytes} bytes"


def _has_same_neighbours(statement: Statement, from_: Array) -> bool:
    """Return whether one index counts neighbours of the tile, and those of *from_* in memory."""
    strides = array_strides(from_)
    near = [s for s, step in zip(statement.reads[0].subscripts, strides, strict=True) if step == 1]
    return any(_indices(statement.write.subscripts[-1]) & _indices(subscript) for subscript in near)


def _indices(subscript: Expr) -> set[str]:
    return {node.name for node in walk(subscript) if isinstance(node, Index)}
