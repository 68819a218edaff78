"""From aligned statements to a loop nest: fuse loops from the outside in.

At each level the statements, in an order that respects the dependences, are partitioned into
groups that share their next loop::

    y(i) with x(i,j), then z(i,j) with y(i)      for i:  { for j: y[i] += x[i,j] }
                                          --->           { for j: z[i,j] = y[i] }

A group may share a loop iff on every dependence between its members the loop's iterations are
equal (distance zero): then the loop carries nothing, and the next levels order what is inside.
Each statement opens its loops in its preferred order: fusion never spoils an access pattern.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from functools import reduce

from tcdsl.costmodel.locality import Shape
from tcdsl.poly.data_ranges import data_ranges_of, range_of_dim
from tcdsl.poly.dependences import Dependence, Dependences
from tcdsl.poly.isl_utils import Extent, least, minus
from tcdsl.poly.loop_tree import Coordinate, Leaf, Loop, LoopKind, Node, X, sequence
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind
from tcdsl.records import dataclass


@dataclass(frozen=True, slots=True)
class Piece:
    """A loop that a statement has still to open: part of one of its dimensions."""

    coordinate: Coordinate
    extent: int
    role: Role
    kind: LoopKind | None = None  # None: the nester decides
    axis: int = X  # of a BLOCK or THREAD loop, see Loop
    width: int = 0
    apart: str = ""  # loops are shared by statements for which this is the same

    @property
    def part(self) -> tuple[object, ...]:
        """What must agree, beside the dimension's value, for two pieces to be one loop."""
        c = self.coordinate
        return c.shift, c.div, c.mod, self.kind, self.axis, self.width, self.apart


Remaining = Mapping[str, tuple[Piece, ...]]
# Of two statements: the elements that both read.
Affinities = Callable[[str, str], Sequence[Dependence]]


def _none(_: str, __: str) -> Sequence[Dependence]:
    return ()


class Alignment:
    """Answers, and remembers, which dimensions of two statements the dependences make equal."""

    def __init__(self, dependences: Dependences, affinities: Affinities = _none) -> None:
        self._edges: dict[tuple[str, str], list[Dependence]] = {}
        self._predecessors: dict[str, set[str]] = {}
        for edge in dependences.strict:
            self._edges.setdefault((edge.source, edge.sink), []).append(edge)
            if edge.source != edge.sink:
                self._predecessors.setdefault(edge.sink, set()).add(edge.source)
        self._affinities = affinities
        self._shared: dict[tuple[str, int, str, int], bool | None] = {}
        self._ties: dict[tuple[str, int, str, int], bool | None] = {}
        self._alike: dict[tuple[str, int, str, int], bool] = {}

    def edges(self, source: str, sink: str) -> list[Dependence]:
        return self._edges.get((source, sink), [])

    def predecessors(self, sink: str) -> Set[str]:
        return self._predecessors.get(sink, frozenset())

    def may_share(self, source: str, source_dim: int, sink: str, sink_dim: int) -> bool | None:
        """Return whether the dimensions may be one loop; None if no dependence says anything."""
        key = source, source_dim, sink, sink_dim
        if key not in self._shared:
            edges = self.edges(source, sink)
            are_equal = all(edge.has_equal(source_dim, sink_dim) for edge in edges)
            self._shared[key] = are_equal if edges else None
        return self._shared[key]

    def ties(self, one: str, one_dim: int, other: str, other_dim: int) -> bool | None:
        """Return whether the dimensions may be one loop in both directions; None if none says."""
        key = one, one_dim, other, other_dim
        if key not in self._ties:
            ahead = self.may_share(one, one_dim, other, other_dim)
            behind = self.may_share(other, other_dim, one, one_dim)
            is_refused = ahead is False or behind is False
            self._ties[key] = False if is_refused else (ahead or behind)
        return self._ties[key]

    def are_alike(self, one: str, one_dim: int, other: str, other_dim: int) -> bool:
        """Return whether both read one array, at the same element for equal dimensions."""
        key = one, one_dim, other, other_dim
        if key not in self._alike:
            ahead = self.has_affinity(one, one_dim, other, other_dim)
            self._alike[key] = ahead or self.has_affinity(other, other_dim, one, one_dim)
        return self._alike[key]

    def has_affinity(self, source: str, source_dim: int, sink: str, sink_dim: int) -> bool:
        """Return whether the source, and then the sink, read the same element of one array."""
        return any(edge.has_equal(source_dim, sink_dim) for edge in self._affinities(source, sink))


class Nester:
    """Builds the loops below what a strategy has already opened."""

    def __init__(
        self,
        alignment: Alignment,
        shapes: Mapping[str, Shape],
        lanes: Mapping[str, int],
        unrolled: frozenset[tuple[str, int]] = frozenset(),
        prefix: str = "",
        innermost: LoopKind = LoopKind.VECTOR,
    ) -> None:
        """Nest statements of the given *shapes*.

        :arg lanes: the vector length of the statements whose last loop is split into lanes.
        :arg unrolled: (statement, dimension) whose short loops the C compiler is to write out.
        :arg innermost: the level of innermost loops whose iterations nothing orders.
        """
        self.alignment = alignment
        self.shapes = shapes
        self.lanes = lanes
        self.unrolled = unrolled
        self.prefix = prefix
        self.innermost = innermost
        self._n_loops = 0

    def fresh_name(self, hint: str) -> str:
        self._n_loops += 1
        return f"{self.prefix}.{hint}.{self._n_loops}"

    def whole(self, name: str) -> tuple[Piece, ...]:
        """Return all dimensions of a statement, in its preferred order."""
        shape = self.shapes[name]
        return tuple(
            Piece(Coordinate(dim), shape.extents[dim], shape.roles[dim]) for dim in shape.order
        )

    def nest(self, members: Sequence[str], remaining: Remaining) -> Node:
        """Return the loops over the *remaining* pieces of *members*, given in textual order."""
        groups = self._partition(members, remaining)
        return sequence([self._open(group, remaining) for group in groups])

    def _partition(self, members: Sequence[str], remaining: Remaining) -> list[list[str]]:
        """Partition *members* into groups that share their next loop, in a legal order."""
        groups: list[list[str]] = []
        for name in self._with_late_inits(members, remaining):
            before = self.alignment.predecessors(name)
            earliest = max(
                (position for position, group in enumerate(groups) if before & set(group)),
                default=-1,
            )
            for group in groups[max(earliest, 0) :]:
                if self._joins(name, group, remaining):
                    group.append(name)
                    break
            else:
                # An initialisation stands as early as it may, out of the way of what could share
                # loops on both sides of it.  So do asynchronous copies, in their order: whoever
                # waits for one finds the others on their way.
                is_early = self._is_init(name) and not _part_of(name, remaining)
                at = earliest + 1 if is_early else len(groups)
                if _is_copy(name, remaining):
                    first = earliest + 1
                    at = next(
                        (n for n in range(first, len(groups))
                         if not all(self._is_init(m) or _is_copy(m, remaining) for m in groups[n])),
                        len(groups),
                    )  # fmt: skip
                groups.insert(at, [name])
        is_ragged = any(data_ranges_of(self.shapes[name].statement) for name in members)
        return self._merged(members, groups, remaining) if is_ragged else groups

    def _with_late_inits(self, members: Sequence[str], remaining: Remaining) -> list[str]:
        """Return *members*, those initialisations whose loops are apart before what they are of.

        What waits for other members would find them too early for a loop of both.
        """
        late = [n for n in members if self._is_init(n) and _part_of(n, remaining)]
        found: list[str] = []
        for name in members:
            if name in late:
                continue
            part = _part_of(name, remaining)
            own = [init for init in late if part and _part_of(init, remaining) == part]
            late = [init for init in late if init not in own]
            found += [*own, name]
        return found + late

    def _is_init(self, name: str) -> bool:
        return self.shapes[name].statement.kind is Kind.INIT

    def _merged(
        self, members: Sequence[str], groups: Sequence[list[str]], remaining: Remaining
    ) -> list[list[str]]:
        """Return *groups*, neighbours as one that may share the next loop.

        Checks of what is gathered in ranges from data stand apart from the sums of it otherwise,
        and everything would be read twice.
        """
        found: list[list[str]] = []
        for group in groups:
            grown, pending = list(found[-1]) if found else [], list(group)
            while grown and pending:
                name = next((n for n in pending if self._joins(n, grown, remaining)), None)
                if name is None:
                    break
                grown.append(name)
                pending.remove(name)
            if grown and not pending:
                found[-1] = [name for name in members if name in grown]
            else:
                found.append(list(group))
        return found

    def _joins(self, name: str, group: Sequence[str], remaining: Remaining) -> bool:
        if not remaining[name] or not remaining[group[0]]:
            return False
        head = remaining[name][0]
        # An innermost loop is shared only by what shares data; around it sharing costs nothing.
        is_outer = all(len(remaining[n]) > 1 for n in (name, *group))
        is_tied = is_outer
        for member in group:
            other = remaining[member][0]
            if other.part != head.part or Role.ORDERED in (other.role, head.role):
                return False
            dims = other.coordinate.position, head.coordinate.position
            if not is_outer and not self._may_share_lanes(member, name, remaining):
                return False
            if self._data_range(member, dims[0]) != self._data_range(name, dims[1]):
                return False
            ties = self.alignment.ties(member, dims[0], name, dims[1])
            if ties is False or (ties is None and other.extent != head.extent):
                return False
            is_tied |= bool(ties)
            is_tied = is_tied or self.alignment.are_alike(member, dims[0], name, dims[1])
        return is_tied

    def _may_share_lanes(self, one: str, other: str, remaining: Remaining) -> bool:
        """Return whether reductions among the two accumulate in equally many lanes.

        In a longer vector two iterations would add to the same partial sum.
        """
        return len({
            self.lanes.get(name, 1)
            for name in (one, other)
            if name in self.lanes or remaining[name][0].role is not Role.PARALLEL
        }) <= 1  # fmt: skip

    def _data_range(self, name: str, dim: int) -> object:
        """Return what must be equal of two statements that share a loop over ranges from data."""
        found = range_of_dim(self.shapes[name].statement, dim)
        return None if found is None else found.key

    def _open(self, group: Sequence[str], remaining: Remaining) -> Node:
        """Open the next loop of *group*, and nest what is below it."""
        if not remaining[group[0]]:
            assert len(group) == 1
            return Leaf(group[0])
        heads = {name: remaining[name][0] for name in group}
        rest = {name: remaining[name][1:] for name in group}
        is_last = all(not pieces for pieces in rest.values())
        lanes = max((self.lanes.get(name, 0) for name in group), default=0)
        if is_last and lanes:
            return self._open_lanes(group, heads, lanes)
        chosen = next(iter(heads.values())).kind
        if chosen is not None:
            return self.loop(heads, chosen, self.nest(group, rest), self._chosen_limit(heads))
        parallel = all(head.role is Role.PARALLEL for head in heads.values())
        kind = self.innermost if is_last and parallel else LoopKind.SERIAL
        if not is_last and all(
            (name, head.coordinate.position) in self.unrolled
            and not self._scatters(name, rest[name][-1])
            for name, head in heads.items()
        ):
            kind = LoopKind.UNROLL
        return self.loop(heads, kind, self.nest(group, rest), self._open_limit(heads))

    def _scatters(self, name: str, innermost: Piece) -> bool:
        """Return whether *name* copies what is computed to elements that are far apart.

        Each is then a store of its own.  Unrolled, an 8 x 32 tile of them took gcc 0.2 s, and
        they ran no faster: their values go through memory, element by element, in any case.
        """
        shape = self.shapes[name]
        is_copy = shape.statement.kind is Kind.ASSIGN
        return is_copy and shape.strides[0][innermost.coordinate.position] > 1

    def _open_limit(self, heads: Mapping[str, Piece]) -> Extent:
        """Return where the whole tiles of an open dimension end, 0 if these are none."""
        tiles = {(h.coordinate.shift, h.coordinate.div, h.coordinate.mod) for h in heads.values()}
        dims = [(self.shapes[n], h.coordinate.position) for n, h in heads.items()]
        if len(tiles) > 1 or not any(shape.is_open(dim) for shape, dim in dims):
            return 0
        ((shift, div, _),) = tiles
        return minus(reduce(least, [s.end(d) for s, d in dims]), shift) if div > 1 else 0

    def _chosen_limit(self, heads: Mapping[str, Piece]) -> Extent:
        """Return where the whole tiles of a loop end whose kind a strategy chose."""
        coordinates = {head.coordinate for head in heads.values()}
        tiles = {(c.shift, c.div, c.mod) for c in coordinates}
        ((shift, div, mod),) = tiles
        if div == 1 or mod:
            return 0
        ends = [self.shapes[n].end(head.coordinate.position) for n, head in heads.items()]
        limit = minus(reduce(least, ends), shift)
        return 0 if isinstance(limit, int) and limit % div == 0 else limit

    def _open_lanes(self, group: Sequence[str], heads: Mapping[str, Piece], lanes: int) -> Node:
        """Split the last loop of *group* into vectors of *lanes*, whole ones apart."""
        lower = {name: self._lower(name, head) for name, head in heads.items()}
        shift = min(lower.values())
        outer, inner = {}, {}
        for name, head in heads.items():
            old = head.coordinate
            if old.mod:  # a piece of a tile, whose start is aligned
                assert old.mod % lanes == 0 and old.div == 1
                vectors = Coordinate(old.position, old.shift, lanes, old.mod // lanes)
                lane = Coordinate(old.position, old.shift, 1, lanes)
            else:
                vectors = Coordinate(old.position, shift, lanes)
                lane = Coordinate(old.position, shift, 1, lanes)
            outer[name] = Piece(vectors, -(-head.extent // lanes), head.role)
            inner[name] = Piece(lane, lanes, Role.PARALLEL)
        body = self._leaves_under(group, inner)
        starts_together = all(low == shift for low in lower.values())
        ends = [self.shapes[name].end(head.coordinate.position) for name, head in heads.items()]
        limit = minus(reduce(least, ends), shift)
        return self.loop(outer, LoopKind.SERIAL, body, limit if starts_together else 0)

    def _leaves_under(self, group: Sequence[str], pieces: Mapping[str, Piece]) -> Node:
        leaves: list[Node] = [Leaf(name) for name in group]
        return self.loop(pieces, LoopKind.VECTOR, sequence(leaves))

    def _lower(self, name: str, piece: Piece) -> int:
        return self.shapes[name].lower[piece.coordinate.position]

    def loop(
        self, pieces: Mapping[str, Piece], kind: LoopKind, body: Node, limit: Extent = 0
    ) -> Loop:
        """Return a loop over *pieces*, one a statement below it."""
        name, piece = next(iter(pieces.items()))
        index = self.shapes[name].statement.indices[piece.coordinate.position]
        return Loop(
            self.fresh_name(index),
            {statement: p.coordinate for statement, p in pieces.items()},
            kind,
            body,
            max(p.extent for p in pieces.values()),
            limit,
            piece.axis,
            piece.width,
        )


def _is_copy(name: str, remaining: Remaining) -> bool:
    """Return whether *name* copies to shared memory: it shares loops with nobody."""
    return _part_of(name, remaining) == name


def _part_of(name: str, remaining: Remaining) -> str:
    """Return which loops *name* shares alone, "" where it may share any."""
    return remaining[name][0].apart if remaining[name] else ""
