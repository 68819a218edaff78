"""Chains of stencils: statements that read one another's results at constant distances.

    h(i) = (x(i - 1) + x(i) + x(i + 1)) / 3         h reaches  [-1, 1]  around what is stored of y
    y(i) = x(i) + (x(i) - h(i - 1) - h(i + 1))      y reaches  [ 0, 0]

Their arrays share *axes*: dimensions that every read of one by another makes equal but for a
constant.  An axis along which some constant is not 0 is a stencil's.  So is the one along which
neighbours in memory are (channels aside): a tile with whole rows would be large.  Where a tile
[0, T) of what is stored is computed, an array t is needed on [low, T + high), its *reach*::

    reach(t)  =  hull of  { [0, 0] if t is stored }  and  { reach(r) + c : r reads t at distance c }

A chain is legal iff its arrays are assigned by plain statements alone, one element by one instance
of a statement, and no member reads from memory what another member stores there: what a tile reads
is then what it computed, or what was there before all of them.  No path of dependences leaves the
chain and comes back, so that it may be one kernel.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from itertools import islice
from math import frexp

from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Select,
    Unary,
    children,
    walk,
)  # fmt: skip
from tcdsl.lang.linear_forms import index_and_distance
from tcdsl.poly.isl_utils import Extent, constant_bounds, dim_bounds, greatest, is_unbounded, minus
from tcdsl.poly.scop import Kind, Scop, Stage, Statement, Storage
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.recomputation import writers_and_users

LEAST_NEIGHBOURS = 32  # in memory, along an axis that is cut for its length alone
DIVISION = 8  # operations of one
INSTRUCTIONS = frozenset(("abs", "fabs", "fmax", "fmin", "max", "min"))  # calls that are one
Reach = tuple[int, int]  # how far below a tile, and how far above its end: low <= 0 <= high or not


@dataclass(frozen=True, eq=False)
class Chain:
    """Statements *members* in textual order, and the arrays that they write.

    *axes* gives each dimension of an array its axis, the same number for all of them; *stencil*
    are the axes that tiles are along; *inside* are the arrays that members read, and
    *stored* those that others see, in the program's order.  With open sizes, *lower* and *extents*
    hold for all values.
    """

    members: tuple[str, ...]
    axes: Mapping[str, tuple[int, ...]]
    stencil: tuple[int, ...]
    inside: tuple[str, ...]
    stored: tuple[str, ...]
    reach: Mapping[str, tuple[Reach, ...]]  # array -> along each stencil axis
    lower: tuple[int, ...]  # of what is stored, along each stencil axis
    extents: tuple[int, ...]

    def dim(self, array: str, number: int) -> int:
        """Return the dimension of *array* that is along the stencil axis *number*."""
        return self.axes[array].index(self.stencil[number])


@dataclass(frozen=True, slots=True)
class _Read:
    """*sink*'s statement reads *source*: dimension d of it is dimension dims[d] of the sink."""

    source: str
    sink: str
    dims: tuple[int, ...]
    distances: tuple[int, ...]


def chains_of(scop: Scop, apart: Collection[str] = ()) -> tuple[Chain, ...]:
    """Return the chains of stencils in *scop* that are legal.

    :arg apart: arrays that are kept in memory: no chain goes through them.

    Open sizes have a greatest value each, or there are none.
    """
    if is_unbounded(scop.context) or scop.rescaled:
        return ()
    found = _Finder(scop, frozenset(apart))
    chains = (found.chain(arrays) for arrays in found.components())
    return tuple(chain for chain in chains if chain is not None)


def steps_of(scop: Scop, chain: Chain) -> dict[str, int]:
    """Return the step of each array of *chain*: 1, and one more after each read at a distance."""
    found: dict[str, int] = {}
    for stage in stages_of(scop, chain).values():
        before = (found[array] + any(far) for array, far in stage.reads if array in found)
        found[stage.array] = max(before, default=1)
    return found


def stages_of(scop: Scop, chain: Chain) -> dict[str, Stage]:
    """Return the stages of *chain*, by their statements."""
    return {name: _stage(scop, chain, scop.by_name[name]) for name in chain.members}


def _stage(scop: Scop, chain: Chain, statement: Statement) -> Stage:
    array = statement.write.array
    axes = chain.axes[array]
    subscripts = {
        axis: s.name
        for axis, s in zip(axes, statement.write.subscripts, strict=True)
        if isinstance(s, Index)
    }
    reads = []
    for read in statement.reads:
        parts = [index_and_distance(s, scop.sizes) for s in read.subscripts]
        far = dict(filter(None, parts))
        reads.append((read.array, tuple(far.get(subscripts[axis], 0) for axis in chain.stencil)))
    first = min(axes.index(axis) for axis in chain.stencil)
    outside, along = 1, 1
    for position, (axis, shape) in enumerate(zip(axes, scop.arrays[array].shape, strict=True)):
        extent = greatest(shape)
        assert extent is not None, "chains_of"
        if axis not in chain.stencil and position < first:
            outside *= extent
        elif axis not in chain.stencil:
            along *= extent
    assert statement.value is not None
    calls = sum(
        isinstance(node, Call) and node.function not in INSTRUCTIONS
        for node in walk(statement.value)
    )
    return Stage(
        array, chain.reach[array], tuple(reads), _ends(scop, chain, statement), outside, along,
        _operations(statement.value), calls, statement.value.dtype.size_bytes == 8,
    )  # fmt: skip


def _ends(scop: Scop, chain: Chain, statement: Statement) -> tuple[Extent, ...]:
    """Return the ends of the indices of *statement* along the axes of tiles."""
    elements, array = statement.write.relation.range(), statement.write.array
    return tuple(
        minus(dim_bounds(elements, chain.dim(array, number), scop.context)[1], lower)
        for number, lower in enumerate(chain.lower)
    )


def _operations(value: Expr) -> int:
    """Return the operations of *value*, those of subscripts left out."""
    match value:
        case Load():
            return 0
        case Binary(op="/", right=right, dtype=dtype) if dtype.is_float and not _is_power(right):
            return DIVISION + sum(map(_operations, children(value)))
        case Binary() | Unary() | Select() | Call():
            return 1 + sum(map(_operations, children(value)))
        case _:
            return sum(map(_operations, children(value)))


def _is_power(divisor: Expr) -> bool:
    """Return whether *divisor* is a power of two, so that a division by it is a product."""
    while isinstance(divisor, Cast):
        divisor = divisor.operand
    return isinstance(divisor, Const) and abs(frexp(divisor.value)[0]) == 0.5


class _Finder:
    """The plain arrays of *scop*, and the reads that tie them."""

    def __init__(self, scop: Scop, apart: frozenset[str]) -> None:
        self.scop = scop
        self.apart = apart
        writers: dict[str, list[Statement]] = {}
        for statement in scop.statements:
            for write in statement.writes:
                writers.setdefault(write.array, []).append(statement)
        self.writers = {
            name: found
            for name, found in writers.items()
            if not scop.arrays[name].is_input and all(map(_is_stage, found))
        }

    @cached_property
    def reads(self) -> list[_Read]:
        """The reads of plain arrays at constant distances."""
        return [
            read
            for name, found in self.writers.items()
            for statement in found
            for read in self._uniform(statement, name)
        ]

    def _uniform(self, statement: Statement, sink: str) -> Iterator[_Read]:
        own = [s.name for s in statement.write.subscripts if isinstance(s, Index)]
        for read in statement.reads:
            if read.array not in self.writers or read.array in self.apart:
                continue
            parts = [index_and_distance(s, self.scop.sizes) for s in read.subscripts]
            plain = [part for part in parts if part is not None]
            dims = tuple(own.index(name) for name, _ in plain)
            if len(plain) == len(parts) and sorted(dims) == list(range(len(own))):
                yield _Read(read.array, sink, dims, tuple(distance for _, distance in plain))

    def components(self) -> list[list[str]]:
        """Return the arrays that reads tie together, each group in the program's order."""
        found: list[set[str]] = []
        for read in self.reads:
            ends = {read.source, read.sink}
            joined = [part for part in found if part & ends]
            found = [part for part in found if not part & ends]
            found.append(ends.union(*joined))
        return [[name for name in self.writers if name in part] for part in found]

    def chain(self, arrays: Sequence[str]) -> Chain | None:
        """Return the chain of *arrays*, None if they are none, or not a legal one."""
        reads = [read for read in self.reads if read.source in arrays]
        members = {s.name for name in arrays for s in self.writers[name]}
        axes = _axes_of(self.scop, arrays, reads)
        if axes is None or not self._is_ordered(reads) or not self._is_closed(members):
            return None
        sources = {read.source for read in reads}
        inside = tuple(name for name in arrays if name in sources)
        if self._reads_memory(members, arrays, reads):
            return None
        far = {axes[r.source][d] for r in reads for d, c in enumerate(r.distances) if c}
        if not far:
            return None
        order = _in_order(axes)
        far |= set(self._neighbours(order, axes))
        stencil = tuple(axis for axis in order if axis in far)
        stored = tuple(name for name in arrays if self._is_stored(name, members))
        if not stored:
            return None
        reach = _reaches(arrays, reads, axes, stencil, stored)
        bounds = [self._bounds(stored, axes, axis) for axis in stencil]
        if reach is None or None in bounds:
            return None
        hulls = [bound for bound in bounds if bound is not None]
        return Chain(
            tuple(s.name for s in self.scop.statements if s.name in members), axes, stencil,
            inside, stored, reach, tuple(low for low, _ in hulls),
            tuple(high - low + 1 for low, high in hulls),
        )  # fmt: skip

    def _neighbours(
        self, order: Sequence[int], axes: Mapping[str, tuple[int, ...]]
    ) -> tuple[int, ...]:
        """Return the long axis along which neighbours in memory are, channels aside; () if none."""
        long = (axis for axis in reversed(order) if self._extent(axis, axes) >= LEAST_NEIGHBOURS)
        return tuple(islice(long, 1))

    def _extent(self, axis: int, axes: Mapping[str, tuple[int, ...]]) -> int:
        """Return the largest extent along *axis*."""
        extents = (self.scop.arrays[name].shape[own.index(axis)] for name, own in axes.items())
        return max(greatest(extent) or 0 for extent in extents)

    def _is_ordered(self, reads: Collection[_Read]) -> bool:
        """Return whether every array is written before it is read."""
        return all(
            read.source != read.sink
            and max(self.scop.position(s.name) for s in self.writers[read.source])
            < min(self.scop.position(s.name) for s in self.writers[read.sink])
            for read in reads
        )

    def _is_closed(self, members: set[str]) -> bool:
        """Return whether no path of dependences leaves *members* and comes back."""
        own, others = _Touched(), _Touched()  # others: by those that depend on a member
        for statement in self.scop.statements:
            if statement.name in members:
                if others.is_before(statement):
                    return False
                own.add(statement)
            elif own.is_before(statement) or others.is_before(statement):
                others.add(statement)
        return True

    def _reads_memory(
        self, members: set[str], arrays: Collection[str], reads: Collection[_Read]
    ) -> bool:
        """Return whether a member reads one of *arrays* otherwise than by *reads*."""
        expected = sum(
            read.array in arrays for name in members for read in self.scop.by_name[name].reads
        )
        return expected != len(reads)

    def _is_stored(self, array: str, members: set[str]) -> bool:
        if self.scop.arrays[array].storage is not Storage.SCRATCH:
            return True
        _, users = writers_and_users(self.scop, array)
        return not users or any(user.name not in members for user in users)

    def _bounds(
        self, stored: Collection[str], axes: Mapping[str, tuple[int, ...]], axis: int
    ) -> tuple[int, int] | None:
        """Return the least and greatest index along *axis* of what is stored."""
        found = []
        for name in stored:
            for statement in self.writers[name]:
                elements = statement.write.relation.range()
                found.append(constant_bounds(elements, axes[name].index(axis)))
        bounds = [bound for bound in found if bound is not None]
        if len(bounds) < len(found):
            return None
        return min(low for low, _ in bounds), max(high for _, high in bounds)


@dataclass(slots=True)
class _Touched:
    """The arrays that some statements read, and those that they write."""

    reads: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)

    def add(self, statement: Statement) -> None:
        self.reads |= {read.array for read in statement.reads}
        self.writes |= {write.array for write in statement.writes}

    def is_before(self, statement: Statement) -> bool:
        """Return whether *statement* may depend on one of them."""
        writes = {write.array for write in statement.writes}
        reads = {read.array for read in statement.reads}
        return bool((reads | writes) & self.writes or writes & self.reads)


def _is_stage(statement: Statement) -> bool:
    """Return whether *statement* assigns at its own indices, wherever it runs."""
    if statement.kind is not Kind.ASSIGN or statement.conditions or statement.value is None:
        return False
    if not statement.write.is_exact or statement.domain.is_empty():
        return False
    names = [s.name for s in statement.write.subscripts if isinstance(s, Index)]
    return len(names) == len(statement.write.subscripts) and (
        sorted(names) == sorted(statement.indices)
    )


def _axes_of(
    scop: Scop, arrays: Collection[str], reads: Collection[_Read]
) -> dict[str, tuple[int, ...]] | None:
    """Return the axis of each dimension of *arrays*, None if two of one have the same."""
    first = min(arrays, key=lambda name: min(scop.position(s.name) for s in _writers(scop, name)))
    axes = {first: tuple(range(scop.arrays[first].rank))}
    pending = True
    while pending:
        pending = False
        for read in reads:
            if read.sink in axes:
                found = tuple(axes[read.sink][dim] for dim in read.dims)
                if axes.setdefault(read.source, found) != found:
                    return None
            elif read.source in axes:
                known = axes[read.source]
                axes[read.sink] = tuple(known[read.dims.index(d)] for d in range(len(known)))
                pending = True
            else:
                pending = True
    return axes


def _writers(scop: Scop, array: str) -> list[Statement]:
    return writers_and_users(scop, array)[0]


def _in_order(axes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return all axes, in the order of the dimensions of the last array."""
    return list(axes.values())[-1]


def _reaches(
    arrays: Collection[str],
    reads: Collection[_Read],
    axes: Mapping[str, tuple[int, ...]],
    stencil: tuple[int, ...],
    stored: Collection[str],
) -> dict[str, tuple[Reach, ...]] | None:
    """Return the reach of each array; None if one is needed by nobody."""
    zero: Reach = (0, 0)
    found: dict[str, tuple[Reach, ...]] = {name: (zero,) * len(stencil) for name in stored}
    for _ in arrays:  # the longest path has fewer reads
        before = dict(found)
        for read in reads:
            if read.sink not in found:
                continue
            moves = dict(zip(axes[read.source], read.distances, strict=True))
            grown = tuple(
                (low + moves[axis], high + moves[axis])
                for axis, (low, high) in zip(stencil, found[read.sink], strict=True)
            )
            own = found.setdefault(read.source, grown)
            found[read.source] = tuple(
                (min(a, c), max(b, d)) for (a, b), (c, d) in zip(own, grown, strict=True)
            )
        if found == before:
            break
    return found if set(found) == set(arrays) else None
