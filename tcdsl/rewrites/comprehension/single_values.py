"""Subscripts that are an index, because all others in them have one value.

    O(n,f,h,w) +=! I(n,c,h+r,w+s) * K(f,c,r,s)        r in 0:1, s in 0:1
    --->
    O(n,f,h,w) +=! I(n,c,h,w) * K(f,c,r,s)

Then h and w go together in every access, and coalescing makes one index of them.
"""

from collections.abc import Mapping
from dataclasses import replace

from tcdsl.lang.comprehension import Comprehension, Expr, Index, Load, walk
from tcdsl.lang.linear_forms import linear
from tcdsl.lang.ranges.open_sizes import AnySpecialisation
from tcdsl.lang.rewrite import rewrite_statement
from tcdsl.rewrites.comprehension.merging import AnyRanges


def with_single_values(c: Comprehension, special: AnySpecialisation) -> Comprehension:
    """Return *c* whose subscripts are plain indices where the values of all others are known."""
    statements = []
    for statement, ranges in zip(c.statements, special.ranges, strict=True):
        values = _single_values(ranges)

        def change(node: Expr, values: Mapping[str, int] = values) -> Expr:
            if not isinstance(node, Load):
                return node
            return replace(node, subscripts=tuple(_plain(s, values) for s in node.subscripts))

        statements.append(rewrite_statement(statement, change) if values else statement)
    return replace(c, statements=tuple(statements))


def _single_values(ranges: AnyRanges) -> dict[str, int]:
    known = {name: each for name, each in ranges.items() if isinstance(each, range)}
    return {name: each.start for name, each in known.items() if len(each) == 1}


def _plain(subscript: Expr, values: Mapping[str, int]) -> Expr:
    """Return the index that *subscript* is with *values* for others, or *subscript*."""
    form = None if isinstance(subscript, Index) else linear(subscript)
    if form is None:
        return subscript
    coefficients, constant = form
    constant += sum(n * values[name] for name, n in coefficients.items() if name in values)
    left = {name: n for name, n in coefficients.items() if name not in values}
    if constant or list(left.values()) != [1]:
        return subscript
    return next(n for n in walk(subscript) if isinstance(n, Index) and n.name in left)
