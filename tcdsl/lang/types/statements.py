"""One assignment, from syntax to a typed statement: clauses, indices, operator, conversions.

C(i) +=! x * B(i,k) where x = A(i), k in 0:4
    --->    Statement("S0", "C", (i,), indices=(i, k), n_left=1, Reduction("+", True, float32),
                      value=A(i) * B(i,k), explicit=(k in 0:4,))
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter

from tcdsl.errors import (
    ARG_REDUCTION,
    BAD_CLAUSE,
    BAD_SUBSCRIPT,
    CYCLE,
    DUPLICATE_NAME,
    NAME_CLASH,
    REDUCTION_TYPE,
    TWO_VALUES,
    UNKNOWN_NAME,
    UNKNOWN_TYPE,
)
from tcdsl.lang.comprehension import (
    Call,
    Const,
    Expr,
    Index,
    IndexBounds,
    Let,
    Load,
    Operator,
    Reduction,
    Statement,
    walk,
)
from tcdsl.lang.ranges.reads import expressions, index_names
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.syntax import ast
from tcdsl.lang.syntax.limits import children
from tcdsl.lang.syntax.other_languages import number_hint
from tcdsl.lang.syntax.spelling import did_you_mean, other_case
from tcdsl.lang.types.builtins import BUILTINS
from tcdsl.lang.types.dtypes import BOOL, INT32, INT64, UINT64, DType, arithmetic, calculated
from tcdsl.lang.types.elaborate import (
    UNKNOWN,
    Scope,
    Signature,
    Typed,
    check_rank,
    constant,
    converted,
    elaborate,
    exact,
    settled,
    subscript,
)
from tcdsl.lang.types.library_calls import LIBRARIES, named_library
from tcdsl.lang.types.weak_literals import strong_forms
from tcdsl.records import dataclass

SUMMED = (Operator.ADD, Operator.MUL)
_LARGEST_INDEX = 2**63 - 1
_ADVICE_BOOL = "use and= or or=, or convert the value: int32(...)"


@dataclass(frozen=True, slots=True)
class Operation:
    """An assignment operator: *operator* is None for ``=``."""

    operator: Operator | None
    initialise: bool

    @classmethod
    def parse(cls, written: str) -> "Operation":
        """Return the operation of ``=``, ``+=``, ``argmax=!``, ..."""
        if written == "=":
            return cls(None, False)
        return cls(Operator(written.rstrip("!").removesuffix("=")), written.endswith("!"))


@dataclass(frozen=True, slots=True)
class Parts:
    """The typed parts of an assignment."""

    subscripts: tuple[Expr, ...]
    value: Typed
    conditions: tuple[Expr, ...]
    bounds: tuple[Expr, ...]
    explicit: tuple[IndexBounds, ...]
    lets: tuple[Let, ...]


def typed_statement(
    stmt: ast.Assign, scope: Scope, declared: DType | None, name: str
) -> tuple[Statement, DType]:
    """Return the statement called *name*, and the type of its target.

    *declared* is the target's type if it is known; else it is that of this statement's value.

    :raises SemanticError: names, types, clauses or the operator are wrong.
    """
    operation = Operation.parse(stmt.op)
    dtype = declared
    if dtype is None:
        dtype = _target_type(stmt, scope, operation)
    scope = _with_target(scope, stmt, dtype)
    parts = _parts(stmt, scope)
    left = index_names(*parts.subscripts)
    draft = Statement(
        name=name, target=stmt.target, subscripts=parts.subscripts, indices=left,
        n_left=len(left), reduction=None, value=parts.value.expr, conditions=parts.conditions,
        bounds=parts.bounds, explicit=parts.explicit, lets=parts.lets, span=stmt.span,
        target_span=stmt.target_span,
    )  # fmt: skip
    indices = _all_indices(draft)
    _check_values(stmt, scope, operation, indices[len(left) :])
    reduction = _reduction(stmt, scope, operation, dtype, parts.value)
    if reduction is not None and reduction.operator.is_arg:
        _check_places(stmt, scope, dtype, draft)
    computed = arithmetic(dtype) if reduction is None else reduction.dtype
    value = parts.value.expr
    if reduction is not None and reduction.operator in SUMMED and computed.is_narrow:
        # Terms are int32.  What accumulates may wrap: the narrow end of the sum is the same.
        value = converted(value, calculated(computed), scope.source)
    value = converted(value, computed, scope.source)
    typed = replace(draft, indices=indices, reduction=reduction, value=value)
    return replace(typed, library=named_library(stmt, typed, scope)), dtype


def _with_target(scope: Scope, stmt: ast.Assign, dtype: DType) -> Scope:
    own = Signature(dtype, len(stmt.subscripts))
    tensors = {**scope.tensors, stmt.target: own}
    return replace(scope, tensors=tensors, later=scope.later - {stmt.target})


def _target_type(stmt: ast.Assign, scope: Scope, operation: Operation) -> DType:
    """Return the type that the first statement assigning a tensor gives it."""
    if operation.operator is not None and operation.operator.is_arg:
        return INT64
    # The value may read the target, whose type is what we are after: it is neutral.
    nominal = settled(_parts(stmt, _with_target(scope, stmt, UNKNOWN)).value.nominal)
    if operation.operator in SUMMED:
        nominal = calculated(nominal)
    if nominal == UNKNOWN:
        raise UNKNOWN_TYPE(scope.source, stmt.target_span, name=stmt.target)
    return nominal


def _all_indices(draft: Statement) -> tuple[str, ...]:
    """Return the left-hand indices, then the others in order of first appearance."""
    explicit = (bounds.index for bounds in draft.explicit)
    # A range may be given to an index that nothing else mentions: it only repeats the statement.
    return tuple(dict.fromkeys((*draft.indices, *index_names(*expressions(draft)), *explicit)))


# --- the parts -----------------------------------------------------------------------------
def _parts(stmt: ast.Assign, scope: Scope) -> Parts:
    scope = _with_lets(stmt, scope)
    subscripts = tuple(subscript(elaborate(s, scope), scope) for s in stmt.subscripts)
    value = elaborate(stmt.value, scope)
    conditions: list[Expr] = []
    bounds: list[Expr] = []
    explicit: list[IndexBounds] = _size_select(stmt, subscripts, scope)
    for clause in stmt.clauses:
        match clause:
            case ast.InRange():
                explicit.append(_in_range(clause, scope))
            case ast.Exists(expr=expr):
                typed = elaborate(expr, scope)
                strong = converted(typed.expr, settled(typed.expr.dtype), scope.source)
                (conditions if typed.nominal == BOOL else bounds).append(strong)
            case ast.Let():
                pass
    lets = tuple(
        Let(name, expr)
        for name, let in (scope.lets or {}).items()
        for expr in strong_forms(let.expr)
    )
    return Parts(subscripts, value, tuple(conditions), tuple(bounds), tuple(explicit), lets)


def _in_range(clause: ast.InRange, scope: Scope) -> IndexBounds:
    for names, what in _taken(scope):
        if clause.index in names:
            raise NAME_CLASH(
                scope.source, clause.index_span, name=clause.index, one="an index here", other=what
            )
    lower, upper = (_bound(bound, scope) for bound in (clause.lower, clause.upper))
    if clause.index in index_names(lower, upper):
        what = f"the range of {clause.index!r} depends on itself"
        raise BAD_CLAUSE(
            scope.source, clause.span, what=what,
            advice="give bounds that depend on sizes or on other indices",
        )  # fmt: skip
    return IndexBounds(clause.index, lower, upper, clause.span)


def _taken(scope: Scope) -> Iterable[tuple[Iterable[str], str]]:
    """Return the names that mean something already, and what."""
    return (
        (scope.tensors, "a tensor"),
        (scope.later, "a tensor"),
        (scope.sizes, "a size"),
        (scope.lets or (), "a let clause"),
    )


def _bound(bound: ast.Expr, scope: Scope) -> Expr:
    typed = elaborate(bound, scope)
    if typed.nominal.is_integer:
        return _as_index(rewrite(exact(typed.expr), _loaded_as_index))
    what = f"a bound of a range must be an integer, but this is {settled(typed.nominal)}"
    advice = f"convert it: int32({scope.text(bound.span)}) truncates"
    raise BAD_CLAUSE(scope.source, bound.span, what=what, advice=advice)


def _loaded_as_index(expr: Expr) -> Expr:
    return _as_index(expr) if isinstance(expr, Load) else expr


def _as_index(expr: Expr) -> Expr:
    """Return *expr*, no more than an index can be.

    A bound of 2**63 and more would else be a negative number, and its range empty, and no error.
    """
    if expr.dtype != UINT64 or isinstance(expr, Call):
        return expr
    return Call("min", (expr, Const(_LARGEST_INDEX, UINT64)), UINT64, expr.span)


def _size_select(stmt: ast.Assign, subscripts: tuple[Expr, ...], scope: Scope) -> list[IndexBounds]:
    """Return ``i in 0:a, j in 0:b`` for ``O(i,j) = ... <=> T(a,b)``; a library gives no ranges."""
    select = stmt.size_select
    if select is None:
        return []
    if select.id not in scope.tensors:
        if select.id in LIBRARIES:
            return []
        hint = did_you_mean(select.id, {*scope.tensors, *LIBRARIES})
        advice = f"name the target, another tensor or a library: {', '.join(LIBRARIES)}"
        raise UNKNOWN_NAME(
            scope.source, select.id_span, what="tensor or library", name=select.id,
            hint=hint or advice,
        )  # fmt: skip
    check_rank(select.id, len(subscripts), len(select.args), select.id_span, scope)
    result: list[IndexBounds] = []
    for left, size in zip(subscripts, select.args, strict=True):
        bound = _bound(size, scope)
        if index_names(bound) or not isinstance(left, Index):
            raise BAD_SUBSCRIPT(
                scope.source, size.span, what="'<=>' gives the extents of plain indices",
                advice="write the range as a clause: where i in 0:N",
            )  # fmt: skip
        zero = constant(0, INT32, size.span).expr
        result.append(IndexBounds(left.name, zero, bound, size.span))
    return result


# --- let clauses ---------------------------------------------------------------------------
def _with_lets(stmt: ast.Assign, scope: Scope) -> Scope:
    """Return *scope* with the statement's let clauses, each typed in terms of the others."""
    lets = {clause.name: clause for clause in stmt.clauses if isinstance(clause, ast.Let)}
    if not lets:
        return scope
    _check_let_names(stmt, scope)
    typed: dict[str, Typed] = {}
    for name in _let_order(lets, scope):
        typed[name] = elaborate(lets[name].value, replace(scope, lets=typed))
    return replace(scope, lets=typed)


def _check_let_names(stmt: ast.Assign, scope: Scope) -> None:
    seen: set[str] = set()
    for clause in stmt.clauses:
        if not isinstance(clause, ast.Let):
            continue
        if clause.name in seen:
            raise DUPLICATE_NAME(scope.source, clause.span, name=clause.name)
        seen.add(clause.name)
        for names, what in _taken(scope):
            if clause.name in names:
                raise NAME_CLASH(
                    scope.source, clause.span, name=clause.name, one="a let clause", other=what
                )


def _let_order(lets: Mapping[str, ast.Let], scope: Scope) -> list[str]:
    """Return the names of *lets*, each after those that its value uses."""
    uses = {name: _names(clause.value) & lets.keys() for name, clause in lets.items()}
    try:
        return list(TopologicalSorter(uses).static_order())
    except CycleError as error:
        cycle: list[str] = error.args[1]
        raise CYCLE(
            scope.source, lets[cycle[0]].span, what="a let clause is",
            cycle=" -> ".join(reversed(cycle)), advice="a let clause must not use itself",
        ) from None  # fmt: skip


def _names(expr: ast.Expr) -> set[str]:
    found: set[str] = set()
    stack = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Name):
            found.add(node.id)
        stack.extend(children(node))
    return found


# --- the operator --------------------------------------------------------------------------
def _check_values(
    stmt: ast.Assign, scope: Scope, operation: Operation, reduced: tuple[str, ...]
) -> None:
    """Raise an error if ``=`` meets a reduced index, or argmin anything but one."""
    operator = operation.operator
    if operator is None and reduced:
        raise _two_values(stmt, scope, reduced)
    if operator is None or not operator.is_arg:
        return
    if not operation.initialise:
        raise ARG_REDUCTION(
            scope.source, stmt.target_span, op=stmt.op, what="cannot continue from an index",
            advice=f"write {operator}=!",
        )  # fmt: skip
    if len(reduced) != 1:
        got = ", ".join(reduced) or "none"
        raise ARG_REDUCTION(
            scope.source, stmt.target_span, op=stmt.op,
            what=f"needs exactly one reduced index, but there are {len(reduced)}: {got}"
            if reduced else "needs exactly one reduced index, but there is none",
            advice="leave exactly one index off the left side; its value is the result",
        )  # fmt: skip


def _two_values(stmt: ast.Assign, scope: Scope, reduced: tuple[str, ...]) -> Exception:
    """Return the error for ``O(i) = A(i, k)``; *reduced* may hold a misspelt name."""
    names = ", ".join(reduced)
    advice = f"sum over {names} with +=! (or another reduction), or add it on the left"
    left = {name for s in stmt.subscripts for name in _names(s)}
    known = (*scope.tensors, *scope.later, *scope.sizes, *left)
    close = next(filter(None, (did_you_mean(name, known) for name in reduced)), None)
    numbers = [name for name in reduced if name not in _subscripting(stmt)]
    if numbers:
        close = close or other_case(numbers[0], scope.sizes)
        advice = f"{number_hint(numbers[0], scope.source.text)}; if an index, {advice}"
    ranged = next((c for c in stmt.clauses if _is_ranged(c, left, reduced)), None)
    if isinstance(ranged, ast.InRange):
        element = element_text(stmt, scope)
        advice = (
            f"{ranged.index} may be in the range of several {names}, or of none: write {element} "
            "+=! ..., which adds these up and leaves 0 where there is none"
        )
        bounds = _names(ranged.lower) | _names(ranged.upper)
        if unknown := [name for name in numbers if name in bounds]:
            sizes = f" (the sizes are {', '.join(scope.sizes)})" if scope.sizes else ""
            advice = (
                f"if {unknown[0]} is a size{sizes}, declare it, `size {unknown[0]}`; "
                f"if an index, {advice}"
            )
    return TWO_VALUES(
        scope.source, stmt.target_span, element=element_text(stmt, scope),
        why=f"{names} {'is' if len(reduced) == 1 else 'are'} not on the left",
        advice=advice if close is None else f"{close} Otherwise {advice}",
    )  # fmt: skip


def _is_ranged(clause: ast.Clause, left: set[str], reduced: tuple[str, ...]) -> bool:
    """Return whether *clause* gives a left-hand index a range for each of the *reduced* ones."""
    if not isinstance(clause, ast.InRange) or clause.index not in left:
        return False
    return bool({*_names(clause.lower), *_names(clause.upper)} & set(reduced))


def _subscripting(stmt: ast.Assign) -> set[str]:
    """Return the names in the statement's subscripts, and those with a range of their own."""
    ranges = [clause for clause in stmt.clauses if isinstance(clause, ast.InRange)]
    found = {clause.index for clause in ranges}
    stack = [stmt.value, *(c.value for c in stmt.clauses if isinstance(c, ast.Let))]
    stack += [bound for clause in ranges for bound in (clause.lower, clause.upper)]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Apply) and node.id not in BUILTINS:
            for arg in node.args:
                found |= _names(arg)
        stack.extend(children(node))
    return found


def element_text(stmt: ast.Assign, scope: Scope) -> str:
    """Return the left side as written, on one line."""
    if not stmt.subscripts:
        return stmt.target
    return f"{stmt.target}({', '.join(scope.text(s.span) for s in stmt.subscripts)})"


def _reduction(
    stmt: ast.Assign, scope: Scope, operation: Operation, dtype: DType, value: Typed
) -> Reduction | None:
    """Return the reduction into a target of type *dtype*; None for ``=``."""
    operator = operation.operator
    if operator is None:
        return None
    if operator.is_arg:
        _check_arg_types(stmt, scope, dtype, value)
        return Reduction(operator, operation.initialise, arithmetic(settled(value.nominal)))
    logical = operator in (Operator.AND, Operator.OR)
    for found, what in ((dtype, stmt.target), (value.nominal, "the value")):
        if (found == BOOL) != logical:
            advice = "compare the value: x != 0" if logical else _ADVICE_BOOL
            raise REDUCTION_TYPE(
                scope.source, stmt.target_span, op=stmt.op, target=stmt.target,
                dtype=found if what == stmt.target else f"{dtype} (the value is {found})",
                advice=advice,
            )  # fmt: skip
    return Reduction(operator, operation.initialise, arithmetic(dtype))


def _check_places(stmt: ast.Assign, scope: Scope, dtype: DType, draft: Statement) -> None:
    """Raise an error if *draft* reads the places that it makes, whose type may not hold them all.

    Others are kept as int64, and converted at the end of the statement.
    """
    if dtype.kind == INT64.kind and dtype.size_bytes >= INT32.size_bytes:
        return
    parts = (node for expr in (draft.value, *draft.conditions) for node in walk(expr))
    if any(isinstance(node, Load) and node.tensor == stmt.target for node in parts):
        raise ARG_REDUCTION(
            scope.source, stmt.target_span, op=stmt.op,
            what=f"reads {stmt.target}, whose type {dtype} may not hold every place",
            advice=f"declare {stmt.target} as int64",
        )  # fmt: skip


def _check_arg_types(stmt: ast.Assign, scope: Scope, dtype: DType, value: Typed) -> None:
    if not dtype.is_integer:
        raise REDUCTION_TYPE(
            scope.source, stmt.target_span, op=stmt.op, target=stmt.target, dtype=dtype,
            advice="the result is an index: declare the target as int64 or another integer",
        )  # fmt: skip
    if value.nominal == BOOL:
        raise ARG_REDUCTION(
            scope.source, stmt.value.span, op=stmt.op, what="does not compare bools",
            advice=f"convert the value: int32({scope.text(stmt.value.span)})",
        )  # fmt: skip
