"""Random graphs of broadcasts and reductions over the same few axes, with arrays to call them on.

A graph has one to four axes and one input over all of them.  Every statement works over the axes of
what it reads, and keeps or reduces any of them; what one statement makes, the next may read::

    def f(float(J, I) x, half s) -> (t1, t3) {
        t0(i) max=! x(j, i)
        t1(i, j) = exp(x(j, i) - t0(i))
        t2(i) +=! t1(i, j)
        t3(j) min=! s > 0.1 ? t2(i) : t1(i, j)
    }

This is where plans are hard to find: which statements share a kernel, how axes align, who keeps
what.  Subscripts of other kinds are those of :mod:`~tcdsl.testing.random_programs`.
"""

import re
from collections.abc import Callable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tcdsl.interp.arithmetic import Array
from tcdsl.lang.types.dtypes import BFLOAT16, FLOAT16, FLOAT32, FLOAT64
from tcdsl.runtime.arrays import ArraySpec, spec
from tcdsl.testing.draft import Draft, Extent, Known, declared
from tcdsl.testing.random_inputs import laid_out, values

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

Sizes = Literal["small", "real"]

AXES = "ijkl"
TYPES = (FLOAT32, BFLOAT16, FLOAT16, FLOAT64)
MIN_STATEMENTS, MAX_STATEMENTS = 2, 6
MOST_RESULTS = 3
# Extents, and the elements of all axes together; the simplest first.
SMALL_EXTENTS = (3, 2, 1, 5, 4, 7, 8, 11, 13, 16, 17, 19, 23, 31, 32, 33, 37, 40)
SMALL_ELEMENTS = (600, 4_000, 20_000)
REAL_EXTENTS = (
    3, 1, 2, 5, 8, 14, 17, 31, 32, 33, 64, 100, 127, 128, 257, 512, 768, 1000, 1024, 4096, 4097,
    8192, 30_522, 50_257, 65_536, 65_537, 131_072, 1_000_003, 3_000_017,
)  # fmt: skip
REAL_ELEMENTS = (1 << 16, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 20, 1 << 23, 1 << 26)
_BLOCK = 65_521  # random values that long arrays repeat: a prime, so that no two rows are alike

Axes = tuple[str, ...]


class Graph(Draft):
    """A graph in the making: tensors know along which axes they are."""

    def __init__(
        self, draw: Callable[[Any], Any], extents: tuple[int, ...], elements: tuple[int, ...]
    ) -> None:
        super().__init__(draw)
        self.axes: dict[str, Extent] = {}
        self.along: dict[str, Axes] = {}  # tensor -> the axes of its dimensions
        room = self.choose(*elements)
        for axis in AXES[: self.choose(2, 1, 3, 4)]:
            fitting = [extent for extent in extents if extent <= room]
            known = [e.value for e in self.axes.values() if e.value <= room]
            value = self.choose(*known) if known and self.rarely(5) else self.choose(*fitting)
            self.axes[axis] = Extent(axis.upper(), value)
            room //= value

    # --- tensors ---------------------------------------------------------------------------
    def some_of(self, axes: Axes) -> Axes:
        """Return some of *axes*, in any order."""
        return self.shuffled(tuple(axis for axis in axes if self.choose(True, False)))

    def shuffled(self, axes: Axes) -> Axes:
        """Return *axes* in some order; usually the one they have."""
        if len(axes) < 2 or not self.rarely(2):
            return axes
        return tuple(self._draw(self._st.permutations(axes)))

    def parameter(self, axes: Axes) -> Known:
        """Return a new parameter along *axes*."""
        name = "x" if not self.tensors else f"w{len(self.tensors)}"
        dims = tuple(self.axes[axis] for axis in axes)
        return self.added(Known(name, self.choose(*TYPES), dims, True), axes)

    def made_by(self, left: Axes) -> Known:
        """Return the new tensor that the statement written last has made."""
        name = f"t{len(self.statements) - 1}"
        dims = tuple(self.axes[axis] for axis in left)
        return self.added(Known(name, FLOAT32, dims, False), left)

    def added(self, tensor: Known, axes: Axes) -> Known:
        self.tensors.append(tensor)
        self.along[tensor.name] = axes
        return tensor

    def any_tensor(self) -> Known:
        """Return a tensor that there is, the newest first, or now and then a new parameter."""
        if len(self.parameters) < 4 and self.rarely(5):
            return self.parameter(self.some_of(tuple(self.axes)))
        return self.choose(*reversed(self.tensors))  # type: ignore[no-any-return]

    @property
    def parameters(self) -> list[Known]:
        return [tensor for tensor in self.tensors if tensor.is_input]

    # --- expressions -----------------------------------------------------------------------
    def read(self, tensor: Known) -> str:
        """Return the read of *tensor* at its own axes, a half type now and then converted."""
        axes = self.along[tensor.name]
        text = f"{tensor.name}({', '.join(axes)})" if axes else tensor.name
        is_half = tensor.dtype.is_half
        return f"float({text})" if is_half and self.choose(True, False) else text

    def expression(self, depth: int = 2) -> tuple[str, Axes]:
        """Return an expression, and the axes of what it reads."""
        tensor = self.any_tensor()
        text, axes = self.read(tensor), self.along[tensor.name]
        if depth == 0 or not self.rarely(2):
            return text, axes
        form = self.choose(
            "{a} + {b}", "{a} - 0.5 * {b}", "{a} * {b}", "fmax({a}, {b})", "fmin({a}, {b})",
            "{a} * tanh({b})", "exp(fmin({a} - {b}, 1.0))", "{a} / (1.0 + fabs({b}))",
            "sqrt(fabs({a})) + {b}", "{c} > 0.1 ? {a} : {b}", "tanh({a})", "{a} * {a}",
        )  # fmt: skip
        operands = {"a": (_closed(text), axes)}
        for name in "bc":
            if f"{{{name}}}" in form:
                other, along = self.expression(depth - 1)
                operands[name] = _closed(other), along
        found = {axis for _, along in operands.values() for axis in along}
        return (
            form.format(**{name: operand for name, (operand, _) in operands.items()}),
            tuple(axis for axis in self.axes if axis in found),
        )

    # --- statements ------------------------------------------------------------------------
    def statement(self, left: Axes, op: str, value: str) -> Known:
        name = f"t{len(self.statements)}"
        target = f"{name}({', '.join(left)})" if left else name
        self.statements.append(f"{target} {op} {value}")
        return self.made_by(left)

    def pointwise(self) -> None:
        """``t(i, j) = expr``"""
        value, axes = self.expression()
        self.statement(self.shuffled(axes), "=", value)

    def reduction(self) -> None:
        """``t(i) op=! expr`` over any of the axes."""
        value, axes = self.expression()
        op = self.choose("+=!", "max=!", "min=!")
        if axes and self.rarely(2):  # it is long rows that plans are about
            value, axes = self.read(self.tensors[0]), self.along[self.tensors[0].name]
        left = self.some_of(axes)
        if set(left) == set(axes) and left:
            left = left[1:]
        self.statement(left, op, value)

    def softmax(self) -> None:
        """The largest value, the sum of exponentials, the quotients: one of these or all."""
        value, axes = self.expression(1) if self.rarely(3) else self._whole()
        value = _closed(value)
        left = self.some_of(axes)
        top = self.read(self.statement(left, "max=!", value))
        term = f"exp({value} - {top})"
        if self.rarely(3):
            return
        if self.rarely(3):
            term = self.read(self.statement(self.shuffled(axes), "=", term))
        total = self.read(self.statement(self.shuffled(left), "+=!", term))
        if not self.rarely(3):
            self.statement(self.shuffled(axes), "=", f"{term} / {total}")

    def _whole(self) -> tuple[str, Axes]:
        """Return the read of the input that is along all axes."""
        return self.read(self.tensors[0]), self.along[self.tensors[0].name]

    # --- the text --------------------------------------------------------------------------
    def finished(self) -> str:
        """Return the program's text: one to three of what was made are results."""
        made = [tensor.name for tensor in self.tensors if not tensor.is_input]
        several = self._st.lists(
            self._st.sampled_from(made[::-1]), unique=True, min_size=1, max_size=MOST_RESULTS
        )
        results = sorted(self._draw(several))
        params = (f"{declared(t.dtype, t.dims)} {t.name}" for t in self.parameters)
        body = "".join(f"    {statement}\n" for statement in self.statements)
        return f"def f({', '.join(params)}) -> ({', '.join(results)}) {{\n{body}}}\n"

    def argument(self, tensor: Known, with_values: bool) -> Array | ArraySpec:
        """Return an array for the parameter *tensor*, or its shape and type alone."""
        shape = tuple(dim.value for dim in tensor.dims)
        if not with_values:
            return spec(shape, str(tensor.dtype))
        kind, seed = self.choose("whole", "real"), self.number(0, 999)
        count = prod(shape)
        array = np.resize(values(tensor.dtype, (min(count, _BLOCK),), kind, seed), shape)
        return laid_out(array, "transposed" if self.rarely(8) else "contiguous")


def _closed(text: str) -> str:
    """Return *text* in parentheses, unless it is a read."""
    return text if re.fullmatch(r"(float\()?\w+(\([\w, ]*\))?\)?", text) else f"({text})"


def graph_of(
    draw: Callable[[Any], Any],
    sizes: Sizes,
    with_values: bool,
    together: Callable[[Callable[[], None]], None],
) -> tuple[str, Mapping[str, Any]]:
    """Return a graph and its inputs, in the order of its parameters, by the choices of *draw*.

    :arg together: see :func:`~tcdsl.testing.random_programs.drafted`.
    """
    extents, elements = (
        (SMALL_EXTENTS, SMALL_ELEMENTS) if sizes == "small" else (REAL_EXTENTS, REAL_ELEMENTS)
    )
    graph = Graph(draw, extents, elements)
    graph.parameter(graph.shuffled(tuple(graph.axes)))
    number = graph.number(MIN_STATEMENTS, MAX_STATEMENTS)

    def statements() -> None:
        graph.choose(graph.reduction, graph.pointwise, graph.softmax)()

    for _ in range(number):
        if len(graph.statements) < number:
            together(statements)
    text = graph.finished()
    return text, {t.name: graph.argument(t, with_values) for t in graph.parameters}


def graphs(
    sizes: Sizes = "small", *, with_values: bool = True
) -> "SearchStrategy[tuple[str, Mapping[str, Any]]]":
    """Return the strategy of (source, inputs); the def is called ``f``.

    Inputs are by the names of the parameters, in their order: ``f(*inputs.values())``.

    Graphs of two to six statements (a softmax at the end may make it eight) over one to four axes:
    pointwise, sums, maxima and minima over any of the axes, pieces of softmax, ``?:``; inputs over
    all axes in any order, over few, over none; types float, bfloat16, half and double; one to three
    of the tensors are results.

    :arg sizes: "small": extents of 1 to 40, at most 20,000 elements in all, for the emulator and
        the CPU; "real": extents of 1 to 3,000,017, at most 2^26 elements, for a GPU.
    :arg with_values: whether inputs are arrays; if not, they are ``tcdsl.spec`` of such, which are
        enough to compile for.
    """
    from hypothesis import strategies as st

    @st.composite
    def graph(draw: Callable[[Any], Any]) -> tuple[str, Mapping[str, Any]]:
        return graph_of(draw, sizes, with_values, lambda action: draw(st.builds(action)))

    return graph()


__all__ = ["Sizes", "graph_of", "graphs"]
