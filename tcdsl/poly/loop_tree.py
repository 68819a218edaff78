"""Loop nests as coordinate tables, and the isl schedule tree that they mean.

A *coordinate* gives every statement below it a quasi-affine function of the statement's own
iterators, ``((x_p - shift) / div) % mod``::

    for i // 8 (parallel)                  Loop("i", {S0: i/8, S1: i/8}, PARALLEL,
      S0 over i % 8                          Sequence(Loop(..., S0: i%8), Loop(..., S1: i%8, ...)))
      S1 over i % 8, then j

The tree is plain data that any target maps; :func:`schedule_of` turns it into an isl schedule with
one band a loop and a mark above it, which names the loop.  After Verdoolaege, Guelton, Grosser,
Cohen, "Schedule Trees", IMPACT 2014.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum

import islpy as isl

from tcdsl.poly.isl_utils import Extent, constant_bounds, on_space, val, within
from tcdsl.poly.scop import Scop, Statement
from tcdsl.records import dataclass


class LoopKind(StrEnum):
    """The level of a loop: which unit runs its iterations, and how."""

    PARALLEL = "parallel"  # the threads of a CPU, in any order: they wait for nobody
    SERIAL = "serial"  # one thread, in order
    VECTOR = "vector"  # the vector unit of a CPU's thread, at once
    UNROLL = "unroll"  # one thread, in order: a short constant number, unrolled by the C compiler
    LANES = "lanes"  # one thread of a GPU, in order: neighbours, loaded and stored together
    BLOCK = "block"  # the blocks of a grid, in turn: value % width is the block
    THREAD = "thread"  # the threads of a block, in turn: value % width is the thread
    COLLECTIVE = "collective"  # at once, by *width* threads together: one call
    LAST = "last"  # once, on whichever of *width* blocks gets there last (schedule/stitching)


# The levels of each machine.  A GPU has no vector units, but loads and stores of neighbours.
CPU_LEVELS = frozenset({
    LoopKind.PARALLEL, LoopKind.SERIAL, LoopKind.VECTOR, LoopKind.UNROLL, LoopKind.COLLECTIVE,
})  # fmt: skip
GPU_LEVELS = frozenset({
    LoopKind.BLOCK, LoopKind.THREAD, LoopKind.SERIAL, LoopKind.LANES, LoopKind.UNROLL,
    LoopKind.COLLECTIVE, LoopKind.LAST,
})  # fmt: skip
MAPPED = (LoopKind.BLOCK, LoopKind.THREAD)  # the kinds of loops that blocks or threads share
X, Y, Z, RANK = AXES = (0, 1, 2, 3)  # of a grid or a block; RANK: the blocks of a cluster
AXIS_NAMES = ("x", "y", "z", "rank")


@dataclass(frozen=True, slots=True)
class Coordinate:
    """``((x_position - shift) / div) % mod``; mod 0 means no remainder is taken."""

    position: int
    shift: int = 0
    div: int = 1
    mod: int = 0

    def function(self, space: isl.Space) -> isl.Aff:
        """Return the coordinate as a function on the statement's *space*."""
        local = isl.LocalSpace.from_space(space)
        aff = isl.Aff.var_on_domain(local, isl.dim_type.set, self.position)
        return _part(aff, self.shift, self.div, self.mod)


@dataclass(frozen=True, slots=True)
class AffineCoordinate:
    """``((a_1 f_1 + a_2 f_2 + ... - shift) / div) % mod`` over coordinates ``f_k``; mod 0: none.

    What isl's scheduler finds (``i + j``), and sums of tiles (``i / 32 + j / 32``).  Without terms
    it is constant.
    """

    terms: tuple[tuple[int, "AnyCoordinate"], ...]
    shift: int = 0
    div: int = 1
    mod: int = 0

    @property
    def position(self) -> int:
        """No dimension of the statement: the sum determines none of them."""
        return -1

    def function(self, space: isl.Space) -> isl.Aff:
        """Return the coordinate as a function on the statement's *space*."""
        aff = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(space))
        for factor, term in self.terms:
            aff = aff.add(term.function(space).scale_val(val(factor)))
        return _part(aff, self.shift, self.div, self.mod)


AnyCoordinate = Coordinate | AffineCoordinate


def positions_of(coordinate: AnyCoordinate) -> frozenset[int]:
    """Return the dimensions of the statement that *coordinate* depends on."""
    match coordinate:
        case AffineCoordinate(terms=terms):
            return frozenset(at for _, term in terms for at in positions_of(term))
        case Coordinate(position=position):
            return frozenset((position,))


def terms_told(coordinate: AnyCoordinate) -> tuple[Coordinate, ...]:
    """Return the coordinates of one dimension each that *coordinate* tells.

    A sum tells its terms where they are digits of it, each less than the factor of the next one::

        4 (m % 8) + n / 2 % 4    --->    m % 8, n / 2 % 4
    """
    match coordinate:
        case Coordinate():
            return (coordinate,)
        case AffineCoordinate(terms=terms, shift=0, div=1, mod=0):
            found, place = list[Coordinate](), 1
            for factor, term in sorted(terms, key=lambda pair: pair[0]):
                if factor != place or not isinstance(term, Coordinate) or not term.mod:
                    return ()
                found.append(term)
                place *= term.mod
            return tuple(found)
        case _:
            return ()


def iterations_of(domain: isl.Set, coordinate: AnyCoordinate) -> tuple[int, int] | None:
    """Return the least and greatest value of *coordinate*, None if *domain* is empty or open."""
    function = isl.PwAff.from_aff(coordinate.function(domain.get_space()))
    return constant_bounds(domain.apply(isl.Map.from_pw_aff(function)), 0)


def _part(aff: isl.Aff, shift: int, div: int, mod: int) -> isl.Aff:
    """Return ``((aff - shift) / div) % mod``."""
    if shift:
        aff = aff.add_constant_val(val(-shift))
    if div > 1:
        aff = aff.scale_down_val(val(div)).floor()
    return aff.mod_val(val(mod)) if mod else aff


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop over a coordinate; *extent* is its number of iterations where that is known."""

    name: str  # unique within the scop: the mark above the band
    coordinates: Mapping[str, AnyCoordinate]  # statement -> its coordinate
    kind: LoopKind
    body: "Node"
    extent: int | None = None
    # If not 0, iterations whose whole tile (of ``div`` values) lies below ``shift + limit`` get
    # loops of their own, so that what is below them has constant bounds.
    limit: Extent = 0
    # Of BLOCK and THREAD loops: X, Y or Z, of THREAD loops also the RANK of the block in its
    # cluster, and how many blocks or threads there are.  Of COLLECTIVE loops the width is how many
    # threads run them together; of UNROLL loops how many neighbours along x may exchange the
    # vectors of their iterations, so that each stores those of one of them.
    axis: int = X
    width: int = 0
    cluster: int = 1  # of BLOCK loops: how many neighbours run at the same time (pipelines.py)
    # Iterations with all of those of the loops inside get loops of their own (poly/whole_tiles).
    has_whole_tiles: bool = False
    runs_on: bool = False  # iterations are numbered through those of a block's loops around it

    @property
    def has_one_iteration(self) -> bool:
        """Whether no block or thread runs two iterations."""
        return self.extent is not None and self.extent <= self.width


@dataclass(frozen=True, slots=True)
class Sequence:
    """Children in order."""

    children: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One statement's instances, all loops open."""

    statement: str


Node = Loop | Sequence | Leaf


def sequence(children: list[Node]) -> Node:
    """Return *children* in order, flattened; a single one stands for itself."""
    flat: list[Node] = []
    for child in children:
        flat += child.children if isinstance(child, Sequence) else [child]
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def statements_of(node: Node) -> Iterator[str]:
    """Yield the names of the statements below *node*, in order."""
    match node:
        case Leaf(statement=name):
            yield name
        case Loop(body=body):
            yield from statements_of(body)
        case Sequence(children=children):
            for child in children:
                yield from statements_of(child)


def loops_of(node: Node) -> Iterator[Loop]:
    """Yield the loops of *node*, outermost first."""
    match node:
        case Loop(body=body):
            yield node
            yield from loops_of(body)
        case Sequence(children=children):
            for child in children:
                yield from loops_of(child)


def with_kind(tree: Node, old: LoopKind, new: LoopKind) -> Node:
    """Return *tree* with every loop of the kind *old* one of the kind *new*."""
    match tree:
        case Leaf():
            return tree
        case Sequence(children=children):
            return Sequence(tuple(with_kind(child, old, new) for child in children))
        case Loop(kind=kind, body=body):
            own = new if kind is old else kind
            return replace(tree, kind=own, body=with_kind(body, old, new))


def loops_around(node: Node, statement: str) -> tuple[Loop, ...]:
    """Return the loops around *statement*, outermost first; none where it is not in *node*."""
    return _path(node, statement) or ()


def _path(node: Node, statement: str) -> tuple[Loop, ...] | None:
    """Return the loops around *statement*, or None where it is not in *node*."""
    match node:
        case Leaf(statement=name):
            return () if name == statement else None
        case Loop(body=body):
            path = _path(body, statement)
            return None if path is None else (node, *path)
        case Sequence(children=children):
            paths = (_path(child, statement) for child in children)
            return next((path for path in paths if path is not None), None)


def values_of(scop: Scop, statement: str, loops: Iterable[Loop]) -> isl.Map:
    """Return ``{ instance -> [its values of loops] }`` for the instances of *statement*."""
    domain = scop.by_name[statement].domain
    values = isl.Map.from_domain(domain)
    for loop in loops:
        function = loop.coordinates[statement].function(domain.get_space())
        one = isl.Map.from_pw_aff(isl.PwAff.from_aff(function))
        values = values.flat_range_product(one)
    return values


def time_of(loops: Iterable[Loop], statement: Statement) -> isl.Aff:
    """Return the number of the iteration of *loops*, one inside another, that runs an instance."""
    space = statement.domain.get_space()
    loops = tuple(loops)
    if loops and loops[-1].runs_on:
        return loops[-1].coordinates[statement.name].function(space)
    total = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(space))
    for loop in loops:
        number = loop.coordinates[statement.name].function(space)
        total = total.scale_val(val(loop.extent or 1)).add(number)
    return total


def schedule_of(scop: Scop, tree: Node) -> isl.Schedule:
    """Return the isl schedule of *scop* that *tree* describes."""
    domain = isl.UnionSet.empty(scop.context.get_space())
    for name in dict.fromkeys(statements_of(tree)):
        domain = domain.union(isl.UnionSet.from_set(scop.by_name[name].domain))
    node = isl.Schedule.from_domain(domain).get_root().child(0)
    return _insert(scop, node, tree).get_schedule()


def _insert(
    scop: Scop, node: isl.ScheduleNode, tree: Node, above: tuple[Loop, ...] = ()
) -> isl.ScheduleNode:
    """Insert *tree* at the leaf *node*, below the loops *above*; return the node there."""
    match tree:
        case Leaf():
            return node
        case Loop():
            node = node.insert_partial_schedule(partial_schedule(scop, tree))
            if not (isinstance(tree.limit, int) and tree.limit == 0):
                options = _isolate_option(scop, tree, above)
                node = node.band_set_ast_build_options(isl.UnionSet.from_set(options))
            elif tree.has_whole_tiles:
                options = _whole_option(scop, tree, above)
                node = node.band_set_ast_build_options(isl.UnionSet.from_set(options))
            node = _insert(scop, node.child(0), tree.body, (*above, tree)).parent()
            return node.insert_mark(isl.Id(tree.name))
        case Sequence(children=children):
            filters = isl.UnionSetList.alloc(isl.DEFAULT_CONTEXT, len(children))
            for child in children:
                filters = filters.add(_instances(scop, child))
            node = node.insert_sequence(filters)
            for position, child in enumerate(children):
                inner = node.child(position).child(0)
                node = _insert(scop, inner, child, above).parent().parent()
            return node


def _isolate_option(scop: Scop, loop: Loop, above: tuple[Loop, ...]) -> isl.Set:
    """Return isl's option that sets apart the iterations of *loop* whose tiles are whole.

    ``{ isolate[[o0, ...] -> [x]] : 0 <= x and start + tile <= limit }``, where the value at the
    tile's start is the sum of the coarser loops' tiles and this one's.
    """
    statement, own = next(iter(loop.coordinates.items()))
    names = [f"o{depth}" for depth in range(len(above))]
    space = isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=[*names, "x"])
    space = space.align_params(scop.context.get_space())
    start = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(space))
    start = start.set_coefficient_val(isl.dim_type.in_, len(above), val(own.div))
    for depth, outer in enumerate(above):
        coordinate = outer.coordinates[statement]
        if coordinate.position == own.position and coordinate.div > own.div:
            start = start.set_coefficient_val(isl.dim_type.in_, depth, val(coordinate.div))
    end = isl.PwAff.from_aff(start.add_constant_val(val(own.div)))
    whole = end.le_set(on_space(loop.limit, space))
    whole = whole.lower_bound_val(isl.dim_type.set, len(above), val(0))
    nested = isl.Map.from_range(whole).move_dims(
        isl.dim_type.in_, 0, isl.dim_type.out, 0, len(above)
    )
    return nested.wrap().set_tuple_name("isolate")


def _whole_option(scop: Scop, loop: Loop, above: tuple[Loop, ...]) -> isl.Set:
    """Return isl's option that sets apart the iterations of *loop* whose inner loops are whole.

    ``{ isolate[[o0, ...] -> [x]] : every iteration of the loops inside has an instance }``
    """
    (statement,) = statements_of(loop.body)
    inside = _path(loop.body, statement)
    assert inside is not None and all(own.extent for own in inside), "loops of known extents"
    ran = values_of(scop, statement, (*above, loop, *inside)).range()
    kind, depth = isl.dim_type.set, len(above) + 1
    outer = ran.project_out(kind, depth, len(inside))
    every = outer.insert_dims(kind, depth, len(inside))
    for number, own in enumerate(inside):
        every = within(every, kind, depth + number, 0, (own.extent or 1) - 1)
    missing = every.subtract(ran).project_out(kind, depth, len(inside))
    whole = outer.subtract(missing).coalesce()
    nested = isl.Map.from_range(whole).move_dims(
        isl.dim_type.in_, 0, isl.dim_type.out, 0, len(above)
    )
    return nested.wrap().set_tuple_name("isolate")


def _instances(scop: Scop, tree: Node) -> isl.UnionSet:
    union = isl.UnionSet.empty(scop.context.get_space())
    for name in statements_of(tree):
        space = scop.by_name[name].domain.get_space()
        union = union.union(isl.UnionSet.from_set(isl.Set.universe(space)))
    return union


def partial_schedule(scop: Scop, loop: Loop) -> isl.MultiUnionPwAff:
    """Return the loop's coordinate as ``{ S[i] -> [(f(i))] }`` over all its statements."""
    union = isl.UnionPwAff.empty(scop.context.get_space())
    for name in statements_of(loop.body):
        space = scop.by_name[name].domain.get_space()
        aff = loop.coordinates[name].function(space)
        union = union.union_add(isl.UnionPwAff.from_pw_aff(isl.PwAff.from_aff(aff)))
    return isl.MultiUnionPwAff.from_union_pw_aff(union)


def print_tree(node: Node, scop: Scop, indent: int = 0) -> str:
    """Return *node* as indented text: one line a loop, with what each statement runs at it."""
    pad = "  " * indent
    match node:
        case Leaf(statement=name):
            return f"{pad}{name}[{', '.join(scop.by_name[name].indices)}]\n"
        case Sequence(children=children):
            return "".join(print_tree(child, scop, indent) for child in children)
        case Loop():
            kind, texts = loop_head(scop, node)
            # 0: lanes of partial accumulators, whose number nobody needs here.
            extent = f"  # {node.extent} iterations" if node.extent else ""
            head = f"{pad}{kind} {node.name}: {', '.join(texts)}{extent}\n"
            return head + print_tree(node.body, scop, indent + 1)


def loop_head(scop: Scop, loop: Loop) -> tuple[str, list[str]]:
    """Return the kind of *loop*, with its mapping, and what its statements run at it."""
    kind = str(loop.kind)
    if loop.width:
        kind += f".{AXIS_NAMES[loop.axis]}[{loop.width}]"
    if loop.cluster > 1:
        kind += f", clusters of {loop.cluster}"
    return kind, sorted({_print_coordinate(scop, s, c) for s, c in loop.coordinates.items()})


def _print_coordinate(scop: Scop, statement: str, coordinate: AnyCoordinate) -> str:
    match coordinate:
        case Coordinate(position=position):
            text = scop.by_name[statement].indices[position]
        case AffineCoordinate(terms=terms):
            text = _print_sum(scop, statement, terms)
    if coordinate.shift:
        sign = "-" if coordinate.shift > 0 else "+"
        text = f"({text} {sign} {abs(coordinate.shift)})"
    if coordinate.div > 1:
        text = f"{text} / {coordinate.div}"
    return f"{text} % {coordinate.mod}" if coordinate.mod else text


def _print_sum(scop: Scop, statement: str, terms: tuple[tuple[int, AnyCoordinate], ...]) -> str:
    """Return the sum of *terms* as text."""
    parts = []
    for factor, term in terms:
        text = _print_coordinate(scop, statement, term)
        if factor != 1:
            text = f"{factor}*({text})" if " " in text else f"{factor}*{text}"
        parts.append(text)
    return f"({' + '.join(parts)})" if len(parts) > 1 else "".join(parts) or "0"
