"""Elements in another order: a tile comes along neighbours of what is read, and is stored along
those of the result.

    T(n,h,w,c) = I(n,c,h,w)   --->   blocks over n, (h,w) / 64, c / 64
                                       threads along (h,w):  I.tile[c,(h,w)] = I
                                       threads along c:      T = I.tile

Threads along either side alone would touch as many lines of memory as elements.  Indices that are
neighbours in memory on one side are merged to one (index_classes), so that short ones fill tiles.
An open size may be the range of the slowest index of a side, and of one other index: a tile's
elements and lines end where the call's do.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod

from tcdsl.costmodel.chip import WARP
from tcdsl.costmodel.locality import Shape, array_strides, shape_of, stride_divisors
from tcdsl.lang.comprehension import Index, Load
from tcdsl.poly.loop_tree import AffineCoordinate, AnyCoordinate, LoopKind, X, Y
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Access, Array, Kind, Scop, Statement, loads_of
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.index_classes import (
    Merged,
    OpenEnd,
    merged_index,
    open_ends,
    why_not_whole,
    with_merged_indices,
)
from tcdsl.rewrites.scop.packing import Factor, Side, TileOf, pack
from tcdsl.schedule.fusion import Group
from tcdsl.strategies.fragments import At, Level
from tcdsl.strategies.lowering import Lowering
from tcdsl.strategies.problem import Problem, analysis
from tcdsl.strategies.schedule import VECTOR_BYTES, Tile, Transposition
from tcdsl.strategies.tensor_blocks import levels_of
from tcdsl.strategies.tensor_tree import TensorKernel
from tcdsl.strategies.tile_copies import along

MOST_LOADS = 2  # that tiles are for
LEAST = 8  # neighbours on either side


@dataclass(frozen=True, slots=True)
class Sides:
    """The indices of a transposition: neighbours of what is read, those of the result, others."""

    batch: Merged | None
    read: Merged
    written: Merged
    loads: tuple[Load, ...]  # whose neighbours are along *read*
    places: tuple[int, ...]  # of these among all loads of the statement
    widths: tuple[int, int]  # neighbours that one load, and one store, moves

    @property
    def all(self) -> tuple[Merged, ...]:
        own = () if self.batch is None else (self.batch,)
        return (*own, self.written, self.read)


@analysis
def sides_of(problem: Problem) -> Sides | str:
    """Return the sides of the statement of *problem*, or why it has none."""
    if len(problem.group.members) > 1 or problem.chunks is not None:
        return "several statements share its threads"
    shape = problem.shapes[problem.lead]
    statement, scop = shape.statement, problem.scop
    if statement.kind is not Kind.ASSIGN or statement.conditions or statement.library:
        return "it is no assignment of all elements"
    if any(role is not Role.PARALLEL for role in shape.roles):
        return "its elements wait for one another"
    if reason := why_not_whole(statement):
        return reason
    sizes = open_ends(statement)
    if sizes is None:
        return "an index ends at no linear function of an open size"
    written = _plain(scop.arrays[statement.write.array], statement.write.subscripts)
    if written is None or set(written) != set(statement.indices):
        return "its result's subscripts are not its indices"
    extents = dict(zip(statement.indices, shape.extents, strict=True))
    last = next((i for i in reversed(written) if extents[i] > 1), written[-1])
    loads = _transposed(scop, statement, extents, last)
    if not 0 < len(loads) <= MOST_LOADS:
        return "what it reads has the order of its result"
    return _sides(scop, statement, (extents, sizes), loads, written)


def _plain(array: Array, subscripts: Sequence[object]) -> list[str] | None:
    """Return the different indices that *subscripts* are, None if they are anything else."""
    names = [s.name for s in subscripts if isinstance(s, Index)]
    is_regular = array.shift is None and all(isinstance(s, int) for s in array.strides or ())
    is_plain = len(names) == len(subscripts) == len(set(names)) > 0
    return names if is_plain and is_regular else None


def _transposed(scop: Scop, statement: Statement, extents: dict[str, int], last: str) -> list[Load]:
    """Return what *statement* reads along another index than *last*: all along one."""
    assert statement.value is not None
    found: dict[Load, str] = {}
    for read in statement.reads:
        array = scop.arrays[read.array]
        names = _plain(array, read.subscripts)
        if names is None or not read.is_exact or last not in names:
            continue
        inner = _inner(array, names, extents)
        if inner in ("", last) or not statement.domain.is_subset(read.relation.domain()):
            continue
        load = _load_of(statement, read)
        if load is not None:
            found[load] = inner
    return list(found) if len(set(found.values())) == 1 else []


def _inner(array: Array, names: Sequence[str], extents: dict[str, int]) -> str:
    """Return the index along which elements of *array* are neighbours, "" if none is."""
    pairs = zip(names, array_strides(array), strict=True)
    return next((name for name, stride in pairs if stride == 1 and extents[name] > 1), "")


def _load_of(statement: Statement, read: Access) -> Load | None:
    assert statement.value is not None
    own = (load for load in loads_of(statement.value) if load.tensor == read.array)
    return next((load for load in own if load.subscripts == read.subscripts), None)


def _sides(
    scop: Scop,
    statement: Statement,
    ranges: tuple[dict[str, int], dict[str, OpenEnd]],
    loads: Sequence[Load],
    written: Sequence[str],
) -> Sides | str:
    """Return the sides, given the extents of indices and the ends that are open."""
    extents, sizes = ranges
    target, source = scop.arrays[statement.write.array], scop.arrays[loads[0].tensor]
    read = [s.name for s in loads[0].subscripts if isinstance(s, Index)]
    last = next(i for i in reversed(written) if extents[i] > 1)
    own = _run(source, read, extents, {last}, sizes)
    other = _run(target, written, extents, set(own), sizes)
    taken = set(statement.indices)
    rest = [i for i in statement.indices if i not in own and i not in other]
    rest.sort(key=lambda index: index not in sizes)  # the slowest one alone may be open
    if not own or not other:
        return "its neighbours in memory are apart"
    if sum(index in sizes for index in rest) > 1:
        return "several of its other indices end at open sizes"
    sides = [merged_index(side, extents, taken, sizes) for side in (own, other)]
    if min(side.extent for side in sides) < LEAST:
        return "it has few neighbours on one side"
    widths = (
        min(_width(scop.arrays[load.tensor], own, (extents, sizes)) for load in loads),
        _width(target, other, (extents, sizes)),
    )
    batch = merged_index(rest, extents, taken, sizes) if rest else None
    assert statement.value is not None
    places = tuple(loads_of(statement.value).index(load) for load in loads)
    return Sides(batch, sides[0], sides[1], tuple(loads), places, widths)


def _run(
    array: Array,
    names: Sequence[str],
    extents: dict[str, int],
    taken: set[str],
    sizes: Collection[str],
) -> list[str]:
    """Return the last of *names* that number neighbours in memory together, none of *taken*.

    The first of them alone may be among *sizes*, which end at open ones: what is beyond it lies
    elsewhere at every size.
    """
    found: list[str] = []
    step = 1
    for name, stride in reversed(list(zip(names, array_strides(array), strict=True))):
        if extents[name] == 1:
            continue
        if name in taken or stride != step:
            break
        found.insert(0, name)
        if name in sizes:
            break
        step *= extents[name]
    return found


def _width(
    array: Array, names: Sequence[str], ranges: tuple[dict[str, int], dict[str, OpenEnd]]
) -> int:
    """Return how many neighbours along *names* one access of 16 bytes or fewer moves."""
    extents, sizes = ranges
    run = prod(extents[name] for name in names)
    whole = prod(sizes[name].divisor if name in sizes else extents[name] for name in names)
    strides = zip(array_strides(array), stride_divisors(array), strict=True)
    outer = [divisor for stride, divisor in strides if stride >= run]
    width = VECTOR_BYTES // array.dtype.size_bytes
    while width > 1 and (whole % width or any(divisor % width for divisor in outer)):
        width //= 2
    return width


def transposing_kernel(problem: Problem, how: Transposition) -> TensorKernel:
    """Return the loops of *problem* by tiles."""
    sides = sides_of(problem)
    assert not isinstance(sides, str), sides
    lead = problem.lead
    scop = with_merged_indices(problem.scop, [lead], sides.all)
    statement = scop.by_name[lead]
    shape = shape_of(scop, statement, (Role.PARALLEL,) * len(statement.indices))
    outer = _blocks(problem, sides, how, scop, shape)
    at = {one.name: At(statement.indices.index(one.name)) for one in sides.all}
    levels = _levels(at[sides.read.name], at[sides.written.name], how.tile, how.store, how.threads)
    kernel = TensorKernel(
        scop, lead, outer, {}, (), (lead,), (), {lead: levels}, (),
    )  # fmt: skip
    for number in range(len(sides.loads)):
        kernel = _with_tile(kernel, sides, how, number)
    return kernel


def _blocks(
    problem: Problem, sides: Sides, how: Transposition, scop: Scop, shape: Shape
) -> tuple[dict[str, Level], ...]:
    lead, names = problem.lead, scop.by_name[problem.lead].indices
    cut = [(sides.read, how.tile[0]), (sides.written, how.tile[1])]
    cut += [(sides.batch, 1)] if sides.batch is not None else []
    axes = [{lead: names.index(one.name)} for one, _ in cut]
    tiles = [
        Tile(axis, one.extent, 0, repeat=size) for axis, (one, size) in zip(axes, cut, strict=True)
    ]
    group = Group((lead,), tuple(axes))
    loops = Lowering(group, {lead: shape}, problem.gpu, tiles).block_loops()
    return tuple(levels_of(replace(loop, limit=0)) for loop in loops)


def _with_tile(kernel: TensorKernel, sides: Sides, how: Transposition, number: int) -> TensorKernel:
    """Return *kernel* with one of what it reads from a tile."""
    lead = kernel.name
    value = kernel.scop.by_name[lead].value
    assert value is not None
    load = loads_of(value)[sides.places[number]]
    outer: list[tuple[AnyCoordinate, int]] = [
        (level[lead].coordinate, level[lead].extent) for level in kernel.outer
    ]
    tile = (
        Side(sides.written.name, how.tile[1], sides.written.end),
        Side(sides.read.name, how.tile[0], sides.read.end),
    )
    name = f"{load.tensor}.tile{number}{lead}"
    packed = pack(kernel.scop, lead, Factor(load, load), outer, TileOf(name, tile, False))
    blocks = tuple(
        {**loop, packed.copy: along(loop[lead], packed.outer[depth])}
        for depth, loop in enumerate(kernel.outer)
    )
    line, within = map(At, packed.elements)
    own = _levels(line, within, (how.tile[1], how.tile[0]), how.load, how.threads)
    return replace(
        kernel, scop=packed.scop, outer=blocks, inside=(packed.copy, *kernel.inside),
        levels={**kernel.levels, packed.copy: own},
    )  # fmt: skip


def _levels(
    line: At, within: At, sizes: tuple[int, int], run: tuple[int, int], threads: int
) -> list[Level]:
    """Return the loops over a tile's lines and what is in one.

    :arg run: how many neighbours a thread has at once, and how many threads of a warp follow one
        another in a line; the others are in other lines.
    """
    vector, apart = run
    lines, length = sizes
    at_once = WARP // apart
    thread = AffineCoordinate(((apart, line.digit(1, at_once)), (1, within.digit(vector, apart))))
    warps = threads // WARP
    levels = [
        Level(LoopKind.THREAD, thread, WARP, X, WARP),
        Level(
            LoopKind.THREAD, line.digit(at_once, warps), min(warps, -(-lines // at_once)), Y, warps
        ),
    ]
    if lines > at_once * warps:
        turns = lines // (at_once * warps)
        levels.append(Level(LoopKind.UNROLL, line.digit(at_once * warps, turns), turns))
    if length > vector * apart:
        turns = length // (vector * apart)
        levels.append(Level(LoopKind.UNROLL, within.digit(vector * apart, turns), turns))
    return [*levels, Level(LoopKind.LANES, within.digit(1, vector), vector)]
