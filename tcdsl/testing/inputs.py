"""Arguments for a function of the user's, drawn by Hypothesis.

    @given(inputs_for(softmax))
    def test_rows_sum_to_one(inputs):
        assert np.allclose(softmax(*inputs).sum(axis=1), 1)

Sizes are drawn such that the function accepts them; a tensor whose values subscript another one
holds valid subscripts.  Failures shrink towards small sizes, arrays that count 0, 1, 2, ... and
elements that lie in memory one after another.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tcdsl.api import require_function
from tcdsl.errors import TCError
from tcdsl.interp.arithmetic import Array
from tcdsl.lang.comprehension import Comprehension
from tcdsl.lang.ranges.specialiser import specialise
from tcdsl.lang.types.dtypes import DType
from tcdsl.options import BAD_ARGUMENT
from tcdsl.testing import random_inputs
from tcdsl.testing.parameters import (
    are_possible,
    chosen_sizes,
    range_limits,
    shapes_of,
    subscript_limits,
)
from tcdsl.testing.required import layouts_of, sizes_of, whole_number

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

MAX_ELEMENTS = 1 << 16  # of all inputs together
KINDS = ("counting", "whole", "real")  # simple ones first: Hypothesis shrinks towards them
SPECIAL = "special"
_OTHER_SIZES = "give other sizes, or give fewer of them and raise max_size"


class Defined(Protocol):
    """What :func:`inputs_for` needs of a function (``tcdsl.Function`` has it)."""

    @property
    def comprehension(self) -> Comprehension: ...


def inputs_for(
    f: Defined,
    *,
    sizes: Mapping[str, int] | None = None,
    min_size: int = 0,
    max_size: int = 16,
    special: bool = False,
    layouts: str | Sequence[str] = random_inputs.LAYOUTS,
) -> "SearchStrategy[tuple[Any, ...]]":
    """Return the strategy of arguments for *f*: a tuple of arrays, in the order of its parameters.

    A ``size`` parameter is an int among them.  A tensor whose values bound a range holds values
    that do, in half of the draws in ascending order.

    :arg sizes: the values of some size symbols; others are drawn from *min_size* to *max_size*.
    :arg special: floats may be NaN, infinite, -0.0 or denormal, integers their type's extremes.
    :arg layouts: how arrays may lie in memory, one or several of "contiguous", "transposed",
        "negative" (strides), "strided" (with gaps), "broadcast" (a stride of zero).
    :raises OptionError: (TC064) *f* is no def or has no such size, there is no such layout, or no
        call of *f* has sizes like these.
    """
    require_function(f, "inputs_for")
    c = f.comprehension
    fixed = sizes_of(sizes, c)
    names = layouts_of(layouts, random_inputs.LAYOUTS)
    least = whole_number("min_size", min_size)
    most = whole_number("max_size", max_size, least)
    if why := why_not_drawable(c, fixed, least, most):
        what, advice = why
        raise BAD_ARGUMENT(argument="sizes", what=what, advice=advice)
    return _arguments(c, fixed, (least, most), names, special)


def why_not_drawable(
    c: Comprehension, fixed: Mapping[str, int], least: int, most: int
) -> tuple[str, str] | None:
    """Return why no arguments of *c* have such sizes, and what to do; None if some have."""
    asked = [f"{name} = {value}" for name, value in fixed.items()]
    asked += [f"{name} from {least} to {most}" for name in c.sizes if name not in fixed]
    if not are_possible(c, fixed, least, most):
        why = _refusal(c, fixed) or "none of these is possible"
        return f"no call of {c.name!r} has {', '.join(asked)}: {why}", _OTHER_SIZES
    smallest = {name: fixed.get(name, least) for name in c.sizes}
    elements = sum(math.prod(shape) for shape in shapes_of(c, smallest).values())
    if elements > MAX_ELEMENTS:
        what = f"the inputs have {elements} elements or more with {', '.join(asked)}"
        return what, f"ask for smaller sizes: at most {MAX_ELEMENTS} elements are drawn"
    return None


def _refusal(c: Comprehension, sizes: Mapping[str, int]) -> str | None:
    """Return what a call at *sizes* says; None if it says nothing, or these are not all sizes."""
    if set(sizes) < set(c.sizes):
        return None
    try:
        specialise(c.at(sizes), sizes)
    except TCError as error:
        return error.message
    return None


def _arguments(
    c: Comprehension,
    fixed: Mapping[str, int],
    bounds: tuple[int, int],
    layouts: Sequence[str],
    special: bool,
) -> "SearchStrategy[tuple[Any, ...]]":
    from hypothesis import strategies as st

    kinds = (*KINDS, SPECIAL) if special else KINDS

    @st.composite
    def arguments(draw: Callable[[Any], Any]) -> tuple[Any, ...]:
        from hypothesis import assume

        def choose(low: int, high: int) -> int:
            return int(draw(st.integers(low, high)))

        chosen = chosen_sizes(c, fixed, *bounds, choose)
        assume(chosen is not None)
        assert chosen is not None
        assume(not c.is_deferred or _refusal(c, chosen) is None)
        shapes, limits = shapes_of(c, chosen), subscript_limits(c, chosen)
        ranges = range_limits(c, chosen)
        assume(sum(map(np.prod, shapes.values())) <= MAX_ELEMENTS)
        arrays = []
        for name, shape in shapes.items():
            dtype, limit = c.tensors[name].dtype, limits.get(name)
            assume(limit != 0 or 0 in shape)  # there is no valid subscript
            seed = choose(0, 999)
            if name in ranges and limit is None and dtype.is_integer:
                array = random_inputs.range_bounds(ranges[name], shape, dtype, seed)
            elif limit is not None and dtype.is_integer:
                array = random_inputs.subscripts(limit or 1, shape, dtype, seed)
            else:
                array = values(dtype, shape, draw(st.sampled_from(kinds)), seed)
            arrays.append(random_inputs.laid_out(array, draw(st.sampled_from(layouts))))
        by_name = dict(zip(shapes, arrays, strict=True)) | chosen
        return tuple(by_name[name] for name in c.parameters)

    return arguments()


def values(dtype: DType, shape: tuple[int, ...], kind: str, seed: int) -> Array:
    """Return an array of one of :data:`KINDS`, or with special values."""
    if kind == "counting" and dtype.name != "bool":
        # Half types hold every integer up to 256.
        return (np.arange(np.prod(shape, dtype=int)) % 101).reshape(shape).astype(dtype.numpy)
    if kind == SPECIAL and dtype.is_integer:
        rng, info = np.random.default_rng(seed), np.iinfo(dtype.numpy)
        return rng.choice(np.array([0, 1, info.min, info.max], dtype.numpy), shape)
    return random_inputs.values(dtype, shape, "real" if kind == "counting" else kind, seed)
