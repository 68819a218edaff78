"""Ranges of indices, boxes of tensors, and what a call must check.

    C(i) = A(i) + B(i)     --->    S0: { S0[i] : 0 <= i < min(NA, NB) },  C: origin 0, extent min

Statements are taken in source order.  For each:

1. placeholders of inlined calls are replaced by the extents that they stand for (linking);
2. its indices get their ranges, in rounds (rounds);
3. its domain is the box of the ranges, cut by affine conditions and dependent ranges;
4. the box of its target grows to the hull of its writes.

Then everything that could be wrong is decided: proven, refuted (an error), or made a precondition
on the sizes (checks, definedness).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from functools import reduce

import islpy as isl

from tcdsl.errors import EXTENT_UNKNOWN, INTERNAL, TOO_COMPLEX, TCError, combined
from tcdsl.lang.comprehension import (
    Comprehension,
    Expr,
    IndexBounds,
    Load,
    Statement,
    Tensor,
)
from tcdsl.lang.ranges import checks, isl_bounds
from tcdsl.lang.ranges.ambiguity import ambiguous, idle_guards
from tcdsl.lang.ranges.binding import bind_sizes
from tcdsl.lang.ranges.boxes import Boxes
from tcdsl.lang.ranges.equal_extents import ResolvedAgreement, agreements_of_indices
from tcdsl.lang.ranges.linear import Interval
from tcdsl.lang.ranges.linking import NOTHING, Agreement, Linking
from tcdsl.lang.ranges.reads import expressions, index_names, nodes, size_names_in
from tcdsl.lang.ranges.rounds import Space, accesses, solve, target_accesses
from tcdsl.lang.ranges.size_functions import SizeSpace, dim_expr, evaluate, to_expr
from tcdsl.lang.ranges.specialiser import specialise
from tcdsl.lang.rewrite import substitute_sizes, substituted
from tcdsl.lang.types.elaborate import FollowOnError
from tcdsl.lang.types.head import Dim
from tcdsl.lang.types.signature import signature
from tcdsl.records import dataclass

__all__ = ["bind_sizes", "infer", "specialise"]

# isl operations that one def may take: some seconds.  A matrix product takes a few thousand.
MAX_OPERATIONS = 20_000_000


def infer(
    comprehension: Comprehension,
    linking: Linking = NOTHING,
    equal_extents: bool = False,
    fixed: Mapping[str, int] | None = None,
) -> Comprehension:
    """Return *comprehension* with its domains, boxes and preconditions.

    :arg equal_extents: require that all dimensions that one index subscripts are the same.
    :arg fixed: the values of all sizes, to infer for these alone; what is wrong at them is an
        error, and no precondition is left.
    :raises RangeError, SemanticError: a range cannot be inferred, an access is out of bounds, an
        element is never written or read before it is: all errors of the def together.
    """
    with bounded(comprehension):
        draft = _drafted(comprehension, linking, equal_extents, fixed)
        agreements = draft.agreements + [draft.resolved(each) for each in linking.agreements]
        checked = checks.checked(draft.finished(), draft.boxes, draft.spaces, agreements)
        return replace(checked, signature=signature(checked))


def extents_of(
    comprehension: Comprehension, linking: Linking, fixed: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    """Return the extents that the tensors of an unfinished def have at the sizes *fixed* so far."""
    with bounded(comprehension):
        draft = _drafted(comprehension, linking, False, fixed)
        return {
            name: tuple(evaluate(i.upper, {}) - evaluate(i.lower, {}) for i in box)
            for name, box in draft.boxes.known.items()
        }


def _drafted(
    comprehension: Comprehension,
    linking: Linking,
    equal_extents: bool,
    fixed: Mapping[str, int] | None,
) -> "_Draft":
    """Return the draft of all statements.

    :raises TCError: all errors of the statements.
    """
    draft = _Draft(comprehension, linking, equal_extents, fixed)
    for statement in comprehension.statements:
        draft.add(statement)
    if draft.errors:
        raise combined(draft.errors)
    return draft


@contextmanager
def bounded(comprehension: Comprehension) -> Iterator[None]:
    """Limit isl's work inside the ``with``; exceeding it is a RangeError."""
    source, span, name = comprehension.source, comprehension.span, comprehension.name
    try:
        with isl_bounds.bounded(MAX_OPERATIONS):
            yield
    except isl_bounds.QuotaExceededError as error:
        raise TOO_COMPLEX(source, span, name=name) from error
    except isl.Error as error:
        raise INTERNAL(
            source, span, where=f"range inference of {name!r}", what=str(error),
            repro="compiling this program",
        ) from error  # fmt: skip


@dataclass(slots=True, eq=False)
class _Draft:
    """The statements inferred so far, and the boxes of the tensors they wrote."""

    comprehension: Comprehension
    linking: Linking
    equal_extents: bool
    fixed: Mapping[str, int] | None
    agreements: list[ResolvedAgreement] = field(init=False, default_factory=list)
    sizes: SizeSpace = field(init=False)
    boxes: Boxes = field(init=False)
    spaces: dict[str, Space] = field(init=False, default_factory=dict)
    statements: list[Statement] = field(init=False, default_factory=list)
    errors: list[TCError] = field(init=False, default_factory=list)
    warnings: list[str] = field(init=False, default_factory=list)
    _placeholders: dict[str, Expr] = field(init=False, default_factory=dict)
    _broken: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self.sizes = SizeSpace(self.comprehension.sizes, self.fixed)
        self.boxes = Boxes(self.sizes)
        for tensor in self.comprehension.tensors.values():
            if None not in tensor.dims:
                self.boxes.declare(tensor.name, [self._dim(dim) for dim in tensor.dims])

    def _dim(self, dim: Dim | None) -> isl.PwAff:
        assert dim is not None
        value = self.sizes.builder.affine(dim_expr(dim))
        assert value is not None, "a def with products of sizes is deferred"
        return value

    def add(self, statement: Statement) -> None:
        """Infer *statement*; an error is kept, and what depends on its target is skipped."""
        try:
            self._add(statement)
        except TCError as error:
            self.errors.append(error)
            self._broken.add(statement.target)
        except FollowOnError:
            self._broken.add(statement.target)

    def _add(self, statement: Statement) -> None:
        written = statement = self._linked(statement)
        self._check_unbroken(statement)
        statement = _with_data_ranges(statement, self.sizes)
        space = Space(statement, self.sizes)
        known, sizes = self.boxes.known, self.sizes
        on_the_left = target_accesses(statement, known, self.boxes.declared, sizes)
        reads = tuple(accesses(statement, known, sizes))
        if self.equal_extents:
            updated = on_the_left if statement.target in self.boxes.declared else ()
            self.agreements += agreements_of_indices(statement, (*updated, *reads))
        solution = solve(space, reads, on_the_left)
        if solution.open:
            raise ambiguous(self.comprehension, statement, solution)
        statement = with_domain(space, solution.ranges)
        self._grow(space, statement, solution.ranges)
        # The space keeps the statement that its isl objects belong to.
        space.statement, space.ranges = statement, solution.ranges
        self.spaces[statement.name] = space
        self.statements.append(statement)
        if self.fixed is None:  # at certain sizes a guard may hold by chance
            self.warnings += idle_guards(self.comprehension, written, space)

    def _check_unbroken(self, statement: Statement) -> None:
        if self._broken and self._broken.intersection(loaded_tensors(statement)):
            raise FollowOnError

    def _linked(self, statement: Statement) -> Statement:
        """Return *statement* with its placeholders replaced by what they stand for."""
        if not self.linking.derived and not self.linking.declared:
            return statement
        for name in size_names_in(*expressions(statement)):
            if name in self.linking.derived and name not in self._placeholders:
                self._placeholders[name] = self._derived_value(name)
        statement = substitute_sizes(statement, self._placeholders)
        self._declare_result(statement.target)
        return statement

    def _derived_value(self, name: str) -> Expr:
        derived = self.linking.derived[name]
        if derived.tensor in self._broken or derived.tensor not in self.boxes.known:
            raise FollowOnError
        interval = self.boxes.known[derived.tensor][derived.position]
        if derived.is_origin:
            return to_expr(interval.lower)
        return to_expr(self.sizes.simplified(interval.upper.sub(interval.lower)))

    def _declare_result(self, target: str) -> None:
        extents = self.linking.declared.get(target)
        if extents is None or target in self.boxes.known:
            return
        values = [self._extent(extent) for extent in extents]
        self.boxes.declare(target, values)

    def _extent(self, extent: Expr) -> isl.PwAff:
        for name in size_names_in(extent):
            if name in self.linking.derived and name not in self._placeholders:
                self._placeholders[name] = self._derived_value(name)
        value = self.sizes.builder.affine(substituted(extent, self._placeholders))
        assert value is not None, "extents are affine in the sizes"
        return value

    def _grow(self, space: Space, statement: Statement, ranges: Mapping[str, Interval]) -> None:
        """Extend the target's box by what *statement* writes."""
        if statement.target in self.boxes.declared:
            self.boxes.record_write(statement, space, ranges)
            return
        unknown = self.boxes.grow(statement, space, ranges)
        if unknown is None:
            return
        raise EXTENT_UNKNOWN(
            self.comprehension.source, statement.target_span, position=unknown,
            tensor=statement.target, element=element_text(self.comprehension, statement),
            advice=f"declare the dimensions of {statement.target!r}, among the results or as a "
            "parameter, or assign all of it before",
        )  # fmt: skip

    def resolved(self, agreement: Agreement) -> ResolvedAgreement:
        """Return *agreement* with its extents as functions of the sizes."""
        one, other = self._extent(agreement.one), self._extent(agreement.other)
        advice = "the def that is called declares them with the same size"
        return ResolvedAgreement(agreement.what, one, other, agreement.span, advice)

    def finished(self) -> Comprehension:
        """Return the comprehension with the statements and boxes found."""
        tensors = {t.name: self._boxed(t) for t in self.comprehension.tensors.values()}
        warnings = (*self.comprehension.warnings, *self.warnings)
        return replace(
            self.comprehension, statements=tuple(self.statements), tensors=tensors,
            warnings=warnings,
        )  # fmt: skip

    def _boxed(self, tensor: Tensor) -> Tensor:
        box = self.boxes.known[tensor.name]
        simplified = self.sizes.simplified
        return replace(
            tensor,
            origin=tuple(interval.lower for interval in box),
            extents=tuple(simplified(interval.upper.sub(interval.lower)) for interval in box),
        )


def loaded_tensors(statement: Statement) -> set[str]:
    """Return the names of the tensors that *statement* reads."""
    return {node.tensor for node in nodes(statement) if isinstance(node, Load)}


def with_domain(space: Space, ranges: Mapping[str, Interval]) -> Statement:
    """Return the statement of *space* with its ranges, and with the domain that they give.

    The domain is the box, cut by dependent ranges and by what is affine in the conditions.
    """
    statement = space.statement
    domain = space.box(ranges)
    for bounds in statement.explicit:
        if index_names(bounds.lower, bounds.upper):
            domain = domain.intersect(_dependent(space, bounds))
    for condition in statement.conditions:
        domain = domain.intersect(space.builder.truth(condition).above)
    return replace(
        statement,
        domain=domain.coalesce(),
        ranges=tuple((ranges[v].lower, ranges[v].upper) for v in statement.indices),
    )


def _dependent(space: Space, bounds: IndexBounds) -> isl.Set:
    value = space.builder.index(bounds.index)
    lower, upper = space.builder.affine(bounds.lower), space.builder.affine(bounds.upper)
    assert lower is not None and upper is not None
    return value.ge_set(lower).intersect(value.lt_set(upper))


def _with_data_ranges(statement: Statement, sizes: SizeSpace) -> Statement:
    """Return *statement* with the ranges whose bounds are not affine apart, in ``data_ranges``.

    ``where e in ptr(r):ptr(r+1)`` gives e no range that the sizes tell: reads have to bound e.
    """
    builder = Space(statement, sizes).builder

    def is_affine(bounds: IndexBounds) -> bool:
        return all(builder.affine(bound) is not None for bound in (bounds.lower, bounds.upper))

    kept = tuple(bounds for bounds in statement.explicit if is_affine(bounds))
    found = tuple(bounds for bounds in statement.explicit if not is_affine(bounds))
    if not found:
        return statement
    return replace(statement, explicit=kept, data_ranges=(*statement.data_ranges, *found))


def element_text(comprehension: Comprehension, statement: Statement) -> str:
    """Return the left side of *statement* as it is written."""
    if not statement.subscripts:
        return statement.target
    spans = [subscript.span for subscript in statement.subscripts]
    whole = reduce(lambda a, b: a.to(b), spans)
    return f"{statement.target}({comprehension.source.text[whole.start : whole.end]})"
