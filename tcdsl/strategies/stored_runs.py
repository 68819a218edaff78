"""What the second-level cache takes for the results that an implicit product stores.

    O[n,h,w,f]  columns f            64 bytes of a row by one instruction: whole sectors of 32
    O[n,f,h,w]  columns (n,h,w)      pairs: 16 bytes of a row, one sector in two parts
    I[n,c,2 y + 1,2 x]  (n,y,x)      every other element: 8 bytes of a sector, by one kernel of four

A sector of which an instruction writes a part costs the cache more than a whole one.
"""

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.locality import array_strides, coefficient_of
from tcdsl.poly.scop import Access, Array
from tcdsl.strategies.implicit_product import Classes, names_in
from tcdsl.strategies.problem import Problem
from tcdsl.strategies.traffic import is_inside

LANES = 4  # threads of a row: each has pairs of neighbours
EXCHANGED_BYTES = 16  # that a thread stores after an exchange (codegen/cuda/exchanges.py)
PART_COST = gpu_thresholds.PART_OF_SECTOR


def stored_bytes(problem: Problem, classes: Classes) -> float:
    """Return the bytes of whole sectors that cost as much as the results that are stored."""
    total = 0.0
    for name in problem.group.members:
        for write in problem.scop.by_name[name].writes:
            if not is_inside(problem.scop, write.array, problem.group.members):
                array = problem.scop.arrays[write.array]
                each = _sector_bytes(problem, classes, name, write, array)
                size = problem.results * array.dtype.size_bytes
                sector = problem.gpu.sector_bytes
                total += size if each >= sector else size * PART_COST * sector / each
    return total


def _sector_bytes(
    problem: Problem, classes: Classes, name: str, write: Access, array: Array
) -> float:
    """Return how many bytes of a sector one instruction writes."""
    lead = problem.shapes[problem.lead]
    extents = dict(zip(lead.statement.indices, lead.extents, strict=True))
    several = [i for i in classes.column.indices if extents[i] > 1]
    sector, element = problem.gpu.sector_bytes, array.dtype.size_bytes
    if not several:
        return sector
    left = problem.scop.by_name[name].left  # for each of the lead's in this order
    own = dict(zip(names_in(problem, name), left, strict=True))
    if several[-1] not in own:
        return sector
    strides = array_strides(array)
    found = (
        abs(coefficient_of(subscript, own[several[-1]]) or 0) * stride
        for subscript, stride in zip(write.subscripts, strides, strict=True)
    )
    apart = sum(found) or 1
    if apart == 1 and len(several) == 1 and extents[several[-1]] * element % EXCHANGED_BYTES == 0:
        return sector
    if apart == 1 and extents[several[-1]] % 2 == 0:
        return min(sector, 2 * LANES * element)
    spanned = 2 * LANES * apart * element
    return LANES * element / min(LANES, -(-spanned // sector))
