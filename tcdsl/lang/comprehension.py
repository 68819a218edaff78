"""The typed comprehension: what one def means, ready for the reference and for the polyhedral core.

Semantic analysis has resolved every name, substituted ``let`` clauses, inlined calls of other defs
and made every conversion an explicit :class:`Cast`; range inference has given each statement its
iteration domain and each tensor its box.

Arithmetic never happens in a half type: a load of one is wrapped in a cast to float32.  Both
operands of a :class:`Binary` have the same type, as have both branches of a :class:`Select`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from operator import attrgetter
from typing import Any, Protocol, TypeVar

import islpy as isl

from tcdsl.errors import TCError
from tcdsl.lang.types.dtypes import BOOL, INT32, INT64, DType
from tcdsl.lang.types.head import Extents, Head, TensorHead
from tcdsl.records import dataclass
from tcdsl.source import NOWHERE, Span

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Const:
    """A literal; *value* fits *dtype* exactly (floats are rounded to it, but for weak ones)."""

    value: bool | int | float
    dtype: DType
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Index:
    """The value of an index of the statement: an int32, or an int64 (see index_values)."""

    name: str
    dtype: DType = INT32
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Size:
    """The value of a size symbol: an int32, or an int64 (see index_values)."""

    name: str
    dtype: DType = INT32
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Load:
    """``tensor(subscripts)``; a 0-D tensor or a host scalar has no subscripts.

    *dtype* is the tensor's own.  Subscripts are integer expressions, in the program's
    coordinates (a tensor whose box starts at 3 is read at 3, 4, ...).
    """

    tensor: str
    subscripts: tuple["Expr", ...]
    dtype: DType
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Unary:
    """``- x`` (arithmetic), ``! x`` (bool), ``~ x`` (integers)."""

    op: str
    operand: "Expr"
    dtype: DType
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Binary:
    """``+ - * / %  & | ^ << >>  < <= > >= == !=  && ||``; comparisons and ``&& ||`` give bool.

    On integers ``/`` and ``%`` floor, division by zero gives 0, and overflow wraps.  On floats
    they are IEEE division, and the remainder with the divisor's sign, as in Python.
    """

    op: str
    left: "Expr"
    right: "Expr"
    dtype: DType
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Select:
    """``condition ? if_true : if_false``, lazy: the branch not taken reads nothing."""

    condition: "Expr"
    if_true: "Expr"
    if_false: "Expr"
    dtype: DType
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Cast:
    """Conversion to *dtype*: float to integer truncates, saturates, and takes NaN to 0."""

    operand: "Expr"
    dtype: DType
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Call:
    """A builtin on operands of its own type: ``min max abs ...`` on any, the others on floats."""

    function: str
    args: tuple["Expr", ...]
    dtype: DType
    span: Span = field(default=NOWHERE, compare=False, repr=False)


Expr = Const | Index | Size | Load | Unary | Binary | Select | Cast | Call

# By the type, for planning asks a million times: a match would try one pattern after another.
_OPERANDS: Mapping[type, Callable[[Any], tuple[Expr, ...]]] = {
    Load: attrgetter("subscripts"),
    Call: attrgetter("args"),
    Unary: lambda expr: (expr.operand,),
    Cast: lambda expr: (expr.operand,),
    Binary: attrgetter("left", "right"),
    Select: attrgetter("condition", "if_true", "if_false"),
}


def children(expr: Expr) -> tuple[Expr, ...]:
    """Return the direct operands of *expr*, left to right."""
    operands_of = _OPERANDS.get(type(expr))
    return () if operands_of is None else operands_of(expr)


def walk(expr: Expr) -> Iterator[Expr]:
    """Yield *expr* and everything below it, parents first, left to right."""
    stack = [expr]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))


def indices_in(*exprs: Expr) -> frozenset[str]:
    """Return the names of the indices that *exprs* mention."""
    return frozenset(node.name for expr in exprs for node in walk(expr) if isinstance(node, Index))


def conjuncts(condition: Expr) -> list[Expr]:
    """Return the conditions of which all hold where *condition* does, left to right."""
    match condition:
        case Binary(op="&&", left=left, right=right):
            return [*conjuncts(left), *conjuncts(right)]
        case _:
            return [condition]


def multiplied(expr: Expr) -> list[Expr]:
    """Return the factors of the product *expr*, left to right; itself if it is none."""
    found: list[Expr] = []
    stack = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, Binary) and node.op == "*":
            stack += [node.right, node.left]
        else:
            found.append(node)
    return found


def are_indices(subscripts: Sequence[Expr]) -> bool:
    """Return whether *subscripts* are indices, each another one: not those of a diagonal."""
    names = {subscript.name for subscript in subscripts if isinstance(subscript, Index)}
    return len(names) == len(subscripts)


def fold(expr: Expr, combine: Callable[[Expr, tuple[T, ...]], T]) -> T:
    """Return ``combine(expr, (fold(child), ...))`` over the direct operands of *expr*.

    Iterates: a deep expression costs heap, not Python's stack.
    """
    done: list[T] = []
    stack: list[tuple[Expr, int]] = [(expr, -1)]
    while stack:
        node, arity = stack.pop()
        if arity >= 0:
            operands = tuple(done[len(done) - arity :])
            del done[len(done) - arity :]
            done.append(combine(node, operands))
            continue
        operands_of_node = children(node)
        if not operands_of_node:
            done.append(combine(node, ()))
            continue
        stack.append((node, len(operands_of_node)))
        stack.extend((child, -1) for child in reversed(operands_of_node))
    return done.pop()


class Operator(StrEnum):
    """The operators that a reduction may combine its terms with."""

    ADD = "+"
    MUL = "*"
    MIN = "min"
    MAX = "max"
    AND = "and"
    OR = "or"
    ARGMIN = "argmin"
    ARGMAX = "argmax"

    @property
    def is_arg(self) -> bool:
        return self in (Operator.ARGMIN, Operator.ARGMAX)


@dataclass(frozen=True, slots=True)
class Reduction:
    """How a statement combines its terms.

    *dtype* is the accumulator's type: float32 for half tensors, else the target's own; for
    ``argmin``/``argmax`` the type of the compared values (the target is int64).
    """

    operator: Operator
    initialise: bool  # ``op=!``: start from the identity, not from what the tensor holds
    dtype: DType


@dataclass(frozen=True, slots=True)
class Let:
    """``where name = value``, the other lets in *value* substituted."""

    name: str
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """``target(subscripts) [op]= value`` for every instance of *domain*.

    *indices* are the left-hand indices in the order written (``n_left`` of them), then the reduced
    ones in order of first appearance.  Instances run in lexicographic order of the left-hand
    indices; the order of the reduced ones is free.  *value* has the reduction's accumulator
    type, or for a plain ``=`` the arithmetic type of the target.
    """

    name: str  # "S0", "S1", ... in source order
    target: str
    subscripts: tuple[Expr, ...]
    indices: tuple[str, ...]
    n_left: int
    reduction: Reduction | None
    value: Expr
    conditions: tuple[Expr, ...] = ()  # bool; an instance runs only where all of them hold
    # Non-bool ``exists`` clauses: never evaluated, but their reads bound the ranges.
    bounds: tuple[Expr, ...] = ()
    explicit: tuple["IndexBounds", ...] = ()  # the ``where i in a:b`` clauses, if affine
    # Those whose bounds read tensors: an instance runs only where its index lies in all of them.
    data_ranges: tuple["IndexBounds", ...] = ()
    # The let clauses, which are substituted in all that is above, each after those that it uses.
    # They mean nothing any more, but name what is worth being computed once.
    lets: tuple[Let, ...] = ()
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    target_span: Span = field(default=NOWHERE, compare=False, repr=False)
    # Set by range inference: [sizes] -> { S0[indices] : ... }; the box of the ranges, cut by
    # those conditions and dependent ranges that are affine.
    domain: isl.Set | None = None
    # Also set by range inference: each index's range, (lower, upper) with upper exclusive, as
    # functions of the sizes ``[sizes] -> { [(...)] }``; the box that *domain* was cut from.
    ranges: tuple[tuple[isl.PwAff, isl.PwAff], ...] = ()
    library: str = ""  # after "<=>": the library that is to compute it

    @property
    def left(self) -> tuple[str, ...]:
        return self.indices[: self.n_left]

    @property
    def reduced(self) -> tuple[str, ...]:
        return self.indices[self.n_left :]


@dataclass(frozen=True, slots=True)
class IndexBounds:
    """``where index in lower:upper``: the bounds may depend on sizes, other indices and data."""

    index: str
    lower: Expr
    upper: Expr
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Tensor(TensorHead):
    """A tensor of the def.

    *origin* and *extents* (set by range inference) are functions of the sizes, one a dimension:
    ``[sizes] -> { [(origin)] }``; an element ``(i, ...)`` is stored at ``i - origin``.
    """

    origin: tuple[isl.PwAff, ...] = ()
    extents: tuple[isl.PwAff, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Precondition:
    """A condition on the sizes that a call checks before any launch: *holds* is ``[sizes] -> {:}``.

    *error* builds the error for the sizes at which it does not hold.
    """

    holds: isl.Set
    error: "PreconditionError"


class PreconditionError(Protocol):
    """``error(sizes)`` names the index, the tensors and the extents."""

    def __call__(self, sizes: Mapping[str, int]) -> TCError: ...


@dataclass(frozen=True, slots=True, eq=False)
class Comprehension(Head):
    """One def, typed, with its ranges."""

    tensors: Mapping[str, Tensor]
    statements: tuple[Statement, ...]
    preconditions: tuple[Precondition, ...] = ()
    # Of a deferred def (lang/ranges/deferral): what gives it its ranges at certain sizes.  The
    # statements here have none, and the tensors no extents but the declared ones.
    resolve: "Callable[[Mapping[str, int]], Comprehension] | None" = field(
        default=None, compare=False, repr=False, kw_only=True
    )

    @property
    def is_deferred(self) -> bool:
        return self.resolve is not None

    def at(self, sizes: Mapping[str, int]) -> "Comprehension":
        """Return the def with its ranges: if it is deferred, those at *sizes*.

        :raises TCError: a deferred def has an error at *sizes*.
        """
        return self if self.resolve is None else self.resolve(sizes)


@dataclass(frozen=True, slots=True)
class Specialisation(Extents):
    """Everything about a comprehension that depends on the sizes, as plain numbers."""

    ranges: tuple[Mapping[str, range], ...]  # one a statement: index -> its range (a box)
    origins: Mapping[str, tuple[int, ...]]


__all__ = [
    "BOOL", "INT32", "INT64", "Binary", "Call", "Cast", "Comprehension", "Const", "Expr", "Index",
    "IndexBounds", "Let", "Load", "Operator", "Precondition", "PreconditionError", "Reduction",
    "Select", "Size", "Specialisation", "Statement", "Tensor", "Unary", "children", "fold", "walk",
]  # fmt: skip
