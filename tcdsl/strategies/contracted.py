"""What a contraction is to tiles: the axes that its operands share, and what a step reads of them.

    C(m,n) +=! A(m,k) * B(k,n)     row      m, which B does not mention
                                   column   n, which A does not mention; neighbours in C
                                   step     k, the longest reduced axis
                                   A        64 x 16 of a step, transposed: results are neighbours

Operands may be windows: what is copied is the box around what an iteration reads.
"""

from collections.abc import Collection, Mapping, Sequence
from math import prod

from tcdsl.costmodel import gpu_thresholds
from tcdsl.costmodel.chip import BANK_BYTES
from tcdsl.costmodel.locality import array_strides, coefficient_of
from tcdsl.costmodel.tiles import TileConfig
from tcdsl.lang.comprehension import Index, indices_in
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Access, Kind
from tcdsl.rewrites.scop.rfactor import has_terms, why_not_rfactored
from tcdsl.strategies.problem import Problem, analysis
from tcdsl.strategies.schedule import VECTOR_BYTES, Axis, Operand, Tile

MIN_WORK = gpu_thresholds.TILED_MULTIPLICATIONS
LEAST_COPY_BYTES = BANK_BYTES  # that move past the registers


@analysis
def why_not_contracted(problem: Problem) -> str | None:
    """Return why the problem is no contraction for tiles, whatever their sizes, or None."""
    shape = problem.shapes[problem.lead]
    statement = shape.statement
    if reason := why_not_rfactored(statement):
        return reason
    if statement.conditions:
        return "its terms have conditions"
    if not has_terms(problem.scop, statement):
        return "some results have no terms"
    if shape.has_open:
        return "a size is open"
    if shape.instances < MIN_WORK:
        return f"it has {shape.instances} multiplications: tiles need {MIN_WORK}"
    if any(role is Role.ORDERED for role in shape.roles):
        return "it is a recurrence"
    # Nobody would wait for copies of an operand that a guard leaves no element of.
    if unread := next((read.array for read in statement.reads if read.relation.is_empty()), None):
        return f"it reads no element of {unread}"
    if Role.REDUCED not in shape.roles:
        return "nothing is reduced"
    if len(problem.parallel) < sum(role is Role.PARALLEL for role in shape.roles):
        return "a member does not share all of its parallel axes"
    return why_not_after(problem)


def why_not_after(problem: Problem) -> str | None:
    """Return why not all other members follow the lead with what they need of it, or None."""
    for name in problem.group.members:
        if name != problem.lead and problem.rest_of(name) > 1:
            return f"{name} has axes of its own"
        is_before = problem.scop.position(name) < problem.scop.position(problem.lead)
        if is_before or problem.shapes[name].statement.kind is Kind.CHECK:
            return f"{name} comes before it"
    return None


def step_dim(problem: Problem) -> int:
    """Return the dimension of the lead that steps are along: the longest reduced one."""
    shape = problem.shapes[problem.lead]
    reduced = [d for d, role in enumerate(shape.roles) if role is Role.REDUCED]
    return max(reduced, key=lambda d: (shape.extents[d], -d))


@analysis
def axes_of(problem: Problem, block: tuple[int, int]) -> tuple[Axis, Axis] | None:
    """Return the axes (row, column) that fill half of a *block*: columns are neighbours in memory.

    None if no two axes are each missing in an operand.
    """
    reads = _reads(problem)
    movable = [a for a in problem.parallel if any(row[a[problem.lead]] == 0 for row in reads)]
    stride = problem.shapes[problem.lead].strides[0]
    for column in sorted(movable, key=lambda axis: stride[axis[problem.lead]]):
        for row in sorted(movable, key=lambda axis: -problem.extent(axis)):
            is_filled = problem.extent(row) >= block[0] // 2
            is_filled = is_filled and problem.extent(column) >= block[1] // 2
            if row is not column and is_filled and _are_crossed(problem, row, column, reads):
                return row, column
    return None


def _reads(problem: Problem) -> Sequence[tuple[int, ...]]:
    """Return the strides of the lead's reads."""
    shape = problem.shapes[problem.lead]
    return shape.strides[len(shape.statement.writes) :]


def _are_crossed(
    problem: Problem, row: Axis, column: Axis, reads: Sequence[tuple[int, ...]]
) -> bool:
    """Return whether one operand has *row* without *column*, another the reverse."""
    r, c = row[problem.lead], column[problem.lead]
    return any(x[r] and not x[c] for x in reads) and any(x[c] and not x[r] for x in reads)


def run_of(problem: Problem, axis: Axis) -> int:
    """Return how many results along *axis* may be neighbours: as many as an access moves.

    Windows begin anywhere: threads that are neighbours read neighbours there.
    """
    statement = problem.shapes[problem.lead].statement
    index = statement.indices[axis[problem.lead]]
    accesses = *statement.writes, *statement.reads
    for subscript in (s for access in accesses for s in access.subscripts):
        if subscript != Index(index) and index in indices_in(subscript):
            return 1
    arrays = (problem.scop.arrays[access.array] for access in accesses)
    return max(1, VECTOR_BYTES // max(4, *(array.dtype.size_bytes for array in arrays)))


def tiles_of(problem: Problem, config: TileConfig) -> list[Tile]:
    """Return the tiles of the shared axes: columns, rows, then those that blocks take alone."""
    found = axes_of(problem, config.block)
    assert found is not None, "space"
    row, column = found
    tiles = [
        Tile(axis, problem.extent(axis), problem.lower(axis), number, threads, size // run, run)
        for axis, number, threads, size, run in (
            (column, 0, config.threads_x, config.columns, config.column_run),
            (row, 1, config.threads_y, config.rows, config.row_run),
        )
    ]
    rest = [axis for axis in problem.parallel if axis not in (row, column)]
    return tiles + [problem.tile(axis) for axis in reversed(rest)]


def operands_of(problem: Problem, tiles: Sequence[Tile], step: int) -> tuple[Operand, ...]:
    """Return what a step of *step* values reads of the operands that shared memory is to hold."""
    shape = problem.shapes[problem.lead]
    statement = shape.statement
    spans = dict(zip(statement.indices, shape.extents, strict=True))
    for tile in tiles:
        spans[statement.indices[tile.axis[problem.lead]]] = tile.block
    spans[statement.indices[step_dim(problem)]] = step
    tiled = {statement.indices[tile.axis[problem.lead]] for tile in tiles[:2]}
    written = {write.array for write in statement.writes}
    found = []
    for read, factors in _factors(problem):
        sizes = _box(factors, spans)
        if sizes is None or prod(sizes) == 1 or not read.is_exact or read.array in written:
            continue
        order = _order(problem, read, tiled)
        width = _width(problem, read, sizes) if order == tuple(range(len(sizes))) else 1
        size_bytes = problem.scop.arrays[read.array].dtype.size_bytes
        found.append(Operand(read, sizes, order, width, size_bytes))
    return tuple(found)


def _box(
    factors: Sequence[Mapping[str, int | None]], spans: Mapping[str, int]
) -> tuple[int, ...] | None:
    """Return the sizes of the box that is read of indices with *spans* values; None: not affine."""
    if any(factor is None for of_dim in factors for factor in of_dim.values()):
        return None
    return tuple(
        1 + sum(abs(factor or 0) * (spans[name] - 1) for name, factor in of_dim.items())
        for of_dim in factors
    )


@analysis
def _factors(problem: Problem) -> list[tuple[Access, list[dict[str, int | None]]]]:
    """Return what the lead reads, and by what each index of each subscript is multiplied there.

    None: it is not affine.
    """
    reads = problem.shapes[problem.lead].statement.reads
    return [
        (
            read,
            [{n: coefficient_of(subscript, n) for n in indices_in(subscript)}
             for subscript in read.subscripts],
        )
        for read in {(read.array, read.subscripts): read for read in reads}.values()
    ]  # fmt: skip


def _order(problem: Problem, read: Access, tiled: Collection[str]) -> tuple[int, ...]:
    """Return the order of an operand's dimensions in its tile: results are neighbours there."""
    rank = len(read.subscripts)
    mentions = {
        dim for dim in range(rank) if not indices_in(read.subscripts[dim]).isdisjoint(tiled)
    }
    is_narrow = problem.scop.arrays[read.array].dtype.size_bytes < LEAST_COPY_BYTES
    if rank - 1 in mentions or not mentions or is_narrow:
        return tuple(range(rank))
    last = max(mentions)
    return (*(dim for dim in range(rank) if dim != last), last)


def _width(problem: Problem, read: Access, sizes: Sequence[int]) -> int:
    """Return how many neighbours a thread copies at once, along the last dimension of some size."""
    array = problem.scop.arrays[read.array]
    strides = array_strides(array)
    x = copied_along(sizes)
    width = VECTOR_BYTES // array.dtype.size_bytes
    while width > 1 and (
        sizes[x] % width or any(stride % width for dim, stride in enumerate(strides) if dim != x)
    ):
        width //= 2
    return width if strides[x] == 1 else 1


def copied_along(sizes: Sequence[int]) -> int:
    """Return the dimension of a box along which neighbouring threads copy: its last."""
    return max((dim for dim, size in enumerate(sizes) if size > 1), default=len(sizes) - 1)
