"""Pipelines of phases: whoever reads before a box has arrived, or fills too early, is found."""

import re
from dataclasses import replace

import numpy as np
import pytest

from tcdsl.codegen.cuda.source import CudaSource, Launch, Parameter, ParameterKind, TensorMap
from tcdsl.emulator import EmulatedProgram, emulated_programs
from tcdsl.errors import EmulationError

ROWS, STEPS = 36, 5  # the last box is cut
SEEDS = range(1, 5)

# Two warps read each stage, and store a half of it each; the third fills them.
TEXT = """
extern "C" __global__ void __launch_bounds__(96) k(const __grid_constant__ tc_map x, uint16_t *y)
{
  extern __shared__ TC_DYNAMIC(unsigned char, shared, 1024);
  uint16_t *const tile = (uint16_t *)shared;
  uint64_t *const barriers = (uint64_t *)(shared + 2048);
  tc_begin_pipeline<2, 2>(barriers);
  if (threadIdx.z == 2 && threadIdx.x == 0) {
    for (int q = 0; q < 5; q++) {
      tc_acquire<2, 1024>(barriers, q);
      tc_copy_box<2, 64, 8>(tile + q % 2 * 512, x, barriers, q, 0, 8 * q);
    }
  }
  if (threadIdx.z < 2) {
    for (int q = 0; q < 5; q++) {
      tc_await<2>(barriers, q);
      for (int at = (int)threadIdx.x; at < 512; at += 32) {
        const uint16_t value = tile[q % 2 * 512 + tc_in_atoms<64, 8>(at)];
        if (at / 256 == (int)threadIdx.z) y[q * 512 + at] = value;
      }
      tc_release<2>(barriers, q);
    }
  }
}
"""

ARRIVE = 'emu_phases_arrive(barriers + 2 + q % 2, 0, "", 0);'
FAULTS = {
    "no release": (r"tc_release<2>\(barriers, q\);", "", "deadlock: .* arrivals and 0 bytes"),
    "one warp does not release": (
        r"tc_release<2>\(", "if (threadIdx.z == 0) tc_release<2>(", "deadlock: .* 1 arrivals",
    ),
    "a release too many": (
        r"(tc_release<2>\(barriers, q\);)", r"\1 \1", "data race",
    ),
    "no await": (r"tc_await<2>\(barriers, q\);", "", "data race|never written"),
    "await of the stage before": (
        r"tc_await<2>\(barriers, q\)", "tc_await<2>(barriers, q + 1)", "data race|never|deadlock",
    ),
    "the other parity": (
        r"tc_await<2>\(barriers, q\)", "tc_await<2>(barriers, q + 2)", "data race|never|deadlock",
    ),
    "no acquire after the first": (
        r"tc_acquire<2, 1024>\(barriers, q\);",
        "if (q < 1) tc_acquire<2, 1024>(barriers, q);", "data race|deadlock",
    ),
    "released before it is read": (
        r"(?s)(tc_await<2>.*?)(for \(int at.*?\n      \})(\n\s*)(tc_release<2>\(barriers, q\);)",
        r"\1\4\3\2", "data race",
    ),
    "a stage is overwritten early": (
        r"tc_copy_box<2, 64, 8>\(tile \+ q % 2", "tc_copy_box<2, 64, 8>(tile + (q + 1) % 2",
        "data race|never",
    ),
    "fewer bytes are expected": ("2, 1024>", "2, 512>", "data race|never|deadlock|nobody waits"),
    "more bytes are expected": ("2, 1024>", "2, 2048>", "deadlock: .* 0 arrivals and 1024 bytes"),
    "the first stage is never used": (r"int q = 0; q < 5(.*\n.*acquire)", r"int q = 1; q < 5\1",
                                      "deadlock|data race|never"),
    "nobody begins": (r"tc_begin_pipeline<2, 2>\(barriers\);", "", "nobody has begun"),
    "the warp's first thread does not wait for the others": (
        r"tc_release<2>\(barriers, q\);", f"if (threadIdx.x == 0) {ARRIVE}", "data race",
    ),
    "nor at a stage that is not used again": (
        r"(?s)q < 5(.*)q < 5(.*)tc_release<2>\(barriers, q\);",
        rf"q < 2\1q < 2\2if (threadIdx.x == 0) {ARRIVE}",
        "data race .* next copy to it would not be ordered",
    ),
    "released before it is read, and not used again": (
        r"(?s)q < 5(.*)q < 5(.*tc_await<2>.*?)(for \(int at.*?)(tc_release<2>\(barriers, q\);)",
        r"q < 2\1q < 2\2\4\3", "data race .* next copy to it would not be ordered",
    ),
    "not at an atom": (r"tile \+ q % 2 \* 512", "tile + 64 + q % 2 * 512", "multiple of 1024"),
    "the end of the block": (
        r"(?s)if \(threadIdx.z < 2\) \{.*\}\n\}", "}", "nobody waits|deadlock",
    ),
}  # fmt: skip


def source_of(text: str) -> CudaSource:
    map_ = TensorMap("uint16", (64, ROWS), (128,), (64, 8))
    parameters = (
        Parameter("const __grid_constant__ tc_map x", ParameterKind.ARRAY, "x", 0, map_, True),
        Parameter("uint16_t *y", ParameterKind.ARRAY, "y"),
    )
    launch = Launch("k", (2, 1, 1), (32, 1, 3), 2048 + 32, parameters)
    functions = frozenset(re.findall(r"\btc_[a-z0-9_]+", text)) - {"tc_map"}
    return CudaSource(text, functions | {"tc_copy_box"}, (launch,), 0, (), (), {"x": 16})


def run(program: EmulatedProgram, seed: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).integers(0, 2**16, (ROWS, 64), np.uint16)
    y = np.zeros((STEPS * 8, 64), np.uint16)
    program.run({"x": x, "y": y}, seed=seed)
    return x, y


def test_a_pipeline_brings_what_an_array_has_and_zeros() -> None:
    text = TEXT.replace("y[q", "if (blockIdx.x == 0) y[q")
    (program,) = emulated_programs([source_of(text)])
    for seed in SEEDS:
        x, y = run(program, seed)
        assert (y[:ROWS] == x).all() and (y[ROWS:] == 0).all()


def test_two_blocks_write_one_array() -> None:
    (program,) = emulated_programs([source_of(TEXT)])
    with pytest.raises(EmulationError, match="data race at y"):
        run(program, 1)


@pytest.fixture(scope="module")
def broken() -> dict[str, EmulatedProgram]:
    sources = []
    for number, (pattern, new, _) in enumerate(FAULTS.values()):
        text = re.sub(pattern, new, TEXT)
        assert text != TEXT, pattern
        source = source_of(text.replace(" k(", f" k{number}("))
        launch = replace(source.kernels[0], name=f"k{number}", grid=(1, 1, 1))
        sources.append(replace(source, launches=(launch,)))
    return dict(zip(FAULTS, emulated_programs(sources), strict=True))


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str, broken: dict[str, EmulatedProgram]) -> None:
    for seed in SEEDS:
        with pytest.raises(EmulationError, match=f"(?s){FAULTS[fault][2]}"):
            run(broken[fault], seed)


def test_a_wrong_swizzle_gives_other_numbers() -> None:
    text = TEXT.replace("tc_in_atoms<64, 8>(at)", "at").replace("y[q", "if (blockIdx.x == 0) y[q")
    (program,) = emulated_programs([source_of(text)])
    x, y = run(program, 1)
    assert (y[:ROWS] != x).any()
