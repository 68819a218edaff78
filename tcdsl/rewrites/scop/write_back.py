"""write_back: what a kernel reads of its own result is kept in a temporary, and stored for others.

    mean(c) +=! x(n,c)                       kept(c) +=! x(n,c)
    y(n,c) = x(n,c) - mean(c)       --->     mean(c) = kept(c)
                                             y(n,c) = x(n,c) - kept(c)

Temporaries of one kernel may be registers (schedule/promotion); an output, or what another kernel
reads too, is in memory, which is slower to read, and what another thread wrote there is seen after
a barrier only.  Legal iff all writers of the array are in the kernel, and it is no input: then
nothing of it is read that the kernel has not written, and others find all of it when it has run.
"""

from collections.abc import Collection
from dataclasses import replace

import islpy as isl

from tcdsl.lang.comprehension import Expr, Index, Load
from tcdsl.lang.rewrite import rewrite
from tcdsl.poly.accesses import builder_of
from tcdsl.poly.scop import Access, Array, Scop, Statement, Storage
from tcdsl.rewrites.scop.assignment import assignment, element


def why_not_written_back(scop: Scop, array: str, inside: Collection[str]) -> str | None:
    """Return why *array* must stay as it is for the statements *inside* a kernel, or None."""
    if scop.arrays[array].is_input:
        return "it is an input"
    for statement in scop.statements:
        own = [a for a in (*statement.writes, *statement.reads) if a.array == array]
        is_written = any(write.array == array for write in statement.writes)
        if is_written and statement.name not in inside:
            return f"{statement.name} writes it elsewhere"
        if not all(access.is_exact for access in own):
            return "a subscript is gathered or scattered"
    return None


def write_back(scop: Scop, array: str, inside: Collection[str]) -> Scop:
    """Return *scop* with *array* in a temporary for the statements *inside*, stored for the others.

    The store, ``ARRAY.store``, follows the last of its writers.  Where it is there already (other
    groups were made since), only the readers *inside* change.
    """
    assert (reason := why_not_written_back(scop, array, inside)) is None, reason
    output = scop.arrays[array]
    name, store = f"{array}.kept", store_of(array)
    if name in scop.arrays:
        return scop.with_statements(tuple(
            _renamed(s, array, name) if s.name in inside and s.name != store else s
            for s in scop.statements
        ))  # fmt: skip
    kept = Array(
        name, output.dtype, output.origin, output.shape, Storage.SCRATCH, values=output.values
    )
    wide = replace(scop, arrays={**scop.arrays, name: kept})
    writers = scop.writers_of(array)
    statements = []
    for statement in scop.statements:
        is_own = statement.name in inside
        statements.append(_renamed(statement, array, name) if is_own else statement)
        if statement is writers[-1]:
            statements.append(_copy(wide, output, kept, writers))
    return replace(wide, statements=tuple(statements))


def store_of(array: str) -> str:
    """Return the name of the statement that stores *array* from its temporary."""
    return f"{array}.store"


def _renamed(statement: Statement, old: str, new: str) -> Statement:
    """Return *statement* with *new* in place of the array *old*."""

    def change(node: Expr) -> Expr:
        is_old = isinstance(node, Load) and node.tensor == old
        return replace(node, tensor=new) if is_old and isinstance(node, Load) else node

    def moved(one: Access) -> Access:
        subscripts = tuple(rewrite(subscript, change) for subscript in one.subscripts)
        if one.array != old:
            return replace(one, subscripts=subscripts)
        relation = one.relation.set_tuple_name(isl.dim_type.out, new)
        return replace(one, array=new, subscripts=subscripts, relation=relation)

    ends = statement.checked_range
    if ends is not None:
        ends = replace(ends, lower=rewrite(ends.lower, change), upper=rewrite(ends.upper, change))
    return replace(
        statement,
        value=None if statement.value is None else rewrite(statement.value, change),
        checked_range=ends,
        conditions=tuple(rewrite(condition, change) for condition in statement.conditions),
        write=moved(statement.write),
        companion=None if statement.companion is None else moved(statement.companion),
        checked=tuple((dim, rewrite(expr, change)) for dim, expr in statement.checked),
        reads=tuple(moved(read) for read in statement.reads),
    )


def _copy(scop: Scop, output: Array, kept: Array, writers: list[Statement]) -> Statement:
    """Return ``output[e] = kept[e]`` for every element that *writers* write."""
    name = store_of(output.name)
    indices = tuple(f"e{dim}" for dim in range(output.rank))
    builder = builder_of(indices, name, scop.sizes)
    domain: isl.Set | None = None
    for writer in writers:
        for write in writer.writes:
            if write.array == output.name:
                own = write.relation.range().set_tuple_name(name)
                domain = own if domain is None else domain.union(own)
    assert domain is not None, "an output is written"
    domain = domain.align_params(builder.space).coalesce()
    subscripts = tuple(map(Index, indices))
    target, value = Load(output.name, subscripts, output.dtype), element(kept, subscripts)
    return assignment(scop, domain, indices, target, value, writers[-1])
