"""Halos of periodic arrays: what is read around the ends is computed again on the other side.

    h(i) = x((i + 1) % N)                        h(i) = x((i + N + 1) % N)     -1 <= i < N
    y(i) = h(i) + h((i + N - 1) % N)    --->     y(i) = h(i) + h(i - 1)         0 <= i < N

          h   [0 ......... N-1]                  y(0) reads h(N - 1)
          h   [-1, 0 ..... N-1]                  y(0) reads h(-1), which is that value once more

All reads of h are at constant distances then, as those of a chain of stencils are
(stencil_chains.py), and its tiles need not know of the ends.  Legal iff one plain statement assigns
h, a temporary, for all of [0, N), from what does not change before h is read; and each read of h is
at i + c, or at (i + c) % N, of indices i of a plain statement; then h(i) is what it was at i % N.
A halo has a period at most.  The last arrays first: their halos may read others around the ends.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

import islpy as isl

from tcdsl.lang.comprehension import Binary, Const, Expr, Index, Load, walk
from tcdsl.lang.rewrite import plus, rewrite
from tcdsl.lang.types.dtypes import INT32, DType
from tcdsl.poly.isl_utils import constant_bounds, points_of_box, within
from tcdsl.poly.lowering import access, builder_of
from tcdsl.poly.scop import Kind, Scop, Statement
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.assignment import with_own_reads
from tcdsl.rewrites.scop.distances import index_and_distance, number_of
from tcdsl.rewrites.scop.recomputation import is_temporary, writers_and_users

MOST_PERIOD = (1 << 31) // 3  # an index, a distance and a period more are an int32
_OWN = "'"  # ends the name of an index that stays as it is


def with_periodic_halos(scop: Scop, arrays: Collection[str] | None = None) -> Scop:
    """Return *scop* with halos for what is read around the ends of *arrays*, of all if None."""
    for statement in reversed(scop.statements):
        if arrays is None or statement.write.array in arrays:
            scop = _with_halo(scop, scop.by_name[statement.name])
    return scop


@dataclass(frozen=True, slots=True)
class _Read:
    """A dimension of a load is read at *index* + *distance*, *around* its ends or not."""

    index: str
    distance: int
    around: bool


def _with_halo(scop: Scop, writer: Statement) -> Scop:
    """Return *scop* with what *writer* assigns beyond its ends, where it is read around them."""
    if not is_temporary(scop, writer) or not _is_plain(writer) or writer.domain.is_empty():
        return scop
    array = scop.arrays[writer.write.array]
    shape = [extent for extent in array.shape if isinstance(extent, int)]
    writers, users = writers_and_users(scop, array.name)
    if array.origin != (0,) * array.rank or len(shape) < array.rank or len(writers) > 1:
        return scop
    if not all(map(_is_plain, users)) or writer in users or _changes(scop, writer):
        return scop
    if points_of_box(writer.domain) != prod(shape) or max(shape, default=0) > MOST_PERIOD:
        return scop
    bounds = _bounds(scop, array.name, users, shape)
    if bounds is None:
        return scop
    origin = tuple(first for first, _ in bounds)
    extents = tuple(last - first + 1 for first, last in bounds)
    arrays = {**scop.arrays, array.name: replace(array, origin=origin, shape=extents)}
    wide = replace(scop, arrays=arrays)
    new = {user.name: _at_distances(wide, user, array.name, shape) for user in users}
    new[writer.name] = _around(wide, writer, shape, bounds)
    return wide.with_statements(tuple(new.get(s.name, s) for s in wide.statements))


def _changes(scop: Scop, writer: Statement) -> bool:
    """Return whether what *writer* reads is written after it."""
    sources = {read.array for read in writer.reads}
    later = scop.statements[scop.position(writer.name) :]
    return any(write.array in sources for s in later for write in s.writes)


def _is_plain(statement: Statement) -> bool:
    return (
        statement.kind is Kind.ASSIGN
        and not statement.conditions
        and statement.value is not None
        and statement.write.is_exact
    )


def _bounds(
    scop: Scop, array: str, users: Sequence[Statement], shape: Sequence[int]
) -> list[tuple[int, int]] | None:
    """Return the first and the last index of each dimension of *array*, with its halo.

    None if *users* read at other places than i + c and (i + c) % N, or never beyond the ends.
    """
    whole = [(0, extent - 1) for extent in shape]
    read_at, around = list(whole), [False] * len(shape)
    for user in users:
        ends = {name: constant_bounds(user.domain, n) for n, name in enumerate(user.indices)}
        for load in _loads(user, array):
            for dim, subscript in enumerate(load.subscripts):
                read = _read(subscript, shape[dim], scop.sizes)
                own = ends.get(read.index) if read is not None else None
                if read is None or own is None:
                    return None
                low, high = (end + read.distance for end in own)
                read_at[dim] = min(read_at[dim][0], low), max(read_at[dim][1], high)
                around[dim] |= read.around
    # A guard keeps what is read beside it within the ends: along such dimensions nothing changes.
    dims = zip(read_at, whole, around, strict=True)
    found = [places if is_around else own for places, own, is_around in dims]
    is_near = all(-n <= low and high < 2 * n for (low, high), n in zip(found, shape, strict=True))
    return found if is_near and found != whole else None


def _loads(statement: Statement, array: str) -> Iterator[Load]:
    assert statement.value is not None, "a plain statement"
    for node in walk(statement.value):
        if isinstance(node, Load) and node.tensor == array:
            yield node


def _read(expr: Expr, period: int, sizes: Mapping[str, int | None]) -> _Read | None:
    """Return how *expr* reads a dimension of *period* elements, None if in another way."""
    match expr:
        case Binary(op="%", left=left, right=right) if number_of(right, sizes) == period:
            found = index_and_distance(left, sizes)
            if found is None:
                return None
            nearest = (found[1] + period // 2) % period - period // 2
            return _Read(found[0], nearest, around=True)
    found = index_and_distance(expr, sizes)
    return None if found is None else _Read(*found, around=False)


def _at_distances(scop: Scop, user: Statement, array: str, shape: Sequence[int]) -> Statement:
    """Return *user* with loads of *array* around its ends at places beyond them."""

    def change(node: Expr) -> Expr:
        if not isinstance(node, Load) or node.tensor != array:
            return node
        subscripts = []
        for subscript, period in zip(node.subscripts, shape, strict=True):
            read = _read(subscript, period, scop.sizes)
            assert read is not None, "_bounds"
            moved = plus(Index(read.index, subscript.dtype), Const(read.distance, INT32))
            subscripts.append(moved if read.around else subscript)
        return replace(node, subscripts=tuple(subscripts))

    assert user.value is not None
    return with_own_reads(scop, replace(user, value=rewrite(user.value, change)))


def _around(
    scop: Scop, writer: Statement, shape: Sequence[int], bounds: Sequence[tuple[int, int]]
) -> Statement:
    """Return *writer* for all indices in *bounds*, modulo their periods where these are wider."""
    wide = zip(writer.indices, shape, bounds, strict=True)
    periods = {name: extent for name, extent, found in wide if found != (0, extent - 1)}

    def of_remainder(node: Expr) -> Expr:
        """(i + c) % N is (i + c + N) % N, also of i from -N on."""
        match node:
            case Binary(op="%", left=left, right=right):
                found = index_and_distance(left, scop.sizes)
                period = None if found is None else periods.get(found[0])
                if found and period is not None and number_of(right, scop.sizes) == period:
                    return _remainder(found[0], found[1], period, node.dtype)
        return node

    def of_index(node: Expr) -> Expr:
        if isinstance(node, Index) and node.name in periods:
            return _remainder(node.name, 0, periods[node.name], node.dtype)
        return node

    def renamed(node: Expr) -> Expr:
        if isinstance(node, Index) and node.name.endswith(_OWN):
            return replace(node, name=node.name.removesuffix(_OWN))
        return node

    assert writer.value is not None
    value = rewrite(rewrite(rewrite(writer.value, of_remainder), of_index), renamed)
    domain = isl.Set.universe(writer.domain.get_space())
    for dim, ends in enumerate(bounds):
        domain = within(domain, isl.dim_type.set, dim, *ends)
    builder = builder_of(writer.indices, writer.name, scop.sizes)
    write = access(builder, writer.write.array, writer.write.subscripts, scop.arrays, domain)
    return with_own_reads(scop, replace(writer, domain=domain, value=value, write=write))


def _remainder(index: str, distance: int, period: int, dtype: DType) -> Expr:
    """Return ``(index + distance) % period`` for an index from -period on, which stays as it is."""
    moved = plus(Index(index + _OWN, dtype), Const(distance % period + period, INT32))
    return Binary("%", moved, Const(period, dtype), dtype)
