"""The scalar types of the language, their promotion, and the types that arithmetic runs in.

Promotion (TC): equal types stay; a float beats any integer; the wider float wins (float16 with
bfloat16 gives float32); two unsigned give the wider unsigned; other integer mixes give the signed
type of the larger width, int32 at least.  bool counts as the narrowest unsigned integer.

Integers of one or two bytes are narrow: their sums, differences, products and quotients are int32,
and so is the type of such an expression.  What only chooses among them (?:, min, max) stays narrow.

Narrow floats, of one or two bytes, are storage types: arithmetic on them runs in float32, and a
value is rounded only when it is stored or cast.  float8_e4m3 has no infinities: what exceeds 448,
its largest number, is NaN (as in ml_dtypes, whose name for it is float8_e4m3fn; P. Micikevicius et
al., "FP8 formats for deep learning", 2022, doi:10.48550/arXiv.2209.05433).

A float literal without a suffix has the type WEAK until it meets another float (weak_literals): a
float narrower than any, so that every other wins.

Compensated types are accumulators of the compiler's own: no program and no array of a user has
them, promotion and NumPy know nothing of them.
"""

from enum import StrEnum
from typing import Any

import numpy as np

from tcdsl.records import dataclass


class Kind(StrEnum):
    """What a type's values are."""

    BOOL = "bool"
    UNSIGNED = "unsigned"
    SIGNED = "signed"
    FLOAT = "float"


@dataclass(frozen=True, slots=True)
class DType:
    """A scalar type: *name* as in the language, *size_bytes* as stored."""

    name: str
    kind: Kind
    size_bytes: int

    def __str__(self) -> str:
        return self.name

    @property
    def is_float(self) -> bool:
        return self.kind is Kind.FLOAT

    @property
    def is_integer(self) -> bool:
        return self.kind in (Kind.SIGNED, Kind.UNSIGNED)

    @property
    def is_half(self) -> bool:
        return self.is_float and self.size_bytes == 2

    @property
    def is_narrow_float(self) -> bool:
        """Whether it is a float that is computed with as a float32."""
        return self.is_float and 0 < self.size_bytes < 4

    @property
    def library_name(self) -> str:
        """Its name in PyTorch, JAX and ml_dtypes."""
        return OF_ML_DTYPES.get(self.name, self.name)

    @property
    def has_infinities(self) -> bool:
        return self.is_float and self.name != "float8_e4m3"

    @property
    def is_narrow(self) -> bool:
        """Whether it is an integer that is computed with as an int32."""
        return self.is_integer and 0 < self.size_bytes < 4

    @property
    def is_compensated(self) -> bool:
        """Whether it is a pair, a sum and what rounding took from it."""
        return self.name.startswith("compensated")

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy type of the same values (if need be of ml_dtypes, imported when asked)."""
        assert self.size_bytes, "no array has this type"
        if self.name in OF_ML_DTYPES:
            import ml_dtypes  # costs 10 ms, and few programs need it

            found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, OF_ML_DTYPES[self.name]))
            return found
        return np.dtype(self.name)


OF_ML_DTYPES = {
    "bfloat16": "bfloat16", "float8_e4m3": "float8_e4m3fn", "float8_e5m2": "float8_e5m2",
}  # fmt: skip


BOOL = DType("bool", Kind.BOOL, 1)
UINT8, UINT16, UINT32, UINT64 = (DType(f"uint{8 * n}", Kind.UNSIGNED, n) for n in (1, 2, 4, 8))
INT8, INT16, INT32, INT64 = (DType(f"int{8 * n}", Kind.SIGNED, n) for n in (1, 2, 4, 8))
FLOAT16, FLOAT32, FLOAT64 = (DType(f"float{8 * n}", Kind.FLOAT, n) for n in (2, 4, 8))
BFLOAT16 = DType("bfloat16", Kind.FLOAT, 2)
FLOAT8_E4M3, FLOAT8_E5M2 = (DType(f"float8_{way}", Kind.FLOAT, 1) for way in ("e4m3", "e5m2"))
FLOAT8 = (FLOAT8_E4M3, FLOAT8_E5M2)
WEAK = DType("float", Kind.FLOAT, 0)
COMPENSATED32, COMPENSATED64 = (DType(f"compensated{8 * n}", Kind.FLOAT, 2 * n) for n in (4, 8))

ALL: tuple[DType, ...] = (
    BOOL, UINT8, UINT16, UINT32, UINT64, INT8, INT16, INT32, INT64,
    FLOAT8_E4M3, FLOAT8_E5M2, FLOAT16, BFLOAT16, FLOAT32, FLOAT64,
)  # fmt: skip
BY_NAME: dict[str, DType] = {dtype.name: dtype for dtype in ALL} | {
    "float": FLOAT32,
    "double": FLOAT64,
    "half": FLOAT16,
    "float8_e4m3fn": FLOAT8_E4M3,
    "int": INT32,
}


def promote(a: DType, b: DType) -> DType:
    """Return the type of an operation on an *a* and a *b* (see the module's docstring)."""
    if a == b:
        return a
    if a.is_float or b.is_float:
        if not (a.is_float and b.is_float):
            return a if a.is_float else b
        if a.size_bytes == b.size_bytes:
            return FLOAT32
        return a if a.size_bytes > b.size_bytes else b
    size = max(a.size_bytes, b.size_bytes)
    unsigned = (Kind.BOOL, Kind.UNSIGNED)
    if a.kind in unsigned and b.kind in unsigned:
        return BY_NAME[f"uint{8 * size}"]
    if Kind.UNSIGNED in (a.kind, b.kind):
        size = max(size, INT32.size_bytes)  # neither narrow type need hold the other's values
    return BY_NAME[f"int{8 * size}"]


def calculated(dtype: DType) -> DType:
    """Return the type of sums and products of *dtype*: int32 for narrow integers."""
    return INT32 if dtype.is_narrow else dtype


def arithmetic(dtype: DType) -> DType:
    """Return the type in which values stored as *dtype* are computed: float32 for narrow floats."""
    return FLOAT32 if dtype.is_narrow_float else dtype


def compensated(dtype: DType) -> DType:
    """Return the type of compensated sums of *dtype*, float32 or float64."""
    return {FLOAT32: COMPENSATED32, FLOAT64: COMPENSATED64}[dtype]


def summed(dtype: DType) -> DType:
    """Return the type of the numbers that a *dtype* sums up."""
    return {COMPENSATED32: FLOAT32, COMPENSATED64: FLOAT64}.get(dtype, dtype)


def from_numpy(dtype: Any) -> DType | None:
    """Return the language's type for a NumPy *dtype*, or None if it has none."""
    given = np.dtype(dtype)
    known = BY_NAME.get(given.name) if given.isnative else None
    # ml_dtypes has a float8_e4m3, too: another type, with infinities.
    return known if known is not None and known.numpy == given else None
