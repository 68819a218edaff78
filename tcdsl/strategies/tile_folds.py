"""Reductions along the rows of a product, begun in its kernel while its results are in registers.

    C(m,n) +=! A(m,k) * B(k,n)         a thread:        own = op of f(C(m,n)), its n of a warp's W
    r(m) op=! f(C(m,n))         --->                    part[n / W, q, m] = own,  q = n / 2 % 4
                                       another kernel:  r(m) op= part[w, q, m]

A warp has all its W columns of a row, four threads of it a quarter each (``fragments``): so nothing
is exchanged, and what is added up afterwards is 4 / W of the results.  These need not be read
again, nor stored where nothing else reads them.

Legal iff each f(C(m,n)) is of members' values at (m, n), which the shared axes say; no other member
reads r, which is whole after all blocks; and the reduction may be taken in parts (``rfactor``).
"""

from dataclasses import replace
from math import prod

from tcdsl.costmodel.chip import WARP
from tcdsl.poly.loop_tree import AffineCoordinate, Coordinate, LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind, Scop
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.rfactor import (
    Partial,
    coordinate_name,
    initialisation,
    rfactor,
    why_not_rfactored,
)
from tcdsl.schedule.fusion import textual
from tcdsl.strategies.fragments import HALF, PAIR, QUAD, At, Level, WarpTiles, X, warps
from tcdsl.strategies.problem import Problem, own_analysis
from tcdsl.strategies.sketch import Axis


@dataclass(frozen=True, slots=True)
class Fold:
    """A reduction in parts: its updates, what initialises a thread's part and what stores it.

    *row*, *chunk* and *quarter* are the dimensions of the latter two by what they say: the row,
    which warp's columns, which of these; *dims* those of the updates' dimensions, for columns the
    chunk.  *left* is what adds the parts up after the kernel.
    """

    updates: str
    init: str
    store: str
    row: int
    chunk: int
    quarter: int
    dims: tuple[int, ...]
    left: tuple[str, ...]

    @property
    def parts(self) -> tuple[str, str]:
        """The statements on parts alone, whose dimensions are the same."""
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
    own = {axis[lead]: axis[name] for axis in problem.group.axes}
    reduced = [dim for dim, role in enumerate(shape.roles) if role is not Role.PARALLEL]
    if reduced != [own.get(column[lead])] or row[lead] not in own:
        return f"{name} does not reduce the rows of the product"
    if prod(e for dim, e in enumerate(shape.extents) if dim not in own.values()) > 1:
        return f"{name} has axes of its own"
    target = statement.write.array
    others = (problem.scop.by_name[other] for other in problem.group.members if other != name)
    if any(access.array == target for other in others for access in (*other.reads, *other.writes)):
        return f"{name} is read before it is whole"
    if any(low for low in shape.lower) or problem.is_open({name: reduced[0]}):
        return f"{name} has columns of its own"
    return None


def part_bytes(problem: Problem, name: str, columns: int) -> float:
    """Return the bytes of what a kernel with warps of *columns* leaves of the reduction *name*."""
    shape = problem.shapes[name]
    reduction = shape.statement.reduction
    assert reduction is not None
    instances = prod(shape.extents)
    return reduction.dtype.size_bytes * QUAD * instances / columns


def parts_of(problem: Problem, name: str, column: Axis, width: int) -> tuple[Partial, ...]:
    """Return the coordinates of the parts of the reduction *name* of warps with *width* columns."""
    dim = shared_axis(problem, column)[name]
    shape = problem.shapes[name]
    index, count = shape.statement.indices[dim], shape.extents[dim]
    return (
        Partial(index, 0, width, 0, -(-count // width), False),
        Partial(index, 0, PAIR, QUAD, QUAD, False),
    )


def shared_axis(problem: Problem, axis: Axis) -> Axis:
    """Return the axis of all members of *problem* that is *axis* for its lead."""
    return next(own for own in problem.group.axes if own[problem.lead] == axis[problem.lead])


def folded(scop: Scop, name: str, row: str, parts: tuple[Partial, ...]) -> tuple[Scop, Fold]:
    """Return *scop* with the reduction *name* in *parts*; *row* is its index of rows."""
    statement, column = scop.by_name[name], parts[0].index
    assert statement.reduction is not None
    after: list[str] = []
    if scop.arrays[statement.write.array].dtype != statement.reduction.dtype:
        # The parts are added in the reduction's type, and rounded once.
        scop, _, store = _rfactored(scop, name, ())
        after.append(store)
    first = initialisation(scop, scop.by_name[name])
    scop, _, fold = _rfactored(scop, name, parts)
    scop, init, store = _rfactored(scop, name, ())
    chunk, quarter = (coordinate_name(statement, number, is_lane=False) for number in (0, 1))
    at = scop.by_name[store].indices.index
    dims = tuple(at(chunk if index == column else index) for index in statement.indices)
    left = textual(scop, [*([first.name] if first else []), fold, *after])
    return scop, Fold(name, init, store, at(row), at(chunk), at(quarter), dims, left)


def _rfactored(scop: Scop, name: str, partials: tuple[Partial, ...]) -> tuple[Scop, str, str]:
    """Return *scop* after ``rfactor``, and the new statements: what initialises, what folds."""
    done = rfactor(scop, name, partials)
    new = [s for s in done.statements if s.name not in scop.by_name]
    (init,) = (s.name for s in new if s.kind is Kind.INIT)
    (fold,) = (s.name for s in new if s.kind is not Kind.INIT)
    return done, init, fold


def levels_of_parts(fold: Fold, tiles: WarpTiles) -> list[Level]:
    """Return the loops over the parts of a block, of what initialises and what stores them."""
    row, chunk, quarter = At(fold.row), At(fold.chunk), At(fold.quarter)
    rows = tiles.rows // HALF
    thread = AffineCoordinate(((QUAD, row.digit(1, HALF)), (1, quarter.digit(1, QUAD))))
    return [
        *warps(row, chunk, replace(tiles, columns=1)),
        Level(LoopKind.THREAD, thread, WARP, X, WARP),
        Level(LoopKind.UNROLL, row.digit(HALF, rows), rows),
    ]


def outer_of_parts(level: Level, fold: Fold, tiles: WarpTiles) -> Level:
    """Return the loop *level* of the updates of *fold*, over blocks or tiles, for its parts."""
    coordinate = level.coordinate
    assert isinstance(coordinate, Coordinate)
    position = fold.dims[coordinate.position]
    if position == fold.chunk:
        coordinate = replace(coordinate, div=tiles.warp_columns)
    return replace(level, coordinate=replace(coordinate, position=position))
