"""Boxes that blocks of a cluster copy to one another: whoever is not in step is found."""

import re
from dataclasses import replace

import numpy as np
import pytest

from tcdsl.codegen.cuda.source import CudaSource, Launch, Parameter, ParameterKind, TensorMap
from tcdsl.emulator import EmulatedProgram, emulated_programs
from tcdsl.errors import EmulationError

ROWS, STEPS = 72, 5  # the last box is cut
SEEDS = range(1, 5)

# Of each stage the blocks of a cluster copy eight lines each, and both store all sixteen.
TEXT = """
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(96) k(
    const __grid_constant__ tc_map x, uint16_t *y)
{
  extern __shared__ TC_DYNAMIC(unsigned char, shared, 1024);
  uint16_t *const tile = (uint16_t *)shared;
  uint64_t *const barriers = (uint64_t *)(shared + 4096);
  tc_begin_pipeline<2, 2, 2>(barriers);
  if (threadIdx.z == 2 && threadIdx.x == 0) {
    for (int q = 0; q < 5; q++) {
      tc_acquire<2, 2048>(barriers, q);
      tc_copy_box<2, 64, 16, 2>(tile + q % 2 * 1024, x, barriers, q, 0, 16 * q);
    }
  }
  if (threadIdx.z < 2) {
    for (int q = 0; q < 5; q++) {
      tc_await<2>(barriers, q);
      for (int at = (int)threadIdx.x; at < 1024; at += 32) {
        const uint16_t value = tile[q % 2 * 1024 + tc_in_atoms<64, 16>(at)];
        if (at / 512 == (int)threadIdx.z) y[(blockIdx.x * 5 + q) * 1024 + at] = value;
      }
      tc_release<2, 2>(barriers, q);
    }
  }
  tc_end_pipeline();
}
"""
RELEASE = r"tc_release<2, 2>\(barriers, q\);"
BEGIN = r"tc_begin_pipeline<2, 2, 2>"

FAULTS = {
    "the other block is not told": (RELEASE, "tc_release<2>(barriers, q);", "deadlock: .* arr"),
    # As many arrivals as are waited for, but the other block's readers are not among them.
    "only its own readers are waited for": (
        rf"(?s){BEGIN}(.*){RELEASE}", r"tc_begin_pipeline<2, 1, 2>\1tc_release<2>(barriers, q);",
        "data race|outside|nobody waits",
    ),
    "half of the readers are waited for": (BEGIN, "tc_begin_pipeline<2, 1, 2>", "data race|dead"),
    "one block's warps do not release": (
        RELEASE, "if (blockIdx.x == 0) tc_release<2, 2>(barriers, q);", "deadlock: .* arrivals",
    ),
    "released before it is read": (
        rf"(?s)(tc_await<2>.*?)(for \(int at.*?\n      \}})(\n\s*)({RELEASE})", r"\1\4\3\2",
        "data race",
    ),
    "half of the bytes are expected": (
        "2, 2048>", "2, 1024>", "data race|never|dead|nobody waits",
    ),
    "twice the bytes are expected": ("2, 2048>", "2, 4096>", "deadlock: .* 2048 bytes"),
    "both copy the first half": (
        "2, 64, 16, 2>", "2, 64, 16, 2, 2>", "blocks 0x[5a] of a cluster of 2",
    ),
    "no barrier of the cluster at first": (
        BEGIN, "tc_begin_pipeline<2, 4>", "start of that block are not ordered|nobody has begun",
    ),
    "no barrier of the cluster at the end": (
        r"tc_end_pipeline\(\);", "", "the end of (that|this) ",
    ),
    "one block has a step less": (
        "q < 5; q", "q < 5 - (int)blockIdx.x; q", "deadlock|data race|nobody waits",
    ),
    "one block has other steps": (
        r"(?s)(barriers, q\);)(\s+tc_copy_box)", r"\1 if (blockIdx.x == 0 || q < 3)\2",
        "deadlock",
    ),
}  # fmt: skip


def source_of(text: str) -> CudaSource:
    map_ = TensorMap("uint16", (64, ROWS), (128,), (64, 8))
    parameters = (
        Parameter("const __grid_constant__ tc_map x", ParameterKind.ARRAY, "x", 0, map_, True),
        Parameter("uint16_t *y", ParameterKind.ARRAY, "y"),
    )
    shape = (2, 1, 1), (32, 1, 3)
    launch = Launch("k", *shape, 4096 + 32, parameters, cluster_dims=(2, 1, 1))
    functions = frozenset(re.findall(r"\btc_[a-z0-9_]+", text)) - {"tc_map"}
    return CudaSource(text, functions, (launch,), 0, (), (), {"x": 16})


def run(program: EmulatedProgram, seed: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).integers(0, 2**16, (ROWS, 64), np.uint16)
    y = np.full((2, STEPS * 16, 64), 7, np.uint16)
    program.run({"x": x, "y": y}, seed=seed)
    return x, y


def test_all_blocks_get_what_each_copies_a_part_of() -> None:
    (program,) = emulated_programs([source_of(TEXT)])
    for seed in SEEDS:
        x, y = run(program, seed)
        assert (y[:, :ROWS] == x).all() and (y[:, ROWS:] == 0).all()


@pytest.fixture(scope="module")
def broken() -> dict[str, EmulatedProgram]:
    sources = []
    for number, (pattern, new, _) in enumerate(FAULTS.values()):
        text = re.sub(pattern, new, TEXT)
        assert text != TEXT, pattern
        source = source_of(text.replace(" k(", f" k{number}("))
        launch = replace(source.kernels[0], name=f"k{number}")
        sources.append(replace(source, launches=(launch,)))
    return dict(zip(FAULTS, emulated_programs(sources), strict=True))


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str, broken: dict[str, EmulatedProgram]) -> None:
    for seed in SEEDS:
        with pytest.raises(EmulationError, match=f"(?s){FAULTS[fault][2]}"):
            run(broken[fault], seed)


def test_clusters_are_whole() -> None:
    (launch,) = source_of(TEXT).kernels
    source = replace(source_of(TEXT), launches=(replace(launch, grid=(3, 1, 1)),))
    (program,) = emulated_programs([source])
    with pytest.raises(EmulationError, match="not whole ones"):
        run(program, 1)
