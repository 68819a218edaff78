"""What the GPU reads in a second and does nothing else: the ceiling of reductions.

A thread loads 16 bytes at a time, eight times before it uses the first, and keeps a bitwise sum,
which it stores if it is one number of four billion: no load can be left out.  How many blocks and
threads read fastest depends on the chip, so several choices are tried.
"""

import ctypes
from importlib import import_module

from tcdsl.library.peer_calls import Call
from tcdsl.runtime.cuda import libcuda
from tcdsl.runtime.cuda.device import primary_context
from tcdsl.runtime.nvrtc import compile_cuda, find_cuda_compiler
from tcdsl.runtime.timing import compare_cuda

_SIZE_BYTES = 1 << 30
_VECTOR_BYTES = 16
_SHAPES = ((2, 1024), (4, 512), (8, 256), (16, 256), (32, 256))  # blocks an SM, threads a block
_TEXT = """
extern "C" __global__ void read_all(const uint4 *x, unsigned long long n, unsigned *out) {
    const unsigned long long step = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long i = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned sum = 0;
    for (; i + 7 * step < n; i += 8 * step) {
        uint4 v[8];
#pragma unroll
        for (int k = 0; k < 8; ++k) v[k] = __ldg(x + i + k * step);
#pragma unroll
        for (int k = 0; k < 8; ++k) sum ^= v[k].x ^ v[k].y ^ v[k].z ^ v[k].w;
    }
    for (; i < n; i += step) {
        const uint4 v = __ldg(x + i);
        sum ^= v.x ^ v.y ^ v.z ^ v.w;
    }
    if (sum == 0x9e3779b9u) *out = sum;
}
"""


def read_rate_gbs(size_bytes: int = _SIZE_BYTES, min_time_s: float = 0.05) -> float:
    """Return what the fastest choice reads of *size_bytes* in a second, in GB/s."""
    torch = import_module("torch")
    numbers = torch.randint(-(2**31), 2**31 - 1, (size_bytes // 4,), dtype=torch.int32,
                            device="cuda")  # fmt: skip
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    function = _compiled()
    sms = primary_context().gpu.multiprocessors
    calls = {
        f"{blocks}x{threads}": read_call(function, numbers, out, blocks * sms, threads)
        for blocks, threads in _SHAPES
    }
    timings = compare_cuda(calls, min_time_s).timings
    return size_bytes / min(timing.median_us for timing in timings.values()) * 1e-3


def read_call(function: int, numbers: object, out: object, blocks: int, threads: int) -> Call:
    """Return a launch of the kernel *function* on the tensors *numbers* and *out*."""
    count = numbers.numel() * 4 // _VECTOR_BYTES  # type: ignore[attr-defined]
    values = [
        ctypes.c_uint64(numbers.data_ptr()),  # type: ignore[attr-defined]
        ctypes.c_uint64(count),
        ctypes.c_uint64(out.data_ptr()),  # type: ignore[attr-defined]
    ]
    pointers = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))

    def call() -> tuple[object, ...]:
        with primary_context().current():
            libcuda.call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, 0, None,
                         pointers, None)  # fmt: skip
        return values, numbers, out  # alive as long as the call

    return call


def _compiled() -> int:
    context = primary_context()
    compiler = find_cuda_compiler(libcuda.driver_version()[0])
    code = compile_cuda(_TEXT, context.gpu.arch, compiler=compiler)
    with context.current():
        return libcuda.function_of(libcuda.load_module(code), "read_all")
