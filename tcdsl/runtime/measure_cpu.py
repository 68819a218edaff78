"""What a CPU's memory and units are, measured in seconds of work (``tcdsl calibrate``).

Each number is the time of one loop in C over what it does, the best of some runs: what disturbs a
run makes it slower.  Memory is read and copied by all threads, caches by one, and latencies are
those of a chain of loads through a random cycle.
"""

import ctypes
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import numpy as np

from tcdsl.costmodel.machine import Cpu
from tcdsl.runtime.c_compiler import c_flags, compile_shared, find_compiler, without_tiles
from tcdsl.runtime.launch import load_library

RUNS = 5
LINE_BYTES = 64
MOST_BYTES = 256 << 20
_TEXT = r"""
#include <stdint.h>
#include <math.h>
#ifdef _OPENMP
#include <omp.h>
#endif
#define CHAINS 10
#define LANES 16

uint64_t read_all(const uint64_t *restrict x, int64_t n, int threads) {
  uint64_t sum = 0;
#pragma omp parallel for simd num_threads(threads) reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}
// Four sums: that they wait for one another must not be what takes the time.
uint64_t read_cache(const uint64_t *restrict x, int64_t n, int64_t times) {
  uint64_t a = 0, b = 0, c = 0, d = 0;
  const int64_t m = n / 4;
  for (int64_t t = 0; t < times; ++t) {
    for (int64_t i = 0; i < m; ++i) {
      a += x[i];
      b += x[i + m];
      c += x[i + 2 * m];
      d += x[i + 3 * m];
    }
    __asm__ volatile("" ::: "memory");
  }
  return a + b + c + d;
}
void copy_all(uint64_t *restrict y, const uint64_t *restrict x, int64_t n, int threads) {
#pragma omp parallel for simd num_threads(threads)
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] + 1;
}
uint64_t chase(const uint64_t *x, int64_t steps) {
  uint64_t i = 0;
  for (int64_t k = 0; k < steps; ++k) i = x[i];
  return i;
}
int64_t fork_join(int64_t steps, int threads) {
  int64_t count = 0;
  for (int64_t k = 0; k < steps; ++k) {
#pragma omp parallel num_threads(threads)
    __asm__ volatile("" ::: "memory");
    ++count;
  }
  return count;
}
float fma_chain(int64_t steps, float a, float b) {
  for (int64_t k = 0; k < steps; ++k) a = fmaf(a, b, b);
  return a;
}
#define FMA(NAME, TYPE, CALL)                                        \
  TYPE NAME(int64_t steps, TYPE b) {                                 \
    TYPE a[CHAINS][LANES], sum = 0;                                  \
    for (int c = 0; c < CHAINS; ++c)                                 \
      for (int l = 0; l < LANES; ++l) a[c][l] = (TYPE)(c + l);       \
    for (int64_t k = 0; k < steps; ++k) {                            \
      _Pragma("GCC unroll 16") for (int c = 0; c < CHAINS; ++c)      \
      _Pragma("omp simd") for (int l = 0; l < LANES; ++l)            \
          a[c][l] = CALL(a[c][l], b, b);                             \
    }                                                                \
    for (int c = 0; c < CHAINS; ++c)                                 \
      for (int l = 0; l < LANES; ++l) sum += a[c][l];                \
    return sum;                                                      \
  }
FMA(fma_f32, float, fmaf)
FMA(fma_f64, double, fma)
"""
_CHAINS, _LANES = 10, 16
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def cache_sizes(caches: Path = CACHES) -> dict[str, float]:
    """Return the sizes of the caches, as far as the system tells them."""
    found = {}
    for index in sorted(caches.glob("index*")):
        try:
            level, kind, size = ((index / n).read_text().strip() for n in ("level", "type", "size"))
        except OSError:
            continue
        if kind != "Instruction" and level in "123" and size[:-1].isdigit() and size[-1] in _UNITS:
            found[f"l{level}_bytes"] = float(int(size[:-1]) * _UNITS[size[-1]])
    return found


def cpu_numbers(cpu: Cpu) -> dict[str, float]:
    """Return the numbers of *cpu* that can be measured here.

    :raises CompileError: if there is no C compiler.
    """
    sizes = cache_sizes()
    cpu = cpu.refined(sizes)
    return {**sizes, **_Loops(cpu).numbers()}


class _Loops:
    """The loops, compiled, for *cpu*."""

    def __init__(self, cpu: Cpu) -> None:
        self.cpu = cpu
        flags = without_tiles(c_flags(find_compiler()))
        self.library = load_library(compile_shared(_TEXT, flags))
        self.library.fma_chain.argtypes = [ctypes.c_int64, ctypes.c_float, ctypes.c_float]
        self.library.fma_f32.argtypes = [ctypes.c_int64, ctypes.c_float]
        self.library.fma_f64.argtypes = [ctypes.c_int64, ctypes.c_double]

    def numbers(self) -> dict[str, float]:
        cpu, size = self.cpu, self.memory.nbytes
        in_l1, in_l2 = cpu.l1_bytes // 2, cpu.l2_bytes // 2
        in_l3 = min(cpu.l3_bytes // 2, 8 * cpu.l2_bytes)
        return {
            "dram_read_bytes_per_s": size
            / self._best_s("read_all", self._at(), _words(size), cpu.threads),
            "dram_copy_bytes_per_s": size / self._copy_s(size // 2),
            "l1_bytes_per_s": in_l1 / self._cache_s(in_l1, 2000),
            "l2_bytes_per_s": in_l2 / self._cache_s(in_l2, 200),
            "l3_bytes_per_s": in_l3 / self._cache_s(in_l3, 20),
            "dram_latency_s": self._chase_s(size),
            "l2_latency_s": self._chase_s(in_l2),
            "fork_s": self._best_s("fork_join", 1000, cpu.threads) / 1000,
            "fma_latency_s": self._best_s("fma_chain", 1 << 18, 0.5, 0.5) / (1 << 18),
            **{f"{name}_per_s": self._fma_rate(name) for name in ("fma_f32", "fma_f64")},
        }

    @cached_property
    def memory(self) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
        """An array that no cache holds, as far as the machine's memory allows."""
        return np.zeros(max(64 << 20, min(MOST_BYTES, 4 * self.cpu.l3_bytes)) // 8, np.uint64) + 1

    def _best_s(self, name: str, *values: object) -> float:
        function = getattr(self.library, name)
        return min(_seconds(lambda: function(*values)) for _ in range(RUNS))

    def _cache_s(self, size_bytes: int, times: int) -> float:
        count = ctypes.c_int64(times)
        return self._best_s("read_cache", self._at(), _words(size_bytes), count) / times

    def _copy_s(self, size_bytes: int) -> float:
        ends = self._at(size_bytes), self._at(), _words(size_bytes)
        return self._best_s("copy_all", *ends, self.cpu.threads)

    def _chase_s(self, size_bytes: int) -> float:
        """Return the seconds of a load in a chain of lines of *size_bytes*, at random."""
        nodes, step = size_bytes // LINE_BYTES, LINE_BYTES // 8
        order = np.random.default_rng(0).permutation(nodes).astype(np.uint64) * step
        self.memory[order] = np.roll(order, -1)
        steps = min(nodes, 1 << 20)
        self.library.chase(self._at(), ctypes.c_int64(steps))
        return self._best_s("chase", self._at(), ctypes.c_int64(steps)) / steps

    def _fma_rate(self, name: str) -> float:
        steps = 1 << 18
        return steps * _CHAINS * _LANES / self._best_s(name, steps, 1)

    def _at(self, offset: int = 0) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.memory.ctypes.data + offset)


def _words(size_bytes: int) -> ctypes.c_int64:
    return ctypes.c_int64(size_bytes // 8)


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
