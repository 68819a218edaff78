"""A kernel's problem at less than the greatest sizes of a class, to weigh configurations there.

    y(b,n) +=! x(b,l,n)    B in 17..64       planned for 64 rows: as many blocks as a chip holds
                           B in 17..17       17 rows: blocks that share a sum fill it

A configuration is one that is legal at the greatest sizes.  What it costs at a quarter of these, or
at the least size of the class if that is more, is that of the same problem in a smaller context.
There is none where a statement has nothing to do then.  Chunks of a sum over an open size, which
are dealt to blocks so that a lesser size has as many, are those of the greatest size here.

The best of several is the one whose greatest *excess* is the least: its time over the least that
any of them takes at that size.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import islpy as isl

from tcdsl.costmodel.locality import Shape, shape_of
from tcdsl.poly.isl_utils import Extent, constant_bounds
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Array, Scop, Statement
from tcdsl.strategies.problem import Problem, own_analysis

PART = 4  # the lesser size is at least the greatest divided by that


def excesses(times: Sequence[Sequence[float]]) -> list[float]:
    """Return the greatest excess of each of *times*, of one configuration each, over all sizes.

    At a size at which a time is inf, it is not weighed.
    """
    least = [min(at_size) for at_size in zip(*times, strict=True)]

    def excess(seconds: float, least: float) -> float:
        return 1.0 if seconds == inf else seconds / least

    return [max(map(excess, own, least)) for own in times]


def scop_at_lesser_sizes(scop: Scop) -> Scop | None:
    """Return *scop* at lesser open sizes, None if none is open."""
    return _within(scop, _lesser(scop.context)) if scop.context.dim(isl.dim_type.param) else None


@own_analysis
def at_lesser_sizes(problem: Problem) -> Problem | None:
    """Return *problem* at lesser open sizes, None where none is open."""
    if problem.chunks is not None or problem.finish is not None or problem.is_ragged:
        return None
    members = {name: problem.shapes[name] for name in problem.group.members}
    if not (any(map(problem.is_open, problem.parallel)) or has_open_sum(problem)):
        return None
    scop = _within(problem.scop, _lesser(problem.scop.context))
    found = {name: _shape(problem.scop, scop, shape) for name, shape in members.items()}
    if not all(shape.instances for shape in found.values()):
        return None  # a stencil's halo alone
    return replace(problem, scop=scop, shapes={**problem.shapes, **found})


def has_open_sum(problem: Problem) -> bool:
    """Return whether some member of *problem* adds up along an open size."""
    return any(
        role is Role.REDUCED and problem.is_open({name: dim})
        for name in problem.group.members
        for dim, role in enumerate(problem.shapes[name].roles)
    )


def _lesser(context: isl.Set) -> isl.Set:
    """Return *context* up to a quarter of the greatest value of each size, or its least one."""
    kind = isl.dim_type.param
    for position in range(context.dim(kind)):
        values = context.from_params().move_dims(isl.dim_type.set, 0, kind, position, 1)
        bounds = constant_bounds(values, 0)
        assert bounds is not None, "open sizes have bounds on a GPU"
        least, greatest = bounds
        most = isl.Val(max(least, -(-greatest // PART)))
        context = context.upper_bound_val(kind, position, most)
    return context


def _within(scop: Scop, context: isl.Set) -> Scop:
    """Return *scop* in the smaller *context*: what its extents and domains have there."""

    def extent(own: Extent) -> Extent:
        return own if isinstance(own, int) else own.intersect_params(context)

    def array(own: Array) -> Array:
        return replace(own, shape=tuple(map(extent, own.shape)))

    def statement(own: Statement) -> Statement:
        return replace(own, domain=own.domain.intersect_params(context))

    arrays = {name: array(own) for name, own in scop.arrays.items()}
    statements = tuple(map(statement, scop.statements))
    return replace(scop, context=context, arrays=arrays, statements=statements)


def _shape(before: Scop, scop: Scop, shape: Shape) -> Shape:
    """Return *shape*, of *before*, in *scop*; what it has beyond its statement it keeps."""
    own = shape_of(before, shape.statement, shape.roles)
    found = shape_of(scop, scop.by_name[shape.statement.name], shape.roles)
    dims = range(len(own.extents))
    is_own = [(own.lower[d], own.extents[d]) == (shape.lower[d], shape.extents[d]) for d in dims]
    return replace(
        found,
        lower=tuple(found.lower[d] if is_own[d] else shape.lower[d] for d in dims),
        extents=tuple(found.extents[d] if is_own[d] else shape.extents[d] for d in dims),
    )
