"""One statement's instances as CUDA text: atomics, collectives, vectors, guards of threads.

What the C printer prints stands here too, but for folds: on a GPU the partial accumulators are
registers of different threads, and all of them take part.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from tcdsl.codegen import loop_ast
from tcdsl.codegen.c_expressions import c_type, cast_text, combine, identity, suffix
from tcdsl.codegen.c_statements import Context, StatementPrinter, mentions
from tcdsl.costmodel.chip import WARP
from tcdsl.lang.comprehension import Cast, Const, Expr, Index, Load, Operator, walk
from tcdsl.lang.dtypes import FLOAT32
from tcdsl.poly.scop import Access, Kind, Statement
from tcdsl.transforms.mapping import RANK, Mapped
from tcdsl.transforms.placement import Placement, Space

_OPERATORS = {
    Operator.ADD: "add", Operator.MUL: "mul", Operator.MIN: "min", Operator.MAX: "max",
    Operator.AND: "and", Operator.OR: "or",
}  # fmt: skip
_AXIS_NAMES = "xyzc"  # c: of a cluster


@dataclass(frozen=True, slots=True)
class Vectors:
    """The accesses of a leaf that move vectors: position -> the register array's name."""

    width: int
    variable: str  # the lane
    names: Mapping[int, str] = field(default_factory=dict)
    where: str = ""  # when the lane is there and a register changes, "" if always or all the same
    fold: str = ""  # the function of all lanes that stands for each of them, if there is one
    present: str = ""  # its other arguments: the lanes that are there, if some may be missing


def thread_index(axis: int) -> str:
    """Return the number of a thread along *axis*; the blocks of a cluster are along z."""
    return "blockIdx.z" if axis == RANK else f"threadIdx.{_AXIS_NAMES[axis]}"


def fold_function(mapped: Mapped, fold: Statement) -> tuple[str, tuple[int, ...]]:
    """Return the suffix of *fold*'s collective ("x", "y", "xy", "xc", "yc"), and its axes."""
    axes = mapped.fold_axes(fold)
    return "".join(_AXIS_NAMES[axis] for axis in axes), axes


def is_block_collective(mapped: Mapped, statement: Statement) -> bool:
    """Return whether all threads of the block must run *statement* together."""
    if statement.kind is Kind.BARRIER:
        return True
    if statement.kind is not Kind.FOLD:
        return False
    _, axes = fold_function(mapped, statement)
    x = mapped.block[0]
    is_in_warp = axes == (0,) and x <= WARP and WARP % x == 0
    return bool(axes) and not is_in_warp


class CudaStatementPrinter(StatementPrinter):
    """Prints one statement's instances at one leaf of a kernel."""

    def __init__(
        self,
        context: Context,
        leaf: loop_ast.Leaf,
        mapped: Mapped,
        is_replicated: bool,
        vectors: Vectors | None = None,
        number: int | None = None,  # of a fold with slots of its own
    ) -> None:
        super().__init__(context, leaf)
        self.mapped = mapped
        self.is_replicated = is_replicated
        self.vectors = vectors
        self.number = number

    def is_common(self, expr: Expr) -> bool:
        """Return whether *expr* is the same for all values of some index."""
        names = {node.name for node in walk(expr) if isinstance(node, Index)}
        return names < set(self.statement.indices)

    def pins(self) -> list[str]:
        """Return the conditions that leave one thread of those along which this is uniform."""
        if self.is_replicated or self.statement.kind is Kind.BARRIER:
            return []
        if self.vectors is not None:  # the whole vector is guarded
            return []
        # Each block of a cluster has the arrays that are local.
        is_local = all(write.array in self.context.placements for write in self.statement.writes)
        return [
            f"{thread_index(axis)} == 0"
            for axis in self.mapped.axes
            if self.mapped.is_uniform(self.statement.name, axis) and not (axis == RANK and is_local)
        ]

    @property
    def is_staging(self) -> bool:
        """Whether this is the copy that fills a staged array, by asynchronous copies.

        They move memory to memory: where one end alone is a vector, which is registers, it is a
        copy like any other.
        """
        placement = self.context.placements.get(self.statement.write.array)
        return (
            placement is not None
            and placement.is_staged
            and (self.vectors is None or not self.vectors.names)
            and self.statement.kind is Kind.ASSIGN
            and len(self.statement.reads) == 1
            and not self.statement.conditions
            and isinstance(_uncast(self.statement.value), Load)
        )

    def is_pure(self, is_private: Callable[[str], bool]) -> bool:
        """Return whether a lane that is not there may run: it only computes, in registers.

        What it reads from memory must be there, because no lane matters for it.
        """
        statement, vectors = self.statement, self.vectors
        if statement.kind not in (Kind.ASSIGN, Kind.UPDATE) or vectors is None:
            return False
        if statement.conditions or statement.companion is not None or statement.is_atomic:
            return False
        here = dict(zip(statement.indices, self.leaf.iterators, strict=True))
        moving = {name for name, text in here.items() if mentions(text, vectors.variable)}
        for position, access in enumerate((*statement.writes, *statement.reads)):
            if position in vectors.names or is_private(access.array):
                continue
            used = {n.name for s in access.subscripts for n in walk(s) if isinstance(n, Index)}
            if position < len(statement.writes) or not access.is_exact or used & moving:
                return False
        return True

    @property
    def copied_vector(self) -> str:
        """The vector of which this copies each lane as it is, "" if it does not."""
        statement, vectors = self.statement, self.vectors
        value = _uncast(statement.value)
        if statement.kind is not Kind.ASSIGN or statement.conditions or vectors is None:
            return ""
        if not isinstance(value, Load) or len(statement.reads) != 1:
            return ""
        if value.dtype != self.scop.arrays[statement.write.array].dtype:
            return ""
        return vectors.names.get(len(statement.writes), "")

    @property
    def fold_of_lanes(self) -> str:
        """The function of a vector that takes all lanes of this at once, "" if there is none.

        Of half types the largest and the smallest value: two lanes are compared at once, and the
        accumulator of float32 takes one value, which it would have taken in any order.
        """
        statement, vectors = self.statement, self.vectors
        value, reduction = _uncast(statement.value), statement.reduction
        if statement.kind is not Kind.UPDATE or reduction is None or vectors is None:
            return ""
        if reduction.operator not in (Operator.MAX, Operator.MIN) or reduction.dtype != FLOAT32:
            return ""
        if statement.conditions or statement.companion is not None or statement.is_atomic:
            return ""
        if not isinstance(value, Load) or not value.dtype.is_half or len(statement.reads) != 1:
            return ""
        if set(vectors.names) != {len(statement.writes)} or vectors.width % 2 or vectors.where:
            return ""
        if mentions(self.element(statement.write), vectors.variable):
            return ""
        return f"tc_v{_OPERATORS[reduction.operator]}_{suffix(value.dtype)}"

    def lines(self) -> list[str]:
        statement = self.statement
        if statement.kind is Kind.BARRIER:
            is_staged = any(placement.is_staged for placement in self._own_placements())
            wait = ["tc_copy_wait();"] if is_staged else []
            return [*wait, "tc_cluster_sync();" if statement.is_wide else "__syncthreads();"]
        if self.is_staging:
            to, from_ = self.place(statement.write), self.place(statement.reads[0])
            return [f"tc_copy_async<1>(&{to}, &{from_});"]
        if statement.kind is Kind.FOLD:
            return self.fold([])
        if self.vectors is not None and self.vectors.where:
            return self._selected(self.vectors.where)
        body = self._atomic() if statement.is_atomic else super().lines()
        return _guarded(self.pins(), body)

    def note_wrong(self, wrong: str, variable: str) -> list[str]:
        """Return what keeps in *wrong* the first value of *variable* at which this check fails."""
        lines = []
        for dim, subscript in self.statement.checked:
            index, is_outside = self._outside(dim, subscript, f"w_gathered{dim}")
            lines += [index, f"{wrong} = {wrong} < 0 && {is_outside} ? {variable} : {wrong};"]
        return lines

    def _selected(self, where: str) -> list[str]:
        """Return the change of a register that is computed in any case, and kept *where*."""
        stored = self.scop.arrays[self.statement.write.array].dtype
        target = self.place(self.statement.write)
        value = f"const {c_type(stored)} w_new = {self._stored_value()};"
        return [value, f"{target} = {where} ? w_new : {target};"]

    def _own_placements(self) -> Iterator[Placement]:
        """Yield the placements of the arrays that this kernel uses."""
        for name in self.mapped.paths:
            statement = self.scop.by_name[name]
            for access in (*statement.writes, *statement.reads):
                if access.array in self.context.placements:
                    yield self.context.placements[access.array]

    def _atomic(self) -> list[str]:
        """Return the update of an element that other threads may be updating."""
        statement = self.statement
        assert statement.value is not None and statement.reduction is not None
        if statement.companion is not None:
            return self._collect(statement.companion)
        stored = self.scop.arrays[statement.write.array].dtype
        term = cast_text(self.expressions.value(statement.value), statement.reduction.dtype, stored)
        operator = _OPERATORS[statement.reduction.operator]
        call = f"tc_atomic_{operator}_{suffix(stored)}(&{self.place(statement.write)}, {term});"
        conditions = [self.expressions.value(c) for c in self.conditions]
        return _guarded([*conditions, *self._scatter_guards()], [call])

    def _collect(self, companion: Access) -> list[str]:
        """Return the store of a value at the next free place of a list, which is counted."""
        statement = self.statement
        assert statement.value is not None
        name = self.names.of("array", companion.array)
        (extent,) = self.scop.arrays[companion.array].shape
        value = self.expressions.value(statement.value)
        lines = [
            f"const int w_place = atomicAdd(&{self.place(statement.write)}, 1);",
            f"if (w_place < {extent}) {name}[w_place] = {value};",
        ]
        return _guarded([self.expressions.value(c) for c in self.conditions], lines)

    def fold(self, active: list[str], result: str = "") -> list[str]:
        """Return the collective: all threads call it, those that are *active* keep the result.

        :arg result: what :meth:`fold_at_once` returned for this lane, where it was called before.
        """
        statement = self.statement
        reduction = statement.reduction
        assert reduction is not None
        axes, numbers = fold_function(self.mapped, statement)
        if not numbers:
            return _guarded([*active, *self.pins()], self._fold_alone())
        guards = [*active, *self.pins()]
        if reduction.operator.is_arg:
            pair = self._arg_call(axes, active)
            return [*pair, *_guarded(guards, self._arg_result("w_fold"))]
        if result:
            return _guarded(guards, [self._folded(result)])
        (read,) = statement.reads
        call = f"{self._collective()}({self._part(read, active)})"
        lines = [f"const {c_type(reduction.dtype)} w_fold = {call};"]
        return [*lines, *_guarded(guards, [self._folded("w_fold")])]

    def _collective(self) -> str:
        """Return the function that folds, with its template's arguments."""
        reduction = self.statement.reduction
        assert reduction is not None
        axes, _ = fold_function(self.mapped, self.statement)
        operator = f"tc_op_{_OPERATORS[reduction.operator]}_{suffix(reduction.dtype)}"
        # What is not replicated is pinned: the first threads alone need the result.
        which = "y_first" if axes == "y" and not self.is_replicated else axes
        return f"tc_fold_{which}<{operator}, {self._widths(axes)}>"

    def _widths(self, axes: str) -> str:
        """Return what a collective along *axes* is told: numbers of threads, and its own."""
        x, y, _ = self.mapped.block
        widths = [x, y, self.mapped.cluster] if "c" in axes else [x, y]
        return ", ".join(map(str, widths if self.number is None else [*widths, self.number]))

    def fold_at_once(self, variable: str, width: int) -> str:
        """Return one call for all lanes of a loop over *variable* (``transforms/fold_lanes``)."""
        statement = self.statement
        assert statement.reduction is not None
        (read,) = statement.reads
        lane = self.element(read)
        lanes = [re.sub(rf"\b{variable}\b", str(n), lane) for n in range(width)]
        vector = f"tc_vec<{c_type(statement.reduction.dtype)}, {width}>"
        return f"{self._collective()}({vector}{{{{{', '.join(lanes)}}}}})"

    def _folded(self, result: str) -> str:
        """Return the store of the fold's *result*."""
        statement = self.statement
        reduction = statement.reduction
        assert reduction is not None
        if not reduction.initialise:
            accumulator = self._accumulator(statement.write, reduction.dtype)
            result = combine(reduction.operator, reduction.dtype, accumulator, result)
        return self._store(statement.write, result)

    def _fold_alone(self) -> list[str]:
        """Return the fold of a block that has one thread along its axes."""
        reduction = self.statement.reduction
        assert reduction is not None
        if reduction.operator.is_arg:
            return self._arg_result("", self.element(self.statement.reads[0]))
        return [self._folded(self.element(self.statement.reads[0]))]

    def _arg_call(self, axes: str, active: list[str]) -> list[str]:
        statement = self.statement
        assert statement.reduction is not None
        indices, values = statement.reads
        dtype = statement.reduction.dtype
        name = "max" if statement.reduction.operator is Operator.ARGMAX else "min"
        index_type = c_type(self.scop.arrays[indices.array].dtype)
        better = f"tc_better_{name}_{suffix(dtype)}"
        call = (
            f"tc_argfold_{axes}<{better}, {self._widths(axes)}>"
            f"({self._part(values, active)}, {self._part(indices, active)})"
        )
        return [f"const tc_pair<{c_type(dtype)}, {index_type}> w_fold = {call};"]

    def _arg_result(self, pair: str, index: str = "") -> list[str]:
        return [f"{self.place(self.statement.write)} = {index or f'{pair}.index'};"]

    def _part(self, read: Access, active: list[str]) -> str:
        """Return what this thread gives to the fold: anything, where it is not *active*."""
        text = self._at_own_lane(read)
        placement = self.context.placements.get(read.array)
        is_register = placement is not None and placement.space is Space.PRIVATE
        # Nobody has written what an idle thread would read from memory.
        if is_register or not active:
            return text
        dtype = self.scop.arrays[read.array].dtype
        zero = identity(Operator.ADD, dtype) if dtype.is_compensated else "0"
        return f"({' && '.join(active)} ? {text} : {zero})"

    def _at_own_lane(self, read: Access) -> str:
        """Return the partial accumulator of this thread, which *read* has at lane 0."""
        placement = self.context.placements.get(read.array)
        if placement is not None and placement.space is Space.PRIVATE:
            return self.element(read)
        axes = iter(self.mapped.fold_axes(self.statement))
        lanes = {
            dim: f"(int){thread_index(next(axes))}"
            for dim, subscript in enumerate(read.subscripts)
            if isinstance(subscript, Const)
        }
        if placement is not None:
            position = self._by_load[(read.array, read.subscripts)]
            local = self.leaf.local[(read.array, position)]
            texts = tuple(lanes.get(dim, text) for dim, text in enumerate(local))
            leaf = replace(self.leaf, local={(read.array, position): texts})
            moved = CudaStatementPrinter(self.context, leaf, self.mapped, self.is_replicated)
            return moved.element(read)
        texts = tuple(
            lanes.get(dim) or self.expressions.subscript(subscript)
            for dim, subscript in enumerate(read.subscripts)
        )
        return self.element(read, texts)

    def element(self, access: Access, subscripts: tuple[str, ...] | None = None) -> str:
        text = self.place(access, subscripts)
        is_changing = access.array in self.context.changing.get(self.statement.name, ())
        is_loaded = self.vectors is not None and self._vector_of(access)
        return f"tc_changing({text})" if is_changing and not is_loaded else text

    def _vector_of(self, access: Access) -> str | None:
        """Return the name of the vector that has the element of *access*, if one has."""
        position = self._by_load[(access.array, access.subscripts)]
        return None if self.vectors is None else self.vectors.names.get(position)

    def place(self, access: Access, subscripts: tuple[str, ...] | None = None) -> str:
        if self.vectors is not None:
            name = self._vector_of(access)
            if name is not None and self.vectors.fold:
                return f"{self.vectors.fold}({name}{self.vectors.present})"
            if name is not None:
                return f"{name}[{self.vectors.variable}]"
        return super().place(access, subscripts)

    def at_lane_zero(self, variable: str) -> "CudaStatementPrinter":
        """Return a printer of the instance in lane 0 of the vector loop over *variable*."""
        leaf = loop_ast.Leaf(
            self.leaf.statement,
            tuple(_zeroed(text, variable) for text in self.leaf.iterators),
            {k: tuple(_zeroed(t, variable) for t in v) for k, v in self.leaf.local.items()},
            kept=self.leaf.kept,
        )
        return CudaStatementPrinter(self.context, leaf, self.mapped, self.is_replicated)

    def outside_element(self, access: Access) -> str:
        """Return the element as text for a place where the statement's indices have no names."""
        values = dict(zip(self.statement.indices, self.leaf.iterators, strict=True))
        scope = replace(self.expressions.scope, index=lambda name: f"({values[name]})")
        printer = type(self.expressions)(scope, None, self.context.index_type)
        return super().place(access, tuple(printer.subscript(s) for s in access.subscripts))


def _uncast(expr: Expr | None) -> Expr | None:
    return expr.operand if isinstance(expr, Cast) else expr


def _zeroed(text: str, variable: str) -> str:
    text = re.sub(rf" \+ {variable}\b", "", text)
    return re.sub(rf"\b{variable}\b", "0", text)


def _guarded(conditions: list[str], body: list[str]) -> list[str]:
    if not conditions:
        return body
    if len(body) == 1:
        return [f"if ({' && '.join(conditions)}) {body[0]}"]
    return [f"if ({' && '.join(conditions)}) {{", *(f"  {line}" for line in body), "}"]
