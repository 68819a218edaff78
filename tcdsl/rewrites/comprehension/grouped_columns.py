"""Sums of short runs of neighbours as sums of columns: the run and the index before it are one.

    m(n,g) +=! x(n,p,g,d)                  m.part(n,D*g+d) +=! x(n,p,g,d)
    y(n,p,g,d) = x(n,p,g,d) - m(n,g)  -->  m(n,g)          +=! m.part(n,D*g+d)
                                           m.run(n,D*g+d)    = m(n,g)
                                           y(n,p,g,d)        = x(n,p,g,d) - m.run(n,D*g+d)

    memory      x(n,p,0,0..D) x(n,p,1,0..D) ... x(n,p,G-1,0..D)
    a row of m  |____________|                                     before: D neighbours of each p
    a column    | | | | | | | | | | | | | |                        after: vectors along D*g+d

Nothing but g and d together is left in what goes over all of x, so that coalescing makes one index
of them, which columns and vectors are along.  Sums are read for every g and d from copies, that
are as small as the parts.

It starts at a reduction over d, the last axis of a tensor, and others, but not over g, the axis
before it, and goes on to whatever shares a tensor of both with it.  Legal iff, in all of these
statements, g and d are whole subscripts, next to one another and over their whole extents, or g
alone subscripts what is read, or a result that begins anew and whose operator combines in any
order; they occur nowhere else.  A run has two elements at least: parts of one would be the sums.
Which runs are worth it is said by the target (costmodel/grouped_columns.py).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from itertools import pairwise
from math import prod

from tcdsl.costmodel.grouped_columns import Runs
from tcdsl.lang.comprehension import (
    INT32,
    Binary,
    Comprehension,
    Const,
    Expr,
    Index,
    Load,
    Specialisation,
    Statement,
    Tensor,
)
from tcdsl.lang.fresh_names import fresh_name
from tcdsl.lang.ranges.open_sizes import AnySpecialisation
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import DType
from tcdsl.records import dataclass
from tcdsl.rewrites.comprehension.canonical_form import canonical_form
from tcdsl.rewrites.comprehension.merging import Strides, accesses_of, indices_elsewhere

WhyInColumns = Callable[[Runs], str | None]
Pair = tuple[str, str]  # the indices g and d of a statement


def in_columns(
    c: Comprehension, special: AnySpecialisation, strides: Strides, why: WhyInColumns
) -> tuple[Comprehension, AnySpecialisation]:
    """Return *c* with those sums of runs by columns for which *why* has a reason."""
    if not isinstance(special, Specialisation):
        return c, special
    for statement, ranges in zip(c.statements, special.ranges, strict=True):
        start = _start(statement, ranges)
        if start is None:
            continue
        shape = special.shapes[start]
        runs = Runs(prod(shape[:-1]), shape[-1], c.tensors[start].dtype.size_bytes)
        if why(runs) is None:
            continue
        groups = _Groups(c, special, strides, shape[-2:])
        if groups.why_not(start) is None:
            return _Rewriter(groups).result()
    return c, special


def _start(statement: Statement, ranges: Mapping[str, range]) -> str | None:
    """Return the tensor of which *statement* reduces runs, or None."""
    if canonical_form(statement, ranges).name != "alternation":
        return None
    for tensor, subscripts in accesses_of(statement):
        names = [_name(s) for s in subscripts]
        if len(names) > 2 and set(names) == set(statement.indices) and _is_run(statement, names):
            return tensor
    return None


def _is_run(statement: Statement, names: list[str]) -> bool:
    """Return whether the last of *names* is reduced, the one before is not, and some other is."""
    reduced = [name in statement.reduced for name in names]
    return reduced[-1] and not reduced[-2] and any(reduced[:-2]) and "" not in names


def _name(subscript: Expr) -> str:
    return subscript.name if isinstance(subscript, Index) else ""


class _Groups:
    """The tensors that end with both axes, and the statements with an index along each."""

    def __init__(
        self,
        c: Comprehension,
        special: Specialisation,
        strides: Strides,
        extents: tuple[int, ...],
    ) -> None:
        self.c = c
        self.special = special
        self.strides = strides
        self.extents = extents
        self.tensors: dict[str, int] = {}  # -> the dimension along g
        self.pairs: dict[int, Pair] = {}  # statement -> its indices g and d

    def why_not(self, tensor: str) -> str | None:
        """Return why *tensor*, and all that are bound to have both axes with it, do not."""
        pending = [(tensor, len(self.special.shapes[tensor]) - 2)]
        while pending:
            name, dim = pending.pop()
            if self.tensors.setdefault(name, dim) != dim:
                return f"{name} has both axes twice"
            if reason := self._why_no_pair(name, dim):
                return reason
            for position, statement in enumerate(self.c.statements):
                for accessed, subscripts in accesses_of(statement):
                    if accessed != name:
                        continue
                    pair = _name(subscripts[dim]), _name(subscripts[dim + 1])
                    if self.pairs.get(position) == pair:
                        continue
                    if position in self.pairs or not all(pair):
                        return f"{statement.name} subscripts {name} otherwise"
                    self.pairs[position] = pair
                    reason = self._why_not(position, statement, pair)
                    if reason is not None:
                        return reason
                    pending += [p for p in _places(statement, pair) if p[0] not in self.tensors]
        return None

    def _why_no_pair(self, name: str, dim: int) -> str | None:
        """Return why the axes of *name* are not one in memory."""
        if self.special.shapes[name][dim : dim + 2] != self.extents:
            return f"{name} has other extents"
        if self.extents[1] == 1:
            return f"a run of {name} is one element"
        if any(self.special.origins[name][dim : dim + 2]):
            return f"{name} has a margin"
        steps = self.strides.get(name)
        if steps is not None and steps[dim] != self.extents[1] * _number(steps[dim + 1]):
            return f"the axes of {name} are no neighbours"
        return None

    def _why_not(self, position: int, statement: Statement, pair: Pair) -> str | None:
        """Return why *statement* does more with the indices than what may become of them."""
        g, d = pair
        ranges = self.special.ranges[position]
        if statement.library or statement.data_ranges or statement.lets or g == d:
            return f"{statement.name} has ranges from data, or names for values"
        if {g, d} & set(indices_elsewhere(statement)):
            return f"{statement.name} does more with the axes than to subscript by them"
        if (ranges[g], ranges[d]) != tuple(map(range, self.extents)):
            return f"{statement.name} takes a part of the axes"
        accesses = list(accesses_of(statement))
        for tensor, subscripts in accesses:
            names = [_name(s) for s in subscripts]
            if d in names and not _has_pair(names, pair):
                return f"{statement.name} subscripts {tensor} otherwise"
            if g in names and d not in names and not _is_copied(self.c.tensors[tensor], statement):
                return f"{statement.name} reads {tensor}, which has no copies"
            if names.count(g) > 1 or names.count(d) > 1 or (g in names and "" in names):
                return f"{statement.name} subscripts {tensor} otherwise"
            if tensor == statement.target and tuple(subscripts) != statement.subscripts:
                return f"{statement.name} is a recurrence"
        if any(name == statement.target for name, _ in accesses[1:]) and d in statement.reduced:
            return f"{statement.name} reads what it adds to"
        return self._why_no_result(statement, pair)

    def _why_no_result(self, statement: Statement, pair: Pair) -> str | None:
        """Return why what *statement* writes has no parts, if it is a sum over d."""
        g, d = pair
        if (g in statement.left) == (d in statement.left):
            return None
        reduction = statement.reduction
        if reduction is None or not reduction.initialise:
            return f"{statement.name} begins with what is there"
        if statement.conditions or len(statement.reduced) < 2 or g not in statement.left:
            return f"{statement.name} has conditions, or no columns"
        is_plain = tuple(map(Index, statement.left)) == tuple(statement.subscripts)
        return None if is_plain else f"{statement.name} has other subscripts on its left"


def _is_copied(tensor: Tensor, statement: Statement) -> bool:
    """Return whether elements of *tensor* are copied as they are; a result is not."""
    return tensor.name == statement.target or (tensor.dtype.is_float and not tensor.dtype.is_half)


def _number(step: object) -> int:
    return step if isinstance(step, int) else 0


def _has_pair(names: list[str], pair: Pair) -> bool:
    return pair in pairwise(names)


def _places(statement: Statement, pair: Pair) -> Iterator[tuple[str, int]]:
    """Yield the tensors that *statement* subscripts by *pair*, and the dimension of the first."""
    for tensor, subscripts in accesses_of(statement):
        names = [_name(s) for s in subscripts]
        if _has_pair(names, pair):
            yield tensor, names.index(pair[0])


@dataclass(slots=True)
class _Rewriter:
    """Makes the new statements, and the tensors between them."""

    groups: _Groups
    statements: list[Statement] = field(default_factory=list)
    ranges: list[Mapping[str, range]] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    copies: dict[tuple[str, tuple[Expr, ...]], str] = field(default_factory=dict)

    def result(self) -> tuple[Comprehension, Specialisation]:
        c, special = self.groups.c, self.groups.special
        for position, statement in enumerate(c.statements):
            if position in self.groups.pairs:
                self._add_in_columns(position, statement)
            else:
                self._add(statement, special.ranges[position])
        new = replace(c, statements=tuple(self.statements), tensors={**c.tensors, **self.tensors})
        origins = {name: (0,) * len(shape) for name, shape in self.shapes.items()}
        return new, Specialisation(
            special.sizes, {**special.shapes, **self.shapes}, tuple(self.ranges),
            {**special.origins, **origins},
        )  # fmt: skip

    def _add(self, statement: Statement, ranges: Mapping[str, range]) -> None:
        self.statements.append(statement)
        self.ranges.append({name: ranges[name] for name in statement.indices})
        written = statement.target  # copies of which are no longer what it holds
        self.copies = {key: name for key, name in self.copies.items() if key[0] != written}

    def _add_in_columns(self, position: int, statement: Statement) -> None:
        """Add *statement* over both axes, before it the copies that it reads, after it the fold."""
        pair, ranges = self.groups.pairs[position], self.groups.special.ranges[position]
        g, d = pair
        together = _together(pair, self.groups.extents[1])

        def change(expr: Expr) -> Expr:
            if not isinstance(expr, Load) or Index(g) not in expr.subscripts:
                return expr
            if Index(d) in expr.subscripts:
                return expr
            name = self._copy(statement, expr, ranges, pair)
            subscripts = tuple(together if s == Index(g) else s for s in expr.subscripts)
            return replace(expr, tensor=name, subscripts=subscripts)

        changed = replace(
            statement,
            value=rewrite(statement.value, change),
            conditions=tuple(rewrite(condition, change) for condition in statement.conditions),
        )
        if (g in statement.left) == (d in statement.left):  # of both, or a sum over both
            self._add(changed, ranges)
            return
        reduction = statement.reduction
        assert reduction is not None, "_why_no_result"
        part = self._tensor(f"{statement.target}.part", reduction.dtype, statement.left, ranges, g)
        left = tuple(n for own in statement.left for n in (pair if own == g else (own,)))
        rest = tuple(name for name in statement.reduced if name != d)
        subscripts = tuple(together if n == g else Index(n) for n in statement.left)
        self._add(
            replace(
                changed, name=f"{statement.name}_part", target=part, subscripts=subscripts,
                indices=(*left, *rest), n_left=len(left), domain=None, ranges=(),
            ),
            ranges,
        )  # fmt: skip
        self._add(
            replace(
                statement, indices=(*statement.left, d),
                value=Load(part, subscripts, reduction.dtype), domain=None, ranges=(),
                explicit=tuple(e for e in statement.explicit if e.index not in rest),
            ),
            ranges,
        )  # fmt: skip

    def _copy(
        self, statement: Statement, load: Load, ranges: Mapping[str, range], pair: Pair
    ) -> str:
        """Return the copy of what *load* reads for each g and d, made now if it is not there."""
        g, _ = pair
        names = [_name(s) for s in load.subscripts]
        key = load.tensor, tuple(Index("") if n == g else Index(str(ranges[n])) for n in names)
        if key in self.copies:
            return self.copies[key]
        run = self._tensor(f"{load.tensor}.run", load.dtype, tuple(names), ranges, g)
        own = tuple(n for name in names for n in (pair if name == g else (name,)))
        together = _together(pair, self.groups.extents[1])
        self._add(
            Statement(
                name=fresh_name(f"{statement.name}_run", {s.name for s in self.statements}),
                target=run, subscripts=tuple(together if n == g else Index(n) for n in names),
                indices=own, n_left=len(own), reduction=None,
                value=Load(load.tensor, tuple(map(Index, names)), load.dtype),
                span=statement.span, target_span=statement.target_span,
            ),
            ranges,
        )  # fmt: skip
        self.copies[key] = run
        return run

    def _tensor(
        self, name: str, dtype: DType, names: tuple[str, ...], ranges: Mapping[str, range], g: str
    ) -> str:
        """Return a new temporary over *names*, which has all of both axes along *g*."""
        own = fresh_name(name, {**self.groups.c.tensors, **self.tensors})
        run = self.groups.extents[1]
        self.tensors[own] = Tensor(own, dtype, (None,) * len(names), False, False)
        self.shapes[own] = tuple(ranges[n].stop * (run if n == g else 1) for n in names)
        return own


def _together(pair: Pair, run: int) -> Expr:
    """Return the place of an element among all of both axes."""
    scaled = Binary("*", Const(run, INT32), Index(pair[0]), INT32)
    return Binary("+", scaled, Index(pair[1]), INT32)
