"""Reductions along the rows or columns of a product, begun while its results are in registers.

    C(m,n) +=! A(m,k) * B(k,n)         a thread:        own = op of f(C(m,n)), its n of a warp's W
    r(m) op=! f(C(m,n))         --->                    part[n / W, q, m] = own,  q = n / 2 % 4
                                       another kernel:  r(m) op= part[w, q, m]

    s(n) op=! f(C(m,n))                a thread:        own = op of f(C(m,n)), its m of a warp's R
                                --->   8 threads:       part[m / R, n] = op of own,  of all m % 8
                                       another kernel:  s(n) op= part[w, n]

A warp has all its W columns of a row, four threads of it a quarter each (``fragments``): so nothing
is exchanged, and what is added up afterwards is 4 / W of the results.  Of a column eight threads of
a warp have all R rows, and these fold what they have (``schedule/mapping.fold_stride``): 1 / R of
the results is left.  They need not be read again, nor stored where nothing else reads them.

Legal iff each f(C(m,n)) is of members' values at (m, n), which the shared axes say; no other member
reads r, which is whole after all blocks; and the reduction may be taken in parts (``rfactor``).
"""

from dataclasses import replace
from math import prod

from tcdsl.costmodel.chip import WARP
from tcdsl.costmodel.registers import REGISTER_BYTES
from tcdsl.poly.loop_tree import AffineCoordinate, Coordinate, LoopKind, X
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Scop
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.rfactor import (
    Partial,
    coordinate_name,
    initialisation,
    rfactor,
    why_not_rfactored,
)
from tcdsl.schedule.fusion import textual
from tcdsl.strategies.fragments import (
    COLUMNS,
    HALF,
    PAIR,
    QUAD,
    At,
    Level,
    WarpTiles,
    warps,
)
from tcdsl.strategies.problem import Problem, own_analysis
from tcdsl.strategies.schedule import Axis


@dataclass(frozen=True, slots=True)
class Fold:
    """A reduction in parts: its updates, what initialises a thread's part and what stores it.

    *kept*, *chunk* and *lane* are the dimensions of the latter two by what they say: the row or
    column; which warp's columns or rows; which of the threads that have some of these, where what
    stores has no such dimension if it folds them (*is_folded*).  *dims* are those of the updates'
    dimensions, for what is reduced the chunk.  *left* is what adds the parts up after the kernel.
    """

    updates: str
    init: str
    store: str
    kept: int
    chunk: int
    lane: int
    is_folded: bool
    dims: tuple[int, ...]
    left: tuple[str, ...]

    @property
    def parts(self) -> tuple[str, str]:
        """The statements on parts alone, of which the second may lack the lane."""
        return self.init, self.store


@own_analysis
def folds_of(problem: Problem) -> tuple[str, ...]:
    """Return the members that reduce along an axis along which the lead is parallel."""
    roles = {name: problem.shapes[name].roles for name in problem.group.members}
    return tuple(
        name
        for name in problem.group.members
        if any(
            roles[name][axis[name]] is Role.REDUCED
            and roles[problem.lead][axis[problem.lead]] is Role.PARALLEL
            for axis in problem.group.axes
        )
    )


@own_analysis
def without_folds(problem: Problem) -> Problem:
    """Return *problem* without the members that :func:`folds_of` names."""
    folds = folds_of(problem)
    if not folds:
        return problem
    return problem.of([name for name in problem.group.members if name not in folds])


def why_not_folded(problem: Problem, name: str, row: Axis, column: Axis) -> str | None:
    """Return why the reduction *name* is not begun in tiles of *row* and *column*, or None.

    :arg row, column: axes of ``without_folds``.
    """
    shape, lead = problem.shapes[name], problem.lead
    statement = shape.statement
    if reason := why_not_rfactored(statement):
        return f"{name}: {reason}"
    roles = problem.shapes[lead].roles  # a value for each term of the lead is none for its results
    own = {
        axis[lead]: axis[name] for axis in problem.group.axes if roles[axis[lead]] is Role.PARALLEL
    }
    reduced = [dim for dim, role in enumerate(shape.roles) if role is not Role.PARALLEL]
    along = [own.get(axis[lead]) for axis in (row, column)]
    if None in along or reduced not in ([along[0]], [along[1]]):
        return f"{name} reduces neither the rows nor the columns of the product"
    if prod(e for dim, e in enumerate(shape.extents) if dim not in own.values()) > 1:
        return f"{name} has axes of its own"
    target = statement.write.array
    others = (problem.scop.by_name[other] for other in problem.group.members if other != name)
    if any(access.array == target for other in others for access in (*other.reads, *other.writes)):
        return f"{name} is read before it is whole"
    if any(low for low in shape.lower) or problem.is_open({name: reduced[0]}):
        return f"{name} has rows or columns of its own"
    return None


def is_of_columns(problem: Problem, name: str, row: Axis) -> bool:
    """Return whether the reduction *name* is of columns: it reduces the axis *row*."""
    dim = shared_axis(problem, row)[name]
    return problem.shapes[name].roles[dim] is Role.REDUCED


def part_bytes(problem: Problem, name: str, row: Axis, tiles: WarpTiles) -> float:
    """Return the bytes of what a kernel with warps of *tiles* leaves of the reduction *name*."""
    shape = problem.shapes[name]
    reduction = shape.statement.reduction
    assert reduction is not None
    of_columns = is_of_columns(problem, name, row)
    share = 1 / tiles.rows if of_columns else QUAD / tiles.columns
    return reduction.dtype.size_bytes * prod(shape.extents) * share


def held_registers(problem: Problem, row: Axis, tiles: WarpTiles) -> int:
    """Return how many registers of a thread hold parts of what *problem* reduces."""
    found = 0
    for name in folds_of(problem):
        reduction = problem.shapes[name].statement.reduction
        assert reduction is not None
        of_columns = is_of_columns(problem, name, row)
        count = tiles.columns // QUAD if of_columns else tiles.rows // HALF
        found += count * -(-reduction.dtype.size_bytes // REGISTER_BYTES)
    return found


def parts_of(
    problem: Problem, name: str, axes: tuple[Axis, Axis], tiles: WarpTiles
) -> tuple[Partial, Partial]:
    """Return the coordinates of the parts of the reduction *name*: of warps, of a warp's threads.

    :arg axes: of rows and columns.
    """
    of_columns = is_of_columns(problem, name, axes[0])
    axis, size = (axes[0], tiles.rows) if of_columns else (axes[1], tiles.columns)
    dim, shape = shared_axis(problem, axis)[name], problem.shapes[name]
    index, count = shape.statement.indices[dim], shape.extents[dim]
    chunks = Partial(index, 0, size, 0, -(-count // size), False)
    if of_columns:
        return chunks, Partial(index, 0, 1, HALF, HALF, True)
    return chunks, Partial(index, 0, PAIR, QUAD, QUAD, False)


def shared_axis(problem: Problem, axis: Axis) -> Axis:
    """Return the axis of all members of *problem* that is *axis* for its lead."""
    return next(own for own in problem.group.axes if own[problem.lead] == axis[problem.lead])


def folded(scop: Scop, name: str, kept: str, parts: tuple[Partial, Partial]) -> tuple[Scop, Fold]:
    """Return *scop* with the reduction *name* in *parts*; *kept* is its index of what remains."""
    statement, (chunks, lanes) = scop.by_name[name], parts
    assert statement.reduction is not None
    first = initialisation(scop, scop.by_name[name])
    # Lanes that threads fold are stored as one; else each stores what it has in a register.
    of_memory, own = ((chunks,), (lanes,)) if lanes.is_lane else (parts, ())
    scop, _, fold = rfactor(scop, name, of_memory)
    number = len(of_memory) - 1 if not lanes.is_lane else 0
    lane = coordinate_name(scop.by_name[name], number, is_lane=lanes.is_lane)
    scop, begin, end = rfactor(scop, name, own)
    init, store = begin.name, end.name
    chunk = coordinate_name(statement, 0, is_lane=False)
    at = scop.by_name[init].indices.index
    dims = tuple(at(chunk if index == chunks.index else index) for index in statement.indices)
    left = textual(scop, [*([first.name] if first else []), fold.name])
    where = at(kept), at(chunk), at(lane)
    return scop, Fold(name, init, store, *where, lanes.is_lane, dims, left)


def levels_of_parts(fold: Fold, tiles: WarpTiles) -> dict[str, list[Level]]:
    """Return the loops over the parts of a block, of what initialises and what stores them."""
    kept, chunk, lane = At(fold.kept), At(fold.chunk), At(fold.lane)
    if not fold.is_folded:
        rows = tiles.rows // HALF
        thread = AffineCoordinate(((QUAD, kept.digit(1, HALF)), (1, lane.digit(1, QUAD))))
        own = [
            *warps(kept, chunk, replace(tiles, columns=1)),
            Level(LoopKind.THREAD, thread, WARP, X, WARP),
            Level(LoopKind.UNROLL, kept.digit(HALF, rows), rows),
        ]
        return dict.fromkeys(fold.parts, own)
    columns = tiles.columns // COLUMNS
    around = warps(chunk, kept, replace(tiles, rows=1))
    quarter = kept.digit(PAIR, QUAD)
    thread = AffineCoordinate(((QUAD, lane.digit(1, HALF)), (1, quarter)))
    results = [
        Level(LoopKind.UNROLL, kept.digit(COLUMNS, columns), columns),
        Level(LoopKind.LANES, kept.digit(1, PAIR), PAIR),
    ]
    return {
        fold.init: [*around, Level(LoopKind.THREAD, thread, WARP, X, WARP), *results],
        fold.store: [*around, Level(LoopKind.THREAD, quarter, QUAD, X, WARP), *results],
    }


def outer_of_parts(level: Level, fold: Fold, tiles: WarpTiles) -> Level:
    """Return the loop *level* of the updates of *fold*, over blocks or tiles, for its parts."""
    coordinate = level.coordinate
    assert isinstance(coordinate, Coordinate)
    position = fold.dims[coordinate.position]
    if position == fold.chunk:
        size = tiles.rows if fold.is_folded else tiles.columns
        coordinate = replace(coordinate, div=coordinate.div // size)
    return replace(level, coordinate=replace(coordinate, position=position))


def fold_steps(tiles: WarpTiles) -> float:
    """Return how many values the warps of a tile exchange, each for all of its threads, to fold."""
    steps = (WARP // QUAD).bit_length() - 1
    return tiles.threads / WARP * tiles.columns / QUAD * steps
