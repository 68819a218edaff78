"""A factor of float32 in two planes, of high and of low parts, which tensor cores read as they lie.

    C(m,n) +=! A(m,k) * B(k,n)
    --->
    P[0,n,k] = high(B[k,n])                  the nearest number of tf32: 11 bits
    P[1,n,k] = B[k,n] - P[0,n,k]             what is left, exactly: 12 bits
    C(m,n) +=! A(m,k) * whole(P[0,n,k], P[1,n,k])

A block that makes the parts of its columns itself does so once for each tile of rows, and stores
them to shared memory.  Here they are made once, lie along the terms, whichever way B does, and are
requested as boxes.  The other factor's parts never leave registers (device/cuda/wgmma_f32.cuh).

The value of the factor is unchanged, ``high + low``, so that any template computes the product of
the planes as it would that of B.  Where parts are no use, B itself is the high part and the low one
is infinite, which ``whole`` leaves out::

    whole(h, l) = |l| <= LARGEST ? h + l : h          infinite: x is infinite, NaN, or tiny

A sum over tensor cores that met one is not finite then, and is done again by threads.  *Tiny* is
what has a low part below 2^-126, of which tensor cores may see nothing.

High parts are rounded in float64, by additions: with far = 2^42 x, (far + x) - far is x rounded to
11 bits, since far + x is rounded to multiples of 2^-10 of x's power of two.  Both the product and
the last difference are exact, so that a compiler that contracts them to fused multiply-adds changes
nothing.  What would round up to infinity is the largest number of tf32.

Legal iff nothing writes the array between its planes and the product, and its sizes are known.
T. J. Dekker, A floating-point technique for extending the available precision, Numerische
Mathematik 18, 1971, doi:10.1007/BF01397083.
"""

import math
from dataclasses import replace

from tcdsl.lang.comprehension import Binary, Call, Cast, Const, Expr, Index, Load, Operator, Select
from tcdsl.lang.rewrite import rewrite
from tcdsl.lang.types.dtypes import BOOL, FLOAT32, FLOAT64, INT32
from tcdsl.poly.accesses import Bounds, box, builder_of
from tcdsl.poly.scop import Array, Kind, Scop, Statement, Storage
from tcdsl.rewrites.scop.assignment import assignment, with_own_reads
from tcdsl.rewrites.scop.reordering import read_from_copy, why_not_reordered
from tcdsl.rewrites.scop.repacking import wide_strides

LARGEST = float.fromhex("0x1.fffffep127")  # of float32
LARGEST_HIGH = float.fromhex("0x1.ffcp127")  # of tf32
LEAST = 2.0**-103  # whose low parts have an exponent of float32's
FAR = 2.0**42
SUFFIX = ".planes"
N_PLANES = 2


def planes_of(factor: Expr) -> tuple[Load, Load] | None:
    """Return the loads of the high and the low part that *factor* is made of, None if of none."""
    match factor:
        case Select(if_true=Binary(op="+", left=Load() as high, right=Load() as low)):
            return (high, low) if high.tensor == low.tensor and is_planes(high.tensor) else None
    return None


def is_planes(array: str) -> bool:
    """Return whether *array* has the parts of another one: no name of a program has a dot."""
    return SUFFIX in array


def makes_planes(name: str) -> bool:
    """Return whether the statement *name* makes planes."""
    return SUFFIX.replace(".", "_") in name


def plain_factors(statement: Statement) -> tuple[Load, Load] | None:
    """Return the two elements of float32 that *statement* adds products of, or None."""
    value, reduction = statement.value, statement.reduction
    if statement.kind is not Kind.UPDATE or reduction is None or statement.library:
        return None
    if reduction.operator is not Operator.ADD or reduction.dtype != FLOAT32:
        return None
    match value:
        case Binary(op="*", left=Load() as one, right=Load() as other) if (
            one.dtype == other.dtype == FLOAT32 and one.tensor != other.tensor
        ):
            return one, other
    return None


def why_not_in_planes(scop: Scop, name: str, load: Load) -> str | None:
    """Return why the factor *load* of the sum *name* is not in planes, or None if it may be."""
    statement = scop.by_name[name]
    factors = plain_factors(statement)
    if factors is None or load not in factors:
        return "it is no product of two elements of float32"
    reads = [read for read in statement.reads if read.array == load.tensor]
    if len(reads) != 1 or not reads[0].is_exact:
        return f"a subscript of {load.tensor} is gathered"
    if is_planes(load.tensor):
        return f"{load.tensor} is in planes"
    return why_not_reordered(scop, name, load.tensor, kind=SUFFIX)


def in_planes(scop: Scop, name: str, load: Load, last: int) -> Scop:
    """Return *scop* whose sum *name* has the factor *load* in planes.

    :arg last: the dimension of the array that is their last.  Sums share planes.
    """
    assert why_not_in_planes(scop, name, load) is None
    statement, source = scop.by_name[name], scop.arrays[load.tensor]
    order = [*(dim for dim in range(source.rank) if dim != last), last]
    sizes = [size for size in source.shape if isinstance(size, int)]
    shape = (N_PLANES, *(sizes[dim] for dim in order))
    own = Array(
        f"{load.tensor}{SUFFIX}{last}", FLOAT32, (0, *(source.origin[dim] for dim in order)), shape,
        Storage.SCRATCH, strides=wide_strides(shape, FLOAT32),
    )  # fmt: skip
    wide = replace(scop, arrays={**scop.arrays, own.name: own})
    high, low = (
        Load(own.name, (Const(plane, INT32), *(load.subscripts[dim] for dim in order)), FLOAT32)
        for plane in range(N_PLANES)
    )
    whole = Select(_at_most(low, LARGEST), Binary("+", high, low, FLOAT32), high, FLOAT32)
    assert statement.value is not None
    value = rewrite(statement.value, lambda node: whole if node == load else node)
    reader = with_own_reads(wide, replace(statement, value=value))
    return read_from_copy(wide, reader, _planes(wide, statement, source, own, order))


def _planes(
    scop: Scop, statement: Statement, source: Array, own: Array, order: list[int]
) -> Statement:
    """Return what writes the planes *own* of *source*."""
    indices = ("p", *(f"u{dim}" for dim in range(source.rank)))
    name = f"{statement.name}_{own.name.replace('.', '_')}"
    ranges = [
        (low, low + size)
        for low, size in zip(source.origin, source.shape, strict=True)
        if isinstance(low, int) and isinstance(size, int)
    ]
    bounds: dict[str, Bounds] = dict(zip(indices, ((0, N_PLANES), *ranges), strict=True))
    builder = builder_of(indices, name, scop.sizes)
    target = Load(own.name, (Index("p"), *(Index(f"u{d}") for d in order)), FLOAT32)
    x = Load(source.name, tuple(map(Index, indices[1:])), FLOAT32)
    is_high = Binary("==", Index("p"), Const(0, INT32), BOOL)
    value = Select(is_high, high_part(x), low_part(x), FLOAT32)
    domain = box(builder, indices, bounds)
    done = assignment(scop, domain, indices, target, value, statement)
    return replace(done, source_name=name)


def high_part(x: Expr) -> Expr:
    """Return the nearest number of tf32, of float32; *x* where it has no parts."""
    wide = Cast(x, FLOAT64)
    far = Binary("*", wide, Const(FAR, FLOAT64), FLOAT64)
    near = Cast(Binary("-", Binary("+", far, wide, FLOAT64), far, FLOAT64), FLOAT32)
    most = Call("min", (near, Const(LARGEST_HIGH, FLOAT32)), FLOAT32)
    cut = Call("max", (most, Const(-LARGEST_HIGH, FLOAT32)), FLOAT32)
    return Select(_has_parts(x), cut, x, FLOAT32)


def low_part(x: Expr) -> Expr:
    """Return what the high part leaves of *x*: infinite where that is *x*, unless it is 0."""
    zero, none = Const(0.0, FLOAT32), Const(math.inf, FLOAT32)
    rest = Binary("-", x, high_part(x), FLOAT32)
    is_zero = Binary("==", x, zero, BOOL)
    return Select(_has_parts(x), rest, Select(is_zero, zero, none, FLOAT32), FLOAT32)


def _has_parts(x: Expr) -> Expr:
    least = Binary(">=", _size(x), Const(LEAST, FLOAT32), BOOL)
    return Binary("&&", least, _at_most(x, LARGEST), BOOL)


def _at_most(x: Expr, most: float) -> Expr:
    return Binary("<=", _size(x), Const(most, FLOAT32), BOOL)


def _size(x: Expr) -> Expr:
    return Call("abs", (x,), x.dtype)
