"""What a definition's parameters are at given sizes, and which sizes it can be called with."""

from collections.abc import Callable, Iterator, Mapping

import islpy as isl

from tcdsl.lang.comprehension import Cast, Comprehension, Expr, Load, Statement, walk
from tcdsl.lang.ranges.isl_bounds import ISL_LOCK
from tcdsl.lang.ranges.size_functions import SizeSpace, evaluate
from tcdsl.lang.types.head import extent_at

Choose = Callable[[int, int], int]  # a number between two, both included


def shapes_of(comprehension: Comprehension, sizes: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the parameters at *sizes*."""
    return {
        name: tuple(extent_at(dim or 0, sizes) for dim in comprehension.tensors[name].dims)
        for name in comprehension.inputs
    }


def subscript_limits(comprehension: Comprehension, sizes: Mapping[str, int]) -> dict[str, int]:
    """Return, for each tensor that serves as a subscript, the least extent that it subscripts."""
    limits: dict[str, int] = {}
    for statement in comprehension.statements:
        for tensor, subscripts in _accesses(statement):
            for dim, subscript in zip(comprehension.tensors[tensor].dims, subscripts, strict=False):
                extent = None if dim is None else extent_at(dim, sizes)
                while isinstance(subscript, Cast):
                    subscript = subscript.operand
                if isinstance(subscript, Load) and extent is not None:
                    name = subscript.tensor
                    limits[name] = min(limits.get(name, extent), extent)
    return limits


def range_limits(comprehension: Comprehension, sizes: Mapping[str, int]) -> dict[str, range]:
    """Return, for each tensor that bounds a range, the values that the range's index has."""
    limits: dict[str, range] = {}
    for statement in comprehension.statements:
        for bounds in statement.data_ranges:
            with ISL_LOCK:
                ends = statement.ranges[statement.indices.index(bounds.index)]
                whole = range(*(evaluate(end, sizes) for end in ends))
            for tensor in {name for e in (bounds.lower, bounds.upper) for name in _loaded(e)}:
                old = limits.get(tensor, whole)
                limits[tensor] = range(max(old.start, whole.start), min(old.stop, whole.stop))
    return limits


def _loaded(bound: Expr) -> Iterator[str]:
    """Yield the tensor whose element *bound* is, perhaps converted."""
    while isinstance(bound, Cast):
        bound = bound.operand
    if isinstance(bound, Load):
        yield bound.tensor


def _accesses(statement: Statement) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    """Yield (tensor, subscripts) of every access of *statement*, the written one first."""
    yield statement.target, statement.subscripts
    bounds = (e for b in statement.data_ranges for e in (b.lower, b.upper))
    for root in (*statement.subscripts, statement.value, *statement.conditions, *bounds):
        for node in walk(root):
            if isinstance(node, Load):
                yield node.tensor, node.subscripts


def chosen_sizes(
    comprehension: Comprehension,
    fixed: Mapping[str, int],
    least: int,
    most: int,
    choose: Choose,
) -> dict[str, int] | None:
    """Return sizes that meet every precondition of a call: *fixed*, others in [*least*, *most*].

    *choose* is asked once a size, for a number between the least and the greatest that the sizes
    chosen before leave possible; None if a hole between them is hit, or no sizes will do.
    """
    bounds = _bounds(comprehension, fixed, least, most)
    if not bounds:
        return {}
    sizes: dict[str, int] = {}
    with ISL_LOCK:  # another thread's quota is not for this work
        possible = _possible_sizes(comprehension, bounds)
        for position, name in enumerate(bounds):
            if possible.is_empty():
                return None
            low = possible.dim_min_val(position).to_python()
            high = possible.dim_max_val(position).to_python()
            sizes[name] = choose(low, high)
            possible = possible.fix_val(isl.dim_type.set, position, isl.Val(sizes[name]))
        return None if possible.is_empty() else sizes


def are_possible(
    comprehension: Comprehension, fixed: Mapping[str, int], least: int, most: int
) -> bool:
    """Return whether a call with sizes like these is accepted."""
    bounds = _bounds(comprehension, fixed, least, most)
    with ISL_LOCK:
        return not bounds or not _possible_sizes(comprehension, bounds).is_empty()


def _bounds(
    comprehension: Comprehension, fixed: Mapping[str, int], least: int, most: int
) -> dict[str, tuple[int, int]]:
    return {
        name: (fixed[name], fixed[name]) if name in fixed else (least, most)
        for name in comprehension.sizes
    }


def _possible_sizes(comprehension: Comprehension, bounds: Mapping[str, tuple[int, int]]) -> isl.Set:
    """Return { [sizes] : a call with them is accepted }, the sizes in the order of *bounds*."""
    where = SizeSpace(tuple(bounds)).sane
    for precondition in comprehension.preconditions:
        where = where.intersect(precondition.holds)
    possible = isl.Set.from_params(where).move_dims(
        isl.dim_type.set, 0, isl.dim_type.param, 0, len(bounds)
    )
    for position, (low, high) in enumerate(bounds.values()):
        possible = possible.lower_bound_val(isl.dim_type.set, position, isl.Val(low))
        possible = possible.upper_bound_val(isl.dim_type.set, position, isl.Val(high))
    return possible
