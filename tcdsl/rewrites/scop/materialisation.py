"""Materialisation: an operand of a product becomes an array laid out for the loops that read it.

    O(n,f,h,w) +=! (h+kh >= 1 ? I(n,c,h+kh-1,w+kw) : 0) * W(f,c,kh,kw)        vector dimension w

        P[n,c,u,v] = u >= 0 ? I(n,c,u,v) : 0            u = h+kh-1, v = w+kw: each value once
    --->
        O[n,f,h,w] += P[n,c,h+kh-1,w+kw] * W[f,c,kh,kw]

The operand must be a function g of the subscripts u_d of one of its loads: every other index
expression in it is a multiple of one of the u_d plus a constant.  Then P[u] = g(u) over the box of
the u, once for each, and the product loads P[u(i)].  The dimension that the vector index moves
stands last.  So padding, conversions, and a layout that no vector can walk are paid once an element
instead of once a use.  It is a cache read (Halide's ``compute_root`` of an operand) of any
expression.
"""

from dataclasses import replace

import islpy as isl

from tcdsl.lang.comprehension import (
    Const,
    Expr,
    Index,
    Load,
    Size,
    children,
    walk,
)
from tcdsl.lang.comprehension import fold as fold_expression
from tcdsl.lang.linear_forms import Linear, linear, of_linear
from tcdsl.lang.rewrite import with_operands
from tcdsl.poly.accesses import access, builder_of, elements_in, guarded_reads
from tcdsl.poly.isl_utils import dim_bounds, minus, plus, within_bounds
from tcdsl.poly.scop import Array, Scop, Statement, Storage
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.assignment import assignment


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand as a function *body* of its *subscripts*: u0, u1, ... stand for them in it."""

    expr: Expr
    tensor: str
    subscripts: tuple[Expr, ...]
    body: Expr


def operand_of(expr: Expr, scop: Scop) -> Operand | None:
    """Return *expr* as a function of the subscripts of its largest load, None if it is none."""
    loads = [node for node in walk(expr) if isinstance(node, Load)]
    plain = [load for load in loads if all(linear(_sized(s, scop)) for s in load.subscripts)]
    if not plain:
        return None
    main = max(plain, key=lambda load: len(load.subscripts))
    forms = [linear(_sized(subscript, scop)) for subscript in main.subscripts]
    body = _abstracted(_sized(expr, scop), [form for form in forms if form is not None])
    if body is None:
        return None
    return Operand(expr, main.tensor, main.subscripts, body)


def _sized(expr: Expr, scop: Scop) -> Expr:
    """Return *expr* with known sizes as numbers."""

    def known(node: Expr, operands: tuple[Expr, ...]) -> Expr:
        value = scop.sizes.get(node.name) if isinstance(node, Size) else None
        return with_operands(node, operands) if value is None else Const(value, node.dtype)

    return fold_expression(expr, known)


def _abstracted(expr: Expr, forms: list[Linear]) -> Expr | None:
    """Return *expr* with every index expression written over u0, u1, ..., None if one cannot be."""
    if not any(isinstance(node, Index) for node in walk(expr)):
        return expr
    if expr.dtype.is_integer and not isinstance(expr, Load):
        form = linear(expr)
        if form is not None:
            return _over(form, forms)
    if isinstance(expr, Index):
        return None
    operands = []
    for child in children(expr):
        changed = _abstracted(child, forms)
        if changed is None:
            return None
        operands.append(changed)
    return with_operands(expr, tuple(operands))


def _over(form: Linear, forms: list[Linear]) -> Expr | None:
    for position, (coefficients, constant) in enumerate(forms):
        factor = _times(form[0], coefficients)
        if factor:
            return of_linear({f"u{position}": factor}, form[1] - factor * constant)
    return None


def _times(these: dict[str, int], those: dict[str, int]) -> int:
    """Return the number that *those* coefficients times it are *these*, 0 if there is none."""
    if not these or these.keys() != those.keys():
        return 0
    name = next(iter(these))
    factor = these[name] // those[name]
    return factor if all(n == factor * those[i] for i, n in these.items()) else 0


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
    arrays = {**scop.arrays, packed.name: packed}
    wide = replace(scop, arrays=arrays)
    copy = _copy_statement(wide, statement, operand, packed, order)
    if not _is_in_bounds(copy, wide):
        return None
    load = Load(packed.name, tuple(operand.subscripts[d] for d in order), packed.dtype)
    return replace(
        wide, statements=_inserted(scop, copy, statement, _reading(wide, statement, operand, load))
    )


def _layout(operand: Operand, vector: str) -> list[int]:
    """Return the operand's dimensions in the order in which they are stored."""
    forms = [linear(subscript) for subscript in operand.subscripts]
    last = [d for d, form in enumerate(forms) if form is not None and vector in form[0]]
    return [d for d in range(len(forms)) if d not in last] + last


def _copy_statement(
    scop: Scop, statement: Statement, operand: Operand, packed: Array, order: list[int]
) -> Statement:
    names = tuple(f"u{d}" for d in order)
    name = f"{statement.name}_{packed.name.rpartition('.')[2]}"
    builder = builder_of(names, name, scop.sizes)
    domain = isl.Set.universe(builder.space).intersect_params(statement.domain.params())
    for position, (low, extent) in enumerate(zip(packed.origin, packed.shape, strict=True)):
        domain = within_bounds(domain, position, low, plus(low, extent))
    target = Load(packed.name, tuple(map(Index, names)), packed.dtype)
    return assignment(scop, domain, names, target, operand.body, statement)


def _is_in_bounds(copy: Statement, scop: Scop) -> bool:
    for read in copy.reads:
        elements = elements_in(scop.arrays[read.array], read.relation.get_space().range())
        if not read.relation.range().is_subset(elements):
            return False
    return all(not read.inexact for read in copy.reads)


def _reading(scop: Scop, statement: Statement, operand: Operand, load: Load) -> Statement:
    """Return *statement* with *load* in the operand's place."""
    assert statement.value is not None
    value = _replaced(statement.value, operand.expr, load)
    builder = builder_of(statement.indices, statement.name, scop.sizes)
    exprs = (*statement.write.subscripts, value, *statement.conditions)
    return replace(
        statement, value=value, reads=guarded_reads(builder, statement.domain, exprs, scop.arrays)
    )


def _replaced(expr: Expr, old: Expr, new: Expr) -> Expr:
    if expr == old:
        return new
    return with_operands(expr, tuple(_replaced(child, old, new) for child in children(expr)))


def _inserted(scop: Scop, copy: Statement, old: Statement, new: Statement) -> tuple[Statement, ...]:
    """Return the statements with *copy* before what belongs to *old*, and *new* in its place."""
    statements: list[Statement] = []
    is_placed = False
    for statement in scop.statements:
        if not is_placed and statement.source_name == old.source_name:
            statements.append(copy)
            is_placed = True
        statements.append(new if statement is old else statement)
    return tuple(statements)
