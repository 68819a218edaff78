"""What is checked once the ranges of a def are known, in the order that the proofs need.

1. Each statement alone: no two values for one element, no read of what a reduction changes.
2. No range is negative; extents that calls declare to be equal are.
3. Every element is written before it is read (definedness); an output that is not, and is read or
   kept, must be given by the caller.
4. The box of an annotated output is what its statements write.
5. Every access is in bounds.
6. Every element of the other outputs, and of temporaries, is written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import reduce
from itertools import product

import islpy as isl

from tcdsl.errors import (
    EXTENTS_DIFFER,
    NEGATIVE_RANGE,
    NOT_COVERED,
    OUT_OF_BOUNDS,
    OWN_ELEMENT,
    READ_BEFORE_WRITTEN,
    TWO_VALUES,
    TCError,
    combined,
)
from tcdsl.lang.comprehension import Comprehension, Expr, Load, Size, Statement, Tensor
from tcdsl.lang.ranges.boxes import Boxes
from tcdsl.lang.ranges.definedness import Definedness, is_injective, own_element_read
from tcdsl.lang.ranges.equal_extents import ResolvedAgreement
from tcdsl.lang.ranges.linear import Interval
from tcdsl.lang.ranges.preconditions import (
    ExtentsDiffer,
    NegativeRange,
    OutOfBoundsAt,
    Requirements,
    values_text,
)
from tcdsl.lang.ranges.reads import Read, first_use, index_names, reads
from tcdsl.lang.ranges.rounds import Space, accesses, extremes, set_extremes
from tcdsl.lang.ranges.size_functions import SizeSpace, text
from tcdsl.records import dataclass
from tcdsl.source import Span


def checked(
    comprehension: Comprehension,
    boxes: Boxes,
    spaces: Mapping[str, Space],
    agreements: Sequence[ResolvedAgreement],
) -> Comprehension:
    """Return *comprehension* with its preconditions, and with ``needs_out`` of its tensors.

    :raises RangeError, SemanticError: all that is wrong with the def, together.
    """
    checker = _Checker(comprehension, boxes, spaces)
    checker.statements()
    checker.ranges()
    checker.agreements(agreements)
    needed = checker.definedness()
    checker.annotated_outputs(needed)
    checker.accesses()
    checker.coverage(needed)
    if checker.met.errors:
        raise combined(checker.met.errors)
    tensors = {
        tensor.name: replace(tensor, needs_out=True) if tensor.name in needed else tensor
        for tensor in comprehension.tensors.values()
    }
    return replace(
        comprehension, tensors=tensors, preconditions=tuple(checker.met.preconditions),
        warnings=(*comprehension.warnings, *checker.warnings),
    )  # fmt: skip


@dataclass(slots=True, eq=False)
class _Checker:
    c: Comprehension
    boxes: Boxes
    spaces: Mapping[str, Space]
    sizes: SizeSpace = field(init=False)
    met: Requirements = field(init=False)
    warnings: list[str] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self.sizes = self.boxes.sizes
        self.met = Requirements(self.sizes)

    # --- 1: statements alone ---------------------------------------------------------------
    def statements(self) -> None:
        for statement in self.c.statements:
            space = self.spaces[statement.name]
            if statement.reduction is None and not is_injective(space):
                self.met.errors.append(self._two_values(statement))
            if statement.reduced and (read := own_element_read(space)):
                self.met.errors.append(self._own_element(statement, read))

    def _two_values(self, statement: Statement) -> TCError:
        element = self._element(statement)
        return TWO_VALUES(
            self.c.source, statement.target_span, element=element,
            why="several instances write the same element",
            advice="combine them: +=! or another reduction, or make the left side one to one",
        )  # fmt: skip

    def _own_element(self, statement: Statement, read: Expr) -> TCError:
        names = ", ".join(statement.reduced)
        text = self._text(read.span)
        return OWN_ELEMENT(self.c.source, read.span, element=text, indices=names)

    def _text(self, span: Span) -> str:
        return self.c.source.text[span.start : span.end]

    def _element(self, statement: Statement) -> str:
        subscripts = ", ".join(self._text(s.span) for s in statement.subscripts)
        return f"{statement.target}({subscripts})" if subscripts else statement.target

    # --- 2: ranges and agreements ----------------------------------------------------------
    def ranges(self) -> None:
        for statement in self.c.statements:
            for index, interval in self.spaces[statement.name].ranges.items():
                pairs = product(interval.floors, interval.ceilings)
                holds = reduce(isl.Set.intersect, (low.le_set(high) for low, high in pairs))
                if not self.met.known.is_subset(holds):
                    self._require_range(statement, index, interval, holds)

    def _require_range(
        self, statement: Statement, index: str, interval: Interval, holds: isl.Set
    ) -> None:
        span = first_use(statement, index)
        error = NegativeRange(self.c.source, span, index, interval)
        refuted = NEGATIVE_RANGE(
            self.c.source, span, index=index, lower=text(interval.lower),
            upper=text(interval.upper), where="", advice="swap the bounds, or drop the statement",
        )  # fmt: skip
        self.met.require(holds, error, lambda: refuted)

    def agreements(self, agreements: Sequence[ResolvedAgreement]) -> None:
        for agreement in agreements:
            self._require_equal(
                agreement.span, agreement.what, agreement.one, agreement.other, agreement.advice
            )

    def _require_equal(
        self, span: Span, what: str, one: isl.PwAff, other: isl.PwAff, advice: str
    ) -> None:
        error = ExtentsDiffer(self.c.source, span, what, one, other, advice)
        refuted = EXTENTS_DIFFER(
            self.c.source, span, what=what, where="", one=text(one), other=text(other),
            advice=advice,
        )  # fmt: skip
        self.met.require(one.eq_set(other), error, lambda: refuted)

    # --- 3: definedness --------------------------------------------------------------------
    def definedness(self) -> frozenset[str]:
        """Return the outputs that the caller must supply; report temporaries read too early."""
        assumed = self.met.known
        for _, extents in self._annotated():
            for (one, other), _ in extents:
                narrowed = assumed.intersect(one.eq_set(other))
                # Where the hull of the writes never is the box, the output may be a kept one.
                assumed = assumed if narrowed.is_empty() else narrowed
        defined = Definedness(self.c, self.boxes, self.spaces, assumed)
        needed: set[str] = set()
        for statement in self.c.statements:
            defined.initialise(statement)
            for name, span, where in defined.undefined_reads(statement):
                if self.c.tensors[name].is_output:
                    needed.add(name)
                    if where and self._is_undeclared(name):
                        self.warnings.append(self._without_a_beginning(statement))
                else:
                    self.met.errors.append(self._read_too_early(name, span, where))
            defined.write(statement)
        self._defined = defined
        return frozenset(needed)

    def _is_undeclared(self, name: str) -> bool:
        """Return whether the result *name* has no type in the header: nobody says what it holds."""
        span = self.c.tensors[name].span
        return self.c.source.text[span.start : span.end] == name

    def _without_a_beginning(self, statement: Statement) -> str:
        """Return the warning for an update of a result that nothing gives its first value."""
        source, span, name = self.c.source, statement.target_span, statement.target
        line, column = source.position(span.start)
        assert statement.reduction is not None
        operator = f"{statement.reduction.operator}="
        element = source.text[span.start : span.end]
        dims = [text(extent) for extent in self._extents(name)]
        shape = f"({', '.join(dims)})" if dims else ""
        declared = f"{self.c.tensors[name].dtype}{shape} {name}"
        given = f"declare the result, {declared}, and give every call out="
        if not all(dim.isidentifier() or dim.isdecimal() for dim in dims):
            given = f"make {name} a parameter too"
        return (
            f"{source.name}:{line}:{column}: '{element} {operator} ...' goes on from what {name!r} "
            f"holds, but no statement before it gives {name!r} a value: write '{operator}!' to "
            f"begin anew; or {given}"
        )

    def _extents(self, name: str) -> list[isl.PwAff]:
        box = self.boxes.known[name]
        return [self.sizes.simplified(i.upper.sub(i.lower)) for i in box]

    def _read_too_early(self, name: str, span: Span, where: str) -> TCError:
        return READ_BEFORE_WRITTEN(
            self.c.source, span, name=name, where=where,
            advice=f"assign all of {name} first, with = or with a reduction that ends in !",
        )  # fmt: skip

    _defined: Definedness = field(init=False)

    # --- 4: annotated outputs --------------------------------------------------------------
    def _annotated(self) -> list[tuple[Tensor, list[tuple[tuple[isl.PwAff, isl.PwAff], str]]]]:
        """Return the outputs with declared extents, each with pairs of bounds to be equal."""
        return [
            (tensor, pairs)
            for tensor in self.c.tensors.values()
            if tensor.name in self.boxes.declared and not tensor.is_input
            if (pairs := self._bounds_pairs(tensor))
        ]

    def _bounds_pairs(self, tensor: Tensor) -> list[tuple[tuple[isl.PwAff, isl.PwAff], str]]:
        pairs: list[tuple[tuple[isl.PwAff, isl.PwAff], str]] = []
        for position, interval in enumerate(self.boxes.known[tensor.name]):
            hull = self._written(tensor.name, position)
            if hull is None:
                continue
            what = f"the declared and the written {{}} of dimension {position} of {tensor.name!r}"
            pairs.append(((interval.lower, hull.lower), what.format("start")))
            pairs.append(((interval.upper, hull.upper), what.format("end")))
        return pairs

    def _written(self, tensor: str, position: int) -> Interval | None:
        """Return the hull of all writes in one dimension, None if some are data-dependent."""
        parts = [
            self.boxes.images[statement.name][position]
            for statement in self.c.statements
            if statement.target == tensor
        ]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts) or not known:
            return None
        return self.boxes.hull(known)

    def annotated_outputs(self, needed: frozenset[str]) -> None:
        for tensor, pairs in self._annotated():
            if tensor.name in needed:
                continue  # its other elements are the caller's
            for (one, other), what in pairs:
                advice = "change the declaration, or the ranges: where i in 0:N"
                self._require_equal(tensor.span, what, one, other, advice)

    # --- 5: accesses -----------------------------------------------------------------------
    def accesses(self) -> None:
        for statement in self.c.statements:
            space = self.spaces[statement.name]
            for access in accesses(statement, self.boxes.known, self.sizes):
                self._check(
                    space, access.read, access.read.load, access.position, access.subscript,
                    access.interval,
                )  # fmt: skip
            if statement.target in self.boxes.declared:
                self._check_write(space, statement)

    def _check_write(self, space: Space, statement: Statement) -> None:
        for position, interval in enumerate(self.boxes.known[statement.target]):
            subscript = statement.subscripts[position]
            span = statement.target_span
            if statement.subscripts:
                span = span.to(statement.subscripts[-1].span)
            load = Load(statement.target, statement.subscripts, subscript.dtype, span)
            self._check(space, None, load, position, subscript, interval)

    def _check(
        self,
        space: Space,
        read: Read | None,
        access: Load,
        position: int,
        subscript: Expr,
        interval: Interval,
    ) -> None:
        """Require that *subscript* lies in *interval* wherever the access happens."""
        value = space.builder.affine(subscript)
        if value is None or self._clearly_inside(space, subscript, interval):
            return
        statement = space.statement
        assert statement.domain is not None
        where = statement.domain.intersect_params(self.met.known)
        if read is not None and read.guards:
            where = where.intersect(space.guarded(read.guards))
        outside = where.subtract(space.inside(value, interval))
        if outside.is_empty():
            return
        bad = outside.params()
        is_exact = bool(read is not None and read.guards)
        values = Interval(*self._values(space, subscript, value, where, is_exact))
        advice = "give its indices smaller ranges with 'where'"
        if isinstance(subscript, Size):
            advice = (
                f"{subscript.name} is a size of the header, one past the last element: give the "
                "index another name"
            )
        elif not index_names(subscript):
            advice = f"the last element is that at {text(interval.upper)} - 1"
        elif read is not None:
            is_below = values.upper.ge_set(interval.upper).is_empty()
            if is_below and self._has_no_start(statement, access.tensor):
                advice = (
                    f"assign the first values of {access.tensor!r} in a statement before (the "
                    "range then starts after them)"
                )
            advice += self._or_guard(access, subscript, interval)
        if self.sizes.fixed is None and where.params().is_subset(bad):
            self.met.errors.append(self._out_of_bounds(access, position, values, interval, advice))
            return
        error = OutOfBoundsAt(
            self.c.source, access.span, self._access_text(access), access.tensor, position, values,
            interval, self._because(space, subscript),
        )  # fmt: skip
        refuted = self._out_of_bounds(access, position, values, interval, advice)
        self.met.require(bad.complement(), error, lambda: refuted)

    def _has_no_start(self, statement: Statement, tensor: str) -> bool:
        """Return whether *statement* steps from elements of *tensor* of which it has none yet."""
        first = next((s for s in self.c.statements if s.target == tensor), None)
        return first is statement and not self.c.tensors[tensor].is_input

    def _clearly_inside(self, space: Space, subscript: Expr, interval: Interval) -> bool:
        """Return whether the corners of the box prove it: cheap, and enough for most."""
        low, high = extremes(space, subscript, space.ranges)
        if any(f.n_piece() > 1 for f in (low, high, interval.lower, interval.upper)):
            return False  # the exact way is cheaper than a union of many pieces
        inside = interval.lower.le_set(low).intersect(high.lt_set(interval.upper))
        return bool(self.met.known.is_subset(inside))

    def _values(
        self, space: Space, subscript: Expr, value: isl.PwAff, where: isl.Set, is_exact: bool
    ) -> tuple[isl.PwAff, isl.PwAff]:
        if (
            is_exact
            or space.statement.conditions
            or space.statement.explicit
            or len(index_names(subscript)) != 1
        ):
            return set_extremes(space, value, where)
        return extremes(space, subscript, space.ranges)

    def _access_text(self, access: Load) -> str:
        found = self._text(access.span)
        return found if found else f"an access to {access.tensor!r}"

    def _because(self, space: Space, subscript: Expr) -> str:
        """Return which other tensors bound the indices of *subscript*, for the hint."""
        indices = set(index_names(subscript))
        others = {
            read.load.tensor
            for read in reads(space.statement)
            if indices & set(index_names(read.load))
        }
        names = ", ".join(sorted(others))
        if not indices:
            return ""
        ranges = [
            f"{v} in [{text(lower)}, {text(upper)})"
            for v, (lower, upper) in zip(
                space.statement.indices, space.statement.ranges, strict=True
            )
            if v in indices
        ]
        return f": {', '.join(ranges)}; read with {names}" if names else f": {', '.join(ranges)}"

    def _or_guard(self, access: Load, subscript: Expr, interval: Interval) -> str:
        """Return how to guard the read *access*, "" where the program has no text of it."""
        inner, whole = self._text(subscript.span), self._text(access.span)
        if not (inner and whole):
            return ""
        guard = f"{inner} >= {text(interval.lower)} && {inner} < {text(interval.upper)}"
        return f", or guard the access: {guard} ? {whole} : 0"

    def _out_of_bounds(
        self, access: Load, position: int, values: Interval, interval: Interval, advice: str
    ) -> TCError:
        return OUT_OF_BOUNDS(
            self.c.source, access.span, access=self._access_text(access), position=position,
            first=text(values.lower), last=text(values.upper), tensor=access.tensor,
            lower=text(interval.lower), upper=text(interval.upper),
            advice=advice,
        )  # fmt: skip

    # --- 6: coverage -----------------------------------------------------------------------
    def coverage(self, needed: frozenset[str]) -> None:
        if self.met.errors:
            return  # holes would only repeat what is wrong
        for tensor in self.c.tensors.values():
            if tensor.is_input or tensor.name in needed:
                continue
            hole = self._defined.hole(tensor.name)
            hole = hole if hole is None else hole.intersect_params(self.met.known)
            if hole is not None and not hole.is_empty():
                self.met.errors.append(self._not_covered(tensor, hole))

    def _not_covered(self, tensor: Tensor, hole: isl.Set) -> TCError:
        element, sizes = sample(hole)
        sizes = dict(self.sizes.fixed or sizes)
        span = next(s.target_span for s in self.c.statements if s.target == tensor.name)
        return NOT_COVERED(
            self.c.source, span, name=tensor.name, element=f"{tensor.name}({element})",
            where=values_text(tuple(sizes), sizes),
            advice="write all of the box, initialise it first (= 0 over its range), or use a "
            "reduction that ends in !",
        )  # fmt: skip


def sample(where: isl.Set) -> tuple[str, dict[str, int]]:
    """Return an element of *where*, as text, and the sizes at which it is one."""
    point = where.sample_point()
    sizes = {
        str(name): int(point.get_coordinate_val(isl.dim_type.param, position).to_python())
        for position, name in enumerate(where.get_var_names(isl.dim_type.param))
        if where.involves_dims(isl.dim_type.param, position, 1)
    }
    element = (
        str(point.get_coordinate_val(isl.dim_type.set, position).to_python())
        for position in range(where.dim(isl.dim_type.set))
    )
    return ", ".join(element), sizes
