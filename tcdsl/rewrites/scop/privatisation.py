"""Privatised results: what is added to scattered elements is added up in copies first.

    S[i]:  t[x(i)] op= f(i)          P_init[c,e]:  p[c,e]       = identity
                              --->   S[i]:         p[c(i),x(i)] op= f(i)      atomically
                                     P_add[c,e]:   t[e]         op= p[c,e]    atomically, p not 0

where c are coordinates of the indices of S, of a chunk each: a block that has a chunk has its copy
in shared memory, where updates that collide cost little, and touches an element of t once.  Or
copies are in memory, fewer than blocks: then P_add is a sum over c, of a kernel of its own.  An
index of S that is a subscript of t is one of e, too.  Legal as any partial accumulators are (see
``rfactor``): S is an update whose order is free, and reads nothing of t.

After what is written of histograms on GPUs: V. Podlozhnyuk, Histogram calculation in CUDA, NVIDIA,
2007; privatisation of reductions: Rauchwerger and Padua, The LRPD test, PLDI 1995,
doi:10.1145/207110.207148.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import islpy as isl

from tcdsl.lang.comprehension import Binary, Const, Expr, Index, Load, Operator, Reduction
from tcdsl.lang.fresh_names import fresh_name
from tcdsl.lang.types.dtypes import BOOL
from tcdsl.poly.accesses import access, builder_of, guarded_reads
from tcdsl.poly.isl_utils import constant_bounds, within_bounds
from tcdsl.poly.scop import Array, Kind, Scop, Statement, Storage
from tcdsl.rewrites.scop.rfactor import Partial, coordinate_name


def why_not_private(scop: Scop, statement: Statement) -> str | None:
    """Return why no copies of its target are updated by *statement*, None if they may be."""
    reduction, target = statement.reduction, scop.arrays[statement.write.array]
    if not statement.is_atomic or reduction is None or statement.companion is not None:
        return "its updates are not atomic"
    if all(isinstance(subscript, Index) for subscript in statement.write.subscripts):
        return "its target's subscripts are plain indices"
    if any(read.array == statement.write.array for read in statement.reads):
        return "it reads its target"
    if reduction.dtype.is_compensated:
        return "no atomic adds compensated sums"
    is_open = any(not isinstance(e, int) for e in (*target.shape, *target.origin))
    return "its target has open extents" if is_open or _boxes(scop, statement) is None else None


def private_indices(statement: Statement) -> tuple[str, ...]:
    """Return the index of each dimension of the target, where it is the statement's own, or ""."""
    names = [s.name if isinstance(s, Index) else "" for s in statement.write.subscripts]
    return tuple(name if names.count(name) == 1 else "" for name in names)


def private_shape(scop: Scop, statement: Statement) -> tuple[int, ...]:
    """Return how many values each dimension of a copy has."""
    boxes = _boxes(scop, statement)
    assert boxes is not None, "why_not_private"
    return tuple(end - low for low, end in boxes)


def privatised(
    scop: Scop,
    name: str,
    partials: Sequence[Partial],
    *,
    is_summed: bool = False,
    innermost: int | None = None,
) -> Scop:
    """Return *scop* with a copy of what *name* updates for each chunk of *partials*.

    New are what initialises the copies, before *name*, and what adds them to the target, after it:
    by atomics, or, if *is_summed*, as a sum over the copies.

    :arg innermost: the dimension of the target along which a copy has neighbours; None: the last.
    """
    statement = scop.by_name[name]
    assert why_not_private(scop, statement) is None
    boxes, reduction = _boxes(scop, statement), statement.reduction
    assert boxes is not None and reduction is not None
    chunks = [coordinate_name(statement, d, is_lane=False) for d in range(len(partials))]
    left = [own or _fresh(statement, d) for d, own in enumerate(private_indices(statement))]
    number = sum(".part" in array for array in scop.arrays)
    order = in_copy(len(boxes), innermost)
    part = Array(
        f"{statement.write.array}.part{number}", reduction.dtype,
        (*(0 for _ in partials), *(boxes[d][0] for d in order)),
        (*(p.extent for p in partials), *(boxes[d][1] - boxes[d][0] for d in order)),
        Storage.SCRATCH,
    )  # fmt: skip
    arrays = {**scop.arrays, part.name: part}
    wide = replace(scop, arrays=arrays)
    of_chunks = {c: (0, p.extent) for c, p in zip(chunks, partials, strict=True)}
    of_elements = dict(zip(left, boxes, strict=True))
    places = tuple(map(Index, (*chunks, *(left[d] for d in order))))
    own, load = f"{name}_part{number}", Load(part.name, places, part.dtype)
    init = _over(wide, statement, f"{own}_init", {**of_chunks, **of_elements}, (part.name, places))
    bounds = {**of_elements, **of_chunks} if is_summed else {**of_chunks, **of_elements}
    target = statement.write.array, tuple(map(Index, left))
    add = _where_updated(_over(wide, statement, f"{own}_add", bounds, target), statement)
    builder = builder_of(add.indices, add.name, scop.sizes)
    add = replace(
        add, value=load, n_left=len(left) if is_summed else len(bounds), is_atomic=not is_summed,
        reads=guarded_reads(builder, add.domain, (load,), arrays),
        conditions=() if is_summed else _where_changed(load, reduction),
        reduction=replace(reduction, initialise=False),
    )  # fmt: skip
    builder = builder_of(statement.indices, name, scop.sizes)
    subscripts = (statement.write.subscripts[d] for d in order)
    at_chunk = (*(p.expression() for p in partials), *subscripts)
    write = access(builder, part.name, at_chunk, arrays, statement.domain)
    update = replace(statement, write=write)
    at = scop.position(name)
    around = scop.statements[:at], scop.statements[at + 1 :]
    init = replace(init, kind=Kind.INIT, is_atomic=False)
    return replace(wide, statements=(*around[0], init, update, add, *around[1]))


def in_copy(rank: int, innermost: int | None) -> tuple[int, ...]:
    """Return the dimensions of a target in the order that its copies have: *innermost* the last."""
    dims = [dim for dim in range(rank) if dim != innermost]
    return (*dims, *([] if innermost is None else [innermost]))


def _over(
    scop: Scop,
    statement: Statement,
    name: str,
    bounds: Mapping[str, tuple[int, int]],
    target: tuple[str, tuple[Expr, ...]],
) -> Statement:
    """Return the statement *name* over indices within *bounds*, which writes *target*."""
    builder = builder_of(tuple(bounds), name, scop.sizes)
    domain = isl.Set.universe(builder.space).intersect_params(scop.context)
    for position, (low, end) in enumerate(bounds.values()):
        domain = within_bounds(domain, position, low, end)
    return replace(
        statement, name=name, domain=domain, indices=tuple(bounds), n_left=len(bounds),
        write=access(builder, *target, scop.arrays, domain), value=None, reads=(), conditions=(),
    )  # fmt: skip


def _where_updated(add: Statement, statement: Statement) -> Statement:
    """Return *add* for those elements that *statement* may update: between others nothing is."""
    image = statement.write.relation.range()
    elements = add.write.relation
    if not statement.write.is_exact or elements.range().is_subset(image):
        return add
    return replace(add, domain=elements.intersect_range(image).domain().coalesce())


def _where_changed(load: Load, reduction: Reduction) -> tuple[Expr, ...]:
    """Return the condition under which a copy's element is worth adding."""
    if reduction.operator is not Operator.ADD:
        return ()
    zero = Const(0.0 if load.dtype.is_float else 0, load.dtype)
    return (Binary("!=", load, zero, BOOL),)


def _boxes(scop: Scop, statement: Statement) -> list[tuple[int, int]] | None:
    """Return ``[low, end)`` of what is updated in each dimension of the target, None if open."""
    target = scop.arrays[statement.write.array]
    found: list[tuple[int, int]] = []
    for dim, index in enumerate(private_indices(statement)):
        low, extent = target.origin[dim], target.shape[dim]
        if index:
            bounds = constant_bounds(statement.domain, statement.indices.index(index))
            if bounds is None:
                return None
            found.append((bounds[0], bounds[1] + 1))
        elif isinstance(low, int) and isinstance(extent, int):
            is_affine = statement.write.is_exact
            bounds = constant_bounds(statement.write.relation.range(), dim) if is_affine else None
            found.append((low, low + extent) if bounds is None else (bounds[0], bounds[1] + 1))
        else:
            return None
    return found


def _fresh(statement: Statement, dim: int) -> str:
    """Return the name of dimension *dim* of the target, which no index of *statement* has."""
    return fresh_name(f"e{dim}", statement.indices)
