"""In which order the operands of a product are copied by whole vectors.

O(n,f,h,w) +=! I(n,c,h+r,w+s) * K(f,c,r,s)      neighbours along w begin anywhere (w + s):
                                                with c last both are copied 8 at a time
C(m,n) +=! A(m,k) * B(k,n)                      of bytes: four warps multiply what lies along k
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import prod

from tcdsl.costmodel.locality import array_strides
from tcdsl.lang.comprehension import Index, Operator, indices_in
from tcdsl.lang.types.dtypes import (
    BFLOAT16,
    FLOAT16,
    FLOAT32,
    INT8,
    UINT8,
    DType,
)
from tcdsl.poly.scop import Array, Kind, Scop, Statement, ends_of
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.index_classes import open_ends, why_not_whole
from tcdsl.rewrites.scop.packing import Factor
from tcdsl.rewrites.scop.reordering import ORDERED, reordered, why_not_reordered
from tcdsl.strategies.contracted import MIN_WORK
from tcdsl.strategies.implicit_product import (
    LEAST_EXTENT,
    factors_of,
    vector_of_factor,
)
from tcdsl.strategies.schedule import VECTOR_BYTES

Types = tuple[DType, ...]
LEAST_BYTES = 8  # of a copy that is worth another order
HALVES: Types = (BFLOAT16, FLOAT16)
BYTES: Types = (INT8, UINT8)
WORDS: Types = (FLOAT32,)
# Of factors that threads read for each of their results, and how many products are worth a kernel
# that puts them in order.
MOST_SMALL_BYTES, LEAST_SUMMED = 64 << 10, 1 << 22
LEAST_TILE = 256  # products of a row, of a column or of a result, that are worth tiles


@dataclass(frozen=True, slots=True)
class Order:
    """The dimension of *array* that is to be the last."""

    array: str
    last: int


def orders_of(scop: Scop, name: str) -> tuple[Order, ...]:
    """Return in which orders the factors of *name* are copied by whole vectors; () if they are."""
    statement = scop.by_name[name]
    factors = large_factors(scop, statement)
    if factors is None:
        return ()
    extents, open_ = ends_of(statement), open_ends(statement)
    if open_ is None:
        return ()
    divisors = {**extents, **{index: end.divisor for index, end in open_.items()}}
    arrays = [scop.arrays[factor.load.tensor] for factor in factors]
    kept = [_vectors(*pair, divisors) for pair in zip(factors, arrays, strict=True)]
    own = [vectors_if_last(*pair, extents) for pair in zip(factors, arrays, strict=True)]
    are_full = [bool(_full(*pair)) for pair in zip(kept, arrays, strict=True)]
    if all(are_full):
        return ()
    both = _common(statement, kept, own, arrays, extents)
    found: list[Order] = []
    for number, array in enumerate(arrays):
        index = both or _longest(own[number], extents)
        width = kept[number].get(index, 1) if both else max(kept[number].values(), default=1)
        if not index or width >= own[number][index] or (not both and are_full[number]):
            continue
        order = Order(array.name, factors[number].load.subscripts.index(Index(index)))
        if why_not_reordered(scop, name, array.name, order.last) is None:
            found.append(order)
    return tuple(found)


def orders_along(scop: Scop, name: str, types: Collection[DType]) -> tuple[Order, ...]:
    """Return in which orders factors of *name*, of *types*, lie along its terms for four warps.

    Those that do not yet: all of them, of elements of four bytes one if none does (see
    ``tensor_types.has_groups``).
    """
    statement = scop.by_name[name]
    factors = large_factors(scop, statement, types)
    if factors is None:
        return ()
    arrays = [scop.arrays[one.load.tensor] for one in factors]
    own = [vectors_if_last(*pair, ends_of(statement)) for pair in zip(factors, arrays, strict=True)]
    shared = [index for index in statement.reduced if index in own[0] and index in own[1]]
    if not shared:
        return ()
    term = Index(max(shared, key=lambda index: ends_of(statement)[index]))
    found = [
        Order(array.name, one.load.subscripts.index(term))
        for one, array in zip(factors, arrays, strict=True)
        if one.load.subscripts[-1] != term
    ]
    if arrays[0].dtype.size_bytes > 1:
        sizes = {order: scop.arrays[order.array].size_bytes() or 0 for order in found}
        found = [min(sizes, key=sizes.__getitem__)] if len(found) == len(arrays) else []
    is_legal = all(why_not_reordered(scop, name, o.array, o.last) is None for o in found)
    return tuple(found) if is_legal else ()


def orders_alone(scop: Scop, name: str, index: str) -> tuple[Order, ...]:
    """Return the orders in which each factor of *name* ends with an index that it alone has.

    Of the one that has it *index*, of the other the longest; () where one has none, or no copy.
    """
    statement = scop.by_name[name]
    factors = large_factors(scop, statement)
    if factors is None:
        return ()
    found, extents = list[Order](), ends_of(statement)
    for factor, other in (factors, factors[::-1]):
        array, others = scop.arrays[factor.load.tensor], indices_in(*other.load.subscripts)
        own = vectors_if_last(factor, array, extents)
        alone = {i: n for i, n in own.items() if i not in others}
        last = index if index in alone else _longest(alone, extents)
        if not last:
            return ()
        dim = factor.load.subscripts.index(Index(last))
        if why_not_reordered(scop, name, array.name, dim) is not None:
            return ()
        if factor.load.subscripts[-1] != Index(last):
            found.append(Order(array.name, dim))
    return tuple(found)


def _common(
    statement: Statement,
    kept: Sequence[Mapping[str, int]],
    own: Sequence[Mapping[str, int]],
    arrays: Sequence[Array],
    extents: Mapping[str, int],
) -> str:
    """Return the reduced index that both factors may have for whole vectors, "" if none.

    One that a factor has already is better, then a long one.
    """
    full = [set(_full(*pair)) for pair in zip(own, arrays, strict=True)]
    already = [set(_full(*pair)) for pair in zip(kept, arrays, strict=True)]
    shared = [i for i in statement.reduced if i in full[0] and i in full[1]]

    def merit(index: str) -> tuple[int, int]:
        return sum(index in names for names in already), extents[index]

    return max(shared, key=merit, default="")


def _longest(own: Mapping[str, int], extents: Mapping[str, int]) -> str:
    """Return the index that gives the widest copies, the longest of those, "" if none does."""
    return max(own, key=lambda index: (own[index], extents[index]), default="")


def order_along_results(scop: Scop, name: str) -> Order | None:
    """Return in which order a small factor of *name* has neighbours where results have them.

        O(n,h,w,c) +=! I(n,h+r,w+s,c) * K(c,r,s)    K with c last: 8 filters are one load

    The other factor has them, and all parallel indices of the small one: it is no matrix product.
    For lanes of threads that compute neighbours its elements would be in a line each.
    """
    statement = scop.by_name[name]
    factors = _summed_factors(statement)
    last = statement.write.subscripts[-1] if statement.write.subscripts else None
    if factors is None or not isinstance(last, Index) or last.name not in statement.left:
        return None
    extents = ends_of(statement)
    if (
        prod(extents.values()) < LEAST_SUMMED
        or array_strides(scop.arrays[statement.write.array])[-1] != 1
    ):
        return None
    for small, other in (factors, factors[::-1]):
        array, near = scop.arrays[small.load.tensor], scop.arrays[other.load.tensor]
        own, others = (
            indices_in(*one.load.subscripts) - set(statement.reduced) for one in (small, other)
        )
        size_bytes = array.size_bytes()
        if size_bytes is None or size_bytes > MOST_SMALL_BYTES or not own <= others:
            continue
        is_near = other.load.subscripts[-1] == last and array_strides(near)[-1] == 1
        if not is_near or last not in small.load.subscripts[:-1]:
            continue
        order = Order(array.name, small.load.subscripts.index(last))
        is_apart = array_strides(array)[order.last] > 1 and extents[last.name] > 1
        if is_apart and why_not_reordered(scop, name, array.name, order.last) is None:
            return order
    return None


def _summed_factors(statement: Statement) -> tuple[Factor, Factor] | None:
    """Return the two factors of different arrays that *statement* adds products of, or None."""
    reduction = statement.reduction
    if statement.kind is not Kind.UPDATE or reduction is None or statement.library:
        return None
    if reduction.operator is not Operator.ADD or why_not_whole(statement) is not None:
        return None
    factors = factors_of(statement)
    if factors is None or factors[0].load.tensor == factors[1].load.tensor:
        return None
    return factors


def with_factors_along_results(scop: Scop) -> Scop:
    """Return *scop* with small factors of sums in the order of their results."""
    for name in [s.name for s in scop.statements]:
        order = order_along_results(scop, name)
        scop = scop if order is None else _in_order(scop, name, [order])
    return scop


def with_orders(scop: Scop, name: str) -> Scop:
    """Return *scop* with copies of the factors of *name* in those orders."""
    return _in_order(scop, name, orders_of(scop, name))


def with_orders_alone(scop: Scop, name: str, index: str) -> Scop:
    """Return *scop* with copies of the factors of *name* that end with indices of their own."""
    return _in_order(scop, name, orders_alone(scop, name, index))


def with_orders_along(scop: Scop, name: str, types: Collection[DType]) -> Scop:
    """Return *scop* with copies of the factors of *name* that lie along its terms."""
    return _in_order(scop, name, orders_along(scop, name, types))


def order_of_copy(scop: Scop, name: str) -> Order | None:
    """Return in which order there is a copy of an array that the sum *name* reads as it lies."""
    statement = scop.by_name[name]
    if statement.kind is not Kind.UPDATE or statement.library:
        return None
    for read in statement.reads:
        for dim in range(scop.arrays[read.array].rank):
            is_there = f"{read.array}{ORDERED}{dim}" in scop.arrays and read.is_exact
            if is_there and why_not_reordered(scop, name, read.array, dim) is None:
                return Order(read.array, dim)
    return None


def with_order_of_copy(scop: Scop, name: str) -> Scop:
    """Return *scop* whose sum *name* reads that copy."""
    order = order_of_copy(scop, name)
    return scop if order is None else _in_order(scop, name, [order])


def _in_order(scop: Scop, name: str, orders: Iterable[Order]) -> Scop:
    for order in orders:
        scop = reordered(scop, name, order.array, order.last)
    return scop


def large_factors(
    scop: Scop, statement: Statement, types: Collection[DType] = HALVES + WORDS
) -> tuple[Factor, Factor] | None:
    """Return the factors, of *types*, that *statement* adds products of on tensor cores."""
    factors = _summed_factors(statement)
    if factors is None:
        return None
    extents = ends_of(statement)
    mentioned = [indices_in(*factor.load.subscripts) for factor in factors]
    reduced = set(statement.reduced)
    sides = (mentioned[0] - mentioned[1] - reduced, mentioned[1] - mentioned[0] - reduced, reduced)
    counts = [prod(extents[i] for i in side) for side in sides]
    if min(counts) < LEAST_EXTENT or prod(sorted(counts)[:2]) < LEAST_TILE:
        return None
    if prod(extents.values()) < MIN_WORK:
        return None
    own = [scop.arrays[factor.load.tensor].dtype for factor in factors]
    return factors if all(dtype in types for dtype in own) else None


def _vectors(factor: Factor, array: Array, extents: Mapping[str, int]) -> dict[str, int]:
    """Return along which indices copies of *factor* move several elements, and how many."""
    found = {i: vector_of_factor(factor, array, extents, i) for i in extents}
    return {index: vector for index, vector in found.items() if vector > 1}


def _full(vectors: Mapping[str, int], array: Array) -> list[str]:
    return [i for i, n in vectors.items() if n * array.dtype.size_bytes >= VECTOR_BYTES]


def vectors_if_last(factor: Factor, array: Array, extents: Mapping[str, int]) -> dict[str, int]:
    """Return along which indices copies would move several, were they neighbours, and how many."""
    found: dict[str, int] = {}
    most = VECTOR_BYTES // array.dtype.size_bytes
    guards = frozenset() if factor.condition is None else indices_in(factor.condition)
    for dim, subscript in enumerate(factor.load.subscripts):
        if not isinstance(subscript, Index) or subscript.name in guards:
            continue
        others = [s for d, s in enumerate(factor.load.subscripts) if d != dim]
        if subscript.name in indices_in(*others):
            continue
        extent, size = extents[subscript.name], array.shape[dim]
        if not isinstance(size, int):
            continue
        width = next(n for n in (8, 4, 2, 1) if n <= most and not (extent % n or size % n))
        if width * array.dtype.size_bytes >= LEAST_BYTES:
            found[subscript.name] = width
    return found
