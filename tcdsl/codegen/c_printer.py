"""Plans as C: one function a plan, one loop nest a kernel, OpenMP threads and vector loops.

    int32_t tcdsl_entry(void *const *pointers, const int64_t *integers, int64_t *fault)

*pointers* are the arguments in the order of ``CSource.pointers``, then one workspace that holds
the scratch arrays; *integers* the open sizes and strides in the order of ``CSource.integers``.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tcdsl.codegen import loop_ast
from tcdsl.codegen.c_expressions import (
    ExpressionPrinter,
    Scope,
    c_type,
    cast_text,
    combine,
    fold,
    identity,
    suffix,
    used_functions,
)
from tcdsl.codegen.device.c import header_text, parts_for
from tcdsl.codegen.names import Names
from tcdsl.codegen.size_texts import Integer, SizeTexts
from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Cast,
    Expr,
    Index,
    Load,
    Operator,
    Select,
    children,
    walk,
)
from tcdsl.lang.dtypes import DType, arithmetic
from tcdsl.poly.loop_tree import Loop, LoopKind, loops_of, statements_of
from tcdsl.poly.scop import Access, Array, Kind, Scop, Storage
from tcdsl.strategies.rows import PARALLEL_WORK, operations_of
from tcdsl.transforms.placement import Placement
from tcdsl.transforms.plan import Kernel, Plan

_ALIGNMENT = 64  # bytes: a cache line, and the widest vector
_VECTOR_BYTES = 64  # TC_VECTOR_BYTES of the device library: what tc_fold_* takes at once

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
    sites: tuple[tuple[str, int], ...]  # fault site -> (array, dimension)
    integers: tuple[Integer, ...] = ()  # open sizes and strides


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
        self.sites: list[tuple[str, int]] = []
        self.sizes = SizeTexts(plan.scop, self.names)

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
        body = "\n".join([
            "int32_t tcdsl_entry(void *const *pointers, const int64_t *integers, int64_t *fault)",
            "{", *self.lines, "}", "",
        ])  # fmt: skip
        if workspace_bytes is None:
            body += self._workspace_function(scratch)
        header = header_text(parts_for(used_functions(body) | {"tc_div_i64", "tc_mod_i64"}))
        pointers = [array.name for array in arguments] + ([""] if workspace_bytes != 0 else [])
        return CSource(
            "\n".join([header, _PRELUDE, body]), body, tuple(pointers), workspace_bytes,
            tuple(self.sites), self.sizes.integers,
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
        if any(array.size_bytes() is None for array in scratch):
            self._declare_open_scratch(scratch, len(arguments))
            return None
        offset = 0
        for array in scratch:
            base = f"(char *)pointers[{len(arguments)}] + {offset}"
            name = self.names.of("array", array.name)
            self.lines.append(f"  {c_type(array.dtype)} *restrict {name} = (void *)({base});")
            size = array.size_bytes()
            assert size is not None
            offset += -(-max(size, 1) // _ALIGNMENT) * _ALIGNMENT
        return offset

    def _declare_open_scratch(self, scratch: Sequence[Array], position: int) -> None:
        """Declare pointers into a workspace whose parts are as large as the sizes make them."""
        self.lines.append(f"  char *w_workspace = pointers[{position}];")
        for array in scratch:
            name = self.names.of("array", array.name)
            self.lines += [
                f"  {c_type(array.dtype)} *restrict {name} = (void *)w_workspace;",
                f"  w_workspace += {self._aligned_bytes(array)};",
            ]

    def _workspace_function(self, scratch: Sequence[Array]) -> str:
        """Return the C of ``tcdsl_workspace``: the bytes that a call with *integers* needs."""
        total = " + ".join(map(self._aligned_bytes, scratch))
        return "\n".join([
            "", "int64_t tcdsl_workspace(const int64_t *integers)", "{",
            *(f"  {line}" for line in self.sizes.declarations()), f"  return {total};", "}", "",
        ])  # fmt: skip

    def _aligned_bytes(self, array: Array) -> str:
        """Return the bytes of *array*, rounded up to a whole number of cache lines, above 0."""
        return (
            f"({self.sizes.elements(array)} * {array.dtype.size_bytes} / {_ALIGNMENT} + 1)"
            f" * {_ALIGNMENT}"
        )

    def _kernel(self, kernel: Kernel) -> None:
        ast = loop_ast.generate(self.scop, kernel.tree, self.plan.placements)
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
        self.is_in_parallel = False
        self.hoisted: dict[int, dict[Expr, str]] = {}  # by id(leaf)
        self.n_hoisted = 0
        self.local_of: dict[str | None, list[Placement]] = {}
        mine = {s for loop in self.loops.values() for s in loop.coordinates}
        for placement in self.placements.values():
            is_mine = placement.loop in self.loops or placement.loop is None
            if is_mine and self._is_used_here(placement, kernel, mine):
                self.local_of.setdefault(placement.loop, []).append(placement)

    def _is_used_here(self, placement: Placement, kernel: Kernel, mine: set[str]) -> bool:
        names = set(statements_of(kernel.tree))
        return any(
            access.array == placement.array
            for name in names
            for access in (*self.scop.by_name[name].writes, *self.scop.by_name[name].reads)
        )

    def print(self, ast: loop_ast.AstNode) -> None:
        self._declare_locals([None, *_without_loop(ast)], 2)
        self._node(ast, 2, None)

    def _emit(self, depth: int, text: str) -> None:
        self.parent.lines.append("  " * depth + text)

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
        if mark is not None:
            if mark.kind is LoopKind.VECTOR:
                self._hoist(node, depth)
            pragma = self._pragma(mark, node)
            if pragma:
                self._emit(depth, pragma)
        was_in_parallel = self.is_in_parallel
        self.is_in_parallel |= mark is not None and mark.kind is LoopKind.PARALLEL
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
        self._declare_locals([*own, *_without_loop(node.body)], depth + 1)
        self._node(node.body, depth + 1, None)
        self._emit(depth, "}")
        self.is_in_parallel = was_in_parallel

    def _pragma(self, loop: Loop, node: loop_ast.For) -> str:
        if not node.condition:
            return ""
        match loop.kind:
            case LoopKind.PARALLEL if self.parent.threads > 1 and not self.is_in_parallel:
                depth = self._collapsible(node)
                collapse = f" collapse({depth})" if depth > 1 else ""
                condition = self._if_it_pays(loop)
                return f"#pragma omp parallel for{collapse} schedule(static){condition}"
            case LoopKind.VECTOR:
                return "#pragma omp simd"
            case LoopKind.UNROLL:
                return f"#pragma GCC unroll {loop.extent or 8}"
            case _:
                return ""

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
            printer = _StatementPrinter(self, leaf)
            for expr in printer.invariant_calls(node, written):
                name = f"w_invariant{self.n_hoisted}"
                self.n_hoisted += 1
                text = printer.outside(expr)
                self._emit(depth, f"const {c_type(expr.dtype)} {name} = {text};")
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
        return self.parent.sizes.is_open and not any(_mentions(bounds, v) for v in variables)

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
        lines = _StatementPrinter(self, leaf).lines()
        statement = self.scop.by_name[leaf.statement]
        used = [
            (self.names.of("index", index), text)
            for index, text in zip(statement.indices, leaf.iterators, strict=True)
        ]
        needed = [(n, t) for n, t in used if any(_mentions(line, n) for line in lines)]
        declarations = ", ".join(f"{name} = {text}" for name, text in needed)
        prefix = [f"const int64_t {declarations};"] if needed else []
        self._emit(depth, "{")
        for line in prefix + lines:
            self._emit(depth + 1, line)
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


def _mentions(line: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", line) is not None


def _without_loop(node: loop_ast.AstNode) -> list[str]:
    """Return the loops below *node*, outside any C loop, that isl printed without one somewhere.

    They have a single iteration there: what lives in it may as well live in the C loop around.
    """
    match node:
        case loop_ast.Mark(name=name, body=body):
            own = [] if _is_loop(body) else [name]
            return list(dict.fromkeys([*own, *_without_loop(body)]))
        case loop_ast.Block(children=children):
            return list(dict.fromkeys(n for child in children for n in _without_loop(child)))
        case loop_ast.If(then=then, otherwise=otherwise):
            rest = _without_loop(otherwise) if otherwise is not None else []
            return list(dict.fromkeys([*_without_loop(then), *rest]))
        case _:
            return []


def _is_loop(node: loop_ast.AstNode) -> bool:
    """Return whether the band under a mark became nothing but C loops."""
    match node:
        case loop_ast.For():
            return True
        case loop_ast.Block(children=children):
            return all(_is_loop(child) for child in children)
        case loop_ast.If(then=then, otherwise=otherwise):
            return _is_loop(then) and (otherwise is None or _is_loop(otherwise))
        case _:
            return False


class _StatementPrinter:
    """Prints one statement's instances at one leaf."""

    def __init__(self, kernel: _KernelPrinter, leaf: loop_ast.Leaf) -> None:
        self.kernel = kernel
        self.scop: Scop = kernel.scop
        self.names = kernel.names
        self.sizes = kernel.parent.sizes
        self.leaf = leaf
        self.statement = self.scop.by_name[leaf.statement]
        self._by_load = {
            (access.array, access.subscripts): position
            for position, access in enumerate((*self.statement.writes, *self.statement.reads))
        }
        scope = Scope(
            index=lambda name: self.names.of("index", name),
            size=self._size,
            element=self._load,
        )
        self.expressions = ExpressionPrinter(scope, kernel.hoisted.get(id(leaf)))

    def invariant_calls(self, loop: loop_ast.For, written: set[str]) -> list[Expr]:
        """Return the largest calls in the value that *loop* does not change, and may run early.

        What they load must exist even if the loop never runs: local arrays always do.
        """
        moving = {
            index
            for index, text in zip(self.statement.indices, self.leaf.iterators, strict=True)
            if _mentions(text, loop.variable)
        }
        runs = loop.is_constant and bool(loop.condition)

        def is_free(expr: Expr) -> bool:
            for node in walk(expr):
                if isinstance(node, Index) and node.name in moving:
                    return False
                if isinstance(node, Load):
                    is_local = node.tensor in self.kernel.placements
                    if node.tensor in written or not (is_local or runs):
                        return False
            return True

        found: list[Expr] = []
        stack = [self.statement.value] if self.statement.value is not None else []
        while stack:
            expr = stack.pop()
            # Guarded operands may not be evaluated where their guard does not hold.
            if isinstance(expr, Select) or (isinstance(expr, Binary) and expr.op in ("&&", "||")):
                continue
            if isinstance(expr, Call) and is_free(expr):
                found.append(expr)
            else:
                stack.extend(children(expr))
        return list(dict.fromkeys(found))

    def outside(self, expr: Expr) -> str:
        """Return *expr* as text for a place outside the statement's own block."""
        values = dict(zip(self.statement.indices, self.leaf.iterators, strict=True))
        scope = Scope(lambda name: f"({values[name]})", self._size, self._load)
        return ExpressionPrinter(scope).value(expr)

    def _size(self, name: str) -> str:
        known = self.scop.sizes[name]
        return str(known) if known is not None else self.names.of("size", name)

    def lines(self) -> list[str]:
        statement = self.statement
        match statement.kind:
            case Kind.INIT:
                return self._init()
            case Kind.FOLD:
                return self._fold()
            case Kind.CHECK:
                return self._check()
        assert statement.value is not None
        conditions = [self.expressions.value(c) for c in statement.conditions]
        conditions += self._scatter_guards()
        if statement.companion is not None:
            body = self._arg_update()
        else:
            body = [self._copy() or self._store(statement.write, self._new_value(statement.value))]
        if not conditions:
            return body
        return [f"if ({' && '.join(conditions)}) {{", *(f"  {line}" for line in body), "}"]

    def _copy(self) -> str:
        """Return the assignment of a half value as it is, "" if the statement is no such copy."""
        statement = self.statement
        stored = self.scop.arrays[statement.write.array].dtype
        match statement.value:
            case Cast(operand=Load(dtype=loaded) as load) if loaded == stored and stored.is_half:
                if statement.kind is Kind.ASSIGN:
                    element = self.expressions.value(load)
                    return f"{self._element(statement.write)} = {element};"
        return ""

    def _new_value(self, value: Expr) -> str:
        """Return the text of the value to be stored, in the type of the arithmetic."""
        statement = self.statement
        if statement.kind is Kind.ASSIGN:
            return self.expressions.value(value)
        reduction = statement.reduction
        assert reduction is not None
        accumulator = self._accumulator(statement.write, reduction.dtype)
        is_sum = reduction.operator is Operator.ADD and reduction.dtype.is_float
        if is_sum and isinstance(value, Binary) and value.op == "*":
            factors = f"{self.expressions.value(value.left)}, {self.expressions.value(value.right)}"
            return f"tc_mad_{suffix(reduction.dtype)}({factors}, {accumulator})"
        term = self.expressions.value(value)
        return combine(reduction.operator, reduction.dtype, accumulator, term)

    def _accumulator(self, access: Access, dtype: DType) -> str:
        stored = self.scop.arrays[access.array].dtype
        return cast_text(self._element(access), stored, dtype)

    def _store(self, access: Access, value: str) -> str:
        array = self.scop.arrays[access.array]
        value_type = arithmetic(array.dtype)
        if self.statement.reduction is not None and not self.statement.companion:
            value_type = self.statement.reduction.dtype
        return f"{self._element(access)} = {cast_text(value, value_type, array.dtype)};"

    def _init(self) -> list[str]:
        statement = self.statement
        assert statement.reduction is not None
        reduction = statement.reduction
        if statement.companion is not None:
            best = identity(reduction.operator, reduction.dtype)
            return [
                f"{self._element(statement.write)} = -1;",
                f"{self._element(statement.companion)} = {best};",
            ]
        array = self.scop.arrays[statement.write.array]
        value = cast_text(
            identity(reduction.operator, reduction.dtype), reduction.dtype, array.dtype
        )
        return [f"{self._element(statement.write)} = {value};"]

    def _arg_update(self) -> list[str]:
        """Keep the better of the candidate and the best so far; the first wins a tie."""
        statement = self.statement
        assert statement.companion is not None and statement.value is not None
        reduction = statement.reduction
        assert reduction is not None
        best, index = self._element(statement.companion), self._element(statement.write)
        (reduced,) = statement.reduced
        origin = self._arg_origin()
        value = f"({self.names.of('index', reduced)} - {origin})"
        stored = self.scop.arrays[statement.write.array].dtype
        return [
            f"const {c_type(reduction.dtype)} w_candidate"
            f" = {self.expressions.value(statement.value)};",
            f"const int w_takes = ({index} < 0) | {self._better()}(w_candidate, {best});",
            f"{best} = w_takes ? w_candidate : {best};",
            f"{index} = w_takes ? ({c_type(stored)}){value} : {index};",
        ]

    def _arg_origin(self) -> str:
        return self.sizes.extent(self.statement.arg_origin)

    def _fold(self) -> list[str]:
        """Fold the lanes as a tree, then store or combine with the target."""
        statement = self.statement
        reduction = statement.reduction
        assert reduction is not None
        if reduction.operator.is_arg:
            return self._arg_fold()
        (read,) = statement.reads
        lines = [f"{c_type(reduction.dtype)} *w_part = &{self._element(read)};"]
        width, vector = statement.lanes, _VECTOR_BYTES // reduction.dtype.size_bytes
        while width > vector:
            width //= 2
            term = combine(reduction.operator, reduction.dtype, "w_part[w_lane]",
                           f"w_part[w_lane + {width}]")  # fmt: skip
            lines += [
                "#pragma omp simd",
                f"for (int w_lane = 0; w_lane < {width}; w_lane++) w_part[w_lane] = {term};",
            ]
        result = fold(reduction.operator, reduction.dtype, "w_part")
        if not reduction.initialise:
            accumulator = self._accumulator(statement.write, reduction.dtype)
            result = combine(reduction.operator, reduction.dtype, accumulator, result)
        return [*lines, self._store(statement.write, result)]

    def _arg_fold(self) -> list[str]:
        """Take the best lane, of equal ones that of the smallest index; -1 is no index."""
        statement = self.statement
        assert statement.reduction is not None
        indices, values = statement.reads
        better = self._better()
        index_type = c_type(self.scop.arrays[indices.array].dtype)
        return [
            f"const {index_type} *w_index = &{self._element(indices)};",
            f"const {c_type(statement.reduction.dtype)} *w_value = &{self._element(values)};",
            "int w_best = 0;",
            f"for (int w_lane = 1; w_lane < {statement.lanes}; w_lane++)",
            "  if (w_index[w_lane] >= 0 && (w_index[w_best] < 0 ||"
            f" {better}(w_value[w_lane], w_value[w_best]) ||",
            f"      (!{better}(w_value[w_best], w_value[w_lane])"
            " && w_index[w_lane] < w_index[w_best])))",
            "    w_best = w_lane;",
            f"{self._element(statement.write)} = w_index[w_best];",
        ]

    def _better(self) -> str:
        reduction = self.statement.reduction
        assert reduction is not None
        name = "max" if reduction.operator is Operator.ARGMAX else "min"
        return f"tc_arg_better_{name}_{suffix(reduction.dtype)}"

    def _check(self) -> list[str]:
        """Record a gathered or scattered subscript that is out of range."""
        statement = self.statement
        array = self.scop.arrays[statement.write.array]
        conditions = [self.expressions.value(c) for c in statement.conditions]
        lines = []
        for dim, subscript in statement.checked:
            site = len(self.kernel.parent.sites)
            self.kernel.parent.sites.append((array.name, dim))
            origin = self.sizes.extent(array.origin[dim])
            extent = self.sizes.extent(array.shape[dim])
            index = f"{self.expressions.subscript(subscript)} - {origin}"
            guard = "".join(f"{c} && " for c in conditions)
            lines += [
                f"const int64_t w_index{site} = {index};" if not guard else
                f"const int64_t w_index{site} = ({' && '.join(conditions)}) ? {index} : 0;",
                f"if ({guard}(w_index{site} < 0 || w_index{site} >= {extent}))"
                f" tc_fault(fault, {site}, w_index{site} + {origin}, {extent});",
            ]  # fmt: skip
        return lines

    def _scatter_guards(self) -> list[str]:
        """Return conditions that keep a scattered write inside its array."""
        statement = self.statement
        if statement.write.is_exact:
            return []
        array = self.scop.arrays[statement.write.array]
        guards = []
        for dim, subscript in enumerate(statement.write.subscripts):
            if dim in statement.write.inexact:
                origin = self.sizes.extent(array.origin[dim])
                index = f"({self.expressions.subscript(subscript)} - {origin})"
                guards.append(
                    f"(uint64_t){index} < (uint64_t){self.sizes.extent(array.shape[dim])}"
                )
        return guards

    def _load(self, load: Load, subscripts: tuple[str, ...]) -> str:
        position = self._by_load[(load.tensor, load.subscripts)]
        access = (*self.statement.writes, *self.statement.reads)[position]
        return self._element(access, subscripts)

    def _element(self, access: Access, subscripts: tuple[str, ...] | None = None) -> str:
        """Return the text of the element that *access* touches."""
        position = self._by_load[(access.array, access.subscripts)]
        name = self.names.of("array", access.array)
        placement = self.kernel.placements.get(access.array)
        if placement is not None:
            if placement.elements() == 1:
                return name
            indices = self.leaf.local[(access.array, position)]
            return f"{name}[{_row_major(indices, [d.extent for d in placement.dims])}]"
        if (access.array, position) in self.leaf.local:
            subscripts = tuple(f"({text})" for text in self.leaf.local[access.array, position])
        if subscripts is None:
            subscripts = tuple(self.expressions.subscript(s) for s in access.subscripts)
        array = self.scop.arrays[access.array]
        shifted = []
        for dim, (text, origin) in enumerate(zip(subscripts, array.origin, strict=True)):
            is_shifted = not self.sizes.is_zero(origin)
            index = f"({text} - {self.sizes.extent(origin)})" if is_shifted else text
            if dim in access.inexact:
                # Whatever was gathered, memory is safe; a fault has been recorded.
                index = f"tcdsl_clamp({index}, {self.sizes.extent(array.shape[dim])})"
            shifted.append(index)
        return f"{name}[{_linear(shifted, self.sizes.strides(array))}]"


def _row_major(indices: Sequence[str], extents: Sequence[int]) -> str:
    strides, step = [], 1
    for extent in reversed(extents):
        strides.append(step)
        step *= extent
    kept = [
        (index, stride)
        for index, stride, extent in zip(indices, reversed(strides), extents, strict=True)
        if extent > 1
    ]
    return _linear([index for index, _ in kept], [stride for _, stride in kept])


def _linear(indices: Sequence[str], strides: Sequence[int | str]) -> str:
    terms = [
        index if stride == 1 else f"({index}) * {stride}"
        for index, stride in zip(indices, strides, strict=True)
        if stride != 0
    ]
    return " + ".join(terms) or "0"
