"""Random programs of the kind that optimisers' steps are: what an update is made of is reduced, all
of it, before it is applied, so that one kernel needs again what another has computed.

Of every six one computes a temporary again; sources change before, between and after, in order or
reversed, under conditions.
"""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tcdsl.lang.types.dtypes import BFLOAT16

CheckAll = Callable[..., None]
Array = npt.NDArray[Any]

DTYPES = {"int32": np.int32, "float": np.float32, "bfloat16": BFLOAT16.numpy}
SIZES = (1, 37, 5003, 5003, 20_001)  # from 5003 on there are two kernels
CONDITIONS = ["i in 0:N"] * 6 + [
    "i in 0:N-1", "i in 0:N, exists u(i) > 0", "i in 0:N, exists u(0) > 0",
]  # fmt: skip


class Step:
    """The statements of one program, as they are drawn."""

    def __init__(self, r: random.Random, dtype: str) -> None:
        self.r = r
        self.half = "2" if dtype == "int32" else "0.5"
        self.lines: list[str] = []
        self.updated: set[str] = set()

    def element(self, *arrays: str) -> str:
        index = "i" if self.r.random() < 0.9 else self.r.choice(["N-1-i", "0"])
        return f"{self.r.choice(arrays)}({index})"

    def value(self, *arrays: str) -> str:
        text = self.element(*arrays)
        for _ in range(self.r.randint(0, 3)):
            other = self.r.choice([self.element(*arrays), self.half])
            text = f"({text} {self.r.choice('+-*')} {other})"
        return text

    def may_change(self, share: float) -> None:
        """Change a source, with the probability *share*."""
        if self.r.random() < share:
            self.update("{0}(i) + " + self.value("g", "m", "p"), "i in 0:N")

    def update(self, value: str, condition: str) -> None:
        name = self.r.choice("mpp")
        self.updated.add(name)
        self.lines.append(f"{name}(i) = {value.format(name)} where {condition}")


def step(r: random.Random) -> tuple[str, list[Array]]:
    """Return a program and its arguments."""
    dtype = r.choice(list(DTYPES))
    drawn = Step(r, dtype)
    drawn.may_change(0.5)
    drawn.lines.append(f"u(i) = {drawn.value('g', 'm', 'p')} where i in 0:N")
    drawn.may_change(0.15)
    more = f" + {drawn.value('g', 'u')}" if r.random() < 0.3 else ""
    drawn.lines.append(f"s {r.choice(['+', 'max'])}=! u(i){more}")
    drawn.may_change(0.15)
    before = r.choice(["{0}(i) - ", ""])
    drawn.update(f"{before}s * {drawn.element('u')}", r.choice(CONDITIONS))
    drawn.may_change(0.15)
    results = sorted(drawn.updated) + r.choice([[], ["s"]])
    if r.random() < 0.2:
        drawn.lines.append(f"y(i) = {drawn.element('u')} + s where i in 0:N")
        results.append("y")
    arguments = ", ".join(f"{dtype}(N) {name}" for name in "gmp")
    head = f"def f({arguments}) -> ({', '.join(results)})"
    size = r.choice(SIZES)
    rng = np.random.default_rng(r.randrange(10**9))
    given = [rng.integers(-3, 4, size).astype(DTYPES[dtype]) for _ in range(3)]
    return f"{head} {{\n" + "\n".join(drawn.lines) + "\n}", given


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.fuzz) for n in range(1, 40))]
)
def test_random_steps(seed: int, check_emulated: CheckAll) -> None:
    r = random.Random(104_729 * seed + 3)
    check_emulated([step(r) for _ in range(25)])
