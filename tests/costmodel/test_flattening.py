"""When interleaved rows are one index: numbers measured on an H200 say so."""

import pytest

from tcdsl.costmodel.chip import load_chip
from tcdsl.costmodel.flattening import InterleavedRow, why_flat

CHANNELS = 256


def row(images: int, pixels: int, value_bytes: int, passes: int) -> InterleavedRow:
    steps = (CHANNELS * pixels, pixels)
    return InterleavedRow(images, pixels, value_bytes, steps, passes)


@pytest.mark.parametrize(
    ("pixels", "value_bytes", "vectors"),
    [(196, 4, 49), (196, 2, 49), (784, 2, 98), (49, 4, 49), (49, 2, 49), (98, 8, 49), (6, 16, 6)],
)
def test_vectors_are_aligned_and_of_one_image(pixels: int, value_bytes: int, vectors: int) -> None:
    assert row(32, pixels, value_bytes, 1).vectors == vectors


@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("side", [7, 8, 14])
def test_small_images_are_flat(side: int, passes: int) -> None:
    for value_bytes in (2, 4):
        assert why_flat(load_chip("h200"), row(32, side**2, value_bytes, passes))


def test_one_pass_wants_loads_in_flight() -> None:
    assert (
        why_flat(load_chip("h200"), row(8, 112**2, 4, 1))
        == "3.1 loads of a thread along the inner axis"
    )
    assert why_flat(load_chip("h200"), row(8, 224**2, 4, 1)) is None


def test_several_passes_only_mind_idle_threads() -> None:
    assert why_flat(load_chip("h200"), row(32, 56**2, 4, 3)) is None
    assert why_flat(load_chip("h200"), row(32, 28**2, 4, 3)) is None
    assert why_flat(load_chip("h200"), row(32, 28**2, 2, 3))


def test_one_image_and_no_pixels_stay() -> None:
    assert why_flat(load_chip("h200"), row(1, 196, 4, 3)) is None
    assert why_flat(load_chip("h200"), row(0, 196, 4, 1)) is None
    assert why_flat(load_chip("h200"), row(32, 0, 4, 1)) is None
