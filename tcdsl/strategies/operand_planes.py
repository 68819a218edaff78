"""Which factor of a product of float32 is worth planes of its parts: the columns', if it is large.

C(m,n) +=! A(m,k) * B(k,n)      columns n: B's planes have k last, each element is read for all m
"""

from math import prod

from tcdsl.costmodel import gpu_thresholds
from tcdsl.lang.comprehension import Index, Load, indices_in
from tcdsl.poly.scop import Scop, ends_of
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.column_planes import in_planes, plain_factors, why_not_in_planes

LEAST_ROWS = gpu_thresholds.PLANES_ROWS
LEAST_PRODUCTS = gpu_thresholds.PLANES_PRODUCTS


@dataclass(frozen=True, slots=True)
class Columns:
    """The *load* of the columns' factor, and the dimension of its array that terms are along."""

    load: Load
    last: int


def columns_for(scop: Scop, name: str) -> Columns | str:
    """Return the factor of *name* that planes are for, or why none is."""
    statement = scop.by_name[name]
    factors, subscripts = plain_factors(statement), statement.write.subscripts
    if factors is None or not subscripts:
        return "it is no product of two elements of float32"
    indices = [indices_in(*load.subscripts) for load in factors]
    column = indices_in(*subscripts[-1:])
    own = [n for n in (0, 1) if column & indices[n] and not column & indices[1 - n]]
    if len(own) != 1:
        return "neighbours of its results are in no single factor"
    load, extents = factors[own[0]], ends_of(statement)
    terms = [
        index
        for index in statement.reduced
        if all(Index(index) in factor.subscripts for factor in factors)
    ]
    if not terms:
        return "no reduced index is a subscript of its own in both factors"
    rows = indices[1 - own[0]] - indices[own[0]]
    if prod(extents[index] for index in rows) < LEAST_ROWS:
        return "each element is multiplied a few times"
    if prod(extents.values()) < LEAST_PRODUCTS:
        return "it is small"
    last = load.subscripts.index(Index(max(terms, key=extents.__getitem__)))
    return why_not_in_planes(scop, name, load) or Columns(load, last)


def with_columns_in_planes(scop: Scop, name: str) -> Scop:
    """Return *scop* whose sum *name* has its columns' factor in planes."""
    columns = columns_for(scop, name)
    assert isinstance(columns, Columns), columns
    return in_planes(scop, name, columns.load, columns.last)
