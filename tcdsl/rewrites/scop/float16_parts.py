"""Products of float32 as products of float16, of parts of the factors: three times as many terms.

    C(m,n) +=! A(m,k) * B(k,n)                                     k in 0:K
        --->
    peak(m) = max |A(m,k)|,  unit(m) = 2^(e - 14),  e = floor(log2 peak(m)),  scale(m) = 1 / unit(m)
    X(m, k)       = high part of scale(m) A(m,k)                   B alike, with a scale of each n:
    X(m, K + k)   = low part                                       Y has low, high, high
    X(m, 2 K + k) = high part
    T(m,n) +=! X(m,j) * Y(j,n)                                     j in 0:3K, of float16 in float32
    C(m,n)  = T(m,n) * unit(m) * unit'(n)                          in float64, rounded once

Of a scaled factor x the high part is xh = float16(x), the low part xl = float16(x - xh), whose
difference is exact (but for factors below 2^-24).  What both low parts give is left out::

    x y = xh yl + xl yh + xh yh + r

Everything made here is an ordinary statement: parts and scales are written by kernels of rows or
columns, the product is one of float16 with a longer sum, the last statement is its epilogue.  A
scale belongs to those indices of a factor that the sum keeps, alone in a subscript (rows of A,
columns of B, batches); others share one.

**Scales.**  Powers of two, exact in float32: with p = peak (1 + 2^-25), which has 49 bits and is no
power of two, (2^53 p + p) - 2^53 p = 2^(e+1) in float64, since p is between half a unit in the last
place of 2^53 p and a whole one.  The largest factor is scaled to [2^14, 2^15), so that no high part
overflows.  Of factors below 2^-112 the scale stays 2^126, and so has an inverse.  Infinities and
NaN do not count; where all factors are 0 the scale is 2^126, and all parts are 0.

**Errors.**  A float16 rounds to 11 bits, and to multiples of 2^-24 below 2^-14.  So, with P the
largest factor of those that share its scale (at least 2^-112), and f = 2^-39 P >= 2^-25 unit::

    x = xh + xl + d,   |d| <= 2^-22 |x| + f,   |xl| <= 2^-11 |x| + 2 f
    |r| <= 3.01 2^-22 |x y| + 1.01 (f_x |y| + f_y |x|) + 5 f_x f_y

that is, 12 units of roundoff u = 2^-24 of float32 of each product, and 2^-39 of the largest factor
for small ones: a factor keeps its 22 bits down to 2^-17 of the largest.

The sum of n = 3K products of parts, which are exact, adds gamma_n of the sum of sizes in any order.
Tensor cores align the 16 products of an instruction, and what these are added to, to the largest,
and truncate: at most 2^-23 of it is lost by each, which is biased, and grows with the sum.  So the
sum of a step of 64 terms is kept by itself, off by at most 4 17 2^-23 = 136 u of its sizes, and
added to others by ordinary additions (the statement is *promoted*): for s steps (136 + s) u in all,
which is less than gamma_n from n - s = 136 on.  Shorter sums are left as they are.  Low parts are
first, so that they are added to what is small.

**Infinities and NaN** are where they would be in plain float32.  They stay in the high part that
meets high parts, and are 0 in the other two; and no factor but 0 has the high part 0: one below
2^-24 gets it, with a low part of the other sign.  So infinity times a factor is an infinity of the
right sign, or NaN where the factor is 0.  Products and sums that leave float32's range on the way
do not here.

Legal iff the sum is over a box, its number of terms is known, they are products of two elements
(guards around them stay) that nothing writes between the parts' place, before the statement, and
the product; and one reduced index is a subscript of its own in both.

Scaled parts: H. Ootomo, R. Yokota, Recovering single precision accuracy from Tensor Cores while
surpassing the FP32 theoretical peak performance, IJHPCA 36(4), 2022,
doi:10.1177/10943420221090256; parts without scales: S. Markidis et al., NVIDIA Tensor Core
programmability, performance & precision, IPDPSW 2018, doi:10.1109/IPDPSW.2018.00091.  Powers of two
by additions: S. M. Rump, T. Ogita, S. Oishi, Accurate floating-point summation part I, SIAM J. Sci.
Comput. 31(1), 2008, doi:10.1137/050645671.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

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
    Reduction,
    Select,
    walk,
)
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import BOOL, FLOAT16, FLOAT32, FLOAT64, INT32, DType
from tcdsl.poly.accesses import Bounds, access, box, builder_of, guarded_reads
from tcdsl.poly.isl_utils import Extent, dim_bounds, minus
from tcdsl.poly.scop import Accumulation, Array, Kind, Scop, Statement, Storage
from tcdsl.records import dataclass
from tcdsl.rewrites.scop.packing import Factor, factor_of
from tcdsl.rewrites.scop.repacking import wide_strides
from tcdsl.rewrites.scop.rfactor import initialisation, why_not_rfactored
from tcdsl.source import Span

LARGEST = float.fromhex("0x1.fffffep127")  # of float32
LEAST_HIGH = 2.0**-24  # of float16
# Which parts of a factor, and of the other one, meet: one range of terms after another.
PARTS = ("high", "low"), ("low", "high"), ("top", "top")
STEP, STEP_ERROR = 64, 136  # terms, and what tensor cores lose of them, in units of roundoff
LEAST_POWER = 2.0**-111  # that a scale is made of: 2^15 times its inverse is a float32
TOP = 2.0**15  # scaled factors are below
Ranges = Mapping[str, Bounds]  # of indices


@dataclass(frozen=True, slots=True)
class Operand:
    """The operand *number* of the product *name*: what it reads, over which *ranges*.

    *kept* are the dimensions that a scale is of, *term* that of the terms.
    """

    name: str
    number: int
    load: Load
    ranges: tuple[Bounds, ...]
    kept: tuple[int, ...]
    term: int

    @property
    def parts(self) -> tuple[str, ...]:
        """Which parts there are, in the order in which they meet those of the other factor."""
        return tuple(pair[self.number] for pair in PARTS)

    @property
    def index(self) -> str:
        """The index of the terms."""
        found = self.load.subscripts[self.term]
        assert isinstance(found, Index), "it is a subscript of its own"
        return found.name

    @property
    def terms(self) -> tuple[int, int]:
        """The range of the terms: [from, to)."""
        low, end = self.ranges[self.term]
        assert isinstance(low, int) and isinstance(end, int), "how many terms there are is known"
        return low, end

    @property
    def indices(self) -> tuple[str, ...]:
        return tuple(f"u{dim}" for dim in range(len(self.ranges)))

    def array(self, what: str) -> str:
        """Return the name of the array of its peaks, units, scales or parts."""
        return f"{self.load.tensor}.{what}{self.number}{self.name}"

    def of_scale(self, what: str, subscripts: Sequence[Expr]) -> Load:
        """Return the element of its peaks, units or scales at its own *subscripts*."""
        return Load(self.array(what), tuple(subscripts[dim] for dim in self.kept), FLOAT32)


def why_not_in_float16(scop: Scop, statement: Statement) -> str | None:
    """Return why *statement* is no sum of products of parts of float16, or None if it may be."""
    if reason := why_not_rfactored(statement) or _why_not_sum(scop, statement):
        return reason
    factors = product_of(statement)
    if factors is None:
        return "its terms are no products of two elements of float32"
    loads = [factor.load for factor in factors]
    if not all(_is_of_the_program(scop, load.tensor) for load in loads):
        return "its factors are made by other rewrites"
    if any(read.relation.is_empty() for read in statement.reads):
        return "its factors are never there"
    ranges = _ranges_of(scop, statement)
    lengths = [_length(ranges[index]) for index in statement.reduced]
    if not all(isinstance(length, int) for length in lengths):
        return "how many terms it has is open"
    terms = len(PARTS) * prod(length for length in lengths if isinstance(length, int))
    if terms - -(-terms // STEP) < STEP_ERROR:
        return "its sums are too short for steps of tensor cores"
    if term_of(scop, statement) is None:
        return "no reduced index is a subscript of its own in both factors"
    between = scop.statements[_first_of(scop, statement) : scop.position(statement.name)]
    names = {load.tensor for load in loads}
    if any(write.array in names for other in between for write in other.writes):
        return "its factors are written after their parts could be"
    return None


def _why_not_sum(scop: Scop, statement: Statement) -> str | None:
    """Return why *statement* is no sum of float32 over a box, or None."""
    reduction = statement.reduction
    assert reduction is not None, "why_not_rfactored"
    types = reduction.dtype, scop.arrays[statement.write.array].dtype
    if reduction.operator is not Operator.ADD or types != (FLOAT32, FLOAT32) or statement.library:
        return "it is no sum of float32"
    if statement.conditions or statement.companion is not None:
        return "it has conditions"
    if statement.write.subscripts != tuple(map(Index, statement.left)):
        return "its target's subscripts are not the left-hand indices"
    builder = builder_of(statement.indices, statement.name, scop.sizes)
    whole = box(builder, statement.indices, _ranges_of(scop, statement))
    if not _is_same(scop, whole, statement.domain):
        return "its domain is no box"
    init = initialisation(scop, statement)
    written = statement.write.relation.range()
    if init is not None and not _is_same(scop, init.write.relation.range(), written):
        return "it initialises more than it updates"
    return None


def _is_same(scop: Scop, one: isl.Set, other: isl.Set) -> bool:
    one, other = (values.intersect_params(scop.context) for values in (one, other))
    return bool(one.is_equal(other))


def product_of(statement: Statement) -> tuple[Factor, Factor] | None:
    """Return the two factors that a term of *statement* is the product of, or None.

    Each is an element of float32, or 0 where a condition does not hold.
    """
    value = statement.value
    if not (isinstance(value, Binary) and value.op == "*"):
        return None
    factors = factor_of(value.left), factor_of(value.right)
    one, other = factors
    if one is None or other is None or not all(map(_is_plain, (one, other))):
        return None
    return one, other


def _is_plain(factor: Factor) -> bool:
    """Return whether *factor* is an element of float32 as it is."""
    is_converted = any(isinstance(n, Cast) and n.dtype.is_float for n in walk(factor.expr))
    return factor.load.dtype == factor.expr.dtype == FLOAT32 and not is_converted


def term_of(scop: Scop, statement: Statement) -> str | None:
    """Return the longest reduced index that is a subscript of its own in both factors, or None."""
    factors, ranges = product_of(statement), _ranges_of(scop, statement)
    assert factors is not None
    lengths = {index: _length(ranges[index]) for index in statement.reduced}
    found = {
        index: length
        for index, length in lengths.items()
        if isinstance(length, int) and all(_is_alone(factor, index) for factor in factors)
    }
    return max(found, key=found.__getitem__, default=None)


def _is_alone(factor: Factor, index: str) -> bool:
    """Return whether *index* is one of the subscripts of *factor*, and nowhere else in it."""
    own = [s for s in factor.load.subscripts if Index(index) in walk(s)]
    is_asked = factor.condition is not None and Index(index) in walk(factor.condition)
    return own == [Index(index)] and not is_asked


def _is_of_the_program(scop: Scop, name: str) -> bool:
    """Return whether *name* is of the program, or a sum of products that stands for a part of one.

    Of others ``testing.check`` does not know the largest element, of which errors are a part.
    """
    array = scop.arrays[name]
    if "." not in name or array.memory:
        return True
    writers = scop.writers_of(name)
    return all(writer.kind in (Kind.INIT, Kind.UPDATE) for writer in writers)


def in_float16(scop: Scop, name: str) -> Scop:
    """Return *scop* with the sum *name* as one of products of parts of its factors."""
    statement = scop.by_name[name]
    assert why_not_in_float16(scop, statement) is None
    operands, before = operands_of(scop, statement), _Made(scop, {**scop.arrays}, statement.span)
    for operand in operands:
        _add_scales(before, operand)
        _add_parts(before, operand)
    after = _Made(scop, before.arrays, statement.span)
    _add_product(after, scop, statement, operands)
    place, init = _first_of(scop, statement), initialisation(scop, statement)
    statements: list[Statement] = []
    for position, old in enumerate(scop.statements):
        statements += before.statements if position == place else []
        statements += after.statements if old is statement else []
        statements += [old] if old is not statement and old is not init else []
    return replace(scop, arrays=after.arrays, statements=tuple(statements))


def operands_of(scop: Scop, statement: Statement) -> tuple[Operand, ...]:
    """Return the operands of the product *statement*."""
    factors, term = product_of(statement), term_of(scop, statement)
    assert factors is not None and term is not None, "why_not_in_float16"
    reads = {(read.array, read.subscripts): read for read in statement.reads}
    found = []
    for number, factor in enumerate(factors):
        load = factor.load
        image = reads[load.tensor, load.subscripts].relation.range()
        ranges = (dim_bounds(image, dim, scop.context) for dim in range(len(load.subscripts)))
        kept = (
            dim
            for dim, subscript in enumerate(load.subscripts)
            if isinstance(subscript, Index)
            and subscript.name in statement.left
            and _is_alone(factor, subscript.name)
        )
        at = load.subscripts.index(Index(term))
        found.append(Operand(statement.name, number, load, tuple(ranges), tuple(kept), at))
    return tuple(found)


def _first_of(scop: Scop, statement: Statement) -> int:
    """Return where the first statement is that belongs to *statement*."""
    return [s.source_name for s in scop.statements].index(statement.source_name)


def _ranges_of(scop: Scop, statement: Statement) -> dict[str, Bounds]:
    bounds = [dim_bounds(statement.domain, d, scop.context) for d in range(len(statement.indices))]
    return dict(zip(statement.indices, bounds, strict=True))


def _length(ends: Bounds) -> Extent:
    return minus(ends[1], ends[0])


class _Made:
    """Statements that are made one after another, and the arrays that they use."""

    def __init__(self, scop: Scop, arrays: dict[str, Array], span: Span) -> None:
        self.arrays, self._span = arrays, span
        self.statements: list[Statement] = []
        self._sizes, self._context = scop.sizes, scop.context

    def add_array(
        self, name: str, dtype: DType, ranges: Sequence[Bounds], *, is_aligned: bool = False
    ) -> None:
        """Declare an array of a range a dimension, its rows in units of 16 bytes if *aligned*."""
        origin, shape = tuple(low for low, _ in ranges), tuple(map(_length, ranges))
        known = [extent for extent in shape[1:] if isinstance(extent, int)]
        is_aligned = is_aligned and len(known) == len(shape) - 1
        strides = wide_strides((1, *known), dtype) if is_aligned and known else None
        self.arrays[name] = Array(name, dtype, origin, shape, Storage.SCRATCH, strides=strides)

    def assign(self, name: str, left: Ranges, target: Load, value: Expr) -> None:
        """Add ``target = value``."""
        self._add(Kind.ASSIGN, name, (left, {}), target, (value, None))

    def fold(
        self, name: str, over: tuple[Ranges, Ranges], target: Load, value: Expr, how: Operator
    ) -> None:
        """Add ``target how=! value`` *over* left-hand and reduced indices."""
        reduction = Reduction(how, True, target.dtype)
        self._add(Kind.INIT, name, (over[0], {}), target, (None, reduction))
        self._add(Kind.UPDATE, name, over, target, (value, reduction))

    def _add(
        self,
        kind: Kind,
        source: str,
        over: tuple[Ranges, Ranges],
        target: Load,
        what: tuple[Expr | None, Reduction | None],
    ) -> None:
        left, reduced = over
        indices = (*left, *reduced)
        name = f"{source}_init" if kind is Kind.INIT else source
        builder = builder_of(indices, name, self._sizes)
        domain = box(builder, indices, {**left, **reduced}).intersect_params(self._context)
        value, reduction = what
        exprs = () if value is None else (value,)
        own = Statement(
            name=name,
            domain=domain,
            indices=indices,
            n_left=len(left),
            kind=kind,
            write=access(builder, target.tensor, target.subscripts, self.arrays, domain),
            value=value,
            reads=guarded_reads(builder, domain, exprs, self.arrays),
            reduction=reduction,
            source_name=source,
            span=self._span,
        )
        self.statements.append(own)


def _add_scales(made: _Made, operand: Operand) -> None:
    """Add the largest factors, and of each the unit of its scaled ones, and the scale."""
    every = dict(zip(operand.indices, operand.ranges, strict=True))
    kept = {operand.indices[dim]: operand.ranges[dim] for dim in operand.kept}
    rest = {index: ends for index, ends in every.items() if index not in kept}
    at = tuple(map(Index, every))
    for what in ("peak", "unit", "scale"):
        made.add_array(operand.array(what), FLOAT32, tuple(kept.values()))
    peak, unit, scale = (operand.of_scale(what, at) for what in ("peak", "unit", "scale"))
    x = Load(operand.load.tensor, at, FLOAT32)
    size = Select(_is_finite(x), _size(x), Const(0.0, FLOAT32), FLOAT32)
    prefix = f"{operand.name}_{{}}{operand.number}"
    made.fold(prefix.format("peak"), (kept, rest), peak, size, Operator.MAX)
    made.assign(prefix.format("unit"), kept, unit, _unit(peak))
    one = Binary("/", Const(1.0, FLOAT64), Cast(unit, FLOAT64), FLOAT64)  # exact, fast_math or not
    made.assign(prefix.format("scale"), kept, scale, Cast(one, FLOAT32))


def _add_parts(made: _Made, operand: Operand) -> None:
    """Add the parts of *operand*, one range of terms after another."""
    every = dict(zip(operand.indices, operand.ranges, strict=True))
    low, end = operand.terms
    ranges = list(operand.ranges)
    ranges[operand.term] = 0, len(PARTS) * (end - low)
    made.add_array(operand.array("parts"), FLOAT16, ranges, is_aligned=True)
    at: list[Expr] = list(map(Index, every))
    x = Load(operand.load.tensor, tuple(at), FLOAT32)
    scaled = Binary("*", x, operand.of_scale("scale", at), FLOAT32)
    for number, part in enumerate(operand.parts):
        subscripts, offset = list(at), number * (end - low) - low
        if offset:
            term = at[operand.term]
            subscripts[operand.term] = Binary("+", term, Const(offset, INT32), INT32)
        target = Load(operand.array("parts"), tuple(subscripts), FLOAT16)
        name = f"{operand.name}_{part}{operand.number}"
        made.assign(name, every, target, _part(part, x, scaled))


def _add_product(
    made: _Made, scop: Scop, statement: Statement, operands: Sequence[Operand]
) -> None:
    """Add the sum of products of parts, and of it what *statement* is to give."""
    reduction, ranges, term = statement.reduction, _ranges_of(scop, statement), operands[0].terms
    factors = product_of(statement)
    assert reduction is not None and factors is not None, "why_not_in_float16"
    left = {index: ranges[index] for index in statement.left}
    rest: dict[str, Bounds] = {index: ranges[index] for index in statement.reduced}
    rest[operands[0].index] = 0, len(PARTS) * (term[1] - term[0])
    at = tuple(map(Index, left))
    total = Load(f"{statement.write.array}.scaled{statement.name}", at, FLOAT32)
    made.add_array(total.tensor, FLOAT32, tuple(left.values()))
    one, other = (_of_parts(*pair) for pair in zip(factors, operands, strict=True))
    product = Binary("*", one, other, FLOAT32)
    made.fold(statement.name, (left, rest), total, product, Operator.ADD)
    made.statements[-1] = replace(made.statements[-1], accumulation=Accumulation.PROMOTED)
    value: Expr = Cast(total, FLOAT64)
    for operand in operands:
        unit = operand.of_scale("unit", operand.load.subscripts)
        value = Binary("*", value, Cast(unit, FLOAT64), FLOAT64)
    value, target = Cast(value, FLOAT32), Load(statement.write.array, at, FLOAT32)
    if not reduction.initialise:
        value = Binary("+", target, value, FLOAT32)
    made.assign(f"{statement.name}_scaled", left, target, value)


def _of_parts(factor: Factor, operand: Operand) -> Expr:
    """Return *factor* with a part for the element, which is read as float32."""
    part = Load(operand.array("parts"), factor.load.subscripts, FLOAT16)
    return rewrite(factor.expr, lambda n: Cast(part, FLOAT32) if n == factor.load else n)


def _size(x: Expr) -> Expr:
    return Call("abs", (x,), x.dtype)


def _is_finite(x: Expr) -> Expr:
    return Binary("<=", _size(x), Const(LARGEST, FLOAT32), BOOL)


def _unit(peak: Expr) -> Expr:
    """Return the unit of what is scaled so that *peak* is in [TOP / 2, TOP): a power of two."""
    wide = Cast(peak, FLOAT64)
    p = Binary("*", wide, Const(1 + 2.0**-25, FLOAT64), FLOAT64)
    far = Binary("*", p, Const(2.0**53, FLOAT64), FLOAT64)
    power = Binary("-", Binary("+", far, p, FLOAT64), far, FLOAT64)  # exact: see above
    bounded = Call("max", (power, Const(LEAST_POWER, FLOAT64)), FLOAT64)
    return Cast(Binary("*", bounded, Const(1 / TOP, FLOAT64), FLOAT64), FLOAT32)


def _part(part: str, x: Expr, scaled: Expr) -> Expr:
    """Return the *part* of *x*, of which *scaled* is the multiple."""
    zero, least = Const(0.0, FLOAT32), Const(LEAST_HIGH, FLOAT32)
    is_tiny = Binary(
        "&&",
        Binary("<", _size(scaled), least, BOOL),
        Binary("!=", x, zero, BOOL),
        BOOL,
    )
    top = Select(is_tiny, Call("copysign", (least, x), FLOAT32), scaled, FLOAT32)
    if part == "top":
        return top
    high = Cast(Cast(top, FLOAT16), FLOAT32)
    own = high if part == "high" else Binary("-", scaled, high, FLOAT32)
    return Select(_is_finite(x), own, zero, FLOAT32)
