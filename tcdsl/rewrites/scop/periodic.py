"""Periodic results beyond their ends: what is read around the ends lies beside them as well.

    h(i) = x((i + 1) % N)                        h(i) = x((i + N + 1) % N)     -1 <= i < N
    y(i) = h(i) + h((i + N - 1) % N)    --->     y(i) = h(i) + h(i - 1)         0 <= i < N

          h   [0 ......... N-1]                  y(0) reads h(N - 1)
          h   [-1, 0 ..... N-1]                  y(0) reads h(-1), which is that value once more

All reads of h are at constant distances then, as those of a chain of stencils are
(stencil_chains.py), and its tiles need not know of the ends.  Legal iff one plain statement assigns
h, which nothing else sees, for all of [0, N), from what does not change before h is read; and each
read of h is at i + c, or at (i + c) % N, of indices i of a plain statement; then h(i) is what it
was at i % N.  The last arrays first: what they are read for beyond their ends may be periodic, too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

import islpy as isl

from tcdsl.lang.comprehension import Binary, Const, Expr, Index, Load, Size, walk
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import DType
from tcdsl.poly.isl_utils import constant_bounds, points_of_box, within
from tcdsl.poly.lowering import access, builder_of
from tcdsl.poly.scop import Kind, Scop, Statement, Storage
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.assignment import with_own_reads
from tcdsl.rewrites.scop.distances import index_and_distance
from tcdsl.rewrites.scop.recomputation import writers_and_users

_OWN = "'"  # ends the name of an index that is where it was


def beyond_ends(scop: Scop) -> Scop:
    """Return *scop* with periodic arrays that have what is read around their ends beside them."""
    for statement in reversed(scop.statements):
        scop = _widened(scop, scop.by_name[statement.name])
    return scop


@dataclass(frozen=True, slots=True)
class _Read:
    """A dimension of a load is read at *index* + *distance*, *around* its ends or not."""

    index: str
    distance: int
    around: bool


def _widened(scop: Scop, writer: Statement) -> Scop:
    """Return *scop* with what *writer* assigns beyond its ends, where it is read around them."""
    array = scop.arrays[writer.write.array]
    if array.storage is not Storage.SCRATCH or not _is_plain(writer) or writer.domain.is_empty():
        return scop
    shape = [extent for extent in array.shape if isinstance(extent, int)]
    names = [s.name for s in writer.write.subscripts if isinstance(s, Index)]
    is_whole = array.origin == (0,) * array.rank and len(shape) == len(names) == array.rank
    if not is_whole or sorted(names) != sorted(writer.indices):
        return scop
    writers, users = writers_and_users(scop, array.name)
    if len(writers) != 1 or not all(map(_is_plain, users)) or writer in users:
        return scop
    if points_of_box(writer.domain) != prod(shape) or _changes(scop, writer):
        return scop
    bounds = _bounds(scop, array.name, users, shape)
    if bounds is None:
        return scop
    origin = tuple(first for first, _ in bounds)
    extents = tuple(last - first + 1 for first, last in bounds)
    arrays = {**scop.arrays, array.name: replace(array, origin=origin, shape=extents)}
    wide = replace(scop, arrays=arrays)
    turns = {
        name: extent
        for name, extent, found in zip(names, shape, bounds, strict=True)
        if found != (0, extent - 1)
    }
    new = {user.name: _at_distances(wide, user, array.name, shape) for user in users}
    new[writer.name] = _around(wide, writer, turns, dict(zip(names, bounds, strict=True)))
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
    """Return the first and the last index of each dimension of *array* that *users* read.

    None if they read at other places than i + c and (i + c) % N, or never around the ends.
    """
    found = [(0, extent - 1) for extent in shape]
    for user in users:
        ends = {name: constant_bounds(user.domain, n) for n, name in enumerate(user.indices)}
        for load in _loads(user, array):
            for dim, subscript in enumerate(load.subscripts):
                read = _read(subscript, shape[dim], scop.sizes)
                own = ends.get(read.index) if read is not None else None
                if read is None or own is None:
                    return None
                low, high = (end + read.distance for end in own)
                found[dim] = min(found[dim][0], low), max(found[dim][1], high)
    periods = zip(found, shape, strict=True)
    is_near = all(-extent <= low and high < 2 * extent for (low, high), extent in periods)
    is_wider = found != [(0, extent - 1) for extent in shape]
    return found if is_near and is_wider else None


def _loads(statement: Statement, array: str) -> Iterator[Load]:
    assert statement.value is not None, "a plain statement"
    for node in walk(statement.value):
        if isinstance(node, Load) and node.tensor == array:
            yield node


def _read(expr: Expr, period: int, sizes: Mapping[str, int | None]) -> _Read | None:
    """Return how *expr* reads a dimension of *period* elements, None if in another way."""
    match expr:
        case Binary(op="%", left=left, right=right) if _number(right, sizes) == period:
            found = index_and_distance(left, sizes)
            if found is None:
                return None
            nearest = (found[1] + period // 2) % period - period // 2
            return _Read(found[0], nearest, around=True)
    found = index_and_distance(expr, sizes)
    return None if found is None else _Read(*found, around=False)


def _number(expr: Expr, sizes: Mapping[str, int | None]) -> int | None:
    match expr:
        case Const(value=int(value)):
            return int(value)
        case Size(name=name):
            return sizes[name]
    return None


def _at_distances(scop: Scop, user: Statement, array: str, shape: Sequence[int]) -> Statement:
    """Return *user* with loads of *array* around its ends at places beyond them."""

    def change(node: Expr) -> Expr:
        if not isinstance(node, Load) or node.tensor != array:
            return node
        subscripts = []
        for subscript, period in zip(node.subscripts, shape, strict=True):
            read = _read(subscript, period, scop.sizes)
            assert read is not None, "asked before"
            moved = _plus(Index(read.index, subscript.dtype), read.distance, subscript.dtype)
            subscripts.append(moved if read.around else subscript)
        return replace(node, subscripts=tuple(subscripts))

    assert user.value is not None
    return with_own_reads(scop, replace(user, value=rewrite(user.value, change)))


def _around(
    scop: Scop, writer: Statement, turns: Mapping[str, int], bounds: Mapping[str, tuple[int, int]]
) -> Statement:
    """Return *writer* for all indices in *bounds*, those of *turns* taken modulo their extents."""

    def turned(node: Expr) -> Expr:
        """(i + c) % N is (i + c + N) % N, also of i from -N on."""
        match node:
            case Binary(op="%", left=left, right=right):
                found, period = index_and_distance(left, scop.sizes), _number(right, scop.sizes)
                if found is not None and found[0] in turns and turns[found[0]] == period:
                    return _turn(found[0], found[1], turns[found[0]], node.dtype)
        return node

    def named(node: Expr) -> Expr:
        if isinstance(node, Index) and node.name in turns:
            return _turn(node.name, 0, turns[node.name], node.dtype)
        return node

    def renamed(node: Expr) -> Expr:
        if isinstance(node, Index) and node.name.endswith(_OWN):
            return replace(node, name=node.name.removesuffix(_OWN))
        return node

    assert writer.value is not None
    value = rewrite(rewrite(rewrite(writer.value, turned), named), renamed)
    domain = isl.Set.universe(writer.domain.get_space())
    for dim, name in enumerate(writer.indices):
        domain = within(domain, isl.dim_type.set, dim, *bounds[name])
    builder = builder_of(writer.indices, writer.name, scop.sizes)
    write = access(builder, writer.write.array, writer.write.subscripts, scop.arrays, domain)
    return with_own_reads(scop, replace(writer, domain=domain, value=value, write=write))


def _turn(index: str, distance: int, period: int, dtype: DType) -> Expr:
    """Return ``(index + distance) % period`` for an index from -period on, which stays as it is."""
    moved = _plus(Index(index + _OWN, dtype), distance % period + period, dtype)
    return Binary("%", moved, Const(period, dtype), dtype)


def _plus(expr: Expr, number: int, dtype: DType) -> Expr:
    return Binary("+", expr, Const(number, dtype), dtype) if number else expr
