"""The shapes of results for sizes that may be symbolic: ``torch.compile(dynamic=True)``.

Numbers go through the exact inference of a call.  Of symbolic sizes the shapes are the functions
that the inference found (``H - KH + 1``), evaluated in PyTorch's own arithmetic, so that the graph
holds for all sizes.  Where a function has several pieces, PyTorch guards on the one that is taken.
"""

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from operator import eq, ge, sub
from typing import Any

import torch

from tcdsl.api import Function
from tcdsl.lang.comprehension import Binary, Call, Const, Expr, Select, Size, fold
from tcdsl.lang.ranges.binding import bind_sizes
from tcdsl.lang.ranges.size_functions import to_expr
from tcdsl.lang.types.head import Dim, factors_of

Shape = Sequence[int]  # of integers or torch.SymInt
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, b: a + b,
    "-": sub,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a // b,  # isl's functions are floored
    "==": eq,
    ">=": ge,
    "&&": lambda a, b: bool(a) and bool(b),
    "||": lambda a, b: bool(a) or bool(b),
}


class ShapeFunction:
    """The shapes of the results of one def."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self.symbolic: frozenset[str] = frozenset()  # the sizes that were symbolic, at some time

    def __call__(self, shapes: Sequence[Shape], sizes: Sequence[int]) -> list[Shape]:
        """Return the shape of each result, in order, for inputs of *shapes* and size arguments."""
        c = self._function.comprehension
        numbers = [*sizes, *(extent for shape in shapes for extent in shape)]
        if c.is_deferred or all(isinstance(number, int) for number in numbers):
            # A product of sizes in a subscript has no function of all sizes: PyTorch specialises.
            known = [tuple(map(int, shape)) for shape in shapes]
            return self._known(known, [int(size) for size in sizes])
        bound = self._bound(shapes, sizes)
        self.symbolic |= {name for name, size in bound.items() if not isinstance(size, int)}
        return [tuple(evaluated(extent, bound) for extent in e) for e in self._extents]

    def _known(self, shapes: Sequence[tuple[int, ...]], sizes: Sequence[int]) -> list[Shape]:
        f = self._function
        c = f.comprehension
        by_name = dict(zip(c.inputs, shapes, strict=True))
        bound = bind_sizes(c, by_name, dict(zip(c.size_parameters, sizes, strict=True)))
        found = f._definition.specialise(bound).shapes
        return [found[name] for name in c.outputs]

    def _bound(self, shapes: Sequence[Shape], sizes: Sequence[int]) -> dict[str, int]:
        """Return the value of each size; PyTorch is told of those that must be equal."""
        c = self._function.comprehension
        bound: dict[str, int] = dict(zip(c.size_parameters, sizes, strict=True))
        later: list[tuple[Dim, int, str]] = []
        for name, shape in zip(c.inputs, shapes, strict=True):
            dims = c.tensors[name].dims
            if len(dims) != len(shape):
                bind_sizes(c, {n: tuple(s) for n, s in zip(c.inputs, shapes, strict=True)})
            for position, (dim, extent) in enumerate(zip(dims, shape, strict=True)):
                assert dim is not None, "the extents of parameters are declared"
                if isinstance(dim, str) and dim not in bound and len(factors_of(dim)) == 1:
                    bound[dim] = extent
                else:
                    later.append((dim, extent, f"dimension {position} of {name!r}"))
        for dim, extent, where in later:
            value: Any = 1
            for factor in factors_of(dim):
                value = value * (bound[factor] if isinstance(factor, str) else factor)
            said = partial("{}: {} has two values: {} is another".format, c.signature)
            torch._check(extent == value, partial(said, dim, where))
        return bound

    @cached_property
    def _extents(self) -> list[tuple[Expr, ...]]:
        c = self._function.comprehension
        return [tuple(map(to_expr, c.tensors[name].extents)) for name in c.outputs]


def evaluated(expr: Expr, sizes: dict[str, int]) -> Any:
    """Return the value of a function of *sizes*, which may be symbolic."""

    def value(node: Expr, operands: tuple[Any, ...]) -> Any:
        match node:
            case Const(value=number):
                return number
            case Size(name=name):
                return sizes[name]
            case Binary(op=op):
                return _OPERATORS[op](*operands)
            case Call(function=function):
                return (torch.sym_min if function == "min" else torch.sym_max)(*operands)
            case Select():
                condition, if_true, if_false = operands
                return if_true if condition else if_false
            case _:
                raise AssertionError(f"{node!r} is no function of sizes")

    return fold(expr, value)
