"""Subscripts of data at the ends of their types: what wraps, and what is exact.

A quotient, a remainder or a minimum of 64-bit data was computed in 32 bits on a GPU, and that of
sums of 32-bit data in 64 bits on both: wrong elements, and with ``min(5u32, k(i) * 2u32)``, which
is known to need no check, one outside of the array.  An infinity in a condition of a subscript was
an internal error.
"""

from collections.abc import Callable

import numpy as np
import pytest

import tcdsl

X = np.arange(6, dtype=np.float32)
SIGNED = (
    "(k(i) + k(i)) % N", "(k(i) * k(i)) % N", "min(5, max(0, k(i) * 2))", "(k(i) + 1) % N",
    "(k(i) - k(N - 1 - i)) % N", "(k(i) << 1) % N", "abs(k(i) / 2) % N", "(-k(i)) % N",
    "(k(i) > 5 ? k(i) : 0 - k(i)) % N", "min(k(i), 5) < 0 ? 0 : min(k(i), 5)",
)  # fmt: skip
UNSIGNED = (
    "(k(i) + k(i)) % 6{u}", "k(i) % 6{u}", "min(5{u}, k(i) * 2{u} / 4{u})",
    "(k(i) - k(N - 1 - i)) % 6{u}", "(k(i) << 1) % 6{u}", "(0{u} - k(i)) % 6{u}",
    "k(i) + 1{u} == 0{u} ? 5{u} : k(i) % 6{u}", "min(5{u}, k(i) * 2{u})",
)  # fmt: skip


def program(dtype: str, subscripts: tuple[str, ...]) -> str:
    names = [f"y{n}" for n in range(len(subscripts))]
    body = "\n".join(f"{y}(i) = x({at})" for y, at in zip(names, subscripts, strict=True))
    return f"def f(float(N) x, {dtype}(N) k) -> ({', '.join(names)}) {{ {body} }}"


def cases() -> list[tuple[str, list[np.ndarray]]]:
    made = []
    for bits in (32, 64):
        top = 2 ** (bits - 1)
        k = np.array([top - 1, -top, top // 2, 0, 1, 2], f"int{bits}")
        made.append((program(f"int{bits}", SIGNED), [X, k]))
        k = np.array([2 * top - 1, top, top // 2, 0, 1, 2], f"uint{bits}")
        subscripts = tuple(at.format(u=f"u{bits}") for at in UNSIGNED[: 7 if bits == 64 else 8])
        made.append((program(f"uint{bits}", subscripts), [X, k]))
    wrapped = np.array([-1, -2, 0, 1, 2, 3], np.int32).view(np.uint32)  # 2 more are 1, 0, 2, ...
    made.append((program("uint32", ("k(i) + 2u32",)), [X, wrapped]))
    infinite = (
        "def f(float(N) x, float(N) a) -> (y) { y(i) = x(a(i) < inf && a(i) > -nan ? 1 : 0) }"
    )
    return [*made, (infinite, [X, X])]


def test_on_a_cpu(check_all: Callable[..., None]) -> None:
    check_all(cases())


def test_on_a_gpu(check_emulated: Callable[..., None]) -> None:
    check_emulated(cases())


@pytest.mark.parametrize("subscript", ["k(i) * 2", "k(i) + k(i)", "int64(k(i) - -2147483647) - 1"])
def test_a_sum_that_is_the_subscript_is_exact(subscript: str) -> None:
    """-2^31 * 2 would be 0 if it wrapped."""
    f = tcdsl.define(f"def f(float(N) x, int32(M) k) -> (y) {{ y(i) = x({subscript}) }}").f
    for target in ("cpu", "emulate", "reference"):
        with pytest.raises(tcdsl.LaunchError, match="TC080"):
            f(X, np.array([-(2**31)], np.int32), target=target)


@pytest.mark.parametrize("target", ["cpu", "emulate", "reference"])
def test_a_large_index_of_uint64_is_told_as_it_is(target: str) -> None:
    """It was reported as -1."""
    f = tcdsl.define("def f(float(N) x, uint64(M) k) -> (y) { y(i) = x(k(i)) }").f
    with pytest.raises(tcdsl.LaunchError, match="index 18446744073709551615 of 'x' is out of"):
        f(X, np.array([0, 2**64 - 1], np.uint64), target=target)
