"""From a comprehension, specialised to sizes, to its scop.

    O(i) +=! A(i + k) where k in 0:5     (A of size 9)
        --->
    O_init: { S0_init[i] : 0 <= i < 5 }           writes { S0_init[i] -> O[i] }
    S0:     { S0[i, k] : 0 <= i < 5, 0 <= k < 5 }  reads { S0[i, k] -> A[i + k] }, updates O

The initialisation covers the box of the left-hand indices even where no term exists, and for a
scattered left side the whole array.
"""

from collections import Counter
from collections.abc import Mapping

import islpy as isl

from tcdsl.lang import comprehension as tc
from tcdsl.lang.comprehension import Comprehension, Const, Expr, Index, Reduction, are_indices
from tcdsl.lang.ranges.affine import Builder
from tcdsl.lang.ranges.open_sizes import AnySpecialisation, context_of
from tcdsl.lang.types.dtypes import INT64
from tcdsl.poly.accesses import Bounds, access, affine_range, box, builder_of, guarded_reads
from tcdsl.poly.data_ranges import comparisons
from tcdsl.poly.isl_utils import Extent, dim_bounds, plus
from tcdsl.poly.known_values import named_values, with_known_values
from tcdsl.poly.open_remainders import without_open_remainders
from tcdsl.poly.scop import Access, Array, Kind, Scop, Statement, Storage, Stride
from tcdsl.poly.sized_statement import SizedStatement
from tcdsl.poly.statement_checks import checks_of, without_repeated_checks
from tcdsl.poly.wide_accumulators import needs_wide_accumulators, through_wide


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
        sized = SizedStatement(statement, bounds, sizes, arrays, context, comprehension.source)
        lowered = _lowered(sized, check_gathers)
        if needs_wide_accumulators(statement, arrays, bounds):
            lowered = through_wide(lowered, statement, sizes, arrays)
        if writers[statement.target] == 1:
            arrays |= with_known_values(arrays, statement, named_values(bounds, sizes))
        statements += lowered
    statements = without_repeated_checks(statements)
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


def _companion_name(statement: tc.Statement) -> str:
    """Return the name of the array of extreme values beside an arg reduction's *target*."""
    return f"{statement.target}.best.{statement.name}"


def _add_companion(arrays: dict[str, Array], statement: tc.Statement) -> None:
    """Declare the array of extreme values that an arg reduction's running comparison needs."""
    assert statement.reduction is not None
    target = arrays[statement.target]
    name = _companion_name(statement)
    arrays[name] = Array(
        name, statement.reduction.dtype, target.origin, target.shape, Storage.SCRATCH
    )


def _lowered(sized: SizedStatement, check_gathers: bool) -> list[Statement]:
    """Return the statement's checks, its initialisation and its body, in that order."""
    body = _body(sized)
    checks = checks_of(sized, body) if check_gathers else []
    reduction = sized.statement.reduction
    if reduction is None or not reduction.initialise:
        return [*checks, body]
    return [*checks, _initialisation(sized, reduction), body]


def _body(sized: SizedStatement) -> Statement:
    statement = sized.statement
    builder = sized.builder(statement.indices, statement.name)
    domain, conditions = _domain(sized, builder)
    runtime = (statement.value, *conditions)
    return Statement(
        name=statement.name,
        domain=domain,
        indices=statement.indices,
        n_left=statement.n_left,
        kind=Kind.ASSIGN if statement.reduction is None else Kind.UPDATE,
        write=access(builder, statement.target, statement.subscripts, sized.arrays, domain),
        value=statement.value,
        reads=guarded_reads(builder, domain, (*statement.subscripts, *runtime), sized.arrays),
        reduction=statement.reduction,
        conditions=conditions,
        companion=_companion(sized, builder, domain),
        library=statement.library,
        arg_origin=_arg_origin(sized),
        source_name=statement.name,
        span=statement.span,
    )


def _arg_origin(sized: SizedStatement) -> Extent:
    statement = sized.statement
    if statement.reduction is None or not statement.reduction.operator.is_arg:
        return 0
    return sized.bounds[statement.reduced[0]][0]


def _companion(sized: SizedStatement, builder: Builder, domain: isl.Set) -> Access | None:
    statement = sized.statement
    if statement.reduction is None or not statement.reduction.operator.is_arg:
        return None
    name = _companion_name(statement)
    return access(builder, name, statement.subscripts, sized.arrays, domain)


def _domain(sized: SizedStatement, builder: Builder) -> tuple[isl.Set, tuple[Expr, ...]]:
    """Return the instances that isl can delimit, and the conditions that are left."""
    statement = sized.statement
    domain = sized.box(builder, statement.indices, sized.bounds)
    for bound in statement.explicit:
        domain = domain.intersect(affine_range(builder, bound))
    left_over = [c for bound in statement.data_ranges for c in comparisons(bound)]
    for condition in statement.conditions:
        truth = builder.truth(condition)
        domain = domain.intersect(truth.above)
        if truth.exact is None:
            left_over.append(condition)
    return domain.coalesce(), tuple(left_over)


def _initialisation(sized: SizedStatement, reduction: Reduction) -> Statement:
    statement = sized.statement
    name = f"{statement.name}_init"
    subscripts: tuple[Expr, ...] = statement.subscripts
    indices, bounds, occurs = statement.left, dict(sized.bounds), sized.context
    if not are_indices(subscripts):
        box_of_image, occurs = _image(sized)
        indices = tuple(f"e{d}" for d in range(len(subscripts)))
        subscripts = tuple(Index(index) for index in indices)
        bounds = dict(zip(indices, box_of_image, strict=True))
    builder = sized.builder(indices, name)
    domain = sized.box(builder, indices, bounds).intersect_params(occurs)
    companion = None
    if reduction.operator.is_arg:
        target_name = _companion_name(statement)
        companion = access(builder, target_name, subscripts, sized.arrays, domain)
    return Statement(
        name=name,
        domain=domain,
        indices=indices,
        n_left=len(indices),
        kind=Kind.INIT,
        write=access(builder, statement.target, subscripts, sized.arrays, domain),
        value=Const(-1, INT64) if reduction.operator.is_arg else None,
        reads=(),
        reduction=reduction,
        companion=companion,
        source_name=statement.name,
        span=statement.span,
    )


def _image(sized: SizedStatement) -> tuple[list[Bounds], isl.Set]:
    """Return the box around the elements that the left-hand indices name in their ranges.

    Where a subscript is gathered, that is the whole array.  Also return for which sizes there
    are such elements.
    """
    statement = sized.statement
    target = sized.arrays[statement.target]
    builder = sized.builder(statement.left, statement.name)
    ranges = sized.box(builder, statement.left, sized.bounds)
    image = access(builder, statement.target, statement.subscripts, sized.arrays, ranges)
    is_scatter = bool(image.inexact)
    bounds: list[Bounds] = []
    for dim, (origin, extent) in enumerate(zip(target.origin, target.shape, strict=True)):
        if is_scatter:
            bounds.append((origin, plus(origin, extent)))
        else:
            bounds.append(dim_bounds(image.relation.range(), dim, sized.context))
    return bounds, sized.context if is_scatter else image.relation.range().params()
