"""Plans as C: one function a plan, one loop nest a kernel, OpenMP threads and vector loops.

    int32_t tcdsl_entry(void *const *pointers, const int64_t *integers, int64_t *fault)

*pointers* are the arguments in the order of ``CSource.pointers``, then one workspace that holds
the scratch arrays; *integers* the open sizes and strides in the order of ``CSource.integers``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tcdsl.codegen import loop_ast
from tcdsl.codegen.blocked_sums import BlockedSums, Blocks, Policy, set_aside
from tcdsl.codegen.c_expressions import c_type, used_functions
from tcdsl.codegen.c_statements import Context, StatementPrinter, mentions
from tcdsl.codegen.device.c import header_text, parts_for
from tcdsl.codegen.lines import Line, statements_of_lines
from tcdsl.codegen.loaded_bounds import SHORT_RANGE, LoadedBounds, loaded_bounds
from tcdsl.codegen.names import Names
from tcdsl.codegen.opened_loops import unopened_loops
from tcdsl.codegen.size_texts import Integer, SizeTexts
from tcdsl.codegen.turns import last_of
from tcdsl.costmodel import cpu_thresholds
from tcdsl.lang.comprehension import Expr
from tcdsl.lang.faults import Site
from tcdsl.poly.data_ranges import data_ranges_of
from tcdsl.poly.loop_tree import Loop, LoopKind, loops_of, statements_of
from tcdsl.poly.scop import Array, Kind, Storage
from tcdsl.strategies.rows import PARALLEL_WORK, operations_of
from tcdsl.transforms.placement import Placement
from tcdsl.transforms.plan import Kernel, Plan

_ALIGNMENT = 64  # bytes: a cache line, and the widest vector
_PIECES_A_THREAD = cpu_thresholds.PIECES_A_THREAD
# Accumulators are a few vectors: what sets them aside is to be little beside what a block adds.
_SUM_BLOCK, _MOST_BLOCKS, _MOST_SET_ASIDE = 32, 32, 128

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


def print_plan(plan: Plan, threads: int) -> CSource:
    """Return *plan* as C for up to *threads* threads."""
    return _PlanPrinter(plan, threads).print()


class _PlanPrinter:
    def __init__(self, plan: Plan, threads: int) -> None:
        self.plan = plan
        self.scop = plan.scop
        self.threads = threads
        self.names = Names()
        self.lines: list[str] = []
        self.sites: list[Site] = []
        self.sizes = SizeTexts(plan.scop, self.names)
        self.workspace = "0"  # its bytes

    def print(self) -> CSource:
        arguments = [a for a in self.scop.arrays.values() if a.storage is Storage.ARGUMENT]
        used = {access.array for s in self.scop.statements for access in (*s.writes, *s.reads)}
        scratch = [
            array
            for array in self.scop.arrays.values()
            if array.storage is Storage.SCRATCH
            and array.name in used
            and array.name not in self.plan.placements
        ]
        self.lines += [f"  {line}" for line in self.sizes.declarations()]
        workspace_bytes = self._declare(arguments, scratch)
        for kernel in self.plan.kernels:
            self._kernel(kernel)
        self.lines.append("  return fault[0] != 0;")
        lines = [
            "int32_t tcdsl_entry(void *const *pointers, const int64_t *integers, int64_t *fault)",
            "{", *self.lines, "}", "",
        ]  # fmt: skip
        body = "\n".join(lines)
        if workspace_bytes is None:
            body += self._workspace_function()
        header = header_text(parts_for(used_functions(body) | {"tc_div_i64", "tc_mod_i64"}))
        pointers = [array.name for array in arguments] + ([""] if workspace_bytes != 0 else [])
        return CSource(
            "\n".join([header, _PRELUDE, body]), body, tuple(pointers), workspace_bytes,
            tuple(self.sites), self.sizes.integers, tuple(statements_of_lines(lines)),
        )  # fmt: skip

    def _declare(self, arguments: Sequence[Array], scratch: Sequence[Array]) -> int | None:
        """Declare pointers to the arrays in memory; return the workspace's size in bytes.

        It is None if it depends on open sizes.
        """
        written = {access.array for s in self.scop.statements for access in s.writes}
        for position, array in enumerate(arguments):
            const = "" if array.name in written else "const "
            self.lines.append(
                f"  {const}{c_type(array.dtype)} *restrict {self.names.of('array', array.name)}"
                f" = pointers[{position}];"
            )
        offset, open_bytes = 0, ""
        # First what has a known offset: the C compiler then knows how far it is apart.
        for array in sorted(scratch, key=lambda array: array.size_bytes() is None):
            base = f"(char *)pointers[{len(arguments)}] + {offset}{open_bytes}"
            name = self.names.of("array", array.name)
            self.lines.append(f"  {c_type(array.dtype)} *restrict {name} = (void *)({base});")
            size = array.size_bytes()
            if size is None:
                open_bytes += f" + {self._aligned_bytes(array)}"
            else:
                offset += -(-max(size, 1) // _ALIGNMENT) * _ALIGNMENT
        self.workspace = f"{offset}{open_bytes}"
        return None if open_bytes else offset

    def _workspace_function(self) -> str:
        """Return the C of ``tcdsl_workspace``: the bytes that a call with *integers* needs."""
        return "\n".join([
            "", "int64_t tcdsl_workspace(const int64_t *integers)", "{",
            *(f"  {line}" for line in self.sizes.declarations()),
            f"  return {self.workspace};", "}", "",
        ])  # fmt: skip

    def _aligned_bytes(self, array: Array) -> str:
        """Return the bytes of *array*, rounded up to a whole number of cache lines, above 0."""
        return (
            f"({self.sizes.elements(array)} * {array.dtype.size_bytes} / {_ALIGNMENT} + 1)"
            f" * {_ALIGNMENT}"
        )

    def _kernel(self, kernel: Kernel) -> None:
        placements = self.plan.placements
        local = {found.loop for found in placements.values() if found.loop is not None}
        ast = loop_ast.generate(self.scop, kernel.tree, placements, whole=local)
        self.lines.append(f"  // {kernel.name}")
        self.lines += [f"  // {reason}" for reason in kernel.why]
        self.lines.append("  {")
        _KernelPrinter(self, kernel).print(ast)
        self.lines.append("  }")


class _KernelPrinter:
    """Prints the loops of one kernel."""

    def __init__(self, parent: _PlanPrinter, kernel: Kernel) -> None:
        self.parent = parent
        self.scop = parent.scop
        self.names = parent.names
        self.placements = parent.plan.placements
        self.loops: Mapping[str, Loop] = {loop.name: loop for loop in loops_of(kernel.tree)}
        self.context = Context(
            parent.scop, parent.names, parent.sizes, parent.plan.placements, parent.sites
        )
        self.is_in_parallel = False
        self.hoisted: dict[int, dict[Expr, str]] = {}  # by id(leaf)
        self.n_hoisted = 0
        self.n_blocks = 0
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

    def print(self, ast: loop_ast.AstNode) -> None:
        policy = Policy(lambda loop: loop.extent, _SUM_BLOCK, _MOST_BLOCKS, _MOST_SET_ASIDE)
        self.sums = BlockedSums(self.scop, ast, self.loops, self.placements, policy)
        self._declare_locals([None, *unopened_loops(ast)], 2)
        self._node(ast, 2, None)

    def _emit(self, depth: int, text: str, statement: str = "") -> None:
        self.parent.lines.append(Line("  " * depth + text, statement))

    def _node(self, node: loop_ast.AstNode, depth: int, mark: Loop | None) -> None:
        match node:
            case loop_ast.Block(children=children):
                for child in children:
                    self._node(child, depth, mark)
            case loop_ast.Mark(name=name, body=body):
                self._node(body, depth, self.loops[name])
            case loop_ast.If(condition=condition, then=then, otherwise=otherwise):
                self._emit(depth, f"if ({condition}) {{")
                self._node(then, depth + 1, mark)
                if otherwise is not None:
                    self._emit(depth, "} else {")
                    self._node(otherwise, depth + 1, mark)
                self._emit(depth, "}")
            case loop_ast.For():
                self._for(node, depth, mark)
            case loop_ast.Leaf():
                self._leaf(node, depth)

    def _for(self, node: loop_ast.For, depth: int, mark: Loop | None) -> None:
        is_bounded = False
        if mark is not None and (found := loaded_bounds(self.scop, node, mark)):
            old, node = node, self._bounded(node, depth, found)
            is_bounded = node is not old
        if mark is not None:
            if mark.kind is LoopKind.VECTOR:
                self._hoist(node, depth)
            pragma = self._pragma(mark, node)
            if pragma:
                self._emit(depth, pragma)
        was_in_parallel = self.is_in_parallel
        self.is_in_parallel |= mark is not None and mark.kind is LoopKind.PARALLEL
        last = last_of(node)
        blocks = self.sums.of(node, mark) if mark is not None and last is not None else None
        if mark is None or last is None or blocks is None or not blocks.turns:
            self._whole_loop(node, depth, mark)
            self.is_in_parallel = was_in_parallel
        elif is_bounded:
            # Most ranges are short: what their blocks take would be more than what they add.
            self._emit(depth, f"if ({node.init}_end - {node.init} <= {SHORT_RANGE}) {{")
            self._whole_loop(node, depth + 1, mark)
            self._emit(depth, "} else {")
            self._in_blocks(node, depth + 1, mark, blocks, last)
            self._emit(depth, "}")
        else:
            self._in_blocks(node, depth, mark, blocks, last)

    def _whole_loop(self, node: loop_ast.For, depth: int, mark: Loop | None) -> None:
        """Print *node*, its sums not in blocks."""
        if node.condition:
            self._emit(
                depth,
                f"for (int64_t {node.variable} = {node.init}; {node.condition};"
                f" {node.variable} += {node.step}) {{",
            )
        else:
            self._emit(depth, "{")
            self._emit(depth + 1, f"const int64_t {node.variable} = {node.init};")
        own = [mark.name] if mark is not None else []
        self._declare_locals([*own, *unopened_loops(node.body)], depth + 1)
        self._node(node.body, depth + 1, None)
        self._emit(depth, "}")

    def _bounded(self, node: loop_ast.For, depth: int, found: LoadedBounds) -> loop_ast.For:
        """Return *node* with bounds that are loaded before it."""
        name = f"w_range{self.n_ranges}"
        self.n_ranges += 1

        def text(leaf: loop_ast.Leaf, expr: Expr) -> str:
            return StatementPrinter(self.context, leaf).outside(expr)

        bounded = found.bounded(node, name, text, lambda text: text)
        if bounded is None:
            return node
        for number, value in ((name, bounded.first), (f"{name}_end", bounded.end)):
            self._emit(depth, f"const int64_t {number} = {value};", found.leaves[0].statement)
        return bounded.node

    def _in_blocks(
        self, node: loop_ast.For, depth: int, loop: Loop, blocks: Blocks, last: str
    ) -> None:
        """Print a serial loop up to *last*, its sums in *blocks*."""
        first, step, ends = node.init, int(node.step), []
        for size in reversed(blocks.turns):
            block, end, stride = f"w_block{self.n_blocks}", f"w_last{self.n_blocks}", step * size
            self._emit(
                depth,
                f"for (int64_t {block} = {first}; {block} <= {last}; {block} += {stride}) {{",
            )
            depth += 1
            self._emit(depth, f"const int64_t {end} = min({last}, {block} + {stride - 1});")
            after: list[str] = []
            for placement in blocks.accumulators:
                aside = f"w_sum{self.n_blocks}"
                self.n_blocks += 1
                lines, back = set_aside(placement, self.scop, self.names, aside, "#pragma omp simd")
                for line in lines:
                    self._emit(depth, line)
                after += back
            ends.append(after)
            first, last = block, end
        variable = node.variable
        head = f"int64_t {variable} = {first}; {variable} <= {last}; {variable} += {step}"
        self._emit(depth, f"for ({head}) {{")
        self._declare_locals([loop.name, *unopened_loops(node.body)], depth + 1)
        self._node(node.body, depth + 1, None)
        self._emit(depth, "}")
        for after in reversed(ends):
            for line in after:
                self._emit(depth, line)
            depth -= 1
            self._emit(depth, "}")

    def _pragma(self, loop: Loop, node: loop_ast.For) -> str:
        if not node.condition:
            return ""
        match loop.kind:
            case LoopKind.PARALLEL if self.parent.threads > 1 and not self.is_in_parallel:
                depth = self._collapsible(node)
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

    def _schedule(self, loop: Loop) -> str:
        """Return which thread runs what: where data say how long iterations are, the next idle."""
        names = statements_of(loop.body)
        if not any(data_ranges_of(self.scop.by_name[name]) for name in names):
            return "static"
        piece = (loop.extent or 1) // (_PIECES_A_THREAD * self.parent.threads)
        return f"dynamic, {max(piece, 1)}"

    def _if_it_pays(self, loop: Loop) -> str:
        """Return the clause by which open sizes decide whether threads pay."""
        own = [self.scop.by_name[name] for name in statements_of(loop.body)]
        statements = [s for s in own if s.kind is not Kind.INIT] or own
        if not self.parent.sizes.is_open:
            return ""
        work = " + ".join(
            f"{self.parent.sizes.instances(s)} * {operations_of(s)}" for s in statements
        )
        return f" if ({work} >= {PARALLEL_WORK})"

    def _hoist(self, node: loop_ast.For, depth: int) -> None:
        """Compute function calls that a vector loop does not change before the loop.

        The C compiler would mostly do so itself, but gives up vectorising where it half succeeds.
        """
        leaves = list(_leaves(node.body))
        written = {
            access.array for leaf in leaves for access in self.scop.by_name[leaf.statement].writes
        }
        for leaf in leaves:
            printer = StatementPrinter(self.context, leaf)
            for expr in printer.invariant_calls(node, written):
                name = f"w_invariant{self.n_hoisted}"
                self.n_hoisted += 1
                text = printer.outside(expr)
                declaration = f"const {c_type(expr.dtype)} {name} = {text};"
                self._emit(depth, declaration, leaf.statement)
                self.hoisted.setdefault(id(leaf), {})[expr] = name

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
        if node.is_constant or not node.condition:
            return node.is_constant and bool(node.condition)
        bounds = f"{node.init} {node.condition}"
        return self.parent.sizes.is_open and not any(mentions(bounds, v) for v in variables)

    def _declare_locals(self, loops: Sequence[str | None], depth: int) -> None:
        """Declare the arrays that live in one iteration of *loops*."""
        for placement in (p for loop in loops for p in self.local_of.get(loop, ())):
            array = self.scop.arrays[placement.array]
            name = self.names.of("array", array.name)
            size = placement.elements()
            if size == 1:
                self._emit(depth, f"{c_type(array.dtype)} {name};")
                continue
            self._emit(
                depth,
                f"{c_type(array.dtype)} {name}[{max(size, 1)}]"
                f" __attribute__((aligned({_ALIGNMENT})));",
            )

    def _leaf(self, leaf: loop_ast.Leaf, depth: int) -> None:
        lines = StatementPrinter(self.context, leaf, self.hoisted.get(id(leaf))).lines()
        statement = self.scop.by_name[leaf.statement]
        used = [
            (self.names.of("index", index), text)
            for index, text in zip(statement.indices, leaf.iterators, strict=True)
        ]
        needed = [(n, t) for n, t in used if any(mentions(line, n) for line in lines)]
        declarations = ", ".join(f"{name} = {text}" for name, text in needed)
        prefix = [f"const int64_t {declarations};"] if needed else []
        self._emit(depth, "{")
        for line in prefix + lines:
            self._emit(depth + 1, line, leaf.statement)
        self._emit(depth, "}")


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
