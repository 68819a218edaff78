"""Repacking: operands whose rows no box brings are copied first, to rows that boxes do.

    C(m,n) +=! A(m,k) * B(k,n)        rows of 3001 and 1555 elements of two bytes
        --->
    A.packed(m,k) = A(m,k)            rows of 3001 elements, 3008 apart
    B.packed(k,n) = B(k,n)            rows of 1555, 1560 apart
    C(m,n) +=! A.packed(m,k) * B.packed(k,n)

Copies of boxes want strides that are multiples of 16 bytes; nothing else of what is read changes.
An element is used many times, and copied once.

Legal iff the reads are exact, and nothing writes the operands before the sum.  Packing of operands:
Goto, van de Geijn, "Anatomy of high-performance matrix multiplication", ACM TOMS 34(3), 2008,
doi:10.1145/1356052.1356053.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from math import prod
from operator import mul

from tcdsl.costmodel.locality import array_strides
from tcdsl.lang.comprehension import Index
from tcdsl.lang.types.dtypes import DType
from tcdsl.poly.isl_utils import points_of_box
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
    is_open = points_of_box(statement.domain) is None
    if is_open or any(len(_shape(array)) < array.rank for array in arrays):
        return "its sizes are open"
    if any(has_few_uses(statement, array) for array in arrays):
        return "its operands' elements are used a few times"
    reasons = (why_not_cached(scop, name, {statement.name: ()}) for name in names)
    return next((reason for reason in reasons if reason is not None), None)


def has_few_uses(statement: Statement, array: Array) -> bool:
    """Return whether *statement* is known to use each element of *array* a few times."""
    instances, shape = points_of_box(statement.domain), _shape(array)
    if instances is None or len(shape) < array.rank:
        return False
    return instances < LEAST_USES * prod(shape)


def repacked(scop: Scop, name: str) -> Scop:
    """Return *scop* with the operands of the sum *name* in rows that boxes bring."""
    assert why_not_repacked(scop, scop.by_name[name]) is None
    for array in list(_odd_operands(scop, scop.by_name[name])):
        cached = cache_read(scop, array, {name: ()}, Buffer(f"{array}.packed{name}"))
        tile = cached.scop.arrays[cached.array]
        strides = wide_strides(_shape(tile), tile.dtype)
        arrays = {**cached.scop.arrays, tile.name: replace(tile, strides=strides)}
        scop = replace(cached.scop, arrays=arrays)
    return scop


def _odd_operands(scop: Scop, statement: Statement) -> Iterator[str]:
    """Yield the arguments that *statement* reads whose rows begin anywhere."""
    for name in dict.fromkeys(read.array for read in statement.reads):
        array = scop.arrays[name]
        is_plain = all(isinstance(n, int) for n in (*array.shape, *(array.strides or ())))
        if not is_plain or not array.is_input or array.rank < 2 or array.shift is not None:
            continue
        *strides, last = array_strides(array)
        if last == 1 and any(n * array.dtype.size_bytes % ROW_BYTES for n in strides):
            yield name


def _shape(array: Array) -> list[int]:
    return [extent for extent in array.shape if isinstance(extent, int)]


def wide_strides(shape: Sequence[int], dtype: DType) -> tuple[int, ...]:
    """Return the strides of an array of *shape* whose rows are whole multiples of 16 bytes."""
    *outer, last = shape
    if not outer:
        return (1,)
    unit = ROW_BYTES // dtype.size_bytes
    row = -(-last // unit) * unit
    return (*reversed([*accumulate(reversed(outer[1:]), mul, initial=row)]), 1)
