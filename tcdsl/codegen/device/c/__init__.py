"""The C device library: what generated C calls, prepended to it as text.

    header_text(parts_for({"tc_exp_f32", "tc_cast_f32_f16"}))  =  core + half + math_f32

The library comes in parts so that a kernel parses only what it uses.  ``FUNCTIONS`` says which
function lives where.  Compile with ``-std=c11 -O3 -ffp-contract=off -fno-math-errno
-fno-trapping-math``, without the last two of which square roots and roundings do not vectorise,
and link with ``-lm``; never with ``-ffinite-math-only``.  ``-fassociative-math`` has no effect on
a file that begins with this text: the polynomials' reductions would not survive it.

With OpenMP, ``reduction(tc_max_f32 : x)`` (``min``, and ``add`` and ``mul`` on integers) combines
threads and lanes as the function does; OpenMP's own ``max`` and ``min`` lose NaNs.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

# In the order in which their texts must stand.
PARTS: tuple[str, ...] = (
    "core", "fold", "powers", "half", "float8", "math_f32", "math_f64", "rare", "compensated",
    "dots",
)  # fmt: skip

INTEGERS: tuple[str, ...] = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS: tuple[str, ...] = ("f32", "f64")
HALVES: tuple[str, ...] = ("f16", "bf16")
FLOATS8: tuple[str, ...] = ("e4m3", "e5m2")
NARROW_FLOATS: tuple[str, ...] = (*FLOATS8, *HALVES)
COMPENSATED: Mapping[str, str] = MappingProxyType({"c32": "f32", "c64": "f64"})  # pair -> of what
TYPES: tuple[str, ...] = ("b", *INTEGERS, *NARROW_FLOATS, *FLOATS)

_ON_INTEGERS = "abs add arg_better_max arg_better_min div max min mod mul neg relu shl shr sign sub"
_ON_BOOL = "abs arg_better_max arg_better_min max min relu sign"
_ON_FLOATS = (
    "abs arg_better_max arg_better_min ceil copysign div fabs fdim floor fma fmax fmin isinf isnan"
    " mad max min neg relu round rsqrt sign sqrt trunc"
)
_MATH = (
    "acos asin atan cos cosh erf exp exp10 exp2 expm1 log log10 log1p log2 pow sigmoid sin sinh"
    " tan tanh"
)
_POWERS = "pow_1_2 pow_2 pow_3 pow_3_2 pow_4 pow_m1 pow_m1_2"
_FOLDS = "fold_add fold_mul fold_min fold_max"  # all lanes of one vector
_PI = "cospi sinpi"  # vectorised in float32 only
DOTS: tuple[str, ...] = ("i16", "bf16", "i8_i8", "i8_u8", "u8_i8", "u8_u8")  # rows, columns
_RARE = (
    "acosh asinh atan2 atanh cbrt cyl_bessel_i0 cyl_bessel_i1 erfc erfcinv erfcx erfinv fmod hypot"
    " j0 j1 lgamma logb mod nextafter norm3d norm4d normcdf normcdfinv rcbrt remainder rhypot"
    " rnorm3d rnorm4d tgamma y0 y1"
)


def _names(functions: str, types: Iterable[str]) -> list[str]:
    return [f"tc_{function}_{dtype}" for dtype in types for function in functions.split()]


def _part_of_casts(types: set[str]) -> str:
    """Return the part with the conversions between *types*."""
    return "float8" if types & {*FLOATS8} else "half" if types & {*HALVES} else "core"


def _functions() -> dict[str, str]:
    """Return { function -> part }."""
    casts = {f"tc_cast_{a}_{b}": _part_of_casts({a, b}) for a in TYPES for b in TYPES if a != b}
    conversions = {f"tc_{t}_to_f32": _part_of_casts({t}) for t in NARROW_FLOATS}
    conversions |= {
        f"tc_{wide}_to_{t}": _part_of_casts({t}) for wide in FLOATS for t in NARROW_FLOATS
    }
    core = [*_names(_ON_INTEGERS, INTEGERS), *_names(_ON_BOOL, "b"), *_names(_ON_FLOATS, FLOATS)]
    core += [*_names("placed_max placed_min", ["i32", "f32"]), "tc_place_of_i64"]
    return (
        casts
        | conversions
        | dict.fromkeys([*core, "tc_fault"], "core")
        | dict.fromkeys(_names(_FOLDS, [*INTEGERS, *FLOATS]), "fold")
        | dict.fromkeys(_names(_POWERS, FLOATS), "powers")
        | dict.fromkeys(_names("fold_and fold_or fold_min fold_max", "b"), "fold")
        | dict.fromkeys(_names(f"{_MATH} {_PI} exp_nonpositive exp_addend", ["f32"]), "math_f32")
        | dict.fromkeys(_names(_MATH, ["f64"]), "math_f64")
        | dict.fromkeys(_names("add plus mad fold_add", COMPENSATED), "compensated")
        | dict.fromkeys(
            [f"tc_cast_{a}_{b}" for pair in COMPENSATED.items() for a, b in (pair, pair[::-1])],
            "compensated",
        )
        | dict.fromkeys([f"tc_dots_{types}" for types in DOTS], "dots")
        | dict.fromkeys([*_names(_RARE, FLOATS), *_names(_PI, ["f64"])], "rare")
    )


FUNCTIONS: Mapping[str, str] = MappingProxyType(_functions())


def parts_for(function_names: Iterable[str]) -> frozenset[str]:
    """Return the parts that define *function_names*, and those that these need.

    :raises KeyError: for a name that the library does not define.
    """
    return _with_needs(FUNCTIONS[name] for name in function_names)


def _with_needs(parts: Iterable[str]) -> frozenset[str]:
    chosen = {"core", *parts}
    return frozenset(chosen | {"half"} if "float8" in chosen else chosen)


@cache
def part_text(part: str) -> str:
    """Return the text of one part."""
    return files(__name__).joinpath(f"{part}.h").read_text(encoding="utf-8")


def header_text(features: frozenset[str] | None = None) -> str:
    """Return the C text of the parts in *features* (default: all), which always include core."""
    chosen = frozenset(PARTS) if features is None else _with_needs(features)
    assert chosen <= set(PARTS), f"unknown parts {sorted(chosen - set(PARTS))}"
    return "\n".join(part_text(part) for part in PARTS if part in chosen)
