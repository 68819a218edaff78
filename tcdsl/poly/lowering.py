"""From a comprehension, specialised to sizes, to its scop.

    O(i) +=! A(i + k) where k in 0:5     (A of size 9)
        --->
    O_init: { S0_init[i] : 0 <= i < 5 }           writes { S0_init[i] -> O[i] }
    S0:     { S0[i, k] : 0 <= i < 5, 0 <= k < 5 }  reads { S0[i, k] -> A[i + k] }, updates O

The initialisation covers the box of the left-hand indices even where no term exists, and for a
scattered left side the whole array.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import islpy as isl

from tcdsl.lang import comprehension as tc
from tcdsl.lang.comprehension import (
    Comprehension,
    Const,
    Expr,
    Index,
    IndexBounds,
    Operator,
    Reduction,
    are_indices,
)
from tcdsl.lang.ranges.affine import Builder, instance_space
from tcdsl.lang.ranges.data_ranges import checked_with, clause_text
from tcdsl.lang.ranges.open_sizes import AnySpecialisation, context_of
from tcdsl.lang.ranges.reads import index_names
from tcdsl.lang.types.dtypes import BOOL, INT64, DType
from tcdsl.poly.data_ranges import comparisons
from tcdsl.poly.isl_utils import (
    Extent,
    dim_bounds,
    map_from_functions,
    plus,
    val,
    within_bounds,
)
from tcdsl.poly.known_values import is_value_inside, named_values, with_known_values
from tcdsl.poly.open_remainders import without_open_remainders
from tcdsl.poly.scop import (
    Access,
    Array,
    Kind,
    RangeCheck,
    Scop,
    Skew,
    Statement,
    Storage,
    Stride,
    loads_of,
)
from tcdsl.source import Source, Span

Bounds = tuple[Extent, Extent]  # [lower, upper)
Guards = tuple[Expr, ...]
Checked = dict[tuple[str, tuple[Expr, ...]], list[Guards]]  # { array, subscripts }


def builder_of(indices: tuple[str, ...], name: str, sizes: Mapping[str, int | None]) -> Builder:
    """Return a builder of affine expressions over the instances ``name[indices]``."""
    return Builder(instance_space(indices, name, sizes), sizes)


def companion_name(statement: tc.Statement) -> str:
    """Return the name of the array of extreme values beside an arg reduction's *target*."""
    return f"{statement.target}.best.{statement.name}"


def lower_comprehension(
    comprehension: Comprehension,
    special: AnySpecialisation,
    strides: Mapping[str, tuple[Stride, ...] | None],
    check_gathers: bool = True,
) -> Scop:
    """Return the scop of *comprehension* at the sizes of *special*, for all values of open ones.

    :arg strides: in elements, for those arguments that are not row-major without gaps.
    :arg check_gathers: add statements that record gathered subscripts out of range.
    """
    arrays = {
        name: _array(tensor, special, strides.get(name))
        for name, tensor in comprehension.tensors.items()
    }
    sizes: Mapping[str, int | None] = dict(special.sizes)
    context = context_of(special)
    statements: list[Statement] = []
    writers = Counter(statement.target for statement in comprehension.statements)
    for written, ranges in zip(comprehension.statements, special.ranges, strict=True):
        bounds: dict[str, Bounds] = {n: (r.start, r.stop) for n, r in ranges.items()}
        builder = builder_of(written.indices, written.name, sizes)
        there = box(builder, written.indices, bounds).intersect_params(context)
        statement = without_open_remainders(written, builder, there, sizes)
        if statement.reduction is not None and statement.reduction.operator.is_arg:
            _add_companion(arrays, statement)
        lowering = StatementLowering(
            statement, bounds, sizes, arrays, context, comprehension.source
        )
        lowered = lowering.lower(check_gathers)
        if needs_wide_accumulators(statement, arrays, bounds):
            lowered = _through_wide(lowered, statement, sizes, arrays)
        if writers[statement.target] == 1:
            arrays |= with_known_values(arrays, statement, named_values(bounds, sizes))
        statements += lowered
    statements = _without_repeated_checks(statements)
    return Scop(comprehension.name, arrays, tuple(statements), context, sizes)


def _array(
    tensor: tc.Tensor, special: AnySpecialisation, strides: tuple[Stride, ...] | None
) -> Array:
    is_argument = tensor.is_input or tensor.is_output
    return Array(
        tensor.name,
        tensor.dtype,
        special.origins[tensor.name],
        special.shapes[tensor.name],
        Storage.ARGUMENT if is_argument else Storage.SCRATCH,
        tensor.is_input or tensor.needs_out,
        tensor.is_output,
        strides,
    )


def _add_companion(arrays: dict[str, Array], statement: tc.Statement) -> None:
    """Declare the array of extreme values that an arg reduction's running comparison needs."""
    assert statement.reduction is not None
    target = arrays[statement.target]
    name = companion_name(statement)
    arrays[name] = Array(
        name, statement.reduction.dtype, target.origin, target.shape, Storage.SCRATCH
    )


def needs_wide_accumulators(
    statement: tc.Statement, arrays: Mapping[str, Array], bounds: Mapping[str, Bounds]
) -> bool:
    """Return whether results would be rounded to a narrow float at every term.

    They are if several instances of the left-hand indices write one element: where every element
    has instances of its own, a strategy gives them an accumulator in the reduction's type.  And a
    type without infinities cannot hold what a maximum or a minimum starts from, nor an integer
    without -1, or with less than all positions, the place of an extreme value.
    """
    if statement.reduction is None:
        return False
    ranges = (e for b in statement.data_ranges for e in (b.lower, b.upper))
    reads = loads_of(statement.value, *statement.conditions, *ranges)
    is_recurrence = any(load.tensor == statement.target for load in reads)
    if statement.reduction.operator.is_arg:
        places = _holds_places(arrays[statement.target].dtype, bounds[statement.reduced[0]])
        return not (places or is_recurrence)
    if arrays[statement.target].dtype == statement.reduction.dtype:
        return False
    is_plain = are_indices(statement.subscripts) and len(statement.subscripts) == statement.n_left
    of_data = {bounds.index for bounds in statement.data_ranges}
    is_plain = is_plain and of_data.isdisjoint(statement.left)
    holds_start = (
        statement.reduction.operator not in (Operator.MAX, Operator.MIN)
        or arrays[statement.target].dtype.has_infinities
    )
    return not ((is_plain and holds_start) or is_recurrence)


def _holds_places(dtype: DType, bounds: Bounds) -> bool:
    """Return whether *dtype* has -1 and every position within *bounds*."""
    if dtype == INT64:
        return True
    low, end = bounds
    if dtype.kind != INT64.kind or not (isinstance(low, int) and isinstance(end, int)):
        return False
    return end - low <= 1 << 8 * dtype.size_bytes - 1


def _through_wide(
    lowered: list[Statement],
    statement: tc.Statement,
    sizes: Mapping[str, int | None],
    arrays: dict[str, Array],
) -> list[Statement]:
    """Let the updates of a narrow target run on a copy in the reduction's type, or of places.

    T[e] op= f    --->    W[e] = T[e] or the identity;  W[e] op= f;  T[e] = W[e]
    """
    assert statement.reduction is not None
    dtype = INT64 if statement.reduction.operator.is_arg else statement.reduction.dtype
    target = arrays[statement.target]
    wide = Array(
        f"{target.name}.wide.{statement.name}", dtype, target.origin, target.shape,
        Storage.SCRATCH,
    )  # fmt: skip
    arrays[wide.name] = wide
    *before, body = lowered
    touched = (before[-1] if statement.reduction.initialise else body).write.relation.range()
    elements = tuple(f"e{d}" for d in range(target.rank))
    subscripts = tuple(Index(name) for name in elements)

    def copy(name: str, to: Array, from_: Array) -> Statement:
        builder = builder_of(elements, name, sizes)
        domain = touched.set_tuple_name(name)
        load = tc.Load(from_.name, subscripts, from_.dtype)
        return Statement(
            name=name,
            domain=domain,
            indices=elements,
            n_left=len(elements),
            kind=Kind.ASSIGN,
            write=access(builder, to.name, subscripts, arrays, domain),
            value=load if from_ is wide else tc.Cast(load, wide.dtype),
            reads=(access(builder, from_.name, subscripts, arrays, domain),),
            reduction=None,
            source_name=statement.name,
            span=statement.span,
        )

    def on_wide(old: Statement) -> Statement:
        relation = old.write.relation.set_tuple_name(isl.dim_type.out, wide.name)
        return replace(old, write=replace(old.write, array=wide.name, relation=relation))

    if statement.reduction.initialise:
        before[-1] = on_wide(before[-1])
    else:
        before.append(copy(f"{statement.name}_init", wide, target))
    return [*before, on_wide(body), copy(f"{statement.name}_store", target, wide)]


class StatementLowering:
    """Lowers one statement; holds what its accesses and domains have in common."""

    def __init__(
        self,
        statement: tc.Statement,
        bounds: Mapping[str, Bounds],
        sizes: Mapping[str, int | None],
        arrays: Mapping[str, Array],
        context: isl.Set,
        source: Source,
    ) -> None:
        self.statement = statement
        self.bounds = bounds
        self.sizes = sizes
        self.arrays = arrays
        self.context = context
        self.source = source

    def _box(
        self, builder: Builder, indices: tuple[str, ...], bounds: Mapping[str, Bounds]
    ) -> isl.Set:
        """Return the box of *indices*, for the sizes that may occur."""
        return box(builder, indices, bounds).intersect_params(self.context)

    def lower(self, check_gathers: bool) -> list[Statement]:
        """Return the statement's checks, its initialisation and its body, in that order."""
        body = self._body()
        checks = self._checks(body) if check_gathers else []
        reduction = self.statement.reduction
        if reduction is None or not reduction.initialise:
            return [*checks, body]
        return [*checks, self._init(reduction), body]

    def _checks(self, body: Statement) -> list[Statement]:
        """Return the statements that check ranges from data and gathered subscripts.

        What the bounds of a range gather is checked for all values that these bounds mention, what
        a condition gathers where the conditions before it hold, and all else where all hold.
        """
        ranges = self.statement.data_ranges
        checks: list[Statement] = []
        known: Checked = {}
        for number, bounds in enumerate(ranges):
            check = self._range_check(number, bounds)
            checks += self._gathers(check, (bounds.lower, bounds.upper), check.conditions, known)
            checks.append(check)
        for n in range(2 * len(ranges), len(body.conditions)):  # behind the comparisons of ranges
            one = body.conditions[n : n + 1]
            checks += self._gathers(body, one, body.conditions[:n], known)
        assert body.value is not None
        exprs = (*body.write.subscripts, body.value)
        return [*checks, *self._gathers(body, exprs, body.conditions, known)]

    def _gathers(
        self, body: Statement, exprs: Sequence[Expr], conditions: Guards, known: Checked
    ) -> list[Statement]:
        """Return a check for each access of *exprs* whose subscripts isl cannot bound.

        It runs once for all values of the indices that the subscripts (and the conditions under
        which the access happens) do not mention.

        :arg body: evaluates *exprs* where *conditions* hold; where all of its do, it writes, too.
        :arg known: accesses with the conditions under which they have been checked: grows.
        """
        checks = []
        guarded, spans = guarded_loads(*exprs), spans_of_loads(*exprs)
        writes = (body.write,) if conditions == body.conditions else ()
        for touched in (*writes, *body.reads):
            place = touched.array, touched.subscripts
            alternatives = guarded.get(place, [()] if touched is body.write else [])
            for guards in alternatives if self._may_be_outside(touched) else ():
                under = (*conditions, *guards)
                if any(set(before) <= set(under) for before in known.get(place, ())):
                    continue
                number = len(self.statement.data_ranges) + sum(map(len, known.values()))
                known.setdefault(place, []).append(under)
                name = f"{self.statement.name}_check{number}"
                check = self._check(name, body, touched, under)
                span = spans.get(place, self.statement.target_span)
                checks.append(replace(check, span=span))
        return checks

    def _may_be_outside(self, touched: Access) -> list[int]:
        """Return the dimensions along which data may choose an element that is not there."""
        named, array = named_values(self.bounds, self.sizes), self.arrays[touched.array]
        return [
            dim
            for dim in sorted(touched.inexact)
            if not is_value_inside(touched.subscripts[dim], array, dim, named, self.arrays)
        ]

    def _check(
        self, name: str, body: Statement, access_: Access, guards: tuple[Expr, ...]
    ) -> Statement:
        checked = tuple((dim, access_.subscripts[dim]) for dim in self._may_be_outside(access_))
        used = {
            node.name
            for expr in (*guards, *(subscript for _, subscript in checked))
            for node in tc.walk(expr)
            if isinstance(node, Index)
        }
        kept = tuple(index for index in body.indices if index in used)
        builder = builder_of(kept, name, self.sizes)
        domain = body.domain
        for position in reversed(range(len(body.indices))):
            if body.indices[position] not in used:
                domain = domain.project_out(isl.dim_type.set, position, 1)
        domain = domain.set_tuple_name(name)
        for guard in guards:
            domain = domain.intersect(builder.truth(guard).above)
        exprs = (*guards, *(subscript for _, subscript in checked))
        return replace(
            self._empty_check(builder, domain, kept, access_.array, exprs),
            conditions=guards,
            checked=checked,
            checked_loads=tuple(first_load(subscript) for _, subscript in checked),
            span=body.span,
        )

    def _empty_check(
        self,
        builder: Builder,
        domain: isl.Set,
        kept: tuple[str, ...],
        array: str,
        exprs: tuple[Expr, ...],
    ) -> Statement:
        """Return a check that reads *exprs* over *domain*, of indices *kept*, and compares none."""
        return Statement(
            name=domain.get_tuple_name(),
            domain=domain.coalesce(),
            indices=kept,
            n_left=len(kept),
            kind=Kind.CHECK,
            write=_nothing(array, domain),
            value=None,
            reads=guarded_reads(builder, domain, exprs, self.arrays),
            source_name=self.statement.name,
        )

    def _range_check(self, number: int, bounds: IndexBounds) -> Statement:
        """Return the check that the range *bounds*, where it is not empty, is one of its index.

        It runs for all values of the indices that the bounds mention.
        """
        statement, name = self.statement, f"{self.statement.name}_range{number}"
        guards = [c for other in checked_with(statement, bounds) for c in comparisons(other)]
        used = set(index_names(bounds.lower, bounds.upper, *guards))
        kept = tuple(index for index in statement.indices if index in used)
        builder = builder_of(kept, name, self.sizes)
        domain = self._box(builder, kept, self.bounds)
        for other in statement.explicit:
            if {other.index, *index_names(other.lower, other.upper)} <= used:
                domain = domain.intersect(_inside(builder, other))
        low, high = self.bounds[bounds.index]
        clause = clause_text(self.source, bounds)
        exprs = (*guards, bounds.lower, bounds.upper)
        return replace(
            self._empty_check(builder, domain, kept, statement.target, exprs),
            conditions=tuple(guards),
            checked_range=RangeCheck(bounds.lower, bounds.upper, low, high, clause),
            span=bounds.span,
        )

    def _body(self) -> Statement:
        statement = self.statement
        builder = builder_of(statement.indices, statement.name, self.sizes)
        domain, conditions = self._domain(builder)
        runtime = (statement.value, *conditions)
        return Statement(
            name=statement.name,
            domain=domain,
            indices=statement.indices,
            n_left=statement.n_left,
            kind=Kind.ASSIGN if statement.reduction is None else Kind.UPDATE,
            write=access(builder, statement.target, statement.subscripts, self.arrays, domain),
            value=statement.value,
            reads=guarded_reads(builder, domain, (*statement.subscripts, *runtime), self.arrays),
            reduction=statement.reduction,
            conditions=conditions,
            companion=self._companion(builder, domain),
            library=statement.library,
            arg_origin=self._arg_origin(),
            source_name=statement.name,
            span=statement.span,
        )

    def _arg_origin(self) -> Extent:
        statement = self.statement
        if statement.reduction is None or not statement.reduction.operator.is_arg:
            return 0
        return self.bounds[statement.reduced[0]][0]

    def _companion(self, builder: Builder, domain: isl.Set) -> Access | None:
        statement = self.statement
        if statement.reduction is None or not statement.reduction.operator.is_arg:
            return None
        name = companion_name(statement)
        return access(builder, name, statement.subscripts, self.arrays, domain)

    def _domain(self, builder: Builder) -> tuple[isl.Set, tuple[Expr, ...]]:
        """Return the instances that isl can delimit, and the conditions that are left."""
        statement = self.statement
        domain = self._box(builder, statement.indices, self.bounds)
        for bound in statement.explicit:
            domain = domain.intersect(_inside(builder, bound))
        left_over = [c for bound in statement.data_ranges for c in comparisons(bound)]
        for condition in statement.conditions:
            truth = builder.truth(condition)
            domain = domain.intersect(truth.above)
            if truth.exact is None:
                left_over.append(condition)
        return domain.coalesce(), tuple(left_over)

    def _image(self) -> tuple[list[Bounds], isl.Set]:
        """Return the box around the elements that the left-hand indices name in their ranges.

        Where a subscript is gathered, that is the whole array.  Also return for which sizes there
        are such elements.
        """
        statement = self.statement
        target = self.arrays[statement.target]
        builder = builder_of(statement.left, statement.name, self.sizes)
        ranges = self._box(builder, statement.left, self.bounds)
        image = access(builder, statement.target, statement.subscripts, self.arrays, ranges)
        is_scatter = bool(image.inexact)
        bounds: list[Bounds] = []
        for dim, (origin, extent) in enumerate(zip(target.origin, target.shape, strict=True)):
            if is_scatter:
                bounds.append((origin, plus(origin, extent)))
            else:
                bounds.append(dim_bounds(image.relation.range(), dim, self.context))
        return bounds, self.context if is_scatter else image.relation.range().params()

    def _init(self, reduction: Reduction) -> Statement:
        statement = self.statement
        name = f"{statement.name}_init"
        subscripts: tuple[Expr, ...] = statement.subscripts
        indices, bounds, occurs = statement.left, dict(self.bounds), self.context
        if not are_indices(subscripts):
            box_of_image, occurs = self._image()
            indices = tuple(f"e{d}" for d in range(len(subscripts)))
            subscripts = tuple(Index(index) for index in indices)
            bounds = dict(zip(indices, box_of_image, strict=True))
        builder = builder_of(indices, name, self.sizes)
        domain = self._box(builder, indices, bounds).intersect_params(occurs)
        companion = None
        if reduction.operator.is_arg:
            target_name = companion_name(statement)
            companion = access(builder, target_name, subscripts, self.arrays, domain)
        return Statement(
            name=name,
            domain=domain,
            indices=indices,
            n_left=len(indices),
            kind=Kind.INIT,
            write=access(builder, statement.target, subscripts, self.arrays, domain),
            value=Const(-1, INT64) if reduction.operator.is_arg else None,
            reads=(),
            reduction=reduction,
            companion=companion,
            source_name=statement.name,
            span=statement.span,
        )


def _without_repeated_checks(statements: Sequence[Statement]) -> list[Statement]:
    """Return *statements*, of checks of one range the first alone, unless its bounds change."""
    written = {write.array for statement in statements for write in statement.writes}
    seen: set[object] = set()
    found = []
    for statement in statements:
        ends = statement.checked_range
        if ends is not None and not written & {read.array for read in statement.reads}:
            where = statement.domain.set_tuple_name("").to_str()
            bounds = ends.lower, ends.upper, str(ends.start), str(ends.end)
            key = statement.conditions, bounds, where
            if key in seen:
                continue
            seen.add(key)
        found.append(statement)
    return found


def _inside(builder: Builder, bounds: IndexBounds) -> isl.Set:
    """Return the instances whose index is in the affine range *bounds*."""
    lower, upper = builder.affine(bounds.lower), builder.affine(bounds.upper)
    index = builder.affine(Index(bounds.index))
    assert lower is not None and upper is not None and index is not None
    return index.ge_set(lower).intersect(index.lt_set(upper))


def _nothing(array: str, domain: isl.Set) -> Access:
    """Return an access that names *array* and touches nothing."""
    space = domain.get_space()
    return Access(array, (), isl.Map.empty(space.map_from_domain_and_range(space)))


def guarded_loads(*exprs: Expr) -> dict[tuple[str, tuple[Expr, ...]], list[Guards]]:
    """Return the loads in *exprs*, each with the conditions under which it runs.

    A load that stands several times has several alternatives; () means that it always runs.
    """
    found: dict[tuple[str, tuple[Expr, ...]], list[Guards]] = {}
    stack: list[tuple[Expr, Guards]] = [(expr, ()) for expr in reversed(exprs)]
    while stack:
        expr, guards = stack.pop()
        if isinstance(expr, tc.Load):
            alternatives = found.setdefault((expr.tensor, expr.subscripts), [])
            if guards not in alternatives:
                alternatives.append(guards)
        for child, extra in reversed(_lazily(expr)):
            stack.append((child, (*guards, *extra)))
    return found


def first_load(expr: Expr) -> tc.Load | None:
    """Return the outermost load in *expr*, of several the first."""
    return next((node for node in tc.walk(expr) if isinstance(node, tc.Load)), None)


def spans_of_loads(*exprs: Expr) -> dict[tuple[str, tuple[Expr, ...]], Span]:
    """Return where each load in *exprs* stands first."""
    loads = [node for expr in exprs for node in tc.walk(expr) if isinstance(node, tc.Load)]
    return {(load.tensor, load.subscripts): load.span for load in reversed(loads)}


def guarded_reads(
    builder: Builder, domain: isl.Set, exprs: tuple[Expr, ...], arrays: Mapping[str, Array]
) -> tuple[Access, ...]:
    """Return the reads of *exprs*, each where the conditions around it may hold."""
    accesses = []
    for (array, subscripts), alternatives in guarded_loads(*exprs).items():
        runs = isl.Set.empty(domain.get_space())
        for guards in alternatives:
            where = domain
            for guard in guards:
                where = where.intersect(builder.truth(guard).above)
            runs = runs.union(where)
        accesses.append(access(builder, array, subscripts, arrays, runs.coalesce()))
    return tuple(accesses)


def evaluated(statement: Statement) -> tuple[Expr, ...]:
    """Return the expressions that an instance of *statement* evaluates."""
    if statement.kind is Kind.CHECK:
        ends = statement.checked_range
        bounds = () if ends is None else (ends.lower, ends.upper)
        return (*statement.conditions, *(expr for _, expr in statement.checked), *bounds)
    value = () if statement.value is None else (statement.value,)
    return (*statement.write.subscripts, *value, *statement.conditions)


def _lazily(expr: Expr) -> list[tuple[Expr, tuple[Expr, ...]]]:
    """Return the operands of *expr*, each with the conditions under which it is evaluated."""
    match expr:
        case tc.Select(condition=condition, if_true=if_true, if_false=if_false):
            negated = tc.Unary("!", condition, BOOL)
            return [(condition, ()), (if_true, (condition,)), (if_false, (negated,))]
        case tc.Binary(op="&&", left=left, right=right):
            return [(left, ()), (right, (left,))]
        case tc.Binary(op="||", left=left, right=right):
            return [(left, ()), (right, (tc.Unary("!", left, BOOL),))]
        case _:
            return [(child, ()) for child in tc.children(expr)]


def box(builder: Builder, indices: tuple[str, ...], bounds: Mapping[str, Bounds]) -> isl.Set:
    """Return the instances whose every index lies within its bounds."""
    domain = isl.Set.universe(builder.space)
    for position, name in enumerate(indices):
        domain = within_bounds(domain, position, *bounds[name])
    return domain


def access(
    builder: Builder,
    array: str,
    subscripts: tuple[Expr, ...],
    arrays: Mapping[str, Array],
    domain: isl.Set,
) -> Access:
    """Return the access of *domain*'s instances to ``array(subscripts)``.

    Where a subscript is not affine, any element within the array's extent may be meant.
    """
    functions = [builder.affine(subscript) for subscript in subscripts]
    relation = map_from_functions(builder.space, functions, array)
    inexact = frozenset(d for d, function in enumerate(functions) if function is None)
    if inexact:
        relation = relation.intersect_range(_elements(relation, arrays[array], inexact))
    return Access(array, subscripts, relation.intersect_domain(domain), inexact)


def elements_in(array: Array, space: isl.Space) -> isl.Set:
    """Return the elements of *array*, in *space*: its box, or of that its rows."""
    elements = isl.Set.universe(space)
    for dim, (origin, extent) in enumerate(zip(array.origin, array.shape, strict=True)):
        elements = within_bounds(elements, dim, origin, plus(origin, extent))
    if array.skew is None:
        return elements
    local = isl.LocalSpace.from_space(space)
    variables = [
        isl.PwAff.from_aff(isl.Aff.var_on_domain(local, isl.dim_type.set, dim))
        for dim in range(array.rank)
    ]
    first = row_start(array.skew, variables[:-1])
    last = variables[-1]
    end = first.add_constant_val(val(array.skew.length))
    return elements.intersect(last.ge_set(first)).intersect(last.lt_set(end))


def row_start(skew: Skew, row: Sequence[isl.PwAff]) -> isl.PwAff:
    """Return by how much the *row* begins after the start of a vector, a function as these are."""
    terms = [f.scale_val(val(factor)) for f, factor in zip(row, skew.factors, strict=True)]
    total = terms[0]
    for term in terms[1:]:
        total = total.add(term)
    return total.mod_val(val(skew.width))


def _elements(relation: isl.Map, array: Array, dims: frozenset[int]) -> isl.Set:
    """Return the elements that lie in *array* along *dims*."""
    elements = isl.Set.universe(relation.get_space().range())
    for dim in dims:
        origin, extent = array.origin[dim], array.shape[dim]
        elements = within_bounds(elements, dim, origin, plus(origin, extent))
    return elements
