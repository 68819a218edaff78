"""Relations between a statement's instances and the elements of a tensor.

``element_map``:  ``[sizes] -> { S0[i, j] -> T[subscripts] }``.
"""

from collections.abc import Sequence

import islpy as isl

from tcdsl.lang.comprehension import Expr
from tcdsl.lang.ranges.linear import Interval
from tcdsl.lang.ranges.rounds import Space
from tcdsl.lang.ranges.size_functions import SizeSpace

_OUT = isl.dim_type.out
_SET = isl.dim_type.set


def element_map(space: Space, tensor: str, subscripts: Sequence[Expr]) -> isl.Map | None:
    """Return ``{ S[i] -> tensor[subscripts] }``, or None if a subscript is not affine."""
    result = isl.Map.from_domain(isl.Set.universe(space.builder.space))
    for subscript in subscripts:
        value = space.builder.affine(subscript)
        if value is None:
            return None
        result = result.flat_range_product(isl.Map.from_pw_aff(value))
    return result.set_tuple_name(_OUT, tensor)


def box_set(tensor: str, box: Sequence[Interval], sizes: SizeSpace) -> isl.Set:
    """Return ``{ tensor[e] : e in box }``."""
    space = sizes.space.add_unnamed_tuple_ui(len(box)).set_tuple_name(_SET, tensor)
    where = isl.Set.universe(space)
    local = isl.LocalSpace.from_space(space)
    for position, interval in enumerate(box):
        value = isl.PwAff.from_aff(isl.Aff.var_on_domain(local, _SET, position))
        for floor in interval.floors:
            where = where.intersect(value.ge_set(floor.insert_domain(space)))
        for ceiling in interval.ceilings:
            where = where.intersect(value.lt_set(ceiling.insert_domain(space)))
    return where
