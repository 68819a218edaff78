"""The kinds of statements of random programs, from pointwise ones to scatters and recurrences."""

from collections.abc import Callable

from tcdsl.lang.types.dtypes import (
    BOOL,
    INT64,
    DType,
    calculated,
    promote,
)
from tcdsl.testing.draft import (
    INPUT_TYPES,
    Draft,
    Extent,
    Known,
    Loop,
    Written,
    cast,
    computed,
    load,
    numeric,
    target_text,
)


# --- kinds of statements -------------------------------------------------------------------
def pointwise(d: Draft) -> None:
    """``T(i, j) = expr``, at times transposed or written backwards."""
    loop = d.loop(d.choose(1, 2, 0, 3))
    value, order = d.value(loop), d.some(tuple(loop.extents))
    if d.rarely(2):
        value = d.builtin(loop, numeric(value), 1)
    order = order if len(order) == len(loop.extents) else tuple(loop.extents)
    dims = tuple(loop.extents[index] for index in order)
    subscripts = list(order)
    if order and d.rarely(6):
        subscripts[0] = f"{dims[0].text} - 1 - {order[0]}"
    clauses: tuple[str, ...] = ()
    if value.dtype != BOOL and d.rarely(3):
        clauses, value = (
            (f"t = {value.text}",),
            Written(f"t * t - {value.text}", calculated(value.dtype)),
        )
    d.emit(target_text(d.new_name("T"), tuple(subscripts)), "=", value, loop, clauses)
    d.made(value.dtype, dims, free=value.dtype != BOOL)


def reduction(d: Draft) -> None:
    """``T(i) op=! expr(i, j)``, over one index or two, any of them, at times a triangle."""
    loop = d.loop(d.choose(2, 1, 3, 2))
    indices = tuple(loop.extents)
    n = d.number(1, min(2, len(indices)))
    left = d.choose(indices[: len(indices) - n], indices[n:])
    op = d.choose("+", "max", "*", "min", "and", "or", *(("argmin", "argmax") if n == 1 else ()))
    value = _for_operator(d, op, d.value(loop), loop)
    clauses = []
    reduced = [index for index in indices if index not in left]
    if left and d.rarely(6) and loop.extents[left[0]].value <= loop.extents[reduced[0]].value:
        clauses.append(f"{reduced[0]} in 0:{left[0]} + 1")
    elif d.rarely(3):
        clauses.append(f"exists {_affine_condition(d, indices)}")
        loop.bound.clear()  # what is read under a condition bounds nothing
    elif d.rarely(6):
        clauses.append(f"exists {d.truth(loop, d.value(loop, 0), 1).text}")
        loop.bound.clear()
    d.emit(target_text(d.new_name("T"), left), f"{op}=!", value, loop, tuple(clauses))
    d.made(_reduced(op, value.dtype), tuple(loop.extents[i] for i in left))


def _reduced(op: str, dtype: DType) -> DType:
    """Return the type of a reduction of *dtype* whose target is not declared."""
    if op.startswith("arg"):
        return INT64
    return calculated(dtype) if op[0] in "+*" else dtype


def _affine_condition(d: Draft, indices: tuple[str, ...]) -> str:
    """Return what leaves triangles, stripes and corners of the space of *indices*."""
    a, b = indices[0], indices[-1]
    number = d.number(0, 4)
    if a != b and d.choose(True, False):
        texts = [f"{b} < {a}", f"{b} <= {a}", f"{b} < {a}", f"{b} > {a} + {number}"]
        return d.choose(*texts)  # type: ignore[no-any-return]
    texts = [f"{b} % {number + 2} == 1", f"{b} >= {number}", f"{b} <= {number}", f"{b} != {number}"]
    if a != b:
        texts += [
            f"({a} + {b}) % {number + 2} == 0", f"{a} != {b}", f"{a} + {b} >= {number}",
            f"{a} % {number + 2} == 0",
        ]  # fmt: skip
    return d.choose(*texts)  # type: ignore[no-any-return]


def _for_operator(d: Draft, op: str, value: Written, loop: Loop) -> Written:
    """Return *value* with a type that *op* combines."""
    return d.truth(loop, value, 1) if op in ("and", "or") else numeric(value)


def contraction(d: Draft) -> None:
    """``T(i, j) +=! A(i, k) * B(k, j)``."""
    loop = d.loop(3)
    a, b = d.plain_load(loop, ("i", "k")), d.plain_load(loop, ("k", "j"))
    a, b = numeric(a), numeric(b)
    value = Written(f"{a.text} * {b.text}", calculated(promote(a.dtype, b.dtype)))
    d.emit(target_text(d.new_name("T"), ("i", "j")), "+=!", value, loop)
    d.made(value.dtype, (loop.extents["i"], loop.extents["j"]), free=True)


def window(d: Draft) -> None:
    """``T(i) +=! A(s i + k) * W(k)``: a convolution or a pooling, with stride s."""
    stride, width = d.choose(1, 2), d.number(1, 3)
    length = d.any_size(width)
    values = _numeric_input(d, (length,))
    out = (length.value - width) // stride + 1
    text = (
        f"({length.text} - {width}) / {stride} + 1"
        if stride > 1
        else (f"({length.text} - {width - 1})")
    )
    at = "i + k" if stride == 1 else f"{stride} * i + k"
    value = Written(f"{values.name}({at})", values.dtype)
    if d.choose(True, False):
        weights = _numeric_input(d, (Extent(str(width), width),))
        value = Written(
            f"{value.text} * {weights.name}(k)", calculated(promote(value.dtype, weights.dtype))
        )
    loop = Loop({"i": computed(text, (length,), out), "k": Extent(str(width), width)}, {"i"})
    op = d.choose("+=!", "max=!")
    d.emit(target_text(d.new_name("T"), ("i",)), op, value, loop)
    d.made(_reduced(op, value.dtype), (computed(text, (length,), out),))


def _numeric_input(d: Draft, dims: tuple[Extent, ...]) -> Known:
    fitting = [t for t in d.tensors if t.dims == dims and t.dtype != BOOL and t.name[0] != "I"]
    if fitting and not d.rarely(3):
        return d.choose(*reversed(fitting))  # type: ignore[no-any-return]
    return d.new_input(dims, d.choose(*(dtype for dtype in INPUT_TYPES if dtype != BOOL)))


def _own(d: Draft, least: int = 0) -> Known:
    """Return a tensor that the program may update: one that a statement has made."""
    made = [
        t for t in d.tensors
        if not t.is_input and t.dims and all(dim.value >= least for dim in t.dims)
    ]  # fmt: skip
    if made:
        return d.choose(*reversed(made))  # type: ignore[no-any-return]
    loop = Loop({"i": d.any_size(max(1, least))})
    value = numeric(d.plain_load(loop, ("i",)))
    d.emit(target_text(d.new_name("T"), ("i",)), "=", value, loop)
    return d.made(value.dtype, (loop.extents["i"],))


def _over(tensor: Known) -> Loop:
    return Loop(dict(zip("ijk", tensor.dims, strict=False)), assigned=tensor.name)


def update(d: Draft) -> None:
    """``T(i) = f(T(i))`` or ``T(i) += expr``, of a tensor that exists."""
    tensor = _own(d)
    loop, at = _over(tensor), target_text(tensor.name, tuple("ijk"[: len(tensor.dims)]))
    if tensor.dtype == BOOL:
        d.emit(at, d.choose("and=", "or="), d.truth(loop, d.value(loop), 1), loop)
        return
    operand = numeric(d.value(loop))
    clauses: tuple[str, ...] = ()
    if d.rarely(3):
        clauses = (f"exists {_affine_condition(d, tuple(loop.extents))}",)
        loop.bound.clear()
    if d.choose(True, False):
        if f"{tensor.name}(" not in operand.text:
            # An update in place; A(i / 2) would bound i by twice as many.
            loop.bound.update(i for i in loop.extents if f"{i} / 2" not in operand.text)
        text = f"{at} {d.choose('+', '*', '-')} {operand.text}"
        d.emit(at, "=", Written(cast(tensor.dtype, text), tensor.dtype), loop, clauses)
    else:
        value = Written(cast(tensor.dtype, operand.text), tensor.dtype)
        d.emit(at, d.choose("+=", "max=", "*=", "min=", "*="), value, loop, clauses)


def recurrence(d: Draft) -> None:
    """``T(i) = T(i - 1) + A(i) where i in 1:N``, forwards over the first index."""
    tensor = _own(d, least=1)
    loop, indices = _over(tensor), tuple("ijk"[: len(tensor.dims)])
    before = load(tensor, ["i - 1", *indices[1:]])
    clause = (f"i in 1:{tensor.dims[0].text}",)
    operand = d.plain_load(loop, indices)
    if tensor.dtype == BOOL:
        other = d.truth(loop, operand, 1)
        value = Written(f"{before.text} {d.choose('||', '&&')} {other.text}", BOOL)
    else:
        text = f"{before.text} {d.choose('+', '-')} {numeric(operand).text}"
        value = Written(cast(tensor.dtype, text), tensor.dtype)
    d.emit(target_text(tensor.name, indices), "=", value, loop, clause)


def scatter(d: Draft) -> None:
    """``T(I(i)) += X(i)``: duplicates combine."""
    tensor = _own(d, least=1)
    loop = d.loop(1)
    table = d.new_subscripts((loop.extents["i"],), tensor.dims[0].value)
    d.bind(loop, "i", table.dims[0])
    rest = dict(zip("jk", tensor.dims[1:], strict=False))
    loop.extents.update(rest)
    operand = d.plain_load(loop, ("i", *d.choose((), tuple(rest))))
    if tensor.dtype == BOOL:
        op, value = d.choose("or=", "and="), d.truth(loop, operand, 1)
    else:
        op = d.choose("+=", "max=", "min=", "+=!")
        value = Written(cast(tensor.dtype, numeric(operand).text), tensor.dtype)
    d.emit(target_text(tensor.name, (f"{table.name}(i)", *rest)), op, value, loop)


def product_of_polynomials(d: Draft) -> None:
    """``T(i + j) +=! A(i) * B(j)``: different instances write the same element."""
    loop = d.loop(2, least=1)
    a, b = numeric(d.plain_load(loop, ("i",))), numeric(d.plain_load(loop, ("j",)))
    value = Written(f"{a.text} * {b.text}", calculated(promote(a.dtype, b.dtype)))
    d.emit(f"{d.new_name('T')}(i + j)", "+=!", value, loop)
    i, j = loop.extents["i"], loop.extents["j"]
    d.made(value.dtype, (computed(f"{i.text} + {j.text} - 1", (i, j), i.value + j.value - 1),))


KINDS: tuple[Callable[[Draft], None], ...] = (
    pointwise, reduction, update, window, contraction, recurrence, scatter,
    product_of_polynomials,
)  # fmt: skip
