"""One product as tensor cores make it: its rows, columns and terms, and who brings its operands.

    C(m,n) +=! A(m,k) * B(k,n)        rows m, columns n, terms k
    A in boxes, or in vectors of threads; along the terms, or turned

See ``templates/tile_mma``, which has the tiles.
"""

from collections.abc import Sequence
from math import prod

from tcdsl.costmodel.chip import Feature
from tcdsl.costmodel.locality import array_strides, coefficient_of, stride_divisors
from tcdsl.lang.comprehension import Binary, Cast, Expr, Index, Load, Operator, indices_in
from tcdsl.poly.isl_utils import divisor_of
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Access, Array
from tcdsl.rewrites.scop.column_planes import is_planes, planes_of
from tcdsl.strategies.fragments import vector_of, why_no_box
from tcdsl.strategies.problem import Problem, analysis
from tcdsl.strategies.register_operands import is_along, is_in_registers, raw_bytes
from tcdsl.strategies.schedule import Axis
from tcdsl.strategies.tensor_types import (
    SPLIT_TERMS,
    has_groups,
    is_split,
    loads_of,
    why_not_made,
)

STEPS = (128, 64)  # bytes along the terms
BOX_BYTES_A_LINE = 128
FEW_ROWS = 32  # half of what four warps multiply together
# Of fewer terms results are too many to be stored one by one (16 x 100000 x 64: 11.3 us for 10.4).
TURNED_TERMS = 128
# Of rows, of columns; the reduced dimension whose terms are in a step, and the others.
Axes = tuple[Axis, Axis, int, tuple[int, ...]]


def is_in_parts(problem: Problem) -> bool:
    """Return whether each product of *problem* is made as several, of parts of its factors."""
    return is_split(operands_of(problem)[0].dtype, problem.options)


def why_not_split(problem: Problem) -> str | None:
    """Return why *problem*, if its factors are taken in parts, is not made here, or None."""
    axes = axes_of(problem)
    assert axes is not None
    if not is_in_parts(problem):
        return None
    extents = problem.shapes[problem.lead].extents
    others = prod(extents[dim] for dim in axes[3])
    step = BOX_BYTES_A_LINE // operands_of(problem)[0].dtype.size_bytes
    if others * (extents[axes[2]] - -(-extents[axes[2]] // step)) < SPLIT_TERMS:
        return "its sums are too short to be as accurate in three products of tf32"
    if are_columns_in_planes(problem):
        statement, (rows, _, _, _) = problem.shapes[problem.lead].statement, axes
        index = statement.indices[rows[problem.lead]]
        if any(is_planes(r.array) and has_index(r, index) for r in _reads(problem)):
            return "what is in planes are its rows"
    return why_not_boxes(problem)


def why_not_factors(problem: Problem) -> str | None:
    """Return why the summands are no products that tensor cores make, or None."""
    statement = problem.shapes[problem.lead].statement
    reduction, value = statement.reduction, statement.value
    if reduction is None or reduction.operator is not Operator.ADD:
        return "it is no sum"
    factors = [value.left, value.right] if isinstance(value, Binary) and value.op == "*" else []
    loads = [_loads_of(factor) for factor in factors]
    if len(loads) != 2 or not all(loads):
        return "its summands are not products of two elements"
    types = [own[0].dtype for own in loads]
    if reason := why_not_made(types, reduction.dtype, problem.gpu, problem.options):
        return reason
    if sum(map(len, loads)) != len(statement.reads):
        return "it has one operand"
    are_split = is_split(types[0], problem.options)
    return None if are_split or len(statement.reads) == 2 else "its factor in planes is no other"


def _loads_of(factor: Expr) -> tuple[Load, ...]:
    """Return the element that *factor* is, or its high and its low part; () if it is none."""
    if (planes := planes_of(factor)) is not None:
        return planes
    load = factor.operand if isinstance(factor, Cast) else factor
    return (load,) if isinstance(load, Load) else ()


@analysis
def are_columns_in_planes(problem: Problem) -> bool:
    """Return whether the parts of the columns' operand are in memory (column_planes.py)."""
    return any(is_planes(array.name) for array in operands_of(problem))


@analysis
def in_registers(problem: Problem) -> bool:
    """Return whether an operand is computed in registers (register_operands.py)."""
    statement = problem.shapes[problem.lead].statement
    return any(is_in_registers(read.array) for read in statement.reads)


@analysis
def axes_of(problem: Problem) -> Axes | None:
    """Return the axes of rows and columns of the lead, and its reduced indices, or None."""
    shape = problem.shapes[problem.lead]
    statement = shape.statement
    reduced = [d for d, r in enumerate(shape.roles) if r is Role.REDUCED and shape.extents[d] > 1]
    if not reduced or any(role is Role.ORDERED for role in shape.roles):
        return None
    if len(problem.parallel) < sum(role is Role.PARALLEL for role in shape.roles):
        return None
    common = [
        d
        for d in reduced
        if all(Index(statement.indices[d]) in r.subscripts for r in _reads(problem))
    ]
    if not common:
        return None
    term = max(common, key=lambda d: shape.extents[d])
    one, other = (
        [axis for axis in problem.parallel if _is_only_in(problem, axis, number)]
        for number in (0, 1)
    )
    if not one or not other:
        return None
    longest = [max(axes, key=problem.extent) for axes in (one, other)]
    # Neighbours in what is written are columns, whose pairs a thread holds.  Those of one or two
    # values may lie as close together: what a thread holds is in the order of the subscripts.
    column = min(longest, key=lambda axis: _order_of(problem, axis))
    row = next(axis for axis in longest if axis is not column)
    axes = row, column, term, tuple(d for d in reduced if d != term)
    return (column, row, *axes[2:]) if _is_turned(problem, axes) else axes


def _is_turned(problem: Problem, axes: Axes) -> bool:
    """Return whether rows are to be columns: four warps multiply 64 rows, but 8 columns and more.

    That is where rows are few, or their operand alone is as columns' has to be: from registers the
    four warps take that of rows.
    """
    if in_registers(problem):
        statement, column = problem.shapes[problem.lead].statement, axes[1][problem.lead]
        index = statement.indices[column]
        return any(is_in_registers(r.array) and has_index(r, index) for r in _reads(problem))
    factors = [problem.scop.arrays[read.array].dtype for read in _reads(problem)]
    if why_not_boxes(problem):
        return False
    rows, columns = _are_along(problem, axes)
    # Few columns are no whole atoms of 128 bytes: their operand has to lie along the terms.
    has_few = rows and problem.extent(axes[0]) <= FEW_ROWS <= problem.extent(axes[1])
    has_few = has_few and problem.shapes[problem.lead].extents[axes[2]] >= TURNED_TERMS
    if is_split(factors[0], problem.options):
        return has_few and not are_columns_in_planes(problem)
    own, turned = (
        all(has_groups(factor, problem.options, is_along=along) for factor in factors)
        for along in ((rows, columns), (columns, rows))
    )
    return turned and (has_few or not own)


def _order_of(problem: Problem, axis: Axis) -> tuple[int, int]:
    """Return how far results along *axis* are apart, and how early its subscript stands."""
    shape, dim = problem.shapes[problem.lead], axis[problem.lead]
    index = shape.statement.indices[dim]
    subscripts = enumerate(shape.statement.write.subscripts)
    position = max((n for n, one in subscripts if index in indices_in(one)), default=0)
    return shape.strides[0][dim], -position


def _is_only_in(problem: Problem, axis: Axis, number: int) -> bool:
    """Return whether the index of *axis* is in the read *number* of the lead, alone there."""
    statement = problem.shapes[problem.lead].statement
    index = statement.indices[axis[problem.lead]]
    reads = _reads(problem)
    mine, other = reads[number], reads[1 - number]
    return has_index(mine, index) and not has_index(other, index)


def has_index(access: Access, index: str) -> bool:
    return index in indices_in(*access.subscripts)


def why_not_copied(problem: Problem) -> str | None:
    """Return why a tile of an operand is not copied in vectors, or None."""
    axes = axes_of(problem)
    assert axes is not None
    row, column, reduced, _ = axes
    statement = problem.shapes[problem.lead].statement
    indices = [statement.indices[axis[problem.lead]] for axis in (row, column)]
    term = statement.indices[reduced]
    for read in statement.reads:
        array = problem.scop.arrays[read.array]
        strides = array_strides(array)
        (own,) = (index for index in indices if has_index(read, index))
        if strides[-1] != 1 or read.subscripts[-1] not in (Index(own), Index(term)):
            return f"neighbours in {read.array} are along no index of the product"
        if Index(term) not in read.subscripts:
            return f"{read.array} has a window along {term}"
        if _has_more_terms(problem, read, reduced):
            return f"{read.array} goes on where the sum ends, inside a step"
        along = [s for s in read.subscripts if own in indices_in(s)]
        if len(along) != 1 or coefficient_of(along[0], own) != 1:
            return f"{read.array} has a window with gaps"
        if array.shift is not None or vector_of(array) == 1:
            return f"rows of {read.array} are not all aligned to 4 bytes"
    if any(low for name in problem.group.members for low in problem.shapes[name].lower):
        return "it begins elsewhere than at 0"
    return None if is_boxed(problem) else why_not_whole_rows(problem)


def why_not_whole_rows(problem: Problem) -> str | None:
    """Return why threads do not copy an operand in vectors, or None."""
    statement = problem.shapes[problem.lead].statement
    for read in statement.reads:
        array = problem.scop.arrays[read.array]
        inner = next(d for d, i in enumerate(statement.indices) if Index(i) == read.subscripts[-1])
        if divisor_of(problem.end(problem.lead, inner)) % vector_of(array):
            return f"rows of {read.array} end inside of what a copy moves at once"
    return None


def _has_more_terms(problem: Problem, read: Access, reduced: int) -> bool:
    """Return whether a step after the last of the terms *reduced* would find elements of *read*.

    What a step has beyond the sum must be 0 in both operands, for 0 times infinity is none.
    """
    shape = problem.shapes[problem.lead]
    dim = read.subscripts.index(Index(shape.statement.indices[reduced]))
    end, extent = problem.end(problem.lead, reduced), problem.scop.arrays[read.array].shape[dim]
    if isinstance(end, int) or isinstance(extent, int):
        return shape.extents[reduced] % max(STEPS) != 0 and extent != shape.extents[reduced]
    return not extent.is_equal(end)


def why_not_boxes(problem: Problem) -> str | None:
    """Return why no copies of whole boxes bring the operands of *problem*, or None."""
    gpu = problem.gpu
    if not (gpu.has(Feature.WARPGROUP_PRODUCTS) and gpu.has(Feature.BULK_COPY)):
        return f"{gpu.arch} has no bulk copies of boxes (TMA)"
    reasons = (why_no_box(problem.scop.arrays[read.array]) for read in _reads(problem))
    return next((reason for reason in reasons if reason), None)


def is_boxed(problem: Problem) -> bool:
    """Return whether four warps multiply what boxes bring of *problem*, none in parts."""
    axes = axes_of(problem)
    assert axes is not None
    if is_in_parts(problem) or why_not_boxes(problem):
        return False
    along, factors = _are_along(problem, axes), operands_of(problem)
    return all(has_groups(one.dtype, problem.options, is_along=along) for one in factors)


def operands_of(problem: Problem) -> list[Array]:
    """Return the factors' arrays, in the order of the reads."""
    return [problem.scop.arrays[read.array] for read in _reads(problem)]


def _reads(problem: Problem) -> tuple[Access, ...]:
    """Return the reads of the factors, of one in planes that of its high part."""
    statement = problem.shapes[problem.lead].statement
    value = statement.value
    assert isinstance(value, Binary), "why_not_factors"
    firsts = {_loads_of(factor)[0] for factor in (value.left, value.right)}
    found = {(load.tensor, load.subscripts) for load in firsts}
    return tuple(read for read in statement.reads if (read.array, read.subscripts) in found)


def loads_for(problem: Problem) -> tuple[int, int]:
    """Return the instructions with which a thread gets its part of 16 rows, and 16 columns."""
    axes = axes_of(problem)
    assert axes is not None
    dtype = operands_of(problem)[0].dtype
    rows, columns = _are_along(problem, axes)
    return loads_of(dtype, is_along=rows), loads_of(dtype, is_along=columns)


def _are_along(problem: Problem, axes: Axes) -> tuple[bool, bool]:
    """Return whether neighbours in the rows' and in the columns' operand are along the terms."""
    statement, (row, column, term, _) = problem.shapes[problem.lead].statement, axes
    own = [statement.indices[axis[problem.lead]] for axis in (row, column)]
    rows, columns = (next(r for r in _reads(problem) if has_index(r, index)) for index in own)
    last = Index(statement.indices[term])
    return rows.subscripts[-1] == last, columns.subscripts[-1] == last


def has_whole_atoms(problem: Problem, columns: int) -> bool:
    """Return whether a tile of *columns* has whole atoms of 128 bytes, which boxes fill."""
    axes = axes_of(problem)
    assert axes is not None
    statement = problem.shapes[problem.lead].statement
    index = statement.indices[axes[1][problem.lead]]
    read = next(read for read in statement.reads if has_index(read, index))
    size_bytes = columns * problem.scop.arrays[read.array].dtype.size_bytes
    return read.subscripts[-1] != Index(index) or size_bytes % BOX_BYTES_A_LINE == 0


@analysis
def odd_lines(problem: Problem) -> tuple[bool, bool]:
    """Return whether lines of boxes are in two of the cache's, of rows' and of columns' operand.

    That is where strides are no multiples of a line.  Of half types: others have not been timed.
    """
    axes = axes_of(problem)
    assert axes is not None
    if not operands_of(problem)[0].dtype.is_half:
        return False, False
    statement, found = problem.shapes[problem.lead].statement, list[bool]()
    for axis in axes[:2]:
        index = statement.indices[axis[problem.lead]]
        read = next(read for read in statement.reads if has_index(read, index))
        array = problem.scop.arrays[read.array]
        *strides, _ = stride_divisors(array)
        found.append(any(n * array.dtype.size_bytes % BOX_BYTES_A_LINE for n in strides))
    return found[0], found[1]


def step_of(problem: Problem) -> int:
    """Return the terms of a step that boxes bring: 128 bytes of each line.

    An operand that is computed in registers may have elements of fewer bytes.
    """
    step = BOX_BYTES_A_LINE // operands_of(problem)[0].dtype.size_bytes
    narrow = in_registers(problem) and is_along(problem)
    return max(step, BOX_BYTES_A_LINE // raw_bytes(problem)) if narrow else step


def has_whole_lines(problem: Problem, rows: int) -> bool:
    """Return whether a tile of *rows* of an operand in registers has lines of whole atoms."""
    if not in_registers(problem) or is_along(problem):
        return True
    return rows * raw_bytes(problem) % BOX_BYTES_A_LINE == 0


def holds_columns(each: Sequence[Problem]) -> bool:
    """Return whether the second-level cache holds what the columns of all products are made of."""
    arrays: dict[str, int] = {}
    for problem in each:
        axes = axes_of(problem)
        assert axes is not None
        statement = problem.shapes[problem.lead].statement
        index = statement.indices[axes[1][problem.lead]]
        names = [read.array for read in statement.reads if has_index(read, index)]
        arrays |= {name: problem.scop.arrays[name].size_bytes() or 0 for name in names}
    return sum(arrays.values()) <= each[0].gpu.l2_bytes / 2
