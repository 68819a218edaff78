"""The hunt for wrong sums of products with guards: random ones, with what surrounds them.

    pytest -m fuzz tests/rewrites/scop/test_random_guards.py     3,000 on the emulator

Indices begin anywhere; ranges are boxes, triangles, bands; factors have conditions of their own;
some operands hold infinities and NaN.  The ordinary run has none, the slow run some.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from tests.hunts import Hunt
from tests.programs import arrays_for, comprehension_of, specialisation_of
from tests.rewrites.scop.test_masked_sums import FEW, always

__all__ = ["always"]

CheckAll = Callable[..., None]
Program = tuple[str, list[tuple[int, ...]]]

OF_A_SEED = 30
WIDE = {
    "bfloat16": "float", "half": "float", "float": "", "int8": "int32", "uint8": "",
    "float8_e4m3": "float", "float8_e5m2": "float", "double": "",
}  # fmt: skip
EXTENTS = (1, 7, 33, 53, 64, 70, 96, 128)
CONDITIONS = {
    "mk": ("k <= m + 9", "k >= m - 9", "m + k < 60", "2*k <= m", "k != m", "m < 20", "k == m"),
    "kn": ("n <= k", "k > n + 3", "k % 3 == 0"),
}
GUARDS = ("k <= m + 4", "k >= m - 4", "k >= n", "m + k <= 50", "2*k <= m + 30", "m < 20", "k <= n")

pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")


@dataclass
class Draft:
    """A product y(b,m,n) +=! x(b,m,k) * w(b,k,n) in the making."""

    rng: random.Random
    dtypes: list[str] = field(default_factory=list)
    shapes: list[tuple[int, ...]] = field(default_factory=list)

    def extents(self) -> dict[str, int]:
        found = {name: self.rng.choice(EXTENTS) for name in "mn"}
        return found | {"k": self.rng.choice((0, *EXTENTS, 200)), "b": self.rng.choice((1, 3))}

    def operand(self, name: str, dims: str, extents: dict[str, int], lows: dict[str, int]) -> str:
        """Return the element of an array of more elements than are read, its dimensions anyhow."""
        batch, own = dims[:-2], list(dims[-2:])
        if self.rng.random() < 0.4:
            own.reverse()
        order, more = [*batch, *own], self.rng.choice((0, 0, 5))
        shape = [extents[d] + (more if d in own else 0) for d in order]
        dtype = self.rng.choice(list(WIDE)) if self.rng.random() < 0.2 else self.dtypes[0]
        self.dtypes.append(dtype)
        self.shapes.append(tuple(shape))
        text = f"{name}({','.join(f'{d}-({lows[d]})' if lows[d] else d for d in order)})"
        drawn = self.rng.random()
        if drawn < 0.3:
            condition = self.rng.choice(CONDITIONS["".join(dims[-2:])])
            return f"({condition} ? {text} : {self.rng.choice('001')})"
        return f"relu({text})" if drawn < 0.4 else text


def drawn(rng: random.Random) -> Program:
    """Return a program and the shapes of its inputs."""
    draft = Draft(rng, [rng.choice(list(WIDE))])
    extents = draft.extents()
    lows = {d: rng.choice((0, 0, -3, 2)) for d in "mnk"} | {"b": 0}
    batch = "b" if rng.random() < 0.3 else ""
    x = draft.operand("x", f"{batch}mk", extents, lows)
    w = draft.operand("w", f"{batch if rng.random() < 0.7 else ''}kn", extents, lows)
    x = f"{wide}({x})" if (wide := WIDE[draft.dtypes[1]]) else x
    ends = {d: f"{d} in {lows[d]}:{lows[d] + extents[d]}" for d in "mnk"}
    guards = [f"exists {guard}" for guard in rng.sample(GUARDS, rng.choice((0, 1, 1, 2)))]
    left = f"({','.join([*batch, *rng.choice(('mn', 'nm'))])})"
    target, after = rng.choice((
        ("y", ""), ("y", ""), ("p", f"y{left} = relu(p{left})"), ("p", f"y{left} = half(p{left})"),
    ))  # fmt: skip
    types = [
        f"{dtype}({','.join(map(str, shape))}) {name}"
        for dtype, shape, name in zip(draft.dtypes[1:], draft.shapes, "xw", strict=True)
    ]
    where = f"where {', '.join([*ends.values(), *guards])}"
    after = f"{after} where {ends['m']}, {ends['n']}" if after else ""
    source = f"def f({', '.join(types)}) -> (y) {{\n  {target}{left} +=! {x} * {w} {where}\n"
    return f"{source}  {after} }}", draft.shapes


def with_infinities(rng: random.Random, inputs: list[Any]) -> list[Any]:
    found = [array.copy() for array in inputs]
    for flat in (array.reshape(-1) for array in found):
        if flat.size and flat.dtype.kind not in "iu":
            for value in (inf, nan, -inf):
                flat[rng.randrange(flat.size)] = np.asarray(value).astype(flat.dtype)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 8), *(pytest.param(n, OF_A_SEED, marks=pytest.mark.fuzz) for n in range(1000, 1100))],
)
@pytest.mark.timeout(4 * 3600)
def test_products_with_guards(
    first: int, count: int, check_emulated: CheckAll, always: None
) -> None:
    with Hunt() as found:
        for number in range(count):
            rng = random.Random(1000 * first + number)
            source, shapes = drawn(rng)
            c = comprehension_of(source)
            specialisation_of(c, shapes)
            inputs = arrays_for(c, shapes, number)
            cases = [(source, inputs), (source, with_infinities(rng, inputs))]
            found.run(f"{first}, {number}\n{source}", check_emulated, cases, gpu=FEW)
