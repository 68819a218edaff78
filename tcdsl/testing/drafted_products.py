"""Sums of products in the making: indices, operands in every layout and guise, and statements.

    axes       m n k, each with an extent; a literal number now and then
    operand    a0(k, m)    a0(2*k + 1, m)    a0(K - 1 - k, m)    a0(i1(k), m)    a0(3, k, m)
    computed   0.5 * a0(k, m)    (m >= k ? a0(k, m) : 0)    float(a0(k, m)) * a1(m)
    statement  t0(m, n) +=! a0(k, m) * a1(k, n) where k in 0:K

An index that no read bounds gets its range from a ``where``.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from tcdsl.interp.arithmetic import Array
from tcdsl.lang.types.dtypes import (
    BFLOAT16,
    FLOAT8_E4M3,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    UINT8,
    DType,
    calculated,
    promote,
)
from tcdsl.records import dataclass
from tcdsl.runtime.arrays import ArraySpec, spec
from tcdsl.testing.draft import Draft, Extent, Known, Written, declared
from tcdsl.testing.random_inputs import LAYOUTS, VALUES, laid_out, subscripts, values

TYPES = (FLOAT32, BFLOAT16, FLOAT16, INT8, FLOAT64, UINT8, FLOAT8_E4M3, FLOAT8_E5M2)
MOST_RESULTS = 3
_BLOCK = 65_521  # random values that long arrays repeat: a prime, so that no two rows are alike
_GAP = 3  # elements before or after what is read, at most


@dataclass(frozen=True, slots=True)
class Axis:
    """An index, and the extent of its range ``0:extent``."""

    name: str
    size: Extent

    @property
    def value(self) -> int:
        return self.size.value


Axes = tuple[Axis, ...]


@dataclass(frozen=True, slots=True)
class Pool:
    """The extents of indices and the instances of a statement, the simplest first."""

    extents: tuple[int, ...]
    instances: tuple[int, ...]


class Products(Draft):
    """A program of contractions in the making."""

    def __init__(self, draw: Callable[[Any], Any], pool: Pool, with_values: bool) -> None:
        super().__init__(draw)
        self.pool, self.with_values = pool, with_values
        self.room = self.choose(*pool.instances)
        self.dtype: DType = self.choose(*TYPES)  # that most operands have
        self.along: dict[str, Axes] = {}  # tensor -> the axes of its dimensions, if it is made
        self.arguments: dict[str, Array | ArraySpec] = {}
        self.bound: set[str] = set()  # indices of this statement that a read bounds

    # --- indices ---------------------------------------------------------------------------
    def axes(self, names: str, extents: Sequence[int] = ()) -> Axes:
        """Return axes called *names*, whose extents multiply to what there is room for at most."""
        found: list[Axis] = []
        for left, name in zip(range(len(names), 0, -1), names, strict=True):
            limit = self.room if self.rarely(4) else 1 + int(2 * self.room ** (1 / left))
            fitting = [e for e in extents or self.pool.extents if 0 < e <= min(limit, self.room)]
            value = 0 if self.rarely(100) else self.choose(*fitting or [1])
            found.append(self.axis(name, value))
            self.room //= max(1, value)
        return tuple(found)

    def axis(self, name: str, value: int) -> Axis:
        return Axis(name, Extent(str(value), value) if self.rarely(6) else self.symbol(name, value))

    def symbol(self, name: str, value: int) -> Extent:
        self.sizes[name.upper()] = value
        return Extent(name.upper(), value)

    def shuffled(self, axes: Axes) -> Axes:
        """Return *axes* in some order; usually the one they have."""
        if len(axes) < 2 or not self.rarely(2):
            return axes
        return tuple(self._draw(self._st.permutations(axes)))

    def some_of(self, axes: Axes) -> Axes:
        return tuple(axis for axis in axes if self.choose(True, False))

    # --- parameters ------------------------------------------------------------------------
    def parameter(self, dims: Iterable[Extent], dtype: DType, below: int = 0) -> Known:
        """Return a new parameter; one of subscripts *below* a number, if that is given."""
        name = f"{'i' if below else 'a'}{len(self.arguments)}"
        found = Known(name, dtype, tuple(dims), True)
        self.tensors.append(found)
        shape = tuple(dim.value for dim in found.dims)
        self.arguments[name] = self._array(shape, dtype, below)
        return found

    def _array(self, shape: tuple[int, ...], dtype: DType, below: int) -> Array | ArraySpec:
        if not self.with_values:
            return spec(shape, str(dtype))
        seed, count = self.number(0, 999), min(prod(shape), _BLOCK)
        if below:
            flat = subscripts(below, (count,), dtype, seed)
        elif dtype.is_float:
            kind = VALUES[2] if self.rarely(20) else self.choose(*VALUES[:2])
            flat = values(dtype, (count,), kind, seed)
        else:
            info = np.iinfo(dtype.numpy)
            least, most = max(info.min, -999), min(info.max, 999)
            random = np.random.default_rng(seed)
            flat = random.integers(least, most, count, endpoint=True).astype(dtype.numpy)
        layout = self.choose(*LAYOUTS) if self.rarely(3) else LAYOUTS[0]
        return laid_out(np.resize(flat, shape), layout)

    def fresh(self, value: int) -> Extent:
        """Return a size of a parameter's own."""
        return self.symbol(f"S{len(self.sizes)}", value)

    # --- operands --------------------------------------------------------------------------
    def operand(self, axes: Axes, dtype: DType | None = None) -> Written:
        """Return the read of a new parameter along *axes*, in any order, now and then computed."""
        if dtype is None:
            dtype = self.choose(*TYPES) if self.rarely(8) else self.dtype
        order = self.shuffled(axes)
        odd = self.number(0, len(order) - 1) if order and self.rarely(3) else -1
        dims, where = [], []
        for number, axis in enumerate(order):
            dim, subscript = self._odd(axis) if number == odd else self._plain(axis)
            dims.append(dim)
            where.append(subscript)
        if odd >= 0 and self.rarely(5):
            dims.insert(odd, self.fresh(3))
            where.insert(odd, str(self.number(0, 2)))
        array = self.parameter(dims, dtype)
        read = Written(element(array.name, where), dtype)
        return self.computed(read, axes) if self.rarely(3) else read

    def _plain(self, axis: Axis) -> tuple[Extent, str]:
        self.bound.add(axis.name)
        return axis.size, axis.name

    def _odd(self, axis: Axis) -> tuple[Extent, str]:
        """Return a dimension and a subscript of *axis* in it that is not the index alone."""
        gap, step = self.number(0, _GAP), self.choose(2, 3)
        size = axis.value
        match self.choose("sliced", "strided", "gathered", "reversed"):
            case "sliced":
                return self.fresh(size + gap), f"{axis.name} + {self.number(0, gap)}"
            case "strided":
                return self.fresh(step * size + gap), f"{step}*{axis.name} + {gap}"
            case "gathered":
                rows = size + gap + 1
                dims = [self._plain(axis)[0]]
                table = self.parameter(dims, self.choose(INT32, INT64), below=rows)
                return self.fresh(rows), f"{table.name}({axis.name})"
            case _:
                return axis.size, f"{axis.size.text} - 1 - {axis.name}"

    def factor(self, axes: Axes, dtype: DType) -> str:
        """Return the read of a small parameter along some of *axes*."""
        own = self.some_of(axes)[:2]
        array = self.parameter([self._plain(axis)[0] for axis in own], dtype)
        return element(array.name, [axis.name for axis in own])

    def computed(self, a: Written, axes: Axes) -> Written:
        """Return what is computed of the operand *a*, before it is multiplied."""
        if not a.dtype.is_float:
            form = self.choose("({0} - 3)", "2 * {0}", "relu({0})", "float({0}) * {1}", "{2}")
        else:
            form = self.choose(
                "0.5 * {0}", "relu({0})", "({0} - 1.0)", "{0} * {1}", "float({0})", "{2}",
                "bfloat16({0})", "tanh({0})", "(-{0})", "({1} > 0.0 ? {0} : 0.0)", "{2}",
            )  # fmt: skip
        other = self.factor(axes, FLOAT32) if "{1}" in form else ""
        masked = self._masked(a, axes) if "{2}" in form else ""
        dtype = calculated(a.dtype)
        if "float" in form or "{1}" in form:
            dtype = promote(FLOAT32, dtype)
        return Written(form.format(a.text, other, masked), dtype)

    def _masked(self, a: Written, axes: Axes) -> str:
        """Return *a* where an affine condition of its indices holds, elsewhere 0."""
        if not axes:
            return a.text
        one, other, number = axes[0].name, axes[-1].name, self.number(1, 4)
        forms = [f"{other} % {number + 1} != 0", f"{other} >= {number}"]
        if one != other:
            forms.insert(0, f"{one} + {number} >= {other}")
        condition = self.choose(*forms)
        return f"({condition} ? {a.text} : 0)"

    # --- statements ------------------------------------------------------------------------
    def statement(
        self, left: Axes, op: str, value: Written, axes: Axes = (), target: Sequence[str] = ()
    ) -> Known:
        """Write a statement that makes a new tensor along *left*, and return that.

        :arg axes: its other indices.
        :arg target: the subscripts of what it writes, if not *left*; *axes* are all indices then.
        """
        name = f"t{len(self.statements)}"
        if target:
            self.write(element(name, target), op, value, axes)
        else:
            where = element(name, [axis.name for axis in left])
            self.write(where, op, value, left + axes)
        dtype = calculated(value.dtype) if "+" in op else value.dtype
        return self.added(name, dtype, left)

    def added(self, name: str, dtype: DType, left: Axes) -> Known:
        found = Known(name, dtype, tuple(axis.size for axis in left), False)
        self.tensors.append(found)
        self.along[name] = left
        return found

    def write(self, target: str, op: str, value: Written, axes: Axes) -> None:
        """Write a statement, with a ``where`` for each of *axes* that no read bounds."""
        ranges = [
            f"{axis.name} in 0:{axis.size.text}" for axis in dict.fromkeys(axes)
            if axis.name not in self.bound or self.rarely(8)
        ]  # fmt: skip
        where = f" where {', '.join(ranges)}" if ranges else ""
        self.statements.append(f"{target} {op} {value.text}{where}")
        self.bound = set()

    def read(self, tensor: Known) -> Written:
        """Return the read of a tensor that was made, at its own indices."""
        axes = self.along[tensor.name]
        self.bound.update(axis.name for axis in axes)
        return Written(element(tensor.name, [axis.name for axis in axes]), tensor.dtype)

    def product(self, a: Written, b: Written) -> Written:
        text = self.choose(f"{a.text} * {b.text}", f"{b.text} * {a.text}")
        return Written(text, calculated(promote(a.dtype, b.dtype)))

    # --- the text --------------------------------------------------------------------------
    def finished(self) -> str:
        """Return the program's text: the tensor made last is a result, now and then others."""
        made = [tensor for tensor in self.tensors if not tensor.is_input]
        others = [tensor for tensor in made[:-1] if self.rarely(4)][: MOST_RESULTS - 1]
        results = [self._result(tensor) for tensor in (*others, made[-1])]
        given = [tensor for tensor in self.tensors if tensor.is_input]
        params = (f"{declared(t.dtype, t.dims)} {t.name}" for t in given)
        body = "".join(f"    {statement}\n" for statement in self.statements)
        text = f"def f({', '.join(params)}) -> ({', '.join(results)}) {{\n{body}}}\n"
        known = {dim.text for tensor in given for dim in tensor.dims}
        for name in sorted(self.sizes.keys() - known):  # of no parameter: just a number
            text = re.sub(rf"\b{name}\b", str(self.sizes[name]), text)
        return text

    def _result(self, tensor: Known) -> str:
        """Return a result, now and then of another type than it is computed in."""
        is_declarable = all(dim.is_declarable for dim in tensor.dims)
        if not is_declarable or not self.rarely(3):
            return tensor.name
        floats = FLOAT32, BFLOAT16, FLOAT16, FLOAT64
        dtype = self.choose(*(floats if tensor.dtype.is_float else (INT32, INT8, INT64)))
        return f"{declared(dtype, tensor.dims)} {tensor.name}"


def element(name: str, where: Sequence[str]) -> str:
    return f"{name}({', '.join(where)})" if where else name
