"""Random programs that are well formed by construction, with arrays to call them on.

A program is drafted statement by statement.  The draft knows the type and the extents of every
tensor made so far, so that each new statement reads only what is in bounds; which kind of statement
comes next, what it reads and how it combines is Hypothesis' choice, simple choices first.

    def f(float(N, M) A, int32(N) B) -> (T0, T1) {
        T0(i) +=! A(i, j) * 0.5 where j in 0:M
        T1(i) = i - 1 >= 0 ? T0(i - 1) : T0(B(i))
    }
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from tcdsl.interp.arithmetic import Array
from tcdsl.lang.types.dtypes import (
    BFLOAT16,
    BOOL,
    FLOAT8_E4M3,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    UINT8,
    UINT16,
    UINT32,
    UINT64,
    DType,
    calculated,
    promote,
)
from tcdsl.records import dataclass
from tcdsl.testing import random_inputs

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

MAX_STATEMENTS = 4
MAX_INSTANCES = 20_000
INPUT_TYPES = (
    FLOAT32, INT32, FLOAT64, FLOAT16, BFLOAT16, BOOL, INT64,
    INT8, INT16, UINT8, UINT16, UINT32, UINT64, FLOAT8_E4M3, FLOAT8_E5M2,
)  # fmt: skip
USUAL_SIZES = (3, 2, 1, 5, 0, 4, 7, 8, 11, 13, 16, 17)
LARGE_SIZES = (19, 31, 32, 33, 64, 67, 70)


@dataclass(frozen=True, slots=True)
class Extent:
    """The extent of a dimension: how it is written, and its value."""

    text: str
    value: int

    @property
    def is_declarable(self) -> bool:
        """Whether a parameter may have it: a size symbol or a constant, not ``(N - 2)``."""
        return self.text.isalnum()


def computed(text: str, parts: tuple[Extent, ...], value: int) -> Extent:
    """Return the extent *text*, written as a number if all its *parts* are numbers."""
    constant = all(part.text.isdigit() for part in parts)
    return Extent(str(value) if constant else f"({text})", value)


@dataclass(frozen=True, slots=True)
class Known:
    """A tensor that later statements may read."""

    name: str
    dtype: DType
    dims: tuple[Extent, ...]
    is_input: bool


@dataclass(frozen=True, slots=True)
class Written:
    """An expression's text and type."""

    text: str
    dtype: DType


@dataclass(slots=True)
class Loop:
    """The indices of the statement being written, and which of them its reads bound."""

    extents: dict[str, Extent]
    bound: set[str] = field(default_factory=set)
    guarded: int = 0  # inside a branch of ?: or the right side of &&, only plain reads bound
    assigned: str = ""  # the tensor that the statement updates: reads of it end no range


class Draft:
    """A program in the making; every method that draws takes its choices from *draw*."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        from hypothesis import strategies as st  # a test extra, needed only here

        self._st, self._draw = st, draw
        self.sizes: dict[str, int] = {}
        self.tensors: list[Known] = []
        self.statements: list[str] = []
        self.inputs: dict[str, Array] = {}
        self.annotations: dict[str, str] = {}

    # --- choices ---------------------------------------------------------------------------
    def choose(self, *options: Any) -> Any:
        """Return one of *options*; shrinking prefers the first."""
        return options[0] if len(options) == 1 else self._draw(self._st.sampled_from(options))

    def number(self, low: int, high: int) -> int:
        return int(self._draw(self._st.integers(low, high)))

    def rarely(self, one_in: int = 5) -> bool:
        return self.number(0, one_in - 1) == one_in - 1

    # --- sizes and tensors -----------------------------------------------------------------
    def new_size(self, least: int = 0) -> Extent:
        """Return a new size symbol, or now and then a constant; at most one is large."""
        has_large = any(value > 17 for value in self.sizes.values())
        pool = USUAL_SIZES if has_large or not self.rarely(8) else LARGE_SIZES
        value = int(self.choose(*(size for size in pool if size >= least)))
        if value and self.rarely(8) and value <= 17:
            return Extent(str(value), value)
        return self._symbol(value)

    def any_size(self, least: int = 0) -> Extent:
        """Return an extent that the program has already, or a new one."""
        known = {dim.text: dim for t in self.tensors for dim in t.dims if least <= dim.value <= 70}
        if known and (len(self.sizes) >= 4 or not self.rarely(3)):
            return self.choose(*known.values())  # type: ignore[no-any-return]
        return self.new_size(least)

    def new_name(self, prefix: str) -> str:
        return f"{prefix}{sum(t.name.startswith(prefix) for t in self.tensors)}"

    def new_input(self, dims: tuple[Extent, ...], dtype: DType | None = None) -> Known:
        """Return a new parameter of *dims*, with an array for it."""
        dtype, dims = dtype or self.choose(*INPUT_TYPES), self._declarable(dims)
        name, shape = self.new_name("A"), tuple(dim.value for dim in dims)
        kind = self.choose(*random_inputs.VALUES) if dtype.is_float else "whole"
        array = random_inputs.values(dtype, shape, kind, self.number(0, 999))
        return self._with_array(Known(name, dtype, dims, True), array)

    def new_subscripts(self, dims: tuple[Extent, ...], extent: int) -> Known:
        """Return a new parameter that holds subscripts of a dimension of *extent* > 0."""
        dtype, dims = self.choose(INT32, INT64), self._declarable(dims)
        shape = tuple(dim.value for dim in dims)
        array = random_inputs.subscripts(extent, shape, dtype, self.number(0, 999))
        return self._with_array(Known(self.new_name("I"), dtype, dims, True), array)

    def _declarable(self, dims: tuple[Extent, ...]) -> tuple[Extent, ...]:
        """Return *dims* with a new symbol of the same value for each that is no symbol."""
        return tuple(d if d.is_declarable else self._symbol(d.value) for d in dims)

    def _symbol(self, value: int) -> Extent:
        name = "NMKLPQRSUVWXYZ"[len(self.sizes)]
        self.sizes[name] = value
        return Extent(name, value)

    def _with_array(self, tensor: Known, array: Array) -> Known:
        self.inputs[tensor.name] = random_inputs.laid_out(
            array, self.choose(*random_inputs.LAYOUTS)
        )
        self.tensors.append(tensor)
        return tensor

    # --- reads -----------------------------------------------------------------------------
    def plain_load(self, loop: Loop, indices: tuple[str, ...]) -> Written:
        """Return a read at exactly *indices*, of a tensor that exists or a new input."""
        dims = tuple(loop.extents[index] for index in indices)
        fitting = [t for t in self.tensors if t.dims == dims and t.name[0] != "I"]
        new = not fitting or self.rarely(3)
        tensor = self.new_input(dims) if new else self.choose(*reversed(fitting))
        if tensor.name != loop.assigned:
            for index, dim in zip(indices, tensor.dims, strict=True):
                self.bind(loop, index, dim)
        return _load(tensor, list(indices))

    def bind(self, loop: Loop, index: str, dim: Extent) -> None:
        """Note that a read at *index* of a dimension of extent *dim* gives it its range."""
        if not loop.guarded and loop.extents[index] == dim:
            loop.bound.add(index)

    def odd_load(self, loop: Loop) -> Written:
        """Return a read with subscripts of every other kind, in bounds all the same."""
        readable = [
            t for t in self.tensors
            if t.dims and all(dim.value for dim in t.dims) and t.name[0] != "I"
        ]  # fmt: skip
        if not readable:
            return self.plain_load(loop, tuple(loop.extents))
        tensor = self.choose(*reversed(readable))
        bound = set(loop.bound)
        read = _load(tensor, [self._subscript(loop, dim) for dim in tensor.dims])
        if tensor.name == loop.assigned:
            loop.bound = bound
        return read

    def _subscript(self, loop: Loop, dim: Extent) -> str:
        """Return a subscript of a dimension of extent *dim*."""
        same = [index for index, extent in loop.extents.items() if extent == dim]
        kind = self.choose("index", "reversed", "constant", "halved", "gather", "halved")
        if kind == "gather" and loop.extents and len(self.inputs) < 6:
            index = self.choose(*loop.extents)
            table = self.new_subscripts((loop.extents[index],), dim.value)
            self.bind(loop, index, table.dims[0])
            return f"{table.name}({index})"
        if not same or kind == "constant":
            return str(self.number(0, dim.value - 1))
        index = self.choose(*same)
        if kind == "halved":
            return f"{index} / 2"
        self.bind(loop, index, dim)
        return f"{dim.text} - 1 - {index}" if kind == "reversed" else str(index)

    def shifted_load(self, loop: Loop) -> Written | None:
        """Return ``i - 1 >= 0 ? A(i - 1) : 0``, or the like, for a tensor that exists."""
        options = [
            (t, index) for t in self.tensors for index, extent in loop.extents.items()
            if t.dims == (extent,) and t.name[0] != "I" and t.dtype != BOOL
        ]  # fmt: skip
        if not options:
            return None
        tensor, index = self.choose(*reversed(options))
        by, extent = self.number(1, 3), loop.extents[index]
        below = f"{index} - {by} >= 0", f"{tensor.name}({index} - {by})"
        above = f"{index} + {by} < {extent.text}", f"{tensor.name}({index} + {by})"
        condition, read = self.choose(below, above)
        return Written(f"({condition} ? {read} : {_cast(tensor.dtype, '0')})", tensor.dtype)

    # --- expressions -----------------------------------------------------------------------
    def value(self, loop: Loop, depth: int = 2) -> Written:
        """Return a random expression over the indices of *loop*, of any type."""
        leaf = self.choose("load", "load", "odd", "shifted", "constant", "index")
        if depth == 0 or not self.rarely(2):
            return self._leaf(loop, leaf)
        # There are thirty builtins: one kind in eight would leave many out of 1,000 programs.
        kind = self.choose(
            "arithmetic", "builtin", "builtin", "select", "integer", "integer", "builtin",
            "logic", "cast", "minus", "logic",
        )  # fmt: skip
        first = self.value(loop, depth - 1)
        match kind:
            case "builtin":
                return self.builtin(loop, _numeric(first), depth)
            case "integer":
                return self._integer(loop, _integral(first), depth)
            case "select":
                condition = self.truth(loop, first, depth)
                loop.guarded += 1
                yes, no = _numeric(self.value(loop, depth - 1)), _numeric(self.value(loop, 0))
                loop.guarded -= 1
                return Written(
                    f"({condition.text} ? {yes.text} : {no.text})", promote(yes.dtype, no.dtype)
                )
            case "logic":
                condition = self.truth(loop, first, depth)
                loop.guarded += 1
                other = self.truth(loop, self.value(loop, 0), 0)
                loop.guarded -= 1
                op = self.choose("&&", "||")
                return Written(f"({condition.text} {op} {other.text})", BOOL)
            case "cast":
                dtype = self.choose(*INPUT_TYPES)
                return Written(_cast(dtype, first.text), dtype)
            case "minus":
                operand = _numeric(first)
                return Written(f"(-{operand.text})", calculated(operand.dtype))
            case _:
                return self._arithmetic(loop, _numeric(first), depth)

    def _leaf(self, loop: Loop, kind: str) -> Written:
        match kind:
            case "odd":
                return self.odd_load(loop)
            case "shifted":
                return self.shifted_load(loop) or self.plain_load(loop, tuple(loop.extents))
            case "constant":
                return (
                    Written(self.choose("1.0", "0.5", "-2.0", "3"), FLOAT32)
                    if (self.choose(True, False))
                    else Written(str(self.number(0, 5)), INT32)
                )
            case "index" if loop.extents:
                return Written(self.choose(*loop.extents), INT32)
            case _:
                return self.plain_load(loop, self.some(tuple(loop.extents)))

    def some(self, indices: tuple[str, ...]) -> tuple[str, ...]:
        """Return some of *indices*, in some order; usually all, as they are."""
        if len(indices) < 2 or not self.rarely(3):
            return indices
        return self.choose(indices[::-1], indices[1:], indices[:-1])  # type: ignore[no-any-return]

    def _arithmetic(self, loop: Loop, a: Written, depth: int) -> Written:
        b = _numeric(self.value(loop, depth - 1))
        op, dtype = self.choose("+", "*", "-", "/", "%"), calculated(promote(a.dtype, b.dtype))
        return Written(f"({a.text} {op} {b.text})", dtype)

    def _integer(self, loop: Loop, a: Written, depth: int) -> Written:
        b = _integral(self.value(loop, depth - 1))
        op, dtype = self.choose("&", "<<", "|", "^", ">>", "<<"), promote(a.dtype, b.dtype)
        dtype = calculated(dtype) if op in ("<<", ">>") else dtype
        return Written(f"({a.text} {op} {b.text})", dtype)

    def truth(self, loop: Loop, a: Written, depth: int) -> Written:
        """Return a bool: *a* itself, or compared with something."""
        if a.dtype == BOOL:
            return Written(f"(!{a.text})", BOOL) if self.rarely() else a
        op = self.choose(">", "<=", "==", "<", ">=", "!=")
        b = Written("0", INT32) if depth == 0 else _numeric(self.value(loop, 0))
        return Written(f"({a.text} {op} {b.text})", BOOL)

    def builtin(self, loop: Loop, a: Written, depth: int) -> Written:
        """Return a builtin of *a*, kept in its domain and away from overflow."""
        if self.rarely():
            b = _numeric(self.value(loop, depth - 1))
            text = self.choose("max({a}, {b})", "min({a}, {b})")
            return Written(text.format(a=a.text, b=b.text), promote(a.dtype, b.dtype))
        if self.rarely(6):
            name = self.choose("abs", "relu", "sign")
            return Written(f"{name}({a.text})", calculated(a.dtype) if name == "abs" else a.dtype)
        for _ in range(self.number(1, 3)):
            a = self._float_builtin(a)
        return a

    def _float_builtin(self, a: Written) -> Written:
        text = self.choose(
            "tanh({a})", "sqrt(fabs({a}))", "exp(fmin({a}, 3.0))", "sin({a})", "cos({a})",
            "log(fabs({a}) + 1.0)", "sigmoid({a})", "floor({a})", "ceil({a})", "erf({a})",
            "rsqrt(fabs({a}) + 0.5)", "atan2({a}, 2.0)", "hypot({a}, 1.0)", "round({a})",
            "fma({a}, 0.5, 1.0)", "pow(fabs({a}) + 0.5, 1.5)", "cbrt({a})", "trunc({a})",
            "exp2(fmin({a}, 4.0))", "fmax({a}, 0.25)", "copysign(1.5, {a})", "fdim({a}, 0.5)",
            "log1p(fabs({a}))", "expm1(fmin({a}, 2.0))", "atan({a})", "fmod({a}, 1.5)",
        )  # fmt: skip
        return Written(text.format(a=a.text), promote(FLOAT32, a.dtype))

    # --- statements ------------------------------------------------------------------------
    def emit(
        self, target: str, op: str, value: Written, loop: Loop, clauses: tuple[str, ...] = ()
    ) -> None:
        """Write a statement, with a where clause for each index that no read bounds."""
        ruled = {clause.split(" in ")[0] for clause in clauses}
        ranges = [
            f"{index} in 0:{extent.text}" for index, extent in loop.extents.items()
            if index not in ruled and (index not in loop.bound or self.rarely())
        ]  # fmt: skip
        where = ", ".join((*ranges, *clauses))
        self.statements.append(f"{target} {op} {value.text}" + (f" where {where}" if where else ""))

    def made(self, dtype: DType, dims: tuple[Extent, ...], free: bool = False) -> Known:
        """Return a new tensor, which the statement written last has made.

        :arg free: now and then it is returned as another type than *dtype*, by annotation.
        """
        if free and all(dim.is_declarable for dim in dims) and self.rarely(8):
            dtype = self.choose(FLOAT64, FLOAT16, INT32, BFLOAT16, INT8, FLOAT32, FLOAT8_E4M3)
            self.annotations[self.new_name("T")] = declared(dtype, dims)
        tensor = Known(self.new_name("T"), dtype, dims, False)
        self.tensors.append(tensor)
        return tensor

    def loop(self, rank: int, least: int = 0) -> Loop:
        """Return a loop over *rank* indices whose instances stay within the budget."""
        extents: dict[str, Extent] = {}
        room = MAX_INSTANCES
        for index in "ijk"[:rank]:
            extent = self.any_size(least)
            if extent.value > room:
                extent = Extent("2", 2)
            extents[index], room = extent, room // max(1, extent.value)
        return Loop(extents)


def declared(dtype: DType, dims: tuple[Extent, ...]) -> str:
    return f"{dtype}({', '.join(dim.text for dim in dims)})" if dims else str(dtype)


def _load(tensor: Known, subscripts: list[str]) -> Written:
    text = f"{tensor.name}({', '.join(subscripts)})" if subscripts else tensor.name
    return Written(text, tensor.dtype)


def _cast(dtype: DType, text: str) -> str:
    return f"{dtype}({text})"


def _numeric(value: Written) -> Written:
    """Return *value*, a bool converted."""
    return Written(_cast(INT32, value.text), INT32) if value.dtype == BOOL else value


def _integral(value: Written) -> Written:
    """Return *value* as an integer."""
    return value if value.dtype.is_integer else Written(_cast(INT32, value.text), INT32)


def _target(tensor: str, subscripts: tuple[str, ...]) -> str:
    return f"{tensor}({', '.join(subscripts)})" if subscripts else tensor


# --- kinds of statements -------------------------------------------------------------------
def pointwise(d: Draft) -> None:
    """``T(i, j) = expr``, at times transposed or written backwards."""
    loop = d.loop(d.choose(1, 2, 0, 3))
    value, order = d.value(loop), d.some(tuple(loop.extents))
    if d.rarely(2):
        value = d.builtin(loop, _numeric(value), 1)
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
    d.emit(_target(d.new_name("T"), tuple(subscripts)), "=", value, loop, clauses)
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
    d.emit(_target(d.new_name("T"), left), f"{op}=!", value, loop, tuple(clauses))
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
    return d.truth(loop, value, 1) if op in ("and", "or") else _numeric(value)


def contraction(d: Draft) -> None:
    """``T(i, j) +=! A(i, k) * B(k, j)``."""
    loop = d.loop(3)
    a, b = d.plain_load(loop, ("i", "k")), d.plain_load(loop, ("k", "j"))
    a, b = _numeric(a), _numeric(b)
    value = Written(f"{a.text} * {b.text}", calculated(promote(a.dtype, b.dtype)))
    d.emit(_target(d.new_name("T"), ("i", "j")), "+=!", value, loop)
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
    d.emit(_target(d.new_name("T"), ("i",)), op, value, loop)
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
    value = _numeric(d.plain_load(loop, ("i",)))
    d.emit(_target(d.new_name("T"), ("i",)), "=", value, loop)
    return d.made(value.dtype, (loop.extents["i"],))


def _over(tensor: Known) -> Loop:
    return Loop(dict(zip("ijk", tensor.dims, strict=False)), assigned=tensor.name)


def update(d: Draft) -> None:
    """``T(i) = f(T(i))`` or ``T(i) += expr``, of a tensor that exists."""
    tensor = _own(d)
    loop, at = _over(tensor), _target(tensor.name, tuple("ijk"[: len(tensor.dims)]))
    if tensor.dtype == BOOL:
        d.emit(at, d.choose("and=", "or="), d.truth(loop, d.value(loop), 1), loop)
        return
    operand = _numeric(d.value(loop))
    clauses: tuple[str, ...] = ()
    if d.rarely(3):
        clauses = (f"exists {_affine_condition(d, tuple(loop.extents))}",)
        loop.bound.clear()
    if d.choose(True, False):
        if f"{tensor.name}(" not in operand.text:
            # An update in place; A(i / 2) would bound i by twice as many.
            loop.bound.update(i for i in loop.extents if f"{i} / 2" not in operand.text)
        text = f"{at} {d.choose('+', '*', '-')} {operand.text}"
        d.emit(at, "=", Written(_cast(tensor.dtype, text), tensor.dtype), loop, clauses)
    else:
        value = Written(_cast(tensor.dtype, operand.text), tensor.dtype)
        d.emit(at, d.choose("+=", "max=", "*=", "min=", "*="), value, loop, clauses)


def recurrence(d: Draft) -> None:
    """``T(i) = T(i - 1) + A(i) where i in 1:N``, forwards over the first index."""
    tensor = _own(d, least=1)
    loop, indices = _over(tensor), tuple("ijk"[: len(tensor.dims)])
    before = _load(tensor, ["i - 1", *indices[1:]])
    clause = (f"i in 1:{tensor.dims[0].text}",)
    operand = d.plain_load(loop, indices)
    if tensor.dtype == BOOL:
        other = d.truth(loop, operand, 1)
        value = Written(f"{before.text} {d.choose('||', '&&')} {other.text}", BOOL)
    else:
        text = f"{before.text} {d.choose('+', '-')} {_numeric(operand).text}"
        value = Written(_cast(tensor.dtype, text), tensor.dtype)
    d.emit(_target(tensor.name, indices), "=", value, loop, clause)


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
        value = Written(_cast(tensor.dtype, _numeric(operand).text), tensor.dtype)
    d.emit(_target(tensor.name, (f"{table.name}(i)", *rest)), op, value, loop)


def product_of_polynomials(d: Draft) -> None:
    """``T(i + j) +=! A(i) * B(j)``: different instances write the same element."""
    loop = d.loop(2, least=1)
    a, b = _numeric(d.plain_load(loop, ("i",))), _numeric(d.plain_load(loop, ("j",)))
    value = Written(f"{a.text} * {b.text}", calculated(promote(a.dtype, b.dtype)))
    d.emit(f"{d.new_name('T')}(i + j)", "+=!", value, loop)
    i, j = loop.extents["i"], loop.extents["j"]
    d.made(value.dtype, (computed(f"{i.text} + {j.text} - 1", (i, j), i.value + j.value - 1),))


KINDS: tuple[Callable[[Draft], None], ...] = (
    pointwise, reduction, update, window, contraction, recurrence, scatter,
    product_of_polynomials,
)  # fmt: skip


def finished(d: Draft) -> str:
    """Return the program's text: the tensor made last is returned, of the others some."""
    made = [t.name for t in d.tensors if not t.is_input]
    outputs = [
        f"{d.annotations[name]} {name}" if name in d.annotations else name
        for name in made
        if name == made[-1] or name in d.annotations or d.choose(True, False)
    ]
    params = (f"{declared(t.dtype, t.dims)} {t.name}" for t in d.tensors if t.is_input)
    body = "".join(f"    {statement}\n" for statement in d.statements)
    text = f"def f({', '.join(params)}) -> ({', '.join(outputs)}) {{\n{body}}}\n"
    # A size that no parameter has is just a number.
    known = {dim.text for t in d.tensors if t.is_input for dim in t.dims}
    for name in sorted(d.sizes.keys() - known):
        text = re.sub(rf"\b{name}\b", str(d.sizes[name]), text)
    return text


def drafted(
    draw: Callable[[Any], Any], together: Callable[[Callable[[], None]], None] | None = None
) -> tuple[str, Mapping[str, Array]]:
    """Return a program and its inputs, in the order of its parameters, by the choices of *draw*.

    :arg together: runs an action whose choices belong together: a statement's, which shrinking
        may then leave out as a whole.
    """
    d = Draft(draw)

    def statement() -> None:
        # Nine operators, and conditions: a reduction in eight statements would leave some out.
        d.choose(*KINDS, reduction, pointwise, reduction, update)(d)

    for _ in range(d.number(1, MAX_STATEMENTS)):
        if len(d.statements) < MAX_STATEMENTS - 1 or not d.statements:
            statement() if together is None else together(statement)
    return finished(d), d.inputs


def programs() -> "SearchStrategy[tuple[str, Mapping[str, Array]]]":
    """Return the strategy of (source, inputs); the def is called ``f``.

    Inputs are arrays by the names of the parameters, in their order: ``f(*inputs.values())``.

    At most four statements; affine, strided, windowed, gathered and scattered subscripts; all
    reduction operators; updates in place, recurrences, guards, triangles; all types; sizes 0, 1,
    primes and up to 70, within some 20,000 instances a statement; inputs in every layout.  Nothing
    that is drawn warns.
    """
    from hypothesis import strategies as st

    @st.composite
    def program(draw: Callable[[Any], Any]) -> tuple[str, Mapping[str, Array]]:
        return drafted(draw, lambda action: draw(st.builds(action)))

    return program().filter(lambda drawn: is_accepted(drawn[0]))


def is_accepted(source: str) -> bool:
    """Return whether the program is accepted without ``out=`` and without a warning.

    A few of a thousand leave an element unwritten at some sizes, such as ``T(i + j) +=! ...`` where
    one range is empty, and read it later; a few have an integer quotient that promotion makes a
    float.  Whoever hunts takes a warning for a find: a plan has fallen back on another.
    """
    from tcdsl.errors import TCError
    from tcdsl.lang.syntax.parser import parse_program
    from tcdsl.lang.types.sema import analyse
    from tcdsl.source import Source

    try:
        (comprehension,) = analyse(parse_program(Source(source)))
    except TCError as error:
        if error.code in ("TC027", "TC042"):
            return False
        raise
    tensors = comprehension.tensors.values()
    return not comprehension.warnings and not any(tensor.needs_out for tensor in tensors)


__all__ = ["drafted", "is_accepted", "programs"]
