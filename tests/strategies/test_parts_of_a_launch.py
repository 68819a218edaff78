"""Products behind a producer's warp whose blocks share a launch: each part has its own pipeline."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

from tcdsl.costmodel.chip import Unit, load_chip
from tcdsl.costmodel.side_by_side import side_by_side_seconds
from tcdsl.costmodel.work import Work
from tcdsl.errors import OptionError
from tcdsl.interp.arithmetic import Array
from tcdsl.lang.types.dtypes import BFLOAT16
from tcdsl.options import Options
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.loop_tree import AffineCoordinate, Loop, LoopKind, Node
from tcdsl.poly.loop_tree import Sequence as Children
from tcdsl.poly.scop import EventKind
from tcdsl.schedule.mapping import Mapped
from tcdsl.schedule.packing import own_blocks, why_not_packed
from tcdsl.schedule.pipelines import pipelines_of
from tcdsl.schedule.plan import Plan
from tcdsl.schedule.synchronisation import why_not_synchronised
from tcdsl.testing.comparison import check
from tcdsl.testing.random_inputs import values
from tests.strategies.tile_configs import tiles

MakeUnit = Callable[..., Any]
Products = Sequence[tuple[int, int, int]]  # rows, terms, columns of each


def text(count: int) -> str:
    """Return *count* products that share nothing."""
    one = "C{0}(m,n) +=! A{0}(m,k) * B{0}(k,n)"
    head = ", ".join(f"bfloat16(M{n},K{n}) A{n}, bfloat16(K{n},N{n}) B{n}" for n in range(count))
    results = ", ".join(f"C{n}" for n in range(count))
    return f"def f({head}) -> ({results}) {{ {'  '.join(one.format(n) for n in range(count))} }}"


def shapes(products: Products) -> list[tuple[int, int]]:
    return [shape for m, k, n in products for shape in ((m, k), (k, n))]


def asked(
    name: str, stages: int, shape: tuple[int, int, int, int] = (16, 64, 4, 1)
) -> dict[str, Any]:
    """Return what asks for the product *name* in so many *stages*."""
    own = tiles(shape, loader="boxes", stages=stages)
    return {"kernel": name, "template": "tile_mma", **own}


def choices(*kernels: dict[str, Any]) -> Options:
    own = {"format": "tcdsl choices", "version": 1, "kernels": list(kernels)}
    return Options(choices=own)


def options(*stages: int) -> Options:
    """Return what asks for one launch of products with so many *stages* each."""
    names = [f"S{n}" for n in range(len(stages))]
    kernels = [asked(name, own) for name, own in zip(names, stages, strict=True)]
    return choices(*kernels, {"kernel": " and ".join(names), "template": "packed"})


TWO = ((128, 256, 128), (192, 128, 64))


@pytest.fixture(scope="module")
def plan(cuda_unit: MakeUnit) -> Plan:
    """Two products in four and three stages, in one launch."""
    found: Plan = cuda_unit(text(2), *shapes(TWO), options=options(4, 3)).done.plan
    assert len(found.kernels) == 1 and reason(found) == ""
    return found


def reason(plan: Plan, tree: Node | None = None) -> str:
    """Return why the threads of *plan* are not ordered, with the loops *tree* if they are given."""
    mapped = Mapped(plan.scop, tree or plan.kernels[0].tree)
    return why_not_synchronised(mapped, dependences_of(plan.scop), plan.placements) or ""


def drawn(products: Products, seed: int) -> list[Array]:
    every = enumerate(shapes(products))
    return [values(BFLOAT16, shape, "real", 10 * seed + n) for n, shape in every]


@pytest.mark.parametrize(
    ("products", "stages"),
    [
        (TWO, (3, 3)),
        (((130, 264, 72), (67, 200, 136)), (4, 3)),  # of stages and rows that differ
        (((64, 256, 64), (40, 256, 200), (200, 256, 72)), (3, 4, 3)),
    ],
)
def test_right(
    products: Products, stages: tuple[int, ...], cuda_unit: MakeUnit, emulated: Any
) -> None:
    unit = cuda_unit(text(len(products)), *shapes(products), options=options(*stages))
    (launch,) = unit.source.launches
    assert unit.source.text.count("tc_begin_pipeline<") == len(set(stages))
    assert launch.shared_bytes < sum(stages) * (64 + 64) * 128, "stages have one place"
    (program,) = emulated([unit])
    for seed in range(2):
        check(program, *drawn(products, seed))


@pytest.mark.slow
def test_right_for_random_sizes(
    cuda_unit: MakeUnit, emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tcdsl.strategies.templates.tile_mma.MIN_WORK", 1)
    rng = np.random.default_rng(5)
    units, every = [], []
    for _ in range(6):
        count = int(rng.integers(2, 4))
        products = [
            tuple(int(n) for n in rng.integers((33, 24, 7), (200, 40, 20)) * (1, 8, 8))
            for _ in range(count)
        ]
        stages = [int(n) for n in rng.choice((3, 4), count)]
        units.append(cuda_unit(text(count), *shapes(products), options=options(*stages)))
        assert len(units[-1].source.launches) == 1
        every.append(products)
    for program, products in zip(emulated(units), every, strict=True):
        check(program, *drawn(products, 1))


def test_each_part_has_blocks_and_barriers_of_its_own(plan: Plan) -> None:
    mapped = Mapped(plan.scop, plan.kernels[0].tree)
    axis, parts = own_blocks(mapped)
    ends = [(one.first[axis], one.first[axis] + one.count[axis]) for one in parts]
    assert len(parts) == 2 and ends[0][0] == 0 and ends[0][1] == ends[1][0]
    assert ends[1][1] == mapped.grid[axis]
    pipelines = pipelines_of(mapped, plan.placements)
    assert sorted(one.stages for one in pipelines) == [3, 4]
    assert sorted(one.first for one in pipelines) == [0, 2 * pipelines[0].stages]


def moved(node: Node, axis: int, blocks: int) -> Node:
    """Return *node*, a part of a launch, so many blocks further along *axis*."""
    assert isinstance(node, Loop) and node.kind is LoopKind.BLOCK
    if node.axis != axis:
        return replace(node, body=moved(node.body, axis, blocks))
    others = {
        name: AffineCoordinate(((1, own),), shift=-blocks) for name, own in node.coordinates.items()
    }
    return replace(node, coordinates=others)


def test_a_block_of_two_parts_is_refused(plan: Plan) -> None:
    """They have the same shared memory."""
    axis, _ = own_blocks(Mapped(plan.scop, plan.kernels[0].tree))
    tree = plan.kernels[0].tree
    assert isinstance(tree, Children)
    first, second = tree.children
    near = Children((first, moved(second, axis, -1)))
    assert reason(plan, near) == "a block runs two parts of its launch"


@pytest.mark.parametrize("kind", [EventKind.ACQUIRE, EventKind.AWAIT, EventKind.RELEASE])
def test_barriers_of_another_part_are_refused(kind: EventKind, plan: Plan) -> None:
    def other(statement: Any) -> Any:
        event = statement.event
        is_other = event is not None and event.kind is kind and event.first
        return replace(statement, event=replace(event, first=0)) if is_other else statement

    scop = plan.scop.with_statements(tuple(map(other, plan.scop.statements)))
    wrong = reason(replace(plan, scop=scop))
    assert wrong == "events are those of another part of the launch"


@pytest.mark.parametrize("kind", ["acquire", "await", "release"])
def test_a_part_without_an_event_is_refused(kind: str, plan: Plan) -> None:
    def without(node: Node, name: str) -> Node:
        match node:
            case Loop(body=body):
                return replace(node, body=without(body, name))
            case Children(children=children):
                kept = [child for child in children if getattr(child, "statement", "") != name]
                return Children(tuple(without(child, name) for child in kept))
        return node

    for part in range(2):
        tree = without(plan.kernels[0].tree, f"{kind}0_{part}")
        assert reason(plan, tree) == f"the loop over stages has no {kind}"


def test_products_with_other_warps_share_no_launch(cuda_unit: MakeUnit) -> None:
    own = choices(asked("S0", 3), asked("S1", 3, (16, 128, 8, 1)))
    found = cuda_unit(text(2), *shapes(TWO), options=own).done.plan
    kernels = [Mapped(found.scop, kernel.tree) for kernel in found.kernels]
    assert len(kernels) == 2
    assert why_not_packed(kernels) == "their blocks differ: 32 x 1 x 4 and 32 x 1 x 8 threads"


def test_they_share_one_by_choices_alone(cuda_unit: MakeUnit) -> None:
    own = choices(asked("S0", 3), asked("S1", 3))
    assert len(cuda_unit(text(2), *shapes(TWO), options=own).source.launches) == 2


LARGE = {**asked("S0", 4, (16, 256, 8, 1)), "swath": 4, "is_persistent": True}
REFUSED = {
    "their warps give up other numbers of registers": (
        132, (8192, 8192, 8192), LARGE, {**LARGE, "code": {"thread_registers": 0}},
    ),
    "blocks of one wait for one another": (
        5, (136, 264, 200), {**asked("S0", 4), "shares": 5}, asked("S1", 4),
    ),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_why_they_share_none(
    why: str, cuda_unit: MakeUnit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tcdsl.strategies.templates.tile_mma.MIN_WORK", 1)
    count, product, *kernels = REFUSED[why]
    own = [{**kernel, "kernel": f"S{n}"} for n, kernel in enumerate(kernels)]
    one = choices(*own, {"kernel": "S0 and S1", "template": "packed"})
    gpu = replace(load_chip("h200"), multiprocessors=count)
    with pytest.raises(OptionError, match=why):
        cuda_unit(text(2), *shapes((product, product)), gpu=gpu, options=one)


def test_a_block_has_the_shared_memory_of_one_pipeline() -> None:
    work = Work(
        blocks=200, threads=288, registers=168, shared_bytes=150_000, is_tiled=True,
        operations=((Unit.FMA_F32, 1e9),),
    )  # fmt: skip
    gpu = load_chip("h200")
    assert side_by_side_seconds([work] * 2, gpu) == inf
    assert side_by_side_seconds([work] * 2, gpu, are_apart=True) < inf


STRIDED = """def f(bfloat16(N,P,Q,F) dO, bfloat16(F,3,3,C) K) -> (bfloat16(N,2*P,2*Q,C) dI) {
    dI(n,h,w,c) +=! ((h + 1 - r >= 0 && h + 1 - r < 2*P && w + 1 - s >= 0 && w + 1 - s < 2*Q
        && (h + 1 - r) % 2 == 0 && (w + 1 - s) % 2 == 0)
        ? dO(n, (h + 1 - r) / 2, (w + 1 - s) / 2, f) : 0) * K(f,r,s,c)
        where n in 0:N, h in 0:2*P, w in 0:2*Q
}"""


def test_the_products_of_a_strided_gradient_in_one_launch(cuda_unit: MakeUnit) -> None:
    """One for each remainder, with as many warps, the one with the most steps first."""
    own = {"rows": 16, "columns": 128, "warp_rows": 8, "warp_columns": 1, "stages": 3}
    same = {"step": 64, "together": 4, "loader": "boxes", "swath": 1, "chunks": 1}
    names = [f"S0_r{n}+S0_r{n}_store" for n in range(4)]
    kernels = [
        {"kernel": name, "template": "tile_implicit", **own, **same, "is_persistent": False,
         "is_finished": False}
        for name in names
    ]  # fmt: skip
    one = {"kernel": " and ".join(names), "template": "packed"}
    unit = cuda_unit(STRIDED, (32, 28, 28, 128), (128, 3, 3, 128), options=choices(*kernels, one))
    _, products = unit.source.launches
    kernel = unit.done.plan.kernels[-1]
    parts = Mapped(unit.done.plan.scop, kernel.tree).parts
    steps = [
        max(loop.extent or 0 for name in part.paths for loop in part.paths[name]
            if loop.kind is LoopKind.SERIAL)
        for part in parts
    ]  # fmt: skip
    assert len(parts) == 4 and products.grid[0] == 4 * 196
    assert steps == sorted(steps, reverse=True)
    *_, text = unit.source.text.split("__global__")
    assert text.count("tc_await_kernels()") == 4, "blocks of each part wait, and before they store"
    assert text.index("tc_end_products(") < text.index("tc_await_kernels()")
