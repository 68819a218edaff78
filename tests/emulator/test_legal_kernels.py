"""Correct kernels: right results and no finding, whatever the order of blocks and threads."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl.emulator import EmulatedProgram
from tcdsl.runtime.launch import Fault

Emulate = Callable[..., EmulatedProgram]
Random = Callable[..., np.ndarray[Any, Any]]
SEEDS = range(1, 7)
F32 = np.float32


def test_a_block_reduction(emulate: Emulate, f32: Random) -> None:
    program = emulate(
        """extern "C" __global__ void __launch_bounds__(256) k(const float *x, float *y) {
          __shared__ TC_VARIABLE(float, part, [256], 4);
          part[threadIdx.x] = x[blockIdx.x * 256 + threadIdx.x];
          __syncthreads();
          for (int n = 128; n > 0; n /= 2) {
            if (threadIdx.x < n) part[threadIdx.x] += part[threadIdx.x + n];
            __syncthreads();
          }
          if (threadIdx.x == 0) y[blockIdx.x] = part[0];
        }""",
        4, 256,
    )  # fmt: skip
    x = f32(4, 256)
    for seed in SEEDS:
        y = np.zeros(4, F32)
        program.run({"x": x, "y": y}, seed=seed, written={"y"})
        np.testing.assert_allclose(y, x.sum(1), rtol=1e-4)


@pytest.mark.parametrize("threads", [(64, 1), (48, 1), (33, 3), (7, 9)])
def test_the_collectives_of_the_device_library(
    emulate: Emulate, f32: Random, threads: tuple[int, int]
) -> None:
    nx, ny = threads
    program = emulate(
        f"""extern "C" __global__ void k(const float *x, float *rows, float *columns, int *best) {{
          const int i = threadIdx.y * {nx} + threadIdx.x;
          for (int repeat = 0; repeat < 2; ++repeat) {{
            rows[i] = tc_fold_x<tc_op_max_f32, {nx}, {ny}>(x[i]);
            columns[i] = tc_fold_y<tc_op_max_f32, {nx}, {ny}>(x[i]);
            best[i] = tc_argfold_xy<tc_better_max_f32, {nx}, {ny}>(x[i], i).index;
          }}
        }}""",
        1, (nx, ny, 1),
    )  # fmt: skip
    x = f32(ny, nx)
    for seed in SEEDS:
        rows, columns, best = np.zeros_like(x), np.zeros_like(x), np.zeros(x.shape, np.int32)
        program.run({"x": x, "rows": rows, "columns": columns, "best": best}, seed=seed)
        assert (rows == x.max(1, keepdims=True)).all()
        assert (columns == x.max(0)).all()
        assert (best == x.argmax()).all()


def test_a_transpose_through_padded_shared_memory(emulate: Emulate, f32: Random) -> None:
    program = emulate(
        """extern "C" __global__ void k(const float *__restrict__ x, float *__restrict__ y) {
          __shared__ TC_VARIABLE(float, tile, [32][33], 4);
          const int i = blockIdx.y * 32, j = blockIdx.x * 32;
          for (int r = threadIdx.y; r < 32; r += 8)
            if (i + r < 70 && j + threadIdx.x < 45)
              tile[r][threadIdx.x] = x[(i + r) * 45 + j + threadIdx.x];
          __syncthreads();
          for (int r = threadIdx.y; r < 32; r += 8)
            if (j + r < 45 && i + threadIdx.x < 70)
              y[(j + r) * 70 + i + threadIdx.x] = tile[threadIdx.x][r];
        }""",
        (2, 3, 1), (32, 8, 1),
    )  # fmt: skip
    x = f32(70, 45)
    for seed in SEEDS:
        y = np.zeros((45, 70), F32)
        program.run({"x": x, "y": y}, seed=seed, written={"y"})
        assert (y == x.T).all()


def test_a_histogram_by_atomics(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(const int *x, unsigned *y) {
          __shared__ TC_VARIABLE(unsigned, bins, [16], 4);
          if (threadIdx.x < 16) bins[threadIdx.x] = 0;
          __syncthreads();
          for (int i = blockIdx.x * 128 + threadIdx.x; i < 3000; i += 128 * gridDim.x)
            atomicAdd(&bins[x[i]], 1u);
          __syncthreads();
          if (threadIdx.x < 16) atomicAdd(&y[threadIdx.x], bins[threadIdx.x]);
        }""",
        5, 128,
    )  # fmt: skip
    x = np.random.default_rng(1).integers(0, 16, 3000).astype(np.int32)
    for seed in SEEDS:
        y = np.zeros(16, np.uint32)
        program.run({"x": x, "y": y}, seed=seed)
        assert (y == np.bincount(x, minlength=16)).all()


# How a block tells the last one that its part is there: all are in use.
PUBLISH = {
    "one thread": """
      if (threadIdx.x == 0) {
        part[blockIdx.x] = sum;
        __threadfence();
        is_last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
      }
      __syncthreads();""",
    "all threads, one fence after the barrier": """
      all[blockIdx.x * 64 + threadIdx.x] = sum;
      if (threadIdx.x == 0) part[blockIdx.x] = sum;
      __syncthreads();
      if (threadIdx.x == 0) {
        __threadfence();
        is_last = atomicAdd(ticket, 1u) == gridDim.x - 1;
        __threadfence();
        if (is_last) *ticket = 0;
      }
      __syncthreads();""",
    "all threads, each with a fence": """
      all[blockIdx.x * 64 + threadIdx.x] = sum;
      if (threadIdx.x == 0) part[blockIdx.x] = sum;
      __threadfence();
      __syncthreads();
      if (threadIdx.x == 0) is_last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
      __syncthreads();
      __threadfence();""",
    "a warp": """
      all[blockIdx.x * 64 + threadIdx.x] = sum;
      __syncthreads();
      if (threadIdx.x < 32) {
        if (threadIdx.x == 1) part[blockIdx.x] = sum;
        __syncwarp();
        if (threadIdx.x == 0) {
          __threadfence();
          is_last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
        }
      }
      __syncthreads();""",
}


@pytest.mark.parametrize("way", PUBLISH)
def test_the_last_block_by_ticket(emulate: Emulate, f32: Random, way: str) -> None:
    program = emulate(
        """extern "C" __global__ void k(const float *x, float *all, float *part, unsigned *ticket,
                                         float *y) {
          __shared__ TC_VARIABLE(bool, is_last, , 1);
          const float sum = tc_fold_x<tc_op_add_f32, 64, 1>(x[blockIdx.x * 64 + threadIdx.x]);
          PUBLISH
          if (!is_last) return;
          const float own = threadIdx.x < gridDim.x ? part[threadIdx.x] : 0.0f;
          const float total = tc_fold_x<tc_op_add_f32, 64, 1>(own);
          if (threadIdx.x == 0) y[0] = total;
          part[threadIdx.x % gridDim.x == 0 && threadIdx.x < gridDim.x ? 0 : threadIdx.x] = 0;
        }""".replace("PUBLISH", PUBLISH[way]),
        10, 64, workspace_bytes=8192, scratch={"all": 0, "part": 4096},
    )  # fmt: skip
    x = f32(10, 64)
    ticket = np.zeros(1, np.uint32)
    for seed in SEEDS:
        y = np.zeros(1, F32)
        program.run({"x": x, "ticket": ticket, "y": y}, seed=seed, written={"y"})
        np.testing.assert_allclose(y[0], x.sum(), rtol=1e-4, atol=1e-4)
        assert ticket == 0


def test_tickets_in_two_steps(emulate: Emulate, f32: Random) -> None:
    # Blocks of a row -> the row's last block -> the last of these, which reads the first's parts.
    program = emulate(
        """extern "C" __global__ void k(const float *x, float *part, float *row, unsigned *tickets,
                                         float *y) {
          if (threadIdx.x > 0) return;
          part[blockIdx.y * 4 + blockIdx.x] = x[blockIdx.y * 4 + blockIdx.x];
          __threadfence();
          if (atomicAdd(&tickets[blockIdx.y], 1u) != 3) return;
          __threadfence();
          float sum = 0;
          for (int i = 0; i < 4; ++i) sum += part[blockIdx.y * 4 + i];
          row[blockIdx.y] = sum;
          __threadfence();
          if (atomicAdd(&tickets[3], 1u) != 2) return;
          __threadfence();
          y[0] = row[0] + row[1] + row[2];
          for (int i = 0; i < 12; ++i) y[1 + i] = part[i];
        }""",
        (4, 3, 1), 32, workspace_bytes=512, scratch={"part": 0, "row": 256},
    )  # fmt: skip
    x = f32(12)
    for seed in range(1, 30):
        y = np.zeros(13, F32)
        program.run({"x": x, "tickets": np.zeros(4, np.uint32), "y": y}, seed=seed)
        np.testing.assert_allclose(y[0], x.sum(), rtol=1e-4, atol=1e-4)
        assert (y[1:] == x).all()


@pytest.mark.slow_but("1", "8", "32")
@pytest.mark.parametrize("width", [1, 2, 4, 8, 16, 32])
def test_shuffles_within_segments(emulate: Emulate, f32: Random, width: int) -> None:
    # Segments come at different times, and some of them never.
    program = emulate(
        f"""extern "C" __global__ void k(const float *x, float *y) {{
          const int lane = threadIdx.x % 32, segment = threadIdx.x / {width};
          if (segment % 3 == 1) return;
          const unsigned mask = (unsigned)(((1ull << {width}) - 1) << (lane / {width} * {width}));
          float v = x[threadIdx.x];
          for (int d = {width} / 2; d > 0; d /= 2) v += __shfl_xor_sync(mask, v, d);
          y[threadIdx.x] = v;
        }}""",
        1, 96,
    )  # fmt: skip
    x = f32(96)
    sums = x.reshape(-1, width).sum(1)
    for seed in SEEDS:
        y = np.zeros(96, F32)
        program.run({"x": x, "y": y}, seed=seed)
        for thread in range(96):
            segment = thread // width
            want = 0 if segment % 3 == 1 else sums[segment]
            np.testing.assert_allclose(y[thread], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (np.int32, "int"), (np.uint32, "unsigned"), (np.int64, "long long"),
        (np.uint64, "unsigned long long"), (np.float32, "float"), (np.float64, "double"),
    ],
)  # fmt: skip
def test_every_shuffle_of_every_type(emulate: Emulate, dtype: Any, name: str) -> None:
    program = emulate(
        f"""extern "C" __global__ void k(const {name} *x, {name} *y) {{
          const {name} v = x[threadIdx.x];
          const unsigned all = 0xffffffffu;
          y[threadIdx.x] = __shfl_sync(all, v, threadIdx.x + 3, 8);
          y[32 + threadIdx.x] = __shfl_up_sync(all, v, 3, 16);
          y[64 + threadIdx.x] = __shfl_down_sync(all, v, 3, 16);
          y[96 + threadIdx.x] = __shfl_xor_sync(all, v, 5);
          y[128 + threadIdx.x] = __shfl_xor_sync(all, v, 8, 8);
          y[160 + threadIdx.x] = __shfl_sync(all, v, -1);
        }}"""
    )
    x = (np.arange(32) * 2**24 - 100).astype(dtype)
    y = np.zeros((6, 32), dtype)
    program.run({"x": x, "y": y})
    lane = np.arange(32)
    assert (y[0] == x[lane // 8 * 8 + (lane + 3) % 8]).all()
    assert (y[1] == x[np.where(lane % 16 >= 3, lane - 3, lane)]).all()
    assert (y[2] == x[np.where(lane % 16 + 3 < 16, lane + 3, lane)]).all()
    assert (y[3] == x[lane ^ 5]).all()
    # Beyond the segment upwards: the own value; downwards: the other segment's.
    assert (y[4] == x[np.where(lane & 8, lane ^ 8, lane)]).all()
    assert (y[5] == x[31]).all()


def test_votes_and_barriers_that_count(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(const int *x, unsigned *y) {
          const int p = x[threadIdx.x];
          y[threadIdx.x] = __ballot_sync(0xffffffff, p);
          y[64 + threadIdx.x] = __any_sync(0xffffffff, p);
          y[128 + threadIdx.x] = __all_sync(0xffffffff, p);
          y[192 + threadIdx.x] = __syncthreads_count(p);
          y[256 + threadIdx.x] = __syncthreads_or(p);
          y[320 + threadIdx.x] = __syncthreads_and(p);
          y[384 + threadIdx.x] = __syncthreads_and(1);
        }""",
        1, 64,
    )  # fmt: skip
    x = np.concatenate([np.arange(32) % 3 == 0, np.ones(32)]).astype(np.int32)
    first = sum(1 << lane for lane in range(32) if x[lane])
    for seed in SEEDS:
        y = np.zeros((7, 64), np.uint32)
        program.run({"x": x, "y": y}, seed=seed)
        assert (y[0] == np.repeat([first, 2**32 - 1], 32)).all()
        assert (y[1] == 1).all()
        assert (y[2] == np.repeat([0, 1], 32)).all()
        assert (y[3] == x.sum()).all()
        assert (y[4] == 1).all() and (y[5] == 0).all() and (y[6] == 1).all()


def test_votes_in_a_warp_that_is_partly_there(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(unsigned *y) {
          if (threadIdx.x == 33) return;
          y[threadIdx.x] = __ballot_sync(0xffffffff, 1);
          __syncwarp();
        }""",
        1, 40,
    )  # fmt: skip
    for seed in SEEDS:
        y = np.zeros(40, np.uint32)
        program.run({"y": y}, seed=seed)
        assert (y[:32] == 2**32 - 1).all() and (np.delete(y[32:], 1) == 0b11111101).all()


def test_lanes_that_exchange_through_memory(emulate: Emulate, f32: Random) -> None:
    program = emulate(
        """extern "C" __global__ void k(const float *x, float *y) {
          __shared__ TC_VARIABLE(float, tile, [128], 4);
          float *mine = tile + threadIdx.x / 32 * 32;
          const int lane = threadIdx.x % 32;
          for (int repeat = 0; repeat < 3; ++repeat) {
            mine[lane] = x[threadIdx.x];
            __syncwarp();
            const float all = mine[0];  // every lane reads it, then lane 0 overwrites it
            const float other = mine[31 - lane];
            __syncwarp();
            y[threadIdx.x] = all + other;
          }
        }""",
        1, 128,
    )  # fmt: skip
    x = f32(4, 32)
    for seed in SEEDS:
        y = np.zeros((4, 32), F32)
        program.run({"x": x, "y": y}, seed=seed)
        assert (y == x[:, :1] + x[:, ::-1]).all()


def test_grid_strides_over_several_launches(emulate: Emulate, f32: Random) -> None:
    program = emulate(
        """extern "C" __global__ void first(const float *x, float *t, int64_t n) {
          for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n;
               i += gridDim.x * (int64_t)blockDim.x)
            t[i] = 2 * x[i];
        }
        extern "C" __global__ void second(const float *t, float *y, int64_t n) {
          for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n;
               i += gridDim.x * (int64_t)blockDim.x)
            y[i] = t[n - 1 - i] + 1;
        }""",
        3, 96, workspace_bytes=4096, scratch={"t": 16}, integers=("n",),
    )  # fmt: skip
    x = f32(1000)
    for seed in SEEDS:
        y = np.zeros(1000, F32)
        program.run({"x": x, "y": y}, [1000], seed=seed, written={"y"})
        assert (y == 2 * x[::-1] + 1).all()


def test_dynamic_shared_memory(emulate: Emulate, f32: Random) -> None:
    program = emulate(
        """extern "C" __global__ void k(const double *x, double *y) {
          extern __shared__ TC_DYNAMIC(unsigned char, bytes, 16);
          double *const all = (double *)(bytes + 0);
          if (threadIdx.x < 16) all[threadIdx.x] = x[threadIdx.x];
          __syncthreads();
          if (threadIdx.x < 16) y[threadIdx.x] = all[15 - threadIdx.x];
        }""",
        1, 32, shared_bytes=128,
    )  # fmt: skip
    x = f32(16).astype(np.float64)
    for seed in SEEDS:
        y = np.zeros(16)
        program.run({"x": x, "y": y}, seed=seed)
        assert (y == x[::-1]).all()


def test_shared_memory_of_every_width(emulate: Emulate) -> None:
    # Bytes of one word by different threads are no race; words later reuse the same memory.
    program = emulate(
        """extern "C" __global__ void k(const unsigned char *x, unsigned *y) {
          __shared__ TC_VARIABLE(unsigned char, bytes, [64], 16);
          bytes[threadIdx.x] = x[threadIdx.x];
          __syncthreads();
          if (threadIdx.x < 4) {
            const uint4 all = ((uint4 *)bytes)[threadIdx.x];
            y[4 * threadIdx.x] = all.x, y[4 * threadIdx.x + 1] = all.y;
            y[4 * threadIdx.x + 2] = all.z, y[4 * threadIdx.x + 3] = all.w;
          }
          __syncthreads();
          ((unsigned short *)bytes)[threadIdx.x % 32] = 1;
        }""",
        1, 64,
    ).source  # fmt: skip
    text = program.text.replace(
        "((unsigned short *)bytes)[threadIdx.x % 32] = 1;",
        "if (threadIdx.x < 32) ((unsigned short *)bytes)[threadIdx.x] = 1;",
    )
    fixed = emulate(text, 1, 64)
    x = np.arange(64, dtype=np.uint8)
    for seed in SEEDS:
        y = np.zeros(16, np.uint32)
        fixed.run({"x": x, "y": y}, seed=seed)
        assert (y.view(np.uint8) == x).all()


def test_large_local_arrays_and_copies(emulate: Emulate, f32: Random) -> None:
    program = emulate(
        """struct Row { float v[64]; };
        extern "C" __global__ void k(const float *x, float *y) {
          Row row = *(const Row *)(x + 64 * threadIdx.x), zero = {};
          for (int i = 0; i < 64; ++i) row.v[i] += zero.v[63 - i] + 1;
          *(Row *)(y + 64 * threadIdx.x) = row;
        }""",
        1, 4,
    )  # fmt: skip
    x, y = f32(4, 64), np.zeros((4, 64), F32)
    program.run({"x": x, "y": y}, written={"y"})
    assert (y == x + 1).all()


def test_compare_and_swap_loops(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(unsigned short *h, unsigned long long *q, float *f,
                                         double *d, int *i, unsigned *u) {
          unsigned short seen = 0, old;
          while ((old = atomicCAS(h, seen, (unsigned short)(seen + 1))) != seen) seen = old;
          atomicMax(q, (unsigned long long)threadIdx.x << 40);
          atomicAdd(f, 0.5f);
          atomicAdd(d, 0.25);
          atomicMin(i, -(int)threadIdx.x);
          atomicAdd(i + 1, -1);
          atomicSub(i + 2, 2);
          atomicExch(i + 3, 7);
          atomicAnd(u, ~(1u << threadIdx.x % 8));
          atomicOr(u + 1, 1u << threadIdx.x % 8);
          atomicXor(u + 2, 1u << threadIdx.x % 8);
          atomicInc(u + 3, 9);
          atomicDec(u + 4, 9);
        }""",
        2, 40,
    )  # fmt: skip
    arrays: dict[str, Any] = {
        "h": np.zeros(1, np.uint16), "q": np.zeros(1, np.uint64), "f": np.zeros(1, F32),
        "d": np.zeros(1), "i": np.zeros(4, np.int32), "u": np.array([255, 0, 0, 0, 5], np.uint32),
    }  # fmt: skip
    program.run(arrays)
    assert arrays["h"] == 80 and arrays["q"] == 39 << 40
    assert arrays["f"] == 40 and arrays["d"] == 20
    assert arrays["i"].tolist() == [-39, -80, -160, 7]
    assert arrays["u"].tolist() == [0, 255, 0, 0, 5]


def test_bits_and_arithmetic(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(int *y, float *f) {
          y[0] = __popc(0xf0f0u) + __popcll(1ull << 40);
          y[1] = __clz(1) + __clz(0) + __clzll(1);
          y[2] = __ffs(8) + __ffs(0) + __ffsll(1ll << 40);
          y[3] = __float_as_int(1.0f);
          y[4] = min(3, -2) + max(3u, 5u);
          y[5] = (int)(__brev(1u) >> 28);
          y[6] = (int)__umulhi(0x80000000u, 6u);
          y[7] = warpSize + blockDim.y + gridDim.x;
          f[0] = __fmaf_rn(2.0f, 3.0f, 4.0f) + __int_as_float(0x3f800000);
          f[1] = min(1.0f, __uint_as_float(0x7fc00000u));
          f[2] = (float)__longlong_as_double(__double_as_longlong(2.5));
          const float4 v = make_float4(1, 2, 3, 4);
          f[3] = v.x + v.w;
          f[4] = __ldg(&f[5]);
        }""",
        1, 1,
    )  # fmt: skip
    y, f = np.zeros(8, np.int32), np.array([0, 0, 0, 0, 0, 9], F32)
    program.run({"y": y, "f": f})
    assert y.tolist() == [9, 31 + 32 + 63, 4 + 41, 0x3F800000, 3, 8, 3, 34]
    assert f.tolist() == [11, 1, 2.5, 5, 9, 9]


def test_three_dimensions(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(int *y) {
          const int i = blockIdx.x * blockDim.x + threadIdx.x;
          const int j = blockIdx.y * blockDim.y + threadIdx.y;
          const int l = blockIdx.z * blockDim.z + threadIdx.z;
          y[(l * 6 + j) * 8 + i] = 100 * l + 10 * j + i;
        }""",
        (4, 2, 5), (2, 3, 2),
    )  # fmt: skip
    y = np.zeros((10, 6, 8), np.int32)
    program.run({"y": y}, written={"y"})
    i, j, k = np.meshgrid(range(10), range(6), range(8), indexing="ij")
    assert (y == 100 * i + 10 * j + k).all()


# --- arrays of all kinds -------------------------------------------------------------------

DOUBLE = """extern "C" __global__ void k(const float *x, float *y, int64_t sx, int64_t sy) {
  y[sy * threadIdx.x] = 2 * x[sx * threadIdx.x];
}"""


def test_strided_views(emulate: Emulate, f32: Random) -> None:
    program = emulate(DOUBLE, 1, 6, integers=("sx", "sy"))
    for sx, sy in [(1, 1), (-1, 2), (3, -2), (0, 1), (2, 1)]:
        x = np.lib.stride_tricks.as_strided(f32(40)[20:], (6,), (4 * sx,))
        around = np.full(30, 7, F32)
        y = np.lib.stride_tricks.as_strided(around[15:], (6,), (4 * sy,))
        program.run({"x": x, "y": y}, [sx, sy])
        assert (y == 2 * x).all()
        assert (around == 7).sum() == 24


def test_arrays_without_elements(emulate: Emulate) -> None:
    program = emulate(
        'extern "C" __global__ void k(const float *x, float *y, int64_t n) { if (n) y[0] = x[0]; }',
        1, 32, integers=("n",),
    )  # fmt: skip
    program.run({"x": np.zeros((0, 3), F32), "y": np.zeros(0, F32)}, [0])


def test_the_fault_record(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(const int *x, float *y, int64_t *fault) {
          const int i = x[threadIdx.x];
          if (i < 0 || i >= 10) tc_fault(fault, 3, i, 10, 0);
          else y[i] = 1;
        }""",
        1, 4,
    )  # fmt: skip
    y = np.zeros(10, F32)
    assert program.run({"x": np.array([0, 1, 2, 9], np.int32), "y": y}) is None
    assert y.sum() == 4
    for seed in SEEDS:
        fault = program.run({"x": np.array([0, 12, 2, -5], np.int32), "y": y}, seed=seed)
        assert fault in (Fault(1, 3, 12, 10), Fault(1, 3, -5, 10))


def test_the_order_depends_on_the_seed_only(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(unsigned *count, unsigned *y) {
          y[blockIdx.x * 32 + threadIdx.x] = atomicAdd(count, 1u);
        }""",
        4, 32,
    )  # fmt: skip

    def order(seed: int | None) -> list[int]:
        y = np.zeros(128, np.uint32)
        program.run({"count": np.zeros(1, np.uint32), "y": y}, seed=seed)
        return list(map(int, y))

    assert sorted(order(1)) == list(range(128))
    assert order(1) == order(1) != order(2)
    assert order(None) != order(None)
