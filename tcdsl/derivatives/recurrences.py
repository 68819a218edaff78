"""The adjoint of a statement that reads elements which earlier instances of it wrote.

    y(i) = y(i - 1) * x(i)    --->    dy(N-1-i) += i >= 1 ? dy(N-i) * x(N-i) : 0     i in 0:N

The adjoint of an element is complete when all its readers' are: it is gathered, element by
element, from the last to the first (the sum over what is left of the indices), in the reverse of
the order in which the statement ran.  After it the adjoints of the other reads are as for any
statement.

Where the reads cannot be gathered, they are scattered (:mod:`reversed_scatters`).

Only a prefix of the dimensions is reversed: those in which no read is at a distance are
independent, and after the first in which all reads are at a positive one the order means nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import islpy as isl

from tcdsl.derivatives import terms
from tcdsl.derivatives.inversion import Inverse, Sizes, inverted, tidied, written
from tcdsl.derivatives.lines import Box, BoxOfInstances, Instances, Line, is_same_range
from tcdsl.derivatives.own_reads import directions
from tcdsl.derivatives.reversed_scatters import Scatter
from tcdsl.derivatives.versions import Step
from tcdsl.lang.comprehension import Binary, Const, Expr, Index, IndexBounds, Load, Select
from tcdsl.lang.ranges.linear import Form, linear
from tcdsl.lang.ranges.reads import index_names
from tcdsl.lang.ranges.size_functions import to_expr
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import BOOL, INT32

Statement = tuple[tuple[Expr, ...], Expr, Instances]  # left side, value, instances


def recurrence(
    step: Step, own: Mapping[Load, Expr], box: Box | None, sizes: Sizes, fresh: Callable[[str], str]
) -> Statement | str:
    """Return ``d(left) += value`` for the reads *own* of the target, or why there is none.

    :arg fresh: gives a new name of an index.
    """
    if box is None:
        return "it is a recurrence, and products of sizes decide where it writes"
    over = _over_elements(step.line, own, sizes)
    line, own, descending = over or (step.line, own, frozenset())
    if over is None and not directions(line.subscripts, sizes.space):
        return "it is a recurrence whose left side is not one to one by an index a dimension"
    ordered = _ordered_dimensions(line, own, descending, sizes)
    found = _gathered(line, own, box, sizes) if over else None
    left: Sequence[Expr] = line.subscripts
    if found is None:
        names = [name for d in ordered for name in index_names(left[d])]
        free = index_names(*(s for d, s in enumerate(left) if _is_shared(line, own, d, sizes)))
        found = Scatter(line, own, box, sizes, fresh, free).over(names)
        if found is None:
            return "it is a recurrence that is in bounds at some sizes alone"
    else:
        left = found.left
    turned = [name for d in ordered if d not in descending for name in index_names(left[d])]
    return _reversed(found, turned, sizes)


def _gathered(line: Line, own: Mapping[Load, Expr], box: Box, sizes: Sizes) -> Inverse | None:
    """Return the sum over the elements that the reads *own* meet; None: they differ too much."""
    left = index_names(*line.subscripts)
    inverses = []
    for load, value in own.items():
        found = inverted(load.subscripts, value, line.instances, box, left, sizes)
        if found is None:
            return None
        inverses.append(found)
    if len(inverses) > 1:
        inverses = [_widened(inverse, box) for inverse in inverses]
    return _joined(inverses)


def _over_elements(
    line: Line, own: Mapping[Load, Expr], sizes: Sizes
) -> tuple[Line, Mapping[Load, Expr], frozenset[int]] | None:
    """Return *line* and *own* with the elements of the left side for indices, or None.

    ``T(N - 1 - i)`` becomes ``T(i)``, for i from the last: the third are the dimensions that run
    downwards.
    """
    values: dict[str, Expr] = {}
    ranges = dict(line.instances.ranges)
    seen: set[str] = set()
    descending: list[int] = []
    for position, subscript in enumerate(line.subscripts):
        form = linear(subscript, sizes.space)
        if form is None or len(form.coefficients) > 1:
            return None
        for v, factor in form.coefficients.items():
            run = ranges[v]
            if v in seen or abs(factor) != 1 or run is None:
                return None
            seen.add(v)
            lower, upper = run
            if factor == 1:
                values[v] = written(Form({v: 1}, form.rest.neg()))
                ranges[v] = lower.add(form.rest), upper.add(form.rest)
            else:
                descending.append(position)
                values[v] = written(Form({v: -1}, form.rest))
                end = form.rest.add(sizes.space.one)
                ranges[v] = end.sub(upper), end.sub(lower)
    if not values or all(value == Index(v) for v, value in values.items()):
        return line, own, frozenset()
    if line.instances.dependent or line.instances.data_ranges:
        return None

    def change(node: Expr) -> Expr:
        return values.get(node.name, node) if isinstance(node, Index) else node

    def moved(expr: Expr) -> Expr:
        return tidied(rewrite(expr, change), sizes.space)

    reads = {moved(load): moved(value) for load, value in own.items()}
    loads = {load: value for load, value in reads.items() if isinstance(load, Load)}
    over = line.rewritten(change)
    instances = replace(over.instances, ranges=ranges)
    subscripts = tuple(tidied(s, sizes.space) for s in over.subscripts)
    return replace(over, subscripts=subscripts, instances=instances), loads, frozenset(descending)


def _widened(found: Inverse, box: Box) -> Inverse:
    """Return *found* over the whole *box* of its left side, 0 where it adds nothing."""
    ranges, guards = dict(found.instances.ranges), []
    for subscript, dim in zip(found.left, box, strict=True):
        run = ranges.get(subscript.name) if isinstance(subscript, Index) else None
        if run is None or is_same_range(run, dim):
            continue
        (lower, upper), index = run, subscript
        assert isinstance(index, Index)
        guards.append(Binary(">=", index, to_expr(lower), BOOL))
        guards.append(Binary("<", index, to_expr(upper), BOOL))
        ranges[index.name] = dim
    if not guards or not found.instances.is_box:
        return found
    zero = terms.number(0.0, found.value.dtype)
    value = Select(terms.conjunction(guards), found.value, zero, found.value.dtype)
    return Inverse(found.left, value, replace(found.instances, ranges=ranges))


def _joined(inverses: list[Inverse]) -> Inverse | None:
    """Return one sum of all *inverses*, None: they are not over the same indices."""
    first = inverses[0]
    if len(inverses) == 1:
        return first
    values = [first.value]
    for other in inverses[1:]:
        if not all(isinstance(a, Index) == isinstance(b, Index)
                   for a, b in zip(first.left, other.left, strict=True)):  # fmt: skip
            return None
        renamed = _renamed(other, first)
        if renamed is None:
            return None
        values.append(renamed)
    return Inverse(first.left, terms.total(values), first.instances)


def _renamed(other: Inverse, first: Inverse) -> Expr | None:
    """Return the value of *other* in the indices of *first*, or None: they differ."""
    names = {b.name: a.name for a, b in zip(first.left, other.left, strict=True)
             if isinstance(a, Index) and isinstance(b, Index)}  # fmt: skip
    ranges = {names.get(v, v): r for v, r in other.instances.ranges.items()}
    if not (first.instances.is_box and other.instances.is_box) or first.left != tuple(
        rewrite(s, lambda n: Index(names[n.name]) if isinstance(n, Index) else n)
        for s in other.left
    ):
        return None
    if set(ranges) != set(first.instances.ranges):
        return None
    for v, run in ranges.items():
        known = first.instances.ranges[v]
        if run is None or known is None or not is_same_range(run, known):
            return None

    def change(node: Expr) -> Expr:
        return Index(names.get(node.name, node.name)) if isinstance(node, Index) else node

    return rewrite(other.value, change)


def _ordered_dimensions(
    line: Line, own: Mapping[Load, Expr], descending: frozenset[int], sizes: Sizes
) -> list[int]:
    """Return the dimensions whose order means something."""
    where = BoxOfInstances(line.instances.ranges, sizes.space, sizes.known)
    domain = where.points
    for condition in _affine_conditions(line.instances):
        domain = domain.intersect(where.builder.truth(condition).above)
    found: list[int] = []
    for position, at in enumerate(line.subscripts):
        distances = [_distance(where, at, load.subscripts[position]) for load in own]
        if position in descending:
            distances = [None if d is None else d.neg() for d in distances]
        zero = where.builder.constant(0)
        known = [d for d in distances if d is not None]
        if len(known) == len(distances):
            if all(domain.is_subset(d.eq_set(zero)) for d in known):
                continue
            if all(domain.is_subset(d.gt_set(zero)) for d in known):
                return [*found, position]
        found.append(position)
    return found


def _is_shared(line: Line, own: Mapping[Load, Expr], position: int, sizes: Sizes) -> bool:
    """Return whether all reads are of elements with the written one's subscript at *position*."""
    where = BoxOfInstances(line.instances.ranges, sizes.space, sizes.known)
    at, zero = line.subscripts[position], where.builder.constant(0)
    each = (_distance(where, at, load.subscripts[position]) for load in own)
    return all(d is not None and where.points.is_subset(d.eq_set(zero)) for d in each)


def _affine_conditions(instances: Instances) -> list[Expr]:
    conditions = list(instances.conditions)
    for bounds in instances.dependent:
        index = Index(bounds.index)
        conditions.append(Binary(">=", index, bounds.lower, BOOL))
        conditions.append(Binary("<", index, bounds.upper, BOOL))
    return conditions


def _distance(where: BoxOfInstances, written: Expr, read: Expr) -> isl.PwAff | None:
    one, other = where.builder.affine(written), where.builder.affine(read)
    return None if one is None or other is None else one.sub(other)


def _reversed(found: Inverse, turned: Sequence[str], sizes: Sizes) -> Statement:
    """Return *found* with the indices *turned* running backwards."""
    values: dict[str, Expr] = {}
    for name in turned:
        run = found.instances.ranges[name]
        assert run is not None
        lower, upper = run
        ends = to_expr(sizes.space.simplified(lower.add(upper).sub(sizes.space.one)))
        if ends != Const(0, INT32):
            values[name] = Binary("-", ends, Index(name), INT32)

    def change(node: Expr) -> Expr:
        return values.get(node.name, node) if isinstance(node, Index) else node

    if not values:
        return found.left, found.value, found.instances
    instances = found.instances.rewritten(change)
    conditions = list(instances.conditions)
    kept: list[list[IndexBounds]] = []
    for all_bounds in (instances.dependent, instances.data_ranges):
        kept.append([bounds for bounds in all_bounds if bounds.index not in values])
        for bounds in all_bounds:
            if bounds.index in values:
                at = values[bounds.index]
                conditions.append(Binary(">=", at, bounds.lower, BOOL))
                conditions.append(Binary("<", at, bounds.upper, BOOL))
    dependent, data_ranges = map(tuple, kept)
    instances = Instances(instances.ranges, dependent, data_ranges, tuple(conditions))
    left = tuple(tidied(rewrite(s, change), sizes.space) for s in found.left)
    return left, tidied(rewrite(found.value, change), sizes.space), instances
