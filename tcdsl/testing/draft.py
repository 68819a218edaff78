"""A random program in the making: its tensors, and statements over what is known of them.

The draft knows the type and the extents of every tensor made so far, so that each new statement
reads only what is in bounds; every choice is Hypothesis', simple choices first.
"""

from collections.abc import Callable
from dataclasses import field
from typing import Any

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
        return load(tensor, list(indices))

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
        read = load(tensor, [self._subscript(loop, dim) for dim in tensor.dims])
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
        return Written(f"({condition} ? {read} : {cast(tensor.dtype, '0')})", tensor.dtype)

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
                return self.builtin(loop, numeric(first), depth)
            case "integer":
                return self._integer(loop, integral(first), depth)
            case "select":
                condition = self.truth(loop, first, depth)
                loop.guarded += 1
                yes, no = numeric(self.value(loop, depth - 1)), numeric(self.value(loop, 0))
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
                return Written(cast(dtype, first.text), dtype)
            case "minus":
                operand = numeric(first)
                return Written(f"(-{operand.text})", calculated(operand.dtype))
            case _:
                return self._arithmetic(loop, numeric(first), depth)

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
        b = numeric(self.value(loop, depth - 1))
        op, dtype = self.choose("+", "*", "-", "/", "%"), calculated(promote(a.dtype, b.dtype))
        return Written(f"({a.text} {op} {b.text})", dtype)

    def _integer(self, loop: Loop, a: Written, depth: int) -> Written:
        b = integral(self.value(loop, depth - 1))
        op, dtype = self.choose("&", "<<", "|", "^", ">>", "<<"), promote(a.dtype, b.dtype)
        dtype = calculated(dtype) if op in ("<<", ">>") else dtype
        return Written(f"({a.text} {op} {b.text})", dtype)

    def truth(self, loop: Loop, a: Written, depth: int) -> Written:
        """Return a bool: *a* itself, or compared with something."""
        if a.dtype == BOOL:
            return Written(f"(!{a.text})", BOOL) if self.rarely() else a
        op = self.choose(">", "<=", "==", "<", ">=", "!=")
        b = Written("0", INT32) if depth == 0 else numeric(self.value(loop, 0))
        return Written(f"({a.text} {op} {b.text})", BOOL)

    def builtin(self, loop: Loop, a: Written, depth: int) -> Written:
        """Return a builtin of *a*, kept in its domain and away from overflow."""
        if self.rarely():
            b = numeric(self.value(loop, depth - 1))
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


def load(tensor: Known, subscripts: list[str]) -> Written:
    text = f"{tensor.name}({', '.join(subscripts)})" if subscripts else tensor.name
    return Written(text, tensor.dtype)


def cast(dtype: DType, text: str) -> str:
    return f"{dtype}({text})"


def numeric(value: Written) -> Written:
    """Return *value*, a bool converted."""
    return Written(cast(INT32, value.text), INT32) if value.dtype == BOOL else value


def integral(value: Written) -> Written:
    """Return *value* as an integer."""
    return value if value.dtype.is_integer else Written(cast(INT32, value.text), INT32)


def target_text(tensor: str, subscripts: tuple[str, ...]) -> str:
    return f"{tensor}({', '.join(subscripts)})" if subscripts else tensor
