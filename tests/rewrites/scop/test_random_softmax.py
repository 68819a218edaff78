"""Random programs of the kind that shifted exponentials are: softmax and its like, along any axes.

Also maxima of half types, whose lanes are compared in pairs, of rows that begin anywhere.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tcdsl.costmodel.chip import Chip
from tcdsl.lang.types.dtypes import BFLOAT16

CheckAll = Callable[..., None]
Array = npt.NDArray[Any]

DTYPES = {
    "float": np.float32, "double": np.float64, "half": np.float16, "bfloat16": BFLOAT16.numpy,
}  # fmt: skip
EXTENTS = (1, 2, 3, 7, 8, 16, 33, 64, 129, 257)
LENGTHS = (1, 3, 8, 64, 129, 1000, 1001, 4096, 4097, 20_001)
MOST_ELEMENTS = 60_000


def values(r: random.Random, shape: list[int], dtype: str) -> Array:
    """Return numbers, some rows of wide ones, some with infinities and NaN."""
    rng = np.random.default_rng(r.randrange(10**9))
    x = rng.normal(size=shape) * r.choice([1, 1, 30]) - r.choice([0, 0, 1000])
    where = rng.random(shape)
    if r.random() < 0.3:
        x[where < 0.05] = -np.inf
    if r.random() < 0.2:
        x[where > 0.999] = np.nan
    with np.errstate(over="ignore"):
        return np.asarray(x.astype(np.float32).astype(DTYPES[dtype]))


def softmax(r: random.Random) -> tuple[str, list[Array]]:
    """Return a program of exponentials beside a maximum, and its arguments."""
    kept = [f"k{n}" for n in range(r.choice([1, 1, 2]))]
    reduced = [f"r{n}" for n in range(r.choice([1, 1, 2]))]
    order = r.sample(kept + reduced, len(kept + reduced))
    everything, row = ",".join(order), ",".join(r.sample(kept, len(kept)))
    dtype = r.choice(["float", "bfloat16", "half", "float", "double"])
    x = f"x({everything})"
    if r.random() < 0.3 and dtype != "double":
        x = f"float32({x})"
    if r.random() < 0.2:
        x = f"({x} * 2.0)"
    is_masked = r.random() < 0.2
    if is_masked:
        x = f"(w({everything}) > 0 ? {x} : -inf)"
    term = f"exp({x} - m({row}))" if r.random() < 0.8 else f"exp(float32({x}) - m({row}))"
    lines = [f"m({row}) max=! {x}"]
    if r.random() < 0.6:
        lines.append(f"e({everything}) = {term}")
        term = f"e({everything})"
    lines.append(f"s({row}) +=! {r.choice([term, term, term, f'2.0 * {term}'])}")
    result = r.choice([
        f"{term} / s({row})", f"{x} - m({row}) - log(s({row}))", f"{term} / s({row}) * 3.0 - 1.0",
        f"({term} - 0.5) / s({row})", f"pow({term} / s({row}), {r.choice(['0.5', '1.5', '2'])})",
    ])  # fmt: skip
    lines.append(f"y({','.join(r.sample(order, len(order)))}) = {result}")
    sizes = ",".join(order).upper()
    masks = f", int32({sizes}) w" if is_masked else ""
    head = f"def f({dtype}({sizes}) x{masks}) -> ({r.choice(['y', 'y, s'])})"
    extents = {name: r.choice((1, 2, 3, 5, 8, 17)) for name in kept}
    extents |= {name: r.choice(LENGTHS if len(reduced) == 1 else EXTENTS) for name in reduced}
    while np.prod(list(extents.values())) > MOST_ELEMENTS:
        name = r.choice(order)
        extents[name] = max(1, extents[name] // 2)
    shape = [extents[name] for name in order]
    given = [values(r, shape, dtype)]
    if is_masked:
        rng = np.random.default_rng(r.randrange(10**9))
        given.append(rng.integers(-1, 3, shape).astype(np.int32))
    return f"{head} {{\n" + "\n".join(lines) + "\n}", given


def maximum(r: random.Random) -> tuple[str, list[Array]]:
    """Return a program of the largest or smallest values of rows of a half type."""
    dtype, op = r.choice(["bfloat16", "half"]), r.choice(["max", "max", "min"])
    other = "min" if op == "max" else "max"
    n = r.choice(LENGTHS)
    parts = ["", "", "", "where j in 1:N", "where j in 0:N-1", "where j in 3:N-2"]
    found = f"{op}=! x(i,j) {r.choice(parts) if n > 8 else ''}"
    results, body = r.choice([
        ("y", f"y(i) {found}"),
        ("y", f"y {found}"),
        ("m, y", f"m(i) {found}\n y(i,j) = x(i,j) - m(i)"),
        ("m, s, y", f"m(i) {found}\n s(i) +=! x(i,j)\n y(i,j) = x(i,j) * m(i) + s(i)"),
        ("m, q", f"m(i) {found}\n q(i) {other}=! x(i,j)"),
    ])  # fmt: skip
    source = f"def f({dtype}(M,N) x) -> ({results}) {{\n{body}\n}}"
    return source, [values(r, [r.choice((1, 2, 3, 5, 9, 16)), n], dtype)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [softmax, maximum])
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.fuzz) for n in range(1, 60))]
)
def test_random_programs(
    kind: Callable[[random.Random], tuple[str, list[Array]]],
    seed: int,
    check_emulated: CheckAll,
    request: pytest.FixtureRequest,
) -> None:
    r = random.Random(7919 * seed + 5)
    gpu: Chip | None = request.getfixturevalue("small_chip") if seed % 3 == 2 else None
    check_emulated([kind(r) for _ in range(25)], gpu=gpu)
