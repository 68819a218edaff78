"""A kernel's schedule, as a template makes it: what is decided before any rewrite.

    outer      loops around the whole kernel: per statement a coordinate, parallel or serial
    remaining  per statement the pieces of its dimensions still to be opened, outermost first
    partials   per reduction the coordinates of its partial accumulators (rfactor)

``schedule_rewrites`` applies the rewrites; then the nester opens what remains.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from math import prod
from typing import Any

from tcdsl.costmodel import chip
from tcdsl.costmodel.work import AnyWork
from tcdsl.poly.isl_utils import Extent
from tcdsl.poly.loop_tree import LoopKind, Node, sequence
from tcdsl.poly.scop import Access, Kind, Scop
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.padding import Spans
from tcdsl.rewrites.scop.rfactor import (
    Partial,
)
from tcdsl.schedule.nesting import Nester, Piece, Remaining
from tcdsl.schedule.placement import Requests
from tcdsl.schedule.plan import DEFAULT_CODE, Code
from tcdsl.strategies.blocking import Panels
from tcdsl.strategies.equal_shares import Shares
from tcdsl.strategies.fragments import WarpTiles
from tcdsl.strategies.tensor_tree import TensorKernel

VECTOR_BYTES = chip.VECTOR_BYTES


@dataclass(frozen=True, slots=True)
class OuterLoop:
    """A loop around the whole kernel."""

    pieces: Mapping[str, Piece]
    kind: LoopKind
    limit: Extent = 0  # see Loop.limit


Axis = Mapping[str, int]  # member -> dimension


@dataclass(frozen=True, slots=True)
class Tile:
    """How one shared axis is cut: blocks of ``threads * repeat * points * vector`` values.

    *points* are neighbours of one thread, each with accumulators of its own (a register block).
    """

    axis: Axis
    extent: int
    lower: int
    thread_axis: int = -1  # x, y or z; -1: no threads along it
    threads: int = 1
    repeat: int = 1
    vector: int = 1
    points: int = 1

    @property
    def run(self) -> int:
        """Neighbours that a thread takes at once."""
        return self.points * self.vector

    @property
    def block(self) -> int:
        return self.threads * self.repeat * self.run

    @property
    def blocks(self) -> int:
        return -(-self.extent // self.block)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a kernel is mapped, for what its last blocks have left to do (finish.py).

    The last blocks of each tile where blocks share one, else the last of all, without tiles.
    """

    tiles: tuple[Tile, ...]  # along axes of the kernel's members
    numbers: tuple[int, ...]  # of the tiles' axes of the grid; -1: one block has all of the tile
    lane: tuple[int, int]  # the axis and the number of the threads that share what is left
    count: int  # blocks, of which one is the last


@dataclass(frozen=True, slots=True)
class Operand:
    """What a step of a block reads by one access: a box of an array's elements.

    Its tile has the dimensions in *order*; a copy moves *width* elements at most.
    """

    access: Access
    sizes: tuple[int, ...]
    order: tuple[int, ...]
    width: int
    element_bytes: int

    @property
    def tile_bytes(self) -> int:
        """Its bytes in shared memory, each row padded by a vector."""
        rows = prod(self.sizes[dim] for dim in self.order[:-1])
        return rows * (self.sizes[self.order[-1]] * self.element_bytes + VECTOR_BYTES)


@dataclass(frozen=True, slots=True)
class Steps:
    """A loop over what *reader* reduces, in which operands are copied before they are used.

    Their tiles have *stages* buffers in turn, so that copies are *stages* - 1 steps ahead, each of
    *widths* elements, by *threads* along x and y; *copies* are the statements, once there are any.
    If asynchronous copies bring all operands, blocks have whole tiles of the indices in *spans*,
    and whole steps of the reduced index in *terms* if there are zeros beyond its range.
    If *is_held*, threads hold what the next value of a step needs; *points* are the loop over them.
    """

    reader: str
    loop: OuterLoop
    operands: tuple[Operand, ...]
    widths: tuple[int, ...]
    stages: int
    threads: tuple[int, int]
    spans: Mapping[str, tuple[int, Extent]] = field(default_factory=dict)
    terms: Mapping[str, tuple[int, Extent]] = field(default_factory=dict)
    copies: tuple[str, ...] = ()
    is_held: bool = False
    points: OuterLoop | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """What *product* reduces: the dimension whose terms are in a step, and *others*.

    A step takes one value of each of these.
    """

    product: str
    term: int
    others: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tensor:
    """Products on tensor cores: the axes of rows and columns, and what each reduces.

    The first of *terms* are the lead's.  Operands of *stages* steps are in shared memory at once;
    copies of *boxes* bring them, which a producer warp issues.  Neighbouring blocks have *swath*
    tiles of rows before they have other columns; *in_turn*, each has such tiles of all rows, one
    after another.  Blocks that share sums have *chunk* terms each; *is_finished*, the last of them
    adds these up, and computes what else there is of the sums.  If the products are *is_one_sum*,
    the steps of each follow those of the one before it.  Columns *in_planes* have parts in memory.
    The blocks of a *cluster* have neighbouring tiles of rows and columns, and copy what several of
    them read once, a part each, to all of these.  The operand of rows may be *in_registers*.
    Blocks with *shares* have as many steps each, of whatever tiles.
    """

    row: Axis
    column: Axis
    terms: tuple[Terms, ...]
    tiles: WarpTiles
    stages: int
    boxes: bool = False
    swath: int = 1
    chunk: int = 0
    in_turn: bool = False
    is_finished: bool = False
    is_one_sum: bool = False
    in_planes: bool = False
    cluster: tuple[int, int] = (1, 1)
    in_registers: bool = False
    shares: Shares | None = None

    @property
    def products(self) -> tuple[str, ...]:
        return tuple(terms.product for terms in self.terms)

    @property
    def n_sums(self) -> int:
        """How many sums a thread holds at each place of its tile."""
        if self.in_planes:  # of a step, too
            return 2
        return 1 if self.is_one_sum else len(self.terms)


@dataclass(frozen=True, slots=True)
class Bands:
    """How the bands of isl's schedule are cut (gpu_bands.py), and the template's configuration.

    A kernel of one block has as many threads as its loops are long, whatever these say.
    """

    threads: int  # of a block, at most: a warp along neighbours
    tile: tuple[int, ...] = ()  # of the outermost loops in order, as asked; else from the others


@dataclass(frozen=True, slots=True)
class Implicit:
    """A sum of products as a matrix product: *chunks* blocks share its terms (implicit_product).

    Boxes, swaths and tiles in turn are as of :class:`Tensor`.
    """

    tiles: WarpTiles
    stages: int
    chunks: int = 1
    boxes: bool = False
    swath: int = 1
    in_turn: bool = False
    is_finished: bool = False


@dataclass(frozen=True, slots=True)
class Transposition:
    """Tiles of what is read x the result's neighbours, and a block's threads.

    *load*, *store*: neighbours that a thread has at once, and threads of a warp along them.
    """

    tile: tuple[int, int]
    threads: int
    load: tuple[int, int]
    store: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Schedule:
    """See the module's docstring; *why* explains the choices to the user.

    *template* is the name of the strategy that made it.
    """

    members: tuple[str, ...]
    outer: tuple[OuterLoop, ...]
    remaining: Remaining
    partials: Mapping[str, tuple[Partial, ...]] = field(default_factory=dict)
    lanes: Mapping[str, int] = field(default_factory=dict)
    unrolled: frozenset[tuple[str, int]] = frozenset()  # (statement, dimension)
    innermost: Mapping[str, str] = field(default_factory=dict)  # see rfactor
    why: tuple[str, ...] = ()
    # Per reduction the (axis, width) of the threads that are its lanes, in the partials' order.
    threads: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    points: int = 1  # of a thread, which share loads (arithmetic.py)
    in_registers: bool = False  # the sums of a chunk are accumulated apart, and stored once
    # Of a sum: the indices whose ranges its registers have room for, at any open sizes.
    whole: Mapping[str, Spans] = field(default_factory=dict)
    resident: tuple[str, ...] = ()  # arrays of which each thread keeps its part (residence.py)
    # Loops of a block, the first of what remains of all but the sums over them: what is resident is
    # so for one iteration of these.
    persistent: tuple[Piece, ...] = ()
    is_staged: bool = False  # the arguments among them in shared memory, not in registers
    storage: Requests = field(default_factory=dict)  # of local arrays
    copied: tuple[str, ...] = ()  # arrays whose part of a block is copied there (copied_factors.py)
    copiers: tuple[int, ...] = ()  # the threads along x, y, z that do
    steps: Steps | None = None  # of a contraction in tiles (operand_tiles.py)
    tensor: Tensor | None = None  # of a contraction on tensor cores (tensor_kernel.py)
    bands: Bands | None = None  # of isl's schedule (gpu_generic.py)
    implicit: Implicit | None = None  # of one whose operands are packed (implicit_kernel.py)
    transposition: Transposition | None = None  # by way of shared memory (transposition.py)
    panels: Panels | None = None  # of a contraction on packed panels (panels.py)
    work: AnyWork | None = None  # where it is not read off the loops (work.py, cpu_work.py)
    layout: Layout | None = None  # of a GPU kernel
    atomic: frozenset[str] = frozenset()  # reductions whose chunks are added to the result at once
    # Those whose chunks run one after another, each added to the result as soon as it is there.
    in_turn: frozenset[str] = frozenset()
    # Threads around what is inside the turns alone; loops that are around the kernel till then.
    within: tuple[OuterLoop, ...] = ()
    # Updates at scattered elements that go to copies of their targets, one of each chunk of these.
    private: Mapping[str, tuple[Partial, ...]] = field(default_factory=dict)
    is_summed: bool = False  # the copies are in memory, and a kernel of its own adds them up
    tree: Node | None = None  # the loops, where a rewrite has opened them; all of them
    tiled: TensorKernel | None = None  # those around tiles, where a rewrite has made these
    library: str = ""  # whose call runs in its place; the loops say what it computes
    template: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)  # of the template, as plain data
    code: Code = DEFAULT_CODE  # what the template favours, until it is chosen (code_choices.py)

    @property
    def is_opened(self) -> bool:
        """Whether a rewrite has said what its loops are."""
        return self.tree is not None or self.tiled is not None

    @property
    def has_producer(self) -> bool:
        """Whether a warp of each block asks for the copies of what the others multiply."""
        of_plain = self.tensor is not None and self.tensor.boxes
        return of_plain or (self.implicit is not None and self.implicit.boxes)


def nested(scop: Scop, schedule: Schedule, nester: Nester) -> Node:
    """Return the loops of *schedule* below its outer ones.

    Sums over the turns are initialised before these, and folded after: these are as wide as they
    are, whatever the rows' type.
    """
    n_turns = len(schedule.persistent)
    parts = [turn.part for turn in schedule.persistent]
    behind = _behind(schedule, nester)
    late = [name for name in schedule.members if name in behind and _is_within(schedule, name)]
    before, inside, after = list[str](), list[str](), list[str]()
    for name in schedule.members:
        has_turns = [piece.part for piece in schedule.remaining[name][:n_turns]] == parts
        is_init = nester.shapes[name].statement.kind is Kind.INIT
        if has_turns and _is_within(schedule, name) and name not in behind:
            inside.append(name)
        elif is_init and name not in behind:
            before.append(name)
        else:
            after.append(name)
    tree = nester.nest(inside, {name: schedule.remaining[name][n_turns:] for name in inside})
    tree = _in_threads(schedule, nester, inside, tree)
    for depth, turn in reversed(list(enumerate(schedule.persistent))):
        heads = {name: schedule.remaining[name][depth] for name in inside}
        tree = nester.loop(heads, turn.kind or LoopKind.SERIAL, tree)
    narrowed = {name: _narrowed(scop, name, schedule.remaining[name]) for name in after}
    trees = [
        *_nested_apart(schedule, nester, before, schedule.remaining),
        tree,
        *reversed(_nested_apart(schedule, nester, [n for n in after if n not in late], narrowed)),
        *_nested_apart(schedule, nester, late, narrowed),
    ]
    return sequence(trees)


def _is_within(schedule: Schedule, name: str) -> bool:
    return all(name in loop.pieces for loop in schedule.within)


def _behind(schedule: Schedule, nester: Nester) -> set[str]:
    """Return the members with threads of their own that end copies, and what depends on these."""
    found = set[str]()
    for name in schedule.members:
        is_init = nester.shapes[name].statement.kind is Kind.INIT
        is_end = not _is_within(schedule, name) and not is_init
        if is_end or nester.alignment.predecessors(name) & found:
            found.add(name)
    return found


def _nested_apart(
    schedule: Schedule, nester: Nester, members: Sequence[str], remaining: Remaining
) -> list[Node]:
    """Return the loops of those of *members* that have threads of their own, then of the others."""
    own = [name for name in members if not _is_within(schedule, name)]
    others = [name for name in members if _is_within(schedule, name)]
    tree = _in_threads(schedule, nester, others, nester.nest(others, remaining))
    return [nester.nest(own, remaining), tree]


def _in_threads(schedule: Schedule, nester: Nester, members: Sequence[str], tree: Node) -> Node:
    """Return *tree*, of *members*, in the threads that are around what is inside the turns."""
    for loop in reversed(schedule.within):
        pieces = {name: loop.pieces[name] for name in members}
        tree = nester.loop(pieces, loop.kind, tree, loop.limit) if members else tree
    return tree


def _narrowed(scop: Scop, name: str, pieces: Sequence[Piece]) -> tuple[Piece, ...]:
    """Return the loops of *name* with its lanes in vectors of what it writes."""
    size_bytes = scop.arrays[scop.by_name[name].write.array].dtype.size_bytes
    width = max(1, VECTOR_BYTES // size_bytes)
    found: list[Piece] = []
    for piece in pieces:
        if piece.kind is not LoopKind.LANES or piece.extent <= width:
            found.append(piece)
            continue
        lanes = piece.coordinate
        several = replace(lanes, div=width, mod=piece.extent // width)
        found += [
            replace(piece, coordinate=several, extent=piece.extent // width, kind=LoopKind.UNROLL),
            replace(piece, coordinate=replace(lanes, mod=width), extent=width),
        ]
    return tuple(found)
