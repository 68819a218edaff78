"""Which loads are kept apart from those through the read-only cache, in the printed text."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.codegen.cuda.changing import changing_loads
from tcdsl.poly.loop_tree import statements_of
from tcdsl.poly.scop import Storage
from tcdsl.schedule.placement import Space

MakeUnit = Callable[..., Any]

# What each program loads by tc_changing: arrays as the program calls them.
PROGRAMS: dict[str, tuple[str, list[tuple[int, ...]], set[str]]] = {
    "what it only reads": ("y(i,j) = x(i,j) + b(j)", [(300, 1500), (1500,)], set()),
    "what it writes": (
        "y(i,j) = x(i,j) + b(j)\n z(i,j) = y(i,1499-j) * x(i,j)", [(300, 1500), (1500,)], {"y"},
    ),
    "what it writes, of all that it reads": (
        "y(i,j) = x(i,j) where i in 0:300, j in 0:1500\n z(j) = y(7,j) where j in 0:1500",
        [(300, 1500), (1500,)], set(),
    ),
    "what it updates": ("b(j) = x(7,j) * b(j) where j in 0:1500", [(300, 1500), (1500,)], {"b"}),
    "what an earlier kernel writes, and nothing else": (
        "s(j) +=! x(i,j)\n y(i,j) = s(j) where i in 0:64", [(50_000, 2048), (2048,)], {"s"},
    ),
    "what an earlier kernel writes": (
        "s(j) +=! x(i,j)\n y(i,j) = x(i,j) * s(j)", [(50_000, 1500), (1500,)], {"s"},
    ),
    "partial sums of the last block": ("s +=! x(i,j) * b(j)", [(3000, 1500), (1500,)], set()),
    "and where it reads others": (
        "s(j) +=! x(i,j)\n t(j) = s(j) * b(j)", [(3000, 128), (128,)], {"s"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_which_loads_are_kept_apart(name: str, cuda_unit: MakeUnit) -> None:
    statements, shapes, wanted = PROGRAMS[name]
    outputs = sorted({line.partition("(")[0].split()[0] for line in statements.split("\n")})
    source = f"def f(float(M,N) x, float(N) b) -> ({', '.join(outputs)}) {{ {statements} }}"
    unit = cuda_unit(source, *shapes)
    found = set(re.findall(r"tc_changing\((?:tc_vload\w*<\d+>\(&)?(?:u0_)?(\w+?)(?:_part\d+)?\[",
                           unit.source.text))  # fmt: skip
    assert found == wanted
    # Nothing else is loaded of them: what is left are stores and addresses of vectors' stores.
    for array in wanted:
        rest = re.sub(r"tc_changing\([^;]*", "", unit.source.text)
        uses = re.findall(rf"(?<![\w&]){array}\[[^;]*", rest)
        assert all(re.match(rf"{array}\[[^=]*\] = ", use) for use in uses), uses


def test_a_register_carries_what_was_loaded_past_the_ticket(cuda_unit: MakeUnit) -> None:
    """Unless one does, what the last block loads is apart from what all have loaded."""
    plan = cuda_unit("def f(float(M,N) x) -> (s) { s +=! x(i,j) }", (3000, 1500)).done.plan
    scop, (kernel,) = plan.scop, plan.kernels
    every = set(statements_of(kernel.tree))
    assert changing_loads(scop, kernel, plan.placements, frozenset()).keys() < every
    partials = [
        name
        for name, array in scop.arrays.items()
        if array.storage is Storage.SCRATCH and name not in plan.placements
    ]
    register = next(p for p in plan.placements.values() if p.space is Space.PRIVATE)
    placements = {**plan.placements, **dict.fromkeys(partials, register)}
    assert changing_loads(scop, kernel, placements, frozenset()).keys() == every
    # What others write is kept apart from everything.
    found = changing_loads(scop, kernel, plan.placements, frozenset({"x"}))
    assert set(found.values()) == {frozenset({"x"})}
