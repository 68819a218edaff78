"""Rows that begin anywhere: threads of columns have several, each the threads of a row apart."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.options import CHOICES_FORMAT, CHOICES_VERSION, Options
from tcdsl.testing.comparison import check
from tests.strategies.tile_configs import inputs_of

MakeUnit = Callable[..., Any]
Shapes = list[tuple[int, ...]]

SUM = "def f({0}(M,N) x) -> (y) {{ y(j) +=! x(i,j) }}"
MANY = """def f(float(M,N) x, float(N) w) -> (s, t, y) {
    s(j) +=! x(i,j) * w(j)
    t(j) max=! x(i,j)
    y(j) = s(j) - t(j)
}"""
UPDATE = "def f(float(N) y, float(M,N) x) -> (y) { y(j) += x(i,j) }"
PLANES = "def f(float(A,M,N) x) -> (y) { y(a,j) +=! x(a,i,j) }"
# More than, as many as, and less than the columns of a block; rows of one and of several turns.
CASES: dict[str, tuple[str, Shapes, int]] = {
    "float": (SUM.format("float"), [(37, 531)], 4),
    "bfloat16": (SUM.format("bfloat16"), [(67, 397)], 4),
    "double": (SUM.format("double"), [(41, 267)], 2),
    "pairs": (SUM.format("float"), [(40, 1030)], 2),
    "integers": (SUM.format("int32"), [(33, 257)], 4),
    "several members": (MANY, [(35, 403), (403,)], 4),
    "an argument": (UPDATE, [(385,), (64, 385)], 4),
    "planes": (PLANES, [(2, 300, 263)], 4),
}


def chip() -> Chip:
    return replace(load_chip("h200"), multiprocessors=1)


def repeats_of(unit: Any) -> set[int]:
    chosen = [weighed.choice for weighed in unit.done.plan.weighed]
    return {choice["repeat"] for choice in chosen if choice["template"] == "column"}


def test_results_are_right(cuda_unit: MakeUnit, emulated: Any) -> None:
    units = [cuda_unit(source, *shapes, gpu=chip()) for source, shapes, _ in CASES.values()]
    for unit, (name, (_, _, repeat)) in zip(units, CASES.items(), strict=True):
        assert repeats_of(unit) == {repeat} and not unit.done.is_fallback, name
    for program, unit, (_, shapes, _) in zip(emulated(units), units, CASES.values(), strict=True):
        check(program, *inputs_of(unit, shapes))


def test_blocks_may_share_columns(cuda_unit: MakeUnit, emulated: Any) -> None:
    """Chunks, whose last blocks add up what each thread has of its columns."""
    shapes = [(601, 267)]
    gpu = replace(load_chip("h200"), multiprocessors=1)
    first = cuda_unit(SUM.format("float"), *shapes, gpu=gpu)
    (weighed,) = [w for w in first.done.plan.weighed if w.choice["template"] == "column"]
    configs = [one["config"] for one in weighed.candidates() if one["template"] == "column"]
    chunked = [c for c in configs if c["chunk"] and c["repeat"] > 1][:2]
    assert chunked
    units = []
    for config in chunked:
        entry = {"kernel": weighed.kernel, "template": "column", **config}
        choices = {"format": CHOICES_FORMAT, "version": CHOICES_VERSION, "kernels": [entry]}
        options = Options(choices=choices)
        units.append(cuda_unit(SUM.format("float"), *shapes, gpu=gpu, options=options))
    for program, unit in zip(emulated(units), units, strict=True):
        check(program, *inputs_of(unit, shapes))


@pytest.mark.parametrize(
    ("source", "shapes"),
    [(SUM.format("float"), [(1100, 50_004)]), (SUM.format("float"), [(50_000, 1001)])],
    ids=["vectors", "few columns"],
)
def test_where_threads_have_one(source: str, shapes: Shapes, cuda_unit: MakeUnit) -> None:
    assert repeats_of(cuda_unit(source, *shapes)) == {1}
