"""A statement on whole tiles: instances outside its results compute what nobody reads.

    C[m] += A[m,k] * B[k]     m < 1000        --->     C[m] += ...     m < 1024, C: 1024 elements
    y[m] = C[m]               m < 1000                 y[m] = C[m]     m < 1000

So that no thread asks which of its results there are while it computes them.  Of an open size the
last tile is that at the call's size: m < 64 ceil(M / 64).

Legal iff the instances are a product of a range of the index and the rest, the accumulator is an
array of its own that the index is a subscript of, and every value is one of any operands: what is
read outside an array must be brought by copies that know its bounds (``cache_read``).  Along an
index that is reduced the operands must be 0 there, which padded copies are.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from weakref import WeakKeyDictionary

import islpy as isl

from tcdsl.lang.comprehension import Call, Expr, Index, Load, Select, walk
from tcdsl.lang.ranges.size_functions import extent_expr
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import INT32
from tcdsl.poly.accesses import access, builder_of
from tcdsl.poly.isl_utils import Extent, dim_bounds, minus, within_bounds
from tcdsl.poly.scop import Access, Array, Kind, Scop, Statement, Storage
from tcdsl.rewrites.scop.assignment import with_own_reads

Spans = Mapping[str, tuple[int, Extent]]  # index -> its first value, and the one after its last
NONE: Spans = MappingProxyType({})


def why_not_padded(statement: Statement, spans: Spans) -> str | None:
    """Return why *statement* has no instances in all of *spans*, None if it may have them."""
    known, key = _products.setdefault(statement, {}), tuple(spans.items())
    if key not in known:
        known[key] = _widened(statement, spans) is not None
    return None if known[key] else "its instances are no product of ranges"


# A plan's search asks it of each group that a statement leads.
_products: WeakKeyDictionary[Statement, dict[tuple[object, ...], bool]] = WeakKeyDictionary()


def padded(scop: Scop, name: str, spans: Spans, terms: Spans = NONE) -> Scop | None:
    """Return *scop* with all instances of *name* whose indices are in *spans*; None: not legal.

    What initialises its accumulator is padded like it.

    :arg terms: of reduced indices: what is added outside must be 0, for what is read is 0 there.
    """
    updates = scop.by_name[name]
    target = scop.arrays[updates.write.array]
    grown = _grown(target, updates.write, spans)
    statements = [updates, *(s for s in scop.statements if _initialises(s, updates))]
    own = {
        s.name: {**spans, **{index: ends for index, ends in terms.items() if index in s.indices}}
        for s in statements
    }
    domains = {s.name: _widened(s, own[s.name]) for s in statements}
    if grown is None or any(domain is None for domain in domains.values()):
        return None
    wide = replace(scop, arrays={**scop.arrays, target.name: grown})
    new = {s.name: _on(wide, s, domain) for s in statements if (domain := domains[s.name])}
    return wide.with_statements(tuple(new.get(s.name, s) for s in scop.statements))


def clamped(scop: Scop, name: str, spans: Spans) -> Scop | None:
    """Return *scop* like :func:`padded`, for operands that no copies bring; None: not legal.

    C[m] += A[m,k] * B[k]   m < M     --->     C[m] += A[min(m, M - 1), k] * B[k]   m < 16

    What is outside reads the last of what there is.  A range is empty for no sizes, and nothing is
    read under a condition: what guards tell of reads is not known of the others.
    """
    updates = scop.by_name[name]
    dims = {index: updates.indices.index(index) for index in spans if index in updates.indices}
    ends = {n: dim_bounds(updates.domain, dim, scop.context)[1] for n, dim in dims.items()}

    def change(node: Expr) -> Expr:
        if not isinstance(node, Load):
            return node
        return replace(node, subscripts=tuple(rewrite(s, near) for s in node.subscripts))

    def near(node: Expr) -> Expr:
        if not isinstance(node, Index) or node.name not in ends:
            return node
        return Call("min", (node, extent_expr(minus(ends[node.name], 1))), INT32)

    nodes = [] if updates.value is None else list(walk(updates.value))
    is_plain = not any(isinstance(node, Select) for node in nodes) and not updates.conditions
    if updates.value is None or not is_plain:
        return None
    if any(node.dtype != INT32 for node in nodes if isinstance(node, Index)):
        return None
    own = with_own_reads(scop, replace(updates, value=rewrite(updates.value, change)))
    inside = scop.with_statements(tuple(own if s is updates else s for s in scop.statements))
    return padded(inside, name, spans)


def _initialises(statement: Statement, updates: Statement) -> bool:
    return statement.kind is Kind.INIT and statement.write.array == updates.write.array


def _grown(array: Array, write: Access, spans: Spans) -> Array | None:
    """Return *array* with room for the elements that *write* touches for indices in *spans*."""
    if array.storage is not Storage.SCRATCH or array.shift is not None or array.strides is not None:
        return None
    origin, shape, found = list(array.origin), list(array.shape), set()
    for dim, subscript in enumerate(write.subscripts):
        if not isinstance(subscript, Index) or subscript.name not in spans:
            continue
        first, end = spans[subscript.name]
        if origin[dim] != first:
            return None
        found.add(subscript.name)
        shape[dim] = minus(end, first)
    return replace(array, shape=tuple(shape)) if found == set(spans) else None


def _widened(statement: Statement, spans: Spans) -> isl.Set | None:
    """Return the domain of *statement* with its indices in *spans*, None if it is no product."""
    domain = statement.domain
    free = domain
    for index in spans:
        if index not in statement.indices:
            return None
        free = free.eliminate(isl.dim_type.set, statement.indices.index(index), 1)
    wide, own = free, free
    for index, (first, end) in spans.items():
        dim = statement.indices.index(index)
        if domain.is_empty():
            return None
        low, after = dim_bounds(domain, dim, domain.params())
        if not isinstance(low, int) or low < first:
            return None
        own = within_bounds(own, dim, low, after)
        wide = within_bounds(wide, dim, first, end)
    return wide if own.is_subset(domain) and domain.is_subset(wide) else None


def _on(scop: Scop, statement: Statement, domain: isl.Set) -> Statement:
    """Return *statement* with the instances *domain*."""
    builder = builder_of(statement.indices, statement.name, scop.sizes)

    def moved(one: Access) -> Access:
        return access(builder, one.array, one.subscripts, scop.arrays, domain)

    return replace(
        statement, domain=domain, write=moved(statement.write),
        reads=tuple(map(moved, statement.reads)),
    )  # fmt: skip
