"""From a schedule to a printable tree of loops, guards and statement instances.

isl generates the loops; what a printer needs of a leaf (the values of the statement's indices, and
the indices into local arrays) is asked of isl where it is known best, at the leaf, in terms of the
loop variables around it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace

import islpy as isl

from tcdsl.codegen.ast.build import as_factor, binary, number
from tcdsl.codegen.ast.isl_code import C, IslCode, Macros
from tcdsl.codegen.ast.nodes import Binary, Code
from tcdsl.codegen.ast.whole_iterations import framed
from tcdsl.costmodel.locality import array_strides
from tcdsl.lang import comprehension as lang
from tcdsl.lang.types.dtypes import INT32
from tcdsl.poly.accesses import builder_of
from tcdsl.poly.bulk_copies import numbers_of, walked
from tcdsl.poly.isl_utils import isl_options
from tcdsl.poly.loop_tree import Loop, Node, loops_of, schedule_of
from tcdsl.poly.scop import Access, Scop, Statement
from tcdsl.records import dataclass
from tcdsl.schedule.placement import Placement, Space, local_functions

_FRAME = "frame"
REQUEST = "request", -1  # the key in Leaf.local of the numbers that a bulk copy's request takes


@dataclass(slots=True)
class Leaf:
    """Instances of a statement: its indices, and its local accesses' indices."""

    statement: str
    iterators: tuple[Code, ...]
    local: dict[tuple[str, int], tuple[Code, ...]] = field(default_factory=dict)
    values: dict[str, Code] = field(default_factory=dict)  # loop -> its coordinate
    # Dimensions of which the loops around run what is in the range from data, and nothing else.
    kept: frozenset[int] = frozenset()


@dataclass(slots=True)
class For:
    """``for (variable = init; condition; variable += step)``; a loop of one value has no others."""

    variable: str
    init: Code
    condition: Code | None
    step: Code | None
    body: "AstNode"

    @property
    def is_constant(self) -> bool:
        """Whether both bounds are numbers."""
        match self.condition:
            case None:
                return True
            case Binary(right=bound):
                return number(self.init) is not None and number(bound) is not None
            case _:
                return False


@dataclass(slots=True)
class If:
    """``if (condition) then else otherwise``."""

    condition: Code
    then: "AstNode"
    otherwise: "AstNode | None"


@dataclass(slots=True)
class Block:
    """Children in order."""

    children: list["AstNode"]


@dataclass(slots=True)
class Mark:
    """What a loop of the loop tree, called *name*, became: a For, several, or no loop at all."""

    name: str
    body: "AstNode"


AstNode = Leaf | For | If | Block | Mark


def leaves(node: AstNode | None) -> Iterator[Leaf]:
    """Yield the leaves of *node*, in order."""
    match node:
        case Leaf():
            yield node
        case Block(children=children):
            for child in children:
                yield from leaves(child)
        case If(then=then, otherwise=otherwise):
            yield from leaves(then)
            yield from leaves(otherwise)
        case For(body=body) | Mark(body=body):
            yield from leaves(body)


def generate(
    scop: Scop,
    tree: Node,
    placements: Mapping[str, Placement],
    asked_of: Callable[[AstNode], Collection[str]] = lambda _: (),
    macros: Macros = C,
    whole: Collection[str] = (),
) -> AstNode:
    """Return the loops of the kernel *tree*.

    :arg asked_of: which loops' coordinates every leaf below them is to tell, of what isl made.
    :arg macros: what isl's functions are called.
    :arg whole: the loops whose iterations are each to be printed in one place.
    """
    framed_scop, framed_tree = framed(scop, tree, whole)
    code = IslCode(macros)
    collector = _LeafCollector(scop, placements, code)
    build = isl.AstBuild.from_context(scop.context)
    # The handle keeps the hook alive; without it isl calls freed memory.
    build, handle = build.set_at_each_domain(collector)
    # A loop's variable is its coordinate, also where only every fourth has an instance: threads are
    # known by it.  isl's default counts those that have one.
    with isl_options(ast_build_scale_strides=0):
        node = build.node_from_schedule(schedule_of(framed_scop, framed_tree))
    del handle
    if collector.error is not None:
        raise collector.error
    found = _convert(node, collector.by_id, code)
    if framed_tree is not tree:
        found = _without_frames(found)
    asked = asked_of(found)
    collector.tell([loop for loop in loops_of(tree) if loop.name in asked])
    return found


class _LeafCollector:
    """The hook that isl calls at every leaf; keeps the first exception, for isl loses them."""

    def __init__(self, scop: Scop, placements: Mapping[str, Placement], code: IslCode) -> None:
        self.scop = scop
        self.code = code
        self.placements = placements
        self.by_id: dict[str, Leaf] = {}
        self._builds: dict[str, isl.AstBuild] = {}  # what isl knew at each leaf
        self.error: Exception | None = None
        self._functions: dict[str, list[tuple[tuple[str, int], list[isl.PwAff]]]] = {}

    def __call__(self, node: isl.AstNode, build: isl.AstBuild) -> isl.AstNode:
        try:
            if _statement_of(node) not in self.scop.by_name:
                return node.set_annotation(isl.Id(_FRAME))
            name = f"leaf{len(self.by_id)}"
            self.by_id[name] = self._leaf(node, build)
            self._builds[name] = build.copy()
            return node.set_annotation(isl.Id(name))
        except Exception as error:
            self.error = self.error or error
            return node

    def _leaf(self, node: isl.AstNode, build: isl.AstBuild) -> Leaf:
        call = node.user_get_expr()
        statement = _statement_of(node)
        iterators = tuple(
            self.code(call.get_op_arg(position)) for position in range(1, call.get_op_n_arg())
        )
        leaf = Leaf(statement, iterators)
        functions = self._local_functions(self.scop.by_name[statement])
        if functions:
            instance = _instance_of(build)
            for key, affs in functions:
                placement = self.placements.get(key[0])
                inside = [aff.pullback_pw_multi_aff(instance) for aff in affs]
                found = [self._text(build, aff) for aff in _in_register_ring(inside, placement)]
                leaf.local[key] = tuple(_in_ring(found, placement))
        return leaf

    def tell(self, asked: Sequence[Loop]) -> None:
        """Let the leaves know the coordinates of the loops *asked* that are around them."""
        for name, leaf in self.by_id.items():
            loops = [loop for loop in asked if leaf.statement in loop.coordinates]
            if not loops:
                continue
            build, space = self._builds[name], self.scop.by_name[leaf.statement].domain.get_space()
            instance = _instance_of(build)
            for loop in loops:
                aff = isl.PwAff.from_aff(loop.coordinates[leaf.statement].function(space))
                leaf.values[loop.name] = self._value(build, instance, aff)

    def _value(self, build: isl.AstBuild, instance: isl.PwMultiAff, aff: isl.PwAff) -> Code:
        """Return *aff*, of a statement's indices, in terms of the loop variables."""
        return self._text(build, aff.pullback_pw_multi_aff(instance))

    def _text(self, build: isl.AstBuild, function: isl.PwAff) -> Code:
        return self.code(build.expr_from_pw_aff(function))

    def _local_functions(
        self, statement: Statement
    ) -> list[tuple[tuple[str, int], list[isl.PwAff]]]:
        """Return the indices of each access that isl is to print, keyed by its position.

        Those are the accesses to local arrays, and those that divide: in terms of the loops around
        them isl mostly finds the quotient, and the C compiler would not.
        """
        if statement.name not in self._functions:
            found = []
            for position, access in enumerate((*statement.writes, *statement.reads)):
                placement = self.placements.get(access.array)
                if placement is not None or _divides(access):
                    affs = _index(self.scop, statement, access, placement)
                    found.append(((access.array, position), affs))
            if statement.bulk is not None:
                found.append((REQUEST, _numbers(self.scop, statement)))
            self._functions[statement.name] = found
        return self._functions[statement.name]


def _in_ring(indices: list[Code], placement: Placement | None) -> list[Code]:
    """Return the local *indices*, where buffers are taken in turn those of the buffers.

    isl divides by the product of a tile's length and the buffers, and would not see again that the
    quotient is the same for a whole tile.
    """
    if placement is not None and placement.space is Space.SHARED and placement.ring is not None:
        ring = placement.ring
        indices[ring.dim] = binary(as_factor(indices[ring.dim]), "%", ring.buffers)
    return indices


def _in_register_ring(indices: list[isl.PwAff], placement: Placement | None) -> list[isl.PwAff]:
    """Return the *indices* of a local array, free of open sizes where registers are taken in turn.

    A register is known by a constant.  In the last step of K terms, whose number is of K, isl has
    floor(-K / 16) and floor((K + 15) / 16) in one expression, and finds in its graph alone that
    they add up to 0.
    """
    if placement is None or placement.ring is None or placement.space is Space.SHARED:
        return indices
    at, kind = placement.ring.dim, isl.dim_type.param
    if indices[at].involves_dims(kind, 0, indices[at].dim(kind)):
        graph = isl.Map.from_pw_aff(indices[at]).detect_equalities()
        indices[at] = isl.PwMultiAff.from_map(graph).get_at(0)
    return indices


def _statement_of(node: isl.AstNode) -> str:
    return str(node.user_get_expr().get_op_arg(0).id_get_id().get_name())


def _instance_of(build: isl.AstBuild) -> isl.PwMultiAff:
    """Return the statement's indices as functions of the loop variables around a leaf."""
    return isl.PwMultiAff.from_map(isl.Map.from_union_map(build.get_schedule()).reverse())


def _divides(access: Access) -> bool:
    """Return whether a subscript of an affine access holds a division."""
    return access.is_exact and any(
        isinstance(node, lang.Binary) and node.op in ("/", "%")
        for subscript in access.subscripts
        for node in lang.walk(subscript)
    )


def _index(
    scop: Scop, statement: Statement, access: Access, placement: Placement | None
) -> list[isl.PwAff]:
    builder = builder_of(statement.indices, statement.name, scop.sizes)
    functions: dict[int, isl.PwAff] = {}
    for position, subscript in enumerate(access.subscripts):
        # What is scattered in a local array is printed as it is written (statements.place).
        is_affine = position not in access.inexact
        function = builder.affine(subscript if is_affine else lang.Const(0, INT32))
        assert function is not None, f"{access.array} has such a subscript"
        functions[position] = function
    if placement is None:
        return list(functions.values())
    return local_functions(placement, access, statement, functions)


def _numbers(scop: Scop, copy: Statement) -> list[isl.PwAff]:
    """Return the numbers that a request for *copy* takes."""
    assert copy.bulk is not None
    builder = builder_of(copy.indices, copy.name, scop.sizes)
    array = scop.arrays[copy.reads[0].array]
    dims = walked(array, array_strides(array), copy.bulk)
    found = []
    for one in numbers_of(copy, array, dims):
        function = builder.affine(one)
        assert function is not None, "sums and quotients"
        found.append(function)
    return found


def _convert(node: isl.AstNode, leaves: Mapping[str, Leaf], code: IslCode) -> AstNode:
    kind: object = node.get_type()
    types = isl.ast_node_type
    if kind == types["for_"]:
        return _convert_for(node, leaves, code)
    if kind == types["if_"]:
        has_else = node.if_has_else_node()
        otherwise = _convert(node.if_get_else_node(), leaves, code) if has_else else None
        then = _convert(node.if_get_then_node(), leaves, code)
        return If(code(node.if_get_cond()), then, otherwise)
    if kind == types.block:
        children = node.block_get_children()
        count = children.n_ast_node()
        return Block([_convert(children.get_at(i), leaves, code) for i in range(count)])
    if kind == types.mark:
        return Mark(node.mark_get_id().get_name(), _convert(node.mark_get_node(), leaves, code))
    assert kind == types.user
    return leaves.get(node.get_annotation().get_name(), Block([]))


def _without_frames(node: AstNode) -> AstNode:
    """Return *node* without empty blocks, and what is around nothing else."""
    match node:
        case Block(children=children):
            kept = [child for child in map(_without_frames, children) if any(leaves(child))]
            return kept[0] if len(kept) == 1 else Block(kept)
        case If(then=then, otherwise=otherwise):
            if otherwise is not None:
                otherwise = _without_frames(otherwise)
            return If(node.condition, _without_frames(then), otherwise)
        case For(body=body) | Mark(body=body):
            return replace(node, body=_without_frames(body))
        case Leaf():
            return node


def _convert_for(node: isl.AstNode, leaves: Mapping[str, Leaf], code: IslCode) -> For:
    body = _convert(node.for_get_body(), leaves, code)
    variable = node.for_get_iterator().to_C_str()
    init = code(node.for_get_init())
    if node.for_is_degenerate():
        return For(variable, init, None, None, body)
    return For(variable, init, code(node.for_get_cond()), code(node.for_get_inc()), body)
