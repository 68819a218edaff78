"""Repacking: operands whose rows no box brings are copied first, to rows that boxes do.

    C(m,n) +=! A(m,k) * B(k,n)        rows of 3001 and 1555 elements of two bytes
        --->
    A.packed(m,k) = A(m,k)            rows of 3001 elements, 3008 apart
    B.packed(k,n) = B(k,n)            rows of 1555, 1560 apart; of N, an open size, 8 ceil(N / 8)
    C(m,n) +=! A.packed(m,k) * B.packed(k,n)

Copies of boxes want strides that are multiples of 16 bytes; nothing else of what is read changes.
An element is used many times, and copied once.

Legal iff the reads are exact, and nothing writes the operands before the sum.  Packing of operands:
Goto, van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008,
doi:10.1145/1356052.1356053.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod

from tcdsl.costmodel.locality import stride_divisors
from tcdsl.lang.comprehension import Index
from tcdsl.lang.ranges.open_sizes import is_same_extent, times
from tcdsl.lang.types.dtypes import DType
from tcdsl.poly.isl_utils import Extent, dim_bounds, greatest, points_of_box, whole_tiles
from tcdsl.poly.scop import Array, Kind, Scop, Statement
from tcdsl.rewrites.scop.caching import Buffer, cache_read, why_not_cached

ROW_BYTES = 16  # strides of what copies of boxes read are multiples of
LEAST_USES = 64  # of each element


def why_not_repacked(scop: Scop, statement: Statement) -> str | None:
    """Return why no operand of *statement* is repacked, or None."""
    if statement.kind is not Kind.UPDATE or statement.reduction is None or statement.library:
        return "it is no sum"
    if any(not isinstance(s, Index) for read in statement.reads for s in read.subscripts):
        return "it reads windows, or gathers"
    names = list(_odd_operands(scop, statement))
    if not names:
        return "rows of its operands begin at multiples of 16 bytes"
    return why_not_worth_copies(scop, statement, names)


def why_not_worth_copies(scop: Scop, statement: Statement, names: Sequence[str]) -> str | None:
    """Return why the operands *names* of *statement* are not copied first, or None."""
    arrays = [scop.arrays[name] for name in names]
    if points_of_box(statement.domain) is None:
        return "its sizes have no greatest values"
    if any(wide_strides(array.shape, array.dtype) is None for array in arrays):
        return "its strides are products of open sizes"
    if not all(_reads_all(statement, array) for array in arrays):
        return "it reads a part of rows of an open length"
    if any(has_few_uses(statement, array) for array in arrays):
        return "its operands' elements are used a few times"
    reasons = (why_not_cached(scop, name, {statement.name: ()}) for name in names)
    return next((reason for reason in reasons if reason is not None), None)


def has_few_uses(statement: Statement, array: Array) -> bool:
    """Return whether *statement* is known to use each element of *array* a few times."""
    instances, shape = points_of_box(statement.domain), _most(array)
    return instances is not None and instances < LEAST_USES * prod(shape)


def repacked(scop: Scop, name: str) -> Scop:
    """Return *scop* with the operands of the sum *name* in rows that boxes bring."""
    assert why_not_repacked(scop, scop.by_name[name]) is None
    for array in list(_odd_operands(scop, scop.by_name[name])):
        cached = cache_read(scop, array, {name: ()}, Buffer(f"{array}.packed{name}"))
        source, tile = scop.arrays[array], cached.scop.arrays[cached.array]
        shape = source.shape if _is_open(source) else tile.shape
        own = replace(tile, shape=shape, strides=wide_strides(shape, tile.dtype))
        arrays = {**cached.scop.arrays, tile.name: own}
        scop = replace(cached.scop, arrays=arrays)
    return scop


def _odd_operands(scop: Scop, statement: Statement) -> Iterator[str]:
    """Yield the arguments that *statement* reads whose rows begin anywhere."""
    for name in dict.fromkeys(read.array for read in statement.reads):
        array = scop.arrays[name]
        is_plain = all(isinstance(n, int) for n in array.strides or ())
        if not is_plain or not array.is_input or array.rank < 2 or array.shift is not None:
            continue
        *strides, last = stride_divisors(array)
        if last == 1 and any(n * array.dtype.size_bytes % ROW_BYTES for n in strides):
            yield name


def _is_open(array: Array) -> bool:
    return any(not isinstance(extent, int) for extent in array.shape)


def _most(array: Array) -> list[int]:
    """Return the greatest extents of *array*, as far as there are any."""
    return [most for most in map(greatest, array.shape) if most is not None]


def _reads_all(statement: Statement, array: Array) -> bool:
    """Return whether *statement* reads all of *array*, or numbers say what."""
    if not _is_open(array):
        return True
    if any(not isinstance(low, int) or low for low in array.origin):
        return False
    ends = {index: dim_bounds(statement.domain, dim, statement.domain.params())
            for dim, index in enumerate(statement.indices)}  # fmt: skip
    return all(
        isinstance(at, Index) and ends[at.name][0] == 0 and is_same_extent(ends[at.name][1], extent)
        for read in statement.reads
        if read.array == array.name
        for at, extent in zip(read.subscripts, array.shape, strict=True)
    )


def wide_strides(shape: Sequence[Extent], dtype: DType) -> tuple[Extent, ...] | None:
    """Return the strides of an array of *shape* whose rows are whole multiples of 16 bytes.

    None: they are no affine functions of open sizes.
    """
    *outer, last = shape
    strides: list[Extent] = [1]
    if outer:
        strides.append(whole_tiles(last, ROW_BYTES // dtype.size_bytes))
    for extent in reversed(outer[1:]):
        if not isinstance(extent, int) and not isinstance(strides[-1], int):
            return None
        strides.append(times(extent, strides[-1]))
    return tuple(reversed(strides))
