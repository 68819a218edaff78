"""Barriers of all blocks: what they order passes, in any order of blocks; defects are found."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.cuda.source import CudaSource
from tcdsl.emulator import EmulatedProgram, compile_emulated
from tcdsl.emulator.sanitized import run_sanitized
from tcdsl.errors import EmulationError

Source = Callable[..., CudaSource]
SEEDS = range(1, 5)
F32 = np.float32
BLOCKS, THREADS = 5, 64
BARRIER = "tc_grid_barrier<1, true>(arrived, 5);"
# Each block reads what the next one has written.
KERNEL = """#line 1
extern "C" __global__ void tcdsl_k(const float *x, float *y, float *part, unsigned int *arrived)
{{
  const int i = 64 * (int)blockIdx.x + (int)threadIdx.x;
  part[i] = 2.0f * x[i];
  {barrier}
  y[i] = part[(i + 64) % 320];
}}"""


@pytest.fixture
def emulated(cuda_source: Source) -> Callable[..., EmulatedProgram]:
    def emulated_(barrier: str, *, is_cooperative: bool = True) -> EmulatedProgram:
        source = _source(cuda_source, barrier, is_cooperative=is_cooperative)
        return EmulatedProgram(compile_emulated(source), source)

    return emulated_


def _source(make: Source, barrier: str, *, is_cooperative: bool = True) -> CudaSource:
    text = KERNEL.format(barrier=barrier)
    scratch = {"part": 0, "arrived": 4 * BLOCKS * THREADS}
    source = make(text, BLOCKS, THREADS, workspace_bytes=4096, scratch=scratch)
    (launch,) = source.kernels
    return replace(source, launches=(replace(launch, is_cooperative=is_cooperative),))


def run(program: EmulatedProgram, seed: int) -> np.ndarray[Any, Any]:
    x = np.arange(BLOCKS * THREADS, dtype=F32)
    y = np.zeros_like(x)
    program.run({"x": x, "y": y}, seed=seed, written={"y"})
    return y


def finding(program: EmulatedProgram) -> str:
    messages = []
    for seed in SEEDS:
        with pytest.raises(EmulationError) as caught:
            run(program, seed)
        messages.append(caught.value.message)
    return "\n".join(messages)


WANT = 2 * np.roll(np.arange(BLOCKS * THREADS, dtype=F32), -THREADS)


def test_all_blocks_wait_for_one_another(emulated: Callable[..., EmulatedProgram]) -> None:
    program = emulated(BARRIER)
    for seed in SEEDS:
        np.testing.assert_array_equal(run(program, seed), WANT)


@pytest.mark.slow
def test_the_address_sanitizer_runs_them(cuda_source: Source) -> None:
    x = np.arange(BLOCKS * THREADS, dtype=F32)
    y = np.zeros_like(x)
    run_sanitized(_source(cuda_source, BARRIER), {"x": x, "y": y})
    np.testing.assert_array_equal(y, WANT)


def test_without_a_barrier_blocks_race(emulated: Callable[..., EmulatedProgram]) -> None:
    assert "never written" in finding(emulated("")) or "data race" in finding(emulated(""))


@pytest.mark.parametrize(
    ("barrier", "what"),
    [
        ("if (blockIdx.x < 3) " + BARRIER, "blocks have ended"),
        ("if (threadIdx.x < 32) " + BARRIER, "others of its block do not come"),
    ],
)
def test_who_does_not_come_is_waited_for_in_vain(
    emulated: Callable[..., EmulatedProgram], barrier: str, what: str
) -> None:
    # A block that does not wait may also read what is not written yet.
    found = finding(emulated(barrier))
    assert what in found or "never written" in found
    assert "deadlock" in found or "never written" in found


def test_one_barrier_is_not_another(emulated: Callable[..., EmulatedProgram]) -> None:
    second = BARRIER.replace("<1, true>", "<2, true>")
    found = finding(emulated(f"if (blockIdx.x & 1) {BARRIER}\n  else {second}"))
    assert "divergent barrier" in found
    early = BARRIER.replace("true", "false")
    found = finding(emulated(f"if (blockIdx.x & 1) {BARRIER}\n  else {early}"))
    assert "for others it is not" in found


def test_a_launch_that_is_not_cooperative_has_none(
    emulated: Callable[..., EmulatedProgram],
) -> None:
    assert "not cooperative" in finding(emulated(BARRIER, is_cooperative=False))


def test_shared_memory_does_not_outlive_the_barrier(cuda_source: Source) -> None:
    text = KERNEL.format(barrier=BARRIER).replace(
        "part[i] = 2.0f * x[i];",
        "__shared__ TC_VARIABLE(float, kept, [64], 4);\n"
        "  kept[threadIdx.x] = x[i]; part[i] = x[i];",
    )
    text = text.replace("y[i] = part[(i + 64) % 320];", "y[i] = kept[threadIdx.x];")
    source = _source(cuda_source, BARRIER)
    source = replace(source, text=text)
    with pytest.raises(EmulationError, match="never written by this block"):
        run(EmulatedProgram(compile_emulated(source), source), 1)
