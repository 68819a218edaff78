"""Flattening: the two axes of an interleaved row become one index.

    mean(c) +=! x(n,c,p)                   mean(c) +=! x(c,f)              f = n * P + p
    y(n,c,p) = x(n,c,p) - mean(c)   --->   y(c,f) = x(c,f) - mean(c)

    x(c,f) is the element x[f / P, c, f % P] of memory:  runs of P neighbours, C * P apart

What is divided is the address alone (:class:`~tcdsl.poly.scop.Interleaved`, the stride of such a
dimension): domains, dependences and accesses are as affine as those of any row, so that threads,
registers, clusters and chunks share it like one.  Temporaries are dense.

It starts at a reduction over n and p with another axis between them in memory, and goes on to
whatever shares a tensor with it, as coalescing does.  Legal iff, in all of these statements, n and
p are whole subscripts of the same two dimensions of a tensor and occur nowhere else, p runs over
the whole extent, both are left-hand or both reduced, and no statement is a recurrence: instances
then run in another order, but those of one element of the target in the one they had.

After Panamera's dimension flattening (PACT 2022, doi:10.1145/3559009.3569656); which rows are worth
it is said by the target (costmodel/flattening.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from tcdsl.costmodel.flattening import InterleavedRow
from tcdsl.lang.comprehension import Expr, Index, Specialisation, Statement
from tcdsl.rewrites.comprehension.canonical_form import canonical_form
from tcdsl.rewrites.comprehension.merging import (
    Chains,
    Coalesced,
    accesses_of,
    indices_elsewhere,
    merge,
    row_major,
)

REDUCTIONS = ("all", "row", "alternation")  # forms whose operand may have its last axis reduced

Dims = tuple[int, int]  # the outer and the inner dimension of a row
Subscripts = tuple[Expr, ...]
WhyFlat = Callable[[InterleavedRow], str | None]


def flatten(done: Coalesced, why_flat: WhyFlat) -> Coalesced:
    """Return *done* with those interleaved rows flat for which *why_flat* has a reason."""
    special = done.special
    if not isinstance(special, Specialisation):
        return done  # the length of a run must be a number
    for position, statement in enumerate(done.comprehension.statements):
        start = _interleaved(statement, special.ranges[position])
        if start is None:
            continue
        reason = why_flat(_measured(done, special, *start))
        rows = _Rows(done, special)
        if reason is not None and rows.why_not_flat(*start) is None:
            return flatten(_flattened(done, rows.dims, reason), why_flat)
    return done


def _interleaved(statement: Statement, ranges: Mapping[str, range]) -> tuple[str, Dims] | None:
    """Return the tensor, and the dimensions of its rows, that *statement* reduces."""
    if canonical_form(statement, ranges).name not in REDUCTIONS:
        return None
    for tensor, subscripts in accesses_of(statement):
        reduced = [d for d, s in enumerate(subscripts) if _name(s) in statement.reduced]
        if len(reduced) > 1 and reduced[-1] == len(subscripts) - 1:
            return tensor, (reduced[-2], reduced[-1])
    return None


def _measured(done: Coalesced, special: Specialisation, tensor: str, dims: Dims) -> InterleavedRow:
    """Return what the cost model asks of the rows of *tensor*."""
    shape = special.shapes[tensor]
    steps = done.strides.get(tensor) or row_major(shape)
    uses = [{name for name, _ in accesses_of(s)} for s in done.comprehension.statements]
    return InterleavedRow(
        shape[dims[0]], shape[dims[1]],
        done.comprehension.tensors[tensor].dtype.size_bytes,
        tuple(step for d, step in enumerate(steps) if d != dims[1] and isinstance(step, int)),
        sum(tensor in names for names in uses),
    )  # fmt: skip


class _Rows:
    """Rows of the same two axes, throughout a comprehension."""

    def __init__(self, done: Coalesced, special: Specialisation) -> None:
        self.done = done
        self.special = special
        self.dims: dict[str, Dims] = {}  # tensor -> the outer and the inner dimension

    def why_not_flat(self, tensor: str, dims: Dims) -> str | None:
        """Return why the rows of *tensor*, and all that are bound to be flat with them, are not."""
        self.dims[tensor] = dims
        pending = [tensor]
        while pending:
            name = pending.pop()
            reason = self._why_no_run(name)
            if reason is not None:
                return reason
            for position, statement in enumerate(self.done.comprehension.statements):
                for accessed, subscripts in accesses_of(statement):
                    if accessed != name:
                        continue
                    before = len(self.dims)
                    reason = self._why_not(position, statement, subscripts, self.dims[name])
                    if reason is not None:
                        return reason
                    pending += list(self.dims)[before:]
        return None

    def _why_no_run(self, tensor: str) -> str | None:
        """Return why a row of *tensor* is no runs of neighbours."""
        outer, inner = self.dims[tensor]
        steps = self.done.strides.get(tensor)
        if not self.special.shapes[tensor][inner]:
            return f"the rows of {tensor} are empty"
        if outer >= inner or self.special.origins[tensor][inner] != 0:
            return f"{tensor} has its axes in another order, or with a margin"
        if steps is not None and not all(isinstance(steps[d], int) for d in (outer, inner)):
            return f"{tensor} has no number as stride"
        return None

    def _why_not(
        self, position: int, statement: Statement, subscripts: Subscripts, dims: Dims
    ) -> str | None:
        """Return why the indices at *dims* of *subscripts* cannot be one in *statement*.

        Adds the other tensors that they subscript.
        """
        a, b = (_name(subscripts[d]) for d in dims)
        if not a or not b or a == b or {a, b} & set(indices_elsewhere(statement)):
            return f"{statement.name} does more with the axes than to subscript by them"
        if (a in statement.left) != (b in statement.left):
            return f"{statement.name} reduces one of the axes"
        accesses = list(accesses_of(statement))
        target, own = accesses[0]
        if any(name == target and found != own for name, found in accesses):
            return f"{statement.name} reads what it has written"
        run = self.special.ranges[position][b]
        for name, found in accesses:
            places = [d for d, s in enumerate(found) if _name(s) in (a, b)]
            if not places:
                continue
            if [_name(found[d]) for d in places] != [a, b]:
                return f"{statement.name} subscripts {name} otherwise"
            pair = places[0], places[1]
            if self.dims.setdefault(name, pair) != pair:
                return f"{name} has rows along other axes, too"
            if run != range(self.special.shapes[name][pair[1]]):
                return f"{statement.name} takes a part of the inner axis"
        return None


def _name(subscript: Expr) -> str:
    """Return the index that *subscript* is, or nothing."""
    return subscript.name if isinstance(subscript, Index) else ""


def _flattened(done: Coalesced, dims: Mapping[str, Dims], reason: str) -> Coalesced:
    """Return *done* with the dimensions *dims* of each tensor as one, where the inner one was."""
    groups = {
        name: tuple(
            dims[name] if name in dims and d == dims[name][1] else (d,)
            for d in range(tensor.rank)
            if name not in dims or d != dims[name][0]
        )
        for name, tensor in done.comprehension.tensors.items()
    }
    flat = merge(done.comprehension, done.special, done.strides, groups)
    return replace(
        flat,
        merged={
            name: tuple(
                tuple(d for part in group for d in done.merged[name][part]) for group in own
            )
            for name, own in groups.items()
        },
        chains=tuple(map(_joined, done.chains, flat.chains)),
        notes=(*done.notes, f"flat rows of {', '.join(dims)}: {reason}"),
    )


def _joined(before: Chains, after: Chains) -> Chains:
    """Return of which indices those *after* were made, if their parts were made as *before*."""
    parts = {part for chain in after.values() for part in chain}
    kept = {name: chain for name, chain in before.items() if name not in parts}
    made = {
        name: tuple(old for part in chain for old in before.get(part, (part,)))
        for name, chain in after.items()
    }
    return {**kept, **made}
