"""Coalescing: indices that always stand together, over contiguous dimensions, become one index.

    y(n,c,h,w) = x(n,c,h,w) * s(c)     --->     y(n,c,p) = x(n,c,p) * s(c)      p = h * W + w

Dimensions p and p+1 of a tensor merge iff they are contiguous in memory (the stride of p is the
stride times the extent of p+1) and every access to the tensor subscripts them by two plain indices
(a, b), b running over the whole extent, such that a and b occur nowhere else but in such pairs, in
front of one another, of dimensions that merge too; a and b are both left-hand or both reduced.
That is a greatest fixed point: all pairs are candidates, and those with an objection fall out until
none does.  Iteration order is kept (p is lexicographic in (a, b)), so that it is always legal.

Nothing is copied: the merged tensor is another view of the same memory, without any division.
Interleaved axes are left as they are.  After Panamera's dimension flattening (PACT 2022,
doi:10.1145/3559009.3569656), which does the same before scheduling, for isl avoids it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from tcdsl.lang.comprehension import (
    Comprehension,
    Expr,
    Index,
    Load,
    Specialisation,
    Statement,
    Tensor,
    children,
    walk,
)
from tcdsl.lang.open_sizes import AnySpecialisation, Extent, OpenRange, OpenSpecialisation, times
from tcdsl.lang.rewrite import rewrite

Pair = tuple[str, int]  # (tensor, p): the dimensions p and p + 1
Strides = Mapping[str, tuple[int | None, ...] | None]

AnyRanges = Mapping[str, range | OpenRange]


@dataclass(frozen=True, slots=True, eq=False)
class Coalesced:
    """A comprehension over merged views.

    *merged* tells each tensor's dimensions, in groups; *chains*, for each statement, of which of
    its indices a new one was made.
    """

    comprehension: Comprehension
    special: AnySpecialisation
    strides: Strides
    merged: Mapping[str, tuple[tuple[int, ...], ...]]
    chains: tuple[Mapping[str, tuple[str, ...]], ...] = ()


def coalesce(c: Comprehension, special: AnySpecialisation, strides: Strides) -> Coalesced:
    """Return *c* with every pair of dimensions merged that may be."""
    pairs = mergeable_pairs(c, special, strides)
    merged = {name: _groups(tensor.rank, name, pairs) for name, tensor in c.tensors.items()}
    if not pairs:
        return Coalesced(c, special, strides, merged, ({},) * len(c.statements))
    rewritten = [
        _merge_statement(statement, ranges, merged)
        for statement, ranges in zip(c.statements, special.ranges, strict=True)
    ]
    tensors = {name: _merge_tensor(t, merged[name]) for name, t in c.tensors.items()}
    return Coalesced(
        replace(c, tensors=tensors, statements=tuple(s for s, _, _ in rewritten)),
        _merge_special(special, tuple(ranges for _, ranges, _ in rewritten), merged),
        {
            name: None if steps is None else tuple(steps[group[-1]] for group in merged[name])
            for name, steps in strides.items()
        },
        merged,
        tuple(chains for _, _, chains in rewritten),
    )


def mergeable_pairs(c: Comprehension, special: AnySpecialisation, strides: Strides) -> set[Pair]:
    """Return the greatest set of dimension pairs that merge (see the module's docstring)."""
    pairs = {
        (name, p)
        for name, tensor in c.tensors.items()
        for p in range(tensor.rank - 1)
        if _is_contiguous(name, p, special, strides)
    }
    uses = [_Uses(s, r, special) for s, r in zip(c.statements, special.ranges, strict=True)]
    while True:
        refused = {pair for use in uses for pair in use.refused(pairs)}
        if not refused:
            return pairs
        pairs -= refused


def _is_contiguous(name: str, p: int, special: AnySpecialisation, strides: Strides) -> bool:
    """Return whether p and p + 1 are contiguous; never across an open extent or stride.

    The product of two open sizes would be no affine function of them.
    """
    inner = special.shapes[name][p + 1]
    if not isinstance(inner, int) or special.origins[name][p + 1] != 0:
        return False
    steps = strides.get(name)
    if steps is None:
        return True
    outer_step, step = steps[p], steps[p + 1]
    return step is not None and outer_step == step * inner


class _Uses:
    """Where one statement's indices occur."""

    def __init__(self, statement: Statement, ranges: AnyRanges, special: AnySpecialisation) -> None:
        self.statement = statement
        self.ranges = ranges
        self.special = special
        self.accesses = list(accesses_of(statement))
        self.elsewhere = set(_indices_elsewhere(statement))

    def refused(self, pairs: set[Pair]) -> Iterator[Pair]:
        """Yield the pairs of tensors used here that cannot merge if *pairs* are all that may."""
        for tensor, subscripts in self.accesses:
            for p in range(len(subscripts) - 1):
                if (tensor, p) in pairs and not self._accepts(tensor, p, subscripts, pairs):
                    yield tensor, p

    def _accepts(self, tensor: str, p: int, subscripts: tuple[Expr, ...], pairs: set[Pair]) -> bool:
        first, second = subscripts[p], subscripts[p + 1]
        if not (isinstance(first, Index) and isinstance(second, Index)):
            return False
        a, b = first.name, second.name
        extent = self.special.shapes[tensor][p + 1]
        assert isinstance(extent, int), "dimensions do not merge over an open extent"
        if a == b or {a, b} & self.elsewhere or self.ranges[b] != range(extent):
            return False
        left = self.statement.left
        if (a in left) != (b in left) or not self._keeps_order(a, b):
            return False
        return all(
            self._stands_in_pair(other, place, found, (a, b), extent, pairs)
            for other, found in self.accesses
            for place, subscript in enumerate(found)
            if isinstance(subscript, Index) and subscript.name in (a, b)
        )

    def _keeps_order(self, a: str, b: str) -> bool:
        """Return whether merging keeps the order of instances, which matters to a recurrence."""
        names = self.statement.indices
        if names.index(b) == names.index(a) + 1:
            return True
        target = self.statement.target
        return not any(
            name == target and subscripts != self.statement.subscripts
            for name, subscripts in self.accesses
        )

    def _stands_in_pair(
        self,
        tensor: str,
        place: int,
        subscripts: tuple[Expr, ...],
        names: tuple[str, str],
        extent: int,
        pairs: set[Pair],
    ) -> bool:
        """Return whether an occurrence of a or b is half of a mergeable pair (a, b)."""
        a, b = names
        own = subscripts[place]
        assert isinstance(own, Index)
        p = place if own.name == a else place - 1
        if (tensor, p) not in pairs:
            return False
        first, second = subscripts[p], subscripts[p + 1]
        if not (isinstance(first, Index) and isinstance(second, Index)):
            return False
        same_extent = self.special.shapes[tensor][p + 1] == extent
        return (first.name, second.name) == (a, b) and same_extent


def accesses_of(statement: Statement) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    """Yield the target and every load of *statement* with its subscripts."""
    yield statement.target, statement.subscripts
    for expr in _expressions(statement):
        for node in walk(expr):
            if isinstance(node, Load):
                yield node.tensor, node.subscripts


def _expressions(statement: Statement) -> Iterator[Expr]:
    yield from statement.subscripts
    yield from _values(statement)


def _values(statement: Statement) -> Iterator[Expr]:
    """Yield the expressions of *statement* that are no subscripts of its target."""
    yield statement.value
    yield from statement.conditions
    for bound in statement.explicit:
        yield bound.lower
        yield bound.upper


def _indices_elsewhere(statement: Statement) -> Iterator[str]:
    """Yield the indices that occur otherwise than as a whole subscript."""
    for _, subscripts in accesses_of(statement):
        for subscript in subscripts:
            if not isinstance(subscript, (Index, Load)):
                yield from _names_outside_loads(subscript)
    for expr in _values(statement):
        yield from _names_outside_loads(expr)
    for bound in statement.explicit:
        if any(isinstance(n, Index) for e in (bound.lower, bound.upper) for n in walk(e)):
            yield bound.index


def _names_outside_loads(expr: Expr) -> Iterator[str]:
    """Yield the indices in *expr* that are not inside a load's subscripts."""
    stack = [expr]
    while stack:
        node = stack.pop()
        if isinstance(node, Index):
            yield node.name
        elif not isinstance(node, Load):
            stack.extend(children(node))


def _groups(rank: int, name: str, pairs: set[Pair]) -> tuple[tuple[int, ...], ...]:
    """Return the dimensions of a tensor, those that merge together in one tuple."""
    groups: list[tuple[int, ...]] = []
    for dim in range(rank):
        if dim and (name, dim - 1) in pairs:
            groups[-1] = (*groups[-1], dim)
        else:
            groups.append((dim,))
    return tuple(groups)


Groups = tuple[tuple[int, ...], ...]


def _merge_special(
    special: AnySpecialisation, ranges: tuple[AnyRanges, ...], merged: Mapping[str, Groups]
) -> AnySpecialisation:
    """Return *special* over the merged views; only a group's first dimension may be open."""
    if isinstance(special, OpenSpecialisation):
        return replace(
            special,
            ranges=ranges,
            origins={
                n: _scaled(special.origins[n], special.shapes[n], g) for n, g in merged.items()
            },
            shapes={n: _scaled(special.shapes[n], special.shapes[n], g) for n, g in merged.items()},
        )
    fixed = [{n: r for n, r in each.items() if isinstance(r, range)} for each in ranges]
    return Specialisation(
        special.sizes,
        {n: _numbers(special.shapes[n], special.shapes[n], g) for n, g in merged.items()},
        tuple(fixed),
        {n: _numbers(special.origins[n], special.shapes[n], g) for n, g in merged.items()},
    )


def _numbers(first: tuple[int, ...], shape: tuple[int, ...], groups: Groups) -> tuple[int, ...]:
    return tuple(first[g[0]] * prod(shape[d] for d in g[1:]) for g in groups)


def _scaled(
    first: tuple[Extent, ...], shape: tuple[Extent, ...], groups: Groups
) -> tuple[Extent, ...]:
    """Return, for each group, its first dimension's value times the other extents."""
    return tuple(
        times(first[g[0]], prod(e for d in g[1:] if isinstance(e := shape[d], int))) for g in groups
    )


def _merge_tensor(tensor: Tensor, groups: tuple[tuple[int, ...], ...]) -> Tensor:
    return replace(tensor, dims=(None,) * len(groups), origin=(), extents=())


def _merge_statement(
    statement: Statement,
    ranges: AnyRanges,
    merged: Mapping[str, tuple[tuple[int, ...], ...]],
) -> tuple[Statement, dict[str, range | OpenRange], dict[str, tuple[str, ...]]]:
    """Return the statement over merged indices, their ranges, and what each was merged of."""
    chains = _chains(statement, merged)
    names: dict[tuple[str, ...], str] = {}
    for chain in chains:
        names[chain] = _fresh(chain, (*statement.indices, *names.values()))
    swallowed = {index for chain in chains for index in chain[1:]}
    heads = {chain[0]: names[chain] for chain in chains}

    def merge(
        subscripts: tuple[Expr, ...], groups: tuple[tuple[int, ...], ...]
    ) -> tuple[Expr, ...]:
        return tuple(
            subscripts[group[0]] if len(group) == 1 else Index(heads[_name(subscripts[group[0]])])
            for group in groups
        )

    def change(expr: Expr) -> Expr:
        if isinstance(expr, Load):
            return replace(expr, subscripts=merge(expr.subscripts, merged[expr.tensor]))
        return expr

    def renamed(indices: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(heads.get(index, index) for index in indices if index not in swallowed)

    new_ranges = {n: r for n, r in ranges.items() if n not in swallowed and n not in heads}
    for chain, name in names.items():
        inner = [ranges[index] for index in chain[1:]]
        size = prod(len(r) for r in inner if isinstance(r, range))
        new_ranges[name] = _scaled_range(ranges[chain[0]], size)
    left, reduced = renamed(statement.left), renamed(statement.reduced)
    subscripts = tuple(rewrite(s, change) for s in statement.subscripts)
    return replace(
        statement,
        subscripts=merge(subscripts, merged[statement.target]),
        indices=left + reduced,
        n_left=len(left),
        value=rewrite(statement.value, change),
        conditions=tuple(rewrite(condition, change) for condition in statement.conditions),
        bounds=(),
        explicit=tuple(
            bound for bound in statement.explicit
            if bound.index not in swallowed and bound.index not in heads
        ),
        domain=None,
        ranges=(),
    ), {n: new_ranges[n] for n in left + reduced}, {n: old for old, n in names.items()}  # fmt: skip


def _scaled_range(outer: range | OpenRange, size: int) -> range | OpenRange:
    if isinstance(outer, range):
        return range(outer.start * size, outer.stop * size)
    return OpenRange(times(outer.start, size), times(outer.stop, size))


def _chains(
    statement: Statement, merged: Mapping[str, tuple[tuple[int, ...], ...]]
) -> list[tuple[str, ...]]:
    """Return the runs of indices that merge in *statement*, each once."""
    found: dict[tuple[str, ...], None] = {}
    for tensor, subscripts in accesses_of(statement):
        for group in merged[tensor]:
            if len(group) > 1:
                found[tuple(_name(subscripts[dim]) for dim in group)] = None
    return list(found)


def _name(expr: Expr) -> str:
    assert isinstance(expr, Index)
    return expr.name


def _fresh(chain: tuple[str, ...], taken: tuple[str, ...]) -> str:
    name = "_".join(chain)
    while name in taken:
        name += "_"
    return name


def print_merged(c: Comprehension, merged: Mapping[str, tuple[tuple[int, ...], ...]]) -> list[str]:
    """Return a line for each tensor whose dimensions merged."""
    lines = []
    for name, groups in merged.items():
        if any(len(group) > 1 for group in groups):
            text = ", ".join("*".join(map(str, group)) for group in groups)
            lines.append(f"coalesced {name}: dimensions {text}")
    return lines
