"""Both directions in one kernel: rows that are reduced, and columns of the same rows.

    s(i) +=! x(i,j)                       blocks over chunks c of the rows
    y(i,j) = x(i,j) * s(i)                  part[c,j] = 0                threads along j
    d(j) +=! x(i,j) * y(i,j)     --->       for the rows i of c
                                              r[j] = x(i,j)              in registers
                                              s = sum of r;  y(i,j) = r[j] * s
                                              part[c,j] += r[j] * y(i,j)
                                          d(j) = sum over c of part[c,j]  a kernel of its own

The axis i is parallel for what makes rows and reduced for what makes columns.  A thread has the
same columns of every row: their sums are its registers.  So whatever the rows are made of is read
once, where a kernel of each direction would read it twice.  Worth while where the rows and the sums
fit the registers of few enough threads, and where that takes less time than the kernels apart
(costmodel/row_column).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from tcdsl.costmodel.prefetches import bytes_ahead
from tcdsl.costmodel.row_column import RowsAndColumns, Share, best_share, shares
from tcdsl.poly.loop_tree import LoopKind
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Storage
from tcdsl.records import dataclass
from tcdsl.schedule.nesting import Piece
from tcdsl.schedule.plan import DEFAULT_CODE
from tcdsl.strategies.lowering import Chunk, Lane
from tcdsl.strategies.operations import is_chunkable
from tcdsl.strategies.problem import Problem, analysis
from tcdsl.strategies.row_registers import live_arrays, resident_arrays
from tcdsl.strategies.schedule import Axis, Schedule
from tcdsl.strategies.template import Template, assembled
from tcdsl.strategies.traffic import moved_bytes

MOST_CONFIGS = 24  # of the space: more are alike


@dataclass(frozen=True, slots=True)
class RowColumnConfig:
    """Threads of a row, and the rows of a block."""

    threads: int  # that share a row
    repeat: int  # vectors of a thread
    per_block: int  # values of the longest axis of rows that a block has
    resident_blocks: int  # of a multiprocessor
    vector: int = 1  # elements of a vector
    cluster: int = 1  # blocks that share a row
    rows: int = 1  # of a block at once


@dataclass(frozen=True, slots=True)
class Crossing:
    """The axes of a group whose members reduce rows and columns of the same rows."""

    mixed: tuple[Axis, ...]  # parallel for rows, reduced for columns; blocks share the first
    lanes: Mapping[str, int]  # member -> the dimension along which a row's elements are
    length: int  # of a row
    vector: int  # elements that a thread may take at once


def why_not(problem: Problem) -> str | None:
    """Return why rows and columns are not reduced in one kernel, or None."""
    if not problem.may_split:
        return "blocks may share nothing here"
    if crossing_of(problem) is None:
        return "it does not reduce both rows and columns of the same rows"
    if share_of(problem) is None:
        return "no block keeps a row and the sums of its columns"
    return None


def space(problem: Problem) -> Iterator[RowColumnConfig]:
    """Yield the configurations, first the one that the cost model prefers."""
    found, best = crossing_of(problem), share_of(problem)
    assert found is not None and best is not None, "why_not"
    others = sorted(shares(problem.gpu, directions_of(problem, found)), key=lambda s: s.seconds)
    for share in dict.fromkeys((best, *others[:MOST_CONFIGS])):
        yield RowColumnConfig(
            share.threads, share.repeat, share.per_block, share.resident_blocks, found.vector,
            share.cluster, share.rows
        )  # fmt: skip


def schedule(problem: Problem, config: RowColumnConfig) -> Schedule:
    """Return the schedule of blocks over chunks of rows, one row after another."""
    found = crossing_of(problem)
    assert found is not None, "why_not"
    lanes = {
        name: Lane(dim, 0, config.threads, config.vector, config.repeat, config.cluster)
        for name, dim in found.lanes.items()
    }
    resident = resident_arrays(problem, found.lanes, found.length)
    kept = f"rows of {', '.join(resident)} and " if resident else ""
    blocks = -(-problem.extent(found.mixed[0]) // config.per_block)
    sharing = "blocks" if config.cluster == 1 else f"clusters of {config.cluster} blocks"
    at_once = f", {config.rows} rows at once" if config.rows > 1 else ""
    why = (
        f"rows and columns: {blocks} {sharing} over chunks of {config.per_block} of"
        f" {problem.name_of(found.mixed[0])}, {config.threads} threads a row{at_once};"
        f" {kept}the sums of columns in registers"
    )
    is_dealt = problem.is_open(found.mixed[0])
    chunk = Chunk(found.mixed[0], config.per_block, is_dealt, threads=config.rows)
    schedule = assembled(problem, problem.unit_tiles, lanes, chunk, (why,))
    remaining = {
        name: _outside([axis[name] for axis in found.mixed], pieces)
        for name, pieces in schedule.remaining.items()
    }
    # Where the first axis is dealt to blocks it has a loop over what each takes at once, too.
    shared = {axis[problem.lead] for axis in found.mixed}
    turns = tuple(
        p
        for p in remaining[problem.lead]
        if p.coordinate.position in shared and p.kind is not LoopKind.THREAD
    )
    ahead = bytes_ahead(problem.gpu) if turns else 0
    code = replace(DEFAULT_CODE, prefetch_bytes=ahead, resident_blocks=config.resident_blocks)
    return replace(
        schedule, remaining=remaining, resident=resident, persistent=turns, code=code, layout=None
    )


@analysis
def crossing_of(problem: Problem) -> Crossing | None:
    """Return the axes of rows and columns, None if the group does not reduce both."""
    if problem.options.tile:  # tiles that are asked for are of one direction
        return None
    inner = problem.innermost(problem.lead)
    parallel = problem.parallel
    mixed = [a for a in problem.group.axes if a not in parallel and a[problem.lead] != inner]
    if not mixed or any(axis[problem.lead] == inner for axis in parallel):
        return None
    if not all(is_chunkable(axis, problem.shapes) for axis in mixed):
        return None
    mixed.sort(key=problem.extent, reverse=True)
    lanes: dict[str, int] = {}
    for name in problem.group.members:
        own = _own_dims(problem, name, mixed)
        if len(own) > 1 or not all(_is_along(problem, name, dim, inner) for dim in own):
            return None
        if own:
            lanes[name] = own[0]
    if not any(_sums_rows(problem, name, dim, mixed) for name, dim in lanes.items()):
        return None
    if not any(_column_bytes(problem, name, dim) for name, dim in lanes.items()):
        return None  # what is one number a row is for another kernel
    length = problem.shapes[problem.lead].extents[inner]
    return Crossing(tuple(mixed), lanes, length, _vector(problem, lanes, length))


@analysis
def share_of(problem: Problem) -> Share | None:
    """Return how blocks and threads share the rows, None if the group is not for one kernel."""
    found = crossing_of(problem)
    return None if found is None else best_share(problem.gpu, directions_of(problem, found))


def directions_of(problem: Problem, found: Crossing) -> RowsAndColumns:
    """Return what the cost model asks of rows and columns."""
    axes = (*problem.parallel, *found.mixed)
    moved = moved_bytes(problem.scop, problem.group, problem.shapes)
    sums_bytes = sum(_column_bytes(problem, name, dim) for name, dim in found.lanes.items())
    return RowsAndColumns(
        prod(map(problem.extent, problem.parallel)), prod(map(problem.extent, found.mixed)),
        problem.extent(found.mixed[0]), -(-found.length // found.vector), found.vector,
        _kept_bytes(problem, found) + sums_bytes, sums_bytes,
        moved // prod(map(problem.extent, axes)),
        sum(_sums_rows(problem, name, dim, found.mixed) for name, dim in found.lanes.items()),
    )  # fmt: skip


def _own_dims(problem: Problem, name: str, mixed: Sequence[Axis]) -> list[int]:
    """Return the dimensions of *name* that are not shared."""
    taken = {axis[name] for axis in (*problem.parallel, *mixed)}
    extents = problem.shapes[name].extents
    return [d for d, extent in enumerate(extents) if d not in taken and extent > 1]


def _is_along(problem: Problem, name: str, dim: int, inner: int) -> bool:
    """Return whether *dim* of *name* is a row like the lead's, and threads may share it."""
    own, lead = problem.shapes[name], problem.shapes[problem.lead]
    is_same = (own.lower[dim], own.extents[dim]) == (lead.lower[inner], lead.extents[inner])
    return is_same and problem.may_split_lane(name, dim)


def _sums_rows(problem: Problem, name: str, dim: int, mixed: Sequence[Axis]) -> bool:
    roles = problem.shapes[name].roles
    is_one_each = all(roles[axis[name]] is Role.PARALLEL for axis in mixed)
    return roles[dim] is Role.REDUCED and is_one_each


def _vector(problem: Problem, lanes: Mapping[str, int], length: int) -> int:
    resident = resident_arrays(problem, lanes, length)
    kept = {a for a in resident if problem.scop.arrays[a].storage is Storage.SCRATCH}
    return min(problem.lane_vector(n, d, kept, is_own=False) for n, d in lanes.items())


def _kept_bytes(problem: Problem, found: Crossing) -> int:
    """Return the bytes that a thread keeps for each column: of a row, and of what all rows read."""
    resident = resident_arrays(problem, found.lanes, found.length)
    widest = max((problem.scop.arrays[a].dtype.size_bytes for a in resident), default=0)
    return (live_arrays(problem, resident) + len(_of_all_rows(problem, found))) * max(widest, 4)


def _of_all_rows(problem: Problem, found: Crossing) -> set[str]:
    """Return the arrays of which every row reads the same elements, as weights of columns are."""
    arrays: set[str] = set()
    for name, dim in found.lanes.items():
        shape = problem.shapes[name]
        own = [axis[name] for axis in found.mixed]
        read = shape.strides[len(shape.statement.writes) :]
        for access, strides in zip(shape.statement.reads, read, strict=True):
            if strides[dim] and not any(strides[d] for d in own):
                arrays.add(access.array)
    return arrays


def _column_bytes(problem: Problem, name: str, dim: int) -> int:
    """Return the bytes of the sum of a column along *dim* by *name*, 0 if it sums none."""
    shape = problem.shapes[name]
    reduction = shape.statement.reduction
    if shape.roles[dim] is not Role.PARALLEL or reduction is None:
        return 0
    return max(reduction.dtype.size_bytes, 4)


def _outside(dims: Sequence[int], pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Return *pieces* with the turns of *dims* before all others, in their order; then threads."""
    own = [p for dim in dims for p in pieces if p.coordinate.position == dim]
    return (
        *(p for p in own if p.kind is not LoopKind.THREAD),
        *(p for p in own if p.kind is LoopKind.THREAD),
        *(p for p in pieces if p.coordinate.position not in dims),
    )


TEMPLATE = Template("row_column", RowColumnConfig, why_not, space, schedule)
