"""Which products tensor cores make: the types of the factors and of the sum, and where.

    bfloat16, float16    float32    mma.m16n8k16, wgmma
    int8, uint8          int32      mma.m16n8k32, wgmma: exact, sums wrap
    float8               float32    from sm_89 on as float16, which holds all of both types;
                                    wgmma, promoted, if ``Options(precision="float8")``
    float64              float64    mma.m16n8k16: as exact as fused multiply-adds
    float32              float32    wgmma, each product as three of tf32 parts; mma.m16n8k8, wgmma
                                    as tf32, if ``Options(precision="tf32")``; neither, if "ieee";
                                    rewrites make it float16 or bfloat16 (float16x3, bfloat16)

The two factors are of one type, or of two that have a byte.  PTX ISA, "mma".

**float32 in three products.**  With x = h + l, h the nearest tf32 (11 bits) and l = x - h, which is
exact, has 12 bits and is cut to 11, and u = 2^-24::

    x y = hx hy + hx ly + lx hy + r,    |r| <= |x y| (2 2^-23 + 2^-22) = 8 u |x y|

Tensor cores align the 8 addends of an instruction, and what they are added to, to the largest, and
truncate: at most 2^-23 of it is lost by each.  So a sum of 32 terms, of 4 instructions of large
parts after 8 of small ones (whose loss is 2^-11 of that), is off by at most 4 9 2^-23 = 72 u of the
sum of the sizes; the sums of steps are added by ordinary additions.  For n terms in s steps the
error is at most (8 + 72 + s) u sum |x y|, of fused multiply-adds n u sum |x y|: from n - s = 80
on that is the larger one, and the bound of ``testing.check``, which is the latter, holds for both.
Typical errors are of another order: sqrt(s) u beside sqrt(n) u.  We ask for n - s >= SPLIT_TERMS,
where measured errors are the smaller ones, too.
After M. Fasi, N. J. Higham, M. Mikaitis, S. Pranesh, Numerical behavior of NVIDIA tensor cores,
PeerJ Computer Science 7:e330, 2021, doi:10.7717/peerj-cs.330; H. Ootomo, R. Yokota, Recovering
single precision accuracy from Tensor Cores, IJHPCA 36(4), 2022, doi:10.1177/10943420221090256.
"""

from collections.abc import Sequence

from tcdsl.costmodel.chip import Chip, Feature, Unit
from tcdsl.lang.types.dtypes import (
    BFLOAT16,
    FLOAT8,
    FLOAT8_E4M3,
    FLOAT8_E5M2,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT8,
    INT32,
    UINT8,
    DType,
)
from tcdsl.options import Options

# That a sum of float32 in parts has more than steps.  It is of accuracy, as the module's docstring
# derives it, and of no chip.
SPLIT_TERMS = 224
# { factor's type: the sum's, the unit, what a chip must have }
_MADE = {
    BFLOAT16: (FLOAT32, Unit.TENSOR_BF16, Feature.ASYNC_COPY),
    FLOAT16: (FLOAT32, Unit.TENSOR_F16, Feature.ASYNC_COPY),
    INT8: (INT32, Unit.TENSOR_INT8, Feature.ASYNC_COPY),
    UINT8: (INT32, Unit.TENSOR_INT8, Feature.ASYNC_COPY),
    FLOAT8_E4M3: (FLOAT32, Unit.TENSOR_F16, Feature.FP8),
    FLOAT8_E5M2: (FLOAT32, Unit.TENSOR_F16, Feature.FP8),
    FLOAT64: (FLOAT64, Unit.TENSOR_F64, Feature.ASYNC_COPY),
    FLOAT32: (FLOAT32, Unit.TENSOR_TF32, Feature.TF32),
}


def why_not_made(
    factors: Sequence[DType], total: DType, chip: Chip, options: Options
) -> str | None:
    """Return why *chip* has no tensor cores for sums of type *total* of *factors*, or None."""
    if FLOAT32 in factors and options.precision == "ieee":
        return "it has factors of float32, for which fused multiply-adds are asked for"
    if is_split(factors[0], options) and not chip.has(Feature.WARPGROUP_PRODUCTS):
        return f"it has factors of float32, whose parts {chip.arch} does not multiply"
    if any(factor not in _MADE for factor in factors):
        return f"tensor cores do not multiply {' by '.join(map(str, factors))}"
    one, other = (_MADE[factor] for factor in factors)
    if one != other or (factors[0] != factors[1] and factors[0].size_bytes > 1):
        return "its factors are of two types that tensor cores do not multiply"
    if total != one[0]:
        return f"its sums are of {total}, not of {one[0]}"
    if not (chip.has(one[2]) and chip.rate(one[1])):
        return f"{chip.arch} has no tensor cores for it"
    return None


def are_multiplied(factors: Sequence[DType], total: DType) -> bool:
    """Return whether some chip's tensor cores multiply *factors*, one type or two bytes, so."""
    made = [_MADE.get(factor) for factor in factors]
    is_one = len({*factors}) == 1 or all(f.size_bytes < 4 for f in factors)
    return is_one and all(own is not None and own[0] == total for own in made)


def is_split(factor: DType, options: Options) -> bool:
    """Return whether a product of *factor* is made as three products of parts."""
    return factor == FLOAT32 and options.precision not in ("ieee", "tf32")


def has_groups(factor: DType, options: Options, *, is_along: tuple[bool, bool]) -> bool:
    """Return whether four warps multiply elements of type *factor* together (wgmma).

    They read halves in any direction, others where neighbours are *along* the terms, of rows and of
    columns; words of rows come by way of registers else.
    """
    if factor.size_bytes == 1:
        return all(is_along) and (factor in (INT8, UINT8) or is_truncated(factor, options))
    return factor.is_half or (factor == FLOAT32 and is_along[1])


def is_truncated(factor: DType, options: Options) -> bool:
    """Return whether sums of products of *factor* may be cut, so that steps are promoted."""
    return factor in FLOAT8 and options.precision == "float8"


def unit_of(factor: DType, *, is_truncated: bool = False) -> Unit:
    """Return the unit that multiplies elements of type *factor*."""
    return Unit.TENSOR_FP8 if is_truncated else _MADE[factor][1]


def loads_of(factor: DType, *, is_along: bool) -> int:
    """Return how many instructions bring a thread its part of 16 lines and 32 bytes of a tile.

    Matrices of 8 x 8 are loaded four at a time (ldmatrix), halves in any direction, other elements
    where neighbours are *along* the terms; else it is word by word, or byte by byte.
    """
    conversions = 8 if factor in FLOAT8 else 4 if factor == FLOAT32 else 0
    match factor.size_bytes:
        case 8:
            return 2
        case 2:
            return 1
        case size_bytes:
            return conversions + (1 if is_along else 4 if size_bytes == 4 else 4 * 7)
