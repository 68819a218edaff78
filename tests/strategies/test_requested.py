"""Tiles on request, and no vectors, in the kernels of GpuSketcher and of tiled contractions.

That results are right is tested with those of isl's schedules, in test_gpu_generic.py.
"""

from collections.abc import Callable
from math import prod
from typing import Any

import pytest

from tcdsl.options import Options
from tcdsl.poly.loop_tree import Loop, LoopKind, with_kind
from tcdsl.strategies import requested

MakeUnit = Callable[..., Any]
CheckAll = Callable[..., None]

MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
SOFTMAX = """def f(float(N,D) x) -> (y) {
    m(i) max=! x(i,j)
    s(i) +=! exp(x(i,j) - m(i))
    y(i,j) = exp(x(i,j) - m(i)) / s(i)
}"""


def launches(unit: Any) -> list[tuple[Any, Any]]:
    return [(launch.grid, launch.block) for launch in unit.source.launches]


@pytest.mark.slow
def test_no_vectors_where_none_are_wanted(cuda_unit: MakeUnit) -> None:
    cases: list[tuple[str, list[tuple[int, ...]]]] = [
        ("def f(float(N) x) -> (y) { y(i) = 2.0 * x(i) }", [(1 << 20,)]),
        ("def f(float(M,N) x) -> (y) { y(i) +=! x(i,j) }", [(4096, 1024)]),
        ("def f(float(M,N) x) -> (y) { y(j) +=! x(i,j) }", [(4096, 1024)]),
        (MATMUL, [(512, 512), (512, 512)]),
        (SOFTMAX, [(4096, 1024)]),
    ]
    for source, shapes in cases:
        # (Boxes of tensor cores are no vectors.)
        text = cuda_unit(source, *shapes, options=Options(precision="ieee")).source.text
        has_vectors = "tc_vload" in text or "tc_copy_async<4>" in text
        assert has_vectors, f"the test shows nothing for {source}"
        scalar = cuda_unit(source, *shapes, options=Options(vectorise=False, precision="ieee"))
        assert "tc_v" not in scalar.source.text and "tc_copy_async<4>" not in scalar.source.text
        assert all(size <= 8 for size in scalar.source.alignments.values())


@pytest.mark.parametrize("tile", [(1,), (4, 64), (2, 100), (3, 1024), (16, 2)])
def test_blocks_take_the_tiles_that_were_asked_for(
    tile: tuple[int, ...], cuda_unit: MakeUnit
) -> None:
    source = "def f(float(M,N) x, float(N) b) -> (y) { y(i,j) = x(i,j) + b(j) }"
    unit = cuda_unit(source, (640, 6400), (6400,), options=Options(tile=tile, coalesce=False))
    (grid, block) = launches(unit)[0]
    rows = -(-640 // tile[0])
    if len(tile) == 1:
        assert rows in grid
    else:
        assert sorted(grid) == sorted([1, rows, -(-6400 // tile[1])])
    assert prod(block) <= 256


def test_a_tile_is_cut_to_what_the_threads_reach(cuda_unit: MakeUnit) -> None:
    source = "def f(float(N) x) -> (y) { y(i) = 2.0 * x(i) }"
    unit = cuda_unit(source, (1 << 20,), options=Options(tile=(1 << 20,)))
    (grid, block) = launches(unit)[0]
    assert block[1:] == grid[1:] == (1, 1)
    assert (1 << 20) / (grid[0] * block[0] * requested.MAX_REPEAT) in (1, 2, 4)  # a vector


def test_lanes_are_unrolled_and_nothing_else(cuda_unit: MakeUnit) -> None:
    leaf = cuda_unit(MATMUL, (64, 64), (64, 64)).done.plan.kernels[0].tree
    loop = Loop("v", {}, LoopKind.LANES, leaf, 4)
    kinds = LoopKind.LANES, LoopKind.UNROLL
    assert with_kind(loop, *kinds) == Loop("v", {}, LoopKind.UNROLL, with_kind(leaf, *kinds), 4)


@pytest.mark.slow
def test_threads_of_a_block_meet_in_its_folds(
    cuda_unit: MakeUnit, check_emulated: CheckAll
) -> None:
    """Rows that a block folds are on threads.y or in turns, but not in turns of some threads.y."""
    source = "def f(float(N,M) x) -> (y) { y(i) +=! x(i,j) where j in 0:50*i+1 }"
    for tile in ((2,), (3,), (4,), (100,)):
        options = Options(tile=tile)
        (_, block) = launches(cuda_unit(source, (71, 3600), options=options))[0]
        assert block[0] > 32, "the fold is the block's"
        check_emulated([(source, [(71, 3600)])], options=options)
