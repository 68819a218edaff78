"""Sums of exponentials beside the largest value of a row: which statements are such.

    m(i) max=! x(i,j)
    e(i,j) = exp(x(i,j) - m(i))                s: terms  f(i,j) exp(x(i,j) - m(i))
    s(i) +=! f(i,j) e(i,j)             --->       temporaries substituted: e

The term is a multiple of one exponential, by what does not depend on m: factors, a sign.  A term
that a condition leaves out is none: with nothing but such terms a sum is 0 whatever m is, also NaN.
Factors must be small by their types: until it is rescaled, a chunk's sum of f exp(x - q) may be
larger than the program's by any factor, and would overflow for some float32 f (x exp(x - m), where
x is the least float32 for what is masked).

x is the same expression in both statements, over the same box of indices, of which each reduces
one.  What rewrites/scop/rescaling.py then moves, the sum, may stand where the maximum does: nothing
between them writes what it reads, or touches its target.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import inf, log2

import islpy as isl

from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Operator,
    Select,
    Unary,
)
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import FLOAT8_E4M3, FLOAT8_E5M2, FLOAT16, FLOAT64, DType
from tcdsl.poly.accesses import builder_of, guarded_reads
from tcdsl.poly.isl_utils import constant_bounds, dim_bounds, is_unbounded, within_bounds
from tcdsl.poly.scop import Access, Kind, Scop, Statement, Storage, loads_of
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.recomputation import moved
from tcdsl.rewrites.scop.rfactor import initialisation

# Of what is not above 0 (shifted_exponentials.py), and also of what is added to 1 and more.
NONPOSITIVE, ADDEND = "exp_nonpositive", "exp_addend"
MOST_ADDENDS = 1 << 17  # terms of a sum that ADDEND is good enough for (shifted_exponentials)
MOST_VALUES = 1 << 30  # of a row: an index past its end still fits 32 bits


@dataclass(frozen=True, slots=True)
class Total:
    """A sum of exponentials: its terms over the indices of the statement that finds the largest."""

    name: str
    value: Expr  # the term, which loads the largest value once
    subscripts: tuple[Expr, ...]  # of its target
    substituted: tuple[str, ...]  # temporaries that the program reads there


@dataclass(frozen=True, slots=True)
class ExponentialSums:
    """The largest value of a row, by the statement *peak*, and the sums beside it."""

    peak: str
    totals: tuple[Total, ...]

    @property
    def members(self) -> tuple[str, ...]:
        return (self.peak, *(total.name for total in self.totals))


def row_of(statement: Statement) -> tuple[int, int]:
    """Return the first value of the reduced index of *statement*, and their number."""
    bounds = constant_bounds(statement.domain, statement.n_left)
    assert bounds is not None, "it runs"
    return bounds[0], bounds[1] + 1 - bounds[0]


def exponential_sums(scop: Scop) -> list[ExponentialSums]:
    """Return the sums of exponentials of *scop* whose rows may be cut, in textual order."""
    found = []
    for peak in scop.statements:
        if why_not_peak(scop, peak) is None:
            totals = tuple(_totals(scop, peak))
            if totals:
                found.append(ExponentialSums(peak.name, totals))
    return found


def why_not_peak(scop: Scop, statement: Statement) -> str | None:
    """Return why *statement* is no maximum of rows whose chunks may have maxima of their own."""
    reason = _why_not_row(scop, statement)
    if reason is not None:
        return reason
    reduction = statement.reduction
    assert reduction is not None and statement.value is not None
    if reduction.operator is not Operator.MAX or not reduction.dtype.is_float:
        return "it is no maximum of floats"
    if initialisation(scop, statement) is None:
        return "it goes on from what its target holds"
    target = scop.arrays[statement.write.array]
    if target.dtype not in (reduction.dtype, unwidened(statement.value).dtype):
        return "its target is narrower than its terms"
    return None


def _why_not_row(scop: Scop, statement: Statement) -> str | None:
    """Return why *statement* does not reduce one index of a box to plain elements, or None."""
    if statement.kind is not Kind.UPDATE or statement.reduction is None or statement.is_atomic:
        return "it is no reduction"
    if statement.value is None or statement.companion is not None or statement.conditions:
        return "its terms depend on conditions, or are pairs"
    left = [s.name for s in statement.write.subscripts if isinstance(s, Index)]
    if sorted(left) != sorted(statement.left) or len(left) != len(statement.write.subscripts):
        return "its target's subscripts are not its left-hand indices"
    if len(statement.reduced) != 1:
        return "not one index is reduced"
    if any(not read.is_exact for read in statement.reads):
        return "it reads through a tensor"
    if any(read.array == statement.write.array for read in statement.reads):
        return "it reads its own target"
    bounds = [constant_bounds(statement.domain, dim) for dim in range(len(statement.indices))]
    if is_unbounded(scop.context) or None in bounds or not _is_box(scop, statement.domain):
        return "its instances are no box"
    return "rows are too long" if row_of(statement)[1] > MOST_VALUES else None


def _is_box(scop: Scop, domain: isl.Set) -> bool:
    """Return whether *domain* is a box, and the same along what is reduced at all open sizes."""
    *outer, last = (
        dim_bounds(domain, d, scop.context) for d in range(domain.dim(isl.dim_type.set))
    )
    box = isl.Set.universe(domain.get_space()).intersect_params(scop.context)
    for dim, (low, end) in enumerate((*outer, last)):
        box = within_bounds(box, dim, low, end)
    return all(isinstance(end, int) for end in last) and bool(domain.is_equal(box))


def _totals(scop: Scop, peak: Statement) -> Iterator[Total]:
    """Yield the sums of exponentials beside the maximum that *peak* finds."""
    uses = {peak.write.array: 1}  # how often the value of each array computed of it loads it
    for statement in scop.statements[scop.position(peak.name) + 1 :]:
        if statement.kind is not Kind.INIT and writes_to(statement, peak.write.array):
            return  # another maximum from here on
        own = 0 if statement.value is None else _uses(statement.value, uses)
        total = _total(scop, peak, statement) if own == 1 else None
        if _definition(scop, statement.write.array, peak) is statement:
            uses[statement.write.array] = own
        if total is not None and _why_not_moved(scop, peak, statement, total) is None:
            yield total


def _uses(value: Expr, uses: Mapping[str, int]) -> int:
    """Return how often *value* loads the largest, with all temporaries substituted.

    A sum of exponentials does so once.  In a chain of layers, each of which reads the one before it
    twice, it would be 2^n times, in an expression as long.
    """
    return sum(uses.get(load.tensor, 0) for load in loads_of(value))


def _total(scop: Scop, peak: Statement, statement: Statement) -> Total | None:
    """Return *statement* as a sum of exponentials beside *peak*, or None if it is none.

    Its value loads the largest once, directly or through temporaries.
    """
    if _why_not_row(scop, statement) is not None:
        return None
    reduction, value = statement.reduction, statement.value
    assert reduction is not None and value is not None and peak.value is not None
    if reduction.operator is not Operator.ADD or not reduction.dtype.is_float:
        return None
    largest = peak.write.array
    value, substituted = _substituted(scop, value, peak)
    found = _exponential(value, largest)
    if found is None or found[0].dtype != reduction.dtype:
        return None
    exponential, factor = found
    if factor + log2(MOST_VALUES) >= _reach(reduction.dtype):
        return None
    (exponent,) = exponential.args
    load = shift_of(exponent, largest)
    if load is None or not isinstance(exponent, Binary):
        return None
    names = _names(peak, statement, load)
    if names is None:
        return None
    value = _with_names(value, names)
    exponent = _with_names(exponent, names)
    assert isinstance(exponent, Binary)
    if unwidened(exponent.left) != unwidened(peak.value):
        return None
    subscripts = tuple(_with_names(s, names) for s in statement.write.subscripts)
    return Total(statement.name, value, subscripts, substituted)


def _substituted(scop: Scop, value: Expr, peak: Statement) -> tuple[Expr, tuple[str, ...]]:
    """Return *value* with the temporaries that are computed of the maximum substituted."""
    found: list[str] = []

    def at(node: Expr) -> Expr:
        if not isinstance(node, Load):
            return node
        definition = _definition(scop, node.tensor, peak)
        if definition is None:
            return node
        inner, names = _substituted(scop, _stored(scop, definition), peak)
        if all(load.tensor != peak.write.array for load in loads_of(inner)):
            return node
        found.extend((node.tensor, *names))
        return moved(inner, dict(zip(_plain(definition), node.subscripts, strict=True)))

    return rewrite(value, at), tuple(dict.fromkeys(found))


def _definition(scop: Scop, array: str, peak: Statement) -> Statement | None:
    """Return the statement after *peak* that alone makes the temporary *array*, or None."""
    if scop.arrays[array].storage is not Storage.SCRATCH:
        return None
    writers = [s for s in scop.users.get(array, ()) if writes_to(s, array)]
    if len(writers) != 1:
        return None
    (writer,) = writers
    is_plain = (
        writer.kind is Kind.ASSIGN
        and not writer.conditions
        and sorted(_plain(writer)) == sorted(writer.indices)
        and len(_plain(writer)) == scop.arrays[array].rank
        and all(read.is_exact for read in writer.reads)
        and scop.position(writer.name) > scop.position(peak.name)
    )
    return writer if is_plain else None


def _plain(statement: Statement) -> list[str]:
    """Return the indices that are the subscripts of what *statement* writes."""
    return [s.name for s in statement.write.subscripts if isinstance(s, Index)]


def _stored(scop: Scop, statement: Statement) -> Expr:
    """Return the value that *statement* stores, rounded as it is then."""
    assert statement.value is not None
    dtype = scop.arrays[statement.write.array].dtype
    value = statement.value
    return value if value.dtype == dtype else Cast(value, dtype, value.span)


def _exponential(value: Expr, largest: str) -> tuple[Call, float] | None:
    """Return the exponential of which *value* is a multiple, by what is free of *largest*.

    Also the logarithm, to base 2, of what the multiple is at most.
    """
    match value:
        case Call(function="exp" | "exp_nonpositive" | "exp_addend"):
            return value, 0.0
        case Binary(op="*", left=left, right=right):
            factor, rest = (left, right) if _is_free(left, largest) else (right, left)
            found = _exponential(rest, largest) if _is_free(factor, largest) else None
            return None if found is None else (found[0], found[1] + magnitude(factor))
        case Unary(op="-", operand=operand):
            return _exponential(operand, largest)
        case _:
            return None


def magnitude(expr: Expr) -> float:
    """Return the logarithm, to base 2, of what ``|expr|`` is at most, infinities and NaN aside."""
    match expr:
        case Const(value=value):
            return log2(abs(value)) if value and abs(value) < inf else 0.0
        case Cast(operand=operand, dtype=dtype):
            return min(magnitude(operand), _reach(dtype))
        case Unary(op="-", operand=operand):
            return magnitude(operand)
        case Binary(op="*", left=left, right=right):
            return min(magnitude(left) + magnitude(right), _reach(expr.dtype))
        case Binary(op="+" | "-", left=left, right=right):
            return min(max(magnitude(left), magnitude(right)) + 1, _reach(expr.dtype))
        case Select(if_true=if_true, if_false=if_false):
            return max(magnitude(if_true), magnitude(if_false))
        case Call(function="sigmoid" | "tanh" | "sin" | "cos" | "erf"):
            return 1.0
        case _:
            return _reach(expr.dtype)


def _reach(dtype: DType) -> float:
    """Return the logarithm, to base 2, of what values of *dtype* are less than in size."""
    if not dtype.is_float:
        return 8.0 * dtype.size_bytes
    return {FLOAT8_E4M3: 9.0, FLOAT8_E5M2: 16.0, FLOAT16: 16.0, FLOAT64: 1024.0}.get(dtype, 128.0)


def _is_free(expr: Expr, array: str) -> bool:
    return all(load.tensor != array for load in loads_of(expr))


def shift_of(exponent: Expr, largest: str) -> Load | None:
    """Return the load of *largest* in ``x - largest``, or None if *exponent* is not that."""
    if not isinstance(exponent, Binary) or exponent.op != "-":
        return None
    shift = unwidened(exponent.right)
    if not isinstance(shift, Load) or shift.tensor != largest:
        return None
    return shift if _is_free(exponent.left, largest) else None


def unwidened(expr: Expr) -> Expr:
    """Return *expr* without the conversions of floats to wider ones around it."""
    while isinstance(expr, Cast) and _is_widening(expr.operand.dtype, expr.dtype):
        expr = expr.operand
    return expr


def _is_widening(source: DType, dtype: DType) -> bool:
    both = source.is_float and dtype.is_float
    return both and (source == dtype or source.size_bytes < dtype.size_bytes)


def _names(peak: Statement, statement: Statement, load: Load) -> dict[str, str] | None:
    """Return the indices of *statement* -> those of *peak*, None if they do not correspond."""
    own = [s.name for s in load.subscripts if isinstance(s, Index)]
    if sorted(own) != sorted(statement.left) or len(own) != len(load.subscripts):
        return None
    names = dict(zip(own, _plain(peak), strict=True))
    names[statement.reduced[0]] = peak.reduced[0]

    def box(s: Statement) -> dict[str, tuple[int, int] | None]:
        return {index: constant_bounds(s.domain, d) for d, index in enumerate(s.indices)}

    is_same = {names[index]: ends for index, ends in box(statement).items()} == box(peak)
    return names if is_same else None


def _with_names(expr: Expr, names: Mapping[str, str]) -> Expr:
    return rewrite(
        expr, lambda node: replace(node, name=names[node.name]) if isinstance(node, Index) else node
    )


def _why_not_moved(scop: Scop, peak: Statement, statement: Statement, total: Total) -> str | None:
    """Return why the sum may not stand where *peak* does, or None."""
    loads = {(load.tensor, load.subscripts) for load in loads_of(total.value)}
    assert peak.value is not None
    of_peak = {(load.tensor, load.subscripts) for load in loads_of(peak.value)}
    sources = {tensor for tensor, _ in of_peak}
    if any(tensor in sources for tensor, _ in loads - of_peak):
        return "it reads other elements of what the exponentials are of"
    builder = builder_of(peak.indices, peak.name, scop.sizes)
    reads = guarded_reads(builder, peak.domain, (total.value,), scop.arrays)
    if not all(any(_is_same(own, read) for read in reads) for own in peak.reads):
        return "it reads what the exponentials are of under other conditions"
    read = {tensor for tensor, _ in loads} - {peak.write.array}
    if statement.write.array in read or statement.write.array == peak.write.array:
        return "it reads its own target"
    low, high = scop.position(peak.name), scop.position(statement.name)
    init = initialisation(scop, statement)
    for between in scop.statements[low + 1 : high]:
        if between is init:
            continue
        if any(write.array in read for write in between.writes):
            return f"{between.name} writes what it reads"
        touched = {a.array for a in (*between.writes, *between.reads)}
        if statement.write.array in touched:
            return f"{between.name} touches its target"
    return None


def _is_same(one: Access, other: Access) -> bool:
    is_same = one.array == other.array and one.subscripts == other.subscripts
    return is_same and bool(one.relation.is_equal(other.relation))


def writes_to(statement: Statement, array: str) -> bool:
    return any(write.array == array for write in statement.writes)
