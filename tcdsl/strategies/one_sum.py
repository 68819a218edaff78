"""The products of a sum one after another: the first has the steps of all, in the same tiles.

    q < 9:   X.tile[q], W.tile[q] = X, W              q < 9:   X.tile[q], W.tile[q] = X, W
    q < 9:   c += X.tile[q] * W.tile[q]               q >= 9:  X.tile[q], W.tile[q] = U, V
    q >= 9:  U.tile[q], V.tile[q] = U, V      --->    c += X.tile[q] * W.tile[q]
    q >= 9:  d += U.tile[q] * V.tile[q]
    C = c;  C += d                                    C = c

So there is one pipeline, whose stages run on from one product to the next, and one instruction of
tensor cores in its loop: that its operands come from several arrays only copies know.

Legal iff the tiles of all products are alike, which ``joint_products`` asks of their factors, and
c is of C's type: then C = c; C += d adds the same terms.  All this is done where the last product
was, which its factors, and what computes them, come before; those of the others do not change
meanwhile, and nothing uses C.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

import islpy as isl

from tcdsl.lang.comprehension import Select
from tcdsl.poly.accesses import access, builder_of
from tcdsl.poly.isl_utils import Extent
from tcdsl.poly.scop import Array, Scop, Statement
from tcdsl.rewrites.scop.assignment import with_own_reads


def one_sum(
    scop: Scop, tiles: Mapping[str, str], dropped: Collection[str], own: Mapping[str, isl.Set]
) -> Scop:
    """Return *scop* with products in the tiles of the first, which has the steps of all.

    :arg tiles: { the tile of another product -> that of the first one in whose place it is }.
    :arg dropped: the other products, and what initialises and stores their sums.
    :arg own: { a copy to a tile of the first -> its instances in the steps of that product }.
    """
    sums = {scop.by_name[name].write.array for name in dropped}
    kept = [s for s in scop.statements if s.name not in dropped]
    sums -= {one.array for s in kept for one in (*s.writes, *s.reads)}
    arrays = {name: own for name, own in scop.arrays.items() if name not in {*tiles, *sums}}
    for other, tile in tiles.items():
        arrays[tile] = _hull(arrays[tile], scop.arrays[other])
    done = replace(scop, arrays=arrays)
    new = {name: _on(scop, scop.by_name[name], domain) for name, domain in own.items()}
    new |= {s.name: _to(done, s, tiles[s.write.array]) for s in kept if s.write.array in tiles}
    (first,) = (s for s in kept if any(read.array in tiles.values() for read in s.reads))
    accumulating = [s for s in kept if _uses(s, first.write.array)]
    moved = (*new.values(), *accumulating)
    names, last = {s.name for s in moved}, max(map(scop.position, dropped))
    others = [s for s in kept if s.name not in names]
    place = sum(scop.position(s.name) < last for s in others)
    return done.with_statements((*others[:place], *moved, *others[place:]))


def _uses(statement: Statement, array: str) -> bool:
    return any(one.array == array for one in (*statement.writes, *statement.reads))


def _on(scop: Scop, copy: Statement, domain: isl.Set) -> Statement:
    """Return *copy* with the instances *domain* alone; a guard that always holds there is none."""
    value, builder = copy.value, builder_of(copy.indices, copy.name, scop.sizes)
    if isinstance(value, Select) and domain.is_subset(builder.truth(value.condition).below):
        value = value.if_true
    write = access(builder, copy.write.array, copy.write.subscripts, scop.arrays, domain)
    return with_own_reads(scop, replace(copy, domain=domain, value=value, write=write))


def _to(scop: Scop, copy: Statement, array: str) -> Statement:
    """Return *copy* with the same elements of *array* for what it writes."""
    builder = builder_of(copy.indices, copy.name, scop.sizes)
    write = access(builder, array, copy.write.subscripts, scop.arrays, copy.domain)
    return replace(copy, write=write)


def _hull(one: Array, other: Array) -> Array:
    """Return *one* with room for the elements of *other*, too: they differ along steps alone."""
    sides = zip(one.origin, one.shape, other.origin, other.shape, strict=True)
    spans = [_span((low, size), (start, count)) for low, size, start, count in sides]
    origin, shape = zip(*spans, strict=True)
    return replace(one, origin=origin, shape=shape)


def _span(one: tuple[Extent, Extent], other: tuple[Extent, Extent]) -> tuple[Extent, Extent]:
    """Return the first index and the number of indices of both; of open ones they are the same."""
    (low, size), (start, count) = one, other
    if not (isinstance(low, int) and isinstance(size, int)):
        return one
    if not (isinstance(start, int) and isinstance(count, int)):
        return one
    first = min(low, start)
    return first, max(low + size, start + count) - first
