"""A comprehension with some of its sizes left open: numbers where it can be, else functions.

    C(m,n) +=! A(m,k) * B(k,n)   at M = 7, K = 8, N = 9, with M open
        --->   m in [0, M), n in range(9), k in range(8);  C: (M, 9);  context { M >= 0 }

The functions are ``[M] -> { [(...)] }``: the open sizes are isl's parameters, and have values
nowhere; the others are constants.  So one comprehension has one meaning for all the open values,
those that meet its preconditions.

A size that is left open for values in steps of a number is that number times a parameter, and what
all of them are beyond that:

    K = 8 q from 264 to 1024      --->   k in [0, 8 q);  A: (7, 8 q);  context { 33 <= q <= 128 }
    K = 8 q + 1 from 257 to 1017  --->   k in [0, 8 q + 1);  ...       context { 32 <= q <= 127 }

so that strides are known modulo 8 by their form, and with them where rows begin.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

import islpy as isl

from tcdsl.lang.comprehension import Binary, Comprehension, Const, Expr, Size, Specialisation
from tcdsl.lang.ranges.affine import Builder, constant_value
from tcdsl.lang.ranges.size_functions import set_to_expr, to_expr
from tcdsl.lang.rewrite import plus, substitute_sizes, substituted
from tcdsl.lang.size_class import Bounds
from tcdsl.records import dataclass

Extent = int | isl.PwAff
_UNBOUNDED: Bounds = {}


class CannotOpenError(Exception):
    """The sizes cannot be left open: the program is to be compiled for fixed ones."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenRange:
    """The range of an index whose bounds depend on open sizes: from *start* to below *stop*."""

    start: Extent
    stop: Extent


@dataclass(frozen=True, slots=True, eq=False)
class OpenSpecialisation:
    """What a :class:`Specialisation` is for fixed sizes; a size that is open is None in *sizes*."""

    sizes: Mapping[str, int | None]
    ranges: tuple[Mapping[str, range | OpenRange], ...]
    origins: Mapping[str, tuple[Extent, ...]]
    shapes: Mapping[str, tuple[Extent, ...]]
    context: isl.Set  # the open sizes for which this holds: [M] -> { : M >= 0 and ... }


AnySpecialisation = Specialisation | OpenSpecialisation


def leave_open(
    c: Comprehension,
    sizes: Mapping[str, int],
    opened: Collection[str],
    names: Mapping[str, str],
    bounds: Bounds = _UNBOUNDED,
) -> tuple[Comprehension, OpenSpecialisation]:
    """Return *c* with the sizes *opened*, and its ranges and boxes as functions of those.

    :arg sizes: the values of all size symbols; those of the open ones do not matter.
    :arg names: what each size is called from now on, of multiples the number of steps: isl prints
        the names of its parameters into C.
    :arg bounds: the classes of open sizes: the functions hold for these alone, and so have greatest
        values.
    """
    if c.is_deferred:
        raise CannotOpenError("a product with an open size is no affine function")
    given = {names[name]: None if name in opened else sizes[name] for name in c.sizes}
    renamed: dict[str, Expr] = {old: Size(names[old]) for old in c.sizes if names[old] != old}
    for name, each in bounds.items():
        if each.step > 1:
            size = Size(names[name])
            steps = Binary("*", Const(each.step, size.dtype), size, size.dtype)
            renamed[name] = plus(steps, Const(each.rest, size.dtype)) if each.rest else steps
    opener = _Opener(c, given, renamed, {names[name]: each for name, each in bounds.items()})
    special = OpenSpecialisation(
        given,
        tuple(
            {
                index: opener.range(lower, upper)
                for index, (lower, upper) in zip(s.indices, s.ranges, strict=True)
            }
            for s in c.statements
        ),
        {t.name: tuple(map(opener.extent, t.origin)) for t in c.tensors.values()},
        {t.name: tuple(map(opener.extent, t.extents)) for t in c.tensors.values()},
        opener.context,
    )
    statements = tuple(substitute_sizes(statement, renamed) for statement in c.statements)
    return replace(c, sizes=tuple(given), statements=statements), special


class _Opener:
    """Turns functions of all sizes into functions of the open ones."""

    def __init__(
        self,
        c: Comprehension,
        given: Mapping[str, int | None],
        renamed: Mapping[str, Expr],
        bounds: Bounds,
    ) -> None:
        self._renamed = renamed
        params = open_names(given)
        space = isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=[], params=list(params))
        self._builder = Builder(space.params(), given)
        context = isl.Set.universe(space.params())
        kind = isl.dim_type.param
        for position, name in enumerate(params):
            least, greatest = bounds[name].units if name in bounds else (0, None)
            context = context.lower_bound_val(kind, position, isl.Val(least))
            if greatest is not None:
                context = context.upper_bound_val(kind, position, isl.Val(greatest))
        for precondition in c.preconditions:
            holds = substituted(set_to_expr(precondition.holds), renamed)
            context = context.intersect(self._builder.truth(holds).above)
        self.context = context.coalesce()
        self._is_bounded = len(bounds) == len(params)

    def extent(self, function: isl.PwAff) -> Extent:
        """Return the function of all sizes *function* as a number, or as one of the open sizes."""
        value = self._builder.affine(substituted(to_expr(function), self._renamed))
        assert value is not None, "ranges and extents are affine in the sizes"
        value = value.intersect_params(self.context).coalesce().gist_params(self.context)
        constant = constant_value(value)
        if constant is not None:
            return constant
        return value.intersect_params(self.context) if self._is_bounded else value

    def range(self, lower: isl.PwAff, upper: isl.PwAff) -> range | OpenRange:
        start, stop = self.extent(lower), self.extent(upper)
        if isinstance(start, int) and isinstance(stop, int):
            return range(start, stop)
        return OpenRange(start, stop)


def times(extent: Extent, *factors: Extent) -> Extent:
    """Return the product, of whose factors one at most is a function of open sizes."""
    number = 1
    function: isl.PwAff | None = None
    for factor in (extent, *factors):
        if isinstance(factor, int):
            number *= factor
        else:
            assert function is None, "the product of two open sizes is no affine function"
            function = factor
    if function is None or number == 0:
        return number
    return function if number == 1 else function.scale_val(isl.Val(number))


def is_same_extent(one: Extent, other: Extent) -> bool:
    """Return whether the two are equal for all values of the open sizes."""
    if isinstance(one, int) or isinstance(other, int):
        return isinstance(one, int) and isinstance(other, int) and one == other
    return bool(one.is_equal(other))


def is_range(own: "range | OpenRange", extent: Extent) -> bool:
    """Return whether *own* is the range from 0 to below *extent*."""
    return own.start == 0 and is_same_extent(own.stop, extent)


def context_of(special: AnySpecialisation) -> isl.Set:
    """Return the open sizes' values for which *special* holds: without open sizes, everything."""
    if isinstance(special, OpenSpecialisation):
        return special.context
    return isl.Set.universe(isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=[]).params())


def open_names(sizes: Mapping[str, int | None]) -> tuple[str, ...]:
    """Return the sizes that are open, in order."""
    return tuple(name for name, value in sizes.items() if value is None)
