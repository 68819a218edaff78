"""Kernels that could share a launch get blocks of one shape, if that is predicted to be faster."""

from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.options import Options
from tcdsl.poly.dependences import dependences_of
from tcdsl.poly.scop import Scop
from tcdsl.schedule.fusion import unrelated_parts
from tcdsl.strategies.gpu_shapes import gpu_shapes_of

ROPE = """def rope(float(B,S,H,D) q, float(B,S,K,D) k, float(S,D) cos, float(S,D) sin) -> (u, v) {
    u(b,s,h,d) = q(b,s,h,d) * cos(s,d)
            + (d < D / 2 ? -q(b,s,h,d + D / 2) : q(b,s,h,d - D / 2)) * sin(s,d)
    v(b,s,h,d) = k(b,s,h,d) * cos(s,d)
            + (d < D / 2 ? -k(b,s,h,d + D / 2) : k(b,s,h,d - D / 2)) * sin(s,d)
}"""
CHAIN = """def f(float(B,S,H,D) q, float(B,S,K,D) k, float(S,D) cos) -> (u, v) {
    u(b,s,h,d) = q(b,s,h,d) * cos(s,d)
    v(b,s,h,d) = k(b,s,h,d) * u(b,s,0,d)
}"""
SAME = """def f(float(M,N) x) -> (u, v) { u(i,j) = exp(x(i,j))  v(i,j) = x(i,j) + 1.0 }"""
Unit = Callable[..., Any]


def shapes_of(b: int, s: int, h: int, k: int, d: int) -> list[tuple[int, ...]]:
    return [(b, s, h, d), (b, s, k, d), (s, d), (s, d)]


def test_queries_and_keys_are_one_launch_without_loops(cuda_unit: Unit) -> None:
    """Alone queries have blocks of 32 x 8 threads, and keys, of which there are 4 heads, 32 x 4."""
    shapes = shapes_of(16, 512, 40, 4, 128)
    (kernel,) = cuda_unit(ROPE, *shapes).source.kernels
    assert kernel.label == "S0+S1" and kernel.block == (32, 4, 1)
    text = cuda_unit(ROPE, *shapes).source.text
    assert "for (int c3" not in text and text.count("tc_vstore") == 2
    alone = cuda_unit(ROPE, *shapes, options=Options(fuse="none")).source
    assert [launch.block for launch in alone.kernels] == [(32, 8, 1), (32, 4, 1)]


def test_what_depends_on_another_kernel_keeps_its_blocks(cuda_unit: Unit) -> None:
    source = cuda_unit(CHAIN, *shapes_of(16, 512, 40, 8, 128)[:3]).source
    assert len(source.kernels) == 2 or "S0+S1" in source.text


def test_what_reads_the_same_is_one_kernel(cuda_unit: Unit) -> None:
    source = cuda_unit(SAME, (4096, 4096)).source
    assert len(source.kernels) == 1 and "none of which depends on another" not in source.text


def test_parts_that_have_nothing_to_do_with_one_another(lower: Callable[..., Scop]) -> None:
    def parts(source: str, *shapes: tuple[int, ...]) -> list[tuple[str, ...]]:
        scop = lower(source, *shapes)
        members = [s.name for s in scop.statements]
        return unrelated_parts(members, gpu_shapes_of(scop, dependences_of(scop)))

    assert parts(ROPE, *shapes_of(2, 4, 8, 2, 16)) == [("S0",), ("S1",)]
    assert parts(CHAIN, *shapes_of(2, 4, 8, 2, 16)[:3]) == [("S0", "S1")]
    assert parts(SAME, (4, 8)) == [("S0",), ("S1",)]


@pytest.mark.slow_but("bfloat16")
@pytest.mark.parametrize("element", ["float", "bfloat16"])
def test_results(element: str, check_emulated: Callable[..., None]) -> None:
    source = ROPE.replace("float(", f"{element}(")
    cases = [(3, 70, 12, 4, 32), (1, 257, 8, 8, 16), (2, 5, 3, 2, 7), (2, 64, 9, 5, 64)]
    check_emulated([(source, shapes_of(*sizes)) for sizes in cases])
