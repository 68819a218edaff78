"""Statements over what contractions have made: pointwise, reductions, softmax, strided stores.

t1(n, m) = tanh(t0(m, n) + a2(n))          bias, activation, residual, mask, cast; any order
t2(m) max=! t0(m, n)                       over any of the indices
t3(m, n) = 0 where n in 0:64               a store with a stride
t3(m, 2*n) = t0(m, n)
"""

from collections.abc import Callable

from tcdsl.lang.types.dtypes import BFLOAT16, FLOAT32, INT64, calculated, promote
from tcdsl.testing.draft import Extent, Known, Written
from tcdsl.testing.drafted_products import Axes, Axis, Products, element


def pointwise(d: Products) -> None:
    """``t(n, m) = relu(t(m, n) + a(n))``: in place, or another tensor of any order."""
    tensor = _result(d)
    axes, value = d.along[tensor.name], d.read(tensor)
    for _ in range(d.choose(1, 2, 3)):
        value = _step(d, value, axes)
    if d.choose(True, False):
        text = f"{tensor.dtype}({value.text})"
        d.write(d.read(tensor).text, "=", Written(text, tensor.dtype), axes)
    else:
        d.statement(d.shuffled(axes), "=", value)


def _step(d: Products, value: Written, axes: Axes) -> Written:
    """Return what is computed of a result's *value*: bias, activation, residual, mask, cast."""
    if value.dtype.is_float:
        form = d.choose(
            "({0} + {1})", "relu({0})", "({0} + {2})", "0.125 * {0}", "{0} * {1}", "tanh({0})",
            "({2} > 0.0 ? {0} : 0.0)", "bfloat16({0})", "0.5 * {0} * (1.0 + erf(0.7 * {0}))",
        )  # fmt: skip
    else:
        form = d.choose(
            "({0} + {1})", "relu({0})", "2 * {0}", "float({0}) * {1}", "({2} > 0 ? {0} : 0)"
        )
    kind = value.dtype if "float(" not in form else FLOAT32
    some = d.factor(axes, kind) if "{1}" in form else ""
    every = d.operand(axes, kind).text if "{2}" in form else ""
    dtype = promote(kind, calculated(value.dtype))
    if "bfloat16" in form:
        dtype = BFLOAT16
    return Written(form.format(value.text, some, every), dtype)


def reduced(d: Products) -> None:
    """``t(m) max=! t(m, n)``, over any of the indices."""
    tensor = _result(d)
    axes, value = d.along[tensor.name], d.read(tensor)
    left = d.some_of(axes)
    if len(left) == len(axes):
        left = left[1:]
    rest = tuple(axis for axis in axes if axis not in left)
    has_values = all(axis.value for axis in rest)
    if len(rest) == 1 and has_values and d.rarely(4):
        d.statement(left, d.choose("argmax=!", "argmin=!"), Written(value.text, INT64), rest)
    elif axes:
        d.statement(left, d.choose("+=!", "max=!", "min=!"), value, rest)


def softmax(d: Products) -> None:
    """The largest value of each row and the sum of its exponentials; at times the quotients."""
    tensor = _result(d)
    axes = d.along[tensor.name]
    if not axes or not tensor.dtype.is_float:
        reduced(d)
        return
    left, row = axes[:-1], axes[-1:]
    top = d.statement(left, "max=!", d.read(tensor), row)
    term = f"exp({d.read(tensor).text} - {d.read(top).text})"
    total = d.statement(left, "+=!", Written(term, promote(FLOAT32, tensor.dtype)), row)
    if d.choose(True, False):
        term = f"exp({d.read(tensor).text} - {d.read(top).text}) / {d.read(total).text}"
        d.statement(axes, "=", Written(term, promote(FLOAT32, tensor.dtype)))


def spread(d: Products) -> None:
    """``t(m, n) = 0 where n in 0:2*N`` and ``t(m, 2*n) = ...``: a store with a stride."""
    tensor = _result(d)
    axes = d.along[tensor.name]
    if not axes:
        return
    at = d.number(0, len(axes) - 1)
    size = 2 * axes[at].value
    wide = Axis(axes[at].name, Extent(str(size), size))
    zero = Written(f"{tensor.dtype}(0)", tensor.dtype)
    made = d.statement((*axes[:at], wide, *axes[at + 1 :]), "=", zero)
    subscripts = [f"2*{a.name}" if a is axes[at] else a.name for a in axes]
    d.write(element(made.name, subscripts), "=", d.read(tensor), axes)


def _result(d: Products) -> Known:
    """Return a tensor that a statement made, the last one first."""
    return d.choose(*reversed([t for t in d.tensors if not t.is_input]))  # type: ignore[no-any-return]


AFTER: tuple[Callable[[Products], None], ...] = (pointwise, reduced, pointwise, softmax, spread)
