"""Products of float32 in parts: their texts, and what is right for those of any kernel."""

from typing import Any

import numpy as np

from tcdsl.testing.comparison import check

FORMS = {"nn": ("mk", "kn"), "nt": ("mk", "nk"), "tn": ("km", "kn"), "tt": ("km", "nk")}


def source_of(form: str, sizes: dict[str, int]) -> tuple[str, list[tuple[int, ...]]]:
    """Return a product's text and its inputs' shapes."""
    one, other = (", ".join(axes) for axes in FORMS[form])
    text = f"""def f(float({one.upper()}) A, float({other.upper()}) B) -> (C) {{
        C(m, n) +=! A({one}) * B({other})
    }}"""
    return text, [tuple(sizes[axis] for axis in axes) for axes in FORMS[form]]


def drawn(shapes: list[tuple[int, ...]], seed: int = 0) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def check_specials(program: Any) -> None:
    """Infinities, NaN and overflows of an NT product of 64 x 64 x 288 are those of float32."""
    a, b = drawn([(64, 288), (64, 288)])
    a[3, 5], a[9, 100], a[17, 200], a[20, 7] = np.inf, -np.inf, np.nan, 3.3e38
    b[7, 5], b[30, 287], b[40, 0] = 0, np.inf, np.nan
    a[:, 287] = np.abs(a[:, 287])
    a[21, 0], b[:, 0], a[50, 64], b[50, 64] = 2e38, np.abs(b[:, 0]) + 1, 1e38, 1e38  # overflows
    check(program, a, b)
    c = np.empty((64, 64), np.float32)
    program(a, b, out=c)
    with np.errstate(all="ignore"):
        plain = np.zeros((64, 64), np.float32)  # in order, as fused multiply-adds have specials
        for k in range(288):
            plain += a[:, k, None] * b[None, :, k]
    special = ~np.isfinite(plain)
    assert special.any() and not special.all() and np.isnan(c[3, 7]) and np.isinf(c[50, 50])
    assert np.array_equal(c[special], plain[special], equal_nan=True)
    assert np.isfinite(c[~special]).all()


def check_integers(program: Any) -> None:
    """Integers of an NN product of 64 x 64 x 256 are exact where float32 is."""
    shapes = [(64, 256), (256, 64)]
    rng = np.random.default_rng(3)
    small = [rng.integers(-9, 10, size=shape) * (rng.random(shape) < 0.2) for shape in shapes]
    # Low parts by low parts; factors of 24 bits, of rows and of columns; sums beyond 2^24; more.
    both, long, wide, near = ([one.copy() for one in small] for _ in range(4))
    both[0][:, 70], both[1][70] = rng.integers(2049, 4096, 64), rng.integers(2049, 4096, 64)
    long[0][:, 130] = rng.integers(2**23, 2**24 - 2**14, 64)
    long[1][130] = rng.integers(-1, 2, 64)
    wide[1][130] = rng.integers(2**23, 2**24 - 2**14, 64)
    wide[0][:, 130] = rng.integers(-1, 2, 64)
    near[0][:, 3], near[1][3] = 4095, rng.integers(4080, 4097, 64)
    for a, b in (small, both, long, wide, near, (long[0] + both[0], long[1])):
        c = np.empty((64, 64), np.float32)
        program(a.astype(np.float32), b.astype(np.float32), out=c)
        is_exact = abs(a) @ abs(b) < 2**24  # whatever the order
        assert is_exact.mean() > 0.3
        assert np.array_equal(c[is_exact], (a @ b)[is_exact])


def check_largest(program: Any, terms: int = 256) -> None:
    """Factors of an NT product of 64 x 64 x *terms* whose high parts would be infinite are not."""
    shapes = [(64, terms), (64, terms)]
    a, b = (x * np.float32(1e-3) for x in drawn(shapes))
    largest = np.finfo(np.float32).max
    a[5, 17], a[6, 200], b[9, 31] = largest, -np.nextafter(largest, np.float32(0)), largest
    b[10, 32], b[3, 17] = -largest, 0
    check(program, a, b)
    c = np.empty((64, 64), np.float32)
    program(a, b, out=c)
    assert np.isfinite(c).all() and abs(c[6]).min() > 1e30 and abs(c[5, 3]) < 1
