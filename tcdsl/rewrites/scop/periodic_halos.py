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

Of an open size remainders are comparisons (``lang/remainders``), and halos end at functions of it.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import islpy as isl

from tcdsl.lang.comprehension import Binary, Const, Expr, Index, Load, Size, walk
from tcdsl.lang.linear_forms import index_and_distance, number_of
from tcdsl.lang.ranges.affine import Builder
from tcdsl.lang.remainders import Around, compared_of
from tcdsl.lang.rewrite import plus, rewrite
from tcdsl.lang.types.dtypes import INT32, DType
from tcdsl.poly.accesses import access, builder_of
from tcdsl.poly.isl_utils import (
    Extent,
    dim_bounds,
    greatest,
    minus,
    number_if_constant,
    within_bounds,
)
from tcdsl.poly.open_remainders import MOST_PERIOD, as_comparison
from tcdsl.poly.scop import Array, Kind, Scop, Statement
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.assignment import with_own_reads
from tcdsl.rewrites.scop.recomputation import is_temporary, writers_and_users

_OWN = "'"  # ends the name of an index that stays as it is
_NO_HALO = (0, 0)
Halo = tuple[int, int]  # of a dimension: its first index, and what lies behind its last one


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
    writers, users = writers_and_users(scop, array.name)
    if array.origin != (0,) * array.rank or len(writers) > 1:
        return scop
    if not all(map(_is_plain, users)) or writer in users or _changes(scop, writer):
        return scop
    if not _is_whole(scop, writer, array):
        return scop
    halos = _halos(scop, array, users)
    found = None if halos is None else _around(scop, writer, array, halos)
    if halos is None or found is None:
        return scop
    origin = tuple(first for first, _ in halos)
    dims = zip(array.shape, halos, strict=True)
    extents = tuple(minus(extent, first - behind) for extent, (first, behind) in dims)
    arrays = {**scop.arrays, array.name: replace(array, origin=origin, shape=extents)}
    wide = replace(scop, arrays=arrays)
    new = {user.name: _at_distances(wide, user, array) for user in users}
    new[writer.name] = _with_accesses(wide, found)
    return wide.with_statements(tuple(new.get(s.name, s) for s in wide.statements))


def _is_whole(scop: Scop, writer: Statement, array: Array) -> bool:
    """Return whether *writer* assigns all of *array*, whose extents are small enough."""
    most = [greatest(extent) for extent in array.shape]
    if any(extent is None or extent > MOST_PERIOD for extent in most):
        return False
    return _box(scop, writer, array, [_NO_HALO] * array.rank).is_equal(writer.domain)


def _box(scop: Scop, writer: Statement, array: Array, halos: Sequence[Halo]) -> isl.Set:
    """Return the instances of *writer* for all of *array* and its *halos*."""
    domain = isl.Set.universe(writer.domain.get_space()).intersect_params(scop.context)
    for dim, (first, behind) in enumerate(halos):
        domain = within_bounds(domain, dim, first, minus(array.shape[dim], -behind))
    return domain


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


def _halos(scop: Scop, array: Array, users: Sequence[Statement]) -> list[Halo] | None:
    """Return the halo of each dimension of *array*.

    None if *users* read at other places than i + c and (i + c) % N, or never beyond the ends.
    """
    read_at, around = [_NO_HALO] * array.rank, [False] * array.rank
    for user in users:
        ends = {n: dim_bounds(user.domain, d, scop.context) for d, n in enumerate(user.indices)}
        for load in _loads(user, array.name):
            for dim, subscript in enumerate(load.subscripts):
                read = _read(subscript, array.shape[dim], scop)
                if read is None or read.index not in ends:
                    return None
                first, end = ends[read.index]
                behind = _difference(scop, end, array.shape[dim])
                if not isinstance(first, int) or behind is None:
                    return None
                low, high = read_at[dim]
                read_at[dim] = min(low, first + read.distance), max(high, behind + read.distance)
                around[dim] |= read.around
    # A guard keeps what is read beside it within the ends: along such dimensions nothing changes.
    dims = zip(read_at, around, strict=True)
    found = [halo if is_around else _NO_HALO for halo, is_around in dims]
    least = [e if isinstance(e, int) else int(e.min_val().to_python()) for e in array.shape]
    is_near = all(-n <= low and high <= n for (low, high), n in zip(found, least, strict=True))
    return found if is_near and any(halo != _NO_HALO for halo in found) else None


def _difference(scop: Scop, one: Extent, other: Extent) -> int | None:
    """Return ``one - other`` if it is one number for all open sizes."""
    found = minus(one, other)
    if not isinstance(found, int):
        found = number_if_constant(found, scop.context)
    return found if isinstance(found, int) else None


def _loads(statement: Statement, array: str) -> Iterator[Load]:
    assert statement.value is not None, "a plain statement"
    for node in walk(statement.value):
        if isinstance(node, Load) and node.tensor == array:
            yield node


def _read(expr: Expr, period: Extent, scop: Scop) -> _Read | None:
    """Return how *expr* reads a dimension of *period* elements, None if in another way."""
    match expr:
        case Binary(op="%", left=left, right=right) if (
            isinstance(period, int) and number_of(right, scop.sizes) == period
        ):
            found = index_and_distance(left, scop.sizes)
            if found is None:
                return None
            nearest = (found[1] + period // 2) % period - period // 2
            return _Read(found[0], nearest, around=True)
    around = compared_of(expr, scop.sizes)
    if around is not None and around.size == _size_of(period, scop):
        return _Read(around.index, around.distance, around=True)
    found = index_and_distance(expr, scop.sizes)
    return None if found is None else _Read(*found, around=False)


def _size_of(extent: Extent, scop: Scop) -> str | None:
    """Return the open size that *extent* is, None if it is something else."""
    if isinstance(extent, int):
        return None
    builder = Builder(scop.context.get_space(), scop.sizes)
    for name in (name for name, value in scop.sizes.items() if value is None):
        size = builder.affine(Size(name))
        if size is not None and _difference(scop, extent, size) == 0:
            return name
    return None


def _at_distances(scop: Scop, user: Statement, array: Array) -> Statement:
    """Return *user* with loads of *array* around its ends at places beyond them."""

    def change(node: Expr) -> Expr:
        if not isinstance(node, Load) or node.tensor != array.name:
            return node
        subscripts = []
        for subscript, period in zip(node.subscripts, array.shape, strict=True):
            read = _read(subscript, period, scop)
            assert read is not None, "_halos"
            moved = plus(Index(read.index, subscript.dtype), Const(read.distance, INT32))
            subscripts.append(moved if read.around else subscript)
        return replace(node, subscripts=tuple(subscripts))

    assert user.value is not None
    return with_own_reads(scop, replace(user, value=rewrite(user.value, change)))


def _around(scop: Scop, writer: Statement, array: Array, halos: Sequence[Halo]) -> Statement | None:
    """Return *writer* for all of *array* and its *halos*, modulo the periods where there are some.

    Its accesses are still those of before.  None: a value is too far beyond the ends.
    """
    domain = _box(scop, writer, array, halos)
    builder = builder_of(writer.indices, writer.name, scop.sizes)
    dims = zip(writer.indices, array.shape, halos, strict=True)
    extents = {name: extent for name, extent, halo in dims if halo != _NO_HALO}
    periods = {name: _size_of(extent, scop) or extent for name, extent in extents.items()}
    is_far = False

    def remainder(index: str, distance: int, dtype: DType) -> Expr:
        """(i + c) % N, also of i from -N on; the index stays as it is."""
        nonlocal is_far
        match periods[index]:
            case int(period):
                moved = plus(Index(index + _OWN, dtype), Const(distance % period + period, INT32))
                return Binary("%", moved, Const(period, dtype), dtype)
            case str(size):
                found = as_comparison(Around(index, distance, size), dtype, builder, domain)
                if found is not None:
                    return rewrite(found, kept)
        is_far = True
        return Index(index, dtype)

    def kept(node: Expr) -> Expr:
        return replace(node, name=node.name + _OWN) if isinstance(node, Index) else node

    def of_remainder(node: Expr) -> Expr:
        around = compared_of(node, scop.sizes)
        if around is not None and periods.get(around.index) == around.size:
            return remainder(around.index, around.distance, node.dtype)
        match node:
            case Binary(op="%", left=left, right=right):
                found = index_and_distance(left, scop.sizes)
                period = None if found is None else periods.get(found[0])
                if found and period is not None and number_of(right, scop.sizes) == period:
                    return remainder(*found, node.dtype)
        return node

    def of_index(node: Expr) -> Expr:
        if isinstance(node, Index) and node.name in periods:
            return remainder(node.name, 0, node.dtype)
        return node

    def renamed(node: Expr) -> Expr:
        if isinstance(node, Index) and node.name.endswith(_OWN):
            return replace(node, name=node.name.removesuffix(_OWN))
        return node

    assert writer.value is not None
    value = rewrite(rewrite(rewrite(writer.value, of_remainder), of_index), renamed)
    return None if is_far else replace(writer, domain=domain, value=value)


def _with_accesses(scop: Scop, writer: Statement) -> Statement:
    """Return *writer* with the accesses that it has in *scop*."""
    builder = builder_of(writer.indices, writer.name, scop.sizes)
    write = access(builder, writer.write.array, writer.write.subscripts, scop.arrays, writer.domain)
    return with_own_reads(scop, replace(writer, write=write))
