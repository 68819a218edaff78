"""From syntax to typed expressions: names resolved, types promoted, conversions explicit.

    s * A(i) + 1    --->    Binary("+", Binary("*", Load(s), Load(A, i)), Const(1.0, float32))

Every expression has two types.  Its *nominal* type is the language's: the sum of two float16 is a
float16, and an un-annotated result takes that type.  The type of the IR node is the one the
machine computes in: float32 for narrow floats, whose loads are wrapped in a cast.

A tensor whose type is not known yet (the target of the first statement that assigns it, read by
that statement) has the type :data:`UNKNOWN`, which any other type absorbs.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from tcdsl.errors import (
    BAD_SUBSCRIPT,
    OPERAND_TYPE,
    READ_BEFORE_WRITTEN,
    TOO_DEEP,
    TOO_LARGE,
    UNKNOWN_NAME,
    WRONG_ARITY,
    WRONG_RANK,
)
from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Select,
    Size,
    Unary,
)
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.syntax import ast
from tcdsl.lang.syntax.limits import children
from tcdsl.lang.syntax.other_languages import constant_hint, function_hint, undeclared_tensor_hint
from tcdsl.lang.syntax.spelling import did_you_mean, other_case
from tcdsl.lang.types.builtins import BUILTINS, Builtin, BuiltinKind, name_and_meaning
from tcdsl.lang.types.dtypes import (
    BOOL,
    FLOAT32,
    INT32,
    WEAK,
    DType,
    Kind,
    arithmetic,
    calculated,
    promote,
)
from tcdsl.lang.types.index_values import is_index_value
from tcdsl.lang.types.weak_literals import (
    as_float,
    folded,
    nearest,
    negated,
    strengthened,
    weakened,
)
from tcdsl.records import dataclass
from tcdsl.source import Source, Span

UNKNOWN = DType("unknown", Kind.UNSIGNED, 0)

# What let clauses, which are substituted, may make of an expression that the parser let pass.
MAX_TYPED_DEPTH = 300
MAX_TYPED_NODES = 20_000

_COMPARISONS = frozenset(("==", "!=", "<", "<=", ">", ">="))
# What makes int32 of narrow integers; & | ^ ~ and choices give values that the narrow type has.
_CALCULATIONS = frozenset(("+", "-", "*", "/", "%", "<<", ">>"))
_CAST_ADVICE = "convert it first: int32({text}) or float32({text})"


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression, its nominal type, and how large it is."""

    expr: Expr
    nominal: DType
    depth: int = 1
    nodes: int = 1


@dataclass(frozen=True, slots=True)
class Signature:
    """What a program may know of a tensor: its type (perhaps UNKNOWN) and its rank."""

    dtype: DType
    rank: int


@dataclass(frozen=True, slots=True)
class Scope:
    """What the names of a statement mean; a name that is nothing here is an index."""

    source: Source
    tensors: Mapping[str, Signature]
    sizes: frozenset[str]
    defs: frozenset[str] = frozenset()
    lets: Mapping[str, Typed] | None = None
    later: frozenset[str] = frozenset()  # tensors that only later statements assign
    broken: frozenset[str] = frozenset()  # tensors whose statement has an error of its own

    def text(self, span: Span) -> str:
        """Return what is written at *span*."""
        return self.source.text[span.start : span.end]


class FollowOnError(Exception):
    """A statement uses what another one, whose error is reported, was to give: say nothing."""


def elaborate(expr: ast.Expr, scope: Scope) -> Typed:
    """Return *expr* with its types.

    :raises SemanticError: a name is unknown, or operands do not fit their operator.
    """
    _check_functions(expr, scope)
    return _fold_syntax(expr, lambda node, operands: _combine(node, operands, scope))


def _check_functions(expr: ast.Expr, scope: Scope) -> None:
    """Raise UNKNOWN_NAME for ``id(...)`` of no meaning, before its arguments are looked at."""
    stack = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.Apply) and not _is_known(node.id, scope):
            raise unknown_function(node, scope)
        stack.extend(reversed(children(node)))


def _is_known(name: str, scope: Scope) -> bool:
    return name in BUILTINS or any(
        name in names for names in (scope.tensors, scope.later, scope.broken)
    )


def _fold_syntax(expr: ast.Expr, combine: Callable[[ast.Expr, tuple[Typed, ...]], Typed]) -> Typed:
    """Return ``combine(expr, typed operands)``, operands first, without recursion."""
    done: list[Typed] = []
    stack: list[tuple[ast.Expr, bool]] = [(expr, False)]
    while stack:
        node, visited = stack.pop()
        operands = children(node)
        if visited:
            first = len(done) - len(operands)
            done[first:] = [combine(node, tuple(done[first:]))]
            continue
        stack.append((node, True))
        stack.extend((operand, False) for operand in reversed(operands))
    return done.pop()


def _combine(node: ast.Expr, operands: tuple[Typed, ...], scope: Scope) -> Typed:
    made = _node(node, operands, scope)
    if isinstance(node, ast.Name):
        return made  # a let brings its own size
    depth = 1 + max((operand.depth for operand in operands), default=0)
    nodes = 1 + sum(operand.nodes for operand in operands)
    if depth > MAX_TYPED_DEPTH:
        raise TOO_DEEP(scope.source, node.span, limit=MAX_TYPED_DEPTH)
    if nodes > MAX_TYPED_NODES:
        what = "too many terms after substituting the let clauses"
        raise TOO_LARGE(scope.source, node.span, what=what, limit=MAX_TYPED_NODES)
    return replace(made, depth=depth, nodes=nodes)


def _node(node: ast.Expr, operands: tuple[Typed, ...], scope: Scope) -> Typed:
    match node:
        case ast.Number(dtype=dtype) if dtype == WEAK:
            return Typed(Const(node.value, WEAK, node.span), WEAK)
        case ast.Number():
            return constant(node.value, node.dtype, node.span)
        case ast.Name():
            return _name(node, scope)
        case ast.Apply():
            return _apply(node, operands, scope)
        case ast.Unary():
            return _unary(node, operands[0], scope)
        case ast.Binary():
            return _binary(node, operands[0], operands[1], scope)
        case ast.Select():
            return _select(node, operands, scope)
        case ast.Cast():
            return explicit_cast(operands[0], node.dtype, node.span, scope.source)


def constant(value: bool | int | float, dtype: DType, span: Span) -> Typed:
    """Return the literal, rounded to its type; a narrow float is the float32 of equal value."""
    stored = nearest(value, dtype) if dtype.is_float else value
    return Typed(Const(stored, arithmetic(dtype), span), dtype)


# --- names ---------------------------------------------------------------------------------
def _name(node: ast.Name, scope: Scope) -> Typed:
    if scope.lets and node.id in scope.lets:
        return scope.lets[node.id]
    _check_assigned(node.id, node.span, scope)
    if node.id in scope.tensors:
        return _load(node.id, (), node.span, node.span, scope)
    if node.id in scope.sizes:
        return Typed(Size(node.id, INT32, node.span), INT32)
    return Typed(Index(node.id, INT32, node.span), INT32)


def _check_assigned(name: str, span: Span, scope: Scope) -> None:
    """Raise an error if *name* is a tensor that no statement has given a type yet."""
    if name in scope.broken:
        raise FollowOnError
    if name in scope.later:
        raise READ_BEFORE_WRITTEN(scope.source, span, name=name, where="",
            advice=f"assign {name} first; if the caller is to supply it, make it a parameter, or "
            "declare its type and dimensions among the results")  # fmt: skip


def _apply(node: ast.Apply, args: tuple[Typed, ...], scope: Scope) -> Typed:
    _check_assigned(node.id, node.id_span, scope)
    if node.id in scope.tensors:
        return _load(node.id, args, node.span, node.id_span, scope)
    return _call(BUILTINS[node.id], node, args, scope)


def unknown_function(node: ast.Apply, scope: Scope) -> Exception:
    """Return the error for ``id(...)`` where *id* is neither tensor nor builtin."""
    if node.id in scope.defs:
        hint = f"a def is called on its own, with whole tensors: T = {node.id}(A)"
    elif node.id in scope.sizes:
        hint = f"{node.id} is a size, which has no elements"
    else:
        # Names of the user's own come first: 'acb' is nearer to a tensor 'abc' than to 'abs'.
        hint = (
            other_case(node.id, (*scope.tensors, *scope.later))
            or did_you_mean(node.id, (*scope.tensors, *scope.later))
            or function_hint(node.id, [scope.text(arg.span) for arg in node.args])
            or did_you_mean(node.id, (*BUILTINS, *scope.defs))
            or undeclared_tensor_hint(node.id, scope.source.text)
        )
    return UNKNOWN_NAME(
        scope.source, node.id_span, what="tensor or function", name=node.id, hint=hint
    )


def _load(
    name: str, subscripts: tuple[Typed, ...], span: Span, name_span: Span, scope: Scope
) -> Typed:
    signature = scope.tensors[name]
    check_rank(name, signature.rank, len(subscripts), name_span, scope)
    integers = tuple(subscript(s, scope) for s in subscripts)
    load = Load(name, integers, signature.dtype, span)
    return Typed(_computed(load), signature.dtype)


def check_rank(name: str, declared: int, used: int, span: Span, scope: Scope) -> None:
    """Raise WRONG_RANK unless a tensor of rank *declared* is used with as many subscripts."""
    if declared == used:
        return
    marks = ", ".join("ijklmnopqrst"[:declared]) if declared <= 12 else "..."
    hint = f"write {name}({marks})" if declared else f"write {name} without parentheses"
    raise WRONG_RANK(
        scope.source, span, name=name, declared=declared, s=_plural(declared), used=used,
        t=_plural(used), hint=hint,
    )  # fmt: skip


def _plural(number: int) -> str:
    return "" if number == 1 else "s"


def subscript(typed: Typed, scope: Scope) -> Expr:
    """Return *typed* as a subscript, which must be an integer."""
    if not typed.nominal.is_integer:
        what = f"a subscript must be an integer, but this is {settled(typed.nominal)}"
        advice = f"convert it: int32({scope.text(typed.expr.span)}) truncates"
        raise BAD_SUBSCRIPT(scope.source, typed.expr.span, what=what, advice=advice)
    return exact(typed.expr)


def exact(expr: Expr) -> Expr:
    """Return *expr*, index arithmetic, without conversions of an int32 to an int32."""

    def stripped(node: Expr) -> Expr:
        is_same = isinstance(node, Cast) and node.operand.dtype == node.dtype
        return node.operand if is_same and isinstance(node, Cast) else node

    return rewrite(expr, stripped)


# --- conversions ---------------------------------------------------------------------------
def _computed(expr: Expr) -> Expr:
    """Return *expr* as a value of the type that its own is computed in."""
    return converted(expr, arithmetic(expr.dtype))


def converted(expr: Expr, dtype: DType, source: Source | None = None) -> Expr:
    """Return *expr* as a value of exactly *dtype*; to bool by comparing with zero.

    :raises ParseError: TC015, a weak literal does not fit; it stands in *source*.
    """
    if expr.dtype == dtype:
        return expr
    if expr.dtype == WEAK:
        return converted(strengthened(expr, dtype, source), dtype)
    if dtype == WEAK:
        return weakened(expr)
    if dtype == BOOL:
        zero = Const(0.0 if expr.dtype.is_float else 0, expr.dtype, expr.span)
        return Binary("!=", expr, zero, BOOL, expr.span)
    if dtype.is_float:
        return as_float(expr, dtype, expr.span)
    return Cast(expr, dtype, expr.span)


def explicit_cast(typed: Typed, dtype: DType, span: Span, source: Source) -> Typed:
    """Return ``dtype(typed)``; a cast to a narrow float rounds, then goes on as float32."""
    expr = converted(typed.expr, dtype, source)
    if dtype == INT32 and is_index_value(expr):
        return Typed(Cast(expr, INT32, span), INT32)  # the call checks that it fits
    if dtype.is_narrow_float:
        expr = _computed(expr)
    return Typed(replace_span(expr, span), dtype)


def replace_span(expr: Expr, span: Span) -> Expr:
    """Return *expr* as written at *span*."""
    return replace(expr, span=span)


def _to(typed: Typed, nominal: DType, scope: Scope) -> Expr:
    return converted(typed.expr, arithmetic(nominal), scope.source)


def settled(dtype: DType) -> DType:
    """Return the type of what has met nothing but weak literals: float32; any other stays."""
    return FLOAT32 if dtype == WEAK else dtype


def joined(a: DType, b: DType) -> DType:
    """Return the promotion of *a* and *b*, where UNKNOWN gives way to anything."""
    if UNKNOWN in (a, b):
        return b if a == UNKNOWN else a
    return promote(a, b)


# --- operators -----------------------------------------------------------------------------
def _unary(node: ast.Unary, operand: Typed, scope: Scope) -> Typed:
    nominal, op = operand.nominal, node.op
    if op == "~" and nominal == BOOL:
        op = "!"
    if op == "!" and nominal not in (BOOL, UNKNOWN):
        raise _operand_error(
            node, "'!'", (operand,), scope, f"compare it: {_zero_test(operand, scope)}"
        )
    if op == "-" and nominal == BOOL:
        raise _bool_error(node, "'-'", operand, scope)
    if op == "~" and not nominal.is_integer:
        raise _operand_error(node, "'~'", (operand,), scope, "'~' is for integers and bools")
    if op == "-":
        nominal = calculated(nominal)
    value = _to(operand, nominal, scope)
    literal = negated(value, node.span) if op == "-" else None
    return Typed(literal or Unary(op, value, value.dtype, node.span), nominal)


def _zero_test(operand: Typed, scope: Scope) -> str:
    text = scope.text(operand.expr.span)
    zero = "0.0" if operand.nominal.is_float else "0"
    return f"({text}) == {zero}" if " " in text and not text.endswith(")") else f"{text} == {zero}"


def _binary(node: ast.Binary, left: Typed, right: Typed, scope: Scope) -> Typed:
    _check_operands(node, left, right, scope)
    nominal = joined(left.nominal, right.nominal)
    if node.op in ("&&", "||"):
        nominal = BOOL
    if node.op in _COMPARISONS:
        nominal = settled(nominal)
    elif node.op in _CALCULATIONS:
        nominal = calculated(nominal)
    operands = _to(left, nominal, scope), _to(right, nominal, scope)
    if nominal == WEAK and (literal := folded(node.op, *operands, node.span)) is not None:
        return Typed(literal, WEAK)
    if node.op in _COMPARISONS:
        return Typed(Binary(node.op, *operands, BOOL, node.span), BOOL)
    return Typed(Binary(node.op, *operands, arithmetic(nominal), node.span), nominal)


def _check_operands(node: ast.Binary, left: Typed, right: Typed, scope: Scope) -> None:
    """Raise OPERAND_TYPE unless the operator takes operands of these types."""
    types = {left.nominal, right.nominal} - {UNKNOWN}
    what = f"'{node.op}'"
    if node.op in ("&&", "||"):
        if types - {BOOL}:
            wrong = left if left.nominal not in (BOOL, UNKNOWN) else right
            text = scope.text(wrong.expr.span)
            advice = constant_hint(text) or f"compare it: {text} != 0"
            raise _operand_error(node, what, (left, right), scope, advice)
    elif node.op in ("+", "-", "*", "/", "%"):
        if BOOL in types:
            raise _bool_error(node, what, left if left.nominal == BOOL else right, scope)
    elif node.op in ("&", "|", "^", "<<", ">>"):
        both_bool = types == {BOOL} and node.op in ("&", "|", "^")
        if not both_bool and not all(t.is_integer for t in types):
            advice = f"{what} is for integers" + ("" if "<" in node.op else " and for bools")
            if node.op == "^":
                advice += "; a power is pow(x, y)"
            raise _operand_error(node, what, (left, right), scope, advice)


def _bool_error(node: ast.Expr, what: str, operand: Typed, scope: Scope) -> Exception:
    text = _bare(scope.text(operand.expr.span))
    return _operand_error(node, what, (operand,), scope, _CAST_ADVICE.format(text=text))


def _bare(text: str) -> str:
    """Return *text* without parentheses that are around all of it."""
    inner, depth = text[1:-1], 0
    if text[:1] + text[-1:] != "()":
        return text
    for character in inner:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return text
    return inner


def _operand_error(
    node: ast.Expr, what: str, operands: tuple[Typed, ...], scope: Scope, advice: str
) -> Exception:
    types = " and ".join(str(settled(operand.nominal)) for operand in operands)
    return OPERAND_TYPE(scope.source, node.span, what=what, types=types, advice=advice)


def _select(node: ast.Select, operands: tuple[Typed, ...], scope: Scope) -> Typed:
    where, if_true, if_false = operands
    if where.nominal not in (BOOL, UNKNOWN):
        text = scope.text(where.expr.span)
        raise OPERAND_TYPE(
            scope.source, node.condition.span, what="the condition of '?:'",
            types=str(where.nominal), advice=f"compare it: {text} != 0",
        )  # fmt: skip
    nominal = joined(if_true.nominal, if_false.nominal)
    branches = _to(if_true, nominal, scope), _to(if_false, nominal, scope)
    return Typed(Select(where.expr, *branches, arithmetic(nominal), node.span), nominal)


def _call(builtin: Builtin, node: ast.Apply, args: tuple[Typed, ...], scope: Scope) -> Typed:
    if len(args) != builtin.arity:
        raise WRONG_ARITY(
            scope.source, node.span, name=builtin.name, got=len(args),
            expected=f"{builtin.arity} argument{_plural(builtin.arity)}",
            hint=f"it is {name_and_meaning(builtin)}",
        )  # fmt: skip
    nominal = UNKNOWN
    for arg in args:
        nominal = joined(nominal, arg.nominal)
        if arg.nominal == BOOL:
            raise _bool_error(node, f"{builtin.name!r}", arg, scope)
    if builtin.name == "abs":
        nominal = calculated(nominal)
    stays_weak = nominal == WEAK and builtin.kind is not BuiltinKind.TEST
    if builtin.kind is not BuiltinKind.ANY and not stays_weak:
        nominal = joined(FLOAT32, nominal)
    operands = tuple(_to(arg, nominal, scope) for arg in args)
    if builtin.kind is BuiltinKind.TEST:
        return Typed(Call(builtin.name, operands, BOOL, node.span), BOOL)
    return Typed(Call(builtin.name, operands, arithmetic(nominal), node.span), nominal)
