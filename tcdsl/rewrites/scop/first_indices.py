"""Indices from 0 on: what begins elsewhere is counted from its first value.

    C(m,n) +=! A(m+3,k) * B(k,n)   -3 <= m < M - 3       C holds m from -3 on
    --->
    C(m,n) +=! A(m,k) * B(k,n)      0 <= m < M           C holds m from 0 on

The elements of an array lie where they lay: its subscripts are counted from its own first one.
Tiles of products begin at 0 (``padding``, ``index_classes``).  Legal for sizes that are known; done
where an index of a sum of products does not begin at 0, and statements meet at their indices still.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import islpy as isl

from tcdsl.lang.comprehension import Binary, Const, Expr, Index, Load
from tcdsl.lang.linear_forms import linear, of_linear
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import INT32
from tcdsl.poly.isl_utils import constant_bounds, val
from tcdsl.poly.scop import Array, Kind, Scop, Statement
from tcdsl.rewrites.scop.assignment import with_own_accesses
from tcdsl.rewrites.scop.rfactor import initialisation

_KINDS = (Kind.INIT, Kind.ASSIGN, Kind.UPDATE)


def from_zero(scop: Scop) -> Scop:
    """Return *scop* with all indices from 0 on, *scop* itself where no product needs it."""
    if not any(map(_is_shifted_product, scop.statements)) or not _may_shift(scop):
        return scop
    if not all(map(partial(_begins_with, scop), scop.statements)):
        return scop
    arrays = {name: _from_zero(array) for name, array in scop.arrays.items()}
    shifted = {name: scop.arrays[name].origin for name, own in arrays.items()
               if own is not scop.arrays[name]}  # fmt: skip
    done = replace(scop, arrays=arrays)
    done = done.with_statements(tuple(_shifted(done, s, shifted) for s in scop.statements))
    return done if _meet(scop, done) else scop


def _meet(before: Scop, after: Scop) -> bool:
    """Return whether what statements read of one another at an index of theirs, they still do.

    t(b,n) of 0 <= b < B, read at b by a product of 3 <= b < B: counted from 0 on that would read
    t(b+3,n), and could share no kernel with what writes t.
    """
    written = {statement.write.array for statement in before.statements}
    for old, new in zip(before.statements, after.statements, strict=True):
        for one, other in zip(old.reads, new.reads, strict=True):
            if one.array in written and any(
                isinstance(own, Index) and not isinstance(moved, Index)
                for own, moved in zip(one.subscripts, other.subscripts, strict=True)
            ):
                return False
    return True


def _is_shifted_product(statement: Statement) -> bool:
    is_product = isinstance(statement.value, Binary) and statement.value.op == "*"
    is_sum = statement.kind is Kind.UPDATE and statement.reduction is not None
    return is_sum and is_product and len(statement.reads) > 1 and bool(_lows(statement))


def _may_shift(scop: Scop) -> bool:
    """Return whether all sizes are known, and nothing else but values counts indices."""
    return not scop.context.dim(isl.dim_type.param) and all(
        s.kind in _KINDS
        and s.companion is None
        and not s.library
        and not (s.reduction is not None and s.reduction.operator.is_arg)
        and not s.domain.is_empty()
        for s in scop.statements
    )


def _begins_with(scop: Scop, statement: Statement) -> bool:
    """Return whether a sum's indices begin where those of its first values do.

    Results of no terms, at the ends, have first values alone: y(i) +=! x(i,k) where k in 0:i.
    """
    init = initialisation(scop, statement) if statement.kind is Kind.UPDATE else None
    lows = _lows(statement)
    of_results = {index: low for index, low in lows.items() if index not in statement.reduced}
    return init is None or of_results == _lows(init)


def _from_zero(array: Array) -> Array:
    is_plain = array.shift is None and all(isinstance(o, int) for o in array.origin)
    return replace(array, origin=(0,) * array.rank) if is_plain and any(array.origin) else array


def _lows(statement: Statement) -> dict[str, int]:
    """Return the first value of each index that does not begin at 0."""
    bounds = (constant_bounds(statement.domain, dim) for dim in range(len(statement.indices)))
    pairs = zip(statement.indices, bounds, strict=True)
    return {index: found[0] for index, found in pairs if found is not None and found[0]}


def _shifted(
    scop: Scop, statement: Statement, origins: Mapping[str, tuple[object, ...]]
) -> Statement:
    """Return *statement* with its indices from 0 on, and arrays from their *origins* on."""
    lows = _lows(statement)
    used = {one.array for one in (*statement.writes, *statement.reads)}
    if not lows and not used & origins.keys():
        return statement

    def change(node: Expr) -> Expr:
        match node:
            case Index(name=name) if name in lows:
                return Binary("+", node, Const(lows[name], node.dtype), node.dtype)
            case Load(tensor=tensor, subscripts=subscripts):
                return replace(node, subscripts=placed(tensor, subscripts))
            case _:
                return node

    def placed(array: str, subscripts: tuple[Expr, ...]) -> tuple[Expr, ...]:
        first = origins.get(array, (0,) * len(subscripts))
        return tuple(_less(s, int(str(n))) for s, n in zip(subscripts, first, strict=True))

    domain = statement.domain
    for index, low in lows.items():
        dim = statement.indices.index(index)
        domain = _translated(domain, dim, -low)
    own = tuple(rewrite(s, change) for s in statement.write.subscripts)
    target = placed(statement.write.array, own)
    new = replace(
        statement, domain=domain,
        value=None if statement.value is None else rewrite(statement.value, change),
        conditions=tuple(rewrite(c, change) for c in statement.conditions),
    )  # fmt: skip
    return with_own_accesses(scop, new, statement.write.array, target)


def _less(subscript: Expr, first: int) -> Expr:
    """Return *subscript* - *first*, as a plain sum of indices where it is one."""
    form = linear(subscript)
    if form is not None and subscript.dtype == INT32:
        return of_linear(form[0], form[1] - first)
    if not first:
        return subscript
    return Binary("-", subscript, Const(first, subscript.dtype), subscript.dtype)


def _translated(domain: isl.Set, dim: int, by: int) -> isl.Set:
    """Return *domain* with *by* added to its dimension *dim*."""
    space = domain.get_space()
    local = isl.LocalSpace.from_space(space)
    kind = isl.dim_type.set
    moved = isl.MultiAff.identity_on_domain_space(space)
    own = isl.Aff.var_on_domain(local, kind, dim).add_constant_val(val(by))
    return domain.apply(isl.Map.from_multi_aff(moved.set_aff(dim, own)))
