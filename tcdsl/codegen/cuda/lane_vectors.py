"""The vectors of a loop over lanes, what is the same for all of its lanes, and shared loads.

    y[..] = c(j) ? -x[j + 64] : x[j - 64]         c(j) is the same for the lanes of a vector
                   |
                   v
    const bool w_active0 = c(8 * c1);
    tc_vec<..> w_vector0 = tc_vload<8>(w_active0 ? &x[8 * c1 + 64] : &x[8 * c1 - 64]);

A *condition* is shared iff indices alone decide it, and in each vector all lanes meet it or none
does.  It is computed once.  What is zero where the condition fails is zero in the vector's
registers: a choice for each of them, not for each lane, and for all that read the vector.

Loads of one array are *shared* iff none of the statement's instances makes two of them: the address
is chosen, and one load is on its way in place of several.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field

import islpy as isl

from tcdsl.codegen.ast.build import address, binary, both, call, chain, choice, paren, template
from tcdsl.codegen.ast.nodes import (
    Binary,
    Call,
    Code,
    Declare,
    Evaluate,
    Index,
    Node,
    Paren,
    Type,
    Variable,
)
from tcdsl.codegen.cuda.copies import is_whole
from tcdsl.lang.comprehension import Cast, Const, Expr, Load, Select, walk
from tcdsl.poly.accesses import builder_of
from tcdsl.poly.loop_tree import Loop
from tcdsl.poly.scop import Scop, Statement
from tcdsl.records import dataclass

_EXACT = {"tc_add_i32": "+", "tc_sub_i32": "-", "tc_mul_i32": "*"}  # where nothing wraps
Conditions = Mapping[Expr, Code]  # that were computed, and what they are called


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lanes of a vector that are there: from the first to the last of *ends*, or all.

    *conditions*: those that lanes share, by the statement.
    """

    ends: tuple[Code, ...] = ()
    conditions: Mapping[str, Conditions] = field(default_factory=dict)

    def function(self, name: str) -> str:
        """Return what *name* is called for them."""
        return f"{name}_some" if self.ends else name

    def guard(self, variable: str) -> Code | None:
        """Return the condition that lane *variable* is there."""
        if not self.ends:
            return None
        first, last = self.ends
        return both([binary(variable, ">=", first), binary(variable, "<=", last)])


@dataclass(slots=True)
class LaneVector:
    """Neighbours of *array* from *first* on, in registers called *name*."""

    array: str
    first: Index
    name: str
    type: Type
    width: int
    is_loaded: bool
    statement: str  # that first touches it
    is_stored: bool = False
    is_streamed: bool = False  # nothing reads it again
    is_changing: bool = False  # its load must not be merged with others
    guard: Code | None = None  # under which it is there, None if always
    there: isl.Set | None = None  # the instances that read it, where one statement's are known
    others: tuple[tuple[Code, Index], ...] = ()  # places before *first*, each under a condition
    is_zeroed: bool = False  # zero where the guard fails
    offset: int = 0  # of the first lane in the first of two vectors that it is loaded from

    @property
    def places(self) -> tuple[Index, ...]:
        """The elements from which on it may be."""
        return (self.first, *(place for _, place in self.others))

    def declaration(self, lanes: Lanes) -> Node:
        """Return its declaration, loaded with what is there of *lanes*."""
        value: Code | None = None
        if self.is_loaded:
            load = "tc_vload_if" if self.guard else lanes.function("tc_vload")
            load += "_once" if self.is_streamed else ""
            limits = lanes.ends if self.guard is None else (self.guard,)
            start = [self.first.array] if limits else []
            value = template(load, [self.width], self._address(), *start, *limits)
            if self.offset:
                value = template("tc_window", [self.width, self.offset], self._address())
            value = call("tc_changing", value) if self.is_changing else value
            if self.is_zeroed and self.guard is not None:
                value = call("tc_or_zero", value, self.guard)
        before = "" if self.is_stored else "const "
        return Declare(self.type, (Variable(self.name, value),), before, statement=self.statement)

    def _address(self) -> Code:
        found: Code = address(self.first)
        for condition, place in reversed(self.others):
            found = choice(condition, address(place), found)
        return found

    def store(self, lanes: Lanes) -> Node:
        """Return the store of what is there of *lanes*."""
        function = lanes.function("tc_vstore")
        return Evaluate(call(function, address(self.first), self.name, *lanes.ends), self.statement)


def any_of(guards: Sequence[Code | None]) -> Code | None:
    """Return that one of *guards* holds, None if one always does."""
    own = [guard for guard in guards if guard is not None]
    if not own or len(own) < len(guards):
        return None
    first, *others = dict.fromkeys(own)
    return chain("||", map(paren, (first, *others))) if others else first


def without_branches(condition: Code) -> Code:
    """Return *condition*, of indices alone, with all of it computed: ``a & b`` for ``a && b``.

    CUDA's compiler makes branches of the latter, with a copy for each of what follows: loads that
    iterations of an unrolled loop have in common are then several.
    """
    match condition:
        case Paren(inner=inner):
            return Paren(without_branches(inner))
        case Binary(op="&&", left=left, right=right):
            return binary(without_branches(left), "&", without_branches(right))
        case Binary(op=op, left=left, right=right):
            return binary(without_branches(left), op, without_branches(right))
        case Call(function=name, arguments=(left, right)) if name in _EXACT:
            return Paren(binary(without_branches(left), _EXACT[name], without_branches(right)))
        case _:
            return condition


def load_or_zero(select: Select) -> Load | None:
    """Return what *select* loads where its condition holds, if it is zero elsewhere.

    c ? float32(x[..]) : 0     x[..], with zeros in the registers that it is loaded to
    """
    value, other = select.if_true, select.if_false
    while isinstance(value, Cast):
        value = value.operand
    is_zero = isinstance(other, Const) and str(other.value) in ("0", "0.0", "False")
    return value if is_zero and isinstance(value, Load) else None


def shared_conditions(scop: Scop, statement: Statement, loop: Loop) -> Iterator[Expr]:
    """Yield the conditions of choices in *statement* that the lanes of *loop*'s vectors share."""
    lane = loop.coordinates.get(statement.name)
    if lane is None or lane.position < 0 or statement.value is None:
        return
    builder = builder_of(statement.indices, statement.name, scop.sizes)
    choices = (node for node in walk(statement.value) if isinstance(node, Select))
    for condition in dict.fromkeys(node.condition for node in choices):
        truth = builder.truth(condition)
        if truth.below.is_equal(truth.above) and is_whole(statement, truth.below, lane):
            yield condition


def with_shared_loads(scop: Scop, vectors: Sequence[LaneVector]) -> list[LaneVector]:
    """Return *vectors*, those of which no instance reads two as one."""
    found: list[LaneVector] = []
    for vector in vectors:
        partner = next((one for one in found if _may_share(one, vector)), None)
        if partner is None:
            found.append(vector)
            continue
        assert vector.guard is not None and partner.there is not None and vector.there is not None
        partner.others += ((vector.guard, vector.first),)
        partner.there = partner.there.union(vector.there)
        is_everywhere = scop.by_name[vector.statement].domain.is_subset(partner.there)
        partner.guard = None if is_everywhere else any_of([partner.guard, vector.guard])
    return found


def _may_share(one: LaneVector, other: LaneVector) -> bool:
    """Return whether *one* and *other* are of one array, and no instance reads both."""
    if (one.array, one.statement) != (other.array, other.statement):
        return False
    if one.is_stored or other.is_stored or None in (one.guard, other.guard):
        return False
    if one.there is None or other.there is None:
        return False
    return bool(one.there.is_disjoint(other.there))
