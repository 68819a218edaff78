"""Which updates of a GPU's kernels are atomic.

    y(x(i)) +=! w(i)        a target that i does not name: threads add to it in any order
    p(e) +=! w(r) where e in ptr(r):ptr(r+1)    the same, of an e that several r may have
    y +=! x(i)              with ``cross_block="atomic"``: each block adds the sum of its chunk

Sums of floats depend on the order of atomics: ``Options(deterministic=True)`` forbids them.
"""

from collections.abc import Mapping
from dataclasses import replace
from weakref import WeakKeyDictionary

from tcdsl.costmodel.locality import Shape
from tcdsl.lang.comprehension import Operator, Reduction
from tcdsl.options import Options
from tcdsl.poly.parallelism import Role
from tcdsl.poly.scop import Kind, Scop, Statement
from tcdsl.rewrites.scop.rfactor import why_not_rfactored
from tcdsl.strategies.schedule import Schedule


def with_atomics(scop: Scop, shapes: Mapping[str, Shape], options: Options) -> Scop:
    """Return *scop* with the updates marked that have no other way to run in parallel."""
    return scop.with_statements(
        tuple(_marked(statement, shapes[statement.name], options) for statement in scop.statements)
    )


def _marked(statement: Statement, shape: Shape, options: Options) -> Statement:
    reduction = statement.reduction
    if statement.kind is not Kind.UPDATE or reduction is None or reduction.operator.is_arg:
        return statement
    is_candidate = (
        why_not_rfactored(statement) is not None
        and all(read.array != statement.write.array for read in statement.reads)
        and Role.ORDERED not in shape.roles
    )
    if not is_candidate:
        return statement
    is_atomic = _may_be_atomic(reduction, options)
    if is_atomic == statement.is_atomic:
        return statement
    if not is_atomic:
        return replace(statement, is_atomic=False)
    # One statement however often it is marked: what is known of groups with it stays known.
    if statement not in _atomic:
        _atomic[statement] = replace(statement, is_atomic=True)
    return _atomic[statement]


_atomic: WeakKeyDictionary[Statement, Statement] = WeakKeyDictionary()


def freed(shape: Shape, statement: Statement) -> Shape:
    """Return the shape of *statement*, every dimension parallel if its updates are atomic."""
    if not statement.is_atomic:
        return shape
    return replace(shape, statement=statement, roles=(Role.PARALLEL,) * len(shape.roles))


def added_at_once(scop: Scop, schedule: Schedule, options: Options) -> Schedule:
    """Return *schedule* with the chunks' sums added by atomics, where that is asked for."""
    if options.cross_block != "atomic":
        return schedule
    found = set()
    for name in schedule.partials:
        reduction = scop.by_name[name].reduction
        if reduction is not None and _may_be_atomic(reduction, options):
            found.add(name)
    return replace(schedule, atomic=frozenset(found))


def _may_be_atomic(reduction: Reduction, options: Options) -> bool:
    """Return whether the order of the updates may be left to chance."""
    is_rounded = reduction.dtype.is_float and reduction.operator in (Operator.ADD, Operator.MUL)
    return not (is_rounded and options.deterministic)
