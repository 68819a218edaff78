"""Left sides that stay in the box of their target for all sizes, and not only for valid ones.

    d_t(i) += e where i in 1:3    --->    d_t(i) += e where i in 1:min(3, N)
    d_t(2 * i) = e where i in 1:3 --->    d_t(2 * i) = e where i in 1:min(3, (N + 1) / 2)
    d_t(7) += e                   --->    d_t(i0) += e where i0 in 7:min(8, N)
    d_t(i / 2) += e               --->    d_t(i0) += e where i0 in 0:N, exists i0 == i / 2

Where a call of the def is valid nothing changes: its preconditions keep all of this in bounds.  But
the box of a temporary is the hull of what is written to it, and that each element has a value is to
be shown for all sizes.
"""

from collections.abc import Callable
from dataclasses import replace

from tcdsl.derivatives.inversion import Sizes
from tcdsl.derivatives.lines import Box, BoxOfInstances, Line, Range
from tcdsl.lang.comprehension import Binary, Expr, Index
from tcdsl.lang.ranges.linear import linear
from tcdsl.lang.ranges.reads import index_names
from tcdsl.lang.ranges.size_functions import ceil_div, floor_div
from tcdsl.lang.types.dtypes import BOOL


def clipped(line: Line, box: Box, sizes: Sizes, indices: Callable[[int], tuple[str, ...]]) -> Line:
    """Return *line*, whose target has *box*, with its left side in that box for all sizes.

    :arg indices: gives that many new names of indices.
    """
    if not line.instances.is_known:
        return line
    ranges = {v: run for v, run in line.instances.ranges.items() if run is not None}
    conditions: list[Expr] = []
    left = [*line.subscripts]
    where = BoxOfInstances(line.instances.ranges, sizes.space, sizes.space.sane)
    for position, (subscript, dim) in enumerate(zip(line.subscripts, box, strict=True)):
        if isinstance(subscript, Index):
            ranges[subscript.name] = _within(ranges[subscript.name], dim, sizes)
            continue
        if clip_range(ranges, subscript, where, dim, sizes):
            continue
        value = where.builder.affine(subscript)
        # (A box is the hull of a number, whether or not any instance runs.)
        is_number = not index_names(subscript)
        if value is None or (not is_number and where.contains(subscript, dim)):
            continue
        new = Index(indices(len(box))[position])
        if index_names(subscript):
            if line.op == "=":
                continue
            ranges[new.name] = dim
            conditions.append(Binary("==", new, subscript, BOOL))
        else:
            at = sizes.space.builder.affine(subscript)
            assert at is not None, "it is affine without indices"
            run = at, at.add(sizes.space.one)
            ranges[new.name] = _within(run, dim, sizes)
            if ranges[new.name] == run:
                del ranges[new.name]
                continue
        left[position] = new
    instances = replace(
        line.instances, ranges=_ordered(ranges, left),
        conditions=(*conditions, *line.instances.conditions),
    )  # fmt: skip
    return replace(line, subscripts=tuple(left), instances=instances)


def clip_range(
    ranges: dict[str, Range], subscript: Expr, where: BoxOfInstances, dim: Range, sizes: Sizes
) -> bool:
    """Shorten the range of the only index of *subscript* so that it is in *dim*, if it leaves it.

    Return whether it has been; not where there are other indices, or none, or data give it.  The
    order of the instances stays as it is.

    :arg where: the instances, for all sizes, as *ranges* have them, or had them.
    """
    form = linear(subscript, sizes.space)
    if form is None or len(form.coefficients) != 1 or where.contains(subscript, dim):
        return False
    ((name, factor),) = form.coefficients.items()
    one = sizes.space.one
    ends = dim[0].sub(form.rest), dim[1].sub(one).sub(form.rest)
    if factor < 0:
        ends = ends[1].neg(), ends[0].neg()
    last = floor_div(ends[1], abs(factor))
    ranges[name] = _within(ranges[name], (ceil_div(ends[0], abs(factor)), last.add(one)), sizes)
    return True


def _within(given: Range, dim: Range, sizes: Sizes) -> Range:
    (lower, upper), (low, high) = given, dim
    sane = sizes.space.sane
    if not sane.is_subset(low.le_set(lower)):
        lower = sizes.space.largest([low, lower])
    if not sane.is_subset(upper.le_set(high)):
        upper = sizes.space.smallest([high, upper])
    return lower, upper


def _ordered(ranges: dict[str, Range], left: list[Expr]) -> dict[str, Range]:
    """Return *ranges*, those of the left side first."""
    first = index_names(*left)
    return {v: ranges[v] for v in (*first, *(v for v in ranges if v not in first))}
