"""Accesses and domains of polyhedral statements as short text."""

import re
from collections.abc import Sequence

import islpy as isl

from tcdsl.display.html import Html, code, details
from tcdsl.lang.comprehension import Expr
from tcdsl.lang.syntax.printer import print_typed_expr

LONG = 200  # characters of a relation that is shown as a whole


def access_text(array: str, subscripts: Sequence[Expr]) -> str:
    """Return ``A[m, k + 1]``."""
    return f"{array}[{', '.join(map(print_typed_expr, subscripts))}]"


def isl_code(relation: isl.Set | isl.Map) -> Html:
    """Return isl's text of *relation*; a long one is folded."""
    text = isl_text(relation)
    if len(text) <= LONG:
        return code(text)
    start = text[: LONG // 2].rpartition(" ")[0]
    return details(code(f"{start} ..."), code(text))


def isl_text(relation: isl.Set | isl.Map | isl.UnionMap) -> str:
    """Return isl's text of *relation*, without the list of parameters in front."""
    return re.sub(r"^\[[^\]]*\] -> ", "", relation.to_str())
