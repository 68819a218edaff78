"""Whether 32 bits do for the indices of a kernel: values of its loops, distances in its arrays."""

from tcdsl.codegen.c.size_texts import SizeTexts
from tcdsl.poly.isl_utils import are_bounded, constant_bounds, greatest
from tcdsl.poly.loop_tree import statements_of
from tcdsl.poly.scop import Array, Interleaved, Stride
from tcdsl.schedule.plan import Kernel, Plan, arrays_of

STRIDE_LIMIT = 2**16
_INDEX_LIMIT = 2**31 - STRIDE_LIMIT  # room for a stride past the end


def needs_wide_index(plan: Plan, kernel: Kernel, sizes: SizeTexts) -> bool:
    """Return whether an element's distance or an index may not fit 32 bits."""
    if sizes.is_open and not are_bounded(plan.scop.context):
        return True
    arrays = [plan.scop.arrays[name] for name in arrays_of(plan, kernel)]
    if any(_reach(array) >= _INDEX_LIMIT for array in arrays):
        return True
    for name in statements_of(kernel.tree):
        domain = plan.scop.by_name[name].domain
        for dim in range(len(plan.scop.by_name[name].indices)):
            bounds = constant_bounds(domain, dim)
            if bounds is not None and max(abs(b) for b in bounds) >= _INDEX_LIMIT:
                return True
    return False


def _reach(array: Array) -> int:
    """Return the largest distance of an element from the array's pointer, in elements."""
    extents = [most for most in map(greatest, array.shape) if most is not None]
    if array.strides is None:
        total = 1
        for extent in extents:
            total *= max(extent, 1)
        return total
    return sum(map(_span, extents, array.strides))


def _span(extent: int, stride: Stride) -> int:
    """Return how far the last of *extent* elements is from the first, or a sum on the way there."""
    if isinstance(stride, Interleaved):
        within = (stride.run - 1) * abs(stride.step)
        runs = (extent - 1) // stride.run
        # As it is computed: all steps as if there was one run, and what that is off by.
        off = runs * abs(stride.outer - stride.run * stride.step)
        return max(runs * abs(stride.outer) + within, (extent - 1) * abs(stride.step) + off)
    most = None if stride is None else greatest(stride)
    return (extent - 1) * abs(most or 0)
