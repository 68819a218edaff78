"""Sums of products of three and more factors as products of two, in the order that costs least.

    D(i,l) +=! A(i,j) * B(j,k) * C(k,l)       I J K L products
        --->
    D.pair0(i,k) +=! A(i,j) * B(j,k)          I J K
    D(i,l) +=! D.pair0(i,k) * C(k,l)          I K L

A product of matrices with a Kronecker product becomes one with each of its factors so.  The order
is that of opt_einsum's dynamic programming (D. G. A. Smith and J. Gray, JOSS 3(26), 2018,
doi:10.21105/joss.00753); what it minimises is products, and elements of what lies in between, each
as many products as a machine makes while it stores and loads one.

Legal iff the factors multiply in the type of the sum, so that only products and sums change places
(the distributive law): a term is rounded as often as before and once a step more, which the bound
of a sum of all terms at once has room for.  Neither conditions nor dependent ranges cut the box of
the terms, and the target is no factor.  An intermediate sum may overflow where no term does, and
an infinite factor gives an infinity, where its terms are NaN or of both signs.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from tcdsl.lang.comprehension import (
    Binary,
    Comprehension,
    Expr,
    Index,
    Load,
    Operator,
    Reduction,
    Specialisation,
    Statement,
    Tensor,
    indices_in,
    multiplied,
    walk,
)
from tcdsl.lang.ranges.open_sizes import AnySpecialisation
from tcdsl.records import dataclass

MIN_PRODUCTS = 1 << 16  # that an order must save: fewer take less time than another statement
LEAST_FACTOR = 2  # by which products must become fewer

Ranges = Mapping[str, range]


@dataclass(frozen=True, slots=True)
class Factor:
    """An expression, and the statement's indices in it."""

    value: Expr
    indices: frozenset[str]


def in_pairs(
    c: Comprehension, special: AnySpecialisation, products_per_element: int
) -> tuple[Comprehension, AnySpecialisation]:
    """Return *c* with the products of its statements in pairs where that is worth it.

    :arg products_per_element: how many products take as long as one element of an intermediate.
    """
    if not isinstance(special, Specialisation):
        return c, special
    statements: list[Statement] = []
    ranges: list[Ranges] = []
    tensors, shapes, origins = dict(c.tensors), dict(special.shapes), dict(special.origins)
    for statement, own in zip(c.statements, special.ranges, strict=True):
        for step in _steps(statement, own, products_per_element):
            statements.append(step)
            ranges.append({name: own[name] for name in step.indices})
            if step.target not in tensors:
                rank, dtype = len(step.left), step.value.dtype
                tensors[step.target] = Tensor(step.target, dtype, (None,) * rank, False, False)
                shapes[step.target] = tuple(len(own[name]) for name in step.left)
                origins[step.target] = tuple(own[name].start for name in step.left)
    if len(statements) == len(c.statements):
        return c, special
    new = replace(c, statements=tuple(statements), tensors=tensors)
    return new, Specialisation(special.sizes, shapes, tuple(ranges), origins)


def why_not_paired(statement: Statement) -> str | None:
    """Return why the products of *statement* keep their order, or None."""
    reduction = statement.reduction
    if reduction is None or reduction.operator is not Operator.ADD:
        return "it is no sum"
    if reduction.dtype != statement.value.dtype:
        return "its terms are converted"
    if statement.conditions or statement.data_ranges or statement.lets:
        return "it has conditions"
    bounds = (e for clause in statement.explicit for e in (clause.lower, clause.upper))
    if any(isinstance(node, Index | Load) for bound in bounds for node in walk(bound)):
        return "its ranges depend on one another"
    loads = (node for node in walk(statement.value) if isinstance(node, Load))
    if any(load.tensor == statement.target for load in loads):
        return "it reads what it makes"
    return "it has fewer than three factors" if len(_factors(statement)) < 3 else None


def _factors(statement: Statement) -> list[Factor]:
    """Return the factors of the terms, those without an index as part of the first."""
    factors = [Factor(value, indices_in(value)) for value in multiplied(statement.value)]
    numbers = [factor for factor in factors if not factor.indices]
    factors = [factor for factor in factors if factor.indices]
    for number in numbers:
        if not factors:
            return [number]
        factors[0] = replace(factors[0], value=_times(number.value, factors[0].value))
    return factors


def _times(one: Expr, other: Expr) -> Expr:
    return Binary("*", one, other, one.dtype)


def _steps(statement: Statement, ranges: Ranges, per_element: int) -> Iterator[Statement]:
    """Yield *statement*, after what it needs of its factors in pairs if that is worth it."""
    if why_not_paired(statement) is not None or not all(map(len, ranges.values())):
        yield statement
        return
    factors = _factors(statement)
    sizes = {name: len(values) for name, values in ranges.items()}
    left = frozenset(node.name for s in statement.subscripts for node in walk(s)
                     if isinstance(node, Index))  # fmt: skip
    path = _order(factors, left, sizes, per_element)
    if not _is_worth(factors, left, sizes, path, per_element):
        yield statement
        return
    summed: set[str] = set()
    for number, pair in enumerate(path[:-1]):
        one, other = (factors[position] for position in pair)
        factors = [factor for at, factor in enumerate(factors) if at not in pair]
        step = _pair(statement, number, one, other, left.union(*(f.indices for f in factors)))
        yield step
        summed.update(step.reduced)
        made = Load(step.target, tuple(map(Index, step.left)), step.value.dtype)
        factors.append(Factor(made, frozenset(step.left)))
    one, other = factors
    indices = tuple(name for name in statement.indices if name not in summed)
    yield replace(
        statement,
        indices=indices,
        value=_times(one.value, other.value),
        explicit=tuple(clause for clause in statement.explicit if clause.index in indices),
        domain=None,
        ranges=(),
    )


def _pair(
    statement: Statement, number: int, one: Factor, other: Factor, needed: Collection[str]
) -> Statement:
    """Return the sum of *one* times *other* over the indices that nothing else needs."""
    own = [name for name in statement.indices if name in one.indices | other.indices]
    kept = tuple(name for name in own if name in needed)
    gone = tuple(name for name in own if name not in needed)
    value = _times(one.value, other.value)
    return Statement(
        name=f"{statement.name}_pair{number}",
        target=f"{statement.target}.{statement.name}_pair{number}",
        subscripts=tuple(map(Index, kept)),
        indices=kept + gone,
        n_left=len(kept),
        reduction=Reduction(Operator.ADD, True, value.dtype) if gone else None,
        value=value,
        span=statement.span,
        target_span=statement.target_span,
    )


def _order(
    factors: Sequence[Factor], left: Collection[str], sizes: Mapping[str, int], per_element: int
) -> list[tuple[int, ...]]:
    """Return which factors each step takes; its result joins the end of those that are left."""
    import opt_einsum  # 30 ms that most programs need not pay

    symbols = {name: opt_einsum.get_symbol(k) for k, name in enumerate(sizes)}

    def term(indices: Collection[str]) -> str:
        return "".join(symbols[name] for name in sizes if name in indices)

    # A result that repeats along an index that no factor has is no einsum: leave that one out.
    known = frozenset[str]().union(*(f.indices for f in factors)).intersection(left)
    equation = ",".join(term(f.indices) for f in factors) + "->" + term(known)
    shapes = [tuple(n for name, n in sizes.items() if name in f.indices) for f in factors]
    least = opt_einsum.DynamicProgramming(minimize=f"combo-{per_element}")
    path, _ = opt_einsum.contract_path(equation, *shapes, shapes=True, optimize=least)
    return [tuple(step) for step in path]


def _is_worth(
    factors: Sequence[Factor],
    left: Collection[str],
    sizes: Mapping[str, int],
    path: Sequence[tuple[int, ...]],
    per_element: int,
) -> bool:
    """Return whether the pairs of *path* cost less than all factors at once."""
    if any(len(pair) != 2 for pair in path):
        return False
    now = (len(factors) - 1) * prod(sizes.values())
    cost, rest = 0, [factor.indices for factor in factors]
    for pair in path:
        both = frozenset().union(*(rest[position] for position in pair))
        rest = [indices for at, indices in enumerate(rest) if at not in pair]
        kept = both & frozenset(left).union(*rest)
        rest.append(kept)
        elements = prod(sizes[name] for name in kept) if rest[:-1] else 0
        cost += prod(sizes[name] for name in both) + per_element * elements
    return cost * LEAST_FACTOR <= now and now - cost >= MIN_PRODUCTS
