"""Every planted defect is found, whatever the order of blocks and threads."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl.emulator import EmulatedProgram
from tcdsl.errors import EmulationError

Emulate = Callable[..., EmulatedProgram]
SEEDS = range(1, 7)
F32 = np.float32


def finding(
    program: EmulatedProgram, *kinds: str, written: frozenset[str] = frozenset(), **arrays: Any
) -> str:
    """Return the message; it must begin with one of *kinds* for every seed."""
    message = ""
    for seed in SEEDS:
        with pytest.raises(EmulationError) as caught:
            program.run(arrays, written=written, seed=seed)
        message = caught.value.message
        what = message.partition("): ")[2] or message.partition(": ")[2]
        assert what.startswith(kinds), message
        assert f"seed {seed}" in str(caught.value)
    return message


# --- order ---------------------------------------------------------------------------------


def test_a_missing_barrier(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(const float *x, float *y) {
          __shared__ TC_VARIABLE(float, tile, [64], 4);
          tile[threadIdx.x] = x[threadIdx.x];
          y[threadIdx.x] = tile[63 - threadIdx.x];
        }""",
        1, 64,
    )  # fmt: skip
    # As the seed has it, the value is read before it is there, or without a barrier in between.
    text = finding(program, "data race at tile[", "read of memory that was never written by this",
                   x=np.ones(64, F32), y=np.zeros(64, F32))  # fmt: skip
    assert "the emulated kernel 'k', block (0, 0, 0), thread (" in text


def test_an_atomic_access_of_a_register(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(float *y) {
          float own = 0.0f;
          atomicAdd(&own, 1.0f);
          y[threadIdx.x] = own;
        }""",
        1, 64,
    )  # fmt: skip
    text = finding(program, "atomic access of a thread's own variable", y=np.zeros(64, F32))
    assert "thread (" in text


def test_shared_memory_reused_too_early(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(const float *x, float *y) {
          __shared__ TC_VARIABLE(float, tile, [64], 4);
          for (int i = 0; i < 4; ++i) {
            tile[threadIdx.x] = x[64 * i + threadIdx.x];
            __syncthreads();
            y[64 * i + threadIdx.x] = tile[63 - threadIdx.x];
          }
        }""",
        1, 64,
    )  # fmt: skip
    text = finding(program, "data race at tile[", x=np.ones(256, F32), y=np.zeros(256, F32))
    assert "no barrier lies between them" in text


def test_writers_of_the_same_value_race(emulate: Emulate) -> None:
    program = emulate(
        'extern "C" __global__ void k(float *y) { __shared__ TC_VARIABLE(int, flag, , 4); '
        "flag = 1; y[0] = 0; }",
        1,
        2,
    )
    finding(program, "data race at flag[0]", y=np.zeros(1, F32))


def test_blocks_that_write_the_same_element(emulate: Emulate) -> None:
    program = emulate('extern "C" __global__ void k(float *y) { y[blockIdx.x / 2] = 1; }', 4, 1)
    text = finding(program, "data race at y[", y=np.zeros(2, F32))
    assert "of block (" in text and "blocks may run at the same time" in text


def test_a_block_that_reads_what_another_writes(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(float *y) {
          const int i = blockIdx.x * 32 + threadIdx.x;
          y[i] = y[(i + 1) % 128];
        }""",
        4, 32,
    )  # fmt: skip
    finding(program, "data race at y[", y=np.zeros(128, F32))


def test_an_atomic_and_a_plain_write(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(float *y) {
          if (threadIdx.x == 0) y[0] = 0;
          atomicAdd(y, 1.0f);
        }""",
        1, 64,
    )  # fmt: skip
    finding(program, "data race at y[0]", y=np.zeros(1, F32))


def test_counts_that_are_read_too_early(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(int *y) {
          __shared__ TC_VARIABLE(int, bins, [4], 4);
          if (threadIdx.x < 4) bins[threadIdx.x] = 0;
          __syncthreads();
          atomicAdd(&bins[threadIdx.x % 4], 1);
          if (threadIdx.x < 4) y[threadIdx.x] = bins[threadIdx.x];
        }""",
        1, 64,
    )  # fmt: skip
    finding(program, "data race at bins[", y=np.zeros(4, np.int32))


TICKET = """extern "C" __global__ void k(const float *x, float *part, unsigned *ticket, float *y) {
  __shared__ TC_VARIABLE(bool, is_last, , 1);
  if (threadIdx.x == 0) {
    part[blockIdx.x] = x[blockIdx.x];
    FENCE
    is_last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (is_last && threadIdx.x == 0) {
    float sum = 0;
    for (int b = 0; b < gridDim.x; ++b) sum += part[b];
    y[0] = sum;
  }
}"""


def test_a_ticket_without_a_fence(emulate: Emulate) -> None:
    program = emulate(TICKET.replace("FENCE", ""), 8, 32)
    arrays = {
        "x": np.ones(8, F32), "part": np.zeros(8, F32), "ticket": np.zeros(1, np.uint32),
        "y": np.zeros(1, F32),
    }  # fmt: skip
    finding(program, "data race at part[", **arrays)


def test_a_fence_after_the_ticket_is_too_late(emulate: Emulate) -> None:
    text = TICKET.replace("FENCE", "").replace("- 1;\n  }", "- 1;\n    __threadfence();\n  }")
    assert "__threadfence" in text
    arrays = {
        "x": np.ones(8, F32), "part": np.zeros(8, F32), "ticket": np.zeros(1, np.uint32),
        "y": np.zeros(1, F32),
    }  # fmt: skip
    finding(emulate(text, 8, 32), "data race at part[", **arrays)


def test_lanes_that_exchange_through_memory_without_syncwarp(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(float *y) {
          __shared__ TC_VARIABLE(float, tile, [32], 4);
          tile[threadIdx.x] = 1;
          __shfl_sync(0xffffffff, 0, 0);  // CUDA gives memory no order here
          y[threadIdx.x] = tile[31 - threadIdx.x];
        }"""
    )
    finding(program, "data race at tile[", y=np.zeros(32, F32))


def test_neighbours_within_a_word(emulate: Emulate) -> None:
    program = emulate(
        'extern "C" __global__ void k(unsigned char *y) { y[threadIdx.x / 2] = 1; }', 1, 8
    )
    finding(program, "data race at y[", y=np.zeros(4, np.uint8))


def test_the_read_only_path_to_memory_that_is_written(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(float *y) {
          y[threadIdx.x] = 1;
          __syncthreads();
          y[threadIdx.x] = __ldg(y + threadIdx.x);
        }"""
    )
    finding(program, "read through the read-only path", y=np.zeros(32, F32))


# --- bounds --------------------------------------------------------------------------------


@pytest.mark.usefixtures("whole_accesses")
def test_a_missing_guard(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(const float *x, float *y) {
          const int i = blockIdx.x * 32 + threadIdx.x;
          const float v = x[i];
          if (i < 100) y[i] = v;
        }""",
        4, 32,
    )  # fmt: skip
    text = finding(program, "read of 4 bytes out of bounds: x[1",
                   x=np.ones(100, F32), y=np.zeros(100, F32))  # fmt: skip
    assert "(100 elements of 4 bytes)" in text and "kernels.cu:3" in text


@pytest.mark.parametrize("index", [-1, -1000, 64, 65, 5000])
def test_indices_out_of_a_shared_array(emulate: Emulate, index: int) -> None:
    program = emulate(
        f"""extern "C" __global__ void k(float *y) {{
          __shared__ TC_VARIABLE(float, before, [64], 4);
          __shared__ TC_VARIABLE(float, tile, [64], 4);
          __shared__ TC_VARIABLE(float, after, [64], 4);
          before[threadIdx.x] = after[threadIdx.x] = 0;
          volatile int i = {index};
          if (threadIdx.x == 7) tile[i] = 1;
        }}"""
    )
    finding(program, "write of 4 bytes out of bounds", y=np.zeros(1, F32))


def test_an_index_out_of_dynamic_shared_memory(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(float *y) {
          extern __shared__ TC_DYNAMIC(float, tile, 16);
          tile[threadIdx.x] = 1;
        }""",
        1, 33, shared_bytes=128,
    )  # fmt: skip
    finding(program, "write of 4 bytes out of bounds: dynamic shared memory[32] (shared, 32",
            y=np.zeros(1, F32))  # fmt: skip


@pytest.mark.usefixtures("whole_accesses")
def test_a_vector_that_reaches_over_the_end(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(const float *x, float *y) {
          tc_vec<float, 4> v = tc_vload<4>(x + 4 * threadIdx.x);
          y[threadIdx.x] = v[0];
        }""",
        1, 3, alignments={"x": 16},
    )  # fmt: skip
    finding(program, "read of 16 bytes out of bounds: x[8]", x=np.ones(11, F32),
            y=np.zeros(3, F32))  # fmt: skip


def test_memory_between_the_elements_of_a_strided_array(emulate: Emulate) -> None:
    program = emulate('extern "C" __global__ void k(float *y) { y[threadIdx.x] = 1; }', 1, 7)
    finding(program, "access between the elements", y=np.zeros((4, 2), F32)[:, 0])


def test_an_address_from_nowhere(emulate: Emulate) -> None:
    program = emulate('extern "C" __global__ void k(float *y) { *(float *)64 = y[0]; }', 1, 1)
    finding(program, "write of 4 bytes out of bounds: no memory", y=np.zeros(1, F32))


@pytest.mark.usefixtures("whole_accesses")
def test_a_misaligned_vector(emulate: Emulate) -> None:
    text = """extern "C" __global__ void k(const float *x, float *y) {
      y[0] = tc_vload<4>(x)[3];
    }"""
    arrays = {"x": np.ones(8, F32), "y": np.zeros(1, F32)}
    finding(emulate(text, 1, 1, alignments={"x": 8}), "misaligned read of 16 bytes", **arrays)
    emulate(text, 1, 1, alignments={"x": 16}).run(arrays)


def test_a_write_to_an_array_that_is_only_read(emulate: Emulate) -> None:
    program = emulate('extern "C" __global__ void k(float *y) { y[0] = 1; }', 1, 1)
    y = np.zeros(1, F32)
    y.flags.writeable = False
    finding(program, "write to read-only memory: y[0]", y=y)


# --- initialisation ------------------------------------------------------------------------


def test_shared_memory_that_nobody_wrote(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(float *y) {
          __shared__ TC_VARIABLE(float, tile, [33], 4);
          tile[threadIdx.x] = 1;
          __syncthreads();
          y[32 * blockIdx.x + threadIdx.x] = tile[threadIdx.x + 1];
        }""",
        2, 32,
    )  # fmt: skip
    finding(program, "read of memory that was never written by this block: tile[32]",
            y=np.zeros(64, F32))  # fmt: skip


def test_shared_memory_of_an_earlier_block(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(float *y) {
          __shared__ TC_VARIABLE(float, s, , 4);
          if (blockIdx.x % 2 == 0) s = 1;
          y[blockIdx.x] = s;
        }""",
        8, 1,
    )  # fmt: skip
    finding(program, "read of memory that was never written by this block: s[0]",
            y=np.zeros(8, F32))  # fmt: skip


def test_scratch_memory_that_nobody_wrote(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(float *t, float *y) {
          if (threadIdx.x < 31) t[threadIdx.x] = 1;
          y[threadIdx.x] = t[threadIdx.x];
        }""",
        1, 32, workspace_bytes=256, scratch={"t": 128},
    )  # fmt: skip
    finding(program, "read of memory that was never written: byte 124 of scratch array t",
            y=np.zeros(32, F32))  # fmt: skip


def test_an_output_that_is_read_after_an_input_like_it(emulate: Emulate) -> None:
    """Nobody has accessed either; what a read makes of one is not what it makes of the other."""
    program = emulate(
        'extern "C" __global__ void k(float *y, float *z) { z[1] = y[0] + z[0]; }', 1, 1
    )
    finding(program, "read of memory that was never written: z[0]",
            written=frozenset("z"), y=np.zeros(2, F32), z=np.zeros(2, F32))  # fmt: skip


def test_an_output_that_is_read_first(emulate: Emulate) -> None:
    program = emulate('extern "C" __global__ void k(float *y) { y[0] += 1; }', 1, 1)
    finding(program, "read of memory that was never written: y[0]", y=np.zeros(1, F32),
            written=frozenset("y"))  # fmt: skip
    y = np.zeros(1, F32)
    program.run({"y": y})
    assert y == 1


# --- barriers and lanes --------------------------------------------------------------------


def test_a_barrier_that_some_threads_never_reach(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(float *y) {
          if (threadIdx.x >= 40) return;
          __syncthreads();
          y[threadIdx.x] = 1;
        }""",
        1, 64,
    )  # fmt: skip
    text = finding(program, "divergent barrier: this thread", y=np.zeros(64, F32))
    assert "kernels.cu:3" in text and "ended" in text


def test_threads_at_different_barriers(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(float *y) {
          if (threadIdx.x < 32) {
            __syncthreads();
          } else {
            __syncthreads();
          }
          y[threadIdx.x] = 1;
        }""",
        1, 64,
    )  # fmt: skip
    text = finding(program, "divergent barrier: this thread is at", y=np.zeros(64, F32))
    assert "kernels.cu:3" in text and "kernels.cu:5" in text


def test_a_mask_with_lanes_that_do_something_else(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(float *y) {
          float v = 1;
          if (threadIdx.x < 16) v += __shfl_xor_sync(0xffffffff, v, 1);
          __syncthreads();
          y[threadIdx.x] = v;
        }"""
    )
    text = finding(program, "deadlock: this thread waits in __shfl_xor_sync", y=np.zeros(32, F32))
    assert "which the mask names, waits at the barrier of kernels.cu:4" in text


def test_a_mask_with_lanes_that_have_ended(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(float *y) {
          if (threadIdx.x < 16) y[threadIdx.x] = __shfl_down_sync(0xffffffff, 1.0f, 1);
        }"""
    )
    finding(program, "wrong shuffle: mask 0xffffffff names lane", y=np.zeros(32, F32))


def test_a_mask_without_the_caller(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(float *y) {
          y[threadIdx.x] = __shfl_xor_sync(0x0000ffff, 1.0f, 1);
        }"""
    )
    finding(program, "wrong shuffle: mask 0x0000ffff does not name", y=np.zeros(32, F32))


def test_different_masks_never_meet(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(float *y) {
          y[threadIdx.x] = __shfl_xor_sync(threadIdx.x < 16 ? 0xffffffff : 0xffff0000, 1.0f, 1);
        }"""
    )
    finding(program, "deadlock: this thread waits in", "wrong shuffle: mask 0xffffffff names lane",
            y=np.zeros(32, F32))  # fmt: skip


def test_a_shuffle_among_three_lanes(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(float *y) {
          y[threadIdx.x] = __shfl_xor_sync(0xffffffff, 1.0f, 1, 3);
        }"""
    )
    finding(program, "wrong shuffle: its width is 3", y=np.zeros(32, F32))


# --- limits and crashes --------------------------------------------------------------------

STORE = 'extern "C" __global__ void k(float *y) { y[0] = 1; }'


@pytest.mark.parametrize(
    ("block", "options", "what"),
    [
        (1025, {}, "a block of (1025, 1, 1) threads"),
        ((1, 1, 65), {}, "a block of (1, 1, 65) threads"),
        (1, {"shared_bytes": 232449}, "232449 bytes of dynamic shared memory"),
        (0, {}, "a block of (0, 1, 1) threads"),
    ],
)
def test_limits_of_a_launch(emulate: Emulate, block: Any, options: Any, what: str) -> None:
    finding(emulate(STORE, 1, block, **options), what, y=np.zeros(1, F32))


def test_limits_of_the_grid(emulate: Emulate) -> None:
    finding(emulate(STORE, (1, 65536, 1), 1), "a grid of (1, 65536, 1) blocks", y=np.zeros(1, F32))
    finding(emulate(STORE, 0, 1), "a grid of (0, 1, 1) blocks", y=np.zeros(1, F32))


def test_more_static_shared_memory_than_there_is(emulate: Emulate) -> None:
    text = """extern "C" __global__ void k(float *y) {
      __shared__ TC_VARIABLE(float, tile, [12289], 4);
      tile[threadIdx.x] = 1;
    }"""
    finding(emulate(text, 1, 1), "49156 bytes of static shared memory", y=np.zeros(1, F32))


def test_local_variables_that_overflow_the_stack(emulate: Emulate) -> None:
    program = emulate(
        """__device__ __noinline__ float deep(int n, float *p) {
          volatile float local[1024];
          local[n & 1023] = *p;
          return n == 0 ? local[0] : deep(n - 1, p) + local[n & 1023];
        }
        extern "C" __global__ void k(float *y) { y[0] = deep(1000, y); }""",
        1, 1,
    )  # fmt: skip
    finding(program, "the local variables of a thread take more than", y=np.zeros(1, F32))


def test_a_trap(emulate: Emulate) -> None:
    finding(emulate('extern "C" __global__ void k(float *y) { __trap(); }', 1, 1),
            "the kernel called __trap", y=np.zeros(1, F32))  # fmt: skip


def test_findings_have_kinds(emulate: Emulate) -> None:
    texts = {
        "race": "y[0] = 1;",
        "out_of_bounds": "y[9 + threadIdx.x] = 1;",
        "uninitialised": "__shared__ TC_VARIABLE(float, s, [2], 4); "
        "y[threadIdx.x] = s[threadIdx.x];",
        "divergent_barrier": "if (threadIdx.x) __syncthreads();",
        "crash": "__trap();",
    }
    for kind, text in texts.items():
        program = emulate(f'extern "C" __global__ void k(float *y) {{ {text} }}', 1, 2)
        with pytest.raises(EmulationError) as caught:
            program.run({"y": np.zeros(2, F32)})
        assert caught.value.kind == kind


def test_arrays_stay_as_they_were(emulate: Emulate) -> None:
    program = emulate(
        'extern "C" __global__ void k(float *y) { y[0] = 1; __syncthreads(); y[5] = 1; }', 1, 1
    )
    y = np.zeros(4, F32)
    finding(program, "write of 4 bytes out of bounds", y=y)
    assert not y.any()
