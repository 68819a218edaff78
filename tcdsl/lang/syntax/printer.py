"""Programs as canonical text: a space around operators, and no parentheses that change nothing.

    parse(print(tree)) == tree      for every tree that the parser can return

A typed comprehension is printed as the program that it is equivalent to, every conversion a cast
and every inferred fact a comment.
"""

import math
import re
from collections.abc import Sequence

import islpy as isl

from tcdsl.lang import comprehension as typed
from tcdsl.lang.syntax import ast, literals
from tcdsl.lang.syntax.limits import children
from tcdsl.lang.types.dtypes import FLOAT32, FLOAT64, WEAK, DType
from tcdsl.records import dataclass

INDENT = "    "

# How tightly an expression binds, as in grammar/tc.lark: 0 is "?:".
_LEVELS = (
    ("||",), ("&&",), ("==", "!=", "<", "<=", ">", ">="), ("|",), ("^",), ("&",), ("<<", ">>"),
    ("+", "-"), ("*", "/", "%"),
)  # fmt: skip
_LEVEL = {op: level for level, ops in enumerate(_LEVELS, start=1) for op in ops}
_SELECT, _UNARY, _ATOM = 0, len(_LEVELS) + 1, len(_LEVELS) + 2


def print_program(program: ast.Program) -> str:
    """Return the canonical text of *program*, which ends with a line break."""
    return "\n\n".join(_definition(definition) for definition in program.defs) + "\n"


def print_statement(statement: ast.Stmt) -> str:
    """Return the canonical text of *statement*, on one line."""
    if isinstance(statement, ast.Invoke):
        args = _list(statement.args)
        return f"({', '.join(statement.targets)}) = {statement.callee}({args})"
    target = statement.target
    if statement.subscripts:
        target += f"({_list(statement.subscripts)})"
    text = f"{target} {statement.op} {print_expr(statement.value)}"
    if statement.size_select is not None:
        text += f" <=> {print_expr(statement.size_select)}"
    if statement.clauses:
        text += f" where {', '.join(_clause(clause) for clause in statement.clauses)}"
    return text


def print_expr(expr: ast.Expr) -> str:
    """Return the canonical text of *expr*."""
    # Operands are printed first and wait in "done": a deep tree costs no recursion.
    done: list[_Text] = []
    stack: list[tuple[ast.Expr, bool]] = [(expr, False)]
    while stack:
        node, operands_are_done = stack.pop()
        operands = children(node)
        if not operands_are_done:
            stack.append((node, True))
            stack.extend((operand, False) for operand in reversed(operands))
            continue
        first = len(done) - len(operands)
        done[first:] = [_printed(node, done[first:])]
    return done.pop().text


@dataclass(frozen=True, slots=True)
class _Text:
    """A printed expression and how tightly its outermost operator binds."""

    text: str
    level: int

    def at(self, level: int) -> str:
        """Return the text where *level* or tighter is needed, in parentheses if it is looser."""
        return self.text if self.level >= level else f"({self.text})"


def _printed(expr: ast.Expr, operands: Sequence[_Text]) -> _Text:
    """Return the text of *expr*, given those of its operands."""
    match expr:
        case ast.Number(value=value, dtype=dtype):
            text = literals.text_of(value, dtype)
            return _Text(text, _UNARY if text.startswith("-") else _ATOM)
        case ast.Name(id=name):
            return _Text(name, _ATOM)
        case ast.Apply(id=name):
            return _Text(f"{name}({', '.join(arg.text for arg in operands)})", _ATOM)
        case ast.Cast(dtype=dtype):
            return _Text(f"{dtype}({operands[0].text})", _ATOM)
        case ast.Unary(op=op):
            return _Text(f"{op}{operands[0].at(_UNARY)}", _UNARY)
        case ast.Binary(op=op):
            level = _LEVEL[op]  # all associate to the left
            left, right = operands
            first = left.at(level + ast.is_chain(expr))  # a warning without parentheses
            return _Text(f"{first} {op} {right.at(level + 1)}", level)
        case ast.Select():
            condition, if_true, if_false = operands
            text = f"{condition.at(_SELECT + 1)} ? {if_true.text} : {if_false.text}"
            return _Text(text, _SELECT)


def _list(exprs: Sequence[ast.Expr]) -> str:
    return ", ".join(print_expr(expr) for expr in exprs)


def _clause(clause: ast.Clause) -> str:
    match clause:
        case ast.Let(name=name, value=value):
            return f"{name} = {print_expr(value)}"
        case ast.InRange(index=index, lower=lower, upper=upper):
            return f"{index} in {print_expr(lower)}:{print_expr(upper)}"
        case ast.Exists(expr=expr):
            return f"exists {print_expr(expr)}"


def _definition(definition: ast.Def, comments: Sequence[str] = ()) -> str:
    """Return the text of *definition*, with *comments* above its statements."""
    inputs = ", ".join(_param(param) for param in definition.params)
    outputs = ", ".join(_param(param) for param in definition.returns)
    lines = [f"def {definition.name}({inputs}) -> ({outputs}) {{"]
    lines += [f"{INDENT}# {comment}" for comment in comments]
    lines += [f"{INDENT}{print_statement(statement)}" for statement in definition.body]
    return "\n".join([*lines, "}"])


def _param(param: ast.Param) -> str:
    if param.is_size:
        return f"size {param.name}"
    if param.dtype is None:
        return param.name
    dims = f"({', '.join(map(str, param.dims))})" if param.dims else ""
    return f"{param.dtype}{dims} {param.name}"


# --- typed comprehensions ----------------------------------------------------------------------


def print_comprehension(comprehension: typed.Comprehension) -> str:
    """Return *comprehension* as a def, which reads as a program again and ends with a line break.

    Comments tell the types, extents and origins of what is no input, and the domains.
    """
    tensors = comprehension.tensors
    made = [tensor for name, tensor in tensors.items() if name not in comprehension.inputs]
    comments = [_tensor_comment(tensor) for tensor in made]
    comments += [
        f"{statement.name}: {_without_parameters(statement.domain)}"
        for statement in comprehension.statements
        if statement.domain is not None
    ]
    definition = ast.Def(
        comprehension.name,
        tuple(
            typed_param(tensors[name]) if name in tensors else size_param(name)
            for name in comprehension.parameters
        ),
        tuple(typed_param(tensors[name]) for name in comprehension.outputs),
        tuple(untyped_statement(statement) for statement in comprehension.statements),
    )
    return _definition(definition, comments) + "\n"


def print_typed_expr(expr: typed.Expr) -> str:
    """Return the canonical text of a typed expression, its conversions written as casts."""
    return print_expr(untyped(expr))


def untyped(expr: typed.Expr) -> ast.Expr:
    """Return the syntax tree that denotes the typed *expr*."""
    return typed.fold(expr, _untyped)


def _untyped(expr: typed.Expr, operands: tuple[ast.Expr, ...]) -> ast.Expr:
    """Return the syntax tree of *expr*, given those of its operands."""
    match expr:
        case typed.Const(value=value, dtype=dtype):
            # Beside float32 operands a literal needs no suffix.
            written = WEAK if dtype == FLOAT32 else dtype
            return ast.Number(_shortest(value, dtype), written, expr.span)
        case typed.Index(name=name) | typed.Size(name=name):
            return ast.Name(name, expr.span)
        case typed.Load(tensor=name):
            return ast.Apply(name, operands, expr.span) if operands else ast.Name(name, expr.span)
        case typed.Call(function=name):
            return ast.Apply(name, operands, expr.span)
        case typed.Cast(dtype=dtype):
            return ast.Cast(dtype, operands[0], expr.span)
        case typed.Unary(op=op):
            return ast.Unary(op, operands[0], expr.span)
        case typed.Binary(op=op):
            return ast.Binary(op, operands[0], operands[1], expr.span)
        case typed.Select():
            return ast.Select(operands[0], operands[1], operands[2], expr.span)


def _shortest(value: bool | int | float, dtype: DType) -> bool | int | float:
    """Return the number of the fewest digits that rounds to *value*: 0.1 for 0.10000000149."""
    if not dtype.is_float or dtype == FLOAT64 or not math.isfinite(value):
        return value
    rounded = dtype.numpy.type
    candidates = (float(f"{value:.{digits}g}") for digits in range(1, 17))
    return next((short for short in candidates if rounded(short) == rounded(value)), value)


def untyped_statement(statement: typed.Statement) -> ast.Assign:
    """Return the syntax tree that denotes the typed *statement*."""
    ranges = [
        ast.InRange(bounds.index, untyped(bounds.lower), untyped(bounds.upper), bounds.span)
        for bounds in (*statement.explicit, *statement.data_ranges)
    ]
    exists = [ast.Exists(untyped(expr)) for expr in (*statement.conditions, *statement.bounds)]
    return ast.Assign(
        statement.target,
        tuple(untyped(subscript) for subscript in statement.subscripts),
        _assignment(statement.reduction),
        untyped(statement.value),
        (*ranges, *exists),
        statement.span,
        statement.target_span,
        _library_call(statement),
    )


def _library_call(statement: typed.Statement) -> ast.Apply | None:
    """Return ``cublas(A, B)`` of a product that a library is to compute."""
    if not statement.library:
        return None
    loads = (node for node in typed.walk(statement.value) if isinstance(node, typed.Load))
    return ast.Apply(statement.library, tuple(ast.Name(load.tensor) for load in loads))


def _assignment(reduction: typed.Reduction | None) -> str:
    """Return the sign of a plain assignment (None) or of *reduction*."""
    if reduction is None:
        return "="
    return f"{reduction.operator}={'!' if reduction.initialise else ''}"


def size_param(name: str) -> ast.Param:
    """Return ``size name``."""
    return ast.Param(name, None, (), is_size=True)


def typed_param(tensor: typed.Tensor) -> ast.Param:
    """Return *tensor* as a parameter; untyped if extents are inferred, as only a return may be."""
    dims = tuple(dim for dim in tensor.dims if dim is not None)
    if len(dims) < tensor.rank:
        return ast.Param(tensor.name, None, ())
    return ast.Param(tensor.name, tensor.dtype, dims, tensor.span)


def _tensor_comment(tensor: typed.Tensor) -> str:
    """Return "name: type(extents) from (origin)", as much of it as is known and not zero."""
    extents = [_quasi_affine(extent) for extent in tensor.extents]
    if not extents:
        extents = ["?" if dim is None else str(dim) for dim in tensor.dims]
    text = f"{tensor.name}: {tensor.dtype}"
    if extents:
        text += f"({', '.join(extents)})"
    origin = [_quasi_affine(start) for start in tensor.origin]
    if any(start != "0" for start in origin):
        text += f" from ({', '.join(origin)})"
    return text


def _quasi_affine(function: isl.PwAff) -> str:
    """Return ``[M] -> { [(M + 1)] }`` as ``M + 1``, its pieces joined by ``;``."""
    pieces = _without_parameters(function).removeprefix("{").removesuffix("}").strip()
    return re.sub(r"\[\((.*?)\)\](?=\s|;|$)", r"\1", pieces)


def _without_parameters(relation: isl.Set | isl.PwAff) -> str:
    """Return isl's text of *relation* without the list of parameters in front."""
    return re.sub(r"^\[[^\]]*\] -> ", "", relation.to_str())
