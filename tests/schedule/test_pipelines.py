"""The check of pipelines: events at other places, and stages that are counted in another way.

Which events are missing, and what the emulator says of faults, is in strategies/test_tile_mma.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import islpy as isl
import pytest

from tcdsl.options import Options
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.loop_tree import Coordinate, Leaf, Loop, Node
from tcdsl.poly.loop_tree import Sequence as Children
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.plan import Plan
from tcdsl.schedule.synchronisation import why_not_synchronised

MATMUL = "def f(bfloat16(M,K) A, bfloat16(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
CONFIG = {
    "rows": 16, "columns": 128, "warp_rows": 8, "warp_columns": 1, "step": 64, "stages": 3,
    "together": 4, "loader": "boxes", "swath": 1, "chunks": 1, "is_persistent": False,
    "is_finished": False, "cluster_rows": 1, "cluster_columns": 1,
}  # fmt: skip
COPIES = "A.tile0S0_copy", "B.tile1S0_copy"


@pytest.fixture(scope="module")
def plan(cuda_unit: Callable[..., Any]) -> Plan:
    """A product of four steps in three stages."""
    kernel = {"kernel": "S0", "template": "tile_mma", **CONFIG}
    choices = {"format": "tcdsl choices", "version": 1, "kernels": [kernel]}
    unit = cuda_unit(MATMUL, (128, 256), (256, 128), options=Options(choices=choices))
    found: Plan = unit.done.plan
    assert reason(found) == "" and [r.buffers for r in rings(found)] == [3, 3]
    return found


def rings(plan: Plan) -> list[Any]:
    return [p.ring for p in plan.placements.values() if p.ring is not None]


def reason(plan: Plan, tree: Node | None = None) -> str:
    """Return why the threads of *plan* are not ordered, with the loops *tree* if they are given."""
    mapped = Mapped(plan.scop, tree or plan.kernels[0].tree)
    return why_not_synchronised(mapped, dependences_of(plan.scop), plan.placements) or ""


def moved(name: str, place: int, node: Node) -> Node:
    """Return *node* with the leaf *name* at another place among its neighbours."""
    match node:
        case Loop(body=body):
            return replace(node, body=moved(name, place, body))
        case Children(children=children):
            others = [child for child in children if child != Leaf(name)]
            if len(others) < len(children):
                others.insert(place, Leaf(name))
            return Children(tuple(moved(name, place, child) for child in others))
    return node


@pytest.mark.parametrize(
    ("name", "place", "why"),
    [
        ("acquire0", 4, "A.tile0S0_copy fills a stage before it is free"),
        ("await0", 5, "S0 reads a stage before it is filled"),
        ("release0", 3, "S0 still reads a stage that is released"),
        ("end0", 3, "S0_part0_fold reads sums of products that go on"),
    ],
)
def test_events_at_another_place_are_refused(name: str, place: int, why: str, plan: Plan) -> None:
    tree = plan.kernels[0].tree
    other = moved(name, place, tree)
    assert other != tree and reason(plan, other) == why


def at(coordinates: Mapping[str, Coordinate], node: Node) -> Node:
    """Return *node* with other *coordinates* of statements in the loop over steps."""
    match node:
        case Loop(coordinates=own) if "acquire0" in own:
            return replace(node, coordinates={**own, **coordinates})
        case Children(children=children):
            return Children(tuple(map(partial(at, coordinates), children)))
    return node


@pytest.mark.parametrize("shift", [1, -1])
def test_copies_of_another_step_are_refused(shift: int, plan: Plan) -> None:
    copies = dict.fromkeys(COPIES, Coordinate(0, shift))
    assert "reads another stage than" in reason(plan, at(copies, plan.kernels[0].tree))


def test_stages_that_are_filled_too_early_are_refused(plan: Plan) -> None:
    """A step fills two of three stages: the next one has still to use them."""
    pairs = {**dict.fromkeys(COPIES, Coordinate(0, 0, 2)), "S0": Coordinate(2, 0, 128)}
    assert "fills a stage that" in reason(plan, at(pairs, plan.kernels[0].tree))


@pytest.mark.parametrize(
    ("names", "steps", "why"),
    [
        (("acquire0",), "0 <= q < 3", "the roles do not meet the same stages"),
        (("acquire0", "await0", "release0"), "-1 <= q < 4", "stages are not counted from 0"),
        (("acquire0", "await0", "release0"), "1 <= q < 4", "stages are not counted from 0"),
        (("acquire0", "await0", "release0"), "0 <= q < 4 and q mod 2 = 0", "stages are left out"),
    ],
)
def test_other_steps_are_refused(names: tuple[str, ...], steps: str, why: str, plan: Plan) -> None:
    statements = tuple(
        replace(s, domain=isl.Set(f"{{ {s.name}[q] : {steps} }}")) if s.name in names else s
        for s in plan.scop.statements
    )
    assert reason(replace(plan, scop=plan.scop.with_statements(statements))) == why
