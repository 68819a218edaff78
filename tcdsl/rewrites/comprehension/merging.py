"""Merging: dimensions of tensors, and the indices that subscript them, become one.

    y(n,c,h,w) = x(n,c,h,w) * s(c)     --->     y(n,c,p) = x(n,c,p) * s(c)      p = h * W + w

This is the rewriting alone: which dimensions may merge is known to coalescing.py (neighbours in
memory) and flattening.py (interleaved ones).  A merged tensor is another view of the same memory.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from tcdsl.lang.comprehension import (
    Comprehension,
    Const,
    Expr,
    Index,
    Let,
    Load,
    Specialisation,
    Statement,
    Tensor,
    children,
    walk,
)
from tcdsl.lang.fresh_names import fresh_name
from tcdsl.lang.linear_forms import linear
from tcdsl.lang.ranges.open_sizes import (
    AnySpecialisation,
    Extent,
    OpenRange,
    OpenSpecialisation,
    times,
)
from tcdsl.lang.rewrite import plus, rewrite, rewrite_ranges
from tcdsl.lang.types.dtypes import INT32
from tcdsl.poly.scop import Interleaved, Stride
from tcdsl.records import dataclass

Group = tuple[int, ...]  # dimensions that merge, outermost first
Groups = tuple[Group, ...]
Strides = Mapping[str, tuple[Stride, ...] | None]
Chains = Mapping[str, tuple[str, ...]]  # index -> those that it was made of
AnyRanges = Mapping[str, range | OpenRange]


@dataclass(frozen=True, slots=True, eq=False)
class Coalesced:
    """A comprehension over merged views.

    *merged* tells each tensor's dimensions, in groups; *chains*, for each statement, of which of
    its indices a new one was made; *notes* why interleaved ones were.
    """

    comprehension: Comprehension
    special: AnySpecialisation
    strides: Strides
    merged: Mapping[str, Groups]
    chains: tuple[Chains, ...] = ()
    notes: tuple[str, ...] = ()


def merge(
    c: Comprehension, special: AnySpecialisation, strides: Strides, merged: Mapping[str, Groups]
) -> Coalesced:
    """Return *c* with the dimensions of each group of *merged* as one.

    Legal where every access subscripts a group by plain indices, the first one perhaps and a
    number, all others over whole extents, that occur nowhere else but in such groups, and no
    recurrence minds the order.
    """
    rewritten = [
        _merge_statement(statement, ranges, merged, special)
        for statement, ranges in zip(c.statements, special.ranges, strict=True)
    ]
    tensors = {name: _merge_tensor(t, merged[name]) for name, t in c.tensors.items()}
    return Coalesced(
        replace(c, tensors=tensors, statements=tuple(s for s, _, _ in rewritten)),
        _merge_special(special, tuple(ranges for _, ranges, _ in rewritten), merged),
        {
            name: _merge_strides(tensor, special.shapes[name], strides.get(name), merged[name])
            for name, tensor in c.tensors.items()
        },
        merged,
        tuple(chains for _, _, chains in rewritten),
    )


def _merge_strides(
    tensor: Tensor, shape: Sequence[Extent], steps: Sequence[Stride] | None, groups: Groups
) -> tuple[Stride, ...] | None:
    """Return the strides of the merged view, None if it is row-major without gaps."""
    if steps is None:
        is_argument = tensor.is_input or tensor.is_output
        if not is_argument or all(group == _neighbours(group) for group in groups):
            return None  # temporaries lie as they are declared: the merged one is dense
        steps = row_major(shape)
    return tuple(_merge_stride(group, shape, steps) for group in groups)


def _neighbours(group: Group) -> Group:
    return tuple(range(group[0], group[-1] + 1))


def row_major(shape: Sequence[Extent]) -> tuple[int, ...]:
    """Return the strides of a dense array of *shape*."""
    strides, step = [], 1
    for extent in reversed(shape):
        assert isinstance(extent, int), "interleaved axes of an open size"
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def _merge_stride(group: Group, shape: Sequence[Extent], steps: Sequence[Stride]) -> Stride:
    """Return the stride of a group: that of its last dimension if they are contiguous."""
    inner, step = 1, steps[group[-1]]
    for outer, dim in zip(reversed(group[:-1]), reversed(group[1:]), strict=True):
        extent, outer_step = shape[dim], steps[outer]
        assert isinstance(extent, int), "dimensions do not merge over an open extent"
        inner *= extent
        is_contiguous = isinstance(step, int) and outer_step == step * inner
        if not is_contiguous:
            assert isinstance(step, int) and isinstance(outer_step, int), "no number, or two runs"
            step = Interleaved(inner, outer_step, step)
    return step


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
    for bound in (*statement.explicit, *statement.data_ranges):
        yield bound.lower
        yield bound.upper


def run_of(subscript: Expr) -> tuple[str, str, int] | None:
    """Return (a, b, extent) of a subscript ``extent * a + b``, None if it is none of these."""
    form = None if isinstance(subscript, (Index, Load)) else linear(subscript)
    if form is None or form[1] or len(form[0]) != 2:
        return None
    (b, one), (a, extent) = sorted(form[0].items(), key=lambda item: item[1])
    return (a, b, extent) if one == 1 < extent else None


def near_index(subscript: Expr) -> tuple[str, int] | None:
    """Return (a, c) of a subscript ``a + c``, c a number, None if it is none of these."""
    form = None if isinstance(subscript, Load) else linear(subscript)
    if form is None or len(form[0]) != 1:
        return None
    ((name, factor),) = form[0].items()
    return (name, form[1]) if factor == 1 else None


def indices_elsewhere(statement: Statement, *, but_in_runs: bool = False) -> Iterator[str]:
    """Yield the indices that occur otherwise than as a whole subscript.

    :arg but_in_runs: nor in a whole subscript of :func:`run_of`, or of :func:`near_index`.
    """
    for _, subscripts in accesses_of(statement):
        for subscript in subscripts:
            is_known = but_in_runs and (run_of(subscript) or near_index(subscript)) is not None
            if not isinstance(subscript, (Index, Load)) and not is_known:
                yield from _names_outside_loads(subscript)
    for expr in _values(statement):
        yield from _names_outside_loads(expr)
    for bound in statement.explicit:
        if any(isinstance(n, Index) for e in (bound.lower, bound.upper) for n in walk(e)):
            yield bound.index
    for bound in statement.data_ranges:
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


def _merge_special(
    special: AnySpecialisation, ranges: tuple[AnyRanges, ...], merged: Mapping[str, Groups]
) -> AnySpecialisation:
    """Return *special* over the merged views; one dimension of a group may be open."""
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
    return tuple(times(first[g[0]], *(shape[d] for d in g[1:])) for g in groups)


def _merge_tensor(tensor: Tensor, groups: Groups) -> Tensor:
    return replace(tensor, dims=(None,) * len(groups), origin=(), extents=())


def _merge_statement(
    statement: Statement,
    ranges: AnyRanges,
    merged: Mapping[str, Groups],
    special: AnySpecialisation,
) -> tuple[Statement, dict[str, range | OpenRange], dict[str, tuple[str, ...]]]:
    """Return the statement over merged indices, their ranges, and what each was merged of."""
    chains = _chains(statement, merged)
    names: dict[tuple[str, ...], str] = {}
    for chain in chains:
        names[chain] = _fresh(chain, (*statement.indices, *names.values()))
    swallowed = {index for chain in chains for index in chain[:-1]}
    heads = {chain[0]: names[chain] for chain in chains}
    lasts = {chain[-1]: names[chain] for chain in chains}

    def merge(subscripts: tuple[Expr, ...], tensor: str) -> tuple[Expr, ...]:
        return tuple(
            whole(subscripts[g[0]]) if len(g) == 1 else first(subscripts[g[0]], tensor, g)
            for g in merged[tensor]
        )

    def first(subscript: Expr, tensor: str, group: Group) -> Expr:
        name, far = _near(subscript)
        inner = [special.shapes[tensor][dim] for dim in group[1:]]
        distance = far * prod(e for e in inner if isinstance(e, int))
        return plus(Index(heads[name]), Const(distance, INT32))

    def whole(subscript: Expr) -> Expr:
        run = run_of(subscript) if names else None
        return Index(names[run[:2]]) if run is not None and run[:2] in names else subscript

    def change(expr: Expr) -> Expr:
        if isinstance(expr, Load):
            return replace(expr, subscripts=merge(expr.subscripts, expr.tensor))
        return expr

    def renamed(indices: tuple[str, ...]) -> tuple[str, ...]:
        # A merged index stands where its last part stood, as the merged dimension does: left-hand
        # indices keep the order of the target's subscripts, which rfactor counts on.
        return tuple(lasts.get(index, index) for index in indices if index not in swallowed)

    new_ranges = {n: r for n, r in ranges.items() if n not in swallowed and n not in lasts}
    for chain, name in names.items():
        inner = [ranges[index].stop for index in chain[1:]]  # they begin at 0
        new_ranges[name] = _scaled_range(ranges[chain[0]], times(1, *inner))
    left, reduced = renamed(statement.left), renamed(statement.reduced)
    subscripts = tuple(rewrite(s, change) for s in statement.subscripts)
    return replace(
        statement,
        subscripts=merge(subscripts, statement.target),
        indices=left + reduced,
        n_left=len(left),
        value=rewrite(statement.value, change),
        conditions=tuple(rewrite(condition, change) for condition in statement.conditions),
        bounds=(),
        lets=tuple(Let(let.name, rewrite(let.value, change)) for let in statement.lets),
        explicit=tuple(
            bound for bound in statement.explicit
            if bound.index not in swallowed and bound.index not in lasts
        ),
        data_ranges=rewrite_ranges(statement.data_ranges, change),
        domain=None,
        ranges=(),
    ), {n: new_ranges[n] for n in left + reduced}, {n: old for old, n in names.items()}  # fmt: skip


def _scaled_range(outer: range | OpenRange, size: Extent) -> range | OpenRange:
    if isinstance(outer, range) and isinstance(size, int):
        return range(outer.start * size, outer.stop * size)
    return OpenRange(times(outer.start, size), times(outer.stop, size))


def _chains(statement: Statement, merged: Mapping[str, Groups]) -> list[tuple[str, ...]]:
    """Return the runs of indices that merge in *statement*, each once."""
    found: dict[tuple[str, ...], None] = {}
    for tensor, subscripts in accesses_of(statement):
        for group in merged[tensor]:
            if len(group) > 1:
                found[tuple(_near(subscripts[dim])[0] for dim in group)] = None
    return list(found)


def _near(expr: Expr) -> tuple[str, int]:
    near = near_index(expr)
    assert near is not None, "a subscript that merges is an index, and a number"
    return near


def _fresh(chain: tuple[str, ...], taken: tuple[str, ...]) -> str:
    return fresh_name("_".join(chain), taken)


def print_merged(merged: Mapping[str, Groups]) -> list[str]:
    """Return a line for each tensor whose dimensions merged."""
    lines = []
    for name, groups in merged.items():
        if any(len(group) > 1 for group in groups):
            text = ", ".join("*".join(map(str, group)) for group in groups)
            lines.append(f"coalesced {name}: dimensions {text}")
    return lines
