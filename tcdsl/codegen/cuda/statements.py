"""One statement's instances as CUDA: atomics, collectives, vectors, guards of threads.

What the C printer prints stands here too, but for folds: on a GPU the partial accumulators are
registers of different threads, and all of them take part.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from math import prod

from tcdsl.codegen.ast import loop_ast
from tcdsl.codegen.ast.build import (
    ZERO,
    address,
    binary,
    both,
    call,
    cast,
    choice,
    index,
    member,
    mentions,
    paren,
    simplified,
    substituted,
    template,
    vector_type,
)
from tcdsl.codegen.ast.nodes import (
    Assign,
    Binary,
    Call,
    Code,
    Declare,
    Evaluate,
    If,
    Literal,
    Name,
    Node,
    Type,
    Variable,
    Vector,
)
from tcdsl.codegen.c.expressions import (
    branched,
    c_type,
    cast_code,
    combine,
    identity,
    suffix,
)
from tcdsl.codegen.c.statements import Context, StatementPrinter, constant
from tcdsl.codegen.cuda.copies import Copy, copy_of, guard_of
from tcdsl.codegen.cuda.half_arithmetic import half_operation
from tcdsl.codegen.cuda.lane_vectors import load_or_zero
from tcdsl.costmodel.chip import WARP
from tcdsl.lang import comprehension as tc
from tcdsl.lang.comprehension import (
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Operator,
    Select,
    Unary,
    children,
    walk,
)
from tcdsl.lang.types.dtypes import FLOAT32, FLOAT64
from tcdsl.poly.scop import Access, Kind, Statement
from tcdsl.records import dataclass
from tcdsl.schedule.fold_slots import Slots
from tcdsl.schedule.grid_phases import grid_barriers
from tcdsl.schedule.mapping import RANK, Mapped
from tcdsl.schedule.placement import Layout, Placement, is_private

_OPERATORS = {
    Operator.ADD: "add", Operator.MUL: "mul", Operator.MIN: "min", Operator.MAX: "max",
    Operator.AND: "and", Operator.OR: "or",
}  # fmt: skip
_AXIS_NAMES = "xyzc"  # c: of a cluster
_BARRIER = Call("__syncthreads", participants="xyz")
_CLUSTER_BARRIER = Call("tc_cluster_sync", participants="xyzc")
TURNS = "w_turns"  # of folds that are called in turns, two bits each


@dataclass(frozen=True, slots=True)
class Vectors:
    """The accesses of a leaf that move vectors: position -> the register array's name."""

    width: int
    variable: str  # the lane
    names: Mapping[int, str] = field(default_factory=dict)
    where: Code | None = None  # when the lane is there and a register changes, if not always
    fold: str = ""  # the function of all lanes that stands for each of them, if there is one
    present: tuple[Code, ...] = ()  # its other arguments: the lanes that are there, if not all
    conditions: Mapping[Expr, Code] = field(default_factory=dict)  # that all lanes share, by name
    zeroed: Mapping[str, Code] = field(default_factory=dict)  # name -> if it fails, all are zero


def thread_index(axis: int) -> Code:
    """Return the number of a thread along *axis*; the blocks of a cluster are along z."""
    if axis == RANK:
        return member("blockIdx", "z")
    return member("threadIdx", _AXIS_NAMES[axis])


def fold_function(mapped: Mapped, fold: Statement) -> tuple[str, tuple[int, ...]]:
    """Return the suffix of *fold*'s collective ("x", "yc", "xyc", ...), and its axes."""
    axes = mapped.fold_axes(fold)
    return "".join(_AXIS_NAMES[axis] for axis in axes), axes


def is_block_collective(mapped: Mapped, statement: Statement) -> bool:
    """Return whether all threads of the block, or of a warp, must run *statement* together."""
    if statement.kind is Kind.BARRIER:
        return statement.event is None
    if statement.kind is not Kind.FOLD:
        return False
    return len(participants(mapped, statement)) > 1 or mapped.fold_stride(statement) > 1


def participants(mapped: Mapped, fold: Statement) -> str:
    """Return the axes whose threads wait for one another in *fold*, "" if none do."""
    which, axes = fold_function(mapped, fold)
    x = mapped.block[0]
    if axes == (0,) and x <= WARP and WARP % x == 0:
        return "x"  # each row is a part of a warp
    return "xyzc" if "c" in which else "xyz" if axes else ""


class CudaStatementPrinter(StatementPrinter):
    """Prints one statement's instances at one leaf of a kernel."""

    def __init__(
        self,
        context: Context,
        leaf: loop_ast.Leaf,
        mapped: Mapped,
        is_replicated: bool,
        vectors: Vectors | None = None,
        slots: Slots | None = None,  # of a fold that has its own
    ) -> None:
        super().__init__(context, leaf, None if vectors is None else vectors.conditions)
        self.mapped = mapped
        self.is_replicated = is_replicated
        self.vectors = vectors
        self.slots = slots

    def is_common(self, expr: Expr) -> bool:
        """Return whether *expr* is the same for all values of some index."""
        names = {node.name for node in walk(expr) if isinstance(node, Index)}
        return names < set(self.statement.indices)

    def chosen(self, select: Select, operands: tuple[Code, ...]) -> Code:
        """Return the choice *select*, of vectors that are zero elsewhere or without a branch."""
        vectors = self.vectors
        load = load_or_zero(select) if vectors is not None and vectors.zeroed else None
        if vectors is not None and load is not None:
            name = vectors.names.get(self.position(load))
            condition = vectors.conditions.get(select.condition)
            if name is not None and vectors.zeroed.get(name) == condition is not None:
                return operands[1]
        return call("tc_select", *operands) if self.is_eager(select) else branched(operands)

    def position(self, load: Load) -> int:
        """Return which of the statement's accesses *load* is, its writes first."""
        return self._by_load[(load.tensor, load.subscripts)]

    def is_eager(self, choice: Select) -> bool:
        """Return whether lanes share the condition of *choice*, and registers have both values.

        CUDA's compiler would branch lane by lane, because a half type's conversion is an assembly.
        """
        is_shared = self.vectors is not None and choice.condition in self.vectors.conditions
        is_float = choice.dtype in (FLOAT32, FLOAT64)
        return (
            is_shared and is_float and all(map(self._is_ready, (choice.if_true, choice.if_false)))
        )

    def _is_ready(self, expr: Expr) -> bool:
        """Return whether *expr* takes a few instructions, of what registers have in any case."""
        match expr:
            case Const():
                return True
            case Load():
                position = self._by_load[(expr.tensor, expr.subscripts)]
                return self.vectors is not None and position in self.vectors.names
            case Select():
                return self.is_eager(expr)
            case Unary() | Cast() | tc.Binary(op="+" | "-" | "*"):
                return all(map(self._is_ready, children(expr)))
            case _:
                return False

    def pins(self) -> list[Code]:
        """Return the conditions that leave one thread of those along which this is uniform."""
        if self.is_replicated or self.statement.kind is Kind.BARRIER:
            return []
        if self.vectors is not None:  # the whole vector is guarded
            return []
        # Each block of a cluster has the arrays that are local.
        is_local = all(write.array in self.context.placements for write in self.statement.writes)
        return [
            binary(thread_index(axis), "==", 0)
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
            and copy_of(self.statement) is not None
        )

    def copy(self, width: int, to: Code, from_: Code, ends: Sequence[Code] = ()) -> Node:
        """Return the asynchronous copy of *width* elements, zeros where they are not there.

        :arg ends: the first and the last of them that this copies, if not all.
        """
        copied = copy_of(self.statement)
        assert copied is not None, "is_staging"
        if copied.condition is None:
            function = "tc_copy_async_some" if ends else "tc_copy_async"
            return Evaluate(template(function, [width], to, from_, *ends))
        assert not ends, "a padded tile has whole vectors"
        conditions = self._are_there(copied)
        if not conditions:
            return Evaluate(template("tc_copy_async", [width], to, from_))
        return Evaluate(template("tc_copy_async_or_zero", [width], to, from_, both(conditions)))

    def _are_there(self, copied: Copy) -> list[Code]:
        """Return the conditions under which there is an element to copy."""
        guard = guard_of(self.scop, self.statement, copied)
        array = self.scop.arrays[copied.load.tensor]
        subscripts = self.outside_subscripts(self.statement.reads[0])
        found: list[Code] = []
        for dim in guard.dims:  # what is below 0 is a large number without a sign
            origin, extent = array.origin[dim], array.shape[dim]
            assert isinstance(origin, int) and isinstance(extent, int), "guard_of"
            at = binary(paren(subscripts[dim]), "-", origin) if origin else subscripts[dim]
            found.append(binary(cast("uint32_t", paren(at)), "<", extent))
        return [*found, *(self.outside(one) for one in guard.rest)]

    def is_pure(self) -> bool:
        """Return whether a lane that is not there may run: it only computes, in registers.

        What it reads from memory must be there, because no lane matters for it.
        """
        statement, vectors = self.statement, self.vectors
        if statement.kind not in (Kind.ASSIGN, Kind.UPDATE) or vectors is None:
            return False
        if statement.conditions or statement.companion is not None or statement.is_atomic:
            return False
        here = dict(zip(statement.indices, self.leaf.iterators, strict=True))
        moving = {name for name, value in here.items() if mentions(value, vectors.variable)}
        for position, access in enumerate((*statement.writes, *statement.reads)):
            if position in vectors.names or is_private(access.array, self.context.placements):
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
        if (
            set(vectors.names) != {len(statement.writes)}
            or vectors.width % 2
            or vectors.where is not None
        ):
            return ""
        if mentions(self.element(statement.write), vectors.variable):
            return ""
        return f"tc_v{_OPERATORS[reduction.operator]}_{suffix(value.dtype)}"

    def nodes(self) -> list[Node]:
        statement = self.statement
        if statement.is_grid:
            return [Evaluate(self._grid_barrier())]
        if statement.kind is Kind.BARRIER:
            return [
                *self._ends(),
                *self._arrivals(),
                Evaluate(_CLUSTER_BARRIER if statement.is_wide else _BARRIER),
            ]
        if self.is_staging:
            to, from_ = self.place(statement.write), self.place(statement.reads[0])
            return _guarded(self.pins(), [self.copy(1, address(to), address(from_))])
        if statement.kind is Kind.FOLD:
            return self.fold([])
        if self.vectors is not None and self.vectors.where is not None:
            return self._selected(self.vectors.where)
        body = self._atomic() if self._is_shared_update() else super().nodes()
        return _guarded(self.pins(), body)

    def _is_shared_update(self) -> bool:
        """Return whether other threads may update the element: it is in no register."""
        array = self.statement.write.array
        return self.statement.is_atomic and not is_private(array, self.context.placements)

    def _grid_barrier(self) -> Call:
        """Return the barrier of all blocks: the one of so many."""
        every = [barrier.name for barrier in grid_barriers(self.mapped)]
        number = every.index(self.statement.name) + 1
        tickets = self.context.names.of("ticket", "tickets")
        is_last = "true" if number == len(every) else "false"
        which = (str(number), is_last)
        barrier = template("tc_grid_barrier", which, Name(tickets), prod(self.mapped.grid))
        return replace(barrier, participants="xyzg")

    def _arrivals(self) -> list[Node]:
        """Return what waits for this thread's asynchronous copies, as many as a barrier needs."""
        own = list(self._own_placements())
        if not any(placement.is_staged for placement in own):
            return []
        is_shown = any(placement.layout is Layout.ATOMS for placement in own)
        shown: list[Node] = [Evaluate(call("tc_show_copies"))] if is_shown else []
        if left := self.statement.groups_left:
            wait = Evaluate(template("tc_copy_wait_but", [left]))
            return [Evaluate(call("tc_copy_end_group")), wait, *shown]
        return [Evaluate(call("tc_copy_wait")), *shown]

    def _ends(self) -> list[Node]:
        """Return what waits for products that go on after they were issued."""
        return [Evaluate(call("tc_end_products", one)) for one in self.sums_in_flight()]

    def sums_in_flight(self) -> list[str]:
        """Return the names of the sums that such products add to."""
        sums = dict.fromkeys(
            self.scop.by_name[name].write.array
            for name in self.mapped.paths
            if self.mapped.together(name) > WARP
        )
        return [self.names.of("array", one) for one in sums]

    def note_wrong(self, wrong: str, variable: str) -> list[Node]:
        """Return what keeps in *wrong* the first value of *variable* at which this check fails."""
        nodes: list[Node] = []
        for dim, subscript in self.statement.checked:
            at, is_outside = self._outside(dim, subscript, f"w_gathered{dim}")
            is_first = both([binary(wrong, "<", 0), is_outside])
            nodes += [at, Assign(Name(wrong), choice(is_first, variable, wrong))]
        return nodes

    def _selected(self, where: Code) -> list[Node]:
        """Return the change of a register that is computed in any case, and kept *where*."""
        stored = self.scop.arrays[self.statement.write.array].dtype
        target = self.place(self.statement.write)
        value = constant(c_type(stored), "w_new", self._stored_value())
        return [value, Assign(target, choice(where, "w_new", target))]

    def _own_placements(self) -> Iterator[Placement]:
        """Yield the placements of the arrays that this kernel uses."""
        for name in self.mapped.paths:
            statement = self.scop.by_name[name]
            for access in (*statement.writes, *statement.reads):
                if access.array in self.context.placements:
                    yield self.context.placements[access.array]

    def _stored_value(self) -> Code:
        statement = self.statement
        stored = self.scop.arrays[statement.write.array].dtype
        operation = half_operation(statement.value, stored)
        if operation is None or statement.reduction is not None:
            return super()._stored_value()
        function, *operands = operation
        return call(function, *map(self.expressions.value, operands))

    def _atomic(self) -> list[Node]:
        """Return the update of an element that other threads may be updating."""
        statement = self.statement
        assert statement.value is not None and statement.reduction is not None
        if statement.companion is not None:
            return self._collect(statement.companion)
        stored = self.scop.arrays[statement.write.array].dtype
        term = cast_code(self.expressions.value(statement.value), statement.reduction.dtype, stored)
        function = f"tc_atomic_{_OPERATORS[statement.reduction.operator]}_{suffix(stored)}"
        update = call(function, address(self.place(statement.write)), term)
        conditions = [self.expressions.value(c) for c in self.conditions]
        return _guarded([*conditions, *self._scatter_guards()], [Evaluate(update)])

    def _collect(self, companion: Access) -> list[Node]:
        """Return the store of a value at the next free place of a list, which is counted."""
        statement = self.statement
        assert statement.value is not None
        name = self.names.of("array", companion.array)
        (extent,) = self.scop.arrays[companion.array].shape
        assert isinstance(extent, int)
        value = self.expressions.value(statement.value)
        place = call("atomicAdd", address(self.place(statement.write)), 1)
        store = Assign(index(name, "w_place"), value)
        nodes: list[Node] = [
            constant("int", "w_place", place),
            If(binary("w_place", "<", extent), (store,), is_short=True),
        ]
        return _guarded([self.expressions.value(c) for c in self.conditions], nodes)

    def fold(self, active: Sequence[Code], result: Code | None = None) -> list[Node]:
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
            return [pair, *_guarded(guards, self._arg_result(member("w_fold", "index")))]
        if result is not None:
            return _guarded(guards, [self._folded(result)])
        (read,) = statement.reads
        value = constant(c_type(reduction.dtype), "w_fold",
                         self._collective(self._part(read, active)))  # fmt: skip
        return [value, *_guarded(guards, [self._folded(Name("w_fold"))])]

    def _collective(self, part: Code) -> Call:
        """Return the fold of what every thread gives as its *part*."""
        reduction = self.statement.reduction
        assert reduction is not None
        axes, _ = fold_function(self.mapped, self.statement)
        operator = f"tc_op_{_OPERATORS[reduction.operator]}_{suffix(reduction.dtype)}"
        # What is not replicated is pinned: the first threads alone need the result.
        which = "y_first" if axes == "y" and not self.is_replicated else axes
        which += "_apart" if self.mapped.fold_stride(self.statement) > 1 else ""
        return self._fold_call(f"tc_fold_{which}", operator, axes, part)

    def _fold_call(self, function: str, operator: str, axes: str, *parts: Code) -> Call:
        """Return a call along *axes*, which is told numbers of threads, and its own."""
        x, y, _ = self.mapped.block
        widths = [x, y, self.mapped.cluster] if "c" in axes else [x, y]
        stride = self.mapped.fold_stride(self.statement)
        own = [stride] if stride > 1 else [] if self.slots is None else [self.slots.number]
        turns = [Name(TURNS)] if self.slots is not None and self.slots.in_turns else []
        found = template(function, [operator, *widths, *own], *parts, *turns)
        return replace(found, participants=participants(self.mapped, self.statement))

    def fold_at_once(self, variable: str, width: int) -> Code:
        """Return one call for all lanes of a loop over *variable* (``schedule/fold_lanes``)."""
        statement = self.statement
        assert statement.reduction is not None
        (read,) = statement.reads

        def lane(number: int) -> Code:
            here = {variable: Literal(str(number))}
            return self.moved(lambda at: substituted(at, here)).element(read)

        return self.fold_together([lane(number) for number in range(width)])

    @property
    def own_part(self) -> Code:
        """What this thread gives to a fold whose accumulators are registers."""
        (read,) = self.statement.reads
        return self.element(read)

    def fold_together(self, parts: Sequence[Code]) -> Code:
        """Return one call for all *parts*, of lanes or of other folds too."""
        assert self.statement.reduction is not None
        type_ = vector_type(c_type(self.statement.reduction.dtype), len(parts))
        return self._collective(Vector(type_, tuple(parts)))

    def _folded(self, result: Code) -> Node:
        """Return the store of the fold's *result*."""
        statement = self.statement
        reduction = statement.reduction
        assert reduction is not None
        if not reduction.initialise:
            accumulator = self._accumulator(statement.write, reduction.dtype)
            result = combine(reduction.operator, reduction.dtype, accumulator, result)
        return self._store(statement.write, result)

    def _fold_alone(self) -> list[Node]:
        """Return the fold of a block that has one thread along its axes."""
        reduction = self.statement.reduction
        assert reduction is not None
        own = self.element(self.statement.reads[0])
        return self._arg_result(own) if reduction.operator.is_arg else [self._folded(own)]

    def _arg_call(self, axes: str, active: Sequence[Code]) -> Node:
        statement = self.statement
        assert statement.reduction is not None
        indices, values = statement.reads
        dtype = statement.reduction.dtype
        name = "max" if statement.reduction.operator is Operator.ARGMAX else "min"
        index_type = c_type(self.scop.arrays[indices.array].dtype)
        parts = self._part(values, active), self._part(indices, active)
        better = f"tc_better_{name}_{suffix(dtype)}"
        pair = self._fold_call(f"tc_argfold_{axes}", better, axes, *parts)
        type_ = Type("tc_pair", (Type(c_type(dtype)), Type(index_type)))
        return Declare(type_, (Variable("w_fold", pair),), before="const ")

    def _arg_result(self, at: Code) -> list[Node]:
        return [Assign(self.place(self.statement.write), at)]

    def _part(self, read: Access, active: Sequence[Code]) -> Code:
        """Return what this thread gives to the fold: anything, where it is not *active*."""
        own = self._at_own_lane(read)
        # Nobody has written what an idle thread would read from memory.
        if is_private(read.array, self.context.placements) or not active:
            return own
        dtype = self.scop.arrays[read.array].dtype
        zero = identity(Operator.ADD, dtype) if dtype.is_compensated else ZERO
        return paren(choice(both(active), own, zero))

    def _at_own_lane(self, read: Access) -> Code:
        """Return the partial accumulator of this thread, which *read* has at lane 0."""
        if is_private(read.array, self.context.placements):
            return self.element(read)
        placement = self.context.placements.get(read.array)
        axes = iter(self.mapped.fold_axes(self.statement))
        stride = self.mapped.fold_stride(self.statement)
        threads = (cast("int", thread_index(axis)) for axis in axes)
        lanes = {
            dim: binary(next(threads), "/", stride) if stride > 1 else next(threads)
            for dim, subscript in enumerate(read.subscripts)
            if isinstance(subscript, Const)
        }
        if placement is not None:
            position = self._by_load[(read.array, read.subscripts)]
            local = self.leaf.local[(read.array, position)]
            moved_to = tuple(lanes.get(dim, own) for dim, own in enumerate(local))
            leaf = replace(self.leaf, local={(read.array, position): moved_to})
            moved = CudaStatementPrinter(self.context, leaf, self.mapped, self.is_replicated)
            return moved.element(read)
        subscripts = tuple(
            lanes.get(dim) or self.expressions.subscript(subscript)
            for dim, subscript in enumerate(read.subscripts)
        )
        return self.element(read, subscripts)

    def element(self, access: Access, subscripts: tuple[Code, ...] | None = None) -> Code:
        found = self.place(access, subscripts)
        is_changing = access.array in self.context.changing.get(self.statement.name, ())
        is_loaded = self.vectors is not None and self._vector_of(access)
        return call("tc_changing", found) if is_changing and not is_loaded else found

    def _vector_of(self, access: Access) -> str | None:
        """Return the name of the vector that has the element of *access*, if one has."""
        position = self._by_load[(access.array, access.subscripts)]
        return None if self.vectors is None else self.vectors.names.get(position)

    def place(self, access: Access, subscripts: tuple[Code, ...] | None = None) -> Code:
        if self.vectors is not None:
            name = self._vector_of(access)
            if name is not None and self.vectors.fold:
                return call(self.vectors.fold, name, *self.vectors.present)
            if name is not None:
                return index(name, self.vectors.variable)
        return super().place(access, subscripts)

    def at_lane_zero(self, variable: str) -> "CudaStatementPrinter":
        """Return a printer of the instance in lane 0 of the vector loop over *variable*."""
        zero = {variable: ZERO}
        return self.moved(lambda at: simplified(substituted(_without_addend(at, variable), zero)))

    def moved(self, moved: Callable[[Code], Code]) -> "CudaStatementPrinter":
        """Return a printer of another instance: *moved* changes indices."""
        leaf = loop_ast.Leaf(
            self.leaf.statement,
            tuple(map(moved, self.leaf.iterators)),
            {key: tuple(map(moved, values)) for key, values in self.leaf.local.items()},
            kept=self.leaf.kept,
        )
        return CudaStatementPrinter(self.context, leaf, self.mapped, self.is_replicated)

    def outside_element(self, access: Access) -> Code:
        """Return the element for a place where the statement's indices have no names."""
        return super().place(access, self._outside_subscripts(access))

    def outside_subscripts(self, access: Access) -> tuple[Code, ...]:
        """Return the subscripts of *access* for such a place."""
        position = self._by_load[(access.array, access.subscripts)]
        return self.leaf.local.get((access.array, position)) or self._outside_subscripts(access)

    def _outside_subscripts(self, access: Access) -> tuple[Code, ...]:
        values = dict(zip(self.statement.indices, self.leaf.iterators, strict=True))
        scope = replace(self.expressions.scope, index=lambda name: paren(values[name]))
        printer = type(self.expressions)(scope, None, self.context.index_type)
        return tuple(printer.subscript(s) for s in access.subscripts)


def _uncast(expr: Expr | None) -> Expr | None:
    return expr.operand if isinstance(expr, Cast) else expr


def _without_addend(value: Code, variable: str) -> Code:
    """Return *value* without the ``+ variable`` of its sums."""
    match value:
        case Binary(op="+", left=left, right=Name(name)) if name == variable:
            return _without_addend(left, variable)
        case Binary(op=op, left=left, right=right):
            parts = (_without_addend(part, variable) for part in (left, right))
            return Binary(op, *parts)
        case _:
            return value


def _guarded(conditions: Sequence[Code], body: list[Node]) -> list[Node]:
    if not conditions:
        return body
    is_line = isinstance(body[0], Assign | Evaluate | Declare)
    is_line |= isinstance(body[0], If) and body[0].is_short
    is_short = len(body) == 1 and is_line
    return [If(both(conditions), tuple(body), is_short=is_short)]
