"""What one statement is in the lanes of a vector: pure, a copy of a vector, a fold of all lanes."""

from tcdsl.codegen.ast.build import mentions
from tcdsl.codegen.c.expressions import suffix
from tcdsl.codegen.cuda.statements import OPERATORS, CudaStatementPrinter
from tcdsl.lang.comprehension import Cast, Expr, Load, Operator, indices_in
from tcdsl.lang.types.dtypes import FLOAT32, INT8, UINT8, DType
from tcdsl.poly.scop import Kind
from tcdsl.schedule.placement import is_private


def is_pure(printer: CudaStatementPrinter) -> bool:
    """Return whether a lane that is not there may run: it only computes, in registers.

    What it reads from memory must be there, because no lane matters for it.
    """
    statement, vectors = printer.statement, printer.vectors
    if statement.kind not in (Kind.ASSIGN, Kind.UPDATE) or vectors is None:
        return False
    if statement.conditions or statement.companion is not None or statement.is_atomic:
        return False
    here = dict(zip(statement.indices, printer.leaf.iterators, strict=True))
    moving = {name for name, value in here.items() if mentions(value, vectors.variable)}
    for position, access in enumerate((*statement.writes, *statement.reads)):
        if position in vectors.names or is_private(access.array, printer.context.placements):
            continue
        used = indices_in(*access.subscripts)
        if position < len(statement.writes) or not access.is_exact or used & moving:
            return False
    return True


def is_near(printer: CudaStatementPrinter) -> bool:
    """Return whether a lane that is not there may do what the nearest does that is.

    It stores a lane of a vector, of which missing ones are not stored, and reads registers and
    elements of memory, which are there for any lane that is.
    """
    statement, vectors = printer.statement, printer.vectors
    if statement.kind is not Kind.ASSIGN or vectors is None or statement.conditions:
        return False
    for position, access in enumerate((*statement.writes, *statement.reads)):
        if position in vectors.names:
            continue
        if position < len(statement.writes) or not access.is_exact:
            return False
        is_elsewhere = access.array in printer.context.placements
        if is_elsewhere and not is_private(access.array, printer.context.placements):
            return False
    return True


def copied_vector(printer: CudaStatementPrinter) -> str:
    """Return the vector of which this copies each lane as it is, "" if it does not."""
    statement, vectors = printer.statement, printer.vectors
    value = _uncast(statement.value)
    if statement.kind is not Kind.ASSIGN or statement.conditions or vectors is None:
        return ""
    if not isinstance(value, Load) or len(statement.reads) != 1:
        return ""
    if value.dtype != printer.scop.arrays[statement.write.array].dtype:
        return ""
    return vectors.names.get(len(statement.writes), "")


def fold_of_lanes(printer: CudaStatementPrinter) -> str:
    """Return the function of a vector that takes all lanes of this at once, "" if there is none.

    Of half types and bytes the largest and the smallest value: two lanes are compared at once, and
    the accumulator takes one value, which it would have taken in any order.
    """
    statement, vectors = printer.statement, printer.vectors
    value, reduction = _uncast(statement.value), statement.reduction
    if statement.kind is not Kind.UPDATE or reduction is None or vectors is None:
        return ""
    if reduction.operator not in (Operator.MAX, Operator.MIN):
        return ""
    if statement.conditions or statement.companion is not None or statement.is_atomic:
        return ""
    if not isinstance(value, Load) or len(statement.reads) != 1:
        return ""
    together = _compared_at_once(value.dtype, reduction.dtype)
    if not together or vectors.width % together or vectors.where is not None:
        return ""
    if set(vectors.names) != {len(statement.writes)}:
        return ""
    if mentions(printer.element(statement.write), vectors.variable):
        return ""
    return f"tc_v{OPERATORS[reduction.operator]}_{suffix(value.dtype)}"


def _compared_at_once(loaded: DType, accumulated: DType) -> int:
    """Return of how many neighbours a register has the extreme at once, 0 if it has not."""
    if loaded.is_half:
        return 2 if accumulated == FLOAT32 else 0
    return 4 if loaded in (INT8, UINT8) and accumulated == loaded else 0


def _uncast(expr: Expr | None) -> Expr | None:
    return expr.operand if isinstance(expr, Cast) else expr
