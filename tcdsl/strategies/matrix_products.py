"""Matrix products as libraries take them: which statement is one, and of which matrices.

    C(b,m,n) +=! A(b,m,k) * B(b,k,n)

             batch   rows   columns        strides of the result, the left and the right operand;
    C            b      m         n        of each operand's two dimensions one has the stride 1,
    A            b      m         k        the other is its leading dimension: transposed operands
    B            b      k         n        are not copied

An index belongs to the batch if it is in all three, to the rows if it is in C and A, and so on.
Several indices of a class are one if their strides agree in both tensors (*coalesced*: each is the
extent times the stride of the next).  Of rows or columns that are two, the outer one is a batch.

Legal iff the statement does nothing else: no conditions, a box of instances, no gathered subscript.
"""

from collections.abc import Mapping, Sequence

import islpy as isl

from tcdsl.costmodel.locality import array_strides
from tcdsl.costmodel.matrix_products import Dims, Matrix, MatrixProduct, leading_dimension
from tcdsl.lang.comprehension import Expr, Operator
from tcdsl.lang.linear_forms import Linear, linear
from tcdsl.lang.types.library_calls import TYPES, factors_of
from tcdsl.poly.isl_utils import constant_bounds, within
from tcdsl.poly.scop import Array, Kind, Scop, Statement


def matrix_product(scop: Scop, statement: Statement) -> MatrixProduct | str:
    """Return the product that *statement* is, or why it is none of matrices."""
    if reason := _why_not_plain(scop, statement):
        return reason
    assert statement.value is not None and statement.reduction is not None
    factors = factors_of(statement.value)
    assert factors is not None
    lower, extents = _box(statement)
    places = [statement.write.subscripts, *(factor.subscripts for factor in factors)]
    arrays = [scop.arrays[name] for name in (statement.write.array, *(f.tensor for f in factors))]
    forms = [
        _address(array, subscripts, scop, lower)
        for array, subscripts in zip(arrays, places, strict=True)
    ]
    for array, form in zip(arrays, forms, strict=True):
        if isinstance(form, str):
            return f"{array.name} {form}"
    strides = [form[0] for form in forms if not isinstance(form, str)]
    offsets = [form[1] for form in forms if not isinstance(form, str)]
    found = _classes(statement.indices, extents, strides)
    if isinstance(found, str):
        return found
    (batch, rows, columns, terms), steps = found
    result, left, right = (
        Matrix(array.name, array.dtype.name, offset, *own)
        for array, offset, own in zip(arrays, offsets, steps, strict=True)
    )
    summed = statement.reduction.dtype.name
    product = MatrixProduct(batch, rows, columns, terms, result, left, right, summed)
    for matrix, (_, height, width) in product.matrices:
        if leading_dimension(matrix, height, width) is None:
            both = f"{matrix.row} and {matrix.column}"
            return f"{matrix.array} has the strides {both}: no rows or columns in memory"
    return product


def with_initialisation(statements: Sequence[Statement]) -> tuple[Statement, bool] | None:
    """Return the update among *statements*, and whether the others initialise what it adds to."""
    updates = [s for s in statements if s.kind is Kind.UPDATE]
    inits = [s for s in statements if s.kind is Kind.INIT]
    if len(updates) != 1 or len(inits) + 1 != len(statements) or len(inits) > 1:
        return None
    (update,) = updates
    if any(s.source_name != update.source_name for s in inits):
        return None
    if not inits:
        return update, False
    (init,) = inits
    first, then = (s.write.relation.intersect_domain(s.domain).range() for s in (init, update))
    return (update, True) if bool(first.is_equal(then)) else None


def _why_not_plain(scop: Scop, statement: Statement) -> str | None:
    """Return why *statement* is no sum of products of two loads over a box, or None."""
    reduction, value = statement.reduction, statement.value
    if statement.kind is not Kind.UPDATE or reduction is None or value is None:
        return "it is no sum"
    if reduction.operator is not Operator.ADD:
        return "it is no sum"
    factors = factors_of(value)
    if factors is None:
        return "it is not of two tensors alone"
    if statement.conditions or statement.companion is not None or statement.is_atomic:
        return "conditions leave terms out"
    reads = statement.reads
    if not statement.write.is_exact or not all(read.is_exact for read in reads):
        return "data choose its elements"
    types = {scop.arrays[factor.tensor].dtype for factor in factors}
    written = scop.arrays[statement.write.array].dtype
    if len(types) > 1 or TYPES.get(min(types, key=str)) != reduction.dtype:
        return f"its operands are {' and '.join(sorted(map(str, types)))}"
    if written not in (*types, reduction.dtype):
        return f"its result is {written}"
    if any(factor.tensor == statement.write.array for factor in factors):
        return "it reads its result"
    return None if _is_box(statement) else "its indices depend on one another"


def _is_box(statement: Statement) -> bool:
    box = isl.Set.universe(statement.domain.get_space())
    for dim in range(len(statement.indices)):
        bounds = constant_bounds(statement.domain, dim)
        if bounds is None:
            return False
        box = within(box, isl.dim_type.set, dim, *bounds)
    return bool(box.is_subset(statement.domain))


def _box(statement: Statement) -> tuple[dict[str, int], dict[str, int]]:
    """Return { index -> its least value }, { index -> how many it has }."""
    lower, extents = {}, {}
    for dim, index in enumerate(statement.indices):
        low, high = constant_bounds(statement.domain, dim) or (0, -1)
        lower[index], extents[index] = low, high - low + 1
    return lower, extents


def _address(
    array: Array, subscripts: Sequence[Expr], scop: Scop, lower: Mapping[str, int]
) -> Linear | str:
    """Return the stride of each index in *array*, and where the first element is; or why not."""
    if array.shift is not None or any(not isinstance(s, int) for s in array.strides or ()):
        return "has strides that no matrix has"
    strides, first = dict[str, int](), 0
    for subscript, step, origin in zip(subscripts, array_strides(array), array.origin, strict=True):
        form = linear(subscript, scop.sizes)
        if form is None or not isinstance(origin, int):
            return "is subscripted by what is not linear"
        factors, constant = form
        first += step * (constant - origin)
        for index, factor in factors.items():
            strides[index] = strides.get(index, 0) + factor * step
    first += sum(step * lower[index] for index, step in strides.items())
    if any(step < 0 for step in strides.values()):
        return "is read backwards"
    return strides, first


# --- classes of indices ----------------------------------------------------------------------

# Which of result, left and right have an index of the class.
_BATCH, _ROWS, _COLUMNS, _TERMS = (1, 1, 1), (1, 1, 0), (1, 0, 1), (0, 1, 1)
_NAMES = {_BATCH: "batch", _ROWS: "rows", _COLUMNS: "columns", _TERMS: "terms"}
_ALONE = {
    (1, 0, 0): "neither factor has the result's index {}",
    (0, 1, 0): "only the left factor has {}",
    (0, 0, 1): "only the right factor has {}",
    (0, 0, 0): "no tensor has {}",
}
_Run = tuple[int, Dims]  # an extent, and the strides in result, left and right


def _classes(
    indices: Sequence[str], extents: Mapping[str, int], strides: Sequence[Mapping[str, int]]
) -> tuple[tuple[int, int, int, int], tuple[Dims, Dims, Dims]] | str:
    """Return the extents of the classes, and the strides of the three matrices; or why not."""
    runs: dict[Dims, list[_Run]] = {kind: [] for kind in _NAMES}
    for index in indices:
        if extents[index] == 1:
            continue
        steps = strides[0].get(index, 0), strides[1].get(index, 0), strides[2].get(index, 0)
        kind = int(steps[0] > 0), int(steps[1] > 0), int(steps[2] > 0)
        if kind not in runs:
            return _ALONE[kind].format(index)
        runs[kind].append((extents[index], steps))
    merged = {kind: _coalesced(own) for kind, own in runs.items()}
    if not merged[_BATCH]:  # the outer run of rows or columns may be the batch
        doubled = next((k for k in (_ROWS, _COLUMNS) if len(merged[k]) == 2), None)
        if doubled is not None:
            merged[_BATCH] = [merged[doubled].pop(0)]
    for kind, own in merged.items():
        if len(own) > 1:
            return f"no single stride goes over the {len(own)} dimensions of its {_NAMES[kind]}"
    (batch, b), (rows, m), (columns, n), (terms, k) = (
        merged[kind][0] if merged[kind] else (1, (0, 0, 0)) for kind in _NAMES
    )
    return (batch, rows, columns, terms), (
        (b[0], m[0], n[0]), (b[1], m[1], k[1]), (b[2], k[2], n[2])
    )  # fmt: skip


def _coalesced(runs: list[_Run]) -> list[_Run]:
    """Return *runs*, the outermost first, those that follow one another in memory as one."""
    found: list[_Run] = []
    for extent, steps in sorted(runs, key=lambda run: run[1], reverse=True):
        if found:
            outer, before = found[-1]
            if all(one == extent * other for one, other in zip(before, steps, strict=True)):
                found[-1] = outer * extent, steps
                continue
        found.append((extent, steps))
    return found
