"""A result of a product becomes an array with its dimensions in another order, and is copied.

    O(n,f,h,w) +=! I(n,h+r,w+s,c) * K(f,r,s,c)
    --->
    P[n,h,w,f] +=! I[n,h+r,w+s,c] * K[f,r,s,c]        f: neighbours are 8 of one store
    O[n,f,h,w] = P[n,h,w,f]

What comes between the sums and the result (a bias, what other remainders of a stride have) stays
between them: temporaries get the same order, without copies.  The dual of ``reordering``.

Legal iff all that touches these arrays says which elements it touches, and the result holds nothing
before.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import islpy as isl

from tcdsl.lang.comprehension import Expr, Index, Load, indices_in
from tcdsl.lang.rewrite import rewrite
from tcdsl.poly.accesses import access, builder_of
from tcdsl.poly.scop import Access, Array, Kind, Scop, Statement, Storage
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.assignment import assignment, element, with_own_reads

RESULT = ".result"
_KINDS = (Kind.ASSIGN, Kind.INIT, Kind.UPDATE)


@dataclass(frozen=True, slots=True)
class Between:
    """An array that a result is computed of, and which of its dimensions each of the result's is.

    -1: it has none.
    """

    array: str
    dims: tuple[int, ...]


def why_not_result_reordered(scop: Scop, array: str) -> str | None:
    """Return why *array* is not computed in another order first, or None."""
    own = scop.arrays[array]
    if not own.is_output or own.is_input or own.storage is not Storage.ARGUMENT:
        return "it is no result, or holds something before"
    if own.memory or any(name.startswith(f"{array}{RESULT}") for name in scop.arrays):
        return "it is another array's memory, or has been reordered"
    names = (array, *(one.array for one in behind(scop, array)))
    return next((reason for name in names if (reason := _why_not(scop, name))), None)


def _why_not(scop: Scop, array: str) -> str | None:
    own = scop.arrays[array]
    if own.shift is not None or not all(isinstance(n, int) for n in (*own.origin, *own.shape)):
        return f"the sizes of {array} are open, or its rows shifted"
    for statement in scop.users.get(array, ()):
        touched = [a for a in (*statement.writes, *statement.reads) if a.array == array]
        if statement.kind not in _KINDS or statement.conditions or statement.companion is not None:
            return f"{statement.name} is no plain statement"
        if statement.kind is Kind.INIT and statement.write.subscripts != _indices(statement):
            return f"{statement.name} has no index for each dimension"
        if statement.library or not all(one.is_exact for one in touched):
            return f"what {statement.name} touches of {array} is not known"
    return None


def _indices(statement: Statement) -> tuple[Expr, ...]:
    return tuple(map(Index, statement.indices))


def behind(scop: Scop, array: str) -> tuple[Between, ...]:
    """Return the temporaries that *array* is computed of, element by element, the nearest first."""
    rank = scop.arrays[array].rank
    found = {array: Between(array, tuple(range(rank)))}
    queue = [array]
    while queue:
        name = queue.pop(0)
        for statement in scop.users.get(name, ()):
            if statement.kind is not Kind.ASSIGN or statement.write.array != name:
                continue
            for read in statement.reads:
                own = scop.arrays[read.array]
                if own.storage is not Storage.SCRATCH or read.array in found or own.is_input:
                    continue
                if (dims := _same_dims(statement, read, found[name].dims)) is not None:
                    found[read.array] = Between(read.array, dims)
                    queue.append(read.array)
    return tuple(found.values())[1:]


def _same_dims(statement: Statement, read: Access, dims: Sequence[int]) -> tuple[int, ...] | None:
    """Return which dimension of *read* has the index of each of the result's, None if none do.

    :arg dims: the same of what *statement* writes.
    """
    own = [s.name if isinstance(s, Index) else "" for s in read.subscripts]
    if not all(own) or len(set(own)) < len(own):
        return None
    written = [indices_in(s) for s in statement.write.subscripts]
    of_written = [next((d for d, i in enumerate(own) if {i} == names), -1) for names in written]
    found = tuple(-1 if dim < 0 else of_written[dim] for dim in dims)
    return found if sorted(d for d in found if d >= 0) == list(range(len(own))) else None


def result_reordered(scop: Scop, array: str, last: int) -> Scop:
    """Return *scop* with *array* computed with its dimension *last* the last, and copied."""
    assert why_not_result_reordered(scop, array) is None
    source = scop.arrays[array]
    order = _order(source.rank, last)
    own = replace(
        _permuted(source, order), name=f"{array}{RESULT}{last}", storage=Storage.SCRATCH,
        is_output=False, strides=None,
    )  # fmt: skip
    changed = {array: (own, order)}
    for one in behind(scop, array):
        if one.dims[last] >= 0:
            temporary = scop.arrays[one.array]
            order_ = _order(temporary.rank, one.dims[last])
            changed[one.array] = _permuted(temporary, order_), order_
    arrays = {**scop.arrays, **{new.name: new for new, _ in changed.values()}}
    wide = replace(scop, arrays=arrays)
    writers = [s.name for s in scop.statements if s.write.array == array]
    statements = [_moved(wide, statement, changed) for statement in scop.statements]
    own_writers = [s for s in statements if s.name in writers]
    copy = _copy(wide, own_writers, source, own, order)
    statements.insert(statements.index(own_writers[-1]) + 1, copy)
    return wide.with_statements(tuple(statements))


def _order(rank: int, last: int) -> list[int]:
    return [*(dim for dim in range(rank) if dim != last), last]


def _permuted(array: Array, order: Sequence[int]) -> Array:
    origin, shape = (tuple(of[d] for d in order) for of in (array.origin, array.shape))
    return replace(array, origin=origin, shape=shape, strides=None)


def _moved(
    scop: Scop, statement: Statement, changed: Mapping[str, tuple[Array, Sequence[int]]]
) -> Statement:
    """Return *statement* with elements of the new arrays for those of *changed* ones."""
    if not any(one.array in changed for one in (*statement.writes, *statement.reads)):
        return statement

    def change(node: Expr) -> Expr:
        if not (isinstance(node, Load) and node.tensor in changed):
            return node
        own, order = changed[node.tensor]
        return Load(own.name, tuple(node.subscripts[dim] for dim in order), own.dtype)

    value = None if statement.value is None else rewrite(statement.value, change)
    write = statement.write
    if write.array in changed:
        statement = _with_indices(statement, changed[write.array][1])
        own, order = changed[write.array]
        builder = builder_of(statement.indices, statement.name, scop.sizes)
        subscripts = tuple(write.subscripts[dim] for dim in order)
        write = access(builder, own.name, subscripts, scop.arrays, statement.domain)
    return with_own_reads(scop, replace(statement, value=value, write=write))


def _with_indices(statement: Statement, order: Sequence[int]) -> Statement:
    """Return *statement* with its left-hand indices in the order of what it writes, if it has one.

    Initialisations have: their indices are those of the array's dimensions.  Loops of statements
    that share one are found by their places.
    """
    written = [indices_in(statement.write.subscripts[dim]) for dim in order]
    left = [min(names) for names in written if len(names) == 1]
    if sorted(left) != sorted(statement.left):
        return statement
    names = (*left, *statement.reduced)
    own = [f"i{dim}" for dim in range(len(names))]
    moved = ", ".join(own[statement.indices.index(name)] for name in names)
    places = isl.Map(f"{{ [{', '.join(own)}] -> [{moved}] }}")
    for side in (isl.dim_type.in_, isl.dim_type.out):
        places = places.set_tuple_name(side, statement.name)
    return replace(statement, domain=statement.domain.apply(places), indices=names)


def _copy(
    scop: Scop, writers: Iterable[Statement], source: Array, own: Array, order: Sequence[int]
) -> Statement:
    """Return ``source[e] = own[e in the other order]`` for all elements that *writers* write.

    :arg writers: of *own*, whose indices the copy has in the same order: they may share loops.
    """
    name, indices = f"{source.name}_in_order", tuple(f"u{dim}" for dim in order)
    builder = builder_of(indices, name, scop.sizes)
    *_, last = writers = list(writers)
    parts = [w.write.relation.range().set_tuple_name(name) for w in writers]
    domain: isl.Set = parts[0]
    for part in parts[1:]:
        domain = domain.union(part)
    domain = domain.align_params(builder.space).coalesce()
    places = tuple(Index(f"u{dim}") for dim in range(source.rank))
    target = Load(source.name, places, source.dtype)
    done = assignment(scop, domain, indices, target, element(own, tuple(map(Index, indices))), last)
    return replace(done, source_name=name)
