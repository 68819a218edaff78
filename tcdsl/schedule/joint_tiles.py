"""Tiles of two factors that follow one another in each stage: one instruction reads both.

    stage 0   W.tile  stage 1   W.tile ..                stage 0  W.tile  V.tile   stage 1  ..
              V.tile            V.tile ..      --->

    g += X.tile * W.tile                       g, u += X.tile * (W.tile  V.tile)
    u += X.tile * V.tile

Products that share a tile are issued one after another, and each reads that tile from shared
memory; its columns are half of what an instruction may have.  Tiles are made of atoms of 128 bytes
of lines (device/cuda/wgmma.cuh), equally far apart: those of the second tile go on where the first
one's end, whichever of the two dimensions is contiguous.

Legal wherever both are in stages of one pipeline: places alone change.  The printer makes one call
of two neighbours that read the same rows and such columns (codegen/cuda/products).
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from tcdsl.costmodel.chip import WARP
from tcdsl.poly.loop_tree import Node
from tcdsl.poly.scop import Accumulation, Scop
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.placement import Layout, Placement, Placements


def with_joint_tiles(
    scop: Scop, trees: Sequence[Node], placements: Placements
) -> dict[str, Placement]:
    """Return *placements*, in which tiles of neighbouring products of *trees* follow each other."""
    found = dict(placements)
    for tree in trees:
        mapped = Mapped(scop, tree)
        products = [name for name in mapped.paths if _is_product(mapped, name)]
        for one, other in pairwise(products if mapped.has_roles else ()):
            first, second = _apart(scop, one, other)
            if _may_follow(found.get(first), found.get(second)):
                found[first] = replace(found[first], neighbours=2)
                found[second] = replace(found[second], neighbours=2, follows=first)
    return found


def _is_product(mapped: Mapped, name: str) -> bool:
    """Return whether four warps make *name* of half types, by the instruction alone."""
    statement = mapped.scop.by_name[name]
    types = {mapped.scop.arrays[read.array].dtype for read in statement.reads}
    is_plain = statement.accumulation in (None, Accumulation.DIRECT)
    return is_plain and mapped.together(name) > WARP and all(dtype.is_half for dtype in types)


def _apart(scop: Scop, one: str, other: str) -> tuple[str, str]:
    """Return what *one* and *other* read beside one array that they share, "" if they do not."""
    own, others = ({read.array for read in scop.by_name[name].reads} for name in (one, other))
    if len(own & others) != 1 or len(own) != 2 or len(others) != 2:
        return "", ""
    return (own - others).pop(), (others - own).pop()


def _may_follow(one: Placement | None, other: Placement | None) -> bool:
    """Return whether a buffer of *other* may go on where one of *one* ends."""
    if one is None or other is None or one.neighbours > 1 or other.neighbours > 1:
        return False
    are_atoms = one.layout is other.layout is Layout.ATOMS and one.is_dynamic and other.is_dynamic
    return are_atoms and one.ring is not None and (one.ring, one.dims) == (other.ring, other.dims)
