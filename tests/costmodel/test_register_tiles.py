"""Register tiles of contractions: which covers a box of results soonest."""

import pytest

from tcdsl.costmodel.machine import Cpu
from tcdsl.costmodel.register_tiles import best_tile, registers_of, steps_of_tile

AVX512, AVX2 = (16, 32), (8, 16)  # values of float32 in a vector, registers


@pytest.mark.parametrize(
    ("box", "tile"),
    [
        ((56, 64), (14, 32)),
        ((7, 512), (7, 32)),
        ((30, 56), (6, 56)),  # the last half vector at once
        ((3, 112), (3, 64)),  # few rows
        ((1000, 1000), (8, 48)),
        ((16, 16), (16, 16)),
        ((1, 1), (1, 1)),
        ((1, 100), (1, 64)),
    ],
)
def test_best_tile(box: tuple[int, int], tile: tuple[int, int]) -> None:
    assert best_tile(*box, *AVX512) == tile


def test_rows_of_whole_pages_are_few() -> None:
    assert best_tile(196, 256, *AVX512, 4096)[0] == 7
    assert best_tile(196, 256, *AVX512, 4096 + 64)[0] == 14


def test_tiles_of_avx2_fit_its_registers() -> None:
    assert registers_of(Cpu(1, vector_bytes=32)) == 16
    assert best_tile(60, 64, *AVX2) == (6, 16)


@pytest.mark.parametrize("rows", [1, 5, 13, 31, 57, 1000])
@pytest.mark.parametrize("lanes", [1, 7, 16, 33, 67, 1000])
def test_tiles_are_no_larger_than_the_box(rows: int, lanes: int) -> None:
    for width, registers in (AVX512, AVX2):
        r, some = best_tile(rows, lanes, width, registers)
        vectors = some // width + (some % width).bit_count()
        assert 1 <= r <= rows and 1 <= some <= lanes
        assert r == 1 or (r + 1) * vectors + 1 <= registers


def test_few_rows_load_each_vector_again() -> None:
    assert steps_of_tile(4, 64, *AVX512) / 4 > steps_of_tile(6, 64, *AVX512) / 6


def test_avx2_prefers_two_vectors_and_whole_ones() -> None:
    """Of one vector and 14 rows numbers are spread as often as multiplied; halves take twice."""
    assert best_tile(28, 128, *AVX2) == (6, 16)  # measured: 51 and 41 GFLOP/s
    assert steps_of_tile(6, 12, *AVX2) > steps_of_tile(6, 16, *AVX2)
    assert steps_of_tile(6, 24, *AVX512) < steps_of_tile(6, 32, *AVX512)
