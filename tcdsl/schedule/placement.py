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
from dataclasses import replace
from enum import StrEnum
from math import prod
from types import MappingProxyType

import islpy as isl

from tcdsl.lang.comprehension import Index
from tcdsl.poly.isl_utils import along, greatest, val
from tcdsl.poly.loop_tree import (
    AnyCoordinate,
    Coordinate,
    Loop,
    LoopKind,
    Node,
    loops_around,
    statements_of,
)
from tcdsl.poly.scop import Access, Array, Scop, Statement, Storage
from tcdsl.records import dataclass

MAX_LOCAL_BYTES = 64 << 10  # of one array on a thread's stack
MAX_PANEL_BYTES = 512 << 10  # of one that a strategy has blocked for a cache


@dataclass(frozen=True, slots=True)
class LocalDim:
    """The digits of ``x = subscript - shift`` that the loops around do not tell.

    A part (d, n) is ``(x / d) % n``, or ``x / d`` if n is 0; coarser parts come first.
    """

    shift: int
    parts: tuple[tuple[int, int], ...]
    extent: int

    def index(self, function: isl.PwAff) -> isl.PwAff:
        """Return the index for a subscript that is *function* of the instance."""
        moved = function.add_constant_val(val(-self.shift))
        total: isl.PwAff | None = None
        for div, size in self.parts:
            part = moved.scale_down_val(val(div)).floor() if div > 1 else moved
            part = part.mod_val(val(size)) if size else part
            total = part if total is None else total.scale_val(val(size)).add(part)
        return moved.scale_val(val(0)) if total is None else total


@dataclass(frozen=True, slots=True)
class Ring:
    """Elements whose index along *dim* is the same modulo *buffers* have one place in turn.

    An element is there for fewer than *buffers* neighbouring iterations of *loops*, of which each
    is inside the one before it.
    """

    dim: int
    buffers: int
    loops: tuple[str, ...]


class Space(StrEnum):
    """The memory of a local array."""

    PRIVATE = "private"  # registers, or a thread's stack
    SHARED = "shared"  # of a block


class Layout(StrEnum):
    """Where the elements of a shared array are."""

    ROWS = "rows"  # row by row, padded
    # Vectors of a row change places, so that those of a column are in all banks (tc_swizzled).
    SWIZZLED = "swizzled"
    ATOMS = "atoms"  # as four warps multiply together: 64 elements of each row (tc_in_atoms)


@dataclass(frozen=True, slots=True)
class Placement:
    """A local array: declared in the body of *loop* (None: at the kernel's start).

    *padding* elements follow each row: of a shared array, so that columns are in different banks;
    of a CPU's, so that rows begin with a whole vector.
    A *staged* one is filled by asynchronous copies, which are waited for at the next barrier.
    A *dynamic* one is in shared memory that the launch asks for, as a staged one is.
    With a *ring* it holds what several iterations of a loop inside use.
    A *blocked* one fills a part of a cache.
    """

    array: str
    loop: str | None
    dims: tuple[LocalDim, ...]
    space: Space = Space.PRIVATE
    padding: int = 0
    is_staged: bool = False
    ring: Ring | None = None
    layout: Layout = Layout.ROWS
    is_dynamic: bool = False
    is_blocked: bool = False

    @property
    def extents(self) -> tuple[int, ...]:
        """The extents in memory, padding included."""
        plain = tuple(dim.extent for dim in self.dims)
        return (*plain[:-1], plain[-1] + self.padding) if plain else ()

    def elements(self) -> int:
        return prod(self.extents)

    @property
    def rows(self) -> int:
        """How many rows a buffer has."""
        buffers = 1 if self.ring is None else self.ring.buffers
        return self.elements() // (self.extents[-1] * buffers)


Placements = Mapping[str, Placement]


def print_placement(placement: Placement) -> str:
    """Return *placement* as text: its space, its extents in memory, how it is filled, and where.

    ``shared A.tile0[3, 64, 40], swizzled, copied asynchronously, 3 iterations of k0.k.2``
    """
    one = placement
    extents = f"[{', '.join(map(str, one.extents))}]" if one.elements() > 1 else ""
    parts = [f"{one.space} {one.array}{extents}"]
    parts += [] if one.layout is Layout.ROWS else [str(one.layout)]
    parts += ["copied asynchronously"] if one.is_staged else []
    if one.ring is not None:
        parts.append(f"{one.ring.buffers} iterations of {', '.join(one.ring.loops)}")
    parts += [] if one.loop is None else [f"in {one.loop}"]
    return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Request:
    """What a schedule says of where a local array is to be; the rest follows from its accesses.

    Where *space* is None, these tell it, too.  One of *stages* is filled by asynchronous copies,
    and has room for so many iterations at least.  A *large* one has more than a local array else:
    what the launch asks for of a block's shared memory, on a CPU a part of a cache.
    """

    space: Space | None = None
    stages: int = 0
    is_large: bool = False


NOTHING = Request()
HELD = Request(Space.PRIVATE)  # in registers, for some iterations of loops
LARGE = Request(is_large=True)
Requests = Mapping[str, Request]
NO_REQUESTS: Requests = MappingProxyType({})


def copied(stages: int = 1, *, is_large: bool = False) -> Request:
    """Return the request of a tile in shared memory that asynchronous copies fill."""
    return Request(Space.SHARED, stages, is_large)


def is_private(array: str, placements: Placements) -> bool:
    """Return whether each thread has its own copy of *array*, in registers."""
    return array in placements and placements[array].space is Space.PRIVATE


def accesses_of(scop: Scop, array: str) -> list[tuple[Statement, Access]]:
    """Return every access to *array*, with its statement."""
    return [
        (statement, access)
        for statement in scop.users.get(array, ())
        for access in (*statement.writes, *statement.reads)
        if access.array == array
    ]


def place(
    scop: Scop, trees: Sequence[Node], requests: Requests = NO_REQUESTS
) -> dict[str, Placement]:
    """Return the local arrays of *scop*, whose kernels are *trees*; the others stay in memory."""
    placements = {}
    for array in scop.arrays.values():
        if array.storage is not Storage.SCRATCH:
            continue
        is_blocked = requests.get(array.name, NOTHING).is_large
        most = MAX_PANEL_BYTES if is_blocked else MAX_LOCAL_BYTES
        placement = _place(scop, trees, array, most)
        if placement is not None:
            placements[array.name] = replace(placement, is_blocked=is_blocked)
    return placements


def in_whole_vectors(placements: Placements, scop: Scop, vector_bytes: int) -> dict[str, Placement]:
    """Return the *placements* of a CPU, in which rows of small arrays are whole vectors.

    gcc 12 keeps sums whose rows are not in memory: 10 x 24 of them took 2.5 times as long.
    """
    found = dict(placements)
    for name, one in placements.items():
        width = vector_bytes // scop.arrays[name].dtype.size_bytes
        if len(one.dims) > 1 and not one.is_blocked and one.extents[-1] > width // 2:
            found[name] = replace(one, padding=-one.extents[-1] % width)
    return found


def _place(scop: Scop, trees: Sequence[Node], array: Array, most_bytes: int) -> Placement | None:
    uses = accesses_of(scop, array.name)
    names = {statement.name for statement, _ in uses}
    tree = next((t for t in trees if names <= set(statements_of(t))), None)
    if tree is None or not names or any(access.inexact for _, access in uses):
        return None
    prefix = common_prefix([loops_around(tree, name) for name in sorted(names)])
    depth = lifetime_depth(uses, prefix)
    inside = {
        loop.name
        for name in names
        for loop in loops_around(tree, name)
        if loop.kind is LoopKind.PARALLEL
    }
    outer = prefix[:depth]
    if not inside <= {loop.name for loop in outer}:
        return None
    fixed = {
        statement.name: [loop.coordinates[statement.name] for loop in outer]
        for statement, _ in uses
    }
    dims = tuple(local_dim(array, dim, uses, fixed) for dim in range(array.rank))
    if any(dim is None for dim in dims):
        return None
    placement = Placement(
        array.name, outer[-1].name if outer else None, tuple(d for d in dims if d is not None)
    )
    size_bytes = placement.elements() * array.dtype.size_bytes
    return placement if size_bytes <= most_bytes else None


FIXED = LocalDim(0, (), 1)

Uses = Sequence[tuple[Statement, Access]]
Fixed = Mapping[str, Sequence[AnyCoordinate]]  # statement -> what is constant at a declaration


def local_dim(array: Array, dim: int, uses: Uses, fixed: Fixed) -> LocalDim | None:
    """Return how dimension *dim* is indexed where the coordinates *fixed* are constant."""
    found = _dim_by_digits(array, dim, uses, fixed)
    return FIXED if found == FIXED or is_fixed(uses, dim, fixed) else found


def is_fixed(uses: Uses, dim: int, fixed: Fixed) -> bool:
    """Return whether what is *fixed* determines the subscript of dimension *dim*.

    So does, for the coordinate of a chunk, the loop over the chunks.
    """
    subscripts: isl.Map | None = None
    for statement, access in uses:
        space = statement.domain.get_space()
        iterations: isl.Map | None = None
        for coordinate in fixed[statement.name]:
            aff = coordinate.function(space)
            one = isl.Map.from_pw_aff(isl.PwAff.from_aff(aff))
            iterations = one if iterations is None else iterations.flat_range_product(one)
        if iterations is None:
            return False
        own = iterations.reverse().apply_range(along(access.relation, dim))
        if not own.is_single_valued():  # mostly: the others need not be looked at
            return False
        subscripts = own if subscripts is None else subscripts.union(own)
    return subscripts is not None and bool(subscripts.is_single_valued())


def common_prefix(paths: Sequence[tuple[Loop, ...]]) -> tuple[Loop, ...]:
    depth = 0
    while all(len(path) > depth for path in paths) and (
        len({path[depth].name for path in paths}) == 1
    ):
        depth += 1
    return paths[0][:depth]


def lifetime_depth(uses: Uses, prefix: Sequence[Loop]) -> int:
    """Return the number of loops of *prefix* that determine each element's only iteration."""
    for depth, loop in enumerate(prefix):
        if is_digit_of_a_subscript(uses, loop.coordinates):
            continue
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


def is_digit_of_a_subscript(uses: Uses, coordinates: Mapping[str, AnyCoordinate]) -> bool:
    """Return whether *coordinates*, by statement, are the same digit of one subscript in all uses.

    Then each element has one value of them: what isl would find too, in a hundred times the time.
    """
    digits, dims = set(), list[set[int]]()
    for statement, access in uses:
        coordinate = coordinates[statement.name]
        if not isinstance(coordinate, Coordinate):
            return False
        digits.add((coordinate.shift, coordinate.div, coordinate.mod))
        name = statement.indices[coordinate.position]
        dims.append({
            dim for dim, subscript in enumerate(access.subscripts)
            if isinstance(subscript, Index) and subscript.name == name
        })  # fmt: skip
    return len(digits) == 1 and bool(set.intersection(*dims))


def _dim_by_digits(array: Array, dim: int, uses: Uses, fixed: Fixed) -> LocalDim | None:
    """Return the same without isl: a subscript may be constant, and still be indexed."""
    origin, extent = array.origin[dim], greatest(array.shape[dim])
    found = {
        _free_parts(statement, access, dim, fixed[statement.name]) for statement, access in uses
    }
    whole = None  # no array of constant size holds all of an open extent without a greatest value
    if isinstance(origin, int) and extent is not None:
        whole = LocalDim(origin, ((1, 0),), extent)
    if len(found) != 1 or None in found:
        return whole
    ((shift, parts),) = (free for free in found if free is not None)
    if not parts:
        return FIXED
    if not parts[0][1]:  # from some digit on all are free: as many as the array has
        if whole is None or (len(parts) == 1 and parts[0][0] == 1):
            return whole
        top = parts[0][0]
        parts = ((top, -(-(whole.shift + whole.extent - shift) // top)), *parts[1:])
    size = prod(n for _, n in parts)
    return whole if whole is not None and size >= whole.extent else LocalDim(shift, parts, size)


def is_known(
    array: Array, dim: int, use: tuple[Statement, Access], coordinates: Sequence[AnyCoordinate]
) -> bool:
    """Return whether the digits of *coordinates* tell the subscript of dimension *dim*."""
    extent = greatest(array.shape[dim])
    if extent == 1:
        return True
    match _free_parts(*use, dim, coordinates):
        case (_, ()):
            return True
        case (_, ((low, 0),)):  # those from *low* on are free, of which the array has one value
            return extent is not None and extent <= low
        case _:
            return False


def _free_parts(
    statement: Statement, access: Access, dim: int, coordinates: Sequence[AnyCoordinate]
) -> tuple[int, tuple[tuple[int, int], ...]] | None:
    """Return (shift, parts): the digits of the subscript's index that are not fixed.

    A coordinate ``((x - shift) / d) % m`` tells the digits of x from d up to d * m; without the
    remainder, ``(x + k d) / d`` tells what ``x / d`` does.
    """
    subscript = access.subscripts[dim]
    if not isinstance(subscript, Index) or subscript.name not in statement.indices:
        return None
    position = statement.indices.index(subscript.name)
    fixed = [coordinate for coordinate in coordinates if coordinate.position == position]
    shifts = {c.shift if c.mod else c.shift % c.div for c in fixed if c.div > 1 or c.mod}
    if not fixed or len(shifts) > 1:
        return None
    shift = max(shifts, default=max(c.shift for c in fixed))
    parts: list[tuple[int, int]] = []
    low = 1  # digits from here on are not yet known
    for start, end in sorted(
        ((c.div, c.div * c.mod if c.mod else 0) for c in fixed), key=lambda known: known[0]
    ):
        if start > low:
            if start % low:
                return None
            parts.insert(0, (low, start // low))
        if not end:
            return shift, tuple(parts)
        low = max(low, end)
    return shift, ((low, 0), *parts)


def local_functions(
    placement: Placement, access: Access, statement: Statement, functions: Mapping[int, isl.PwAff]
) -> list[isl.PwAff]:
    """Return the local index of each dimension, as functions of the statement's instance.

    :arg functions: dimension -> the subscript as a function of the instance.
    """
    return [dim.index(functions[position]) for position, dim in enumerate(placement.dims)]
