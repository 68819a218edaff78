"""Rows of data that are longer than others by far, in a kernel of their own: blocks share them.

    S[r,e]:  y(r) += f(r,e)          ptr(r) <= e < ptr(r+1)

        --->   count(0) = 0
               collect[r]:  list(count(0)++) = r            if ptr(r+1) - ptr(r) > LONG
               S[r,e]:      y(r) += f(r,e)                  of the other rows
               long[s,c,e]: w(s,c) += f(list(s), e)         0 <= s < count(0), e in chunk c
               add[s,c]:    y(list(s)) += w(s,c)            atomically

Where a row has E / R entries on average, one with a thousand times as many would take a thousand
times as long as the others, on a few threads.  ``collect`` finds such rows in any order, and a grid
of fixed size goes over their chunks of e.

The checks of what S gathers are split in the same way.  Legal iff the operator may add partial sums
in any order and by atomics; S must not read its target, and nothing but left-hand indices may be
beside e.  The bounds must be read from arrays that nothing writes, and data alone say which e a row
has: a condition such as e > r would be one of list(s), which is not known.
"""

from dataclasses import replace
from typing import Any

import islpy as isl

from tcdsl.costmodel import gpu_thresholds
from tcdsl.lang.comprehension import (
    Binary,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Operator,
    Reduction,
    Select,
)
from tcdsl.lang.ranges.reads import index_names
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import BOOL, INT32, INT64
from tcdsl.poly.accesses import access, builder_of, guarded_reads
from tcdsl.poly.data_ranges import DataRange, data_ranges_of
from tcdsl.poly.isl_utils import constant_bounds, val, within
from tcdsl.poly.scop import Access, Array, Kind, Scop, Statement, Storage
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.assignment import with_own_reads
from tcdsl.rewrites.scop.rfactor import initialisation, why_not_rfactored

LONG = gpu_thresholds.RAGGED_LONG_ENTRIES
CHUNK = gpu_thresholds.RAGGED_CHUNK_ENTRIES
LEAST = gpu_thresholds.RAGGED_LEAST_ENTRIES

_OPERATORS = (Operator.ADD, Operator.MIN, Operator.MAX)


def why_not_split(scop: Scop, statement: Statement) -> str | None:
    """Return why the long rows of *statement* have no kernel of their own, or None."""
    if reason := why_not_rfactored(statement):
        return reason
    ranges = data_ranges_of(statement)
    if len(ranges) != 1 or len(statement.indices) != 2 or statement.n_left != 1:
        return "it is not about rows of one range"
    (found,) = ranges
    assert statement.reduction is not None
    if found.dim != 1 or len(found.lowers) != 1 or len(found.uppers) != 1:
        return "its range is not that of a row"
    if statement.reduction.operator not in _OPERATORS:
        return "no atomic combines its parts"
    if scop.arrays[statement.write.array].dtype != statement.reduction.dtype:
        return "its parts would be rounded"
    loads = [a for s in scop.statements for a in s.reads if a.array == statement.write.array]
    if loads:
        return "what reads its result may share its kernel"
    written = {write.array for s in scop.statements for write in s.writes}
    if any(read.array in written for read in statement.reads):
        return "what it reads is written by others"
    rows, entries = (constant_bounds(statement.domain, dim) for dim in (0, 1))
    if rows is None or entries is None:
        return "it never runs"
    some = statement.domain.eliminate(isl.dim_type.set, 1, 1)
    if not within(some, isl.dim_type.set, 1, *entries).is_equal(statement.domain):
        return "not data alone say which entries a row has"
    count = entries[1] - entries[0] + 1
    if count < LEAST or count // (rows[1] - rows[0] + 1) > LONG // 4:
        return "its rows are few entries, or long on average"
    return None


def with_long_rows(scop: Scop) -> Scop:
    """Return *scop* with the long rows of all statements that have such apart."""
    for statement in scop.statements:
        if statement.kind is Kind.UPDATE and why_not_split(scop, statement) is None:
            scop = _split(scop, statement)
    return scop


def _split(scop: Scop, statement: Statement) -> Scop:
    """Return *scop* with the long rows of *statement* apart."""
    rows = _Rows.of(scop, statement)
    scop = replace(scop, arrays={**scop.arrays, **rows.arrays})
    checks = [s for s in scop.statements if rows.is_checked_by(s)]
    init = initialisation(scop, statement)
    first = min(map(scop.position, [s.name for s in (init, statement) if s is not None]))
    short = {s.name: rows.short(scop, s) for s in (*checks, statement)}
    long_checks = [rows.long(scop, s) for s in checks]
    found: list[Statement] = []
    for position, old in enumerate(scop.statements):
        if position == first:
            found += [rows.count_init(scop), rows.collect(scop)]
        found.append(short.get(old.name, old))
        if old is statement:
            found += [*long_checks, rows.sum_init(scop), rows.long(scop, statement), rows.add(scop)]
    return scop.with_statements(tuple(found))


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of one statement, and the arrays that split them."""

    statement: Statement
    range: DataRange
    first: tuple[int, int]  # the least row and entry
    extents: tuple[int, int]  # how many rows and entries there are
    count: Array
    list: Array
    sums: Array

    @classmethod
    def of(cls, scop: Scop, statement: Statement) -> "_Rows":
        (found,) = data_ranges_of(statement)
        bounds = [constant_bounds(statement.domain, dim) or (0, -1) for dim in (0, 1)]
        rows, entries = (high - low + 1 for low, high in bounds)
        chunks = (entries - 1) // CHUNK + 1
        name, dtype = statement.name, scop.arrays[statement.write.array].dtype
        return cls(
            statement, found, (bounds[0][0], bounds[1][0]), (rows, entries),
            Array(f"{name}.count", INT32, (0,), (1,), Storage.SCRATCH),
            Array(f"{name}.list", INT64, (0,), (rows,), Storage.SCRATCH),
            Array(f"{name}.sums", dtype, (0, 0), (rows, chunks), Storage.SCRATCH),
        )  # fmt: skip

    @property
    def arrays(self) -> dict[str, Array]:
        return {array.name: array for array in (self.count, self.list, self.sums)}

    @property
    def row(self) -> str:
        return self.statement.indices[0]

    @property
    def entry(self) -> str:
        return self.statement.indices[1]

    def is_checked_by(self, check: Statement) -> bool:
        """Return whether *check* is of what the statement gathers at every entry."""
        is_own = check.kind is Kind.CHECK and check.source_name == self.statement.source_name
        domain = self.statement.domain.set_tuple_name(check.name)
        if not is_own or not check.domain.is_equal(domain):
            return False
        ranges = data_ranges_of(check)
        same = check.indices == self.statement.indices and len(ranges) == 1
        return same and ranges[0].key == self.range.key

    # --- of all rows -----------------------------------------------------------------------

    def is_long(self) -> Expr:
        """Return ``upper - lower > LONG``."""
        (lower,), (upper,) = self.range.lowers, self.range.uppers
        length = Binary("-", _wide(upper), _wide(lower), INT64)
        return Binary(">", length, Const(LONG, INT64), BOOL)

    def count_init(self, scop: Scop) -> Statement:
        """``count(0) = 0``."""
        name = f"{self.statement.name}_count_init"
        builder = builder_of(("k",), name, scop.sizes)
        domain = isl.Set.universe(builder.space).fix_val(isl.dim_type.set, 0, val(0))
        return Statement(
            name=name, domain=domain, indices=("k",), n_left=1, kind=Kind.INIT,
            write=access(builder, self.count.name, (Index("k"),), scop.arrays, domain), value=None,
            reads=(), reduction=Reduction(Operator.ADD, True, INT32), source_name=name,
            span=self.statement.span,
        )  # fmt: skip

    def collect(self, scop: Scop) -> Statement:
        """``list(count(0)++) = r`` for the long rows r."""
        name = f"{self.statement.name}_collect"
        builder = builder_of((self.row,), name, scop.sizes)
        domain = self.statement.domain.project_out(isl.dim_type.set, 1, 1).set_tuple_name(name)
        place = (Load(self.count.name, (Const(0, INT32),), INT32),)
        return Statement(
            name=name, domain=domain, indices=(self.row,), n_left=1, kind=Kind.UPDATE,
            write=access(builder, self.count.name, (Const(0, INT32),), scop.arrays, domain),
            companion=access(builder, self.list.name, place, scop.arrays, domain),
            value=Cast(Index(self.row), INT64),
            reads=guarded_reads(builder, domain, (self.is_long(),), scop.arrays),
            reduction=Reduction(Operator.ADD, False, INT32), conditions=(self.is_long(),),
            source_name=name, span=self.statement.span, is_atomic=True,
        )  # fmt: skip

    def short(self, scop: Scop, statement: Statement) -> Statement:
        """Return *statement*, or a check of it, for the other rows: long ones are empty."""
        (lower,), (upper,) = self.range.lowers, self.range.uppers
        of_upper = next(c for c in self.range.conditions if isinstance(c, Binary) and c.op == "<")
        assert isinstance(of_upper, Binary)
        end = Select(self.is_long(), _as(lower, upper), upper, upper.dtype)
        changed = replace(of_upper, right=end)
        conditions = tuple(changed if c == of_upper else c for c in statement.conditions)
        return _with(scop, statement, conditions=conditions)

    # --- of long rows ----------------------------------------------------------------------

    def _in_list(self, expr: Expr) -> Expr:
        """Return *expr* with the row ``list(s)`` in place of the index."""

        def change(node: Expr) -> Expr:
            if isinstance(node, Index) and node.name == self.row:
                return Cast(Load(self.list.name, (Index("s"),), INT64), node.dtype)
            return node

        return rewrite(expr, change)

    def _conditions(self) -> tuple[Expr, ...]:
        """Return which s and c there are."""
        (lower,), (upper,) = (
            map(self._in_list, self.range.lowers),
            map(self._in_list, self.range.uppers),
        )
        number = Load(self.count.name, (Const(0, INT32),), INT32)
        size, one, chunk = Const(CHUNK, INT64), Const(1, INT64), Cast(Index("c"), INT64)
        first = Binary("/", _less(_wide(lower), self.first[1]), size, INT64)
        last = Binary("/", _less(_wide(upper), self.first[1] + 1), size, INT64)
        return (
            Binary("<=", Const(0, INT32), Index("s"), BOOL),
            Binary("<", Index("s"), number, BOOL),
            Binary("<=", first, chunk, BOOL),
            Binary("<", chunk, Binary("+", last, one, INT64), BOOL),
        )

    def _domain(self, builder: Any) -> isl.Set:
        """Return the box of s and c, and the entries of chunk c."""
        domain = isl.Set.universe(builder.space)
        for dim, end in enumerate((self.extents[0], self.sums.shape[1])):
            assert isinstance(end, int)
            domain = domain.lower_bound_val(isl.dim_type.set, dim, val(0))
            domain = domain.upper_bound_val(isl.dim_type.set, dim, val(end - 1))
        if self.entry not in builder._indices:
            return domain
        low, entry, chunk = self.first[1], builder.index(self.entry), builder.index("c")
        start = chunk.scale_val(val(CHUNK)).add_constant_val(val(low))
        domain = domain.lower_bound_val(isl.dim_type.set, 2, val(low))
        domain = domain.upper_bound_val(isl.dim_type.set, 2, val(low + self.extents[1] - 1))
        inside = entry.ge_set(start).intersect(entry.lt_set(start.add_constant_val(val(CHUNK))))
        return domain.intersect(inside)

    def sum_init(self, scop: Scop) -> Statement:
        """``w(s,c) = identity``."""
        reduction = self.statement.reduction
        assert reduction is not None
        start, name = replace(reduction, initialise=True), f"{self.statement.name}_long"
        return self._made(
            scop, "sum_init", Kind.INIT, (self.sums.name, (Index("s"), Index("c"))),
            reduction=start, source_name=name,
        )  # fmt: skip

    def long(self, scop: Scop, statement: Statement) -> Statement:
        """``w(s,c) op= f(list(s), e)``, or what checks f there."""
        name, indices = f"{statement.name}_long", ("s", "c", self.entry)
        rest = [c for c in statement.conditions if c not in self.range.conditions]
        conditions = (*self._conditions(), *map(self._in_list, (*self.range.conditions, *rest)))
        builder = builder_of(indices, name, scop.sizes)
        domain = self._domain(builder)
        is_sum = statement is self.statement
        target = self.sums.name if is_sum else statement.write.array
        subscripts: tuple[Expr, ...] = (Index("s"), Index("c")) if is_sum else ()
        nothing = isl.Map.empty(domain.get_space().map_from_domain_and_range(domain.get_space()))
        new = replace(
            statement, name=name, domain=domain, indices=indices, n_left=2,
            write=access(builder, target, subscripts, scop.arrays, domain) if is_sum
            else Access(target, (), nothing),
            value=None if statement.value is None else self._in_list(statement.value),
            conditions=conditions,
            checked=tuple((dim, self._in_list(e)) for dim, e in statement.checked),
            # An element at list(s) is in no tensor of the program by that name.
            checked_loads=tuple(
                load if load is not None and self.row not in index_names(load) else None
                for load in statement.checked_loads
            ),
            source_name=name,
        )  # fmt: skip
        return with_own_reads(scop, new)

    def add(self, scop: Scop) -> Statement:
        """``y(list(s)) op= w(s,c)``."""
        statement = self.statement
        assert statement.reduction is not None
        place = tuple(map(self._in_list, statement.write.subscripts))
        value = Load(self.sums.name, (Index("s"), Index("c")), self.sums.dtype)
        return self._made(
            scop, "add", Kind.UPDATE, (statement.write.array, place), value=value,
            reduction=replace(statement.reduction, initialise=False), is_atomic=True,
            source_name=f"{statement.name}_add",
        )  # fmt: skip

    def _made(
        self, scop: Scop, what: str, kind: Kind, target: tuple[str, tuple[Expr, ...]], **others: Any
    ) -> Statement:
        """Return a statement of the chunks c of long rows s, that writes the array *target*."""
        name, indices = f"{self.statement.name}_{what}", ("s", "c")
        builder = builder_of(indices, name, scop.sizes)
        domain = self._domain(builder)
        made = Statement(
            name=name, domain=domain, indices=indices, n_left=len(indices), kind=kind,
            write=access(builder, *target, scop.arrays, domain), reads=(),
            conditions=self._conditions(), span=self.statement.span, **{"value": None, **others},
        )  # fmt: skip
        return with_own_reads(scop, made)


def _with(scop: Scop, statement: Statement, conditions: tuple[Expr, ...]) -> Statement:
    """Return *statement* under other conditions."""
    new = replace(statement, conditions=conditions)
    return with_own_reads(scop, new)


def _wide(expr: Expr) -> Expr:
    return expr if expr.dtype == INT64 else Cast(expr, INT64)


def _less(expr: Expr, number: int) -> Expr:
    return Binary("-", expr, Const(number, INT64), INT64) if number else expr


def _as(expr: Expr, like: Expr) -> Expr:
    return expr if expr.dtype == like.dtype else Cast(expr, like.dtype)
