"""The C device library against exact integers, NumPy, ml_dtypes and mpmath."""

import ctypes
import math
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import mpmath  # type: ignore[import-untyped]
import numpy as np
import numpy.typing as npt
import pytest
from filelock import FileLock, Timeout

from tcdsl.codegen.device.c import (
    DOTS,
    FLOATS,
    FUNCTIONS,
    INTEGERS,
    PARTS,
    TYPES,
    header_text,
    parts_for,
)

Array = npt.NDArray[Any]
Call = Callable[..., Array]

GCC = shutil.which("gcc") or shutil.which("cc")


def words(text: str) -> list[str]:
    return text.split()


FLAGS = words(
    "-std=c11 -O3 -march=native -fopenmp -ffp-contract=off -fno-math-errno -fno-trapping-math"
    " -Wall -Wextra -Werror"
)
pytestmark = pytest.mark.skipif(GCC is None, reason="no C compiler")

NUMPY: dict[str, np.dtype[Any]] = {
    "b": np.dtype(np.uint8),
    "e4m3": np.dtype(np.uint8),
    "e5m2": np.dtype(np.uint8),
    "f16": np.dtype(np.uint16),
    "bf16": np.dtype(np.uint16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    **{t: np.dtype(f"{'u' if t[0] == 'u' else ''}int{t[1:]}") for t in INTEGERS},
}
NARROW: dict[str, Any] = {
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16,
}  # fmt: skip
C_TYPES = {t: f"{d.name}_t" for t, d in NUMPY.items()} | {"f32": "float", "f64": "double"}
BINARY = words(
    "add arg_better_max arg_better_min atan2 copysign div fdim fmax fmin fmod hypot max min mod"
    " mul nextafter pow remainder rhypot shl shr sub"
)
TERNARY = words("fma mad norm3d rnorm3d")
QUATERNARY = words("norm4d rnorm4d")


# --- compiling -----------------------------------------------------------------------------
def signature(name: str) -> tuple[tuple[str, ...], str]:
    """Return the types of the operands and of the result of a library function."""
    if match := re.fullmatch(r"tc_cast_(\w+)_(\w+)|tc_(\w+)_to_(\w+)", name):
        from_, to = (group for group in match.groups() if group)
        return (from_,), to
    function, _, dtype = name.removeprefix("tc_").rpartition("_")
    arity = 1 + (function in BINARY) + 2 * (function in TERNARY) + 3 * (function in QUATERNARY)
    if function.startswith("placed"):
        return (dtype, "i32"), "i64"
    is_predicate = function.startswith(("arg_better", "is"))
    return (dtype,) * arity, "b" if is_predicate else dtype


def loop_text(name: str) -> str:
    """Return a C function that applies *name* over arrays."""
    operands, result = signature(name)
    params = "".join(f", const {C_TYPES[t]} *restrict a{i}" for i, t in enumerate(operands))
    call = ", ".join(f"a{i}[i]" for i in range(len(operands)))
    return (
        f"void loop_{name}(int64_t n, {C_TYPES[result]} *restrict out{params}) {{\n"
        f'_Pragma("omp simd")\nfor (int64_t i = 0; i < n; ++i) out[i] = {name}({call});\n}}\n'
    )


def compiled(source: str, folder: Path, *flags: str) -> Path:
    """Return what gcc makes of *source*; a warning is an error."""
    path = folder / "device.c"
    path.write_text(source)
    out = folder / "device.out"
    assert GCC is not None
    done = subprocess.run(
        [GCC, *FLAGS, *flags, str(path), "-o", str(out), "-lm"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return out


def caller(library: ctypes.CDLL, name: str) -> Call:
    operands, result = signature(name)

    def call(*arrays: Any) -> Array:
        given = [np.ascontiguousarray(a, NUMPY[t]) for a, t in zip(arrays, operands, strict=True)]
        out = np.empty(given[0].shape, NUMPY[result])
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (out, *given)]
        library[f"loop_{name}"](ctypes.c_int64(out.size), *pointers)
        return out

    return call


# One value in, one value out; the folds and dot products take vectors, compensated sums pairs:
# they are tested by themselves.
LOOPED = [
    name
    for name, part in FUNCTIONS.items()
    if name != "tc_fault" and part not in ("compensated", "dots")
    if not name.startswith("tc_fold_")
]


# Most functions of integers, which some tests need alone.
OF_INTEGERS = [
    name
    for name in LOOPED
    if name.rpartition("_")[2] in INTEGERS and not re.match("tc_(cast|place)", name)
]


def called(names: list[str], stem: str, factory: pytest.TempPathFactory) -> Callable[[str], Call]:
    """Return functions *names* over arrays, by name; compiled once for all workers.

    In halves, of which a worker compiles the second while another one has the first.
    """
    folder = factory.mktemp(stem)
    # An xdist worker's folders lie below the run's, which all workers see.
    base = factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    libraries = {}
    for wait_s in (0, -1):
        for half in range(2):
            shared = base / f"{stem}{half}.so"
            with suppress(Timeout), FileLock(f"{shared}.lock", timeout=wait_s):
                if not shared.exists():
                    source = header_text() + "".join(map(loop_text, names[half::2]))
                    compiled(source, folder, "-shared", "-fPIC").rename(shared)
                libraries[half] = ctypes.CDLL(str(shared))
    return lambda name: caller(libraries[names.index(name) % 2], name)


@pytest.fixture(scope="module")
def tc(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Call]:
    """Return the library's other functions over arrays, by name."""
    return called([n for n in LOOPED if n not in OF_INTEGERS], "device", tmp_path_factory)


@pytest.fixture(scope="module")
def tc_of_integers(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Call]:
    """Return functions of integers over arrays, by name."""
    return called(OF_INTEGERS, "integers", tmp_path_factory)


# --- parts ---------------------------------------------------------------------------------
@pytest.mark.parametrize("part", PARTS)
def test_a_part_defines_its_functions_with_nothing_but_core(part: str, tmp_path: Path) -> None:
    names = [name for name in FUNCTIONS if FUNCTIONS[name] == part]
    text = header_text(parts_for(names))
    assert text == header_text(frozenset({part}))
    source = text + "".join(loop_text(name) for name in names if name in LOOPED)
    compiled(source, tmp_path, "-fsyntax-only")


def test_parts_are_exactly_what_the_functions_need() -> None:
    assert parts_for([]) == {"core"}
    assert parts_for({"tc_exp_f32", "tc_cast_f32_f16"}) == {"core", "half", "math_f32"}
    assert parts_for({"tc_cast_f16_e4m3"}) == {"core", "half", "float8"}
    assert parts_for({"tc_exp_f64", "tc_j0_f32", "tc_fault"}) == {"core", "math_f64", "rare"}
    assert header_text(frozenset({"half"})).startswith(header_text(frozenset()))
    with pytest.raises(KeyError):
        parts_for({"tc_nosuch_f32"})


def test_every_builtin_of_the_language_is_there() -> None:
    builtins = words(
        "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh cospi erf erfc erfcinv"
        " erfcx erfinv exp exp10 exp2 expm1 fabs fdim floor fma fmax fmin fmod hypot lgamma log"
        " log10 log1p log2 logb nextafter norm3d norm4d normcdf normcdfinv pow rcbrt remainder"
        " rhypot rnorm3d rnorm4d round rsqrt sin sinh sinpi sqrt tan tanh tgamma trunc j0 j1 y0 y1"
        " cyl_bessel_i0 cyl_bessel_i1 abs sigmoid relu isnan isinf sign min max mod"
    )
    assert {f"tc_{name}_{t}" for name in builtins for t in FLOATS} <= FUNCTIONS.keys()
    casts = {f"tc_cast_{a}_{b}" for a in TYPES for b in TYPES if a != b}
    assert casts <= FUNCTIONS.keys()


ROWS, COLUMNS, STEPS = 3, 32, 37  # no multiple of a vector's terms
WITHOUT = ("", "-mno-avx512bf16", "-mno-avx512vnni", "-mno-avx512f", "-mno-avx2")


def dots(name: str, flag: str, folder: Path) -> Callable[..., None]:
    """Return the tile of dot products *name* as a function of sums, rows and columns."""
    functions = f"tc_dots_{name}"
    source = header_text(parts_for([functions])) + (
        "void run(void *sums, const void *a, const void *b)"
        f" {{ {functions}(sums, a, b, {ROWS}, {COLUMNS}, {STEPS}); }}"
    )
    flags = [flag] if flag else []
    library = ctypes.CDLL(str(compiled(source, folder, *flags, "-shared", "-fPIC")))
    return lambda *of: library.run(*(ctypes.c_void_p(x.ctypes.data) for x in of))


@pytest.mark.slow_but("i8_i8-", "u8_u8-", "i16--mno-avx2")
@pytest.mark.parametrize("flag", WITHOUT)
@pytest.mark.parametrize("name", [name for name in DOTS if name != "bf16"])
def test_dots_of_integers_are_exact(name: str, flag: str, tmp_path: Path) -> None:
    run = dots(name, flag, tmp_path)
    types = [NUMPY[one] for one in (name, name) if "_" not in name] or [
        NUMPY[one] for one in name.split("_")
    ]
    some = 2 if name == "i16" else 4
    rng = np.random.default_rng(len(name))
    for number in range(40):
        ends = [[np.iinfo(t).min, np.iinfo(t).max, 0, 1] for t in types]
        draw = [rng.choice(e, 5) for e in ends] if number % 2 else ends
        a = rng.choice(draw[0], (ROWS, STEPS, some)).astype(types[0])
        b = rng.choice(draw[1], (STEPS, COLUMNS, some)).astype(types[1])
        old = rng.choice([-(2**31), 2**31 - 1, 0, 77], (ROWS, COLUMNS)).astype(np.int32)
        sums = old.copy()
        run(sums, a, b)
        exact = old + np.einsum("rkt,kct->rc", a.astype(np.int64), b.astype(np.int64))
        np.testing.assert_array_equal(sums, exact.astype(np.int32))


# Factors' sizes, and sums' (None: 0), between powers of 2.  Factors are subnormal numbers, or no
# factors but sums, or products.
SIZES: dict[str, tuple[tuple[int, int], tuple[int, int], tuple[int, int] | None]] = {
    "usual": ((-3, 3), (-3, 3), (-3, 3)),
    "subnormal by large": ((-133, -120), (100, 127), (-20, 0)),
    "large by subnormal": ((100, 120), (-133, -120), (-20, 0)),
    "small sums": ((-70, -60), (-62, -50), (-149, -120)),
    "small products": ((-64, -63), (-64, -63), None),
    "the least that divide": ((-56, -50), (-56, -50), (-103, -100)),
}


@pytest.mark.slow_but("usual-", "subnormal by large-", "small products-")
@pytest.mark.parametrize("flag", WITHOUT)
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_dots_of_bfloat16_round_sums_alone(
    sizes: tuple[tuple[int, int], tuple[int, int], tuple[int, int] | None],
    flag: str,
    tmp_path: Path,
) -> None:
    """Within the bound of float32's sums of exact products, which subnormal numbers stay in."""
    run = dots("bf16", flag, tmp_path)
    rng = np.random.default_rng(7)

    def numbers(shape: tuple[int, ...], ends: tuple[int, int] | None) -> Array:
        if ends is None:
            return np.zeros(shape)
        found: Array = rng.choice([-1, 1], shape) * 2.0 ** rng.uniform(*ends, shape)
        return np.where(rng.random(shape) < 0.1, 0.0, found)

    for _ in range(20):
        a = numbers((ROWS, STEPS, 2), sizes[0]).astype(ml_dtypes.bfloat16)
        b = numbers((STEPS, COLUMNS, 2), sizes[1]).astype(ml_dtypes.bfloat16)
        old = numbers((ROWS, COLUMNS), sizes[2]).astype(np.float32)
        sums = old.copy()
        run(sums, a, b)
        wide = a.astype(np.float64), b.astype(np.float64)
        exact = old + np.einsum("rkt,kct->rc", *wide)
        size = np.abs(old) + np.einsum("rkt,kct->rc", *map(np.abs, wide))
        terms = 2 * STEPS + 1
        bound = terms * 2.0**-24 * size + terms * 2.0**-149
        assert (np.abs(sums - exact) <= bound).all()


def test_dots_of_bfloat16_keep_infinities_and_nan(tmp_path: Path) -> None:
    run = dots("bf16", "", tmp_path)
    a = np.ones((ROWS, STEPS, 2), ml_dtypes.bfloat16)
    b = np.full((STEPS, COLUMNS, 2), 2.0**-130, ml_dtypes.bfloat16)
    b[:, 0] = np.inf
    b[3, 1] = np.nan
    a[1] = 0  # times an infinity: NaN, and times a subnormal number 0
    a[2] = np.inf
    sums = np.zeros((ROWS, COLUMNS), np.float32)
    run(sums, a, b)
    expected = np.einsum("rkt,kct->rc", a.astype(np.float32), b.astype(np.float32))
    np.testing.assert_array_equal(sums, expected)


# --- integers ------------------------------------------------------------------------------
def bounds(dtype: str) -> tuple[int, int]:
    info = np.iinfo(NUMPY[dtype])
    return int(info.min), int(info.max)


def wrapped(value: int, dtype: str) -> int:
    low, high = bounds(dtype)
    return (value - low) % (high - low + 1) + low


def shifted(a: int, count: int, bits: int, *, left: bool) -> int:
    if 0 <= count < bits:
        return a << count if left else a >> count
    return 0 if left or a >= 0 else -1


def integer_references(bits: int) -> dict[str, Callable[[int, int], int]]:
    return {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "div": lambda a, b: a // b if b else 0,
        "mod": lambda a, b: a % b if b else 0,
        "min": min,
        "max": max,
        "shl": lambda a, b: shifted(a, b, bits, left=True),
        "shr": lambda a, b: shifted(a, b, bits, left=False),
        "arg_better_max": lambda a, b: int(a > b),
        "arg_better_min": lambda a, b: int(a < b),
    }


UNARY_INTEGERS: dict[str, Callable[[int], int]] = {
    "abs": abs,
    "neg": lambda a: -a,
    "sign": lambda a: (a > 0) - (a < 0),
    "relu": lambda a: max(a, 0),
}


def integer_samples(dtype: str) -> list[int]:
    low, high = bounds(dtype)
    if NUMPY[dtype].itemsize == 1:
        return list(range(low, high + 1))
    near = [v + d for v in (low, low // 2, 0, high // 2, high) for d in range(-4, 5)]
    random = np.random.default_rng(1).integers(low, high, 40, NUMPY[dtype], endpoint=True)
    shifts = [7, 8, 15, 16, 31, 32, 63, 64, 65, 1000, -1000, 2**53 + 1]
    values = {*near, *map(int, random), *shifts, *(int(v) >> 20 for v in random)}
    return sorted(v for v in values if low <= v <= high)


@pytest.mark.slow_but("i16", "u32", "u64")
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_agree_with_python(tc_of_integers: Callable[[str], Call], dtype: str) -> None:
    samples = integer_samples(dtype)
    a = np.repeat(np.array(samples, NUMPY[dtype]), len(samples))
    b = np.tile(np.array(samples, NUMPY[dtype]), len(samples))
    pairs = [(x, y) for x in samples for y in samples]
    for name, reference in integer_references(8 * NUMPY[dtype].itemsize).items():
        want = [wrapped(reference(x, y), dtype) for x, y in pairs]
        got = tc_of_integers(f"tc_{name}_{dtype}")(a, b).tolist()
        wrong = [(p, g, w) for p, g, w in zip(pairs, got, want, strict=True) if g != w]
        assert not wrong, (name, wrong[:5])
    for name, unary in UNARY_INTEGERS.items():
        got = tc_of_integers(f"tc_{name}_{dtype}")(np.array(samples, NUMPY[dtype])).tolist()
        assert got == [wrapped(unary(x), dtype) for x in samples], name


def test_a_constant_divisor_floors_too(tmp_path: Path) -> None:
    divisors = (-128, -7, -1, 0, 1, 2, 3, 100, 127)
    source = header_text(frozenset()) + "".join(
        f"int8_t d{i}(int8_t a) {{ return tc_div_i8(a, {d}); }}\n"
        f"int8_t m{i}(int8_t a) {{ return tc_mod_i8(a, {d}); }}\n"
        for i, d in enumerate(divisors)
    )
    library = ctypes.CDLL(str(compiled(source, tmp_path, "-shared", "-fPIC")))
    for i, d in enumerate(divisors):
        quotient, remainder = library[f"d{i}"], library[f"m{i}"]
        for function in (quotient, remainder):
            function.restype, function.argtypes = ctypes.c_int8, [ctypes.c_int8]
        for a in range(-128, 128):
            assert quotient(a) == (wrapped(a // d, "i8") if d else 0), (a, d)
            assert remainder(a) == (a % d if d else 0), (a, d)


def test_bools_combine(tc: Callable[[str], Call]) -> None:
    a, b = [0, 0, 1, 1], [0, 1, 0, 1]
    assert tc("tc_min_b")(a, b).tolist() == [0, 0, 0, 1]
    assert tc("tc_max_b")(a, b).tolist() == [0, 1, 1, 1]
    assert tc("tc_arg_better_max_b")(a, b).tolist() == [0, 0, 1, 0]
    assert tc("tc_arg_better_min_b")(a, b).tolist() == [0, 1, 0, 0]
    for name in ("abs", "sign", "relu"):
        assert tc(f"tc_{name}_b")(a).tolist() == a


def test_places_are_ordered_by_values_and_the_first_is_the_largest(
    tc: Callable[[str], Call],
) -> None:
    values = [-np.inf, -2.0, -1e-42, -0.0, 0.0, 1e-42, 2.0, np.inf, np.nan]
    places = [*range(len(values))]
    placed = tc("tc_placed_max_f32")(values, places)
    assert tc("tc_place_of_i64")(placed).tolist() == places
    assert np.argsort(placed).tolist() == [0, 1, 2, 4, 3, 5, 6, 7, 8], "of zeros the first"
    placed = tc("tc_placed_min_f32")(values, places)
    assert np.argsort(placed).tolist() == [7, 6, 5, 4, 3, 2, 1, 0, 8], "a NaN is the extreme"
    numbers = [-(2**31), -1, 0, 0, 7, 2**31 - 1]
    for way, last in (("max", 5), ("min", 0)):
        placed = tc(f"tc_placed_{way}_i32")(numbers, [*range(6)])
        assert int(np.argmax(placed)) == last and placed[2] > placed[3]
    nothing = np.iinfo(np.int64).min
    assert tc("tc_place_of_i64")([nothing]).tolist() == [-1] and placed.min() > nothing


# --- casts ---------------------------------------------------------------------------------
def value_samples(dtype: str) -> Array:
    """Return values of *dtype* (halves as their bits) around every limit of every other type."""
    if dtype == "b":
        return np.array([0, 1], np.uint8)
    if dtype in NARROW:
        return np.arange(2 ** (8 * NUMPY[dtype].itemsize)).astype(NUMPY[dtype])
    if dtype in INTEGERS:
        return np.array(integer_samples(dtype), NUMPY[dtype])
    powers = [2.0**e for e in (-1074, -149, -133, -25, -24, -14, -1, *range(0, 66), 127, 1023)]
    powers += [65504.0, 65519.0, 65520.0, 65536.0, 100.7, 3.3895313892515355e38, 1e-40]
    type_ = NUMPY[dtype].type
    with np.errstate(all="ignore"):
        exact = np.array([*powers, 0.0, np.inf, np.nan]).astype(type_)
    finite = exact[np.isfinite(exact)]
    finite = finite[np.abs(finite) < np.finfo(type_).max / 2]
    steps = [np.nextafter(finite, type_(s * np.inf)) for s in (1, -1)]
    odd = np.concatenate([finite + type_(0.5), finite * type_(1.0009765625), finite * type_(1.5)])
    noise = np.exp2(np.random.default_rng(2).uniform(-30, 30, 500)).astype(type_)
    positive = np.concatenate([exact, *steps, odd, noise])
    return np.concatenate([positive, -positive])


def as_number(value: Any, dtype: str) -> Any:
    """Return a stored value as a Python int or float."""
    if dtype in NARROW:
        kind = NARROW[dtype]
        return float(np.array(value, f"u{np.dtype(kind).itemsize}").view(kind))
    return value.item()


# Bits of the significand, the least exponent, and the exponent from which on nothing is finite.
PRECISION = {
    "e4m3": (4, -6, 9), "e5m2": (3, -14, 16), "f16": (11, -14, 16), "bf16": (8, -126, 128),
    "f32": (24, -126, 128),
}  # fmt: skip


def rounded(value: int | float, dtype: str) -> float:
    """Return *value* rounded once, to nearest even, to a float type."""
    if value != value or value in (math.inf, -math.inf) or value == 0:
        return math.nan if dtype == "e4m3" and value else float(value)
    if dtype == "f64":
        return float(value)
    digits, least, beyond = PRECISION[dtype]
    exact = abs(Fraction(value))
    exponent = exact.numerator.bit_length() - exact.denominator.bit_length()
    exponent -= exact < Fraction(2) ** exponent
    quantum = Fraction(2) ** (max(exponent, least) - digits + 1)
    result = round(exact / quantum) * quantum  # Python rounds halves to even
    magnitude = math.inf if result >= Fraction(2) ** beyond else float(result)
    if dtype == "e4m3" and magnitude > 448:
        return math.nan
    return math.copysign(magnitude, value)


def converted(value: int | float, to: str) -> int | float:
    if to == "b":
        return int(value != 0)
    if to not in INTEGERS:
        return rounded(value, to)
    if isinstance(value, int):
        return wrapped(value, to)
    low, high = bounds(to)
    if value != value:
        return 0
    return min(max(math.trunc(value), low), high) if math.isfinite(value) else (
        high if value > 0 else low
    )  # fmt: skip


def same(got: Any, want: Any) -> bool:
    if want != want:
        return bool(got != got)
    return bool(got == want) and math.copysign(1, got) == math.copysign(1, want)


@pytest.mark.parametrize("from_", TYPES)
def test_casts_round_once_saturate_and_wrap(tc: Callable[[str], Call], from_: str) -> None:
    samples = value_samples(from_)
    if samples.size > 4000:  # the whole of it is tested against NumPy, below
        samples = samples[np.random.default_rng(3).permutation(samples.size)[:2000]]
    numbers = [as_number(v, from_) for v in samples]
    for to in TYPES:
        if to == from_:
            continue
        got = [as_number(v, to) for v in tc(f"tc_cast_{from_}_{to}")(samples)]
        want = [converted(v, to) for v in numbers]
        wrong = [(v, g, w) for v, g, w in zip(numbers, got, want, strict=True) if not same(g, w)]
        assert not wrong, (to, wrong[:5])


@pytest.mark.parametrize("half, numpy_type", NARROW.items())
def test_narrow_floats_agree_with_numpy_on_all_their_values(
    tc: Callable[[str], Call], half: str, numpy_type: Any
) -> None:
    stored = NUMPY[half]
    bits = np.arange(2 ** (8 * stored.itemsize)).astype(stored)
    want = bits.view(numpy_type).astype(np.float32)
    got = tc(f"tc_{half}_to_f32")(bits)
    assert np.array_equal(got, want, equal_nan=True)
    numbers = ~np.isnan(want)
    assert np.array_equal(got.view(np.uint32)[numbers], want.view(np.uint32)[numbers])
    assert np.array_equal(tc(f"tc_f32_to_{half}")(got)[numbers], bits[numbers])
    assert np.array_equal(tc(f"tc_f64_to_{half}")(got[numbers]), bits[numbers])
    assert np.isnan(tc(f"tc_f32_to_{half}")(got).view(numpy_type)[~numbers]).all()


@pytest.mark.parametrize("half, numpy_type", NARROW.items())
def test_rounding_to_narrow_floats_agrees_with_numpy(
    tc: Callable[[str], Call], half: str, numpy_type: Any
) -> None:
    # Every number, the midpoint to its neighbour, and a float32 to either side of that.
    stored = NUMPY[half]
    bits = np.arange(2 ** (8 * stored.itemsize)).astype(stored)
    exact = bits.view(numpy_type).astype(np.float32)
    finite = exact[np.isfinite(exact)]
    tail = np.uint32(2 ** (24 - PRECISION[half][0] - 1))
    values = finite.view(np.uint32)[:, None] + np.array([0, tail - 1, tail, tail + 1], np.uint32)
    floats = values.ravel().view(np.float32)
    with np.errstate(over="ignore"):
        want = floats.astype(numpy_type).view(stored)
    assert np.array_equal(tc(f"tc_f32_to_{half}")(floats), want)
    assert np.array_equal(tc(f"tc_f64_to_{half}")(floats), want)


# --- floats: accuracy ----------------------------------------------------------------------
# The greatest error, in units in the last place, that a function may have: (float32, float64).
ULPS: dict[str, tuple[float, float]] = {
    # Hot: ours, vectorised, with room for machines without fma; some float64 ones are libm's.
    "exp": (1, 1), "exp2": (1.25, 1.25), "exp10": (1.25, 1.5), "expm1": (1.25, 1.5),
    "log": (1, 1), "log2": (2, 2), "log10": (1.75, 2), "log1p": (1.5, 1.5),
    "tanh": (1.75, 2), "sigmoid": (1.75, 2.25), "erf": (1.25, 1), "sqrt": (0.5, 0.5),
    "rsqrt": (1.5, 1.5), "sin": (1.75, 1), "cos": (1.75, 1), "pow": (0.75, 1),
    "tan": (4, 1), "sinpi": (1.75, 2), "cospi": (1.75, 2), "sinh": (2.5, 2.5),
    "cosh": (1.75, 1.75), "asin": (2, 1), "acos": (1.5, 1), "atan": (2.25, 1),
    # Rare: libm's, or in float64.
    "pow_2": (0.5001, 0.5), "pow_3": (2, 2), "pow_4": (3, 3), "pow_m1": (0.5001, 0.5),
    "pow_1_2": (0.5001, 0.5), "pow_3_2": (2, 2), "pow_m1_2": (1.5, 1.5),
    "acosh": (3, 3), "asinh": (3, 3), "atanh": (3, 3), "cbrt": (1, 4), "rcbrt": (0.5001, 5),
    "atan2": (1, 1), "hypot": (0.5001, 1), "rhypot": (0.5001, 2), "erfc": (0.5001, 5),
    "erfcx": (0.5001, 8), "erfinv": (0.5001, 4), "erfcinv": (0.5001, 4), "normcdf": (0.5001, 8),
    "normcdfinv": (0.5001, 4), "tgamma": (0.5001, 10), "lgamma": (0.5001, 8),
    "cyl_bessel_i0": (0.5001, 8), "cyl_bessel_i1": (0.5001, 8),
    "fmod": (0, 0), "remainder": (0, 0), "fdim": (0.5, 0.5), "fma": (0.5, 0.5), "mad": (2e7, 1e16),
    "norm3d": (0.5001, 2), "norm4d": (0.5001, 3), "rnorm3d": (0.5001, 3), "rnorm4d": (0.5001, 3),
}  # fmt: skip
# Where mpmath is asked, in float64 and for what is not hot: about this many points.
POINTS = 300
# (low, high) of the arguments where it is not the whole line.
DOMAINS: dict[str, tuple[float, float]] = {
    "erf": (-30, 30), "erfc": (-8, 27.5), "erfcx": (-27, 60), "erfinv": (-1, 1),
    "erfcinv": (0, 2), "normcdf": (-39, 9), "normcdfinv": (0, 1), "tgamma": (0.01, 172),
    "lgamma": (3, 1e6), "cyl_bessel_i0": (-720, 720), "cyl_bessel_i1": (-720, 720),
    "asin": (-1, 1), "acos": (-1, 1), "atanh": (-1, 1), "sinpi": (-50, 50), "cospi": (-50, 50),
    "sin": (-1e5, 1e5), "cos": (-1e5, 1e5), "tan": (-1e5, 1e5), "acosh": (1, 1e9),
    "tanh": (-25, 25), "sigmoid": (-750, 750), "exp": (-750, 715), "exp2": (-1080, 1030),
    "exp10": (-330, 310), "expm1": (-50, 715), "sinh": (-720, 720), "cosh": (-720, 720),
    "log1p": (-1, 50),
}  # fmt: skip
MPMATH: dict[str, Callable[..., Any]] = {
    "exp2": lambda x: mpmath.power(2, x),
    "exp10": lambda x: mpmath.power(10, x),
    "log2": lambda x: mpmath.log(x, 2),
    "sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)),
    "pow": mpmath.power,
    "pow_2": lambda x: x**2,
    "pow_3": lambda x: x**3,
    "pow_4": lambda x: x**4,
    "pow_m1": lambda x: 1 / x,
    "pow_1_2": mpmath.sqrt,
    "pow_3_2": lambda x: mpmath.power(x, 1.5),
    "pow_m1_2": lambda x: 1 / mpmath.sqrt(x),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "cbrt": lambda x: mpmath.sign(x) * mpmath.root(abs(x), 3),
    "rcbrt": lambda x: mpmath.sign(x) / mpmath.root(abs(x), 3),
    "erfcx": lambda x: mpmath.exp(x * x) * mpmath.erfc(x),
    "erfcinv": lambda p: mpmath_erfcinv(p),
    "normcdf": lambda x: mpmath.erfc(-x / mpmath.sqrt(2)) / 2,
    "normcdfinv": lambda p: -mpmath.sqrt(2) * mpmath_erfcinv(2 * p),
    "tgamma": mpmath.gamma,
    "lgamma": mpmath.loggamma,
    "cyl_bessel_i0": lambda x: mpmath.besseli(0, x),
    "cyl_bessel_i1": lambda x: mpmath.besseli(1, x),
    "rhypot": lambda x, y: 1 / mpmath.hypot(x, y),
    "norm3d": lambda *v: mpmath.norm(v),
    "norm4d": lambda *v: mpmath.norm(v),
    "rnorm3d": lambda *v: 1 / mpmath.norm(v),
    "rnorm4d": lambda *v: 1 / mpmath.norm(v),
    "fdim": lambda x, y: max(x - y, mpmath.mpf(0)),
    "fma": lambda x, y, z: x * y + z,
    "mad": lambda x, y, z: x * y + z,
    "fmod": lambda x, y: mpmath.sign(x) * mpmath.fmod(abs(x), abs(y)),
    "remainder": lambda x, y: x - y * mpmath.nint(x / y),
}


def mpmath_erfcinv(p: Any) -> Any:
    """Return y with erfc y = p; mpmath's own erfinv loses the tail."""
    if p > 0.5:
        return mpmath.erfinv(1 - p)
    start = mpmath.sqrt(-mpmath.log(p))
    return mpmath.findroot(lambda y: mpmath.log(mpmath.erfc(y) / p), start, tol=1e-60)


def ulp_errors(got: Array, want: list[Any]) -> Iterator[float]:
    """Yield |got - want| in units in the last place of *got*'s type; infinite for overflows."""
    digits, least = (24, -126) if got.dtype == np.float32 else (53, -1022)
    largest = float(np.finfo(got.dtype).max)
    for g, w in zip(got.tolist(), want, strict=True):
        if w == 0:
            yield 0.0 if g == 0 else math.inf
            continue
        exponent = max(int(mpmath.floor(mpmath.log(abs(w), 2))), least)
        if abs(w) > largest:  # rounds to infinity, or is within half a unit of the largest
            yield 0.0 if abs(g) >= largest and g * w > 0 else math.inf
        elif not math.isfinite(g):
            near = abs(w) > largest * (1 - 2.0 ** (1 - digits))
            yield 1.0 if near and g * w > 0 else math.inf
        else:
            yield float(abs(g - w) / mpmath.mpf(2) ** (exponent - digits + 1))


def float_samples(name: str, dtype: str, count: int, seed: int = 4) -> Array:
    """Return arguments: even over the domain, over its exponents, and close to 0 and 1."""
    rng = np.random.default_rng(seed)
    low, high = DOMAINS.get(name, (-1e9, 1e9))
    even = rng.uniform(low, high, count // 3)
    tiny = -300.0 if dtype == "f64" and name not in BINARY else -30.0
    spread = rng.choice([-1, 1], count // 3) * np.exp2(rng.uniform(tiny, 30, count // 3))
    near = rng.choice([0.0, 1.0, -1.0], count // 3) + rng.uniform(-1, 1, count // 3) ** 3
    values = np.concatenate([even, spread, near]).astype(NUMPY[dtype])
    kept: Array = values[(values >= low) & (values <= high) & (values != 0)]
    return kept


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", ULPS)
def test_accuracy(tc: Callable[[str], Call], name: str, dtype: str) -> None:
    operands, _ = signature(f"tc_{name}_{dtype}")
    rows = [float_samples(name, dtype, POINTS, seed) for seed in range(len(operands))]
    if len(rows) > 1:
        least = min(map(len, rows))
        rows = [np.clip(row[:least], -1e3, 1e3) for row in rows]
    reference = MPMATH.get(name) or getattr(mpmath, name)
    got = tc(f"tc_{name}_{dtype}")(*rows)
    points, want = [], []
    with mpmath.workprec(300):
        for i, point in enumerate(zip(*(row.tolist() for row in rows), strict=True)):
            try:
                value = reference(*map(mpmath.mpf, point))
            except (ValueError, ZeroDivisionError):  # a pole or outside of the domain
                value = None
            if value is None or not isinstance(value, mpmath.mpf) or not mpmath.isfinite(value):
                assert not math.isfinite(got[i]), point
                continue
            points.append(i)
            want.append(value)
        errors = list(ulp_errors(got[points], want))
    assert len(points) > POINTS // 4
    worst = int(np.argmax(errors))
    where = [row[points[worst]] for row in rows]
    limit = ULPS[name][FLOATS.index(dtype)]
    assert errors[worst] <= limit, (errors[worst], where, got[points[worst]], want[worst])


# NumPy in float64 is exact enough for float32, and quick enough for a million points.
DENSE: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2,
    "log10": np.log10, "log1p": np.log1p, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "tanh": np.tanh, "sinh": np.sinh, "cosh": np.cosh, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": np.vectorize(math.erf, otypes=[float]),
    **{
        f"pow_{name}": (lambda x, y=y: np.power(x, y))
        for name, y in (("2", 2.0), ("3", 3.0), ("4", 4.0), ("m1", -1.0), ("1_2", 0.5),
                        ("3_2", 1.5), ("m1_2", -0.5))
    },
    "exp10": lambda x: np.power(10.0, x), "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x),
}  # fmt: skip


@pytest.mark.parametrize("name", DENSE)
def test_accuracy_over_all_of_float32(tc: Callable[[str], Call], name: str) -> None:
    step = 99991 if name == "erf" else 7919  # every so many bit patterns: all exponents, both signs
    x = np.arange(0, 2**32, step, dtype=np.uint32).view(np.float32)
    got = tc(f"tc_{name}_f32")(x)
    with np.errstate(all="ignore"):
        want = DENSE[name](x.astype(np.float64))
        rounds_to = want.astype(np.float32)
    assert np.array_equal(np.isnan(got), np.isnan(want))
    finite = np.isfinite(rounds_to)
    overflowed = np.isinf(rounds_to)
    assert np.array_equal(got[overflowed], rounds_to[overflowed])
    exponents = np.frexp(want[finite])[1] - 1
    units = np.exp2(np.maximum(exponents, -126) - 23.0)
    errors = np.abs(got[finite].astype(np.float64) - want[finite]) / units
    worst = int(np.argmax(errors))
    assert errors[worst] <= ULPS[name][0], (errors[worst], x[finite][worst])


@pytest.mark.parametrize("dtype", FLOATS)
def test_bessel_functions_of_the_first_and_second_kind(
    tc: Callable[[str], Call], dtype: str
) -> None:
    # Their zeros make relative errors meaningless: an absolute limit, as they are at most 1.
    x = np.random.default_rng(6).uniform(1, 60, 200).astype(NUMPY[dtype])
    limit = 1e-7 if dtype == "f32" else 1e-15
    for name, bessel in (("j", mpmath.besselj), ("y", mpmath.bessely)):
        for order in (0, 1):
            want = [float(bessel(order, mpmath.mpf(v))) for v in x.tolist()]
            got = tc(f"tc_{name}{order}_{dtype}")(x)
            assert np.allclose(got, want, rtol=0, atol=limit), (name, order)


def test_pow_over_many_exponents(tc: Callable[[str], Call]) -> None:
    rng = np.random.default_rng(7)
    x = np.exp2(rng.uniform(-149, 128, 200_000)).astype(np.float32)
    y = (rng.uniform(-160, 130, x.size) / np.log2(x)).astype(np.float32)
    got = tc("tc_pow_f32")(x, y)
    with np.errstate(all="ignore"):
        want = np.power(x.astype(np.longdouble), y.astype(np.longdouble)).astype(np.float64)
        rounds_to = want.astype(np.float32)
    finite = np.isfinite(rounds_to)
    assert np.isinf(got[~finite]).all()
    units = np.exp2(np.maximum(np.frexp(want[finite])[1] - 1, -126) - 23.0)
    assert (np.abs(got[finite] - want[finite]) <= ULPS["pow"][0] * units).all()


# --- floats: special values ----------------------------------------------------------------
INF, NAN = math.inf, math.nan
SPECIAL: dict[str, list[tuple[float, ...]]] = {  # operands, then the result
    "exp": [(0.0, 1), (-0.0, 1), (INF, INF), (-INF, 0.0), (NAN, NAN), (1e4, INF), (-1e4, 0.0)],
    "exp2": [(0.0, 1), (INF, INF), (-INF, 0.0), (NAN, NAN), (10, 1024), (-3, 0.125)],
    "exp10": [(0.0, 1), (INF, INF), (-INF, 0.0), (NAN, NAN)],
    "expm1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -1), (NAN, NAN), (1e-40, 1e-40)],
    "log": [(1, 0.0), (0.0, -INF), (-0.0, -INF), (-1, NAN), (INF, INF), (-INF, NAN), (NAN, NAN)],
    "log2": [(8, 3), (1, 0.0), (0.0, -INF), (-1, NAN), (INF, INF), (2**-60, -60)],
    "log10": [(1, 0.0), (0.0, -INF), (-1, NAN), (INF, INF), (NAN, NAN)],
    "log1p": [(0.0, 0.0), (-0.0, -0.0), (-1, -INF), (-2, NAN), (INF, INF), (-INF, NAN),
              (NAN, NAN), (1e-40, 1e-40)],
    "tanh": [(0.0, 0.0), (-0.0, -0.0), (INF, 1), (-INF, -1), (NAN, NAN), (1e-40, 1e-40)],
    "sigmoid": [(0.0, 0.5), (-0.0, 0.5), (INF, 1), (-INF, 0.0), (NAN, NAN)],
    "erf": [(0.0, 0.0), (-0.0, -0.0), (INF, 1), (-INF, -1), (NAN, NAN), (-9, -1)],
    "sqrt": [(4, 2), (-0.0, -0.0), (-1, NAN), (INF, INF)],
    "rsqrt": [(4, 0.5), (0.0, INF), (-0.0, -INF), (-1, NAN), (INF, 0.0)],
    "sin": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (-INF, NAN), (NAN, NAN), (1e-40, 1e-40)],
    "cos": [(0.0, 1), (-0.0, 1), (INF, NAN), (NAN, NAN)],
    "tan": [(0.0, 0.0), (-0.0, -0.0), (INF, NAN), (NAN, NAN)],
    "sinpi": [(0.0, 0.0), (-0.0, -0.0), (1, 0.0), (-1, -0.0), (0.5, 1), (1.5, -1), (-0.5, -1),
              (2**30, 0.0), (INF, NAN), (NAN, NAN)],
    "cospi": [(0.0, 1), (0.5, 0.0), (1, -1), (1.5, 0.0), (-2.5, 0.0), (2**30, 1), (INF, NAN)],
    "sinh": [(-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN), (1e-40, 1e-40)],
    "cosh": [(0.0, 1), (INF, INF), (-INF, INF), (NAN, NAN)],
    "asin": [(-0.0, -0.0), (2, NAN), (NAN, NAN)],
    "acos": [(1, 0.0), (2, NAN), (-2, NAN), (NAN, NAN)],
    "atan": [(-0.0, -0.0), (NAN, NAN)],
    "pow": [(2, 10, 1024), (-2, 3, -8), (-2, 2, 4), (-2, 0.5, NAN), (NAN, 0.0, 1), (1, NAN, 1),
            (1, INF, 1), (-1, INF, 1), (-1, -INF, 1), (0.0, 0.0, 1), (0.0, -1, INF),
            (-0.0, -1, -INF), (-0.0, -2, INF), (-0.0, 3, -0.0), (0.0, 0.5, 0.0), (INF, 2, INF),
            (INF, -1, 0.0), (-INF, 3, -INF), (-INF, -3, -0.0), (-INF, 0.5, INF), (0.5, INF, 0.0),
            (2, INF, INF), (2, -INF, 0.0), (NAN, 1, NAN), (2, NAN, NAN), (-1, 2**30, 1),
            (10, 400, INF), (-10, 401, -INF), (10, -400, 0.0), (-1, 0.3, NAN)],
    "pow_2": [(-0.0, 0.0), (-3, 9), (-INF, INF), (NAN, NAN), (0.0, 0.0)],
    "pow_3": [(-0.0, -0.0), (-2, -8), (-INF, -INF), (NAN, NAN)],
    "pow_4": [(-0.0, 0.0), (-2, 16), (-INF, INF), (NAN, NAN)],
    "pow_m1": [(-0.0, -INF), (0.0, INF), (-INF, -0.0), (NAN, NAN), (4, 0.25)],
    "pow_1_2": [(-0.0, 0.0), (0.0, 0.0), (-INF, INF), (INF, INF), (-1, NAN), (NAN, NAN), (9, 3)],
    "pow_3_2": [(-0.0, 0.0), (0.0, 0.0), (-INF, INF), (INF, INF), (-1, NAN), (NAN, NAN), (4, 8)],
    "pow_m1_2": [(-0.0, INF), (0.0, INF), (-INF, 0.0), (INF, 0.0), (-1, NAN), (NAN, NAN),
                 (4, 0.5)],
    "floor": [(-0.5, -1), (0.5, 0.0), (-0.0, -0.0), (INF, INF), (NAN, NAN), (2**30, 2**30)],
    "ceil": [(-0.5, -0.0), (0.5, 1), (-INF, -INF), (NAN, NAN)],
    "trunc": [(-1.5, -1), (1.5, 1), (-0.5, -0.0), (NAN, NAN)],
    "round": [(0.5, 1), (-0.5, -1), (1.5, 2), (2.5, 3), (-2.5, -3), (0.49999997, 0.0),
              (-0.3, -0.0), (-0.0, -0.0), (2**23 + 1, 2**23 + 1), (INF, INF), (NAN, NAN)],
    "fabs": [(-0.0, 0.0), (-INF, INF), (NAN, NAN), (-3, 3)],
    "abs": [(-0.0, 0.0), (-INF, INF), (NAN, NAN), (-3, 3)],
    "neg": [(0.0, -0.0), (-0.0, 0.0), (3, -3), (INF, -INF)],
    "sign": [(3, 1), (-3, -1), (0.0, 0.0), (-0.0, 0.0), (NAN, NAN), (-INF, -1), (1e-40, 1)],
    "relu": [(3, 3), (-3, 0.0), (0.0, 0.0), (NAN, NAN), (-INF, 0.0), (INF, INF)],
    "isnan": [(NAN, 1), (1, 0), (INF, 0)],
    "isinf": [(NAN, 0), (1, 0), (INF, 1), (-INF, 1)],
    "div": [(6, 3, 2), (-1, 0.0, -INF), (0.0, 0.0, NAN), (1, INF, 0.0), (INF, INF, NAN),
            (NAN, 1, NAN), (INF, -2, -INF), (1e-40, 1e-40, 1), (0.0, 5, 0.0)],
    "copysign": [(3, -0.0, -3), (-3, 1, 3), (NAN, 1, NAN), (-INF, 0.0, INF)],
    "min": [(1, 2, 1), (NAN, 1, NAN), (1, NAN, NAN), (INF, -INF, -INF)],
    "max": [(1, 2, 2), (NAN, 1, NAN), (1, NAN, NAN), (INF, -INF, INF)],
    "fmin": [(1, 2, 1), (2, 1, 1), (NAN, 1, 1), (1, NAN, 1), (NAN, NAN, NAN)],
    "fmax": [(1, 2, 2), (2, 1, 2), (NAN, 1, 1), (1, NAN, 1), (NAN, NAN, NAN)],
    "fdim": [(3, 1, 2), (1, 3, 0.0), (INF, INF, 0.0), (INF, 1, INF), (NAN, 1, NAN), (1, NAN, NAN)],
    "fma": [(2, 3, 4, 10), (INF, 0.0, 1, NAN)],
    "mad": [(2, 3, 4, 10), (INF, 0.0, 1, NAN)],
    "mod": [(5, 3, 2), (-5, 3, 1), (5, -3, -1), (-5, -3, -2), (6, -3, -0.0), (-6, 3, 0.0),
            (5.5, 2, 1.5), (1, 0.0, NAN), (INF, 2, NAN), (-1, INF, INF), (1, INF, 1),
            (NAN, 1, NAN)],
    "fmod": [(5, 3, 2), (-5, 3, -2), (5, -3, 2), (1, 0.0, NAN), (1, INF, 1)],
    "remainder": [(5, 3, -1), (2.5, 1, 0.5), (3.5, 1, -0.5)],
    "hypot": [(3, 4, 5), (INF, NAN, INF), (NAN, 1, NAN), (-3, 0.0, 3)],
    "rhypot": [(3, 4, 0.2), (INF, NAN, 0.0), (0.0, 0.0, INF), (NAN, 1, NAN)],
    "norm3d": [(2, 3, 6, 7), (NAN, 1, -INF, INF), (NAN, 1, 1, NAN), (0.0, -0.0, 0.0, 0.0)],
    "norm4d": [(2, 4, 5, 6, 9), (1, NAN, 1, -INF, INF), (1, 1, 1, NAN, NAN)],
    "rnorm3d": [(0.0, 0.0, 2, 0.5), (1, NAN, INF, 0.0), (0.0, 0.0, 0.0, INF)],
    "rnorm4d": [(1, 1, 1, 1, 0.5), (1, NAN, 1, INF, 0.0), (0.0, 0.0, 0.0, 0.0, INF)],
    "atan2": [(0.0, 1, 0.0), (-0.0, 1, -0.0), (NAN, 1, NAN)],
    "nextafter": [(1, 1, 1), (0.0, 0.0, 0.0), (NAN, 1, NAN)],
    "cbrt": [(8, 2), (-8, -2), (-0.0, -0.0), (INF, INF)],
    "rcbrt": [(8, 0.5), (-0.0, -INF), (INF, 0.0)],
    "logb": [(8, 3), (0.3, -2), (0.0, -INF), (-INF, INF), (NAN, NAN)],
    "tgamma": [(5, 24), (0.0, INF), (-1, NAN), (NAN, NAN)],
    "lgamma": [(1, 0.0), (2, 0.0), (0.0, INF), (-1, INF), (INF, INF), (NAN, NAN)],
    "erfc": [(0.0, 1), (INF, 0.0), (-INF, 2), (NAN, NAN)],
    "erfcx": [(0.0, 1), (INF, 0.0), (-INF, INF), (NAN, NAN), (-30, INF)],
    "erfinv": [(0.0, 0.0), (-0.0, -0.0), (1, INF), (-1, -INF), (2, NAN), (NAN, NAN)],
    "erfcinv": [(0.0, INF), (1, 0.0), (2, -INF), (-1, NAN), (3, NAN), (NAN, NAN)],
    "normcdf": [(0.0, 0.5), (INF, 1), (-INF, 0.0), (NAN, NAN)],
    "normcdfinv": [(0.0, -INF), (0.5, -0.0), (1, INF), (NAN, NAN), (2, NAN)],
    "cyl_bessel_i0": [(0.0, 1), (INF, INF), (-INF, INF), (NAN, NAN)],
    "cyl_bessel_i1": [(0.0, 0.0), (-0.0, -0.0), (INF, INF), (-INF, -INF), (NAN, NAN)],
    "j0": [(0.0, 1), (INF, 0.0), (NAN, NAN)],
    "j1": [(0.0, 0.0), (INF, 0.0), (NAN, NAN)],
    "y0": [(0.0, -INF), (NAN, NAN)],
    "y1": [(0.0, -INF), (NAN, NAN)],
    "acosh": [(1, 0.0), (0.5, NAN), (INF, INF)],
    "asinh": [(-0.0, -0.0), (-INF, -INF)],
    "atanh": [(-0.0, -0.0), (1, INF), (-1, -INF), (2, NAN)],
    "arg_better_max": [(2, 1, 1), (1, 1, 0), (1, 2, 0), (NAN, 1, 1), (1, NAN, 0), (NAN, NAN, 0),
                       (NAN, INF, 1)],
    "arg_better_min": [(2, 1, 0), (1, 1, 0), (1, 2, 1), (NAN, 1, 1), (1, NAN, 0), (NAN, NAN, 0),
                       (NAN, -INF, 1)],
}  # fmt: skip


def test_every_float_function_has_special_values() -> None:
    floats = {n.removeprefix("tc_").removesuffix("_f32") for n in LOOPED if n.endswith("_f32")}
    floats -= {"exp_nonpositive", "exp_addend", "placed_max", "placed_min"}  # below and above
    assert {n for n in floats if not n.startswith("cast") and "_to" not in n} == SPECIAL.keys()


def test_exp_of_what_is_not_above_0(tc: Callable[[str], Call]) -> None:
    x = np.concatenate([[0, -0.0, -np.inf, np.nan, -3e38, -1e-30], -np.linspace(0, 110, 5001)])
    x = x.astype(np.float32)
    want = np.exp(np.delete(x, 3).astype(np.float64))
    for name, least in (("nonpositive", 2.0**-149), ("addend", 2.0**-126)):
        got = tc(f"tc_exp_{name}_f32")(x)
        assert np.isnan(got[3]), name
        error = np.abs(np.delete(got, 3) - want)
        units = 9 if name == "nonpositive" else 5 - 1.22 * np.delete(x, 3).clip(-999)
        assert (error <= units * (want * 2.0**-24) + least * 9).all(), name
        assert ((got > 0) & (got < least)).sum() == 0, name


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", SPECIAL)
def test_special_values(tc: Callable[[str], Call], name: str, dtype: str) -> None:
    cases = SPECIAL[name]
    columns = [np.array(column, NUMPY[dtype]) for column in zip(*cases, strict=True)]
    # Forty of each: a vector loop and its scalar remainder must agree.
    got = tc(f"tc_{name}_{dtype}")(*(np.tile(column, 41) for column in columns[:-1]))
    for i, (value, want) in enumerate(zip(got, np.tile(columns[-1], 41), strict=True)):
        assert same(value, want), (cases[i % len(cases)], value)


@pytest.mark.parametrize("dtype", FLOATS)
def test_norms_neither_overflow_nor_vanish(tc: Callable[[str], Call], dtype: str) -> None:
    info = np.finfo(NUMPY[dtype])
    for v in (float(info.max) / 4, float(info.tiny), float(info.smallest_subnormal) * 64):
        a = np.array([v], NUMPY[dtype])
        assert tc(f"tc_norm4d_{dtype}")(a, a, a, a)[0] == NUMPY[dtype].type(2 * v)
        assert tc(f"tc_hypot_{dtype}")(3 * a, 0 * a)[0] == 3 * a[0]
    big = np.array([info.max], NUMPY[dtype])
    want = np.longdouble(1) / (2 * np.longdouble(info.max))
    assert tc(f"tc_rnorm4d_{dtype}")(big, big, big, big)[0] == NUMPY[dtype].type(want)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_modified_bessel_functions_of_anything_large_are_infinite(
    tc: Callable[[str], Call], dtype: str
) -> None:
    most = float(np.finfo(NUMPY[dtype]).max)
    x = np.array([-most, -most / 4, -721, 721, most / 4, most], NUMPY[dtype])
    np.testing.assert_array_equal(tc(f"tc_cyl_bessel_i0_{dtype}")(x), np.full(6, INF))
    np.testing.assert_array_equal(tc(f"tc_cyl_bessel_i1_{dtype}")(x), np.copysign(INF, x))


# --- what the generated code does with them ------------------------------------------------
HOT = [
    *(f"tc_{name}_f32" for name in words(
        "exp exp2 exp10 expm1 log log2 log10 log1p tanh sigmoid erf sqrt rsqrt sin cos tan sinpi"
        " cospi sinh cosh asin acos atan pow floor ceil round trunc fabs min max relu sign fdim"
        " isnan arg_better_max hypot mad"
    )),
    *(f"tc_{name}_f64" for name in words(
        "exp exp2 exp10 expm1 log log2 log10 log1p tanh sigmoid sqrt rsqrt sinh cosh floor round"
        " min max relu"
    )),
    "tc_f16_to_f32", "tc_f32_to_f16", "tc_bf16_to_f32", "tc_f32_to_bf16", "tc_f64_to_f16",
    "tc_f64_to_bf16", "tc_cast_f32_i32", "tc_cast_f32_u8", "tc_cast_f64_i32", "tc_cast_i32_f32",
    "tc_div_i32", "tc_mod_i32", "tc_div_i8", "tc_mul_i32", "tc_shl_i32", "tc_shr_i32",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("machine, register", [("x86-64-v3", "ymm"), ("x86-64-v4", "zmm")])
def test_hot_functions_vectorise(machine: str, register: str, tmp_path: Path) -> None:
    assert GCC is not None
    target = subprocess.run([GCC, "-dumpmachine"], capture_output=True, text=True).stdout
    version = subprocess.run([GCC, "--version"], capture_output=True, text=True).stdout
    if not target.startswith("x86_64") or "Free Software Foundation" not in version:
        pytest.skip("needs gcc for x86-64")
    source = header_text() + "".join(map(loop_text, HOT))
    flags = ["-S", f"-march={machine}", "-mprefer-vector-width=512"]
    assembly = compiled(source, tmp_path, *flags).read_text()
    for name in HOT:
        start = assembly.index(f"\nloop_{name}:")
        body = assembly[start : assembly.index(".cfi_endproc", start)]
        packed = re.findall(rf"^\s+v\w+.*%{register}\d", body, re.MULTILINE)
        assert len(packed) >= 2, f"{name} is scalar: {len(packed)} {register} instructions"
        assert not re.search(r"\b(call|jmp)\s+[a-z]\w*(@|$)", body, re.MULTILINE), name


def test_fast_math_leaves_the_library_exact(tmp_path: Path) -> None:
    names = ["tc_exp_f32", "tc_log1p_f32", "tc_sin_f32", "tc_tanh_f64", "tc_f32_to_f16"]
    flags = ["-ffp-contract=fast", "-fassociative-math", "-freciprocal-math", "-fno-signed-zeros"]
    source = header_text() + "".join(map(loop_text, names))
    path = compiled(source, tmp_path, "-shared", "-fPIC", *flags, "-Wno-error")
    library = ctypes.CDLL(str(path))
    x = float_samples("", "f32", 3000)
    with np.errstate(all="ignore"):
        want = {"exp": np.exp(x), "log1p": np.log1p(x), "sin": np.sin(x.astype(float))}
        for name, value in want.items():
            got = caller(library, f"tc_{name}_f32")(x)
            assert np.allclose(got, value, rtol=1e-6, atol=0, equal_nan=True), name
        tanh = caller(library, "tc_tanh_f64")(x)
        assert np.allclose(tanh, np.tanh(x.astype(float)), rtol=1e-15, atol=0)
        half = caller(library, "tc_f32_to_f16")(x)
        assert np.array_equal(half.view(np.float16), x.astype(np.float16))


def test_the_first_fault_is_recorded_whole(tmp_path: Path) -> None:
    source = (
        header_text(frozenset())
        + """
void gather(int64_t n, const int64_t *index, int64_t extent, int64_t *fault) {
_Pragma("omp parallel for num_threads(4)")
  for (int64_t i = 0; i < n; ++i)
    if ((uint64_t)index[i] >= (uint64_t)extent) tc_fault(fault, i, index[i], extent, 2 * i);
}
"""
    )
    library = ctypes.CDLL(str(compiled(source, tmp_path, "-shared", "-fPIC")))
    index = np.arange(2000, dtype=np.int64)
    for extent in (2000, 1000):
        fault = np.zeros(5, np.int64)
        library.gather(
            ctypes.c_int64(2000), ctypes.c_void_p(index.ctypes.data), ctypes.c_int64(extent),
            ctypes.c_void_p(fault.ctypes.data),
        )  # fmt: skip
        claimed, site, where, size, position = fault.tolist()
        if extent == 2000:
            assert fault.tolist() == [0, 0, 0, 0, 0]
        else:
            assert (claimed, size) == (1, 1000) and site == where and 1000 <= where < 2000
            assert position == 2 * where


@pytest.mark.parametrize("dtype", (*INTEGERS, *FLOATS))
def test_openmp_reductions_keep_nan_and_wrap(dtype: str, tmp_path: Path) -> None:
    operators = ["max", "min"] if dtype in FLOATS else ["max", "min", "add", "mul"]
    c_type = C_TYPES[dtype]
    source = header_text(frozenset()) + "".join(
        f"void {op}(int64_t n, const {c_type} *a, {c_type} *out) {{\n"
        f"  {c_type} s = *out;\n"
        f'_Pragma("omp parallel for simd num_threads(3) reduction(tc_{op}_{dtype} : s)")\n'
        f"  for (int64_t i = 0; i < n; ++i) s = tc_{op}_{dtype}(s, a[i]);\n"
        f"  *out = s;\n}}\n"
        for op in operators
    )
    library = ctypes.CDLL(str(compiled(source, tmp_path, "-shared", "-fPIC")))
    rng = np.random.default_rng(8)

    def reduced(op: str, values: Array) -> Any:
        out = values[:1].copy()
        pointers = [ctypes.c_void_p(a.ctypes.data) for a in (values[1:], out)]
        library[op](ctypes.c_int64(values.size - 1), *pointers)
        return out[0]

    if dtype in FLOATS:
        values = rng.normal(size=1000).astype(NUMPY[dtype])
        assert (reduced("max", values), reduced("min", values)) == (values.max(), values.min())
        for hole in (1, 500, 998):
            holed = values.copy()
            holed[hole] = np.nan
            assert np.isnan(reduced("max", holed)) and np.isnan(reduced("min", holed))
        return
    values = rng.integers(*bounds(dtype), 1000, NUMPY[dtype], endpoint=True) | 1
    numbers = values.tolist()
    assert (reduced("max", values), reduced("min", values)) == (max(numbers), min(numbers))
    assert reduced("add", values) == wrapped(sum(numbers), dtype)
    assert reduced("mul", values) == wrapped(math.prod(numbers), dtype)
