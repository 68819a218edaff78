"""Blocked summation: what a long loop adds to an accumulator is added up block by block.

    for (v = 0; v <= n; v++)       for (b = 0; b <= n; b += 16) {
      s += x[v];             --->    const float outer = s;  s = 0;
                                     for (v = b; v <= min(n, b + 15); v++) s += x[v];
                                     s = outer + s;
                                   }

The error of n terms that are added one after another grows like n; in blocks, and blocks of blocks
where they are many, like the sum of the lengths of the chains.  Legal wherever the order of
the terms is free, as it is for every reduction: within the loop nothing but the sum's own updates
may touch the accumulators.  They are saved under other names, so statements are printed as
ever.  Loops over the lanes of a vector are a block of their own.

After Castaldo, Whaley, Chronopoulos, "Reducing Floating Point Error in Dot Product Using the
Superblock Family of Algorithms", SIAM J. Sci. Comput. 31(2), 2008, doi:10.1137/070679946.
"""

from collections.abc import Callable, Mapping

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import ZERO, binary, index, mentions
from tcdsl.codegen.ast.nodes import Assign, Declare, For, Name, Node, Type, Variable
from tcdsl.codegen.c.expressions import c_type, combine, identity
from tcdsl.codegen.names import Names
from tcdsl.lang.comprehension import Operator
from tcdsl.poly.loop_tree import Loop, LoopKind
from tcdsl.poly.scop import Kind, Scop, Statement
from tcdsl.records import dataclass
from tcdsl.schedule.placement import Placement, Space

PAIRS = 8  # by which a block of a compensated sum is longer
FEW = 4  # additions of a vector's lanes that are worth a sum of their own
_UNKNOWN = 1 << 22  # iterations of a loop whose extent is open
_WRITTEN_OUT = (LoopKind.LANES, LoopKind.UNROLL)
_CUT = (LoopKind.SERIAL, LoopKind.THREAD)


@dataclass(frozen=True, slots=True)
class Policy:
    """How long chains may be, and how many accumulators a loop may save.

    *iterations*: how often one thread runs a loop's body, None if that is not known.  *long* is
    how many additions one after another are worth blocks, for a single accumulator and for an
    array."""

    iterations: Callable[[Loop], int | None]
    block: int  # additions of the innermost block
    most: int  # blocks that are added one after another
    most_elements: int  # of an accumulator that is an array
    long: tuple[int, int] = (64, 64)


@dataclass(frozen=True, slots=True)
class Blocks:
    """The blocks of one loop: the accumulators, and the iterations of a block at each level.

    The innermost level first; without any all of the loop is one block.  *each*: how many terms an
    iteration adds to an accumulator.
    """

    accumulators: tuple[Placement, ...]
    iterations: tuple[int, ...]
    each: int = 1


@dataclass(frozen=True, slots=True)
class Nest:
    """Loops around *innermost*, each alone in the one outside, whose blocks all add to one sum.

    *iterations* of the innermost are a block.
    """

    accumulators: tuple[Placement, ...]
    innermost: loop_ast.For
    iterations: int


class BlockedSums:
    """Which loops of a kernel are cut into blocks."""

    def __init__(
        self,
        scop: Scop,
        ast: loop_ast.AstNode,
        loops: Mapping[str, Loop],
        placements: Mapping[str, Placement],
        policy: Policy,
    ) -> None:
        self.scop = scop
        self.loops = loops
        self.placements = placements
        self.policy = policy
        sums = {
            leaf.statement for leaf in loop_ast.leaves(ast) if self._is_sum(self._statement(leaf))
        }
        arrays = {scop.by_name[name].write.array for name in sums}
        own = [p for name, p in placements.items() if name in arrays and self._is_kept(p)]
        self.accumulators = tuple(p for p in own if self._is_long(ast, p))

    def of(self, node: loop_ast.For, loop: Loop) -> Blocks | None:
        """Return the blocks into which the C loop *node* of *loop* is cut, None if into none."""
        if loop.kind not in (*_CUT, *_WRITTEN_OUT):
            return None
        own = tuple(p for p in self.accumulators if self._adds_up(node, p))
        each = max((self._chain(node.body, None, p.array) for p in own), default=0)
        iterations = self._iterations(loop)
        if iterations < 2:
            return None
        if loop.kind in _WRITTEN_OUT:
            # What a compensated sum loses of a few terms is no reason for another addition.
            plain = tuple(p for p in own if not self.scop.arrays[p.array].dtype.is_compensated)
            return Blocks(plain, ()) if plain and iterations * each >= FEW else None
        is_pair = all(self.scop.arrays[p.array].dtype.is_compensated for p in own)
        block = self.policy.block * (PAIRS if is_pair else 1)
        if iterations * each <= 2 * block:
            return None
        sizes = [max(1, block // each)]
        while iterations > self.policy.most * sizes[-1]:
            sizes.append(self.policy.most * sizes[-1])
        return Blocks(own, tuple(sizes), each)

    def nest(self, node: loop_ast.For, loop: Loop) -> Nest | None:
        """Return the nest of *loop* whose blocks are (parts of) its innermost loops; None: none is.

        ``of`` has a sum for each loop of the nest in which there is more than one block.
        """
        own = tuple(p for p in self.accumulators if self._adds_up(node, p))
        if loop.kind not in _CUT or not own:
            return None
        if any(self.scop.arrays[p.array].dtype.is_compensated for p in own):
            return None
        outside, inner = 1, (node, loop)
        while (found := self._only_loop(inner[0].body)) is not None:
            outside *= self._iterations(inner[1])
            inner = found
        innermost, block = self._iterations(inner[1]), self.policy.block
        if any(not self._adds_up(inner[0], p) for p in own):
            return None
        if any(self._chain(inner[0].body, None, p.array) != 1 for p in own):
            return None
        blocks = max(1, round(innermost / block))
        is_fit = 2 * innermost > block and 1 < outside <= self.policy.most // blocks
        return Nest(own, inner[0], -(-innermost // blocks)) if is_fit else None

    def _only_loop(self, body: loop_ast.AstNode) -> tuple[loop_ast.For, Loop] | None:
        """Return the serial loop that is all of *body*."""
        match body:
            case loop_ast.Mark(name=name, body=loop_ast.For() as node):
                loop = self.loops[name]
                return (node, loop) if loop.kind in _CUT else None
            case loop_ast.Block(children=[child]):
                return self._only_loop(child)
            case _:
                return None

    def _is_kept(self, placement: Placement) -> bool:
        is_private = placement.space is Space.PRIVATE
        return is_private and placement.elements() <= self.policy.most_elements

    def _statement(self, leaf: loop_ast.Leaf) -> Statement:
        return self.scop.by_name[leaf.statement]

    def _is_sum(self, statement: Statement) -> bool:
        """Return whether *statement* adds floating-point numbers up, in the type of the sum."""
        reduction = statement.reduction
        if statement.kind is not Kind.UPDATE or reduction is None:
            return False
        stored = self.scop.arrays[statement.write.array].dtype
        is_sum = reduction.operator is Operator.ADD and reduction.dtype.is_float
        return is_sum and stored == reduction.dtype

    def _adds_up(self, node: loop_ast.For, accumulator: Placement) -> bool:
        """Return whether the iterations of *node* do nothing with *accumulator* but add to it.

        All of them to the same element, or elements.
        """
        found = False
        for leaf in loop_ast.leaves(node.body):
            statement = self._statement(leaf)
            touched = [a.array for a in (*statement.writes, *statement.reads)]
            if accumulator.array not in touched:
                continue
            is_target = statement.write.array == accumulator.array  # else another sum reads it
            is_own = is_target and touched.count(accumulator.array) == 1 and self._is_sum(statement)
            if not is_own or self._is_apart(leaf, node):
                return False
            found = True
        return found

    def _is_apart(self, leaf: loop_ast.Leaf, node: loop_ast.For) -> bool:
        """Return whether each iteration of *node* may update another element."""
        array = self._statement(leaf).write.array
        placement = self.placements.get(array)
        if placement is not None and placement.elements() == 1:
            return False
        return any(mentions(i, node.variable) for i in leaf.local.get((array, 0), ()))

    def _iterations(self, loop: Loop) -> int:
        iterations = self.policy.iterations(loop)
        return _UNKNOWN if iterations is None else iterations

    def _is_long(self, ast: loop_ast.AstNode, accumulator: Placement) -> bool:
        least = self.policy.long[accumulator.elements() > 1]
        return self._lifetime_chain(ast, accumulator) > least

    def _lifetime_chain(self, ast: loop_ast.AstNode, accumulator: Placement) -> int:
        """Return how many terms are added to an element of *accumulator* in its life."""
        body = ast if accumulator.loop is None else _body_of(ast, accumulator.loop)
        return self._chain(body, None, accumulator.array, in_blocks=False)

    def _chain(
        self,
        node: loop_ast.AstNode | None,
        loop: Loop | None,
        array: str,
        *,
        in_blocks: bool = True,
    ) -> int:
        """Return how many additions to one element of *array* follow one another in *node*.

        :arg loop: whose mark is above.
        """
        match node:
            case loop_ast.Leaf():
                statement = self._statement(node)
                return int(statement.write.array == array and self._is_sum(statement))
            case loop_ast.Block(children=children):
                return sum(self._chain(c, loop, array, in_blocks=in_blocks) for c in children)
            case loop_ast.If(then=then, otherwise=otherwise):
                return max(
                    self._chain(n, loop, array, in_blocks=in_blocks) for n in (then, otherwise)
                )
            case loop_ast.Mark(name=name, body=body):
                return self._chain(body, self.loops[name], array, in_blocks=in_blocks)
            case loop_ast.For(body=body):
                each = self._chain(body, None, array, in_blocks=in_blocks)
                updates = [leaf for leaf in loop_ast.leaves(body)
                           if self._statement(leaf).write.array == array]  # fmt: skip
                if loop is None or not each or any(self._is_apart(u, node) for u in updates):
                    return each
                blocks = self.of(node, loop) if in_blocks else None
                iterations = self._iterations(loop)
                if blocks is None or all(p.array != array for p in blocks.accumulators):
                    return iterations * each
                return -(-iterations // blocks.iterations[-1]) if blocks.iterations else 1
            case _:
                return 0


def set_aside(
    placement: Placement, scop: Scop, names: Names, aside: str, pragma: str
) -> tuple[list[Node], list[Node]]:
    """Return what clears an accumulator, and what adds what it held before to what it holds.

    :arg aside: the name under which the old value is kept.
    """
    dtype = scop.arrays[placement.array].dtype
    name, size = names.of("array", placement.array), placement.elements()
    type_, zero = Type(c_type(dtype)), identity(Operator.ADD, dtype)
    if size == 1:
        total = combine(Operator.ADD, dtype, Name(aside), Name(name))
        kept = Declare(type_, (Variable(aside, Name(name)),), before="const ")
        return [kept, Assign(Name(name), zero)], [Assign(Name(name), total)]
    old, new = index(aside, "w_k"), index(name, "w_k")

    def for_each(*body: Node) -> Node:
        condition = binary("w_k", "<", size)
        return For(Type("int"), "w_k", ZERO, condition, None, body, pragma=pragma)

    return (
        [Declare(type_, (Variable(aside, size=str(size)),)),
         for_each(Assign(old, new), Assign(new, zero))],
        [for_each(Assign(new, combine(Operator.ADD, dtype, old, new)))],
    )  # fmt: skip


def _body_of(node: loop_ast.AstNode | None, name: str) -> loop_ast.AstNode | None:
    """Return what is in one iteration of the loop *name*, the first that isl printed of it."""
    match node:
        case loop_ast.Mark(name=found, body=body) if found == name:
            return body.body if isinstance(body, loop_ast.For) else body
        case loop_ast.Mark(body=body) | loop_ast.For(body=body):
            return _body_of(body, name)
        case loop_ast.Block(children=children):
            bodies = (_body_of(child, name) for child in children)
            return next((body for body in bodies if body is not None), None)
        case loop_ast.If(then=then, otherwise=otherwise):
            return _body_of(then, name) or _body_of(otherwise, name)
        case _:
            return None
