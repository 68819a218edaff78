"""Plan search: what is merged, what stays two kernels and why, and that results are right."""

import re
from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.costmodel.chip import load_chip
from tcdsl.options import Options
from tcdsl.plan import search
from tcdsl.plan.gpu_planner import plan_for_gpu
from tcdsl.plan.moves import Merge, alike, all_merged, in_order, merges
from tcdsl.plan.state import Evaluator
from tcdsl.poly.scop import Scop
from tcdsl.strategies.gpu_grouping import group_for_gpu

Lower = Callable[..., Scop]
CheckAll = Callable[..., None]
H200 = load_chip("h200")

# Gates read nothing that another step's gates read: only the cell ties the steps, after their own.
STEP = """
    i{t}(b,n) = sigmoid(p{t}(b,0,n))
    f{t}(b,n) = sigmoid(p{t}(b,1,n))
    g{t}(b,n) = tanh(p{t}(b,2,n))
    c{t}(b,n) = f{t}(b,n) * {cell}(b,n) + i{t}(b,n) * g{t}(b,n)
    h{t}(b,n) = tanh(c{t}(b,n))
"""
STEPS = (
    "def f(float(B,3,N) p0, float(B,3,N) p1, float(B,3,N) p2, float(B,N) c) -> (h0, h1, h2) {"
    + "".join(STEP.format(t=t, cell=f"c{t - 1}" if t else "c") for t in range(3)) + "}"
)  # fmt: skip
# c reads all of s, which reads all of a; b reads a and c: with a in its kernel it would wait for c.
AROUND = """def f(float(M,N) x) -> (a, b) {
    a(i,j) = exp(x(i,j))
    s(j) +=! a(i,j)
    t +=! s(j)
    b(i,j) = a(i,j) / t
}"""
ROWS_AND_ALL = "def f(float(M,N) x) -> (y, s) { y(i) +=! x(i,j)\n s +=! y(i) * y(i) }"
SUMS_OF_SUMS = "def f(float(Q,L,C) x) -> (s, m) { s(q,c) +=! x(q,r,c)\n m(c) +=! s(q,c) }"
FEW_LONG = "def f(float(N) x, float(M) z) -> (y) { y(i) = x(i)\n y(i) += z(k) where i in 0:3 }"
BLUR = """def f(float(H,W) x) -> (y) {
    a(i,j) = x(i,j) + x(i,j+1) + x(i,j+2)
    y(i,j) = a(i,j) + a(i+1,j) + a(i+2,j)
}"""


def kernels(scop: Scop, **options: Any) -> list[str]:
    return [kernel.name for kernel in plan_for_gpu(scop, Options(**options), H200).kernels]


def test_steps_that_only_a_cell_ties_are_one_kernel(lower: Lower) -> None:
    scop = lower(STEPS, *[(256, 3, 512)] * 3, (256, 512))
    assert len(kernels(scop)) == 1
    assert len(kernels(scop, fuse="none")) > 3


def test_sums_of_sums_are_another_kernel_where_they_leave_few_blocks(
    lower: Lower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Together blocks have a column each, and all its chunks: 23.4 us predicted for 13.9."""
    scop = lower(SUMS_OF_SUMS, (32, 128, 2560))
    assert kernels(scop) == ["S0", "S1"]
    monkeypatch.setattr(Evaluator, "has_sums_of_sums", lambda *_: False)
    assert kernels(scop) != ["S0", "S1"]


def test_the_search_ends_after_so_many_predictions(
    lower: Lower, monkeypatch: pytest.MonkeyPatch
) -> None:
    scop = lower(STEPS, *[(256, 3, 512)] * 3, (256, 512))
    monkeypatch.setattr(search, "PREDICTIONS", 0)
    assert len(kernels(scop)) > 1  # a move or two: the limit is looked at after each


def test_steps_that_are_alike_are_merged_together(lower: Lower) -> None:
    """Each step's gates with its cell: one state, however many steps there are."""
    grouped = group_for_gpu(lower(STEPS, *[(256, 3, 512)] * 3, (256, 512)), Options(), H200)
    known = Evaluator(grouped, Options(), H200)
    state = known.state([part for group in grouped.groups for part in known.parts(group)])
    moves = [move for move in merges(state, known) if isinstance(move, Merge)]
    most = max(alike(moves), key=len)
    assert len(most) >= 3 and sum(map(len, alike(moves))) == len(moves)
    after = all_merged(state, most, known)
    gone = len(state.groups) - len(after.groups)
    assert gone > 1
    saved = most[0].saved_seconds
    assert after.seconds == pytest.approx(state.seconds - gone * saved)
    assert in_order(after.groups, known) == list(after.groups)
    members = [name for group in after.groups for name in group.members]
    assert sorted(members) == sorted(name for group in state.groups for name in group.members)


def test_no_group_waits_for_itself(lower: Lower) -> None:
    grouped = group_for_gpu(lower(AROUND, (4096, 4096)), Options(), H200)
    known = Evaluator(grouped, Options(), H200)
    by_member = {name: group for group in grouped.groups for name in group.members}
    a, t, b = (by_member[name] for name in ("S0", "S2", "S3"))
    assert len({id(group) for group in (a, t, b)}) == 3
    both = known.joined((a, b))
    assert both is not None
    rest = [group for group in grouped.groups if group not in (a, b)]
    assert in_order([both, *rest], known) is None
    assert in_order([b, *rest, a], known) == list(grouped.groups)
    moves = merges(known.state(grouped.groups), known)
    tried = [m.parts if isinstance(m, Merge) else (m.one, m.other) for m in moves]
    assert tried and [a, b] not in map(list, tried), "c would be between them"


def test_what_few_threads_would_wait_for_is_a_kernel_of_its_own(lower: Lower) -> None:
    scop = lower(FEW_LONG, (4000000,), (1000000,))
    assert len(kernels(scop)) > 1
    assert len(kernels(lower(FEW_LONG, (4000000,), (8,)))) == 1


def test_why_kernels_stay_two_is_told_with_both_times(lower: Lower) -> None:
    plan = plan_for_gpu(lower(ROWS_AND_ALL, (8192, 4096)), Options(), H200)
    (found,) = plan.apart()
    assert (found.one, found.others) == ("S0", ("S1",))
    assert re.fullmatch(r"one kernel would take \S+ us, two take \S+ us", found.reason)


@pytest.mark.slow_but("shape0")
@pytest.mark.parametrize("shape", [(1, 1), (5, 37), (33, 130)])
def test_results(shape: tuple[int, int], check_emulated: CheckAll) -> None:
    m, n = shape
    check_emulated([
        (STEPS, [(m, 3, n)] * 3 + [(m, n)]),
        (AROUND, [(m, n)]),
        (BLUR, [(m + 2, n + 2)]),
        (FEW_LONG, [(m + 2,), (n,)]),
    ])  # fmt: skip


def test_a_sum_over_neighbours_in_memory_is_not_taken_apart(cuda_unit: Callable[..., Any]) -> None:
    """Weights of 167 images took 2933 us with parts for each w, 1130 with chunks (H200)."""
    source = """def f(float(N,F,H,W) g, float(N,C,H,W) x) -> (k) {
        k(f,c,p,q) +=! g(n,f,h,w) * (h + p < 1 || h + p > H || w + q < 1 || w + q > W ? 0.0 :
                                     x(n,c,h+p-1,w+q-1)) where p in 0:3, q in 0:3
    }"""
    shape = (167, 64, 56, 56)
    kernels = cuda_unit(source, shape, shape).done.plan.kernels
    at = next(n for n, kernel in enumerate(kernels) if kernel.template == "tile_implicit")
    assert all("_ordered" in copy.name for copy in kernels[:at])
    assert kernels[at + 1].name.endswith("_fold")
