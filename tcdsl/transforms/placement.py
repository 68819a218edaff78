"""Where each scratch array lives: in an iteration of the loops around its uses, or in memory.

Let W = { s -> e } be all accesses to an array, and P = { s -> p } the coordinates of the first d
loops around all of them.  If W^-1 . P is single valued, every element lives within one iteration of
these loops, and the array may be declared inside them.  Its index then drops what the loops
determine: a dimension whose index a loop walks in tiles of T keeps T elements, the remainder.

    for i:  for j: e[i, j] = ...      --->   for i:  { float e[J];  for j: e[j] = ...
            for j: ... e[i, j] ...                                  for j: ... e[j] ... }

Every parallel loop must be among the d loops, or threads would share the array.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import islpy as isl

from tcdsl.lang.comprehension import Index
from tcdsl.poly.loop_tree import (
    AnyCoordinate,
    Loop,
    LoopKind,
    Node,
    loops_around,
    statements_of,
)
from tcdsl.poly.scop import Access, Array, Scop, Statement, Storage

MAX_LOCAL_BYTES = 64 << 10  # of one array on a thread's stack


@dataclass(frozen=True, slots=True)
class LocalDim:
    """``(subscript - shift) % tile``; tile 0: the whole extent, ``subscript - shift``."""

    shift: int
    tile: int
    extent: int


@dataclass(frozen=True, slots=True)
class Placement:
    """A local array: declared in the body of *loop* (None: at the kernel's start)."""

    array: str
    loop: str | None
    dims: tuple[LocalDim, ...]

    def elements(self) -> int:
        return prod(dim.extent for dim in self.dims)


def accesses_of(scop: Scop, array: str) -> list[tuple[Statement, Access]]:
    """Return every access to *array*, with its statement."""
    return [
        (statement, access)
        for statement in scop.statements
        for access in (*statement.writes, *statement.reads)
        if access.array == array
    ]


def place(scop: Scop, trees: Sequence[Node]) -> dict[str, Placement]:
    """Return the local arrays of *scop*, whose kernels are *trees*; the others stay in memory."""
    placements = {}
    for array in scop.arrays.values():
        if array.storage is not Storage.SCRATCH:
            continue
        placement = _place(scop, trees, array)
        if placement is not None:
            placements[array.name] = placement
    return placements


def _place(scop: Scop, trees: Sequence[Node], array: Array) -> Placement | None:
    uses = accesses_of(scop, array.name)
    names = {statement.name for statement, _ in uses}
    tree = next((t for t in trees if names <= set(statements_of(t))), None)
    if tree is None or not names or any(access.inexact for _, access in uses):
        return None
    prefix = _common_prefix([loops_around(tree, name) for name in sorted(names)])
    depth = _lifetime_depth(scop, uses, prefix)
    inside = {
        loop.name
        for name in names
        for loop in loops_around(tree, name)
        if loop.kind is LoopKind.PARALLEL
    }
    outer = prefix[:depth]
    if not inside <= {loop.name for loop in outer}:
        return None
    dims = tuple(
        _FIXED if _is_fixed(uses, dim, outer) else _local_dim(array, dim, uses, outer)
        for dim in range(array.rank)
    )
    if any(dim is None for dim in dims):
        return None
    placement = Placement(
        array.name, outer[-1].name if outer else None, tuple(d for d in dims if d is not None)
    )
    size_bytes = placement.elements() * array.dtype.size_bytes
    return placement if size_bytes <= MAX_LOCAL_BYTES else None


_FIXED = LocalDim(0, 1, 1)


def _is_fixed(uses: Sequence[tuple[Statement, Access]], dim: int, outer: Sequence[Loop]) -> bool:
    """Return whether the loops *outer* determine the subscript of dimension *dim*.

    So do, for the coordinate of a chunk, the loop over the chunks.
    """
    subscripts: isl.Map | None = None
    for statement, access in uses:
        space = statement.domain.get_space()
        values = access.relation
        rank = values.dim(isl.dim_type.out)
        values = values.project_out(isl.dim_type.out, dim + 1, rank - dim - 1)
        values = values.project_out(isl.dim_type.out, 0, dim)
        iterations: isl.Map | None = None
        for loop in outer:
            aff = loop.coordinates[statement.name].function(space)
            one = isl.Map.from_pw_aff(isl.PwAff.from_aff(aff))
            iterations = one if iterations is None else iterations.flat_range_product(one)
        if iterations is None:
            return False
        own = iterations.reverse().apply_range(values.reset_tuple_id(isl.dim_type.out))
        subscripts = own if subscripts is None else subscripts.union(own)
    return subscripts is not None and bool(subscripts.is_single_valued())


def _common_prefix(paths: Sequence[tuple[Loop, ...]]) -> tuple[Loop, ...]:
    depth = 0
    while all(len(path) > depth for path in paths) and (
        len({path[depth].name for path in paths}) == 1
    ):
        depth += 1
    return paths[0][:depth]


def _lifetime_depth(
    scop: Scop, uses: Sequence[tuple[Statement, Access]], prefix: tuple[Loop, ...]
) -> int:
    """Return the number of loops of *prefix* that determine each element's only iteration."""
    for depth, loop in enumerate(prefix):
        lifetimes: isl.Map | None = None
        for statement, access in uses:
            aff = loop.coordinates[statement.name].function(statement.domain.get_space())
            iteration = isl.Map.from_pw_aff(isl.PwAff.from_aff(aff))
            touched = access.relation.reverse().apply_range(iteration)
            lifetimes = touched if lifetimes is None else lifetimes.union(touched)
        assert lifetimes is not None
        if not lifetimes.is_single_valued():
            return depth
    return len(prefix)


def _local_dim(
    array: Array, dim: int, uses: Sequence[tuple[Statement, Access]], outer: Sequence[Loop]
) -> LocalDim | None:
    """Return how dimension *dim* is indexed inside the loops *outer*."""
    origin, extent = array.origin[dim], array.shape[dim]
    tiles: set[tuple[int, int] | None] = {
        _finest_tile(statement, access, dim, outer) for statement, access in uses
    }
    whole = None  # of an open extent no array of constant size holds all
    if isinstance(origin, int) and isinstance(extent, int):
        whole = LocalDim(origin, 0, extent)
    if len(tiles) != 1 or None in tiles:
        return whole
    (tile,) = tiles
    assert tile is not None
    shift, size = tile
    if whole is not None and size >= whole.extent:
        return whole
    return LocalDim(shift, size, size)


def _finest_tile(
    statement: Statement, access: Access, dim: int, outer: Sequence[Loop]
) -> tuple[int, int] | None:
    """Return (shift, size) of the smallest tile of the subscript's index that *outer* fixes."""
    subscript = access.subscripts[dim]
    if not isinstance(subscript, Index) or subscript.name not in statement.indices:
        return None
    position = statement.indices.index(subscript.name)
    fixed = [
        loop.coordinates[statement.name]
        for loop in outer
        if loop.coordinates[statement.name].position == position
    ]
    fixed = [coordinate for coordinate in fixed if _is_determined(coordinate, fixed)]
    if not fixed:
        return None
    if len({coordinate.shift for coordinate in fixed if coordinate.div > 1}) > 1:
        return None
    finest = min(fixed, key=lambda coordinate: coordinate.div)
    shift = max(coordinate.shift for coordinate in fixed)
    return shift, finest.div


def _is_determined(coordinate: AnyCoordinate, fixed: Sequence[AnyCoordinate]) -> bool:
    """Return whether *coordinate*, with the others of *fixed*, tells ``(x - shift) / div``.

    A remainder does so only together with the quotient: of tiles that are taken in turn, every
    turn has another one, and they must not share a place.
    """
    return coordinate.mod == 0 or any(
        other.div == coordinate.div * coordinate.mod
        and other.shift == coordinate.shift
        and _is_determined(other, fixed)
        for other in fixed
        if other is not coordinate
    )


def local_functions(
    placement: Placement, access: Access, statement: Statement, functions: Mapping[int, isl.PwAff]
) -> list[isl.PwAff]:
    """Return the local index of each dimension, as functions of the statement's instance.

    :arg functions: dimension -> the subscript as a function of the instance.
    """
    result = []
    for position, dim in enumerate(placement.dims):
        function = functions[position]
        if dim.tile:
            moved = function.add_constant_val(isl.Val.int_from_si(isl.DEFAULT_CONTEXT, -dim.shift))
            result.append(moved.mod_val(isl.Val.int_from_si(isl.DEFAULT_CONTEXT, dim.tile)))
        else:
            result.append(
                function.add_constant_val(isl.Val.int_from_si(isl.DEFAULT_CONTEXT, -dim.shift))
            )
    return result
