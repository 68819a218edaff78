"""Copies of rows of pixels (TMA's im2col mode): what arrives is what the PTX ISA says."""

import re

import numpy as np
import pytest

from tcdsl.codegen.cuda.source import CudaSource, Launch, Parameter, ParameterKind, TensorMap
from tcdsl.emulator import EmulatedProgram, emulated_programs
from tcdsl.errors import EmulationError

N, H, W, C = 3, 7, 5, 80
LINES = 32

# One warp asks for the pixels from (c, w, h, n) on, at offsets of (s, r), and stores them.
TEXT = """
extern "C" __global__ void __launch_bounds__(64) k(const __grid_constant__ tc_map x, uint16_t *y)
{
  extern __shared__ TC_DYNAMIC(unsigned char, shared, 1024);
  uint16_t *const tile = (uint16_t *)shared;
  uint64_t *const barriers = (uint64_t *)(shared + 4096);
  tc_begin_pipeline<1, 1>(barriers);
  if (threadIdx.z == 1 && threadIdx.x == 0) {
    tc_acquire<1, 4096>(barriers, 0);
    tc_copy_pixels<1, 32>(tile, x, barriers, 0, AT);
  }
  if (threadIdx.z == 0) {
    tc_await<1>(barriers, 0);
    for (int at = (int)threadIdx.x; at < 2048; at += 32) y[at] = tile[tc_in_atoms<64, 32>(at)];
    tc_release<1>(barriers, 0);
  }
}
"""


def source_of(
    at: str, corners: tuple[tuple[int, int], tuple[int, int]], steps: tuple[int, int]
) -> CudaSource:
    strides = 2 * C, 2 * C * W, 2 * C * W * H
    map_ = TensorMap("uint16", (C, W, H, N), strides, (64, LINES), (), corners, steps)
    parameters = (
        Parameter("const __grid_constant__ tc_map x", ParameterKind.ARRAY, "x", 0, map_, True),
        Parameter("uint16_t *y", ParameterKind.ARRAY, "y"),
    )
    launch = Launch("k", (1, 1, 1), (32, 1, 2), 4096 + 16, parameters)
    functions = frozenset(re.findall(r"\btc_[a-z0-9_]+", TEXT)) - {"tc_map"}
    return CudaSource(TEXT.replace("AT", at), functions, (launch,), 0, (), (), {"x": 16})


def run(program: EmulatedProgram) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(1).integers(1, 2**16, (N, H, W, C), np.uint16)
    y = np.zeros((LINES, 64), np.uint16)
    program.run({"x": x, "y": y}, seed=1)
    return x, y


def expected(
    x: np.ndarray, at: tuple[int, ...], widths: tuple[int, int], firsts: tuple[int, int],
    steps: tuple[int, int],
) -> np.ndarray:  # fmt: skip
    """Return the pixels whose places are digits of a number, of which the first has those *at*."""
    c, w, h, n, s, r = at
    line = ((n * widths[1]) + (h - firsts[1]) // steps[1]) * widths[0] + (w - firsts[0]) // steps[0]
    found = np.zeros((LINES, 64), np.uint16)
    for number in range(LINES):
        i, j = divmod(line + number, widths[0])
        k, i = divmod(i, widths[1])
        own = k, firsts[1] + steps[1] * i + r, firsts[0] + steps[0] * j + s
        if all(0 <= a < b for a, b in zip(own, (N, H, W), strict=True)):
            there = x[own][c : c + 64]
            found[number, : len(there)] = there
    return found


@pytest.mark.parametrize(
    ("at", "corners", "steps", "widths"),
    [
        ((0, -1, -1, 0, 0, 0), ((-1, -1), (-1, -1)), (1, 1), (5, 7)),  # 3 x 3, padding of 1
        ((64, 2, 3, 1, 2, 2), ((-1, -1), (-1, -1)), (1, 1), (5, 7)),  # beyond the channels
        ((0, 3, 5, 2, 1, 0), ((-1, -1), (-1, -1)), (1, 1), (5, 7)),  # beyond the images
        ((0, 1, -1, 0, 1, 2), ((-1, -1), (-1, -1)), (2, 2), (3, 4)),  # strides
        ((0, 0, 0, 1, 0, 1), ((0, 0), (-2, -1)), (1, 1), (3, 6)),  # inside of the image
        ((0, -2, 2, 0, 4, 0), ((-2, 2), (-2, 0)), (1, 3), (5, 2)),  # dilated, another stride
    ],
)
def test_pixels_are_digits_of_a_number(
    at: tuple[int, ...],
    corners: tuple[tuple[int, int], tuple[int, int]],
    steps: tuple[int, int],
    widths: tuple[int, int],
) -> None:
    (program,) = emulated_programs([source_of(", ".join(map(str, at)), corners, steps)])
    x, y = run(program)
    assert (y == expected(x, at, widths, corners[0], steps)).all() and y.any()


@pytest.mark.parametrize(
    ("at", "found"),
    [
        ("0, -2, -1, 0, 0, 0", "outside the corners along dimension 1"),
        ("0, 0, 6, 0, 0, 0", "outside the corners along dimension 2"),
        ("0, 0, 0, 0, -1, 0", "offset of pixels is below 0"),
    ],
)
def test_a_first_pixel_outside_is_found(at: str, found: str) -> None:
    (program,) = emulated_programs([source_of(at, ((-1, -1), (-1, -1)), (1, 1))])
    with pytest.raises(EmulationError, match=found):
        run(program)


def test_a_map_of_boxes_has_no_pixels() -> None:
    source = source_of("0, 0, 0, 0, 0, 0", ((0, 0), (0, 0)), (1, 1))
    text = source.text.replace("tc_copy_pixels<1, 32>", "tc_copy_box<1, 64, 32>")
    other = CudaSource(
        text.replace(", 0, 0, 0, 0, 0, 0)", ", 0, 0, 0, 0, 0)"), source.functions,
        source.launches, 0, (), (), {"x": 16},
    )  # fmt: skip
    (program,) = emulated_programs([other])
    with pytest.raises(EmulationError, match="a box by a map of pixels"):
        run(program)
