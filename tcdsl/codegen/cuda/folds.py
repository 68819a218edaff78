"""Folds on a GPU: partial sums in registers of different threads, of which all take part.

    S_fold: y[i] = sum over x of part[i, x]    --->    const float w_fold =
                                                         tc_fold_x<tc_op_add_f32, 32, 1>(w_part);
                                                       if (threadIdx.x == 0) y[i] = w_fold;

The collectives are in ``codegen/device/cuda/collective.cuh``; a fold along axes of one thread is a
plain assignment.
"""

from collections.abc import Sequence
from dataclasses import replace

from tcdsl.codegen.ast.build import (
    ZERO,
    binary,
    both,
    cast,
    choice,
    member,
    paren,
    substituted,
    template,
    vector_type,
)
from tcdsl.codegen.ast.nodes import (
    Assign,
    Call,
    Code,
    Declare,
    Literal,
    Name,
    Node,
    Type,
    Variable,
    Vector,
)
from tcdsl.codegen.c.expressions import c_type, identity, suffix
from tcdsl.codegen.c.statements import constant
from tcdsl.codegen.cuda.statements import (
    AXIS_NAMES,
    OPERATORS,
    CudaStatementPrinter,
    guarded_line,
    thread_index,
)
from tcdsl.costmodel.chip import WARP
from tcdsl.lang.comprehension import Const, Operator, Reduction
from tcdsl.poly.scop import Access, Kind, Statement
from tcdsl.schedule.fold_slots import Slots
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.placement import is_private

TURNS = "w_turns"  # of folds that are called in turns, two bits each


def fold_function(mapped: Mapped, fold: Statement) -> tuple[str, tuple[int, ...]]:
    """Return the suffix of *fold*'s collective ("x", "yc", "xyc", ...), and its axes."""
    axes = mapped.fold_axes(fold)
    return "".join(AXIS_NAMES[axis] for axis in axes), axes


def participants(mapped: Mapped, fold: Statement) -> str:
    """Return the axes whose threads wait for one another in *fold*, "" if none do."""
    which, axes = fold_function(mapped, fold)
    x = mapped.block[0]
    if axes == (0,) and x <= WARP and WARP % x == 0:
        return "x"  # each row is a part of a warp
    return "xyzc" if "c" in which else "xyz" if axes else ""


def is_block_collective(mapped: Mapped, statement: Statement) -> bool:
    """Return whether all threads of the block, or of a warp, must run *statement* together."""
    if statement.kind is Kind.BARRIER:
        return statement.event is None
    if statement.kind is not Kind.FOLD:
        return False
    return len(participants(mapped, statement)) > 1 or mapped.fold_stride(statement) > 1


class FoldPrinter:
    """Prints one fold at one leaf of a kernel."""

    def __init__(self, printer: CudaStatementPrinter, slots: Slots | None = None) -> None:
        """Print the fold of *printer*; *slots*: those that it has of its own."""
        self.printer = printer
        self.slots = slots
        self.mapped = printer.mapped
        self.statement = printer.statement
        assert self.statement.reduction is not None
        self.reduction: Reduction = self.statement.reduction

    def nodes(self, active: Sequence[Code], result: Code | None = None) -> list[Node]:
        """Return the collective: all threads call it, those that are *active* keep the result.

        Also where conditions of the statement, which loops around do not keep, do not hold: these
        are of its own indices, so that threads that fold together agree.

        :arg result: what :meth:`at_once` returned for this lane, where it was called before.
        """
        conditions = map(self.printer.expressions.value, self.printer.conditions)
        active = (*active, *conditions)
        reduction = self.reduction
        axes, numbers = fold_function(self.mapped, self.statement)
        if not numbers:
            return guarded_line([*active, *self.printer.pins()], self._alone())
        guards = [*active, *self.printer.pins()]
        if reduction.operator.is_arg:
            pair = self._arg_call(axes, active)
            return [pair, *guarded_line(guards, self._arg_result(member("w_fold", "index")))]
        if result is not None:
            return guarded_line(guards, [self.printer.folded(result)])
        (read,) = self.statement.parts
        value = constant(c_type(reduction.dtype), "w_fold",
                         self._collective(self._part(read, active)))  # fmt: skip
        return [value, *guarded_line(guards, [self.printer.folded(Name("w_fold"))])]

    def at_once(self, variable: str, width: int) -> Code:
        """Return one call for all lanes of a loop over *variable* (``schedule/fold_lanes``)."""
        statement = self.statement
        (read,) = statement.parts

        def lane(number: int) -> Code:
            here = {variable: Literal(str(number))}
            return self.printer.moved(lambda at: substituted(at, here)).element(read)

        return self.together([lane(number) for number in range(width)])

    @property
    def own_part(self) -> Code:
        """What this thread gives to a fold whose accumulators are registers."""
        (read,) = self.statement.parts
        return self.printer.element(read)

    def together(self, parts: Sequence[Code]) -> Code:
        """Return one call for all *parts*, of lanes or of other folds too."""
        type_ = vector_type(c_type(self.reduction.dtype), len(parts))
        return self._collective(Vector(type_, tuple(parts)))

    def _collective(self, part: Code) -> Call:
        """Return the fold of what every thread gives as its *part*."""
        reduction = self.reduction
        axes, _ = fold_function(self.mapped, self.statement)
        operator = f"tc_op_{OPERATORS[reduction.operator]}_{suffix(reduction.dtype)}"
        # What is not replicated is pinned: the first threads alone need the result.
        which = "y_first" if axes == "y" and not self.printer.is_replicated else axes
        which += "_apart" if self.mapped.fold_stride(self.statement) > 1 else ""
        return self._call(f"tc_fold_{which}", operator, axes, part)

    def _call(self, function: str, operator: str, axes: str, *parts: Code) -> Call:
        """Return a call along *axes*, which is told numbers of threads, and its own."""
        x, y, _ = self.mapped.block
        widths = [x, y, self.mapped.cluster] if "c" in axes else [x, y]
        stride = self.mapped.fold_stride(self.statement)
        own = [stride] if stride > 1 else [] if self.slots is None else [self.slots.number]
        turns = [Name(TURNS)] if self.slots is not None and self.slots.in_turns else []
        found = template(function, [operator, *widths, *own], *parts, *turns)
        return replace(found, participants=participants(self.mapped, self.statement))

    def _alone(self) -> list[Node]:
        """Return the fold of a block that has one thread along its axes."""
        reduction = self.reduction
        own = self.printer.element(self.statement.parts[0])
        return self._arg_result(own) if reduction.operator.is_arg else [self.printer.folded(own)]

    def _arg_call(self, axes: str, active: Sequence[Code]) -> Node:
        statement = self.statement
        indices, values = statement.parts
        dtype = self.reduction.dtype
        name = "max" if self.reduction.operator is Operator.ARGMAX else "min"
        index_type = c_type(self.printer.scop.arrays[indices.array].dtype)
        parts = self._part(values, active), self._part(indices, active)
        better = f"tc_better_{name}_{suffix(dtype)}"
        pair = self._call(f"tc_argfold_{axes}", better, axes, *parts)
        type_ = Type("tc_pair", (Type(c_type(dtype)), Type(index_type)))
        return Declare(type_, (Variable("w_fold", pair),), before="const ")

    def _arg_result(self, at: Code) -> list[Node]:
        return [Assign(self.printer.place(self.statement.write), at)]

    def _part(self, read: Access, active: Sequence[Code]) -> Code:
        """Return what this thread gives to the fold: anything, where it is not *active*."""
        own = self._at_own_lane(read)
        # Nobody has written what an idle thread would read from memory.
        if is_private(read.array, self.printer.context.placements) or not active:
            return own
        dtype = self.printer.scop.arrays[read.array].dtype
        zero = identity(Operator.ADD, dtype) if dtype.is_compensated else ZERO
        return paren(choice(both(active), own, zero))

    def _at_own_lane(self, read: Access) -> Code:
        """Return the partial accumulator of this thread, which *read* has at lane 0."""
        if is_private(read.array, self.printer.context.placements):
            return self.printer.element(read)
        placement = self.printer.context.placements.get(read.array)
        axes = iter(self.mapped.fold_axes(self.statement))
        stride = self.mapped.fold_stride(self.statement)
        threads = (cast("int", thread_index(axis)) for axis in axes)
        lanes = {
            dim: binary(next(threads), "/", stride) if stride > 1 else next(threads)
            for dim, subscript in enumerate(read.subscripts)
            if isinstance(subscript, Const)
        }
        if placement is not None:
            position = self.printer.position(read)
            local = self.printer.leaf.local[(read.array, position)]
            moved_to = tuple(lanes.get(dim, own) for dim, own in enumerate(local))
            leaf = replace(self.printer.leaf, local={(read.array, position): moved_to})
            return self.printer.at(leaf).element(read)
        subscripts = tuple(
            lanes.get(dim) or self.printer.expressions.subscript(subscript)
            for dim, subscript in enumerate(read.subscripts)
        )
        return self.printer.element(read, subscripts)
