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
and truncate: at most 2^-23 of it is lost by each.  That is biased, and over all terms ten times
what roundings lose.  So the sum of a step of 64 terms is kept by itself, off by at most 4 17 2^-23
= 136 u of its sizes, and added to others by ordinary additions (the statement is *promoted*): for s
steps (136 + s) u in all, which is less than gamma_n from n - s = 136 on; shorter sums are left as
they are.  Low parts are first, so that they are added to what is small.

**Infinities and NaN** are where they would be in plain float32.  They stay in the high part that
meets high parts, and are 0 in the other two; and no factor but 0 has the high part 0: one below
2^-24 gets it, with a low part of the other sign.  So infinity times a factor is an infinity of the
right sign, or NaN where the factor is 0.  Products and sums that leave float32's range on the way
do not here.

Legal iff the sum is over a box of numbers, of products of two elements that nothing writes between
the parts' place, before the statement, and the product; and one reduced index is a subscript of its
own in both.  Scaled parts: H. Ootomo, R. Yokota, Recovering single precision accuracy from Tensor
Cores while surpassing the FP32 theoretical peak performance, IJHPCA 36(4), 2022,
doi:10.1177/10943420221090256; parts without scales: S. Markidis et al., NVIDIA Tensor Core
programmability, performance & precision, IPDPSW 2018, doi:10.1109/IPDPSW.2018.00091.  Powers of two
by additions: S. M. Rump, T. Ogita, S. Oishi, Accurate floating-point summation part I, SIAM J. Sci.
Comput. 31(1), 2008, doi:10.1137/050645671.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

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
from tcdsl.lang.types.dtypes import BOOL, FLOAT16, FLOAT32, FLOAT64, INT32, DType
from tcdsl.poly.isl_utils import constant_bounds
from tcdsl.poly.lowering import access, box, builder_of, guarded_reads
from tcdsl.poly.scop import Array, Kind, Scop, Statement, Storage
from tcdsl.rewrites.scop.repacking import wide_strides
from tcdsl.rewrites.scop.rfactor import initialisation, why_not_rfactored

LARGEST = float.fromhex("0x1.fffffep127")  # of float32
LEAST_HIGH = 2.0**-24  # of float16
# Which parts of a factor, and of the other one, meet: one range of terms after another.
PARTS = ("high", "low"), ("low", "high"), ("top", "top")
STEP, STEP_ERROR = 64, 136  # terms, and what tensor cores lose of them, in units of roundoff
LEAST_POWER = 2.0**-111  # that a scale is made of: 2^15 times its inverse is a float32
TOP = 2.0**15  # scaled factors are below
Range = tuple[int, int]  # from, to
Ranges = Mapping[str, Range]  # of indices


@dataclass(frozen=True, slots=True)
class Factor:
    """The factor *number* of the product *name*: what it reads, over which *ranges*.

    *kept* are the dimensions that a scale is of, *term* that of the terms.
    """

    name: str
    number: int
    load: Load
    ranges: tuple[Range, ...]
    kept: tuple[int, ...]
    term: int

    @property
    def parts(self) -> tuple[str, ...]:
        """Which parts there are, in the order in which they meet those of the other factor."""
        return tuple(pair[self.number] for pair in PARTS)

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
    if reason := why_not_rfactored(statement):
        return reason
    reduction = statement.reduction
    assert reduction is not None, "why_not_rfactored"
    types = reduction.dtype, scop.arrays[statement.write.array].dtype
    if reduction.operator is not Operator.ADD or types != (FLOAT32, FLOAT32) or statement.library:
        return "it is no sum of float32"
    if statement.conditions or statement.companion is not None:
        return "it has conditions"
    if statement.write.subscripts != tuple(map(Index, statement.left)):
        return "its target's subscripts are not the left-hand indices"
    if any(n is None for n in scop.sizes.values()) or not statement.domain.is_box():
        return "its domain is no box of numbers"
    loads = loads_of_product(statement)
    if loads is None:
        return "its terms are no products of two elements of float32"
    if not all(_is_of_the_program(scop, load.tensor) for load in loads):
        return "its factors are made by other rewrites"
    lengths = map(_length, _ranges_of(statement).values())
    terms = len(PARTS) * prod([*lengths][statement.n_left :])
    if terms - -(-terms // STEP) < STEP_ERROR:
        return "its sums are too short for steps of tensor cores"
    if term_of(statement) is None:
        return "no reduced index is a subscript of its own in both factors"
    init = initialisation(scop, statement)
    written = statement.write.relation.range()
    if init is not None and not init.write.relation.range().is_equal(written):
        return "it initialises more than it updates"
    between = scop.statements[_first_of(scop, statement) : scop.position(statement.name)]
    names = {load.tensor for load in loads}
    if any(write.array in names for other in between for write in other.writes):
        return "its factors are written after their parts could be"
    return None


def loads_of_product(statement: Statement) -> tuple[Load, Load] | None:
    """Return the two elements of float32 that a term of *statement* is the product of, or None."""
    match statement.value:
        case Binary(op="*", left=Load() as one, right=Load() as other) if (
            one.dtype == other.dtype == FLOAT32
        ):
            return one, other
    return None


def term_of(statement: Statement) -> str | None:
    """Return the longest reduced index that is a subscript of its own in both factors, or None."""
    loads = loads_of_product(statement)
    assert loads is not None
    found = [i for i in statement.reduced if all(_is_alone(load, i) for load in loads)]
    ends = _ranges_of(statement)
    return max(found, key=lambda index: _length(ends[index]), default=None)


def _is_of_the_program(scop: Scop, name: str) -> bool:
    """Return whether *name* is of the program, or a sum of products that stands for a part of one.

    Of others ``testing.check`` does not know the largest element, of which errors are a part.
    """
    array = scop.arrays[name]
    if "." not in name or array.memory:
        return True
    writers = (s for s in scop.users[name] if any(write.array == name for write in s.writes))
    return all(writer.kind in (Kind.INIT, Kind.UPDATE) for writer in writers)


def in_float16(scop: Scop, name: str) -> Scop:
    """Return *scop* with the sum *name* as one of products of parts of its factors."""
    statement = scop.by_name[name]
    assert why_not_in_float16(scop, statement) is None
    factors, before = factors_of(statement), _Made(scop, {**scop.arrays})
    for factor in factors:
        _add_scales(before, factor)
        _add_parts(before, factor)
    after = _Made(scop, before.arrays)
    _add_product(after, statement, factors)
    place, init = _first_of(scop, statement), initialisation(scop, statement)
    statements: list[Statement] = []
    for position, old in enumerate(scop.statements):
        statements += before.statements if position == place else []
        statements += after.statements if old is statement else []
        statements += [old] if old is not statement and old is not init else []
    return replace(scop, arrays=after.arrays, statements=tuple(statements))


def factors_of(statement: Statement) -> tuple[Factor, Factor]:
    """Return the factors of the product *statement*."""
    loads, term = loads_of_product(statement), term_of(statement)
    assert loads is not None and term is not None, "why_not_in_float16"
    one, other = (_factor(statement, number, load, term) for number, load in enumerate(loads))
    return one, other


def _factor(statement: Statement, number: int, load: Load, term: str) -> Factor:
    reads = {(read.array, read.subscripts): read for read in statement.reads}
    image = reads[load.tensor, load.subscripts].relation.range()
    bounds = (constant_bounds(image, dim) for dim in range(len(load.subscripts)))
    ranges = tuple((low, high + 1) for low, high in filter(None, bounds))
    kept = tuple(
        dim
        for dim, subscript in enumerate(load.subscripts)
        if isinstance(subscript, Index)
        and subscript.name in statement.left
        and _is_alone(load, subscript.name)
    )
    return Factor(statement.name, number, load, ranges, kept, load.subscripts.index(Index(term)))


def _is_alone(load: Load, index: str) -> bool:
    """Return whether *index* is one of the subscripts of *load*, and in no other."""
    own = [s for s in load.subscripts if Index(index) in walk(s)]
    return own == [Index(index)]


def _first_of(scop: Scop, statement: Statement) -> int:
    """Return where the first statement is that belongs to *statement*."""
    return [s.source_name for s in scop.statements].index(statement.source_name)


def _ranges_of(statement: Statement) -> dict[str, Range]:
    bounds = (constant_bounds(statement.domain, d) for d in range(len(statement.indices)))
    ends = [(low, high + 1) for low, high in filter(None, bounds)]
    return dict(zip(statement.indices, ends, strict=True))


def _length(ends: Range) -> int:
    return ends[1] - ends[0]


class _Made:
    """Statements that are made one after another, and the arrays that they use."""

    def __init__(self, scop: Scop, arrays: dict[str, Array]) -> None:
        self.arrays = arrays
        self.statements: list[Statement] = []
        self._sizes = scop.sizes

    def add_array(
        self, name: str, dtype: DType, ranges: Sequence[Range], *, is_aligned: bool = False
    ) -> None:
        """Declare an array of a range a dimension, its rows in units of 16 bytes if *aligned*."""
        origin, shape = tuple(low for low, _ in ranges), tuple(map(_length, ranges))
        strides = wide_strides(shape, dtype) if is_aligned else None
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
        domain = box(builder, indices, {**left, **reduced})
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
        )
        self.statements.append(own)


def _add_scales(made: _Made, factor: Factor) -> None:
    """Add the largest factors, and of each the unit of its scaled ones, and the scale."""
    every = dict(zip(factor.indices, factor.ranges, strict=True))
    kept = {factor.indices[dim]: factor.ranges[dim] for dim in factor.kept}
    rest = {index: ends for index, ends in every.items() if index not in kept}
    at = tuple(map(Index, every))
    for what in ("peak", "unit", "scale"):
        made.add_array(factor.array(what), FLOAT32, tuple(kept.values()))
    peak, unit, scale = (factor.of_scale(what, at) for what in ("peak", "unit", "scale"))
    x = Load(factor.load.tensor, at, FLOAT32)
    size = Select(_is_finite(x), _size(x), Const(0.0, FLOAT32), FLOAT32)
    prefix = f"{factor.name}_{{}}{factor.number}"
    made.fold(prefix.format("peak"), (kept, rest), peak, size, Operator.MAX)
    made.assign(prefix.format("unit"), kept, unit, _unit(peak))
    one = Binary("/", Const(1.0, FLOAT64), Cast(unit, FLOAT64), FLOAT64)  # exact, fast_math or not
    made.assign(prefix.format("scale"), kept, scale, Cast(one, FLOAT32))


def _add_parts(made: _Made, factor: Factor) -> None:
    """Add the parts of *factor*, one range of terms after another."""
    every = dict(zip(factor.indices, factor.ranges, strict=True))
    low, end = factor.ranges[factor.term]
    ranges = list(factor.ranges)
    ranges[factor.term] = 0, len(PARTS) * (end - low)
    made.add_array(factor.array("parts"), FLOAT16, ranges, is_aligned=True)
    at: list[Expr] = list(map(Index, every))
    x = Load(factor.load.tensor, tuple(at), FLOAT32)
    scaled = Binary("*", x, factor.of_scale("scale", at), FLOAT32)
    for number, part in enumerate(factor.parts):
        subscripts, offset = list(at), number * (end - low) - low
        if offset:
            term = at[factor.term]
            subscripts[factor.term] = Binary("+", term, Const(offset, INT32), INT32)
        target = Load(factor.array("parts"), tuple(subscripts), FLOAT16)
        name = f"{factor.name}_{part}{factor.number}"
        made.assign(name, every, target, _part(part, x, scaled))


def _add_product(made: _Made, statement: Statement, factors: Sequence[Factor]) -> None:
    """Add the sum of products of parts, and of it what *statement* is to give."""
    reduction, ranges, term = statement.reduction, _ranges_of(statement), term_of(statement)
    assert reduction is not None and term is not None, "why_not_in_float16"
    left = {index: ranges[index] for index in statement.left}
    rest = {index: ranges[index] for index in statement.reduced}
    rest[term] = 0, len(PARTS) * _length(ranges[term])
    at = tuple(map(Index, left))
    total = Load(f"{statement.write.array}.scaled{statement.name}", at, FLOAT32)
    made.add_array(total.tensor, FLOAT32, tuple(left.values()))
    one, other = (
        Cast(Load(factor.array("parts"), factor.load.subscripts, FLOAT16), FLOAT32)
        for factor in factors
    )
    product = Binary("*", one, other, FLOAT32)
    made.fold(statement.name, (left, rest), total, product, Operator.ADD)
    made.statements[-1] = replace(made.statements[-1], is_promoted=True)
    value: Expr = Cast(total, FLOAT64)
    for factor in factors:
        unit = factor.of_scale("unit", factor.load.subscripts)
        value = Binary("*", value, Cast(unit, FLOAT64), FLOAT64)
    value, target = Cast(value, FLOAT32), Load(statement.write.array, at, FLOAT32)
    if not reduction.initialise:
        value = Binary("+", target, value, FLOAT32)
    made.assign(f"{statement.name}_scaled", left, target, value)


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
