"""Comparison of what a target computes with the NumPy reference, by a derived error bound."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tcdsl.errors import BAD_OUT
from tcdsl.interp.arithmetic import Array
from tcdsl.interp.error_bounds import evaluate_with_bounds
from tcdsl.lang.comprehension import Comprehension, Specialisation
from tcdsl.lang.types.dtypes import DType
from tcdsl.options import Options
from tcdsl.runtime.arrays import as_numpy, spec
from tcdsl.runtime.results import outputs_by_name
from tcdsl.testing.required import arrays_of, require_checkable, targets_of

_AT_ONCE = 1 << 18  # elements: temporaries that stay in a processor's cache


class Checkable(Protocol):
    """What :func:`check` needs of a function (``tcdsl.Function`` has it)."""

    @property
    def comprehension(self) -> Comprehension: ...
    def specialise(self, *inputs: Any) -> Specialisation: ...
    def __call__(
        self, *inputs: Any, out: Any = None, target: str | None = None, **options: Any
    ) -> Any: ...


def poisoned(dtype: DType | str | np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """Return an array of NaN, or of extreme integers: values that show elements never written.

    An element that the generated code does not write is then always wrong.

    :arg dtype: an element type of the language, its name, or NumPy's type for it.
    :raises ShapeError: there is no such type, or *shape* is none.
    """
    stored = dtype if isinstance(dtype, np.dtype) else spec(shape, dtype).dtype.numpy
    if stored.kind == "b":
        return np.ones(shape, stored)
    if stored.kind in "iu":
        info = np.iinfo(stored)
        return np.full(shape, info.min if stored.kind == "i" else info.max - 1, stored)
    return np.full(shape, np.nan).astype(stored)


def compare(expected: Array, bound: Array, actual: Array) -> str | None:
    """Return a description if *actual* differs from *expected* by more than *bound*, else None.

    NaN equals NaN, and an infinity itself; an infinite bound allows anything.  The worst element
    is that which exceeds its bound by the largest factor.

    :arg expected: in a type at least as wide as that of *actual*, and of the same shape.
    :arg bound: absolute, at least 0; of that shape, or of one that is broadcast to it.
    """
    expected, bound, actual = np.asarray(expected), np.asarray(bound), np.asarray(actual)
    if expected.shape != actual.shape:
        return f"its shape is {actual.shape}, expected {expected.shape}"
    if not expected.size:
        return None
    bound = np.broadcast_to(bound, expected.shape)
    lists = [array.reshape(-1) for array in (expected, bound, actual)]
    starts = range(0, expected.size, _AT_ONCE)
    excess = np.concatenate([_excess(*(a[k : k + _AT_ONCE] for a in lists)) for k in starts])
    wrong = excess > 1
    if not wrong.any():
        return None
    worst = tuple(int(i) for i in np.unravel_index(np.argmax(excess), expected.shape))
    return (
        f"{int(wrong.sum())} of {expected.size} elements are wrong, the worst at {worst}: "
        f"got {actual[worst]!s}, expected {_shown(expected[worst], actual.dtype)} "
        f"+- {float(bound[worst]):.3g}"
    )


def _excess(expected: Array, bound: Array, actual: Array) -> Array:
    """Return by which factor each element exceeds its bound; at most 1 is right."""
    if expected.dtype.kind in "biu":
        if actual.dtype != expected.dtype:
            return np.full(expected.shape, np.inf)
        apart = np.where(actual == expected, 0.0, _distance(expected, actual))
    else:
        # Half types have no arithmetic of their own; both NumPy's and ml_dtypes' fit in here.
        found = actual.astype(expected.dtype)
        same = (found == expected) | (np.isnan(found) & np.isnan(expected))
        with np.errstate(all="ignore"):
            apart = np.where(same, 0, np.abs(found - expected))
    with np.errstate(all="ignore"):
        factor = np.where(apart <= bound, 0.0, apart / np.where(bound > 0, bound, 0.0))
    # A NaN where a number is due is as wrong as can be, unless nothing is known.
    factor = np.where(np.isnan(factor), np.inf, factor)
    return np.where(np.isinf(bound), 0.0, factor).astype(np.float64)


def _distance(a: Array, b: Array) -> Array:
    """Return ``|a - b|`` of unequal integers: at least 1, where float64 cannot tell them apart."""
    return np.maximum(np.abs(a.astype(np.float64) - b.astype(np.float64)), 1.0)


def _shown(value: Any, stored: np.dtype[Any]) -> str:
    """Return *value* with all digits, and as the output's own type would hold it."""
    if stored.kind in "biu" or stored == np.float64:
        return str(value)
    with np.errstate(all="ignore"):
        return f"{np.asarray(value).astype(np.float64).astype(stored)!s} ({float(value)!r})"


def check(
    f: Checkable,
    *inputs: Any,
    targets: str | Sequence[str] = ("cpu",),
    options: Options | None = None,
    out: Any = None,
) -> None:
    """Run *f* on each of *targets* and compare each output with the NumPy reference.

    An element may differ from the reference, computed in a wider type, by as much as rounding can
    explain: the bound of each element is derived from the operations that computed it.

    Outputs start as NaN or extreme integers, which reveals elements never written; *out* gives the
    first values of those that the program keeps or updates: an array, a tuple in the order of the
    outputs, or a mapping by name; those that it does not give start as ones.

    :arg f: a function, or any other object that implements :class:`Checkable`.
    :arg inputs: arrays in host memory, or numbers, as in a call.
    :arg targets: one name, or several: "cpu", "cuda", "emulate", "reference".
    :arg options: of the compilation.  Compensated sums are compared against a tighter bound,
        products as tf32, of bfloat16 or in parts of float16 against a wider one.
    :raises AssertionError: naming the target, the output, the worst element, what it is, what it
        should be, and the bound; or an input that was changed.
    :raises TCError: the arguments are wrong (ShapeError, TargetError, OptionError), or the call
        fails.
    """
    require_checkable(f, "check", options)
    names = targets_of(targets)
    s = f.specialise(*inputs)
    c = f.comprehension.at(s.sizes)
    starts = _first_values(c, s) | _given_values(c, s, out)
    given = arrays_of(c, inputs)
    own = Options() if options is None else options
    expected = evaluate_with_bounds(c, s, given, starts, own)
    before = {name: array.copy() for name, array in given.items()}
    chosen = {} if options is None else {"options": options}
    for target in names:
        buffers = tuple(_buffer(c, s, starts, name) for name in c.outputs)
        f(*inputs, out=buffers if len(buffers) > 1 else buffers[0], target=target, **chosen)
        for name, actual in zip(c.outputs, buffers, strict=True):
            if fault := compare(*expected[name], actual):
                raise AssertionError(f"{c.name} on {target}: output {name!r}: {fault}")
        for name, array in before.items():
            if name not in c.outputs and given[name].tobytes() != array.tobytes():
                raise AssertionError(f"{c.name} on {target}: input {name!r} was changed")


def starting_arrays(c: Comprehension, out: Any) -> dict[str, Array]:
    """Return *out* as one array for each output that it names.

    :raises ShapeError: there are too many or too few, a name is of no output, one is no array.
    """
    given = outputs_by_name(c, out)
    return {name: as_numpy(value, f"out {name!r}") for name, value in given.items()}


def _first_values(c: Comprehension, s: Specialisation) -> dict[str, Array]:
    """Return ones for each output whose first values count."""
    return {
        name: np.ones(s.shapes[name], c.tensors[name].dtype.numpy)
        for name in c.outputs
        if c.tensors[name].needs_out
    }


def _given_values(c: Comprehension, s: Specialisation, out: Any) -> dict[str, Array]:
    """Return the first values that *out* gives, whose shapes must be right."""
    given = starting_arrays(c, out)
    for name, array in given.items():
        if array.shape != s.shapes[name]:
            raise BAD_OUT(
                what=f"out {name!r}",
                why=f"its shape is {array.shape}, the output's is {s.shapes[name]}",
                advice="give first values of that shape",
            )
    return given


def _buffer(c: Comprehension, s: Specialisation, starts: Mapping[str, Array], name: str) -> Array:
    """Return what the output *name* is computed into: its first values, or poison."""
    tensor = c.tensors[name]
    if tensor.needs_out:
        return np.array(starts[name], dtype=tensor.dtype.numpy)
    return poisoned(tensor.dtype, s.shapes[name])
