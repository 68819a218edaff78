"""In which order the results of a product are stored along whole vectors.

O(n,f,h,w) +=! I(n,c,h+r,w+s) * K(f,c,r,s)      with f last, as of images with c last: tiles of
                                                pixels and filters as both lie in memory
K(f,c,r,s) +=! O(n,f,h,w) * I(n,c,h+r,w+s)      with c last
"""

from collections.abc import Iterator

from tcdsl.lang.comprehension import Index, indices_in
from tcdsl.poly.scop import Kind, Scop, Statement, ends_of
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.reordered_results import (
    Between,
    behind,
    result_reordered,
    why_not_result_reordered,
)
from tcdsl.strategies.operand_orders import (
    large_factors,
    vectors_if_last,
    with_orders_alone,
)

STORED_BYTES = 64  # of a row, by one instruction


@dataclass(frozen=True, slots=True)
class ResultOrder:
    """The dimension of a result that is to be the last, and the *index* of *product* along it.

    *is_one_side*: so far the last one has another index of the same factor, a window's.
    """

    last: int
    product: str
    index: str
    is_one_side: bool


def order_of_result(scop: Scop, array: str) -> ResultOrder | None:
    """Return in which order the product that *array* is computed of has neighbours as a factor has.

    None where it has them, or there is none.
    """
    if why_not_result_reordered(scop, array) is not None:
        return None
    found = (_order(scop, *product) for product in _products(scop, array))
    return next((order for order in found if order is not None), None)


def _products(scop: Scop, array: str) -> Iterator[tuple[Statement, Between]]:
    """Yield the products that *array* is computed of."""
    rank = scop.arrays[array].rank
    for one in (Between(array, tuple(range(rank))), *behind(scop, array)):
        for statement in scop.users.get(one.array, ()):
            if statement.kind is Kind.UPDATE and statement.write.array == one.array:
                yield statement, one


def _order(scop: Scop, product: Statement, at: Between) -> ResultOrder | None:
    factors = large_factors(scop, product)
    written = [s.name if isinstance(s, Index) else "" for s in product.write.subscripts]
    if factors is None or not all(written) or len(set(written)) < len(written):
        return None
    extents, names = ends_of(product), ["" if dim < 0 else written[dim] for dim in at.dims]
    sides = {i: n for n, one in enumerate(factors) for i in indices_in(*one.load.subscripts)}
    own = set[str]()
    for factor, other in (factors, factors[::-1]):
        alone = indices_in(*factor.load.subscripts) - indices_in(*other.load.subscripts)
        own |= alone & set(vectors_if_last(factor, scop.arrays[factor.load.tensor], extents))
    element = scop.arrays[product.write.array].dtype.size_bytes
    dims = [
        dim
        for dim, name in enumerate(names)
        if name in own and extents[name] * element >= STORED_BYTES
    ]
    if not dims or names[-1] in own:
        return None
    index = names[dims[-1]]
    return ResultOrder(dims[-1], product.name, index, sides.get(names[-1]) == sides[index])


def with_ordered_result(scop: Scop, array: str) -> Scop:
    """Return *scop* with *array* computed in that order, and copied.

    Where all of its neighbours are of one factor, the factors end with indices of their own, too.
    """
    order = order_of_result(scop, array)
    if order is None:
        return scop
    if order.is_one_side:
        scop = with_orders_alone(scop, order.product, order.index)
    return result_reordered(scop, array, order.last)
