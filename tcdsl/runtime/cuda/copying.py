"""Arrays of any strides, copied on the device: one kernel for all libraries.

Rarely needed: an ``out=`` that is not dense, an argument whose layout is not the compiled one.
"""

from collections.abc import Sequence
from functools import lru_cache

from tcdsl.codegen.cuda.source import Launch, Parameter, ParameterKind
from tcdsl.errors import INTERNAL, TCError
from tcdsl.runtime.arrays import row_major
from tcdsl.runtime.cache import default_cache, key_of
from tcdsl.runtime.cuda import libcuda
from tcdsl.runtime.cuda.device import Context
from tcdsl.runtime.cuda.module import CudaProgram, Manifest
from tcdsl.runtime.launch import Fault
from tcdsl.runtime.nvrtc import compile_cuda, find_cuda_compiler

_RANK = 8  # of the kernel; adjacent dimensions that lie alike are merged
_THREADS, _BLOCKS = 256, 1024
_TYPES = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long"}

_TEXT = """\
struct extents {{ long long of[{rank}]; }};

extern "C" __global__ void __launch_bounds__({threads}) tc_copy(
  const {type} *source, {type} *target, long long count, extents shape, extents from, extents to)
{{
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long n = (long long)blockIdx.x * blockDim.x + threadIdx.x; n < count; n += step) {{
    long long rest = n, read = 0, write = 0;
    for (int dim = {rank} - 1; dim >= 0; dim--) {{
      const long long index = rest % shape.of[dim];
      rest /= shape.of[dim];
      read += index * from.of[dim];
      write += index * to.of[dim];
    }}
    target[write] = source[read];
  }}
}}
"""


def copy_array(
    context: Context,
    source: tuple[int, Sequence[int]],
    target: tuple[int, Sequence[int]],
    shape: Sequence[int],
    size_bytes: int,
    stream: int,
) -> None:
    """Copy elements of *size_bytes* between (address, strides in elements); *context* is current.

    No element of the target may overlap another one, or the source.
    """
    if 0 in shape:
        return
    merged, steps, target_steps = merge(shape, source[1], target[1])
    dense = row_major(merged)
    count = 1
    for extent in merged:
        count *= extent
    if tuple(steps) == dense and tuple(target_steps) == dense:
        libcuda.copy_on_device(target[0], source[0], count * size_bytes, stream)
        return
    if len(merged) > _RANK:
        what = f"a layout of {len(merged)} dimensions that do not merge"
        raise INTERNAL(where="a copy on the device", what=what, repro="the call")
    gap = _RANK - len(merged)
    integers = (
        count, *(1,) * gap, *merged, *(0,) * gap, *steps, *(0,) * gap, *target_steps,
    )  # fmt: skip
    loaded = _program(context.gpu.arch, size_bytes).loaded(context)
    loaded.launch((source[0], target[0], 0, *integers), stream)


def merge(
    shape: Sequence[int], one: Sequence[int], other: Sequence[int]
) -> tuple[list[int], list[int], list[int]]:
    """Return fewer dimensions with the same elements in the same order.

    Dimensions of extent 1 go; one whose step is that of the next one's whole extent, in both
    arrays, becomes one with it.
    """
    merged: list[tuple[int, int, int]] = []
    for extent, a, b in zip(shape, one, other, strict=True):
        if extent == 1:
            continue
        if merged:
            outer, outer_a, outer_b = merged[-1]
            if outer_a == a * extent and outer_b == b * extent:
                merged[-1] = outer * extent, a, b
                continue
        merged.append((extent, a, b))
    return [m[0] for m in merged], [m[1] for m in merged], [m[2] for m in merged]


@lru_cache(maxsize=32)
def _program(arch: str, size_bytes: int) -> CudaProgram:
    text = _TEXT.format(rank=_RANK, threads=_THREADS, type=_TYPES[size_bytes])
    compiler = find_cuda_compiler(libcuda.driver_version()[0])
    key = key_of(kind="cuda copy", text=text, arch=arch, compiler=compiler.identity)
    cache = default_cache()
    entry = cache.get(key)
    code = entry.code if entry is not None else compile_cuda(text, arch, compiler=compiler)
    if entry is None:
        cache.put(key, code, {})
    integers = tuple(
        Parameter("long long", ParameterKind.INTEGER, str(n), n) for n in range(1 + 3 * _RANK)
    )
    arrays = (
        Parameter("source", ParameterKind.ARRAY, "source"),
        Parameter("target", ParameterKind.ARRAY, "target"),
    )
    launch = Launch("tc_copy", (_BLOCKS, 1, 1), (_THREADS, 1, 1), 0, arrays + integers)
    names = tuple((p.name, -1) for p in integers)
    return CudaProgram(code, Manifest(arch, (launch,), 0, (), names, {}, {}), _no_fault)


def _no_fault(fault: Fault) -> TCError:
    return INTERNAL(where="a copy on the device", what=f"it reported {fault}", repro="the call")
