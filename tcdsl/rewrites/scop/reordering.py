"""An operand of a product becomes an array with its dimensions in another order.

    O(n,f,h,w) +=! I(n,c,h+r,w+s) * K(f,c,r,s)          c: neighbours are 8 of one copy
    --->
    P[n,h,w,c] = I[n,c,h,w]
    O(n,f,h,w) +=! P[n,h+r,w+s,c] * K(f,c,r,s)

What is copied once is read once for each tap and tile.  ``materialisation`` computes an operand
where it is read; this copies the whole array, whatever is read of it, so guards stay where they
are.

Legal iff nothing writes the array between the copy and the product.  The outermost of the copy's
dimensions may be an open size with a greatest value: no stride depends on it.
"""

from dataclasses import replace

from tcdsl.lang.comprehension import Expr, Index, Load
from tcdsl.lang.rewrite import rewrite
from tcdsl.poly.accesses import box, builder_of
from tcdsl.poly.isl_utils import greatest, plus
from tcdsl.poly.scop import Array, Scop, Statement, Storage
from tcdsl.rewrites.scop.assignment import assignment, element, with_own_reads

ORDERED = ".ordered"


def why_not_reordered(
    scop: Scop, name: str, array: str, last: int | None = None, kind: str = ORDERED
) -> str | None:
    """Return why the statement *name* cannot read a copy of *array*, or None.

    :arg last: the dimension of *array* that is the last of the copy's; None: any may be.
    :arg kind: of copies, by which their names begin after the array's: those of one are shared.
    """
    source = scop.arrays[array]
    order = range(source.rank) if last is None else _order(source, last)
    first = None if last is None or source.rank < 2 else order[0]
    inner = (source.shape[dim] for dim in order if dim != first)
    if source.shift is not None or not all(isinstance(n, int) for n in (*source.origin, *inner)):
        return "its sizes are open, or its rows shifted"
    if first is not None and greatest(source.shape[first]) is None:
        return "an open size has no greatest value"
    later = scop.statements[_copied_at(scop, name, array, kind) :]
    if any(write.array == array for statement in later for write in statement.writes):
        return f"{array} is written after it could be copied"
    return None


def reordered(scop: Scop, name: str, array: str, last: int) -> Scop:
    """Return *scop* whose statement *name* reads a copy of *array*, its dimension *last* the last.

    So do all of its reads of the array.  Statements share such a copy.
    """
    statement, source = scop.by_name[name], scop.arrays[array]
    order = _order(source, last)
    own = Array(
        f"{array}{ORDERED}{last}", source.dtype, tuple(source.origin[d] for d in order),
        tuple(source.shape[d] for d in order), Storage.SCRATCH, is_narrow=source.is_narrow,
    )  # fmt: skip
    wide = replace(scop, arrays={**scop.arrays, own.name: own})
    reader = _reading(wide, statement, array, own, order)
    return read_from_copy(wide, reader, _copy(wide, statement, source, own, order))


def _order(source: Array, last: int) -> list[int]:
    """Return the dimensions of *source* with *last* as the last one."""
    return [*(dim for dim in range(source.rank) if dim != last), last]


def read_from_copy(scop: Scop, reader: Statement, copy: Statement) -> Scop:
    """Return *scop* with *reader* in place of its statement, and *copy* before what belongs to it.

    A copy that is there already serves it, too, and comes before the first that it is for.
    """
    is_same = (s.write.array == copy.write.array for s in scop.statements)
    there = next((n for n, is_copy in enumerate(is_same) if is_copy), None)
    place = _place_before(scop, scop.by_name[reader.name])
    statements = [reader if s.name == reader.name else s for s in scop.statements]
    if there is None:
        statements.insert(place, copy)
    elif there > place:
        statements.insert(place, statements.pop(there))
    return scop.with_statements(tuple(statements))


def _place_before(scop: Scop, statement: Statement) -> int:
    """Return where a copy for *statement* goes: before what belongs to it."""
    names = [s.source_name for s in scop.statements]
    return names.index(statement.source_name)


def _copied_at(scop: Scop, name: str, array: str, kind: str) -> int:
    """Return where the first copy of a *kind* of *array* is, or one for *name* would go."""
    place = _place_before(scop, scop.by_name[name])
    writes = (s.write.array.startswith(f"{array}{kind}") for s in scop.statements[:place])
    return next((n for n, is_copy in enumerate(writes) if is_copy), place)


def _copy(
    scop: Scop, statement: Statement, source: Array, own: Array, order: list[int]
) -> Statement:
    indices = tuple(f"u{dim}" for dim in range(source.rank))
    name = f"{statement.name}_{own.name.replace('.', '_')}"
    builder = builder_of(indices, name, scop.sizes)
    bounds = {
        index: (low, plus(low, extent))
        for index, low, extent in zip(indices, source.origin, source.shape, strict=True)
    }
    domain = box(builder, indices, bounds)
    target = Load(own.name, tuple(Index(indices[dim]) for dim in order), own.dtype)
    value = element(source, tuple(map(Index, indices)))
    done = assignment(scop, domain, indices, target, value, statement)
    return replace(done, source_name=name)


def _reading(
    scop: Scop, statement: Statement, array: str, own: Array, order: list[int]
) -> Statement:
    """Return *statement* with elements of *own* for those of *array*."""

    def change(node: Expr) -> Expr:
        if not (isinstance(node, Load) and node.tensor == array):
            return node
        return Load(own.name, tuple(node.subscripts[dim] for dim in order), own.dtype)

    assert statement.value is not None
    new = replace(statement, value=rewrite(statement.value, change))
    return with_own_reads(scop, new)
