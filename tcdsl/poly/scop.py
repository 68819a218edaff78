"""A static control part: statements with domains, accesses and bodies, over arrays.

A comprehension's statement becomes one or two polyhedral statements::

    C(m,n) +=! A(m,k) * B(k,n)   --->   S0_init[m,n]:  C[m,n]  = 0
                                        S0[m,n,k]:     C[m,n] += A[m,k] * B[k,n]

All relations map a statement instance to an array element, in the program's coordinates: an array
whose box starts at 3 is accessed at 3, 4, ...  The textual order (statements in sequence, instances
lexicographic) is the meaning; what a reduction may reorder is said by its :class:`Reduction`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from functools import cached_property

import islpy as isl

from tcdsl.lang.comprehension import Expr, Load, Reduction, walk
from tcdsl.lang.ranges.index_bounds import Values
from tcdsl.lang.types.dtypes import DType
from tcdsl.poly.isl_utils import Extent, constant_bounds, greatest
from tcdsl.records import dataclass
from tcdsl.source import NOWHERE, Span


class Storage(StrEnum):
    """Who owns an array's memory."""

    ARGUMENT = "argument"  # the caller: an input or an output
    SCRATCH = "scratch"  # the call: a temporary that several kernels or threads share
    LOCAL = "local"  # one iteration of the loops around its uses: registers or the stack


@dataclass(frozen=True, slots=True)
class Interleaved:
    """The stride of two axes in one: runs of *run* elements, *step* apart, begin *outer* apart.

    Element k is ``(k // run) * outer + (k % run) * step`` from element 0.
    """

    run: int
    outer: int
    step: int


@dataclass(frozen=True, slots=True)
class AlignmentShift:
    """Rows whose elements are numbered from the vector of memory that they begin in.

    Row r, of *length* elements, begins m(r) = (*factors* . r) % *width* elements after the start of
    a vector; its elements are m(r) to m(r) + length - 1, and w is at ``strides . (r, w) - m(r)``
    from the array's pointer.
    """

    factors: tuple[int, ...]  # one a dimension, but for the last one
    width: int
    length: Extent


# A function of the open sizes; None: known only at the call.
Stride = int | Interleaved | isl.PwAff | None


@dataclass(frozen=True, slots=True, eq=False)
class Array:
    """An array: its box is ``[origin, origin + shape)``; open extents are functions of the sizes.

    *strides* are in elements, one a dimension, or None for row-major without gaps.  An array with
    a *memory* is another view of the argument of that name.  *values* are those between which its
    integers lie, where more is known than their type (known_values).
    """

    name: str
    dtype: DType
    origin: tuple[Extent, ...]
    shape: tuple[Extent, ...]
    storage: Storage
    is_input: bool = False
    is_output: bool = False
    strides: tuple[Stride, ...] | None = None
    shift: AlignmentShift | None = None
    memory: str = ""
    values: Values | None = None
    is_narrow: bool = False  # of float32, with numbers of a half type alone (widening.py)

    @property
    def argument(self) -> str:
        """The argument whose memory it is, if it is one's."""
        return self.memory or self.name

    @property
    def rank(self) -> int:
        return len(self.shape)

    def size_bytes(self) -> int | None:
        """Return the bytes that the elements take, at most; None if an extent has no bound."""
        total = self.dtype.size_bytes
        for extent in self.shape:
            most = greatest(extent)
            if most is None:
                return None
            total *= most
        return total

    def reach_bytes(self) -> int | None:
        """Return the bytes from the first element to the last, gaps between rows included."""
        if self.strides is None:
            return self.size_bytes()
        total = 1
        for extent, stride in zip(self.shape, self.strides, strict=True):
            most = greatest(extent)
            step = stride if stride is None or isinstance(stride, Interleaved) else greatest(stride)
            if most is None or not isinstance(step, int):
                return None
            total += max(most - 1, 0) * step
        return total * self.dtype.size_bytes


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """``relation``: { S[i] -> A[e] }, the elements that an instance touches.

    Exact relations are single valued; the others (a gathered subscript) cover all elements that
    the instance might touch.  *subscripts* are the expressions to print.
    """

    array: str
    subscripts: tuple[Expr, ...]
    relation: isl.Map
    inexact: frozenset[int] = frozenset()  # dimensions whose subscript isl cannot express

    @property
    def is_exact(self) -> bool:
        return not self.inexact


@dataclass(frozen=True, slots=True)
class RangeCheck:
    """Where ``lower < upper``, both must lie in [start, end]; *clause* is the range as written."""

    lower: Expr
    upper: Expr
    start: Extent
    end: Extent
    clause: str


class Kind(StrEnum):
    """What a statement does to the element that it writes."""

    ASSIGN = "assign"  # element = value
    INIT = "init"  # element = the reduction's identity
    UPDATE = "update"  # element = element op value
    FOLD = "fold"  # element = element op (all lanes of a partial, a tree)
    CHECK = "check"  # writes nothing: records what was read, and is out of range
    BARRIER = "barrier"  # touches nothing: the threads of a block wait for one another


PRODUCER = "producer"  # the role of what fills shared memory for other warps


class Accumulation(StrEnum):
    """How tensor cores, which truncate what they add up, make an UPDATE's sum of products."""

    DIRECT = "direct"
    PROMOTED = "promoted"  # the terms of one step; threads add its sum to the total
    SPLIT = "split"  # promoted, and each product is three of parts of its factors


class EventKind(StrEnum):
    """What a BARRIER does that not all threads of a block meet, or that is about other blocks."""

    ACQUIRE = "acquire"  # waits until a stage has been read, and says what is to come there
    AWAIT = "await"  # waits until what was copied to a stage has arrived
    RELEASE = "release"  # a stage has been read
    END = "end"  # waits for products that go on after they were issued
    SIGNAL = "signal"  # tells another block that what this one has stored is there (signals.py)
    AWAIT_SIGNAL = "await signal"  # waits for that


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a pipeline of *stages*: of the iteration q, or (*lag*) of q - lag.

    Where stages run on over loops around that of the steps, of which all but the outermost have
    these *extents*, q counts them through: of (n, s), iteration (t, u, k) is q = (t n + u) s + k.
    The barriers of its stages are those of the block from number *first* on.
    A signal's *flag* is a sum of the iterations around it, with these factors, and a number.
    """

    kind: EventKind
    stages: int = 0
    size_bytes: int = 0  # of ACQUIRE: what is to come
    lag: int = 0  # of RELEASE: as many iterations' products may still read
    left: int = 0  # and so many products are they
    extents: tuple[int, ...] = ()
    flag: tuple[int, ...] = ()
    first: int = 0


@dataclass(frozen=True, slots=True)
class BulkDim:
    """What line m of a tile has along a dimension of its array: ``first + step * digit + tap``.

    The digit is one of m, of *extent* values (1: there is none); *tap*, not below 0, is the same
    for all lines.
    """

    extent: int
    step: int
    first: int
    tap: Expr


@dataclass(frozen=True, slots=True)
class BulkCopy:
    """How a copy fills a tile whose lines are neighbours in memory, along the dimension *near*.

    *dims* are all dimensions, of *near* without a meaning; *order*: those of which m, the number of
    a *line*, has a digit, the fastest first (poly/bulk_copies.py).  After the last line the array
    *goes_on*: what is there is none of the tile's.
    """

    line: Expr
    near: int
    dims: tuple[BulkDim, ...]
    order: tuple[int, ...]
    goes_on: bool = False


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Statement:
    """One polyhedral statement.

    *indices* name the dimensions of *domain*; ``n_left`` of them are left-hand.  *conditions* are
    those that isl cannot express: they are evaluated where the instance runs.  *companion* is the
    access to the extreme value that an arg reduction keeps beside the index that it returns.
    """

    name: str
    domain: isl.Set
    indices: tuple[str, ...]
    n_left: int
    kind: Kind
    write: Access
    value: Expr | None
    reads: tuple[Access, ...]
    reduction: Reduction | None = None
    conditions: tuple[Expr, ...] = ()
    companion: Access | None = None
    lanes: int = 0  # for a FOLD: how many partials it folds
    arg_origin: Extent = 0  # for an arg reduction: where its index starts to count
    checked: tuple[tuple[int, Expr], ...] = ()  # for a CHECK: dimensions and their subscripts
    # For each of *checked*: the load that the subscript reads first; rewrites leave it as it was.
    checked_loads: tuple[Load | None, ...] = ()
    checked_range: RangeCheck | None = None  # for a CHECK of a range whose bounds are read
    source_name: str = ""  # the comprehension's statement
    span: Span = NOWHERE
    is_atomic: bool = False  # an UPDATE whose instances may run at the same time
    is_wide: bool = False  # a BARRIER of all blocks of a cluster
    is_grid: bool = False  # a BARRIER of all blocks (schedule/grid_phases)
    groups_left: int = 0  # of a BARRIER: those of asynchronous copies that may arrive after it
    role: str = ""  # the warps of a block that run it, where these have roles: PRODUCER, or others
    event: Event | None = None  # of a BARRIER that only one role meets
    library: str = ""  # of an UPDATE: that is to compute it
    accumulation: Accumulation = Accumulation.DIRECT  # of an UPDATE on tensor cores
    is_rare: bool = False  # hardly any data let it run: costs count none of its terms
    is_masked: bool = False  # of an UPDATE: terms that a guard makes 0 may be left out or added
    # Of an UPDATE on tensor cores: the operand of which each thread has its part in registers.
    register_operand: str = ""
    bulk: BulkCopy | None = None  # of a PRODUCER's copy, if it is not of a box as it lies in memory

    @property
    def is_promoted(self) -> bool:
        """Whether threads add the sums of steps to the total."""
        return self.accumulation is not Accumulation.DIRECT

    @property
    def left(self) -> tuple[str, ...]:
        return self.indices[: self.n_left]

    @property
    def reduced(self) -> tuple[str, ...]:
        return self.indices[self.n_left :]

    @property
    def writes(self) -> tuple[Access, ...]:
        if self.kind in (Kind.CHECK, Kind.BARRIER):
            return ()
        return (self.write,) if self.companion is None else (self.write, self.companion)

    @property
    def parts(self) -> tuple[Access, ...]:
        """What a FOLD folds: its partial accumulators, and their values if those are indices.

        Its other reads are of its conditions: one instance has one element of each, no lanes.
        """
        assert self.kind is Kind.FOLD and self.reduction is not None
        return self.reads[: 2 if self.reduction.operator.is_arg else 1]

    @property
    def accumulates(self) -> bool:
        """Whether the instance also reads the elements that it writes."""
        return self.kind in (Kind.UPDATE, Kind.FOLD)

    @property
    def all_reads(self) -> tuple[Access, ...]:
        """The reads of the value, and of the accumulator if there is one."""
        return (*self.reads, *self.writes) if self.accumulates else self.reads


@dataclass(frozen=True, slots=True, eq=False)
class Terms:
    """Which elements of an array x a row's exponentials are of, as the program was written.

    { total[i] -> x[e] }, { largest[i] -> x[e] }, and whether no element is of two terms of a row.
    """

    of_total: isl.Map
    of_largest: isl.Map
    is_distinct: bool


@dataclass(frozen=True, slots=True, eq=False)
class Rescaled:
    """A sum of exponentials that rewrites/scop/rescaling.py has cut into chunks, by its arrays.

    What later rewrites make of the statements is checked against *terms* (poly/provenance.py).
    """

    largest: str  # m: of a row
    of_chunk: str  # q: of a chunk, as the block that adds its exponentials keeps it
    published: str  # mc: the same, for who adds up the chunks
    total: str  # s
    partial: str  # p
    terms: tuple[Terms, ...]  # one for each x
    given: frozenset[str]  # the program's arrays: all others are made by rewrites


@dataclass(frozen=True, slots=True)
class Stage:
    """How far beyond a tile what writes *array* runs, and what an instance reads.

    *reads*: array and distances along the axes of tiles, 0 where a subscript has none.  Other axes
    are *outside* of the tiles or *along* with what is inside: so many values.
    """

    array: str
    reach: tuple[tuple[int, int], ...]
    reads: tuple[tuple[str, tuple[int, ...]], ...]
    ends: tuple[Extent, ...] = field(compare=False)  # of its indices, from the first tile's begin
    outside: int
    along: int
    operations: int  # of an instance, and of them
    calls: int  # functions
    is_double: bool


@dataclass(frozen=True, slots=True, eq=False)
class Overlapped:
    """A chain of stencils that rewrites/scop/overlapped_tiles.py has cut into tiles, by its arrays.

    What later rewrites make of the statements is checked against *terms* (poly/overlap.py).
    """

    tiled: Mapping[str, str]  # array -> that of the elements that tiles compute
    elements: Mapping[str, isl.Map]  # array t -> { t'[tile, e'] -> t[e] }
    stored: Mapping[str, isl.Set]  # array -> its elements that are stored
    terms: Mapping[tuple[str, str], isl.Map]  # (t, x) -> { t[e] -> x[k] }, as before tiles
    given: frozenset[str]  # the program's arrays: all others are made by rewrites
    # Statement -> along each axis the index of the tile, and that inside it.
    indices: Mapping[str, tuple[tuple[str, str], ...]]
    stages: Mapping[str, Stage]  # by statement; without the stores of what is inside
    reach: Mapping[str, tuple[tuple[int, int], ...]]  # of the arrays in *tiled*
    sizes: tuple[int, ...]
    counts: tuple[int, ...]  # of tiles

    @property
    def n_axes(self) -> int:
        """How many axes tiles have."""
        return len(next(iter(self.indices.values())))


@dataclass(frozen=True, eq=False)
class Scop:
    """Statements in textual order, over *arrays*, for all values of the open sizes in *context*."""

    name: str
    arrays: Mapping[str, Array]
    statements: tuple[Statement, ...]
    context: isl.Set  # the open sizes: [N] -> { : N >= 0 }
    sizes: Mapping[str, int | None]  # None: open, a parameter
    rescaled: tuple[Rescaled, ...] = ()
    overlapped: tuple[Overlapped, ...] = ()

    @cached_property
    def by_name(self) -> dict[str, Statement]:
        return {statement.name: statement for statement in self.statements}

    @cached_property
    def users(self) -> dict[str, tuple[Statement, ...]]:
        """The statements that access each array."""
        found: dict[str, list[Statement]] = {}
        for statement in self.statements:
            for array in dict.fromkeys(a.array for a in (*statement.writes, *statement.reads)):
                found.setdefault(array, []).append(statement)
        return {array: tuple(statements) for array, statements in found.items()}

    def writers_of(self, array: str) -> list[Statement]:
        """Return the statements that write *array*."""
        every = self.users.get(array, ())
        return [s for s in every if any(write.array == array for write in s.writes)]

    @cached_property
    def domain(self) -> isl.UnionSet:
        """The instances of all statements."""
        union = isl.UnionSet.empty(self.context.get_space())
        for statement in self.statements:
            union = union.union(isl.UnionSet.from_set(statement.domain))
        return union

    def position(self, name: str) -> int:
        """Return where the statement called *name* stands in textual order."""
        return self._positions[name]

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {statement.name: n for n, statement in enumerate(self.statements)}

    def with_statements(self, statements: tuple[Statement, ...]) -> "Scop":
        return replace(self, statements=statements)


def in_place_of(scop: Scop, old: Sequence[Statement | None], new: Sequence[Statement]) -> Scop:
    """Return *scop* with the statements *new* where the first of *old* is, and without the others.

    None stands for a statement that there may be, and is not.
    """
    statements: list[Statement] = []
    for statement in scop.statements:
        if statement is old[0]:
            statements += new
        elif not any(statement is other for other in old):
            statements.append(statement)
    return replace(scop, statements=tuple(statements))


def ends_of(statement: Statement) -> dict[str, int]:
    """Return { index of *statement* -> the value after its last }, 0 where that is not known."""
    bounds = (constant_bounds(statement.domain, d) for d in range(len(statement.indices)))
    ends = (0 if pair is None else pair[1] + 1 for pair in bounds)
    return dict(zip(statement.indices, ends, strict=True))


def loads_of(*exprs: Expr) -> list[Load]:
    """Return every load in *exprs*, those inside subscripts included."""
    return [node for expr in exprs for node in walk(expr) if isinstance(node, Load)]
