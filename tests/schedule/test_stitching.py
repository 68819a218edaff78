"""Stitching: kernels with a last block, and what is none."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.device import cuda
from tcdsl.costmodel.chip import load_chip
from tcdsl.driver import GpuBackend
from tcdsl.errors import EmulationError
from tcdsl.poly.loop_tree import (
    Loop,
    LoopKind,
    Node,
    Sequence,
    loops_of,
    sequence,
    statements_of,
)
from tcdsl.schedule.mapping import Mapped, why_not_mapped
from tcdsl.schedule.plan import Plan
from tcdsl.schedule.stitching import is_finished, stitch, why_not_stitched
from tcdsl.testing.comparison import check

MakeUnit = Callable[..., Any]

COLUMNS = "def f(float(M,N) x) -> (y) { y(j) +=! x(i,j) }"


@pytest.fixture(scope="module")
def plan(cuda_unit: MakeUnit) -> Plan:
    done: Plan = cuda_unit(COLUMNS, (20_000, 256)).done.plan
    return done


def last_of(plan: Plan) -> Loop:
    (kernel,) = plan.kernels
    (last,) = [loop for loop in loops_of(kernel.tree) if loop.kind is LoopKind.LAST]
    return last


def mapped_with(node: Node, change: Callable[[Loop], Node]) -> Node:
    """Return *node* with every loop, from the inside out, as *change* has it."""
    match node:
        case Loop(body=body):
            return change(replace(node, body=mapped_with(body, change)))
        case Sequence(children=children):
            return sequence([mapped_with(child, change) for child in children])
        case _:
            return node


def why_not_legal(plan: Plan, tree: Node) -> str | None:
    (kernel,) = plan.kernels
    changed = replace(plan, kernels=(replace(kernel, tree=tree),))
    return GpuBackend(load_chip("h200"), {}).why_not_legal(changed)


def test_the_last_block_is_beside_the_chunks(plan: Plan) -> None:
    (kernel,) = plan.kernels
    tiles = kernel.tree
    assert isinstance(tiles, Loop) and tiles.kind is LoopKind.BLOCK
    assert isinstance(tiles.body, Sequence)
    chunks, last = tiles.body.children
    assert isinstance(chunks, Loop) and isinstance(last, Loop)
    assert (chunks.kind, last.kind) == (LoopKind.BLOCK, LoopKind.LAST)
    assert last.width == chunks.width > 1
    mapped = Mapped(plan.scop, kernel.tree)
    assert why_not_mapped(mapped) is None and why_not_stitched(mapped) is None
    update, fold = next(statements_of(chunks)), list(statements_of(last))[-1]
    assert is_finished(mapped, update, fold) and not is_finished(mapped, fold, fold)


def test_a_last_block_waits_for_all_others(plan: Plan) -> None:
    (kernel,) = plan.kernels
    last = last_of(plan)

    def fewer(loop: Loop) -> Node:
        return replace(loop, width=loop.width - 1) if loop.name == last.name else loop

    reason = why_not_legal(plan, mapped_with(kernel.tree, fewer))
    assert reason is not None and f"waits for {last.width - 1} blocks" in reason


def test_what_needs_the_last_block_does_not_go_without(plan: Plan) -> None:
    (kernel,) = plan.kernels
    last = last_of(plan)

    def opened(loop: Loop) -> Node:
        return loop.body if loop.name == last.name else loop

    reason = why_not_legal(plan, mapped_with(kernel.tree, opened))
    assert reason is not None and "every block would run" in reason


def test_a_block_with_two_turns_takes_two_tickets(plan: Plan) -> None:
    (kernel,) = plan.kernels

    def halved(loop: Loop) -> Node:
        is_chunk = loop.kind is LoopKind.BLOCK and not isinstance(loop.body, Sequence)
        return replace(loop, width=loop.width // 2) if is_chunk else loop

    reason = why_not_legal(plan, mapped_with(kernel.tree, halved))
    assert reason is not None and "several iterations" in reason


def test_threads_come_to_the_last_block_together(plan: Plan) -> None:
    (kernel,) = plan.kernels
    last = last_of(plan)
    thread = next(loop for loop in loops_of(last.body) if loop.kind is LoopKind.THREAD)

    def inside_out(loop: Loop) -> Node:
        if loop.name == last.name:
            return replace(thread, body=replace(loop, body=thread.body))
        return loop

    reason = why_not_legal(plan, mapped_with(kernel.tree, inside_out))
    assert reason is not None and "not every thread comes" in reason


def test_dependences_stay_within_the_tiles(cuda_unit: MakeUnit) -> None:
    """The fold of other columns than the block's own must not pass."""
    one = cuda_unit(COLUMNS, (20_000, 256)).done.plan
    (kernel,) = one.kernels
    tiles = kernel.tree
    assert isinstance(tiles, Loop) and isinstance(tiles.body, Sequence)
    folds = set(statements_of(tiles.body.children[1]))
    count = tiles.extent  # of tiles of 256 columns
    assert isinstance(count, int) and count > 1
    shifted = {
        name: replace(c, shift=c.shift - 256 // count, mod=count) if name in folds else c  # type: ignore[type-var]
        for name, c in tiles.coordinates.items()
    }
    reason = why_not_legal(one, replace(tiles, coordinates=shifted))
    assert reason is not None and ("conflict" in reason or "violated" in reason)


def test_only_what_has_fewer_blocks_follows(cuda_unit: MakeUnit) -> None:
    plan = cuda_unit("def f(float(N) x) -> (y, z) { y(i) = x(i)\n z(i) = x(i) }", (4096,)).done.plan
    tree = plan.kernels[0].tree
    assert stitch(tree, tree, "last") is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("__threadfence();\n    is_last", "is_last"),
        ("== n - 1u;", "== 0u;"),
        ("int is_last = 0;\n  __syncthreads();", "int is_last = 0;"),
    ],
    ids=["no fence", "the first block", "no barrier"],
)
def test_the_emulator_finds_a_defect_of_the_ticket(
    old: str, new: str, cuda_unit: MakeUnit, monkeypatch: pytest.MonkeyPatch,
    emulated: Callable[..., Any],
) -> None:  # fmt: skip
    text = cuda._part_text("ticket")
    assert old in text
    original = cuda._part_text.__wrapped__

    def part_text(part: str) -> str:
        return original(part).replace(old, new) if part == "ticket" else original(part)

    monkeypatch.setattr(cuda, "_part_text", part_text)
    (run,) = emulated([cuda_unit(COLUMNS, (20_000, 40))])
    with pytest.raises(EmulationError, match=r"race|never written"):
        check(run, np.ones((20_000, 40), np.float32))
