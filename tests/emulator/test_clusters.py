"""Clusters: what is legal passes, whatever the order of blocks; what is not is found."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.cuda.source import CudaSource
from tcdsl.codegen.device import cuda
from tcdsl.emulator import EmulatedProgram, compile_emulated, emulated_programs
from tcdsl.emulator.sanitized import run_sanitized
from tcdsl.errors import EmulationError

Emulate = Callable[..., EmulatedProgram]
Random = Callable[..., np.ndarray[Any, Any]]
SEEDS = range(1, 7)
F32 = np.float32

# What kernels here write in place of the emulator's intrinsics, all on one line.
MACROS = (
    "#define ARRIVE emu_cluster_arrive(__FILE__, __LINE__)\n"
    "#define WAIT emu_cluster_wait(__FILE__, __LINE__)\n"
    "#define OF(p, rank) ((float *)emu_cluster_map(p, rank, __FILE__, __LINE__))\n"
    "#define RANK ((int)blockIdx.z)\n#define THREAD ((int)threadIdx.x)\n#line 1\n"
)


def kernel(body: str) -> str:
    return f'{MACROS}extern "C" __global__ void tcdsl_k(const float *x, float *y) {{\n{body}\n}}'


def passes(program: EmulatedProgram, x: Any, want: Any) -> None:
    for seed in SEEDS:
        y = np.zeros(np.shape(want), F32)
        program.run({"x": x, "y": y}, seed=seed, written={"y"})
        np.testing.assert_array_equal(y, want)


def finding(program: EmulatedProgram, *kinds: str, size: int = 1024) -> str:
    """Return the message; it must match one of *kinds* for every seed."""
    message = ""
    for seed in SEEDS:
        with pytest.raises(EmulationError) as caught:
            program.run({"x": np.ones(size, F32), "y": np.zeros(size, F32)}, seed=seed)
        message = caught.value.message
        what = message.partition("): ")[2] or message.partition(": ")[2]
        assert any(re.match(kind, what) for kind in kinds), message
    return message


# --- legal ---------------------------------------------------------------------------------
# Every thread puts into the next block's slots; at the end nobody's memory is still needed.
RING = """__shared__ TC_VARIABLE(float, slots, [64], 4);
  ARRIVE; WAIT;
  OF(slots, (RANK + 1) % {blocks})[THREAD] = x[64 * RANK + THREAD];
  ARRIVE; WAIT;
  y[64 * RANK + THREAD] = slots[63 - THREAD];"""


@pytest.mark.parametrize("blocks", [2, 3, 8, 16])
def test_put_arrive_wait(emulate: Emulate, f32: Random, blocks: int) -> None:
    program = emulate(kernel(RING.format(blocks=blocks)), 1, 64, cluster=blocks)
    x = f32(blocks, 64)
    passes(program, x, np.roll(x, 1, axis=0)[:, ::-1])


def test_a_pending_arrival_in_a_loop(emulate: Emulate, f32: Random) -> None:
    # The slots are used again: each put waits for the arrival that followed the last reading.
    program = emulate(
        kernel(
            """__shared__ TC_VARIABLE(float, slots, [4], 4);
            float sum = x[64 * RANK + THREAD];
            ARRIVE;
            for (int k = 0; k < 5; k++) {
              WAIT;
              if (THREAD < 4) OF(slots, THREAD)[RANK] = sum;
              ARRIVE; WAIT;
              sum = slots[0] + slots[1] + slots[2] + slots[3];
              ARRIVE;
            }
            WAIT;
            y[64 * RANK + THREAD] = sum;"""
        ),
        1, 64, cluster=4,
    )  # fmt: skip
    x = np.arange(4 * 64, dtype=F32).reshape(4, 64)
    part = x[:, :4].T  # of rank r, what its thread l gave to block l
    sums = part.sum(1)
    for _ in range(4):
        sums = np.full(4, sums.sum())
    passes(program, x, np.repeat(sums, 64).reshape(4, 64))


def test_two_folds_in_a_loop(emulate: Emulate, f32: Random) -> None:
    program = emulate(
        kernel(
            """tc_cluster_begin();
            __shared__ TC_VARIABLE(float, row, [96], 4);
            for (int k = 0; k < 3; k++) {
              const int at = ((3 * (int)blockIdx.x + k) * 2 + RANK) * 96 + THREAD;
              row[THREAD] = x[at];
              __syncthreads();
              const float most = tc_fold_xc<tc_op_max_f32, 96, 1, 2>(row[95 - THREAD]);
              const float sum = tc_fold_xc<tc_op_add_f32, 96, 1, 2>(row[95 - THREAD] == most);
              y[at] = most + sum;
              __syncthreads();
            }
            tc_cluster_end();"""
        ),
        (4, 1, 1), 96, cluster=2,
    )  # fmt: skip
    x = f32(12, 192)
    passes(program, x, np.repeat(x.max(1) + 1, 192).reshape(12, 192).astype(F32))


def test_a_cluster_of_16_blocks_of_64_threads(emulate: Emulate, f32: Random) -> None:
    program = emulate(
        kernel(
            """tc_cluster_begin();
            const int at = 64 * RANK + THREAD;
            y[at] = tc_fold_xc<tc_op_max_f32, 64, 1, 16>(x[at]);
            tc_cluster_end();"""
        ),
        1, 64, cluster=16,
    )  # fmt: skip
    x = f32(1024)
    passes(program, x, np.full(1024, x.max()))


def test_each_block_has_shared_memory_of_its_own(emulate: Emulate, f32: Random) -> None:
    program = emulate(
        kernel(
            """extern __shared__ TC_DYNAMIC(float, dynamic, 4);
            __shared__ TC_VARIABLE(float, tile, [2][48], 4);
            const int at = 48 * RANK + THREAD;
            for (int k = 0; k < 2; k++) {
              tile[k][THREAD] = x[at];
              dynamic[THREAD] = 2 * x[at];
              __syncthreads();
              y[at] = tile[k][47 - THREAD] + dynamic[47 - THREAD];
              __syncthreads();
            }"""
        ),
        1, 48, cluster=4, shared_bytes=200 << 10,
    )  # fmt: skip
    x = f32(4, 48)
    passes(program, x, x[:, ::-1] + 2 * x[:, ::-1])


def test_the_cluster_orders_what_a_block_knew(emulate: Emulate, f32: Random) -> None:
    # Thread 0 stores after its arrival, but its block's barrier is before the others'.
    program = emulate(
        kernel(
            """if (THREAD == 0) { ARRIVE; y[RANK] = x[RANK]; }
            __syncthreads();
            if (THREAD != 0) ARRIVE;
            WAIT;
            y[2 + 64 * RANK + THREAD] = y[1 - RANK];"""
        ),
        1, 64, cluster=2,
    )  # fmt: skip
    x = f32(2)
    passes(program, x, np.concatenate((x, np.repeat(x[::-1], 64))))


def test_lanes_and_blocks_learn_of_a_wait(emulate: Emulate, f32: Random) -> None:
    # One thread waits, and the others of its block, or of its warp, know what it knows.
    program = emulate(
        kernel(
            """y[32 * RANK + THREAD] = x[32 * RANK + THREAD];
            ARRIVE;
            if (THREAD == 5) WAIT;
            if (RANK) __syncwarp(); else __syncthreads();
            const float theirs = y[32 * (1 - RANK) + THREAD];
            if (THREAD != 5) WAIT;
            ARRIVE; WAIT;
            y[32 * RANK + THREAD] = theirs;"""
        ),
        1, 32, cluster=2,
    )  # fmt: skip
    x = f32(2, 32)
    passes(program, x, x[::-1])


def test_everybody_reads_then_one_writes(emulate: Emulate) -> None:
    program = emulate(
        kernel(
            """const float before = x[0] + y[RANK / 2];
            ARRIVE; WAIT;
            if (RANK % 2 == 0 && THREAD == 70) y[RANK / 2] = before;
            ARRIVE; WAIT;
            y[2 + 96 * RANK + THREAD] = y[0] + y[1];"""
        ),
        1, 96, cluster=4,
    )  # fmt: skip
    for seed in SEEDS:
        y = np.zeros(2 + 4 * 96, F32)
        y[:2] = 1, 2
        program.run({"x": np.ones(1, F32), "y": y}, seed=seed)
        assert y.tolist() == [2, 3] + [5] * 384


def test_launches_with_and_without_clusters(emulate: Emulate, f32: Random) -> None:
    text = kernel(RING.format(blocks=2)) + (
        '\nextern "C" __global__ void plain(float *y) {\n'
        "__shared__ TC_VARIABLE(float, s, [64], 4);\n"
        "s[THREAD] = y[64 * RANK + THREAD]; __syncthreads(); y[64 * RANK + THREAD] = s[THREAD] + 1;"
        "}"
    )
    source = emulate(text, 1, 64).source
    first, second = source.launches
    shape = {"grid": (1, 1, 2)}
    launches = (replace(first, cluster_dims=(1, 1, 2), **shape), replace(second, **shape))
    both = replace(source, launches=(*launches, *launches[1:]))
    x = f32(2, 64)
    want = np.roll(x, 1, axis=0)[:, ::-1] + F32(1) + F32(1)
    passes(EmulatedProgram(compile_emulated(both), both), x, want)


# --- findings ------------------------------------------------------------------------------
NO_CLUSTER_BARRIER = ".*no barrier of the cluster lies between them"


BARRIERS = [
        ("ARRIVE; ARRIVE; WAIT;", ["divergent barrier: .* arrives at the cluster's barrier twice"]),
        ("WAIT;", ["divergent barrier: .* waits at the cluster's barrier, where it has not arr"]),
        ("ARRIVE; WAIT; WAIT;", ["divergent barrier: .* where it has not arrived"]),
        ("ARRIVE;", ["divergent barrier: this thread ended between its arrival"]),
        (
            "if (THREAD == 3) return;\nARRIVE; WAIT;",
            ["divergent barrier: this thread ended, and thread .* has arrived at the cluster's",
             "divergent barrier: this thread is at the cluster's barrier, and thread .* has ended"],
        ),
        (
            "if (RANK == 1) return;\nARRIVE; WAIT;",
            ["divergent barrier: this thread ended, and thread .* of block \\(0, 0, 0\\) has arr",
             "divergent barrier: this thread is at the .*, and thread .* of block \\(0, 0, 1\\)"],
        ),
        (
            "ARRIVE;\nif (THREAD > 1) WAIT;\nelse __syncthreads();\nif (THREAD < 2) WAIT;",
            ["divergent barrier: .* thread \\(.*\\) (has ended|waits at the barrier of ker)"],
        ),
        (
            "if (THREAD == 9) __syncthreads();\nARRIVE; WAIT;\nif (THREAD != 9) __syncthreads();",
            ["divergent barrier: ", "deadlock: this thread waits at the barrier of the cluster; "
             "but thread \\(9, 0, 0\\) of block \\(0, 0, [01]\\) waits at the barrier of k"],
        ),
        (
            "if (THREAD == 9) __syncthreads();\nARRIVE; WAIT; while (1) __syncthreads();",
            ["divergent barrier: ", "deadlock: this thread waits at the barrier of the cluster; "],
        ),
]  # fmt: skip


PUT = "OF(slots, 1 - RANK)[THREAD] = x[THREAD];"
SLOTS = "__shared__ TC_VARIABLE(float, slots, [64], 4);\n"


MEMORY = [
        # Reading the slots without any barrier after the put, or after an arrival alone.
        (f"ARRIVE; WAIT; {PUT} y[64 * RANK + THREAD] = slots[THREAD]; ARRIVE; WAIT;",
         ["data race at slots", "read of memory that was never written by this"]),
        (f"ARRIVE; WAIT; {PUT} ARRIVE; y[64 * RANK + THREAD] = slots[THREAD]; WAIT;",
         ["data race at slots", "read of memory that was never written by this"]),
        # A put between the arrival and the wait is not ordered by them.
        (f"ARRIVE; WAIT; ARRIVE; {PUT} WAIT; y[64 * RANK + THREAD] = slots[THREAD]; ARRIVE; WAIT;",
         ["data race at slots", "read of memory that was never written by this"]),
        # The barrier of a block does not order another one's puts.
        (f"ARRIVE; WAIT; {PUT} __syncthreads(); y[64 * RANK + THREAD] = slots[THREAD];\n"
         "ARRIVE; WAIT;",
         ["data race at slots", "read of memory that was never written by this"]),
        # A second put before the first one's reader has arrived.
        (f"ARRIVE; WAIT; {PUT} ARRIVE; WAIT; y[64 * RANK + THREAD] = slots[63 - THREAD];\n"
         f"{PUT} ARRIVE; WAIT;", ["data race at slots" + NO_CLUSTER_BARRIER]),
        # Two blocks put into the same slot.
        ("ARRIVE; WAIT; OF(slots, 0)[THREAD] = 1; ARRIVE; WAIT;",
         ["data race at slots" + NO_CLUSTER_BARRIER]),
        # Blocks that may not have started.
        (f"{PUT} ARRIVE; WAIT; y[64 * RANK + THREAD] = slots[THREAD];",
         [r"data race at slots.* of block \([01], 0, [01]\).*and the start of that block"]),
        (f"ARRIVE; {PUT} WAIT;", ["data race at slots.* and the start of that block"]),
        # Blocks that may have ended.
        (f"ARRIVE; WAIT; {PUT}", [r"data race at slots.* and the end of (this|that) block"]),
        ("slots[THREAD] = 1; ARRIVE; WAIT; y[64 * RANK + THREAD] = OF(slots, 1 - RANK)[THREAD];",
         [r"data race at slots.*read.* and the end of (this|that) block are not ordered"]),
        # Global memory of the cluster, and of other clusters.
        ("y[64 * RANK + THREAD] = 1; __syncthreads(); y[127 - 64 * RANK - THREAD] += 1;",
         ["data race at y" + NO_CLUSTER_BARRIER]),
        ("ARRIVE; WAIT; if (RANK) y[THREAD] = 1;",
         ["data race at y.* of block .*: blocks may run at the same time"]),
        # Within a block all is as ever.
        ("slots[THREAD] = 1; y[64 * RANK + THREAD] = slots[63 - THREAD];",
         ["data race at slots.*: no barrier lies between them", "read of memory that was never"]),
        ("if (THREAD == 0) slots[0] = 1;\n__syncthreads();\nfloat v = slots[0];\nslots[0] = v + 1;",
         ["data race at slots.*: no barrier lies between them"]),
        # Addresses.
        ("ARRIVE; WAIT; OF(slots, 2)[THREAD] = 1; ARRIVE; WAIT;", ["block 2 of a cluster of 2"]),
        ("ARRIVE; WAIT; OF(slots, 1 - RANK)[64] = 1; ARRIVE; WAIT;",
         [r"write of 4 bytes out of bounds: slots\[64\] \(shared, of block \([01], 0, [01]\), 64"]),
        ("ARRIVE; WAIT; OF(y, 1)[0] = 1; ARRIVE; WAIT;",
         ["the address of another block's shared memory is asked for with one that is not"]),
]  # fmt: skip


@pytest.fixture(scope="module")
def programs(cuda_source: Callable[..., CudaSource]) -> list[EmulatedProgram]:
    """Return what BARRIERS and MEMORY say, compiled together."""
    small, large = (1, 16), ((2, 1, 1), 64)
    sources = [cuda_source(kernel(body), *small, cluster=2) for body, _ in BARRIERS]
    sources += [cuda_source(kernel(SLOTS + body), *large, cluster=2) for body, _ in MEMORY]
    return emulated_programs(sources)


@pytest.mark.parametrize("number", range(len(BARRIERS)))
def test_the_barrier_of_a_cluster(programs: list[EmulatedProgram], number: int) -> None:
    text = finding(programs[number], *BARRIERS[number][1])
    assert "(kernels.cu:" in text or "ended" in text


@pytest.mark.parametrize("number", range(len(MEMORY)))
def test_memory_of_a_cluster(programs: list[EmulatedProgram], number: int) -> None:
    finding(programs[len(BARRIERS) + number], *MEMORY[number][1])


def test_dynamic_shared_memory_of_other_blocks(emulate: Emulate) -> None:
    body = f"extern __shared__ TC_DYNAMIC(float, slots, 4);\nARRIVE; WAIT; {PUT}"
    text = finding(
        emulate(kernel(body), 1, 64, cluster=2, shared_bytes=256),
        r"data race at dynamic shared memory\[\d+\].* and the end of (this|that) block",
    )
    assert "of block (0, 0, " in text


def test_clusters_that_cannot_be(emulate: Emulate) -> None:
    body = kernel("ARRIVE; WAIT;")
    finding(emulate(body, 1, 32), "the barrier of a cluster in a launch without clusters")
    program = emulate(body, 1, 32, cluster=4)
    (launch,) = program.source.launches
    program.source = replace(program.source, launches=(replace(launch, grid=(1, 1, 6)),))
    finding(program, r"clusters of \(1, 1, 4\) blocks, at most 16; not whole ones")
    finding(emulate(body, 1, 32, cluster=17), r"clusters of \(1, 1, 17\) blocks, at most 16")


def test_the_sanitizer_has_no_clusters(emulate: Emulate) -> None:
    source = emulate(kernel("ARRIVE; WAIT;"), 1, 32, cluster=4).source
    with pytest.raises(EmulationError, match="runs one block at a time, and no clusters"):
        run_sanitized(source, {"x": np.ones(1, F32), "y": np.ones(1, F32)})


# --- the device library's own protocol -----------------------------------------------------
PUT_LINE = "  if (lane < BLOCKS) tc_put_to("
PUT_TO = "tc_put_to(slots + "
WAITS = "  tc_cluster_arrive();\n  tc_cluster_wait();\n"
JOIN = "  value = tc_join_slots<Op, BLOCKS * WARPS>(slots, thread);\n"


@pytest.mark.parametrize(
    ("there", "planted"),
    [
        ("  tc_cluster_wait();\n" + PUT_LINE, PUT_LINE),
        (WAITS + JOIN, "  tc_cluster_arrive();\n" + JOIN + "  tc_cluster_wait();\n"),
        (JOIN + "  tc_cluster_arrive();\n", "  tc_cluster_arrive();\n" + JOIN),
        (WAITS + JOIN, "  __syncthreads();\n" + JOIN),
        (PUT_TO + "(int)blockIdx.z * WARPS + warp", PUT_TO + "(int)blockIdx.z * WARPS"),
        (PUT_TO + "(int)blockIdx.z * WARPS + warp", PUT_TO + "warp"),
    ],
)
def test_a_defect_of_the_fold_is_found(
    emulate: Emulate, monkeypatch: pytest.MonkeyPatch, there: str, planted: str
) -> None:
    whole = cuda.emulated_text

    def emulated_text(features: frozenset[str] | None = None) -> str:
        text = whole(features)
        assert text.count(there) == (1 if features else 0)  # none in what every kernel has
        return text.replace(there, planted)

    monkeypatch.setattr(cuda, "emulated_text", emulated_text)
    body = """tc_cluster_begin();
      float value = x[THREAD];
      for (int k = 0; k < 2; k++) value = tc_fold_xc<tc_op_add_f32, 64, 1, 4>(value);
      y[64 * RANK + THREAD] = value;
      tc_cluster_end();"""
    finding(emulate(kernel(body), 1, 64, cluster=4), "data race at slots", "divergent barrier",
            "read of memory that was never written")  # fmt: skip
