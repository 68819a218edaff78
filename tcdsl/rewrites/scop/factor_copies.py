"""Copies of factors in another type: an element is converted once, not wherever it is multiplied.

    C(m,n) +=! A(m,k) * B(k,n)                T(k,n) = B(k,n)                in T's type
    D(j,n) +=! E(j,k) * B(k,n)     --->       C(m,n) +=! A(m,k) * T(k,n)
                                              D(j,n) +=! E(j,k) * T(k,n)

The copy has the subscripts of the array, and its rows begin at multiples of 16 bytes.  It stands
before the first product that reads it: fusion may compute it where the array itself is computed,
which is then memory only if others read it.

Legal iff the reads are exact, nothing writes the array from there to the last of the products, and
how long its rows are is known.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import islpy as isl

from tcdsl.lang.comprehension import Cast, Expr, Index, Load
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import DType, arithmetic
from tcdsl.poly.accesses import Bounds, box, builder_of
from tcdsl.poly.isl_utils import dim_bounds, minus, plus
from tcdsl.poly.scop import Array, Scop, Statement, Storage
from tcdsl.rewrites.scop.assignment import assignment, element, with_own_reads
from tcdsl.rewrites.scop.caching import insertion, why_not_copied_before
from tcdsl.rewrites.scop.repacking import has_few_uses, wide_strides


def why_not_in_copy(scop: Scop, array: str, names: Sequence[str]) -> str | None:
    """Return why the products *names* do not read *array* from a copy, or None if they may."""
    products = [scop.by_name[name] for name in names]
    reads = [read for product in products for read in product.reads if read.array == array]
    if not all(read.is_exact for read in reads):
        return f"a subscript of {array} is gathered"
    if all(read.relation.is_empty() for read in reads):
        return f"no element of {array} is read"
    if not scop.arrays[array].rank:
        return f"{array} is one number"
    if not all(isinstance(extent, int) for extent in scop.arrays[array].shape[1:]):
        return f"the rows of {array} are of open sizes"
    if any(has_few_uses(product, scop.arrays[array]) for product in products):
        return "its operands' elements are used a few times"
    return why_not_copied_before(scop, array, names)


def in_copy(scop: Scop, array: str, names: Sequence[str], copy: str, dtype: DType) -> Scop:
    """Return *scop* with what the products *names* read of *array* in the array *copy*.

    What they compute with is of the type that *dtype* computes in.
    """
    assert why_not_in_copy(scop, array, names) is None
    products = [scop.by_name[name] for name in names]
    reads = [r.relation.range() for p in products for r in p.reads if r.array == array]
    image = reduce(isl.Set.union, reads)
    ranges = _ranges(scop, image, scop.arrays[array])
    new = _array(copy, ranges, dtype)
    scop = replace(scop, arrays={**scop.arrays, copy: new})
    served = {name: _reading(scop, scop.by_name[name], array, new) for name in names}
    first = min(products, key=lambda product: scop.position(product.name))
    statements = [served.get(statement.name, statement) for statement in scop.statements]
    statements.insert(insertion(scop, names), _copy(scop, array, (new, ranges), first))
    return scop.with_statements(tuple(statements))


def _ranges(scop: Scop, image: isl.Set, array: Array) -> list[Bounds]:
    """Return the range of each dimension of the elements *image* of *array*, [from, to)."""
    found = []
    for dim, (origin, extent) in enumerate(zip(array.origin, array.shape, strict=True)):
        low, end = dim_bounds(image, dim, scop.context)
        is_known = isinstance(low, int) and isinstance(end, int)
        # A part of rows whose length is known may end at an open size: all of them are copied.
        is_whole = isinstance(extent, int) and not is_known
        found.append((origin, plus(origin, extent)) if is_whole else (low, end))
    return found


def _array(name: str, ranges: Sequence[Bounds], dtype: DType) -> Array:
    """Return the array *name* of elements in *ranges*, its rows in units of 16 bytes."""
    origin, shape = tuple(low for low, _ in ranges), tuple(minus(end, low) for low, end in ranges)
    rows = [extent for extent in shape[1:] if isinstance(extent, int)]
    assert len(rows) == len(shape) - 1, "why_not_in_copy"
    strides = wide_strides((1, *rows), dtype)
    return Array(name, dtype, origin, shape, Storage.SCRATCH, strides=strides)


def _copy(
    scop: Scop, array: str, to: tuple[Array, Sequence[Bounds]], first: Statement
) -> Statement:
    """Return ``new[e] = array[e]`` over its ranges, for the product *first* and others after it."""
    new, ranges = to
    name, indices = f"{new.name}_copy", tuple(f"e{dim}" for dim in range(new.rank))
    builder = builder_of(indices, name, scop.sizes)
    domain = box(builder, indices, dict(zip(indices, ranges, strict=True)))
    domain = domain.intersect_params(scop.context)
    at = tuple(map(Index, indices))
    value = element(scop.arrays[array], at)
    return assignment(scop, domain, indices, Load(new.name, at, new.dtype), value, first)


def _reading(scop: Scop, product: Statement, array: str, new: Array) -> Statement:
    """Return *product* with its loads of *array* from *new*."""
    computed = arithmetic(new.dtype)

    def served(node: Expr) -> Expr:
        match node:
            case Load(tensor=tensor) if tensor == array:
                load = Load(new.name, node.subscripts, new.dtype, node.span)
                return load if new.dtype == computed else Cast(load, computed)
            case Cast(operand=inner, dtype=dtype) if inner.dtype == dtype:
                return inner
        return node

    assert product.value is not None
    done = replace(product, value=rewrite(product.value, served))
    return with_own_reads(scop, done)
