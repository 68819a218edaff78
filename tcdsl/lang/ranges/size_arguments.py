"""The arguments for ``size`` parameters where one def calls another: ``onehot(label, C + 1)``."""

from collections.abc import Mapping

from tcdsl.errors import BAD_CALL
from tcdsl.lang.comprehension import Comprehension, Expr, Index, Load, walk
from tcdsl.lang.ranges.affine import constant_value
from tcdsl.lang.ranges.size_functions import SizeSpace
from tcdsl.lang.syntax import ast
from tcdsl.lang.types.elaborate import Scope, elaborate


def size_argument(name: str, arg: ast.Expr, callee: Comprehension, scope: Scope) -> Expr:
    """Return the argument for the ``size`` parameter *name*: an integer of numbers and sizes.

    :raises SemanticError: it is something else.
    """
    typed = elaborate(arg, scope)
    varies = any(isinstance(node, Load | Index) for node in walk(typed.expr))
    if varies or not typed.nominal.is_integer:
        raise BAD_CALL(
            scope.source, arg.span, name=callee.name,
            what=f"the argument for the size {name!r} is no integer of numbers and sizes",
            advice="give a number, a size, or a sum of such",
        )  # fmt: skip
    return typed.expr


def size_value(
    name: str, arg: ast.Expr, callee: Comprehension, scope: Scope, fixed: Mapping[str, int]
) -> int:
    """Return the value of the argument for the ``size`` parameter *name* at the sizes *fixed*.

    :raises TCError: it is none, or negative.
    """
    expr = size_argument(name, arg, callee, scope)
    function = SizeSpace(tuple(fixed), fixed).builder.affine(expr)
    value = None if function is None else constant_value(function)
    if value is None or value < 0:
        what = "no integer" if value is None else f"{value}, which is negative"
        raise BAD_CALL(
            scope.source, arg.span, name=callee.name,
            what=f"the argument for the size {name!r} is {what}", advice="give another size",
        )  # fmt: skip
    return value
