"""Operands of a product as arrays: what is multiplied is computed once an element, not once a use.

    O(h,w,f) +=! relu(I(h+r,w+s,c)) * K(f,r,s,c)    P(u,v,c) = relu(I(u,v,c))      u = h+r, v = w+s
                                           --->     O(h,w,f) +=! P(h+r,w+s,c) * K(f,r,s,c)

The operand must be a function of its *subscripts*: every index in it is one of them, or in what is
a multiple of one plus a constant.  It is a cache read (Halide's ``compute_root`` of an operand) of
any expression.  What is worth it, and in which type and layout, say ``computed_factors`` (GPUs) and
``materialisation`` (CPUs).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tcdsl.lang.comprehension import Binary, Cast, Expr, Index, Load, children
from tcdsl.lang.linear_forms import linear, of_linear
from tcdsl.lang.rewrite import with_operands
from tcdsl.poly.accesses import box, builder_of
from tcdsl.poly.isl_utils import plus
from tcdsl.poly.scop import Array, Scop, Statement
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.assignment import assignment, with_own_reads


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand as the *value* of its array at *dims*, which stand there for its *subscripts*."""

    expr: Expr
    tensor: str  # whose elements it is computed of
    subscripts: tuple[Expr, ...]
    dims: tuple[str, ...]
    value: Expr

    def ordered(self, order: list[int]) -> "Operand":
        """Return the operand with its dimensions in another *order*."""
        subscripts = tuple(self.subscripts[d] for d in order)
        return replace(self, subscripts=subscripts, dims=tuple(self.dims[d] for d in order))


Stored = tuple[Operand, Array, str]  # its array, and the name of the statement that computes it


def over_windows(expr: Expr, windows: Mapping[Expr, str]) -> Expr:
    """Return *expr* with an index for each multiple of a window, and what is added to it."""
    if expr in windows:
        return Index(windows[expr])
    if (own := linear(expr)) is not None and own[0]:
        for window, name in windows.items():
            form = linear(window)
            if form is None or form[0].keys() != own[0].keys():
                continue
            times = own[0][index := next(iter(own[0]))] // form[0][index]
            if own[0] == {i: times * n for i, n in form[0].items()}:
                return of_linear({name: times}, own[1] - times * form[1])
    return with_operands(expr, tuple(over_windows(child, windows) for child in children(expr)))


def stored(scop: Scop, name: str, factors: Sequence[Stored]) -> Scop:
    """Return *scop* with these *factors* of the statement *name* in arrays of their own."""
    statement, copies, loads = scop.by_name[name], list[Statement](), dict[Expr, Expr]()
    scop = replace(scop, arrays={**scop.arrays, **{array.name: array for _, array, _ in factors}})
    for operand, array, copy in factors:
        ends = map(plus, array.origin, array.shape)
        bounds = dict(zip(operand.dims, zip(array.origin, ends, strict=True), strict=True))
        domain = box(builder_of(operand.dims, copy, scop.sizes), operand.dims, bounds)
        domain = domain.intersect_params(scop.context)
        element = Load(array.name, tuple(map(Index, operand.dims)), array.dtype)
        copies.append(assignment(scop, domain, operand.dims, element, operand.value, statement))
        load, dtype = replace(element, subscripts=operand.subscripts), operand.expr.dtype
        loads[operand.expr] = load if load.dtype == dtype else Cast(load, dtype)
    assert statement.value is not None
    reader = with_own_reads(scop, replace(statement, value=_with(statement.value, loads)))
    statements = [reader if s is statement else s for s in scop.statements]
    place = [s.source_name for s in statements].index(statement.source_name)
    statements[place:place] = copies
    return scop.with_statements(tuple(statements))


def _with(expr: Expr, loads: Mapping[Expr, Expr]) -> Expr:
    """Return the product *expr* with *loads* for its factors, which may be products themselves."""
    if expr in loads or not (isinstance(expr, Binary) and expr.op == "*"):
        return loads.get(expr, expr)
    return with_operands(expr, tuple(_with(child, loads) for child in children(expr)))
