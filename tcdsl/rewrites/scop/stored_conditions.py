"""Stored conditions: a comparison of sums is made where these are, and one byte of it is stored.

    h(b,n) +=! x(b,i) * w(i,n)                           h(b,n) +=! x(b,i) * w(i,n)
                                                         p(b,n) = h(b,n) + c(n) > 0
    a(b,n) = relu(h(b,n) + c(n))                --->     a(b,n) = relu(h(b,n) + c(n))
    d(b,n) = h(b,n) + c(n) > 0 ? g(b,n) : 0              d(b,n) = p(b,n) ? g(b,n) : 0

Derivatives ask of a layer's sums whether its rectifier let them through.  Where nothing else reads
h in another kernel, what computes it keeps it in registers, and other kernels read a byte for each
element of four.

Legal iff the comparison is of one element of h, at plain indices, and of inputs at some of these
indices, which have elements for all of h's, and whose elements nothing writes.
"""

from collections.abc import Iterator
from dataclasses import replace

from tcdsl.lang.comprehension import Binary, Expr, Index, Load, are_indices, children, walk
from tcdsl.lang.fresh_names import fresh_name
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import BOOL
from tcdsl.poly.accesses import box, builder_of
from tcdsl.poly.scop import Array, Kind, Scop, Statement, Storage, loads_of
from tcdsl.rewrites.scop.assignment import assignment, with_own_reads
from tcdsl.rewrites.scop.recomputation import writers_and_users

COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


def why_not_stored_first(scop: Scop, name: str) -> str | None:
    """Return why no comparison of the sums *name* is stored, or None."""
    array = scop.arrays[name]
    if array.storage is not Storage.SCRATCH or array.strides is not None:
        return "it is no temporary"
    if scop.overlapped:
        return "it may be in tiles"
    if array.dtype.size_bytes <= BOOL.size_bytes or not array.rank:
        return "a comparison takes as many bytes"
    if any(not isinstance(n, int) for n in (*array.origin, *array.shape)):
        return "its extents are open"
    if 0 in array.shape:
        return "it has no elements"
    writers, readers = writers_and_users(scop, name)
    if not writers or writers[-1].kind is not Kind.UPDATE or writers[-1].library:
        return "it is no sum"
    last = writers[-1]
    if any(scop.position(reader.name) < scop.position(last.name) for reader in readers):
        return "it is read before it is whole"
    ranges = dict(zip(_dims(array), _ranges(array), strict=True))
    builder = builder_of(_dims(array), name, scop.sizes)
    if not box(builder, _dims(array), ranges).is_subset(writers[0].write.relation.range()):
        return "it has elements that are not written"
    return None if _condition(scop, name) is not None else "no statement reads its comparison alone"


def with_stored_condition(scop: Scop, name: str) -> Scop:
    """Return *scop* with a comparison of the sums *name* stored where they are computed."""
    assert why_not_stored_first(scop, name) is None
    array, condition = scop.arrays[name], _condition(scop, name)
    assert condition is not None, "why_not_stored_first"
    label, dims = fresh_name(f"{name}.condition", scop.arrays), _dims(array)
    own = Array(label, BOOL, array.origin, array.shape, Storage.SCRATCH)
    scop = replace(scop, arrays={**scop.arrays, label: own})
    builder = builder_of(dims, f"{label}_value", scop.sizes)
    domain = box(builder, dims, dict(zip(dims, _ranges(array), strict=True)))
    domain = domain.intersect_params(scop.context)
    (*_, last), _ = writers_and_users(scop, name)
    target = Load(label, tuple(map(Index, dims)), BOOL)
    stored = assignment(scop, domain, dims, target, condition, last)

    def served(node: Expr) -> Expr:
        at = _place(node, name)
        is_same = at is not None and _over(array, node, at) == condition
        return Load(label, at, BOOL, node.span) if at is not None and is_same else node

    statements: list[Statement] = []
    for statement in scop.statements:
        if statement.value is not None and _reads(statement, name):
            new = rewrite(statement.value, served)
            if new != statement.value:
                statement = with_own_reads(scop, replace(statement, value=new))
        statements.append(statement)
        if statement.name == last.name:
            statements.append(stored)
    return scop.with_statements(tuple(statements))


def _condition(scop: Scop, name: str) -> Expr | None:
    """Return a comparison over the dimensions of *name* which some statement reads that for."""
    array = scop.arrays[name]
    for reader in writers_and_users(scop, name)[1]:
        if reader.value is None or reader.conditions or reader.library:
            continue
        for node in walk(reader.value):
            at = _place(node, name)
            if node == reader.value or at is None or not _is_of_inputs(scop, node, name, at):
                continue
            others = [load for load in _loads(reader.value, node) if load.tensor == name]
            if not others:
                return _over(array, node, at)
    return None


def _loads(value: Expr, without: Expr) -> Iterator[Load]:
    """Yield the loads of *value* but for those in expressions that are *without*."""
    if value == without:
        return
    if isinstance(value, Load):
        yield value
    for child in children(value):
        yield from _loads(child, without)


def _place(node: Expr, name: str) -> tuple[Expr, ...] | None:
    """Return the subscripts of the element of *name* that *node* compares; None if it does not.

    They are plain indices, each another one.
    """
    if not isinstance(node, Binary) or node.op not in COMPARISONS:
        return None
    found = {load.subscripts for load in loads_of(node) if load.tensor == name}
    if len(found) != 1:
        return None
    (at,) = found
    return at if are_indices(at) else None


def _is_of_inputs(scop: Scop, node: Expr, name: str, at: tuple[Expr, ...]) -> bool:
    """Return whether *node* needs inputs alone but for *name*, for all of whose elements they are.

    :arg at: the subscripts of *name*.
    """
    ranges = dict(zip(at, _ranges(scop.arrays[name]), strict=True))
    if any(isinstance(one, Index) and one not in ranges for one in walk(node)):
        return False
    for load in loads_of(node):
        array = scop.arrays[load.tensor]
        if load.tensor == name:
            continue
        if not array.is_input or writers_and_users(scop, load.tensor)[0]:
            return False
        if any(not isinstance(n, int) for n in (*array.origin, *array.shape)):
            return False
        for subscript, (low, end) in zip(load.subscripts, _ranges(array), strict=True):
            least, most = ranges.get(subscript, (low - 1, end))
            if least < low or most > end:
                return False
    return True


def _over(array: Array, node: Expr, at: tuple[Expr, ...]) -> Expr:
    """Return *node* as a function of the dimensions of *array*, whose subscripts are *at*."""
    dims = dict(zip(at, _dims(array), strict=True))
    return rewrite(node, lambda one: Index(dims[one], one.dtype) if one in dims else one)


def _dims(array: Array) -> tuple[str, ...]:
    return tuple(f"e{dim}" for dim in range(array.rank))


def _ranges(array: Array) -> list[tuple[int, int]]:
    """Return the range [from, to) of each subscript of *array*, of known extents."""
    found = []
    for low, extent in zip(array.origin, array.shape, strict=True):
        assert isinstance(low, int) and isinstance(extent, int), "known"
        found.append((low, low + extent))
    return found


def _reads(statement: Statement, name: str) -> bool:
    return any(read.array == name for read in statement.reads)
