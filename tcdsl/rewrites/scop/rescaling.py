"""Rescaling: sums of exponentials beside the largest value so far, so that rows are read once.

    S: m(i) max=! x(i,j)                       q(i,c)  max=! x(i,j)
    T: s(i)  +=! f(i,j) exp(x(i,j) - m(i))     p(i,c)   +=! f(i,j) exp(x(i,j) - a(q(i,c)))
                                         --->  mc(i,c)    = q(i,c)
    chunk c: the j with (j - low) / L = c      m(i)   max=! mc(i,c)
                                               s(i)    +=! p(i,c) exp(mc(i,c) - m(i))

with a(q) = 0 where q = -inf, else q.  For exp(x - q) exp(q - m) = exp(x - m).  Nothing of a chunk
depends on another one: a block that holds a chunk in registers reads x once, where T as written
waits for all of the row.  (q is what a block's threads keep, mc what other blocks see of it.)

f is small by its type, so that no p overflows that the program's own sum would not be.

Special values are those of the program.  A NaN in a row is one in its q, p, m and s.  With +inf in
a chunk p is NaN, as inf - inf is.  A chunk of -inf in an ordinary row has terms f exp(-inf - 0) = 0
(NaN for an infinite f, as in the program), and exp(q - m) = 0 leaves them so.  In a row of -inf
alone m is -inf too, and every exp(q - m) is NaN, as the program's terms are.

Error: a term's exponent is rounded twice, by u |x - q| + u |q - m| = u |x - m| at most, which the
program's own rounding may miss by being exact; a second exponential and a product come on top, and
the sums of L and of C numbers take L + C - 2 additions for the n - 1 of the row, relative to the
same sum of the terms' sizes.  The bound that is derived for the program (interp/error_bounds)
covers it if ``n - L - C`` is at least ``room_of`` the type: what a second exponential may be wrong
by, and the largest exponent whose exponential is not 0.

Legal iff S and T have the same box of left-hand indices and one reduced one, x is the same
expression in both (temporaries that depend on m substituted), m is no narrower than x, f and x do
not depend on m, and nothing between S and T writes what they read, or touches s.

After Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018, arXiv:1805.02867.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import islpy as isl

from tcdsl.lang.comprehension import (
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    Index,
    Load,
    Select,
)
from tcdsl.lang.rewrite import plus as plus_expr
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import BOOL, FLOAT64, INT32, DType
from tcdsl.poly.accesses import access, builder_of, guarded_reads
from tcdsl.poly.isl_utils import constant_bounds, within
from tcdsl.poly.scop import Array, Kind, Rescaled, Scop, Statement, Storage, Terms
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.exponential_sums import (
    ADDEND,
    MOST_ADDENDS,
    NONPOSITIVE,
    ExponentialSums,
    row_of,
    writes_to,
)
from tcdsl.rewrites.scop.recomputation import moved
from tcdsl.rewrites.scop.rfactor import initialisation

# Roundings, each by u: 8 units in the last place are 16, a product, and what is of order u^2.
_SECOND_EXPONENTIAL = 24
_LARGEST_EXPONENT = 104  # exp(-104) is 0 in float32, ...
_LARGEST_EXPONENT_64 = 746  # ... and exp(-746) in float64


@dataclass(frozen=True, slots=True)
class Chunked:
    """A scop after the rewrite, and its new statements."""

    scop: Scop
    members: tuple[str, ...]  # what a block does with a chunk
    wholes: tuple[str, ...]  # what is then done with all of a row
    index: str  # the chunk's number


def room_of(dtype: DType) -> int:
    """Return by how many roundings a rescaled term may be further from the exact one."""
    return _SECOND_EXPONENTIAL + (_LARGEST_EXPONENT_64 if dtype == FLOAT64 else _LARGEST_EXPONENT)


def why_not_in_chunks(scop: Scop, sums: ExponentialSums, length: int) -> str | None:
    """Return why *sums* may not be rewritten with chunks of *length* values, or None."""
    _, n = row_of(scop.by_name[sums.peak])
    count = -(-n // length)
    if count < 2:
        return "a row is one chunk"
    for total in sums.totals:
        reduction = scop.by_name[total.name].reduction
        assert reduction is not None
        if n - length - count < room_of(reduction.dtype):
            return f"{n} terms leave no room for a second rounding of each"
    return None


def rescaled(scop: Scop, sums: ExponentialSums, length: int) -> Chunked:
    """Cut the rows of *sums* into chunks of *length* values.

    The statements keep their names; what was between them comes after the whole sums.
    """
    reason = why_not_in_chunks(scop, sums, length)
    assert reason is None, reason
    return _Rewriter(scop, sums, length).chunked()


class _Rewriter:
    """Builds the statements of one rewrite; see the module's docstring for their names."""

    def __init__(self, scop: Scop, sums: ExponentialSums, length: int) -> None:
        self.sums = sums
        self.length = length
        self.peak = scop.by_name[sums.peak]
        low, n = row_of(self.peak)
        self.count = -(-n // length)
        self.given = frozenset(scop.arrays)
        taken = {index for s in scop.statements for index in s.indices}
        self.left = self.peak.left
        self.chunk = _fresh(f"{self.peak.reduced[0]}_chunk", taken)
        self.inner = _fresh(f"{self.peak.reduced[0]}_in", taken)
        column = plus_expr(
            Binary("*", Index(self.chunk), Const(length, INT32), INT32), Index(self.inner)
        )
        self.moves: dict[str, Expr] = {name: Index(name) for name in self.left}
        self.moves[self.peak.reduced[0]] = plus_expr(column, Const(low, INT32))
        bounds = [constant_bounds(self.peak.domain, dim) for dim in range(len(self.left))]
        self.bounds = {name: ends for name, ends in zip(self.left, bounds, strict=True) if ends}
        self.bounds[self.chunk] = (0, self.count - 1)
        self.bounds[self.inner] = (0, length - 1)
        self.row = (low, n)
        self.length = length
        self.scop = scop

    def chunked(self) -> Chunked:
        largest = self.peak.write.array
        assert self.peak.reduction is not None and self.peak.value is not None
        self.of_chunk = self._array(largest, "top", self.peak.reduction.dtype)
        self.published = self._array(largest, "tops", self.peak.reduction.dtype)
        before = [*self._in_chunk(self.peak, self.of_chunk, self._moved(self.peak.value))]
        after = [*self._whole(self.peak, self.peak.write.subscripts, self._at(self.published))]
        records = []
        for total in self.sums.totals:
            statement = self.scop.by_name[total.name]
            assert statement.reduction is not None
            partial = self._array(statement.write.array, "chunks", statement.reduction.dtype)
            value = self._moved(total.value)
            if self.length <= MOST_ADDENDS:
                value = _as_addend(value)
            before += self._in_chunk(statement, partial, self._beside(value))
            after += self._whole(statement, total.subscripts, self._weighed(partial))
            records.append(self._record(statement, total.subscripts, partial))
        publish = self._statement(
            replace(self.peak, name=f"{self.peak.name}_top", indices=(*self.left, self.chunk),
                    kind=Kind.ASSIGN, value=self._at(self.of_chunk), reduction=None),
            self.published,
        )  # fmt: skip
        return Chunked(
            self._arranged([*before, publish], after, records),
            (*self.sums.members, publish.name),
            tuple(f"{name}_whole" for name in self.sums.members),
            self.chunk,
        )

    def _arranged(
        self, before: list[Statement], after: list[Statement], records: list[Rescaled]
    ) -> Scop:
        """Return the scop: all new statements where the maximum was, no idle temporaries."""
        old = [self.scop.by_name[name] for name in self.sums.members]
        inits = [initialisation(self.scop, statement) for statement in old]
        gone = {s.name for s in (*old, *inits) if s is not None}
        statements: list[Statement] = []
        for statement in self.scop.statements:
            if statement is self.peak:
                statements += [*before, *after]
            elif statement.name not in gone:
                statements.append(statement)
        names = [name for total in self.sums.totals for name in total.substituted]
        done = replace(
            self.scop, statements=tuple(statements), rescaled=(*self.scop.rescaled, *records)
        )
        return _without_idle(done, names)

    def _array(self, beside: str, what: str, dtype: DType) -> Array:
        """Declare an array of one element a row and chunk."""
        bounds = [self.bounds[name] for name in (*self.left, self.chunk)]
        array = Array(
            f"{beside}.{what}{len(self.scop.arrays)}", dtype, tuple(low for low, _ in bounds),
            tuple(high + 1 - low for low, high in bounds), Storage.SCRATCH,
        )  # fmt: skip
        self.scop = replace(self.scop, arrays={**self.scop.arrays, array.name: array})
        return array

    def _at(self, array: Array) -> Load:
        """Return the element of *array* of this row and chunk."""
        indices = (*self.left, self.chunk)
        return Load(array.name, tuple(map(Index, indices)), array.dtype)

    def _moved(self, value: Expr) -> Expr:
        return moved(value, self.moves)

    def _beside(self, value: Expr) -> Expr:
        """Return *value* with the chunk's largest value for the row's: 0 where that is -inf."""
        top = self._at(self.of_chunk)
        shift = Select(_is_lowest(top), Const(0.0, top.dtype), top, top.dtype)

        def at(node: Expr) -> Expr:
            if isinstance(node, Load) and node.tensor == self.peak.write.array:
                return shift
            if isinstance(node, Cast) and node.operand is shift:  # which may be wide already
                return _converted(shift, node.dtype)
            return node

        return rewrite(value, at)

    def _weighed(self, partial: Array) -> Expr:
        """Return p exp(q - m)."""
        dtype, write = partial.dtype, self.peak.write
        stored = self.scop.arrays[write.array].dtype
        top = _converted(self._at(self.published), dtype)
        whole = _converted(Load(write.array, write.subscripts, stored), dtype)
        scale = Call("exp", (Binary("-", top, whole, dtype),), dtype)
        return Binary("*", self._at(partial), scale, dtype)

    def _in_chunk(self, statement: Statement, target: Array, value: Expr) -> list[Statement]:
        """Return the reduction of a chunk to its element of *target*."""
        outer = (*self.left, self.chunk)
        init = replace(
            statement,
            name=f"{statement.name}_chunk_init",
            indices=outer,
            kind=Kind.INIT,
            value=None,
        )
        update = replace(statement, indices=(*outer, self.inner), value=value)
        return [self._statement(init, target), self._statement(update, target)]

    def _whole(
        self, statement: Statement, subscripts: tuple[Expr, ...], value: Expr
    ) -> list[Statement]:
        """Return the reduction of the chunks' *value* to the program's own target."""
        update = self._statement(
            replace(statement, name=f"{statement.name}_whole", value=value,
                    indices=(*self.left, self.chunk)),
            self.scop.arrays[statement.write.array], subscripts,
        )  # fmt: skip
        init = initialisation(self.scop, statement)
        return [update] if init is None else [init, update]

    def _statement(
        self, draft: Statement, target: Array, subscripts: tuple[Expr, ...] | None = None
    ) -> Statement:
        """Return *draft*, which has its name, indices, kind and value, over its domain."""
        name, indices, kind, value = draft.name, draft.indices, draft.kind, draft.value
        builder = builder_of(indices, name, self.scop.sizes)
        domain = isl.Set.universe(builder.space).intersect_params(self.scop.context)
        for dim, index in enumerate(indices):
            domain = within(domain, isl.dim_type.set, dim, *self.bounds[index])
        if self.inner in indices:
            low, n = self.row
            column = builder.affine(self.moves[self.peak.reduced[0]])
            assert column is not None
            domain = domain.intersect(column.add_constant_val(-(low + n)).neg().pos_set())
        if subscripts is None:
            subscripts = tuple(map(Index, (*self.left, self.chunk)))
        exprs = (*subscripts, value) if value is not None else subscripts
        return Statement(
            name=name,
            domain=domain,
            indices=indices,
            n_left=len(indices) - (kind is Kind.UPDATE),
            kind=kind,
            write=access(builder, target.name, subscripts, self.scop.arrays, domain),
            value=value,
            reads=guarded_reads(builder, domain, exprs, self.scop.arrays),
            reduction=draft.reduction,
            source_name=draft.source_name,
            span=draft.span,
        )

    def _record(
        self, statement: Statement, subscripts: tuple[Expr, ...], partial: Array
    ) -> Rescaled:
        """Return what is to be checked of the sum whose chunks' sums are in *partial*."""
        builder = builder_of(self.peak.indices, self.peak.name, self.scop.sizes)
        target, domain = statement.write.array, self.peak.domain
        rows = access(builder, target, subscripts, self.scop.arrays, domain).relation
        largest = self.peak.write.relation
        terms = tuple(
            Terms(
                rows.reverse().apply_range(read), largest.reverse().apply_range(read),
                bool(rows.range_product(read).is_injective()),
            )
            for read in self._reads()
        )  # fmt: skip
        return Rescaled(
            self.peak.write.array, self.of_chunk.name, self.published.name, target, partial.name,
            terms, self.given,
        )  # fmt: skip

    def _reads(self) -> list[isl.Map]:
        """Return { S[i,j] -> x[e] } for each array that the maximum is of."""
        reads: dict[str, isl.Map] = {}
        for read in self.peak.reads:
            known = reads.get(read.array)
            reads[read.array] = read.relation if known is None else known.union(read.relation)
        return list(reads.values())


def _fresh(name: str, taken: set[str]) -> str:
    """Return *name*, with a number if it is *taken*."""
    candidates = (name, *(f"{name}{n}" for n in range(len(taken))))
    return next(candidate for candidate in candidates if candidate not in taken)


def _as_addend(value: Expr) -> Expr:
    """Return the term *value* of the sum of a chunk, which is short and has the term 1."""
    if isinstance(value, Call) and value.function == NONPOSITIVE:
        return replace(value, function=ADDEND)
    return value


def _is_lowest(value: Expr) -> Expr:
    return Binary("==", value, Const(-inf, value.dtype), BOOL)


def _converted(value: Expr, dtype: DType) -> Expr:
    return value if value.dtype == dtype else Cast(value, dtype)


def _without_idle(scop: Scop, names: Sequence[str]) -> Scop:
    """Return *scop* without those of the temporaries *names* that nobody reads any more."""
    for name in names:  # users come before what they use
        if any(read.array == name for s in scop.statements for read in s.reads):
            continue
        statements = tuple(s for s in scop.statements if not writes_to(s, name))
        arrays = {array: a for array, a in scop.arrays.items() if array != name}
        scop = replace(scop, arrays=arrays, statements=statements)
    return scop
