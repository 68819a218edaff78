"""Remainders by open sizes as comparisons, where what they are of lies near the size.

    [N] -> { i : 0 <= i < N }    (i + N - 1) % N     --->     i - 1 < 0 ? i - 1 + N : i - 1

A remainder by a parameter is no affine function; the choice is one.  Legal iff isl proves of
i + c, of which this is the remainder, that -N <= i + c < 2 N for all instances: see
``lang/remainders``.  That is for sizes of bounded classes, as on a GPU, where subscripts stay
numbers of 32 bits.
"""

from collections.abc import Mapping
from dataclasses import replace

import islpy as isl

from tcdsl.lang import comprehension as tc
from tcdsl.lang.comprehension import Expr, Size
from tcdsl.lang.ranges.affine import Builder
from tcdsl.lang.remainders import Around, compared, remainder_of
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import DType
from tcdsl.poly.isl_utils import are_bounded, greatest, val

MOST_PERIOD = (1 << 31) // 3  # an index, a distance and a period more are an int32


def without_open_remainders(
    statement: tc.Statement, builder: Builder, domain: isl.Set, sizes: Mapping[str, int | None]
) -> tc.Statement:
    """Return *statement*, of instances *domain*, with comparisons for such remainders."""
    if None not in sizes.values() or not are_bounded(domain.params()):
        return statement

    def change(node: Expr) -> Expr:
        around = remainder_of(node, sizes)
        found = None if around is None else as_comparison(around, node.dtype, builder, domain)
        return found or node

    conditions = tuple(rewrite(condition, change) for condition in statement.conditions)
    return replace(statement, value=rewrite(statement.value, change), conditions=conditions)


def as_comparison(around: Around, dtype: DType, builder: Builder, domain: isl.Set) -> Expr | None:
    """Return *around* by comparisons for the instances *domain*, None where it is too far."""
    place = builder.index(around.index).add_constant_val(val(around.distance))
    size, zero = builder.affine(Size(around.size)), builder.constant(0)
    assert size is not None, "a parameter"
    most = greatest(size.intersect_params(domain.params()))
    is_near = domain.is_subset(place.ge_set(size.neg()).intersect(place.lt_set(size.add(size))))
    if not is_near or most is None or most > MOST_PERIOD:
        return None
    low, high = (
        not domain.is_disjoint(beyond) for beyond in (place.lt_set(zero), place.ge_set(size))
    )
    return compared(around, dtype, low, high)
