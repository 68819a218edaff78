"""Shared variables in the emulator's memory: how they are declared, and laid out."""

from collections.abc import Callable

import numpy as np
import pytest

from tcdsl.codegen.cuda.source import CudaSource
from tcdsl.emulator import EmulatedProgram, compile_emulated
from tcdsl.errors import CompileError, EmulationError

Emulate = Callable[..., EmulatedProgram]


def test_a_variable_without_its_macro_is_refused(cuda_source: Callable[..., CudaSource]) -> None:
    # It would be one of a thread, not of the block.
    with pytest.raises(CompileError):
        compile_emulated(
            cuda_source("""extern "C" __global__ void k(float *y) {
          __shared__ float tile[32];
          y[threadIdx.x] = tile[0];
        }""")
        )


def test_one_line_may_declare_several_and_a_scalar(emulate: Emulate) -> None:
    text = """extern "C" __global__ void k(float *y) {
      __shared__ TC_VARIABLE(float, a, [2][32], 4); __shared__ TC_VARIABLE(int, b, , 4);
      if (threadIdx.x == 0) b = 3;
      a[1][threadIdx.x] = threadIdx.x;
      __syncthreads();
      y[threadIdx.x] = a[1][31 - threadIdx.x] + b;
    }"""
    y = np.zeros(32, np.float32)
    emulate(text, 1, 32).run({"y": y})
    assert (y == np.arange(34, 2, -1)).all()


def test_no_variable_is_better_aligned_than_it_says(emulate: Emulate) -> None:
    text = """extern "C" __global__ void k(float *y) {
      __shared__ TC_VARIABLE(float, tile, [64], ALIGNMENT);
      tile[threadIdx.x] = 1;
      __syncthreads();
      if (threadIdx.x == 0) y[0] = tc_vload<4>(tile)[0];
    }"""
    y = np.zeros(1, np.float32)
    emulate(text.replace("ALIGNMENT", "16"), 1, 32).run({"y": y})
    assert y == 1
    if "-fno-tree-sra" not in _flags():
        return
    with pytest.raises(EmulationError, match=r"misaligned read of 16 bytes: tile\[0\]"):
        emulate(text.replace("ALIGNMENT", "8"), 1, 32).run({"y": y})


def _flags() -> tuple[str, ...]:
    from tcdsl.emulator.cxx import find_cxx_compiler

    return find_cxx_compiler().flags


def test_every_instance_of_a_template_has_its_own(emulate: Emulate) -> None:
    program = emulate(
        """template <typename T> __device__ T swap(T v) {
          __shared__ TC_VARIABLE(T, tile, [32], alignof(T));
          tile[threadIdx.x] = v;
          __syncthreads();
          return tile[31 - threadIdx.x];
        }
        extern "C" __global__ void k(float *y) {
          y[threadIdx.x] = swap<float>(threadIdx.x) + swap<int>(threadIdx.x) + swap<double>(0);
        }"""
    )
    for seed in range(1, 5):
        y = np.zeros(32, np.float32)
        program.run({"y": y}, seed=seed)
        assert (y == 2 * np.arange(32)[::-1]).all()


def test_static_and_dynamic_memory_share_a_limit(emulate: Emulate) -> None:
    text = """extern "C" __global__ void k(float *y) {
      __shared__ TC_VARIABLE(float, tile, [12288], 4);
      tile[threadIdx.x] = 1;
      y[0] = tile[0];
    }"""
    y = np.zeros(1, np.float32)
    emulate(text, 1, 1, shared_bytes=(227 - 48) << 10).run({"y": y})
    with pytest.raises(EmulationError, match="232464 bytes of shared memory in a block"):
        emulate(text, 1, 1, shared_bytes=((227 - 48) << 10) + 16).run({"y": y})
