"""Recomputation: a cheap temporary is computed where it is read, not stored.

    h(i,j) = (x(i,j) - m(i)) * r(i)           b(i) +=! g(i,j) * ((x(i,j) - m(i)) * r(i))
    b(i) +=! g(i,j) * h(i,j)           --->   d(j) +=! g(i,j) * ((x(i,j) - m(i)) * r(i))
    d(j) +=! g(i,j) * h(i,j)

b sums along rows and d along columns: no kernel has both, and *h* would go through memory.  Instead
each reads *x*, which is as large.  Legal iff nothing but inputs is read (so that the value is the
same wherever it is computed) and every element that is read was written.  It pays if there is at
most one input as large as the temporary, if the operations are few and cheap, and if no element is
read more often than there are elements.  Rounding to the temporary's type is kept.

A *number* that is computed from inputs that are numbers, as a mean's ``d_loss / B`` is, is a kernel
of one thread; assignments that read it compute it, each thread once.

A *conversion* to a float of more bits, which rounds nothing, is made wherever it is read, however
often: ``s(i,j) = float32(y(i,j))`` as a factor of a product would hide that y is of a half type.

The reverse of materialisation; FusionStitching (Zheng et al., 2020, arXiv:2009.10924) calls it
thread composition.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tcdsl.costmodel import gpu_thresholds
from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Select,
    Size,
    Unary,
    walk,
)
from tcdsl.lang.rewrite import rewrite
from tcdsl.poly.isl_utils import points_of_box
from tcdsl.poly.scop import Kind, Scop, Statement, Storage, loads_of
from tcdsl.rewrites.scop.assignment import with_own_reads

MOST_OPERATIONS = gpu_thresholds.RECOMPUTED_OPERATIONS
MOST_FUNCTIONS = gpu_thresholds.RECOMPUTED_FUNCTIONS
_CHEAP = ("+", "-", "*", "<", "<=", ">", ">=", "==", "!=", "&&", "||")


def recomputed(scop: Scop) -> Scop:
    """Return *scop* without the temporaries that are cheaper to compute than to store."""
    for name in [statement.name for statement in scop.statements]:
        producer = scop.by_name[name]  # as it is by now: it may have read a temporary before it
        if _is_cheap(scop, producer):
            scop = _without(scop, producer)
    return scop


def without_conversions(scop: Scop) -> Scop:
    """Return *scop* without the temporaries that are inputs in a type of more bits."""
    for name in [statement.name for statement in scop.statements]:
        producer = scop.by_name[name]
        if not is_temporary(scop, producer) or not _is_conversion(producer.value):
            continue
        writers, users = writers_and_users(scop, producer.write.array)
        written = {write.array for s in scop.statements for write in s.writes}
        is_input = not any(read.array in written for read in producer.reads)
        if writers == [producer] and is_input and all(_can_read(scop, producer, u) for u in users):
            scop = _without(scop, producer)
    return scop


def _is_conversion(value: Expr | None) -> bool:
    """Return whether *value* is an element of a float type, in one of more bits."""
    inner = value
    while isinstance(inner, Cast) and _is_widening(inner):
        inner = inner.operand
    return inner is not value and isinstance(inner, Load)


def _is_widening(cast: Cast) -> bool:
    """Return whether *cast* is of a float to one of more bits, which rounds nothing."""
    from_, to = cast.operand.dtype, cast.dtype
    return from_.is_float and to.is_float and to.size_bytes > from_.size_bytes


def without(scop: Scop, array: str) -> Scop | None:
    """Return *scop* without the temporary *array*, which is computed wherever it is read.

    None unless that is legal (what it is computed from does not change afterwards) and takes few
    operations and functions.
    """
    writers, users = writers_and_users(scop, array)
    if len(writers) != 1 or not is_temporary(scop, writers[0]):
        return None
    (producer,) = writers
    assert producer.value is not None
    if not _keeps_its_sources(scop, producer, users):
        return None
    functions = sum(isinstance(node, Call) for node in walk(producer.value))
    if functions > MOST_FUNCTIONS or not _may_move(scop, producer, users):
        return None
    return _without(scop, producer)


def writers_and_users(scop: Scop, array: str) -> tuple[list[Statement], list[Statement]]:
    """Return the statements that write *array*, and those that read it."""
    touching = scop.users.get(array, ())
    return (
        [s for s in touching if any(w.array == array for w in s.writes)],
        [s for s in touching if any(r.array == array for r in s.reads)],
    )


def _may_move(scop: Scop, producer: Statement, users: Sequence[Statement]) -> bool:
    """Return whether *users* may compute the value of *producer*, in few operations."""
    assert producer.value is not None
    nodes = walk(producer.value)
    return (
        sum(isinstance(node, (Binary, Unary, Select)) for node in nodes) <= MOST_OPERATIONS
        and all(read.is_exact for read in producer.reads)
        and all(_may_read(scop, producer, user) for user in users)
    )


def _keeps_its_sources(scop: Scop, producer: Statement, users: Sequence[Statement]) -> bool:
    """Return whether what *producer* reads is the same for all of *users*.

    The last of them may be the first to change it: of each element after it has read it.
    """
    sources = {read.array for read in producer.reads}
    later = scop.statements[scop.position(producer.name) :]
    changes = [s for s in later if any(write.array in sources for write in s.writes)]
    if not changes:
        return True
    return len(changes) == 1 and changes[0] is users[-1] and _updates(producer, users[-1])


def _updates(producer: Statement, user: Statement) -> bool:
    """Return whether *user* changes what *producer*'s value is made of, each element on its own.

    Every instance of it writes the element that it reads, and no other instance reads that one:
    not in a condition either.
    """
    value, new = producer.value, user.value
    if user.kind is not Kind.ASSIGN or value is None or new is None or user.conditions:
        return False
    if len(user.indices) != len(producer.indices):
        return False
    names: dict[str, Expr] = {
        old: Index(new) for old, new in zip(producer.indices, user.indices, strict=True)
    }
    own = [load.subscripts for load in loads_of(new) if load.tensor == producer.write.array]
    here = tuple(names.values())
    changed = user.write.array
    read = [load.subscripts for load in loads_of(value) if load.tensor == changed]
    return (
        all(subscripts == here for subscripts in own)
        and all(tuple(moved(s, names) for s in r) == user.write.subscripts for r in read)
        and set(user.write.subscripts) == set(here)
    )


def is_temporary(scop: Scop, producer: Statement) -> bool:
    """Return whether *producer* assigns every element of a temporary at its own indices."""
    array = scop.arrays[producer.write.array] if producer.writes else None
    if array is None or producer.kind is not Kind.ASSIGN or producer.conditions:
        return False
    if array.storage is not Storage.SCRATCH or producer.value is None:
        return False
    if array.strides is not None:
        return False  # it is there for these (repacking.py)
    if any(array.name in overlapped.tiled.values() for overlapped in scop.overlapped):
        return False  # a tile has it in shared memory, or in registers
    names = [s.name for s in producer.write.subscripts if isinstance(s, Index)]
    return names == list(producer.indices) and len(names) == array.rank


def _is_cheap(scop: Scop, producer: Statement) -> bool:
    """Return whether the temporary that *producer* writes may be computed where it is read."""
    if not is_temporary(scop, producer):
        return False
    assert producer.value is not None
    array = scop.arrays[producer.write.array]
    written = {write.array for s in scop.statements for write in s.writes}
    sources = [scop.arrays[read.array] for read in producer.reads]
    if any(a.name in written or not a.is_input for a in sources):
        return False
    writers, users = writers_and_users(scop, array.name)
    if array.rank == 0:
        return writers == [producer] and _is_few(producer.value) and _are_assigned(scop, producer)
    if not all(map(_is_plain, walk(producer.value))):
        return False
    large = {a.name for a in sources if a.rank >= array.rank}
    return (
        len(large) <= 1
        and len(users) >= 2
        and writers == [producer]
        and _may_move(scop, producer, users)
    )


def _is_few(value: Expr) -> bool:
    """Return whether *value* takes few operations, and no function."""
    nodes = list(walk(value))
    operations = sum(isinstance(node, (Binary, Unary, Select)) for node in nodes)
    return operations <= MOST_OPERATIONS and not any(isinstance(node, Call) for node in nodes)


def _are_assigned(scop: Scop, producer: Statement) -> bool:
    """Return whether all that read what *producer* writes are assignments that may compute it.

    A sum would compute it in every term, and products have operands that are no expressions.
    """
    _, users = writers_and_users(scop, producer.write.array)
    return bool(users) and all(
        user.kind is Kind.ASSIGN and _can_read(scop, producer, user) for user in users
    )


def _is_plain(node: Expr) -> bool:
    match node:
        case Binary(op=op):
            return op in _CHEAP
        case Load() | Const() | Index() | Size() | Cast() | Unary() | Select():
            return True
        case _:
            return False


def _may_read(scop: Scop, producer: Statement, user: Statement) -> bool:
    """Return whether *user* may compute what it reads of *producer*'s, as often as it does."""
    uses, elements = points_of_box(user.domain), points_of_box(producer.domain)
    if uses is None or elements is None or uses > elements:
        return False
    return _can_read(scop, producer, user)


def _can_read(scop: Scop, producer: Statement, user: Statement) -> bool:
    """Return whether *user* may compute what it reads of *producer*'s."""
    if user.kind not in (Kind.ASSIGN, Kind.UPDATE) or user.companion is not None or user.library:
        return False
    if scop.position(user.name) < scop.position(producer.name):
        return False
    name = producer.write.array
    if any(load.tensor == name for load in loads_of(*user.write.subscripts)):
        return False
    written = producer.write.relation.range()
    reads = [read for read in user.reads if read.array == name]
    return all(read.is_exact and read.relation.range().is_subset(written) for read in reads)


def _without(scop: Scop, producer: Statement) -> Scop:
    """Return *scop* without *producer*, its value in its readers."""
    assert producer.value is not None
    array = scop.arrays[producer.write.array]
    value = producer.value
    if value.dtype != array.dtype:
        value = Cast(value, array.dtype, value.span)

    def at(load: Expr) -> Expr:
        if not isinstance(load, Load) or load.tensor != array.name:
            return load
        return moved(value, dict(zip(producer.indices, load.subscripts, strict=True)))

    statements = []
    for statement in scop.statements:
        if statement is producer:
            continue
        if any(read.array == array.name for read in statement.reads):
            assert statement.value is not None
            new = rewrite(statement.value, at)
            conditions = tuple(rewrite(c, at) for c in statement.conditions)
            statement = replace(statement, value=new, conditions=conditions)
            statement = with_own_reads(scop, statement)
        statements.append(statement)
    arrays = {name: a for name, a in scop.arrays.items() if name != array.name}
    return replace(scop, arrays=arrays, statements=tuple(statements))


def moved(value: Expr, subscripts: Mapping[str, Expr]) -> Expr:
    """Return *value* with its indices replaced by *subscripts*."""

    def replaced(node: Expr) -> Expr:
        if not isinstance(node, Index):
            return node
        new = subscripts[node.name]
        return new if new.dtype == node.dtype else Cast(new, node.dtype, node.span)

    return rewrite(value, replaced)
