"""Which defs are analysed for the sizes of a call, and not for all sizes at once.

    C(i*P + k) = A(i) * B(k)            P multiplies an index
    float(M*P, N*Q) C                   an extent is a product of sizes
    y(t) +=! x(t + D*k)                 a ``size D`` parameter as dilation

For all sizes at once these are no affine functions; at given sizes they are.  So such a def is
typed when it is defined, and its ranges, boxes and all that is proven of it are found at the sizes
of each call (:meth:`Comprehension.at`), where whatever is wrong is an error.  A def that calls one
is deferred too.
"""

from collections.abc import Callable, Iterator, Mapping

from tcdsl.errors import AMBIGUOUS, EXTENT_UNKNOWN, TCError
from tcdsl.lang.comprehension import Binary, Comprehension, Expr, Index, Load, Select, Size, walk
from tcdsl.lang.comprehension import Statement as TypedStatement
from tcdsl.lang.elaborate import FollowOnError
from tcdsl.lang.head import symbols_of
from tcdsl.lang.reads import expressions

_KEPT = 64  # combinations of sizes at which one def is kept
# Errors that have nothing to do with the values of sizes: found at any, they are found at once.
_OF_NO_SIZE = (AMBIGUOUS.code, EXTENT_UNKNOWN.code)
_SAMPLE = 2


def needs_sizes(comprehension: Comprehension) -> bool:
    """Return whether a product of sizes, or of a size and an index, decides what is accessed."""
    tensors = comprehension.tensors.values()
    if any(len(symbols_of(dim)) > 1 for tensor in tensors for dim in tensor.dims):
        return True
    return any(
        _is_product_of_sizes(node)
        for statement in comprehension.statements
        for expr in _deciding(statement)
        for node in walk(expr)
    )


def _deciding(statement: TypedStatement) -> Iterator[Expr]:
    """Yield the subscripts, bounds and conditions of *statement*."""
    yield from statement.subscripts
    yield from statement.conditions
    for bounds in (*statement.explicit, *statement.data_ranges):
        yield from (bounds.lower, bounds.upper)
    for expr in expressions(statement):
        for node in walk(expr):
            match node:
                case Load(subscripts=subscripts):
                    yield from subscripts
                case Select(condition=condition):
                    yield condition
                case Binary(op="&&" | "||", left=left):
                    yield left


def _is_product_of_sizes(expr: Expr) -> bool:
    if not (isinstance(expr, Binary) and expr.op == "*" and expr.dtype.is_integer):
        return False
    sides = [list(walk(side)) for side in (expr.left, expr.right)]
    if any(isinstance(node, Load) for side in sides for node in side):
        return False
    varies = all(any(isinstance(node, Size | Index) for node in side) for side in sides)
    has_factor = any(not any(isinstance(node, Index) for node in side) for side in sides)
    return varies and has_factor


class Resolution:
    """The comprehensions of one deferred def, by the values of its sizes."""

    def __init__(
        self, names: tuple[str, ...], analysed: Callable[[Mapping[str, int]], Comprehension]
    ) -> None:
        self._names = names
        self._analysed = analysed
        self._known: dict[tuple[int, ...], Comprehension] = {}

    def __call__(self, sizes: Mapping[str, int]) -> Comprehension:
        """Return the def at *sizes*.

        :raises TCError: all that is wrong with it at these.
        """
        key = tuple(sizes[name] for name in self._names)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _KEPT:
                self._known.clear()
            found = self._known[key] = self._analysed(dict(zip(self._names, key, strict=True)))
        return found


def check_at_once(comprehension: Comprehension) -> None:
    """Raise what is wrong with a deferred def whatever its sizes are, as far as a sample shows it.

    :raises RangeError: a range or an extent does not follow from the text.
    """
    try:
        comprehension.at(dict.fromkeys(comprehension.sizes, _SAMPLE))
    except TCError as error:
        errors = (error, *error.others)
        if all(each.code in _OF_NO_SIZE for each in errors):
            raise
    except FollowOnError:
        pass
