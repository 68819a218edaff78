"""Statements that rewrites add, ``target = value`` over a domain, and those that they change."""

from collections.abc import Collection, Sequence
from dataclasses import replace

import islpy as isl

from tcdsl.lang.comprehension import Cast, Expr, Load
from tcdsl.lang.types.dtypes import arithmetic
from tcdsl.poly.accesses import access, builder_of, evaluated, guarded_reads
from tcdsl.poly.scop import Array, Kind, Scop, Statement


def assignment(
    scop: Scop,
    domain: isl.Set,
    indices: tuple[str, ...],
    target: Load,
    value: Expr,
    source: Statement,
) -> Statement:
    """Return ``target = value`` over *domain*, whose name it has, as a part of *source*.

    :arg scop: with the arrays that are read and written.
    """
    builder = builder_of(indices, domain.get_tuple_name(), scop.sizes)
    return Statement(
        name=domain.get_tuple_name(),
        domain=domain,
        indices=indices,
        n_left=len(indices),
        kind=Kind.ASSIGN,
        write=access(builder, target.tensor, target.subscripts, scop.arrays, domain),
        value=value,
        reads=guarded_reads(builder, domain, (value,), scop.arrays),
        source_name=source.source_name,
        span=source.span,
    )


def element(array: Array, subscripts: Sequence[Expr]) -> Expr:
    """Return an element of *array*, in the type in which values of its type are computed."""
    load, wide = Load(array.name, tuple(subscripts), array.dtype), arithmetic(array.dtype)
    return load if wide == array.dtype else Cast(load, wide)


def with_own_reads(scop: Scop, statement: Statement) -> Statement:
    """Return *statement* with the reads of its expressions, which have changed."""
    builder = builder_of(statement.indices, statement.name, scop.sizes)
    reads = guarded_reads(builder, statement.domain, evaluated(statement), scop.arrays)
    return replace(statement, reads=reads)


def with_own_accesses(
    scop: Scop, statement: Statement, array: str, subscripts: Sequence[Expr]
) -> Statement:
    """Return *statement*, which has changed, with its reads: it writes ``array(subscripts)``."""
    builder = builder_of(statement.indices, statement.name, scop.sizes)
    write = access(builder, array, tuple(subscripts), scop.arrays, statement.domain)
    return with_own_reads(scop, replace(statement, write=write))


def over_indices(statement: Statement, indices: Collection[str], name: str) -> isl.Set:
    """Return the instances ``name[i]`` for which *statement* has some: *i* are its *indices*."""
    domain = statement.domain
    for position in reversed(range(len(statement.indices))):
        if statement.indices[position] not in indices:
            domain = domain.project_out(isl.dim_type.set, position, 1)
    return domain.set_tuple_name(name).coalesce()
