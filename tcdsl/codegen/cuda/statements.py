"""One statement's instances as CUDA: atomics, asynchronous copies, vectors, guards of threads.

What the C printer prints stands here too, but for folds (``cuda/folds.py``): on a GPU the partial
accumulators are registers of different threads, and all of them take part.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace

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
    paren,
    simplified,
    substituted,
    template,
)
from tcdsl.codegen.ast.nodes import (
    Assign,
    Binary,
    Code,
    Declare,
    Evaluate,
    If,
    Name,
    Node,
)
from tcdsl.codegen.c.expressions import (
    branched,
    c_type,
    cast_code,
    combine,
    suffix,
)
from tcdsl.codegen.c.statements import Context, StatementPrinter, constant
from tcdsl.codegen.cuda.barriers import barrier_nodes
from tcdsl.codegen.cuda.copies import Copy, copy_of, guard_of
from tcdsl.codegen.cuda.half_arithmetic import half_operation
from tcdsl.codegen.cuda.lane_vectors import load_or_zero
from tcdsl.lang import comprehension as tc
from tcdsl.lang.comprehension import (
    Cast,
    Const,
    Expr,
    Load,
    Operator,
    Select,
    Unary,
    children,
    indices_in,
)
from tcdsl.lang.types.dtypes import FLOAT32, FLOAT64
from tcdsl.poly.loop_tree import RANK
from tcdsl.poly.scop import Access, Kind
from tcdsl.records import dataclass
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.placement import is_private

OPERATORS = {
    Operator.ADD: "add", Operator.MUL: "mul", Operator.MIN: "min", Operator.MAX: "max",
    Operator.AND: "and", Operator.OR: "or",
}  # fmt: skip
AXIS_NAMES = "xyzc"  # c: of a cluster


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
    return member("threadIdx", AXIS_NAMES[axis])


class CudaStatementPrinter(StatementPrinter):
    """Prints one statement's instances at one leaf of a kernel."""

    def __init__(
        self,
        context: Context,
        leaf: loop_ast.Leaf,
        mapped: Mapped,
        is_replicated: bool,
        vectors: Vectors | None = None,
    ) -> None:
        super().__init__(context, leaf, None if vectors is None else vectors.conditions)
        self.mapped = mapped
        self.is_replicated = is_replicated
        self.vectors = vectors

    def is_common(self, expr: Expr) -> bool:
        """Return whether *expr* is the same for all values of some index."""
        names = indices_in(expr)
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

    def position(self, touched: Load | Access) -> int:
        """Return which of the statement's accesses *touched* is, its writes first."""
        array = touched.tensor if isinstance(touched, Load) else touched.array
        return self._by_load[(array, touched.subscripts)]

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
                position = self.position(expr)
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

    def nodes(self) -> list[Node]:
        statement = self.statement
        if statement.kind is Kind.BARRIER:
            return barrier_nodes(self.context, self.mapped, statement)
        if self.is_staging:
            to, from_ = self.place(statement.write), self.place(statement.reads[0])
            return guarded_line(self.pins(), [self.copy(1, address(to), address(from_))])
        if self.vectors is not None and self.vectors.where is not None:
            return self._selected(self.vectors.where)
        body = self._atomic() if self._is_shared_update() else super().nodes()
        return guarded_line(self.pins(), body)

    def _is_shared_update(self) -> bool:
        """Return whether other threads may update the element: it is in no register."""
        array = self.statement.write.array
        return self.statement.is_atomic and not is_private(array, self.context.placements)

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

    def _stored_value(self) -> Code:
        statement = self.statement
        stored = self.scop.arrays[statement.write.array].dtype
        operation = half_operation(statement.value, stored)
        if operation is None or statement.reduction is not None:
            return super()._stored_value()
        function, *operands = operation
        return call(function, *map(self.expressions.value, operands))

    def _new_value(self, value: Expr) -> Code:
        reduction = self.statement.reduction
        if reduction is None or not self._is_extreme_of_loads(value):
            return super()._new_value(value)
        accumulator = self._accumulator(self.statement.write, reduction.dtype)
        name = f"tc_{OPERATORS[reduction.operator]}_loaded_{suffix(reduction.dtype)}"
        return call(name, accumulator, self.expressions.value(value))

    def _is_extreme_of_loads(self, value: Expr) -> bool:
        """Return whether integers of an argument are compared: none is negated in a register.

        A load of what the kernel has stored may be the register that was.  The accumulator has the
        extreme of others, which began with a number.
        """
        statement, reduction = self.statement, self.statement.reduction
        if reduction is None or not reduction.dtype.is_integer or not isinstance(value, Load):
            return False
        if reduction.operator not in (Operator.MIN, Operator.MAX):
            return False
        array = statement.write.array
        if self.scop.writers_of(value.tensor) or not is_private(array, self.context.placements):
            return False
        return all(s is statement or s.kind is Kind.INIT for s in self.scop.writers_of(array))

    def _atomic(self) -> list[Node]:
        """Return the update of an element that other threads may be updating."""
        statement = self.statement
        assert statement.value is not None and statement.reduction is not None
        if statement.companion is not None:
            return self._collect(statement.companion)
        stored = self.scop.arrays[statement.write.array].dtype
        term = cast_code(self.expressions.value(statement.value), statement.reduction.dtype, stored)
        function = f"tc_atomic_{OPERATORS[statement.reduction.operator]}_{suffix(stored)}"
        update = call(function, address(self.place(statement.write)), term)
        conditions = [self.expressions.value(c) for c in self.conditions]
        return guarded_line([*conditions, *self._scatter_guards()], [Evaluate(update)])

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
        return guarded_line([self.expressions.value(c) for c in self.conditions], nodes)

    def folded(self, result: Code) -> Node:
        """Return the store of the fold's *result*."""
        statement = self.statement
        reduction = statement.reduction
        assert reduction is not None
        if not reduction.initialise:
            accumulator = self._accumulator(statement.write, reduction.dtype)
            result = combine(reduction.operator, reduction.dtype, accumulator, result)
        return self._store(statement.write, result)

    def element(self, access: Access, subscripts: tuple[Code, ...] | None = None) -> Code:
        found = self.place(access, subscripts)
        is_changing = access.array in self.context.changing.get(self.statement.name, ())
        is_loaded = self.vectors is not None and self._vector_of(access)
        return call("tc_changing", found) if is_changing and not is_loaded else found

    def _vector_of(self, access: Access) -> str | None:
        """Return the name of the vector that has the element of *access*, if one has."""
        position = self.position(access)
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
        return self.at(leaf)

    def at(self, leaf: loop_ast.Leaf) -> "CudaStatementPrinter":
        """Return a printer of the same statement at another *leaf*, without vectors."""
        return CudaStatementPrinter(self.context, leaf, self.mapped, self.is_replicated)

    def outside_element(self, access: Access) -> Code:
        """Return the element for a place where the statement's indices have no names."""
        return super().place(access, self._outside_subscripts(access))

    def outside_subscripts(self, access: Access) -> tuple[Code, ...]:
        """Return the subscripts of *access* for such a place."""
        position = self.position(access)
        return self.leaf.local.get((access.array, position)) or self._outside_subscripts(access)

    def _outside_subscripts(self, access: Access) -> tuple[Code, ...]:
        values = dict(zip(self.statement.indices, self.leaf.iterators, strict=True))
        scope = replace(self.expressions.scope, index=lambda name: paren(values[name]))
        printer = type(self.expressions)(scope, None, self.context.index_type)
        return tuple(printer.subscript(s) for s in access.subscripts)


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


def guarded_line(conditions: Sequence[Code], body: list[Node]) -> list[Node]:
    if not conditions:
        return body
    is_line = isinstance(body[0], Assign | Evaluate | Declare)
    is_line |= isinstance(body[0], If) and body[0].is_short
    is_short = len(body) == 1 and is_line
    return [If(both(conditions), tuple(body), is_short=is_short)]
