"""Loops over ranges from data: from the bounds that isl knows to the ones that are in memory.

    for (c1 = 0; c1 < 5; c1 += 1)               const int64_t w_range0 = max(0, ptr[c0]);
      if (ptr[c0] <= c1 && c1 < ptr[c0 + 1])    const int64_t w_range0_end = min(5, ptr[c0 + 1]);
        S(c0, c1)                        --->   for (c1 = w_range0; c1 < w_range0_end; c1 += 1)
                                                  S(c0, c1)

A loop over tiles of e, or over what is left of e in a tile, likewise.  With ``e = f * c1 + rest``,
where ``rest`` is what loops around and inside make of e, and the inner part lies in [0, f)::

    floor((lower - outer) / f) <= c1 <= floor((upper - 1 - outer) / f)

Legal iff all leaves below the loop have a range along it, whose bounds no loop inside changes; of
several ranges the loop runs their hull, and each statement keeps its guard.  Where isl's text is
not of this form nothing is done: the guard of every statement is always right.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import ONE, ZERO, binary, call, cast, chain, number, paren
from tcdsl.codegen.ast.isl_code import Macros
from tcdsl.codegen.ast.nodes import Binary, Code, Literal, Name, Paren, Unary
from tcdsl.codegen.ast.walk import names
from tcdsl.codegen.passes.iterations import last_of
from tcdsl.costmodel import gpu_thresholds
from tcdsl.lang.comprehension import Expr
from tcdsl.poly.data_ranges import DataRange, range_of_dim
from tcdsl.poly.loop_tree import Coordinate, Loop
from tcdsl.poly.scop import Scop
from tcdsl.records import dataclass

SHORT_RANGE = gpu_thresholds.SUMMED_ITERATIONS

Outside = Callable[[loop_ast.Leaf, Expr], Code]


@dataclass(frozen=True, slots=True)
class BoundedLoop:
    """A loop between two numbers that are computed before it."""

    node: loop_ast.For
    first: Code
    end: Code


@dataclass(frozen=True, slots=True)
class LoadedBounds:
    """The leaves below a loop, and what each runs of it: e is ``factor * variable + outer + ...``.

    *inner* are the variables of the loops inside.
    """

    leaves: tuple[loop_ast.Leaf, ...]
    ranges: tuple[DataRange, ...]
    outer: tuple[Code, ...]
    factor: int
    inner: frozenset[str]

    def bounded(
        self,
        node: loop_ast.For,
        name: str,
        outside: Outside,
        macros: Macros,
        *,
        is_narrow: bool = False,
    ) -> BoundedLoop | None:
        """Return *node* from ``name`` to ``name_end``; None if a bound changes inside it.

        Leaves of which it runs no more than what is in their range are told so.

        :arg outside: an expression of a leaf's statement, outside of it.
        :arg is_narrow: both numbers must be between those that isl knows, or would be cut.
        """
        firsts, ends = [], []
        changing = {node.variable, *self.inner}
        for leaf, found, outer in zip(self.leaves, self.ranges, self.outer, strict=True):
            lowers = [outside(leaf, bound) for bound in found.lowers]
            uppers = [outside(leaf, bound) for bound in found.uppers]
            if names(*lowers, *uppers) & changing:
                return None
            firsts.append(self._quotient(_extreme(macros.greatest, lowers), outer, macros))
            ends.append(self._end(_extreme(macros.least, uppers), outer, macros))
        if self.factor == 1 and len(set(firsts)) == len(set(ends)) == 1:
            for leaf, found in zip(self.leaves, self.ranges, strict=True):
                leaf.kept = leaf.kept | {found.dim}
        last = last_of(node)
        assert last is not None
        first = _call(macros.greatest, node.init, _extreme(macros.least, firsts))
        limit = binary(last, "+", 1)
        end = _call(macros.least, limit, _extreme(macros.greatest, ends))
        bounds = [bound for found in self.ranges for bound in (*found.lowers, *found.uppers)]
        if is_narrow and any(bound.dtype.size_bytes > 4 for bound in bounds):
            first = _call(macros.least, limit, first)
            end = _call(macros.greatest, node.init, end)
        condition = binary(node.variable, "<", f"{name}_end")
        return BoundedLoop(replace(node, init=Name(name), condition=condition), first, end)

    def _quotient(self, bound: Code, outer: Code, macros: Macros) -> Code:
        """Return ``floor((bound - outer) / factor)``."""
        shifted = bound if outer == ZERO else binary(bound, "-", paren(outer))
        return shifted if self.factor == 1 else call(macros.floor_quotient, shifted, self.factor)

    def _end(self, bound: Code, outer: Code, macros: Macros) -> Code:
        """Return ``floor((bound - 1 - outer) / factor) + 1``."""
        if self.factor == 1:
            return self._quotient(bound, outer, macros)
        return binary(self._quotient(binary(bound, "-", 1), outer, macros), "+", 1)


def loaded_bounds(scop: Scop, node: loop_ast.For, loop: Loop) -> LoadedBounds | None:
    """Return how data bound *node*, the C loop of *loop*, None if they do not."""
    if node.step != ONE or last_of(node) is None:
        return None
    leaves = tuple(loop_ast.leaves(node.body))
    inner = frozenset(_variables(node.body))
    ranges, outer, factors = [], [], set()
    for leaf in leaves:
        coordinate = loop.coordinates[leaf.statement]
        if not isinstance(coordinate, Coordinate):
            return None
        found = range_of_dim(scop.by_name[leaf.statement], coordinate.position)
        terms = _terms(leaf.iterators[coordinate.position])
        if found is None or terms is None or terms.get(node.variable) != coordinate.div:
            return None
        factors.add(coordinate.div)
        ranges.append(found)
        around = {v: f for v, f in terms.items() if v != node.variable and v not in inner}
        outer.append(_sum(around))
    if not leaves or len(factors) > 1:
        return None
    return LoadedBounds(leaves, tuple(ranges), tuple(outer), factors.pop(), inner)


def _variables(node: loop_ast.AstNode | None) -> list[str]:
    """Return the variables of the C loops in *node*."""
    match node:
        case loop_ast.For(variable=variable, body=body):
            return [variable, *_variables(body)]
        case loop_ast.Mark(body=body):
            return _variables(body)
        case loop_ast.Block(children=children):
            return [name for child in children for name in _variables(child)]
        case loop_ast.If(then=then, otherwise=otherwise):
            return [*_variables(then), *_variables(otherwise)]
        case _:
            return []


def _terms(code: Code) -> dict[str, int] | None:
    """Return the factor of every variable in isl's *code*, "" for what is constant.

    None if it is no sum of products of a variable and a number.
    """
    match code:
        case Name(variable):
            return {variable: 1}
        case Literal():
            value = number(code)
            return None if value is None else {"": value}
        case Paren(inner):
            return _terms(inner)
        case Binary(op="*", left=Literal() as factor, right=Name(variable)):
            value = number(factor)
            return None if value is None else {variable: value}
        case Unary(op="-", operand=Name() | Literal() as operand):
            return _joined({}, -1, _terms(operand))
        case Binary(op="+" | "-" as op, left=left, right=Name() | Literal() | Binary() as right):
            sign = 1 if op == "+" else -1
            return _joined(_terms(left), sign, _terms(right))
        case _:
            return None


def _joined(
    left: Mapping[str, int] | None, sign: int, right: Mapping[str, int] | None
) -> dict[str, int] | None:
    """Return the terms of a sum of which each variable is in one part alone."""
    if left is None or right is None or left.keys() & right.keys():
        return None
    return {**left, **{name: sign * factor for name, factor in right.items()}}


def _sum(terms: Mapping[str, int]) -> Code:
    parts: list[Code] = []
    for name, factor in terms.items():
        if factor and name:
            parts.append(Name(name) if factor == 1 else binary(factor, "*", name))
        elif factor:
            parts.append(Literal(str(factor)))
    return chain("+", parts) if parts else ZERO


def _extreme(function: str, codes: Sequence[Code]) -> Code:
    """Return the least or greatest of *codes*."""
    first, *rest = dict.fromkeys(codes)
    for other in rest:
        first = _call(function, first, other)
    return first


def _call(function: str, one: Code, other: Code) -> Code:
    return call(function, *(cast("int64_t", paren(value)) for value in (one, other)))
