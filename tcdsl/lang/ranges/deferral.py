"""Which defs are analysed for the sizes of a call, and not for all sizes at once.

    C(i*P + k) = A(i) * B(k)            P multiplies an index
    float(M*P, N*Q) C                   an extent is a product of sizes
    y(t) +=! x(t + D*k)                 a ``size D`` parameter as dilation
    y(i) = x(i / R)                     a ``size R`` parameter as divisor
    where c in 0:C/G                    a quotient of sizes

For all sizes at once these are no affine functions; at given sizes they are.  So such a def is
typed when it is defined, and its ranges, boxes and all that is proven of it are found at the sizes
of each call (:meth:`Comprehension.at`), where whatever is wrong is an error.  A def that calls one
is deferred too.
"""

from collections.abc import Callable, Iterator, Mapping

from tcdsl.errors import AMBIGUOUS, EXTENT_UNKNOWN, TCError
from tcdsl.lang.comprehension import Binary, Comprehension, Expr, Index, Load, Select, Size, walk
from tcdsl.lang.comprehension import Statement as TypedStatement
from tcdsl.lang.ranges.reads import expressions
from tcdsl.lang.types.elaborate import FollowOnError
from tcdsl.lang.types.head import symbols_of

_KEPT = 64  # combinations of sizes at which one def is kept
# Errors that have nothing to do with the values of sizes: found at any, they are found at once.
_OF_NO_SIZE = (AMBIGUOUS.code, EXTENT_UNKNOWN.code)
_SAMPLE = 2


def needs_sizes(comprehension: Comprehension) -> bool:
    """Return whether what is accessed is affine at given sizes, and not for all at once.

    (An index divided by the size of a dimension, ``x(i % N)``, may stay what it is: a subscript
    that is checked while running, whose sizes may be open.)
    """
    tensors = comprehension.tensors.values()
    if any(len(symbols_of(dim)) > 1 for tensor in tensors for dim in tensor.dims):
        return True
    given = frozenset(comprehension.size_parameters)
    return any(
        isinstance(node, Binary) and _is_affine_at_sizes(node, given)
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


def _is_affine_at_sizes(expr: Binary, given: frozenset[str]) -> bool:
    """Return whether *expr* is a product or quotient that is affine when sizes are numbers.

    :arg given: the ``size`` parameters.
    """
    if not expr.dtype.is_integer or expr.op not in ("*", "/", "%", "<<", ">>"):
        return False
    left, right = _Names(expr.left), _Names(expr.right)
    if left.loads or right.loads:
        return False
    if expr.op == "*":
        varies = all(side.sizes or side.has_index for side in (left, right))
        return varies and not (left.has_index and right.has_index)
    if right.has_index or not right.sizes:
        return False
    return not left.has_index or bool(right.sizes & given)


class _Names:
    """What an expression mentions."""

    def __init__(self, expr: Expr) -> None:
        found = list(walk(expr))
        self.sizes = {node.name for node in found if isinstance(node, Size)}
        self.has_index = any(isinstance(node, Index) for node in found)
        self.loads = any(isinstance(node, Load) for node in found)


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
