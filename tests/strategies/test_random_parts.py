"""Random programs whose statements run over parts of the same axes.

    pytest -m fuzz tests/strategies/test_random_parts.py      2,000 programs a target

A sum over the last few of what others run over whole has other chunks, lanes and iterations than
these, and shares loops with them all the same.
"""

import random
from collections.abc import Callable, Iterator
from math import inf

import pytest

from tcdsl.costmodel.chip import Chip
from tcdsl.plan import cpu_planner
from tcdsl.strategies import catalogue, operations
from tcdsl.strategies.templates import cpu_row
from tests.hunts import Hunt

CheckAll = Callable[..., None]
Case = tuple[str, list[tuple[int, ...]]]

LENGTHS = (17, 40, 64, 70, 130, 200)
BATCH = 40
FORMS = ("{} * 2.0", "{} + {}", "{} - 0.5 * {}")

pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")


class Draft:
    """The statements of one program, as they are drawn."""

    def __init__(self, r: random.Random) -> None:
        self.r = r
        inner = r.choice((0, 0, 0, 3, 20))
        self.sizes = {"i": r.choice(LENGTHS)} | ({"j": inner} if inner else {})
        self.whole = ["x", "w"]  # tensors over all axes
        self.lines: list[str] = []
        self.results: list[str] = []

    def at(self, name: str, axes: list[str]) -> str:
        return f"{name}({', '.join(axes)})" if axes else name

    def value(self) -> str:
        reads = [self.at(self.r.choice(self.whole), list(self.sizes)) for _ in range(2)]
        return self.r.choice(FORMS).format(*reads)

    def part(self, axis: str) -> str:
        """Return a clause: the first few of *axis*, the last few, any, or "" for all."""
        size, few = self.sizes[axis], self.r.randint(1, 4)
        low = self.r.randrange(size)
        ends = self.r.choice([
            None, None, (0, min(few, size)), (max(0, size - few), size),
            (low, self.r.randrange(low, size) + 1), (low, size),
        ])  # fmt: skip
        return "" if ends is None else f"{axis} in {ends[0]}:{ends[1]}"

    def statement(self) -> None:
        name, axes = f"t{len(self.lines)}", list(self.sizes)
        value = self.value()
        if self.r.random() < 0.4:
            self.lines.append(f"{self.at(name, axes)} = {value}")
            self.whole.append(name)
        else:
            left = [axis for axis in axes[1:] if self.r.random() < 0.4]
            left += [axes[0]] if len(axes) > 1 and not left and self.r.random() < 0.4 else []
            clauses = [c for axis in axes if axis not in left if (c := self.part(axis))]
            where = f" where {', '.join(clauses)}" if clauses else ""
            op = self.r.choice(("+=!", "max=!", "min=!"))
            self.lines.append(f"{self.at(name, left)} {op} {value}{where}")
        self.results.append(name)

    def finished(self) -> Case:
        results = [name for name in self.results if self.r.random() < 0.6] or self.results[-1:]
        dims, wide = ", ".join("NM"[: len(self.sizes)]), self.r.choice(("float", "double"))
        body = "".join(f"    {line}\n" for line in self.lines)
        head = f"def f(float({dims}) x, {wide}({dims}) w) -> ({', '.join(results)})"
        return f"{head} {{\n{body}}}\n", [tuple(self.sizes.values())] * 2


def batches(seed: int, count: int) -> Iterator[list[Case]]:
    r = random.Random(seed)
    for _ in range(0, count, BATCH):
        cases = []
        for _ in range(BATCH):
            draft = Draft(r)
            for _ in range(r.randint(2, 5)):
                draft.statement()
            cases.append(draft.finished())
        yield cases


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "count"), [(1, BATCH), pytest.param(2, 2_000, marks=pytest.mark.fuzz)]
)
@pytest.mark.timeout(1800)
def test_parts_on_the_cpu(
    seed: int, count: int, check_all: CheckAll, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first template that applies, whatever it takes.
    monkeypatch.setattr(catalogue, "ALIKE_ON_CPU", inf)
    for module in (operations, cpu_row, cpu_planner):
        monkeypatch.setattr(module, "PARALLEL_WORK", 1)
    monkeypatch.setattr(cpu_row, "MIN_TILE", 3)
    with Hunt() as found:
        for cases in batches(seed, count):
            found.run("", check_all, cases)


@pytest.mark.parametrize(
    ("seed", "count"),
    [
        pytest.param(3, BATCH, marks=pytest.mark.slow),
        pytest.param(4, 2_000, marks=pytest.mark.fuzz),
    ],
)
@pytest.mark.timeout(1800)
def test_parts_on_a_small_chip(
    seed: int, count: int, check_emulated: CheckAll, small_chip: Chip
) -> None:
    with Hunt() as found:
        for cases in batches(seed, count):
            found.run("", check_emulated, cases, gpu=small_chip)
