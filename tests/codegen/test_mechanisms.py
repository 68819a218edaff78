"""How copies to shared memory move, as schedules say it and as the printed text has it."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

import tcdsl
from tcdsl.codegen.cuda.mechanisms import mechanism_of, print_copies
from tcdsl.costmodel.chip import load_chip
from tcdsl.options import Options
from tcdsl.plan.gpu_planner import plan_for_gpu
from tcdsl.poly.scop import Scop
from tcdsl.schedule.plan import Plan

Lower = Callable[..., Scop]
H200 = load_chip("h200")

FLOATS = "def f(float(M,K) a, float(K,N) b) -> (c) { c(m,n) +=! a(m,k) * b(k,n) }"
HALVES = "def f(float16(M,K) a, float16(K,N) b) -> (c) { c(m,n) +=! a(m,k) * b(k,n) }"
BYTES = (
    "def f(int8(M,K) a, int8(K,N) b) -> (int32(M,N) c) { c(m,n) +=! int32(a(m,k)) * int32(b(k,n)) }"
)
CONVOLUTION = """def f(float16(N,H,W,C) x, float16(KH,KW,C,F) w) -> (y) {
    y(n,h,v,f) +=! x(n,h+p,v+q,c) * w(p,q,c,f)
}"""
TRANSPOSED = "def f(float(M,N) a) -> (c) { c(n,m) = a(m,n) }"
BLUR = """def f(float(H,W) x) -> (y) {
    a(i,j) = x(i,j) + x(i,j+1) + x(i,j+2)
    y(i,j) = a(i,j) + a(i+1,j) + a(i+2,j)
}"""


def planned(scop: Scop) -> Plan:
    return plan_for_gpu(scop, Options(), H200)


def copies(plan: Plan) -> list[str]:
    return [
        line for kernel in plan.kernels
        for line in print_copies(plan.scop, kernel.tree, plan.placements)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "shapes", "expected"),
    [
        (HALVES, ((512, 512), (512, 512)), ["tma_box", "tma_box"]),
        (CONVOLUTION, ((8, 30, 30, 64), (3, 3, 64, 64)), ["tma_box, im2col", "tma_box"]),
        (BYTES, ((512, 512), (512, 512)), ["cp_async, 16 bytes", "cp_async, 16 bytes"]),
        (FLOATS, ((300, 120), (120, 500)), ["cp_async, 4 bytes", "cp_async, 16 bytes"]),
        (TRANSPOSED, ((1024, 1024),), ["vector, 16 bytes"]),
    ],
    ids=["boxes", "pixels", "bytes", "floats", "transposition"],
)
def test_mechanisms(
    source: str, shapes: tuple[tuple[int, ...], ...], expected: list[str], lower: Lower
) -> None:
    found = copies(planned(lower(source, *shapes)))
    assert [line.partition(": ")[2] for line in found] == expected


def test_what_is_computed_or_in_registers_is_no_copy(lower: Lower) -> None:
    """The blur computes its plane in shared memory; threads of a product hold parts of tiles."""
    assert copies(planned(lower(BLUR, (2000, 2000)))) == []
    found = copies(planned(lower(FLOATS, (300, 120), (120, 500))))
    assert len(found) == 2 and not any("held" in line for line in found)


def test_neighbours_of_another_order_or_type_are_repacked(lower: Lower) -> None:
    """Were it not for asynchronous copies, a's columns would be stored one by one, b's together."""
    plan = planned(lower(FLOATS, (300, 120), (120, 500)))
    (kernel,) = plan.kernels
    placements = {name: replace(p, is_staged=False) for name, p in plan.placements.items()}
    first, second = (
        next(s for s in plan.scop.statements if s.write.array == f"{name}S0")
        for name in ("a.tile0", "b.tile1")
    )
    assert mechanism_of(plan.scop, kernel.tree, first, placements) == "repack"
    assert mechanism_of(plan.scop, kernel.tree, second, placements) == "vector, 16 bytes"
    narrow = lower(HALVES, (8, 8), (8, 8)).arrays["b"].dtype
    arrays = {**plan.scop.arrays, "b": replace(plan.scop.arrays["b"], dtype=narrow)}
    scop = replace(plan.scop, arrays=arrays)
    assert mechanism_of(scop, kernel.tree, second, placements) == "repack"


def test_the_schedule_shows_what_the_text_does() -> None:
    specs = tcdsl.spec((300, 120), "float32"), tcdsl.spec((120, 500), "float32")
    exe = tcdsl.define(FLOATS).f.compile(*specs, target="emulate")
    for line in ("a to a.tile0S0: cp_async, 4 bytes", "b to b.tile1S0: cp_async, 16 bytes"):
        assert f"  copy of {line}\n" in exe.schedule and line in exe.explain()
    assert re.search(r"tc_copy_async\w*<1>\(", exe.source)
    assert re.search(r"tc_copy_async\w*<4>\(", exe.source)
