"""Slots of folds: who has some of its own, in what order, and how much shared memory they are."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import islpy as isl
import pytest

import tcdsl
from tcdsl import library
from tcdsl.codegen.cuda import kernel as cuda_kernel
from tcdsl.codegen.cuda.printer import print_cuda
from tcdsl.codegen.device.cuda import FUNCTIONS, header_text, parts_for
from tcdsl.costmodel.chip import load_chip
from tcdsl.driver import compile_to_cuda
from tcdsl.errors import InternalError
from tcdsl.lang.request import Request
from tcdsl.options import Options
from tcdsl.plan import search
from tcdsl.poly.isl_utils import val
from tcdsl.poly.loop_tree import Loop, LoopKind, Node, Sequence
from tcdsl.poly.scop import Kind, Statement
from tcdsl.runtime.nvrtc import compile_cuda, why_no_cuda_compiler
from tcdsl.schedule import fold_slots as module
from tcdsl.schedule.fold_slots import (
    MOST_NUMBERED,
    FoldSlots,
    array_bytes,
    fold_slots,
    slot_bytes_at_most,
    slot_bytes_of_each,
    static_bytes,
    why_not_numbered,
)
from tcdsl.schedule.mapping import RANK, Mapped
from tcdsl.schedule.placement import Space
from tcdsl.schedule.plan import Plan
from tests.codegen.cubins import shared_bytes
from tests.strategies import waiting_sums
from tests.strategies.waiting_sums import keep_all_columns, program, share_short_rows

MakePlan = Callable[..., Plan]
Change = Callable[[Loop], Loop]

ROWS = (program("softmax", waiting_sums.ROWS), (5, 4096))
# threads along x and y, folds of the lanes of vectors
COLUMNS = (program("softmax without e", waiting_sums.COLUMNS), (6272, 16))
ONE_FOLD = ("def f(float(M,N) x) -> (y) { s(i) +=! x(i,j)  y(i,j) = x(i,j) - s(i) }", (5, 4096))
# threads along both axes of a row, and along one
GROUPS = (
    """def f(float(G,D,P) x) -> (y) {
        mean(g) +=! x(g,d,p)
        part(g,d) +=! x(g,d,p) * mean(g)
        total(g) +=! part(g,d) * part(g,d)
        y(g,d,p) = x(g,d,p) - total(g)
    }""",
    (3, 8, 4096),
)
SMALL = (
    """def f(float(M,N) x) -> (y, any) {
        top(i) max=! x(i,j)
        any(i) or=! x(i,j) > 0.5
        y(i,j) = x(i,j) - top(i)
    }""",
    (5, 4096),
)
ARG = (
    """def f(float(M,N) x) -> (y) {
        top(i) argmax=! x(i,j)
        s(i) +=! x(i,j)
        y(i,j) = x(i,j) * s(i) + float(top(i))
    }""",
    (5, 4096),
)
DOUBLES = (program("softmax", waiting_sums.ROWS, "double"), (3, 2050))
# no clusters: columns, whose lanes are of two elements
BLOCKS = ("def f(float(M,N) x) -> (y, z) { y(j) +=! x(i,j)  z(j) max=! x(i,j) }", (4096, 514))


_MADE: dict[Any, Plan] = {}


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, cuda_unit: Callable[..., Any]) -> MakePlan:
    """``plan(source, *shapes)``: one kernel, for clusters wherever they are possible.

    It is made once: plans do not change.
    """
    share_short_rows(monkeypatch)
    keep_all_columns(monkeypatch)

    def plan_(source: str, *shapes: tuple[int, ...], **choices: Any) -> Plan:
        asked = source, shapes, tuple(choices.items())
        if asked not in _MADE:
            _MADE[asked] = cuda_unit(source, *shapes, **choices).done.plan
        return _MADE[asked]

    return plan_


def mapped(plan: Plan) -> Mapped:
    (kernel,) = plan.kernels
    return Mapped(plan.scop, kernel.tree)


def slots_of(plan: Plan) -> FoldSlots:
    return fold_slots(mapped(plan), plan.placements)


def folds_of(kernel: Mapped) -> list[Statement]:
    return [s for s in map(kernel.scop.by_name.__getitem__, kernel.paths) if s.kind is Kind.FOLD]


def changed(tree: Node, change: Change) -> Node:
    """Return *tree* with every loop changed."""
    match tree:
        case Loop():
            return change(replace(tree, body=changed(tree.body, change)))
        case Sequence(children=children):
            return Sequence(tuple(changed(child, change) for child in children))
    return tree


# --- numbers --------------------------------------------------------------------------------


@pytest.mark.parametrize(("source", "shape"), [ROWS, DOUBLES, COLUMNS])
def test_folds_are_numbered_in_the_order_in_which_they_run(
    source: str, shape: tuple[int, ...], plan: MakePlan
) -> None:
    made = plan(source, shape)
    slots = slots_of(made)
    assert list(slots.numbers) == [fold.name for fold in folds_of(mapped(made))]
    assert list(slots.numbers.values()) == [0, 1]
    text = print_cuda(made).text
    assert "tc_cluster_begin<2>();" in text and "tc_cluster_end<2>();" in text
    for number in (0, 1):
        assert text.count(f", {number}>(") == 1


@pytest.mark.parametrize(
    ("source", "shape", "reason"),
    [
        (*ONE_FOLD, "1 folds are over clusters"),
        (*SMALL, "too small to be stored asynchronously"),
    ],
)
def test_kernels_whose_folds_share_slots(
    source: str, shape: tuple[int, ...], reason: str, plan: MakePlan
) -> None:
    made = plan(source, shape)
    kernel = mapped(made)
    assert kernel.cluster > 1 and slots_of(made).numbers == {}
    assert reason in (why_not_numbered(kernel, folds_of(kernel), {}) or "")
    assert "tc_cluster_begin();" in print_cuda(made).text


def on_blocks(**new: Any) -> Change:
    return lambda loop: replace(loop, **new) if loop.kind is LoopKind.BLOCK else loop


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (on_blocks(width=6), "some blocks do not run S0_part0_fold"),
        (on_blocks(width=4), "blocks or threads run S0_part0_fold in turns"),
        (on_blocks(kind=LoopKind.SERIAL), "a block runs S0_part0_fold several"),
        (on_blocks(kind=LoopKind.LAST), "one of the blocks runs S0_part0_fold"),
        (on_blocks(limit=4), "S0_part0_fold may be printed twice"),
    ],
)
def test_what_is_not_called_once_by_every_block(
    change: Change, reason: str, plan: MakePlan
) -> None:
    made = plan(*ROWS)
    kernel = Mapped(made.scop, changed(mapped(made).tree, change))
    assert reason in (why_not_numbered(kernel, folds_of(kernel), {}) or "")


ROWS_AND_COLUMNS = """def f(float(M,N) x, float(M,N) d) -> (e, c) {
    r(i) +=! x(i,j) * x(i,j)
    q(i) +=! d(i,j) * x(i,j)
    e(i,j) = d(i,j) * r(i) + x(i,j) * q(i)
    c(j) +=! d(i,j) * x(i,j) * r(i)
}"""


def test_folds_of_one_row_after_another_have_two_sets(cuda_unit: Callable[..., Any]) -> None:
    made = cuda_unit(ROWS_AND_COLUMNS, (2048, 16384), (2048, 16384)).done.plan
    kernel = Mapped(made.scop, made.kernels[0].tree)
    assert made.kernels[0].template == "row_column" and kernel.cluster > 1
    slots = fold_slots(kernel, made.placements)
    folds = [fold for fold in folds_of(kernel) if RANK in kernel.fold_axes(fold)]
    assert slots.in_turns and list(slots.numbers) == [fold.name for fold in folds]
    assert "several times" in (why_not_numbered(kernel, folds, {}) or "")
    alone = replace(slots, joint={})
    both, one = (
        static_bytes(kernel, made.placements, own)
        for own in (alone, replace(alone, in_turns=False))
    )
    assert both == one + 2 * 4 * kernel.threads[0] // 32 * kernel.cluster
    text = print_cuda(made).text
    assert "tc_cluster_begin<2, true>();" in text and "uint32_t w_turns = 0;" in text
    assert slots.joint == {folds[0].name: folds[1].name}
    assert text.count(", 0>(tc_vec<float, 2>{{") == 1 and text.count(", w_turns)") == 1


def test_columns_do_not_fold_in_turns(plan: MakePlan) -> None:
    kernel = mapped(plan(*COLUMNS))
    why = why_not_numbered(kernel, folds_of(kernel), {}, in_turns=True)
    assert why is not None and why.startswith("not every warp")


def test_what_is_called_once_has_no_turns(plan: MakePlan) -> None:
    kernel = mapped(plan(*ROWS))
    assert "once" in (why_not_numbered(kernel, folds_of(kernel), {}, in_turns=True) or "")


def test_threads_in_turns_fold_again(plan: MakePlan) -> None:
    made = plan(*COLUMNS)
    first = folds_of(mapped(made))[0].name
    assert mapped(made).thread_loop(first, 0) is not None

    def narrow(loop: Loop) -> Loop:
        is_x = loop.kind is LoopKind.THREAD and loop.axis == 0
        return replace(loop, width=1) if is_x else loop

    kernel = Mapped(made.scop, changed(mapped(made).tree, narrow))
    why = why_not_numbered(kernel, folds_of(kernel), slots_of(made).lanes)
    assert why is not None and "in turns" in why


def test_lanes_one_by_one_are_several_calls(plan: MakePlan) -> None:
    made = plan(*COLUMNS)
    kernel = mapped(made)
    assert set(slots_of(made).lanes) == {fold.name for fold in folds_of(kernel)}
    why = why_not_numbered(kernel, folds_of(kernel), {})
    assert why is not None and why.startswith("a block runs")


def test_what_isl_may_print_as_two_loops(plan: MakePlan) -> None:
    made = plan(*COLUMNS, options=Options(vectorise=False))
    kernel = mapped(made)
    first, second = folds_of(kernel)
    assert why_not_numbered(kernel, [first, second], {}) is None
    one = first.domain.fix_val(isl.dim_type.set, 0, val(3))
    statements = [
        replace(s, domain=s.domain.subtract(one)) if s is first else s for s in made.scop.statements
    ]
    kernel = Mapped(made.scop.with_statements(tuple(statements)), kernel.tree)
    why = why_not_numbered(kernel, folds_of(kernel), {})
    assert why == f"{first.name} may be printed twice"


def test_a_wide_barrier_leaves_folds_without_numbers(plan: MakePlan) -> None:
    made = plan(*ROWS)
    statements = [
        replace(s, is_wide=True) if s.kind is Kind.BARRIER else s for s in made.scop.statements
    ]
    wide = replace(made, scop=made.scop.with_statements(tuple(statements)))
    assert slots_of(made).numbers and not slots_of(wide).numbers
    text = print_cuda(wide).text
    assert "tc_cluster_sync();" in text and "tc_cluster_begin();" in text


def test_the_device_library_has_room_for_few(plan: MakePlan) -> None:
    kernel = mapped(plan(*ROWS))
    folds = folds_of(kernel)
    assert why_not_numbered(kernel, folds * (MOST_NUMBERED // 2), {}) is None
    assert why_not_numbered(kernel, folds * (MOST_NUMBERED // 2 + 1), {}) is not None


def test_shared_memory_must_have_room(monkeypatch: pytest.MonkeyPatch, plan: MakePlan) -> None:
    made = plan(*COLUMNS)
    kernel, slots = mapped(made), slots_of(made)
    needed = static_bytes(kernel, made.placements, FoldSlots(slots.lanes, {}))
    monkeypatch.setattr(module, "STATIC_BYTES", needed)
    assert slots_of(made) == slots
    monkeypatch.setattr(module, "STATIC_BYTES", needed - 1)
    assert len(slots_of(made).lanes) == 1 and not slots_of(made).numbers
    monkeypatch.setattr(module, "MOST_LANES_BYTES", 0)
    assert slots_of(made) == FoldSlots({}, {})


def test_what_the_launch_asks_for_is_taken_too(plan: MakePlan) -> None:
    """Slots have what a block may have in all but for the rows that are staged there."""
    made = plan(*ROWS)
    kernel, slots = mapped(made), slots_of(made)
    staged = array_bytes(kernel, made.placements, is_dynamic=True)
    needed = staged + static_bytes(kernel, made.placements, slots)
    assert staged > 0 and slots.numbers
    assert fold_slots(kernel, made.placements, needed) == slots
    assert not fold_slots(kernel, made.placements, needed - 1).numbers
    assert made.shared_bytes == load_chip("h200").shared_bytes_per_block
    assert static_bytes(kernel, made.placements, slots) <= slot_bytes_of_each(kernel)


@pytest.mark.parametrize("program", [ROWS, COLUMNS])
def test_a_call_that_is_printed_twice_is_refused(
    program: tuple[str, tuple[int, ...]], monkeypatch: pytest.MonkeyPatch, plan: MakePlan
) -> None:
    """What isl prints is counted: slots that are used again hang a GPU, or lose what was put."""
    made = plan(*program)
    right = slots_of(made)

    def with_one_more(*_: Any) -> FoldSlots:
        return FoldSlots({}, {**right.numbers, "elsewhere": 2})

    monkeypatch.setattr(cuda_kernel, "fold_slots", with_one_more)
    with pytest.raises(InternalError, match="slots of their own"):
        print_cuda(made)


# --- bytes ----------------------------------------------------------------------------------


@pytest.mark.skipif(why_no_cuda_compiler() is not None, reason="there is no NVRTC")
@pytest.mark.parametrize(
    ("source", "shape"), [ROWS, DOUBLES, ARG, COLUMNS, ONE_FOLD, SMALL, BLOCKS, GROUPS]
)
def test_bytes_are_what_the_compiler_takes(
    source: str, shape: tuple[int, ...], plan: MakePlan
) -> None:
    made = plan(source, shape)
    printed = print_cuda(made)
    parts = parts_for(printed.functions & FUNCTIONS.keys())
    taken = shared_bytes(compile_cuda(f"{header_text(parts)}\n{printed.text}", "sm_90"))
    for launch, kernel in zip(printed.launches, made.kernels, strict=True):
        own = Mapped(made.scop, kernel.tree)
        slots = fold_slots(own, made.placements)
        expected = static_bytes(own, made.placements, slots)
        found = taken.get(launch.name, 0)
        assert found == expected or (found < expected and slots.lanes and not slots.numbers)


@pytest.mark.parametrize(
    ("source", "shape"), [ROWS, DOUBLES, ARG, COLUMNS, ONE_FOLD, BLOCKS, GROUPS]
)
def test_what_arrays_leave_is_enough(source: str, shape: tuple[int, ...], plan: MakePlan) -> None:
    """Arrays are placed before it is known which threads get what folds make."""
    made = plan(source, shape)
    kernel = mapped(made)
    without = {n: p for n, p in made.placements.items() if p.space is not Space.SHARED}
    taken = static_bytes(kernel, without, FoldSlots({}, {}))
    assert 0 < taken <= slot_bytes_at_most(kernel)


def test_many_folds_leave_shared_memory_to_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folds of all threads take 1 KB: partial sums that threads exchange have room."""
    monkeypatch.setattr(search, "_split", lambda state, *_: state)  # all folds in one kernel
    f = tcdsl.vjp(tcdsl.define(library.case("group_norm").source).group_norm)
    x, group = tcdsl.spec((8, 32, 4, 128, 128), "float32"), tcdsl.spec((32, 4), "float32")
    special = f.specialise(x, group, group, 1e-5, x)
    gpu = replace(load_chip("h200"), blocks_per_cluster=1)
    plan = compile_to_cuda(Request(f.comprehension, special), gpu).plan
    kernel = max((Mapped(plan.scop, k.tree) for k in plan.kernels), key=lambda k: len(folds_of(k)))
    partial = plan.placements["d_rstd_part.kept.part2"]
    threads = kernel.block[0]
    assert len(folds_of(kernel)) >= 5 and threads >= 512
    assert (partial.space, partial.elements()) == (Space.SHARED, 4 * threads)
