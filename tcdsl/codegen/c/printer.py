"""Plans as C: two functions a plan, one loop nest a kernel, OpenMP threads and vector loops.

    static void tcdsl_kernels(const float *restrict x, float *restrict y, ..., int64_t *fault)
    int32_t tcdsl_entry(void *const *pointers, const int64_t *integers, int64_t *fault)

*pointers* are the arguments in the order of ``CSource.pointers``, then one workspace that holds
the scratch arrays; *integers* the open sizes and strides in the order of ``CSource.integers``.
The entry finds the arrays in memory and passes them to the kernels (``entry.py``).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import binary, call, chain, code
from tcdsl.codegen.ast.isl_code import C
from tcdsl.codegen.ast.nodes import (
    Code,
    Comment,
    Declare,
    Evaluate,
    For,
    If,
    Literal,
    Name,
    Node,
    Scope,
    Type,
    Variable,
)
from tcdsl.codegen.ast.opened_loops import unopened_loops
from tcdsl.codegen.ast.text import text
from tcdsl.codegen.ast.walk import library_names, mentioned, names, of_statement
from tcdsl.codegen.c.dot_products import dot_products
from tcdsl.codegen.c.entry import (
    ALIGNMENT,
    entry_lines,
    function_lines,
    parameters_of,
    places_of,
    workspace_function,
)
from tcdsl.codegen.c.expressions import c_type
from tcdsl.codegen.c.row_prefetches import row_prefetches
from tcdsl.codegen.c.size_texts import Integer, SizeTexts
from tcdsl.codegen.c.statements import FAILS, HOLDS, Context, StatementPrinter, constant
from tcdsl.codegen.c.sums import SumsPrinter
from tcdsl.codegen.c.thread_bodies import ThreadBody, with_thread_bodies
from tcdsl.codegen.device.c import FUNCTIONS, header_text, parts_for
from tcdsl.codegen.names import Names
from tcdsl.codegen.passes.blocked_sums import BlockedSums, Policy
from tcdsl.codegen.passes.iterations import last_of
from tcdsl.codegen.passes.loaded_bounds import SHORT_RANGE, LoadedBounds, loaded_bounds
from tcdsl.costmodel.matrix_products import MatrixProduct
from tcdsl.errors import INTERNAL
from tcdsl.lang.comprehension import Expr, Select
from tcdsl.lang.faults import Site
from tcdsl.poly.data_ranges import data_ranges_of
from tcdsl.poly.loop_tree import Loop, LoopKind, loops_of, statements_of
from tcdsl.poly.scop import Kind, Storage
from tcdsl.records import dataclass
from tcdsl.schedule.placement import Placement
from tcdsl.schedule.plan import Kernel, Plan
from tcdsl.strategies.library_kernels import product_of
from tcdsl.strategies.operations import PARALLEL_WORK, operations_of

_INDEX = "int64_t"
_ALIGNED = f" __attribute__((aligned({ALIGNMENT})))"
# Accumulators are a few vectors: what sets them aside is to be little beside what a block adds.
# Blocks of blocks cost next to nothing, and each chain that is shorter is less of an error.
_MOST_BLOCKS, _MOST_SET_ASIDE = 16, 128

_PRELUDE = """\
#define floord(n, d) tc_div_i64((n), (d))
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
static inline int64_t tcdsl_clamp(int64_t index, int64_t extent)
{
  return (uint64_t)index < (uint64_t)extent ? index : 0;
}
"""


@dataclass(frozen=True, slots=True)
class CSource:
    """The text of a plan, and what its function is called with."""

    text: str
    body: str  # without the device library: what a person reads
    pointers: tuple[str, ...]  # arrays, then "" for the workspace if it has bytes
    workspace_bytes: int | None  # None: tcdsl_workspace(integers) tells, for it depends on them
    sites: tuple[Site, ...]  # by the number that a fault record has
    integers: tuple[Integer, ...] = ()  # open sizes and strides
    statements: tuple[str, ...] = ()  # for each line of *body*, the statement that it prints
    functions: frozenset[str] = frozenset()  # of the device library
    has_tiles: bool = False  # of registers, that loops which are written out add up


# What the caller sets, once: what multiplies matrices as a text says.
_PRODUCTS = """\
typedef void tcdsl_product_function(const char *, const void *, const void *, void *);
static tcdsl_product_function *tcdsl_product;
void tcdsl_set_product(tcdsl_product_function *function)
{
  tcdsl_product = function;
}
"""


def print_plan(plan: Plan, threads: int) -> CSource:
    """Return *plan* as C for up to *threads* threads."""
    return _PlanPrinter(plan, threads).print()


class _PlanPrinter:
    def __init__(self, plan: Plan, threads: int) -> None:
        self.plan = plan
        self.scop = plan.scop
        self.threads = threads
        self.names = Names()
        self.sites: list[Site] = []
        self.sizes = SizeTexts(plan.scop, self.names)
        self.has_products = False

    def print(self) -> CSource:
        arguments = [a for a in self.scop.arrays.values() if a.storage is Storage.ARGUMENT]
        touched = {a.array for s in self.scop.statements for a in (*s.writes, *s.reads)}
        scratch = [
            array
            for array in self.scop.arrays.values()
            if array.storage is Storage.SCRATCH
            and array.name in touched
            and array.name not in self.plan.placements
        ]
        places, workspace = places_of(arguments, scratch, self.sizes)
        parameters = parameters_of(self.scop, (*arguments, *scratch), self.names)
        nodes: list[Node] = list(self.sizes.declarations())
        for kernel in self.plan.kernels:
            nodes += self._kernel(kernel)
        nodes, parts = with_thread_bodies(nodes, parameters)
        parts.append(ThreadBody("tcdsl_kernels", tuple(parameters.values()), tuple(nodes)))
        declared = [] if isinstance(workspace, int) else self.sizes.declarations()
        entry = entry_lines(declared, [places[array.name] for array in (*arguments, *scratch)])
        printed = [*(line for part in parts for line in function_lines(part)), *entry]
        body = "\n".join([*(line.text for line in printed), ""])
        of_lines = (*(line.statement for line in printed), "")
        if not isinstance(workspace, int):
            body += workspace_function(self.sizes, workspace)
        every = [node for part in parts for node in part.body]
        used = library_names([*every, Evaluate(code(workspace))])
        functions = (used | {"tc_div_i64", "tc_mod_i64"}) & FUNCTIONS.keys()
        prelude = _PRELUDE + _PRODUCTS if self.has_products else _PRELUDE
        pointers = [array.name for array in arguments] + ([""] if workspace != 0 else [])
        loops = (loop for kernel in self.plan.kernels for loop in loops_of(kernel.tree))
        has_tiles = any(loop.kind is LoopKind.UNROLL for loop in loops)
        return CSource(
            "\n".join([header_text(parts_for(functions)), prelude, body]), body,
            tuple(pointers), workspace if isinstance(workspace, int) else None,
            tuple(self.sites), self.sizes.integers, of_lines, functions, has_tiles,
        )  # fmt: skip

    def _call(self, kernel: Kernel) -> list[Node]:
        """Return the call of a library that stands for *kernel*.

        :raises InternalError: its statements are no product of matrices in memory any more.
        """
        names = list(statements_of(kernel.tree))
        statements = [self.scop.by_name[name] for name in names]
        product = product_of(self.scop, statements, kernel.library)
        if not isinstance(product, MatrixProduct):
            what = f"the call of {kernel.library} for {kernel.name} is no product: {product}"
            raise INTERNAL(where="printing", what=what, repro="the program")
        assert not {m.array for m, _ in product.matrices} & self.plan.placements.keys()
        self.has_products = True
        pointers = [self.names.of("array", matrix.array) for matrix, _ in product.matrices]
        about = Comment(f"{kernel.name}: a call of {kernel.library}, {product.described()}")
        # Users' names stay out of the text.
        plain = product.to_json(with_names=False)
        text_ = Literal('"' + json.dumps(plain).replace('"', '\\"') + '"')
        called = call("tcdsl_product", text_, *pointers)
        return [about, Evaluate(called, names[-1])]

    def _kernel(self, kernel: Kernel) -> list[Node]:
        if kernel.library:
            return self._call(kernel)
        placements = self.plan.placements
        local = {found.loop for found in placements.values() if found.loop is not None}
        ast = loop_ast.generate(self.scop, kernel.tree, placements, whole=local)
        about = (Comment(reason) for reason in (kernel.name, *kernel.why))
        return [*about, Scope(tuple(_KernelPrinter(self, kernel).nodes(ast)))]


class _KernelPrinter:
    """Prints the loops of one kernel."""

    def __init__(self, parent: _PlanPrinter, kernel: Kernel) -> None:
        self.parent = parent
        self.code = kernel.code
        self.scop = parent.scop
        self.names = parent.names
        self.placements = parent.plan.placements
        self.loops: Mapping[str, Loop] = {loop.name: loop for loop in loops_of(kernel.tree)}
        self.context = Context(
            parent.scop, parent.names, parent.sizes, parent.plan.placements, parent.sites
        )
        self.is_in_parallel = False
        self.hoisted: dict[int, dict[Expr, Code]] = {}  # by id(leaf)
        self.n_hoisted = 0
        self.n_ranges = 0
        self.local_of: dict[str | None, list[Placement]] = {}
        for placement in self.placements.values():
            is_mine = placement.loop in self.loops or placement.loop is None
            if is_mine and self._is_used_here(placement, kernel):
                self.local_of.setdefault(placement.loop, []).append(placement)

    def _is_used_here(self, placement: Placement, kernel: Kernel) -> bool:
        names = set(statements_of(kernel.tree))
        return any(
            access.array == placement.array
            for name in names
            for access in (*self.scop.by_name[name].writes, *self.scop.by_name[name].reads)
        )

    def nodes(self, ast: loop_ast.AstNode) -> list[Node]:
        policy = Policy(
            lambda loop: loop.extent, self.code.sum_terms, _MOST_BLOCKS, _MOST_SET_ASIDE
        )
        sums = BlockedSums(self.scop, ast, self.loops, self.placements, policy)
        self.sums = SumsPrinter(self.scop, self.names, sums, self._whole_loop)
        return [*self._locals([None, *unopened_loops(ast)]), *self._node(ast, None)]

    def _node(self, node: loop_ast.AstNode, mark: Loop | None) -> list[Node]:
        match node:
            case loop_ast.Block(children=children):
                return [found for child in children for found in self._node(child, mark)]
            case loop_ast.Mark(name=name, body=body):
                if self.loops[name].kind is LoopKind.COLLECTIVE:
                    return dot_products(self.context, node, self.loops)
                return self._node(body, self.loops[name])
            case loop_ast.If(condition=condition, then=then, otherwise=otherwise):
                rest = self._node(otherwise, mark) if otherwise is not None else []
                return [If(condition, tuple(self._node(then, mark)), tuple(rest))]
            case loop_ast.For():
                return self._for(node, mark)
            case loop_ast.Leaf():
                return [self._leaf(node)]

    def _for(self, node: loop_ast.For, mark: Loop | None) -> list[Node]:
        before: list[Node] = []
        early: list[Node] = []
        is_bounded = False
        if mark is not None and (found := loaded_bounds(self.scop, node, mark)):
            old = node
            before, node = self._bounded(node, found)
            is_bounded = node is not old
            early = self._prefetches(node, last_of(old)) if is_bounded else []
        if mark is not None and mark.kind is LoopKind.VECTOR:
            before += self._hoisted(node)
        pragma = self._pragma(mark, node) if mark is not None else ""
        last = last_of(node)
        cut = None
        if mark is not None and last is not None and not pragma:
            cut = self.sums.cut(node, mark, is_bounded=is_bounded)
        if mark is None or last is None or cut is None:
            if (guard := self._guard(node, mark)) is not None:
                return [*before, self._in_two(node, mark, pragma, guard)]
            collapsed = self._collapsed(mark, node)
            was_in_parallel = self.is_in_parallel
            self.is_in_parallel |= mark is not None and mark.kind is LoopKind.PARALLEL
            whole = self._whole_loop(node, mark, pragma, early)
            self.is_in_parallel = was_in_parallel
            if collapsed:
                assert isinstance(whole, For), "a parallel loop has a condition"
                whole = replace(whole, collapsed=collapsed)
            return [*before, whole]
        if not is_bounded:
            return [*before, cut(())]
        # Most ranges are short: what their blocks take would be more than what they add.
        assert isinstance(node.init, Name)
        length = binary(f"{node.init.text}_end", "-", node.init)
        short = self._whole_loop(node, mark, "", early)
        return [*before, If(binary(length, "<=", SHORT_RANGE), (short,), (cut(early),))]

    def _guard(self, node: loop_ast.For, mark: Loop | None) -> loop_ast.Leaf | None:
        """Return the leaf of *node* that stores ``c ? a : b``, c alike in all iterations, or None.

        Loads in c may not run early; what data say is left where it is.
        """
        is_plain = mark is not None and mark.kind in (LoopKind.VECTOR, LoopKind.SERIAL)
        if not (is_plain and node.condition is not None and isinstance(node.body, loop_ast.Leaf)):
            return None
        leaf = node.body
        statement = self.scop.by_name[leaf.statement]
        if statement.kind is not Kind.ASSIGN or not isinstance(statement.value, Select):
            return None
        printer = StatementPrinter(self.context, leaf)
        return leaf if printer.stands_still(statement.value.condition, node) else None

    def _in_two(
        self, node: loop_ast.For, mark: Loop | None, pragma: str, leaf: loop_ast.Leaf
    ) -> Node:
        """Return a loop for where the guard of *leaf* holds, and one for where it does not.

        The C compiler may do so itself, but where it does not, a line of a panel is copied one
        number after another (data's gradient of 3 x 3, AVX2: a quarter of all the time).
        """
        value = self.scop.by_name[leaf.statement].value
        assert isinstance(value, Select), "_guard asks first"
        known = self.hoisted.setdefault(id(leaf), {})
        holds = StatementPrinter(self.context, leaf).outside(value.condition, dict(known))
        loops = []
        for truth in (HOLDS, FAILS):
            known[value.condition] = truth
            loops.append(self._whole_loop(node, mark, pragma))
        del known[value.condition]
        return If(holds, (loops[0],), (loops[1],))

    def _prefetches(self, node: loop_ast.For, last: Code | None) -> list[Node]:
        """Return prefetches of rows of later iterations of *node*, before its vector loop."""
        match node.body:
            case loop_ast.Mark(name=name, body=loop_ast.For() as vector) if last is not None:
                if self.loops[name].kind is LoopKind.VECTOR:
                    return row_prefetches(self.context, node, vector, last, self.code.rows_ahead)
        return []

    def _whole_loop(
        self, node: loop_ast.For, mark: Loop | None, pragma: str, early: Sequence[Node] = ()
    ) -> Node:
        """Return *node*, its sums not in blocks."""
        own = [mark.name] if mark is not None else []
        inside = self._locals([*own, *unopened_loops(node.body)])
        body = (*inside, *early, *self._node(node.body, None))
        if node.condition is None:
            return Scope((constant(_INDEX, node.variable, node.init), *body))
        return For(Type(_INDEX), node.variable, node.init, node.condition, node.step, body, pragma)

    def _bounded(self, node: loop_ast.For, found: LoadedBounds) -> tuple[list[Node], loop_ast.For]:
        """Return what loads bounds of *node*, and the loop between them."""
        name = f"w_range{self.n_ranges}"
        self.n_ranges += 1

        def outside(leaf: loop_ast.Leaf, expr: Expr) -> Code:
            return StatementPrinter(self.context, leaf).outside(expr)

        bounded = found.bounded(node, name, outside, C)
        if bounded is None:
            return [], node
        ends = ((name, bounded.first), (f"{name}_end", bounded.end))
        loaded = (constant(_INDEX, number, value) for number, value in ends)
        return of_statement(loaded, found.leaves[0].statement), bounded.node

    def _pragma(self, loop: Loop, node: loop_ast.For) -> str:
        if node.condition is None:
            return ""
        match loop.kind:
            case LoopKind.PARALLEL if depth := self._collapsed(loop, node):
                collapse = f" collapse({depth})" if depth > 1 else ""
                condition = self._if_it_pays(loop)
                schedule = self._schedule(loop)
                return f"#pragma omp parallel for{collapse} schedule({schedule}){condition}"
            case LoopKind.VECTOR:
                return "#pragma omp simd"
            case LoopKind.UNROLL:
                return f"#pragma GCC unroll {loop.extent or 8}"
            case _:
                return ""

    def _collapsed(self, loop: Loop | None, node: loop_ast.For) -> int:
        """Return how many loops, *node* and those right in it, threads share; 0: they do not."""
        is_parallel = loop is not None and loop.kind is LoopKind.PARALLEL
        if not is_parallel or node.condition is None:
            return 0
        is_shared = self.parent.threads > 1 and not self.is_in_parallel
        return self._collapsible(node) if is_shared else 0

    def _schedule(self, loop: Loop) -> str:
        """Return which thread runs what: where data say how long iterations are, the next idle."""
        names = statements_of(loop.body)
        if not any(data_ranges_of(self.scop.by_name[name]) for name in names):
            return "static"
        piece = (loop.extent or 1) // (self.code.pieces * self.parent.threads)
        return f"dynamic, {max(piece, 1)}"

    def _if_it_pays(self, loop: Loop) -> str:
        """Return the clause by which open sizes decide whether threads pay."""
        own = [self.scop.by_name[name] for name in statements_of(loop.body)]
        statements = [s for s in own if s.kind is not Kind.INIT] or own
        if not self.parent.sizes.is_open:
            return ""
        work = chain(
            "+",
            (binary(self.parent.sizes.instances(s), "*", operations_of(s)) for s in statements),
        )
        return f" if ({text(work)} >= {PARALLEL_WORK})"

    def _hoisted(self, node: loop_ast.For) -> list[Node]:
        """Return what computes calls and loads that a vector loop does not change, before the loop.

        The C compiler would mostly do so itself, but gives up vectorising where it half succeeds.
        """
        found: list[Node] = []
        leaves = list(_leaves(node.body))
        written = {
            access.array for leaf in leaves for access in self.scop.by_name[leaf.statement].writes
        }
        for leaf in leaves:
            printer = StatementPrinter(self.context, leaf)
            for expr in printer.invariants(node, written):
                name = f"w_invariant{self.n_hoisted}"
                self.n_hoisted += 1
                declared = constant(c_type(expr.dtype), name, printer.outside(expr))
                found.append(replace(declared, statement=leaf.statement))
                self.hoisted.setdefault(id(leaf), {})[expr] = Name(name)
        return found

    def _collapsible(self, node: loop_ast.For) -> int:
        """Return how many parallel loops with constant bounds are nested with nothing between.

        Bounds that only open sizes determine are as good.
        """
        depth, variables = 1, [node.variable]
        while isinstance(node.body, loop_ast.Mark):
            loop, inner = self.loops[node.body.name], node.body.body
            is_parallel = loop.kind is LoopKind.PARALLEL and isinstance(inner, loop_ast.For)
            if not is_parallel or self.local_of.get(loop.name):
                break
            assert isinstance(inner, loop_ast.For)
            if not (self._is_rectangular(node, []) and self._is_rectangular(inner, variables)):
                break
            depth, node = depth + 1, inner
            variables.append(inner.variable)
        return depth

    def _is_rectangular(self, node: loop_ast.For, variables: Sequence[str]) -> bool:
        """Return whether the bounds of *node* are the same for all values of *variables*."""
        if node.condition is None or node.is_constant:
            return node.condition is not None
        return self.parent.sizes.is_open and names(node.init, node.condition).isdisjoint(variables)

    def _locals(self, loops: Sequence[str | None]) -> Iterator[Node]:
        """Yield the declarations of the arrays that live in one iteration of *loops*."""
        for placement in (p for loop in loops for p in self.local_of.get(loop, ())):
            array = self.scop.arrays[placement.array]
            name, size = self.names.of("array", array.name), placement.elements()
            type_ = Type(c_type(array.dtype))
            if size == 1:
                yield Declare(type_, (Variable(name),))
            elif placement.is_blocked:
                # gcc 12 keeps a tile's sums in memory where it is not told that panels are apart.
                yield Declare(type_, (Variable(f"w_{name}", size=str(size)),), after=_ALIGNED)
                yield Declare(type_, (Variable(name, Name(f"w_{name}"), pointer="*restrict "),))
            else:
                variable = Variable(name, size=str(max(size, 1)))
                yield Declare(type_, (variable,), after=_ALIGNED)

    def _leaf(self, leaf: loop_ast.Leaf) -> Node:
        nodes = StatementPrinter(self.context, leaf, self.hoisted.get(id(leaf))).nodes()
        statement = self.scop.by_name[leaf.statement]
        needed = mentioned(nodes)
        values = (
            Variable(name, value)
            for index, value in zip(statement.indices, leaf.iterators, strict=True)
            if (name := self.names.of("index", index)) in needed
        )
        if variables := tuple(values):
            nodes = [Declare(Type(_INDEX), variables, before="const "), *nodes]
        return Scope(tuple(of_statement(nodes, leaf.statement)))


def _leaves(node: loop_ast.AstNode) -> Iterator[loop_ast.Leaf]:
    """Yield the leaves of *node* that run on every path through it, outside further loops."""
    match node:
        case loop_ast.Leaf():
            yield node
        case loop_ast.Mark(body=body):
            yield from _leaves(body)
        case loop_ast.Block(children=nodes):
            for child in nodes:
                yield from _leaves(child)
