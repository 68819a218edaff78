"""Accesses and domains of polyhedral statements as short text."""

import re
from collections.abc import Sequence

import islpy as isl

from tcdsl.lang.comprehension import Expr
from tcdsl.lang.printer import print_typed_expr


def access_text(array: str, subscripts: Sequence[Expr]) -> str:
    """Return ``A[m, k + 1]``."""
    return f"{array}[{', '.join(map(print_typed_expr, subscripts))}]"


def isl_text(relation: isl.Set | isl.Map | isl.UnionMap) -> str:
    """Return isl's text of *relation*, without the list of parameters in front."""
    return re.sub(r"^\[[^\]]*\] -> ", "", relation.to_str())
