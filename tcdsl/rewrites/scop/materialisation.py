"""Materialisation: an operand of a product becomes an array laid out for the loops that read it.

    O(n,f,h,w) +=! (h+kh >= 1 ? I(n,c,h+kh-1,w+kw) : 0) * W(f,c,kh,kw)        vector dimension w

        P[n,c,u,v] = u >= 0 ? I(n,c,u,v) : 0            u = h+kh-1, v = w+kw: each value once
    --->
        O[n,f,h,w] += P[n,c,h+kh-1,w+kw] * W[f,c,kh,kw]

The operand must be a function g of the subscripts u_d of one of its loads (``stored_operands``).
Then P[u] = g(u) over the box of the u, once for each, and the product loads P[u(i)].  The dimension
that the vector index moves stands last.  So padding, conversions, and a layout that no vector can
walk are paid once an element instead of once a use.
"""

from tcdsl.lang.comprehension import (
    Const,
    Expr,
    Load,
    Size,
    indices_in,
    walk,
)
from tcdsl.lang.comprehension import fold as fold_expression
from tcdsl.lang.fresh_names import fresh_name
from tcdsl.lang.linear_forms import linear
from tcdsl.lang.rewrite import with_operands
from tcdsl.poly.accesses import access, builder_of, elements_in
from tcdsl.poly.isl_utils import dim_bounds, minus
from tcdsl.poly.scop import Array, Scop, Statement, Storage
from tcdsl.rewrites.scop.stored_operands import Operand, over_windows, stored


def operand_of(expr: Expr, scop: Scop) -> Operand | None:
    """Return *expr* as a function of the subscripts of its largest load, None if it is none."""
    loads = [node for node in walk(expr) if isinstance(node, Load)]
    plain = [load for load in loads if all(linear(_sized(s, scop)) for s in load.subscripts)]
    if not plain:
        return None
    main = max(plain, key=lambda load: len(load.subscripts))
    taken = indices_in(expr)
    dims = tuple(fresh_name(f"u{d}", taken) for d in range(len(main.subscripts)))
    windows = {_sized(s, scop): dim for s, dim in zip(main.subscripts, dims, strict=True)}
    value = over_windows(_sized(expr, scop), windows)
    if not indices_in(value) <= set(dims):
        return None
    return Operand(expr, main.tensor, main.subscripts, dims, value)


def _sized(expr: Expr, scop: Scop) -> Expr:
    """Return *expr* with known sizes as numbers."""

    def known(node: Expr, operands: tuple[Expr, ...]) -> Expr:
        value = scop.sizes.get(node.name) if isinstance(node, Size) else None
        return with_operands(node, operands) if value is None else Const(value, node.dtype)

    return fold_expression(expr, known)


def elements_of(operand: Operand, extents: dict[str, int]) -> int:
    """Return how many elements the materialised operand would have."""
    return box_elements(operand.subscripts, extents)


def box_elements(subscripts: tuple[Expr, ...], extents: dict[str, int]) -> int:
    """Return how many elements the box of *subscripts* holds, for indices of these *extents*."""
    total = 1
    for subscript in subscripts:
        form = linear(subscript)
        coefficients = {} if form is None else form[0]
        total *= 1 + sum(abs(a) * (extents.get(n, 1) - 1) for n, a in coefficients.items())
    return total


def walks(operand: Operand, index: str) -> bool:
    """Return whether materialising lets *index* walk neighbours, or leaves it out altogether."""
    moved = [form[0].get(index, 0) for s in operand.subscripts if (form := linear(s)) is not None]
    moving = [coefficient for coefficient in moved if coefficient]
    return moving in ([], [1])


def materialise(scop: Scop, name: str, operand: Operand, vector: str) -> Scop | None:
    """Give *operand* of the statement *name* an array of its own, *vector*'s dimension last.

    Return None where an element of the box would be computed from what does not exist.
    """
    statement = scop.by_name[name]
    order = _layout(operand, vector)
    builder = builder_of(statement.indices, statement.name, scop.sizes)
    image = access(builder, operand.tensor, operand.subscripts, scop.arrays, statement.domain)
    if image.relation.is_empty():
        return None
    bounds = [
        dim_bounds(image.relation.range(), d, scop.context) for d in range(len(operand.subscripts))
    ]
    box = [bounds[d] for d in order]
    number = sum(".packed" in array for array in scop.arrays)
    packed = Array(
        f"{operand.tensor}.packed{number}",
        operand.expr.dtype,
        tuple(low for low, _ in box),
        tuple(minus(end, low) for low, end in box),
        Storage.SCRATCH,
    )
    copy = f"{name}_packed{number}"
    done = stored(scop, name, [(operand.ordered(order), packed, copy)])
    return done if _is_in_bounds(done.by_name[copy], done) else None


def _layout(operand: Operand, vector: str) -> list[int]:
    """Return the operand's dimensions in the order in which they are stored."""
    forms = [linear(subscript) for subscript in operand.subscripts]
    last = [d for d, form in enumerate(forms) if form is not None and vector in form[0]]
    return [d for d in range(len(forms)) if d not in last] + last


def _is_in_bounds(copy: Statement, scop: Scop) -> bool:
    for read in copy.reads:
        elements = elements_in(scop.arrays[read.array], read.relation.get_space().range())
        if not read.relation.range().is_subset(elements):
            return False
    return all(not read.inexact for read in copy.reads)
