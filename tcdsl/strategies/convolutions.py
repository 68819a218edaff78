"""Convolutions as libraries take them: which statement is one, or a gradient of one.

    Y(n,f,p,q) +=! (inside ? X(n,c, s p + d r - b, ..) : 0) * W(f,c,r,s)      the result
    X(n,c,y,x) +=! (inside ? Y(n,f, (y + b - d r) / s, ..) : 0) * W(f,c,r,s)  the image
    W(f,c,r,s) +=! Y(n,f,p,q) * (inside ? X(n,c, s p + d r - b, ..) : 0)      the filter

One factor has *windows*, subscripts of two indices: of a pixel, and of a tap.  All other subscripts
are indices.  Which tensor is which follows from where each index is:

                       n                      c or f                        pixel    tap
    the result     target, windows        windows, the other; target, other target   other
    the image      as the result, but taps are subtracted
    the filter     windows, the other     target, windows; target, other    other    target

The first and the last are one form with other names; taps are the fewer values, or what the layout
allows.  Legal iff the instances are a box, the guard holds exactly where the factor with windows
has an element (and where a quotient is whole), all three arrays lie in memory without gaps, with
channels last or second, and there are as many results as windows fit the image and its zeros.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import prod

import islpy as isl

from tcdsl.costmodel.convolutions import Computed, Convolution, Window
from tcdsl.costmodel.locality import array_strides
from tcdsl.lang.comprehension import Binary, Const, Expr, Index, Operator
from tcdsl.lang.linear_forms import linear
from tcdsl.lang.types.dtypes import BOOL, INT32
from tcdsl.lang.types.library_calls import TYPES
from tcdsl.poly.accesses import access, builder_of, elements_in
from tcdsl.poly.scop import Array, Kind, Scop, Statement
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.index_classes import why_not_merged
from tcdsl.rewrites.scop.packing import Factor, factor_of

RANKS = (1, 2, 3)  # spatial dimensions that libraries have


@dataclass(frozen=True, slots=True)
class _Subscript:
    """``(a i + b j + constant) / divisor``; i is *of_target*, the other index *of_other*."""

    of_target: str
    of_other: str
    factors: Mapping[str, int]
    constant: int
    divisor: int


@dataclass(frozen=True, slots=True)
class _Form:
    """A sum of products of a factor with *windows* and another one, whose subscripts are indices.

    *dims*: the dimensions of the former's windows; *extents*: how many values indices have.
    """

    scop: Scop
    statement: Statement
    windowed: Factor
    other: Factor
    dims: tuple[int, ...]
    subscripts: tuple[_Subscript, ...]
    extents: Mapping[str, int]

    def array(self, name: str) -> Array:
        return self.scop.arrays[name]


def convolution(scop: Scop, statement: Statement) -> Convolution | str:
    """Return the convolution, or gradient of one, that *statement* is, or why it is none."""
    form = _form(scop, statement)
    if isinstance(form, str):
        return form
    if reason := _why_not_guarded(form):
        return reason
    reasons = []
    for kind in _kinds(form):
        found = _convolution(form, kind)
        if isinstance(found, Convolution):
            return found
        reasons.append(found)
    return reasons[0]


def _form(scop: Scop, statement: Statement) -> _Form | str:
    reduction, value = statement.reduction, statement.value
    if statement.kind is not Kind.UPDATE or reduction is None:
        return "it is no sum"
    if reduction.operator is not Operator.ADD or not isinstance(value, Binary) or value.op != "*":
        return "it is no sum of products"
    if statement.conditions or statement.companion is not None or statement.is_atomic:
        return "conditions leave terms out"
    if reason := why_not_merged(statement):
        return reason
    if not all(one.is_exact for one in (statement.write, *statement.reads)):
        return "data choose its elements"
    factors = [factor_of(side) for side in (value.left, value.right)]
    if any(factor is None for factor in factors):
        return "it is not of two tensors alone"
    one, other = (factor for factor in factors if factor is not None)
    arrays = [scop.arrays[name] for name in (statement.write.array, one.load.tensor,
                                             other.load.tensor)]  # fmt: skip
    types = {array.dtype for array in arrays}
    if len(types) > 1 or TYPES.get(arrays[0].dtype) != reduction.dtype:
        return f"its tensors are {', '.join(str(array.dtype) for array in arrays)}"
    if len({array.name for array in arrays}) < len(arrays):
        return "it reads its result, or one tensor twice"
    if not _are_plain(statement.write.subscripts):
        return "its result's subscripts are not indices"
    if _are_plain(one.load.subscripts):
        one, other = other, one
    if _are_plain(one.load.subscripts) or not _are_plain(other.load.subscripts):
        return "no one of its operands has windows: subscripts of a pixel and a tap"
    if other.condition is not None:
        return "a condition is on the operand without windows"
    ends = (_end(statement.domain, dim) for dim in range(len(statement.indices)))
    extents = dict(zip(statement.indices, ends, strict=True))
    dims = tuple(d for d, s in enumerate(one.load.subscripts) if not isinstance(s, Index))
    placed = [_subscript(statement, other, one.load.subscripts[d]) for d in dims]
    subscripts = tuple(own for own in placed if own is not None)
    if len(subscripts) < len(dims) or len(dims) not in RANKS:
        return f"{one.load.tensor} has a subscript that is no window: of one pixel and one tap"
    if len(one.load.subscripts) != len(dims) + 2:
        return "there are other indices than of images, channels and filters"
    return _Form(scop, statement, one, other, dims, subscripts, extents)


def _are_plain(subscripts: Sequence[Expr]) -> bool:
    return all(isinstance(s, Index) for s in subscripts) and len({*subscripts}) == len(subscripts)


def _end(domain: isl.Set, dim: int) -> int:
    return int(domain.dim_max_val(dim).to_python()) + 1


def _subscript(statement: Statement, other: Factor, expr: Expr) -> _Subscript | None:
    divisor = 1
    match expr:
        case Binary(op="/", left=inner, right=Const(value=number)) if int(number) > 0:
            expr, divisor = inner, int(number)
    found = linear(expr)
    if found is None or len(found[0]) != 2:
        return None
    of_target = [i for i in found[0] if i in statement.left]
    of_other = [i for i in found[0] if i in other.indices and i not in statement.left]
    if len(of_target) != 1 or len(of_other) != 1:
        return None
    return _Subscript(of_target[0], of_other[0], found[0], found[1], divisor)


def _why_not_guarded(form: _Form) -> str | None:
    """Return why the guard holds elsewhere than where the array has an element, or None."""
    statement, factor = form.statement, form.windowed
    builder = builder_of(statement.indices, statement.name, form.scop.sizes)
    array, holds = form.array(factor.load.tensor), statement.domain
    everything = access(
        builder, array.name, factor.load.subscripts, form.scop.arrays, statement.domain
    )
    inside = elements_in(array, everything.relation.get_space().range())
    there = everything.relation.intersect_range(inside).domain()
    for subscript, dim in zip(form.subscripts, form.dims, strict=True):
        if subscript.divisor > 1:
            whole = factor.load.subscripts[dim]
            assert isinstance(whole, Binary)
            rest = Binary("%", whole.left, Const(subscript.divisor, INT32), INT32)
            exact = builder.truth(Binary("==", rest, Const(0, INT32), BOOL)).exact
            assert exact is not None, "it is affine"
            there = there.intersect(exact)
    if factor.condition is not None:
        exact = builder.truth(factor.condition).exact
        if exact is None:
            return "a condition is not on indices alone"
        holds = exact.intersect(statement.domain)
    if not holds.is_equal(there):
        return f"its guard does not hold exactly where {array.name} has an element"
    return None


def _kinds(form: _Form) -> Iterator[Computed]:
    """Yield what the statement may compute, the likeliest first."""
    if any(s.divisor > 1 or s.factors[s.of_other] < 0 for s in form.subscripts):
        yield Computed.IMAGE
        return
    pixels, taps = (
        prod(form.extents[name] for name in names)
        for names in zip(*((s.of_target, s.of_other) for s in form.subscripts), strict=True)
    )
    first, then = Computed.RESULT, Computed.FILTER
    yield from (first, then) if taps <= pixels else (then, first)


def _convolution(form: _Form, kind: Computed) -> Convolution | str:
    """Return the convolution whose tensor *kind* the statement computes, or why it is none."""
    statement = form.statement
    target = [s.name for s in statement.write.subscripts if isinstance(s, Index)]
    other = [s.name for s in form.other.load.subscripts if isinstance(s, Index)]
    plain = [s.name for s in form.windowed.load.subscripts if isinstance(s, Index)]
    with_target = [i for i in plain if i in target and i not in other]
    with_other = [i for i in plain if i in other and i not in target]
    both = [i for i in target if i in other]
    if [len(with_target), len(with_other), len(both)] != [1, 1, 1]:
        return "there are other indices than of images, channels and filters"
    # n, the index of the tensor with windows that is not n, and that which this has not.
    is_filter = kind is Computed.FILTER
    image, depth = (with_other, with_target) if is_filter else (with_target, with_other)
    names = image[0], depth[0], both[0]
    channel, filter_ = (names[2], names[1]) if kind is Computed.IMAGE else (names[1], names[2])
    windows = [_window(form, own, dim, kind)
               for own, dim in zip(form.subscripts, form.dims, strict=True)]  # fmt: skip
    if any(window is None or not window.is_whole for window in windows):
        return "its results are not those of windows with as many zeros on both sides"
    on_target = [own.of_target for own in form.subscripts]
    on_other = [own.of_other for own in form.subscripts]
    pixels, taps = (on_other, on_target) if is_filter else (on_target, on_other)
    tensors = {form.statement.write.array: target, form.other.load.tensor: other}
    by_kind = _arrays(form, kind)
    done = Convolution(
        kind, form.extents[image[0]], form.extents[channel], form.extents[filter_],
        tuple(w for w in windows if w is not None), by_kind[Computed.IMAGE],
        by_kind[Computed.FILTER], by_kind[Computed.RESULT],
        form.array(form.other.load.tensor).dtype.name, _summed(statement), False,
    )  # fmt: skip
    wanted = {
        Computed.IMAGE: [image[0], channel, *pixels], Computed.FILTER: [filter_, channel, *taps],
        Computed.RESULT: [image[0], filter_, *pixels],
    }  # fmt: skip
    return _in_layout(form, done, wanted, tensors)


def _name(subscript: Expr) -> str:
    return subscript.name if isinstance(subscript, Index) else ""


def _summed(statement: Statement) -> str:
    assert statement.reduction is not None
    return statement.reduction.dtype.name


def _arrays(form: _Form, kind: Computed) -> dict[Computed, str]:
    """Return which array is image, filter and result."""
    target, other = form.statement.write.array, form.other.load.tensor
    windowed = form.windowed.load.tensor
    match kind:
        case Computed.RESULT:
            return {Computed.RESULT: target, Computed.IMAGE: windowed, Computed.FILTER: other}
        case Computed.IMAGE:
            return {Computed.IMAGE: target, Computed.RESULT: windowed, Computed.FILTER: other}
        case Computed.FILTER:
            return {Computed.FILTER: target, Computed.IMAGE: windowed, Computed.RESULT: other}


def _window(form: _Form, own: _Subscript, dim: int, kind: Computed) -> Window | None:
    """Return the window of a subscript, None if it is none of a convolution's."""
    of_target, of_other = own.factors[own.of_target], own.factors[own.of_other]
    targets, others = form.extents[own.of_target], form.extents[own.of_other]
    held = form.array(form.windowed.load.tensor).shape[dim]
    if not isinstance(held, int):
        return None
    match kind:
        case Computed.RESULT if of_target > 0 and of_other > 0 and own.divisor == 1:
            return Window(held, others, targets, of_target, of_other, -own.constant)
        case Computed.FILTER if of_target > 0 and of_other > 0 and own.divisor == 1:
            return Window(held, targets, others, of_other, of_target, -own.constant)
        case Computed.IMAGE if of_target == 1 and of_other < 0:
            return Window(targets, others, held, own.divisor, -of_other, own.constant)
    return None


def _in_layout(
    form: _Form,
    done: Convolution,
    wanted: Mapping[Computed, Sequence[str]],
    tensors: Mapping[str, Sequence[str]],
) -> Convolution | str:
    """Return *done* with the layout of its arrays, or why they have none.

    :arg wanted: the indices of each tensor, channels second; *tensors*: of each array's dimensions.
    """
    if any(window.padding < 0 for window in done.windows):
        return "its windows begin inside of the image"
    for is_last in (False, True):
        own = _with_layout(done, is_last=is_last)
        names = {Computed.IMAGE: own.image, Computed.FILTER: own.filter,
                 Computed.RESULT: own.result}  # fmt: skip
        if all(_lies(form, own, kind, names[kind], wanted[kind], tensors) for kind in Computed):
            return own
    return "its tensors have gaps in memory, or channels neither last nor second in all of them"


def _with_layout(done: Convolution, *, is_last: bool) -> Convolution:
    data = done.to_json()
    data[6] = is_last
    return Convolution.from_json(data)


def _lies(
    form: _Form,
    own: Convolution,
    kind: Computed,
    name: str,
    wanted: Sequence[str],
    tensors: Mapping[str, Sequence[str]],
) -> bool:
    """Return whether the array *name* is the tensor *kind* of *own* as it lies in memory."""
    array = form.array(name)
    if array.shift is not None or any(array.origin):
        return False
    if any(not isinstance(s, int) for s in (*(array.strides or ()), *array.shape)):
        return False
    strides, sizes = array_strides(array), own.sizes(kind)
    if name in tensors:
        dims = [tensors[name].index(index) for index in wanted]
    else:
        names = [_name(s) for s in form.windowed.load.subscripts]
        dims = [*(names.index(index) for index in wanted[:2]), *form.dims]
    found = [(array.shape[d], strides[d]) for d in dims]
    expected = zip(sizes, own.strides(kind), strict=True)
    return len(dims) == array.rank and all(
        size == wide and (step == stride or size == 1)
        for (size, step), (wide, stride) in zip(found, expected, strict=True)
    )
