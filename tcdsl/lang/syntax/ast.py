"""The syntax tree: what was written, untyped, every node with its span.

Program := Def*            Def := name, Param*, Param*, Stmt*
Stmt    := Assign | Invoke
Expr    := Number | Name | Apply | Unary | Binary | Select | Cast
"""

from dataclasses import field

from tcdsl.lang.types.dtypes import DType
from tcdsl.records import dataclass
from tcdsl.source import NOWHERE, Source, Span


@dataclass(frozen=True, slots=True)
class Number:
    """A literal, exact: *value* is a bool, an int or a float of *dtype*."""

    value: bool | int | float
    dtype: DType
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Name:
    """An identifier without parentheses: an index, a size, or a 0-D tensor."""

    id: str
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Apply:
    """``id(args)``: a tensor's element, a builtin, or (as a whole right side) a call of a def."""

    id: str
    args: tuple["Expr", ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    id_span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Unary:
    """``op operand``, op one of ``- ! ~``."""

    op: str
    operand: "Expr"
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Binary:
    """``left op right``, op one of ``|| && == != < <= > >= | ^ & << >> + - * / %``."""

    op: str
    left: "Expr"
    right: "Expr"
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Select:
    """``condition ? if_true : if_false``."""

    condition: "Expr"
    if_true: "Expr"
    if_false: "Expr"
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Cast:
    """``dtype(operand)``."""

    dtype: DType
    operand: "Expr"
    span: Span = field(default=NOWHERE, compare=False, repr=False)


Expr = Number | Name | Apply | Unary | Binary | Select | Cast

_ORDERINGS = frozenset(("<", "<=", ">", ">="))


def is_chain(expr: Binary) -> bool:
    """Return whether *expr* compares a comparison's result: ``(a < b) < c``."""
    return expr.op in _ORDERINGS and isinstance(expr.left, Binary) and expr.left.op in _ORDERINGS


@dataclass(frozen=True, slots=True)
class Let:
    """``where name = value``: substituted wherever *name* occurs in the statement."""

    name: str
    value: Expr
    span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class InRange:
    """``where index in lower:upper`` (half open)."""

    index: str
    lower: Expr
    upper: Expr
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    index_span: Span = field(default=NOWHERE, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Exists:
    """``where exists expr``: in TC an expression whose reads bound the ranges.

    A bool expression is a condition: instances where it is false do not run.  Any other
    expression is never evaluated; its reads must be in bounds, which bounds the indices.
    """

    expr: Expr
    span: Span = field(default=NOWHERE, compare=False, repr=False)


Clause = Let | InRange | Exists


@dataclass(frozen=True, slots=True)
class Assign:
    """``target(subscripts) op value where clauses``; *op* as written, such as ``+=!``."""

    target: str
    subscripts: tuple[Expr, ...]
    op: str
    value: Expr
    clauses: tuple[Clause, ...] = ()
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    target_span: Span = field(default=NOWHERE, compare=False, repr=False)
    size_select: Apply | None = None  # after "<=>": a tensor with the target's sizes, or a library


@dataclass(frozen=True, slots=True)
class Invoke:
    """``(targets) = callee(args)`` with two targets or more: a call of another def.

    With one target the parser cannot tell a call from an element, and gives an Assign.
    """

    targets: tuple[str, ...]
    callee: str
    args: tuple[Expr, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    callee_span: Span = field(default=NOWHERE, compare=False, repr=False)


Stmt = Assign | Invoke


@dataclass(frozen=True, slots=True)
class Param:
    """``dtype(dims) name``; *dtype* is None for an untyped return, *dims* () for a 0-D tensor.

    With *is_size* it is ``size name``, a number that a call gives.
    """

    name: str
    dtype: DType | None
    dims: tuple[str | int, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    dim_spans: tuple[Span, ...] = field(default=(), compare=False, repr=False)
    is_size: bool = False


@dataclass(frozen=True, slots=True)
class Def:
    """``def name(params) -> (returns) { body }``; *has_header* is False around bare statements."""

    name: str
    params: tuple[Param, ...]
    returns: tuple[Param, ...]
    body: tuple[Stmt, ...]
    span: Span = field(default=NOWHERE, compare=False, repr=False)
    name_span: Span = field(default=NOWHERE, compare=False, repr=False)
    has_header: bool = True


@dataclass(frozen=True, slots=True)
class Program:
    """All defs of one source text, in order."""

    defs: tuple[Def, ...]
    source: Source
