"""How much of a block's shared memory arrays take at the open sizes of a call.

    images n % 8 == rank, n < N <= 64      x_row[n / 8][p]      8 runs of p at most, (N + 7) / 8

A launch asks for that, so that at lesser sizes more blocks are resident: what a plan keeps for its
greatest size would leave most of a multiprocessor idle.  Arrays lie one after another, each behind
what the one before it takes.  Legal iff the outermost dimension of each is what digits of a
subscript tell, from some digit on, whose greatest value is a function of the sizes alone.
"""

from functools import reduce
from math import prod

import islpy as isl

from tcdsl.poly.isl_utils import Extent, greatest, val
from tcdsl.poly.scop import Scop
from tcdsl.records import dataclass
from tcdsl.schedule.placement import LocalDim, Placement, accesses_of

ALIGNMENT = 16  # bytes, of each array


@dataclass(frozen=True, slots=True)
class Taken:
    """What an array takes: *each* bytes for so many values, *most* at the greatest sizes."""

    each: int
    most: int
    values: Extent


def taken_by(scop: Scop, placement: Placement, element_bytes: int) -> Taken | None:
    """Return what *placement* takes of a block's shared memory, None if that is always as much.

    So it is where an array behind it would not be aligned, too.
    """
    dim = next((d for d, own in enumerate(placement.dims) if own.extent > 1), None)
    is_closed = scop.context.dim(isl.dim_type.param) == 0
    if is_closed or dim is None or placement.ring is not None or not placement.dims[dim].parts:
        return None
    own = placement.dims[dim]
    most = own.extent // prod(n for _, n in own.parts[1:])
    values = _values(scop, placement.array, dim, own)
    each = placement.elements() // most * element_bytes
    if placement.elements() % most or each % ALIGNMENT or greatest(values) != most:
        return None
    return None if values.is_cst() else Taken(each, most, values)


def _values(scop: Scop, array: str, dim: int, own: LocalDim) -> isl.PwAff:
    """Return how many values the coarsest digits of the subscript have: a function of the sizes."""
    ends = [access.relation.range().dim_max(dim) for _, access in accesses_of(scop, array)]
    last = reduce(isl.PwAff.union_max, ends).add_constant_val(val(-own.shift))
    count = last.scale_down_val(val(own.parts[0][0])).floor().add_constant_val(val(1))
    return count.intersect_params(scop.context).coalesce()
