"""Shifted exponentials: of what a maximum was subtracted from, for fewer instructions.

    m(i) max=! x(i,j)                              m(i) max=! x(i,j)
    e(i,j) = exp(x(i,j) - m(i))             --->   e(i,j) = exp_nonpositive(x(i,j) - m(i))
    s(i)  +=! e(i,j)                               s(i)  +=! e(i,j)
    y(i,j) = e(i,j) / s(i)                         y(i,j) = e(i,j) * (1 / s(i))

x - m is never above 0, as the maximum is of x itself, whatever is rounded: it is 0, less, -inf or
NaN.  An exponential that may count on it takes five instructions instead of eight
(codegen/device/cuda/math_f32.cuh).

s is between 1 and the number of its terms, or NaN: each of them is at most 1, and where x is the
largest it is exp(0) = 1.  So 1 / s is no subnormal number, and the product neither overflows nor
loses digits where the quotient does not.  What is the same for all of a row is then computed once
a row (invariants.py): one instruction is left of a quotient's six.  And where the term of such a
sum is the exponential itself, which nobody else reads, two instructions do (exp_addend).

Error, relative, in units of u (half a unit in the last place of 1): the exponential is off by 14.2,
of the 16 that are allowed it (interp/error_bounds), and s by as much but for its additions; the
reciprocal is off by 3, the product by 1.  14.2 + 14.2 + 3 + 1 is less than 16 + 16 + 1, what is
allowed the quotient.

An addend exp(-d) is off by 4 + 1.22 d, so that s, of n others beside the 1, is off by 4 and 1.22
times the mean of all d, weighted by their exponentials.  That mean is largest where the n are the
same, with d - 1 = n exp(-d), and then is d - 1 = W(n / e), Lambert's function: 8.6 for
MOST_ADDENDS terms, whose sum is off by 14.6, and 14.2 + 14.6 + 3 + 1 is less than 33.  Longer sums
keep the better exponential.  Chunks of them (rescaling.py) do not: each is a sum with a term 1,
and what the exponential that rescales it is off by is left room for there (``room_of``).

Legal iff nothing but the maximum, before the exponential, writes m; m is no narrower than x; x is
the same expression in both, which nothing writes after the maximum; and each instance of the
exponential's statement is one of the maximum's.  For the product also: m starts from nothing, e is
no narrower than float32, and s adds e alone, over all that the maximum is of.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import inf

import islpy as isl

from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Const,
    Expr,
    Index,
    Load,
    Operator,
    indices_in,
    walk,
)
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import FLOAT32
from tcdsl.poly.isl_utils import is_unbounded, points_of_box
from tcdsl.poly.scop import Kind, Scop, Statement, Storage, loads_of
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.exponential_sums import (
    ADDEND,
    MOST_ADDENDS,
    NONPOSITIVE,
    shift_of,
    unwidened,
    writes_to,
)
from tcdsl.rewrites.scop.recomputation import moved
from tcdsl.rewrites.scop.rfactor import initialisation


def with_shifted_exponentials(scop: Scop) -> Scop:
    """Return *scop* with its shifted exponentials, and quotients of them by their sums."""
    if is_unbounded(scop.context):
        return scop
    known = _Maxima(scop)
    statements = tuple(_rewritten(s, partial(known.exponential, s)) for s in scop.statements)
    if all(new is old for new, old in zip(statements, scop.statements, strict=True)):
        return scop
    scop = scop.with_statements(statements)
    known = _Maxima(scop)
    return with_addends(
        scop.with_statements(tuple(_rewritten(s, known.product) for s in scop.statements))
    )


def with_addends(scop: Scop) -> Scop:
    """Return *scop* with terms that are said to be such, where sums are of shifted exponentials."""
    known = _Maxima(scop)
    statements = tuple(map(known.addends, scop.statements))
    if all(new is old for new, old in zip(statements, scop.statements, strict=True)):
        return scop
    return scop.with_statements(statements)


def _rewritten(statement: Statement, change: Callable[[Expr], Expr]) -> Statement:
    if statement.value is None:
        return statement
    value = rewrite(statement.value, change)
    return statement if value is statement.value else replace(statement, value=value)


@dataclass(frozen=True, slots=True)
class _Shift:
    """The maximum that an exponential is shifted by, in the exponential's own indices."""

    peak: Statement
    names: Mapping[str, str]  # the maximum's indices -> the exponential's


class _Maxima:
    """The maxima of a scop that may be subtracted, and what is made of them."""

    def __init__(self, scop: Scop) -> None:
        self._scop = scop
        self._peaks = {s.write.array: s for s in scop.statements if self._is_peak(s)}

    def exponential(self, statement: Statement, node: Expr) -> Expr:
        """Return *node* of *statement*, by its name if it is a shifted exponential."""
        if not isinstance(node, Call) or node.function != "exp" or node.dtype != FLOAT32:
            return node
        is_shifted = self._shift(statement, node) is not None
        return replace(node, function=NONPOSITIVE) if is_shifted else node

    def product(self, node: Expr) -> Expr:
        """Return *node*, as a product if it is a shifted exponential over a sum of such."""
        if not isinstance(node, Binary) or node.op != "/" or node.dtype != FLOAT32:
            return node
        if self._value_of(node.left) is None or not self._is_from_1(node.right):
            return node
        one = Const(1.0, FLOAT32)
        return replace(node, op="*", right=Binary("/", one, node.right, FLOAT32, node.span))

    def addends(self, statement: Statement) -> Statement:
        """Return *statement*, with terms that are said to be such if it sums a row of few."""
        value = statement.value
        if not isinstance(value, Call) or value.function != NONPOSITIVE:
            return statement
        if statement.kind is not Kind.UPDATE or not self._is_sum_from_1(statement):
            return statement
        if _terms(statement) > MOST_ADDENDS:
            return statement
        return replace(statement, value=replace(value, function=ADDEND))

    def _is_peak(self, statement: Statement) -> bool:
        """Return whether *statement* is a maximum that nothing changes, of what nothing changes."""
        reduction, value = statement.reduction, statement.value
        if statement.kind is not Kind.UPDATE or reduction is None or value is None:
            return False
        if reduction.operator is not Operator.MAX or not reduction.dtype.is_float:
            return False
        if statement.companion is not None or statement.conditions:
            return False
        target = self._scop.arrays[statement.write.array].dtype
        if target not in (reduction.dtype, unwidened(value).dtype):
            return False
        if any(not isinstance(s, Index) for s in statement.write.subscripts):
            return False
        later = self._scop.statements[self._scop.position(statement.name) :]
        sources = {load.tensor for load in loads_of(value)}
        if any(writes_to(s, source) for s in later for source in sources):
            return False
        init = initialisation(self._scop, statement)
        own = {statement.name} if init is None else {statement.name, init.name}
        return self._writers(statement.write.array) <= own

    def _writers(self, array: str) -> set[str]:
        return {s.name for s in self._scop.statements if writes_to(s, array)}

    def _shift(self, statement: Statement, call: Call) -> _Shift | None:
        """Return what *call*, ``exp(x - m)`` in *statement*, is shifted by, or None."""
        (exponent,) = call.args
        for array, peak in self._peaks.items():
            load = shift_of(exponent, array)
            if load is None or not isinstance(exponent, Binary):
                continue
            if self._scop.position(statement.name) <= self._scop.position(peak.name):
                continue
            assert peak.value is not None
            own, of_peak = unwidened(exponent.left), unwidened(peak.value)
            names = _renaming((of_peak, *peak.write.subscripts), (own, *load.subscripts))
            if names is None or set(names) != set(peak.indices):
                continue
            if not set(names.values()) <= set(statement.indices):
                continue  # the index of a loop within the expression
            if _instances(statement, peak, names).is_subset(peak.domain):
                return _Shift(peak, names)
        return None

    def _value_of(self, expr: Expr) -> tuple[Statement | None, Call] | None:
        """Return the shifted exponential that *expr* is, and who stored it for *expr* to load."""
        if isinstance(expr, Call):
            return (None, expr) if expr.function == NONPOSITIVE else None
        if not isinstance(expr, Load):
            return None
        array = self._scop.arrays[expr.tensor]
        writers = self._writers(expr.tensor)
        if array.storage is not Storage.SCRATCH or array.dtype != FLOAT32 or len(writers) != 1:
            return None
        writer = self._scop.by_name[writers.pop()]
        value = writer.value
        if writer.kind is not Kind.ASSIGN or not isinstance(value, Call):
            return None
        return (writer, value) if value.function == NONPOSITIVE else None

    def _is_from_1(self, expr: Expr) -> bool:
        """Return whether *expr* is the sum of all exponentials of a row, so not below 1."""
        if not isinstance(expr, Load):
            return False
        writers = [self._scop.by_name[name] for name in self._writers(expr.tensor)]
        sums = [s for s in writers if s.kind is Kind.UPDATE]
        if len(sums) != 1 or self._scop.arrays[expr.tensor].dtype != FLOAT32:
            return False
        return self._is_sum_from_1(sums[0])

    def _is_sum_from_1(self, total: Statement) -> bool:
        """Return whether *total* makes the sums of all exponentials of rows."""
        reduction = total.reduction
        if reduction is None or (reduction.operator, reduction.dtype) != (Operator.ADD, FLOAT32):
            return False
        init = initialisation(self._scop, total)
        if init is None or self._writers(total.write.array) != {total.name, init.name}:
            return False
        if total.conditions or total.companion is not None or total.value is None:
            return False
        return self._adds_whole_rows(total)

    def _adds_whole_rows(self, total: Statement) -> bool:
        """Return whether *total* adds exponentials of all that their maximum is of."""
        assert total.value is not None
        found = self._value_of(total.value)
        if found is None:
            return False
        writer, call = found
        names: Mapping[str, str] = {name: name for name in total.indices}
        if writer is not None:  # its indices -> those of the sum
            assert isinstance(total.value, Load)
            renaming = _renaming(writer.write.subscripts, total.value.subscripts)
            if renaming is None or set(renaming) != set(writer.indices):
                return False
            names = renaming
        shift = self._shift(writer or total, call)
        if shift is None or initialisation(self._scop, shift.peak) is None:
            return False
        of_peak = {own: names[name] for own, name in shift.names.items()}
        if {of_peak[name] for name in shift.peak.left} != set(total.left):
            return False
        return bool(_instances(total, shift.peak, of_peak).is_equal(shift.peak.domain))


def _terms(total: Statement) -> float:
    """Return how many terms a sum of *total* has at most."""
    terms = points_of_box(total.domain.project_out(isl.dim_type.set, 0, total.n_left))
    return inf if terms is None else terms


def _renaming(given: tuple[Expr, ...], wanted: tuple[Expr, ...]) -> dict[str, str] | None:
    """Return { index of *given* -> index of *wanted* } that makes them the same, or None."""
    if len(given) != len(wanted):
        return None
    names: dict[str, Expr] = {}
    for old, new in zip(given, wanted, strict=True):
        for node, other in zip(walk(old), walk(new), strict=False):
            if isinstance(node, Index) and names.setdefault(node.name, other) != other:
                return None
    needed = indices_in(*given)
    if set(names) != needed or not all(isinstance(other, Index) for other in names.values()):
        return None  # they differ in more than names
    if any(moved(old, names) != new for old, new in zip(given, wanted, strict=True)):
        return None
    return {name: other.name for name, other in names.items() if isinstance(other, Index)}


def _instances(statement: Statement, peak: Statement, names: Mapping[str, str]) -> isl.Set:
    """Return the instances of *peak* that *statement*'s are, with its indices called *names*."""
    space = isl.Space.map_from_domain_and_range(
        statement.domain.get_space(), peak.domain.get_space()
    )
    same = isl.Map.universe(space)
    for dim, index in enumerate(peak.indices):
        own = statement.indices.index(names[index])
        same = same.equate(isl.dim_type.in_, own, isl.dim_type.out, dim)
    return statement.domain.apply(same)
