"""Asynchronous copies: until the wait nobody touches the destination, nor changes the source."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from tcdsl.codegen.cuda.source import CudaSource
from tcdsl.emulator import EmulatedProgram, emulated_programs
from tcdsl.emulator.sanitized import run_sanitized
from tcdsl.errors import EmulationError

SEEDS = range(1, 7)
F32 = np.float32
AT = "threadIdx.x"

COPY = f"__shared__ TC_VARIABLE(float, s, [64], 4); tc_copy_async<1>(s + {AT}, x + {AT});"
# A body, and what is found: nothing, where the result is x from its end.
BODIES = [
    (f"{COPY} tc_copy_wait(); __syncthreads(); y[{AT}] = s[63 - {AT}];", None),
    (f"{COPY} __syncthreads(); tc_copy_wait(); __syncthreads(); y[{AT}] = s[63 - {AT}];", None),
    # Two in flight; then the same destination once more.
    (
        "__shared__ TC_VARIABLE(float, s, [128], 4);\n"
        f"for (int k = 0; k < 2; k++) {{ tc_copy_async<1>(s + {AT}, x + {AT});\n"
        f"tc_copy_async<1>(s + 64 + {AT}, x + {AT}); tc_copy_wait(); __syncthreads();\n"
        f"y[{AT}] = s[127 - {AT}] * (s[63 - {AT}] == s[127 - {AT}]); __syncthreads(); }}",
        None,
    ),
    # Into dynamic shared memory; a wait with nothing to wait for.
    (
        f"extern __shared__ TC_DYNAMIC(float, d, 4); "
        f"tc_copy_wait(); tc_copy_async<1>(d + {AT}, x + {AT});\n"
        f"tc_copy_wait(); __syncthreads(); y[{AT}] = d[63 - {AT}];",
        None,
    ),
    (f"{COPY} y[{AT}] = s[{AT}]; tc_copy_wait();",
     r"data race at s\[.*: this read and the asynchronous copy by thread .* no tc_copy_wait"),
    (f"{COPY} s[{AT}] = 1; tc_copy_wait();", "data race at s.*this write and the asynchronous"),
    (f"{COPY} tc_copy_async<1>(s + {AT}, x); tc_copy_wait();",
     "data race at s.*this write and the asynchronous copy"),
    # Waiting is each thread's own affair, and no barrier.
    (f"{COPY} tc_copy_wait(); y[{AT}] = s[63 - {AT}];",
     "data race at s.*(no barrier lies|no tc_copy_wait)|read of memory that was never written"),
    (f"{COPY} __syncthreads(); y[{AT}] = s[63 - {AT}]; tc_copy_wait();",
     "data race at s.*no tc_copy_wait"),
    (f"{COPY} if ({AT} < 32) tc_copy_wait(); __syncthreads(); y[{AT}] = s[63 - {AT}];"
     "tc_copy_wait();", "data race at s.*no tc_copy_wait"),
    (f"{COPY} __syncthreads(); tc_copy_wait(); y[{AT}] = s[63 - {AT}];",
     "data race at s.*(no barrier lies|no tc_copy_wait)"),
    (COPY, r"data race at s\[.*: the asynchronous copy to it and the end of its thread are not"),
    # Into what others still read.
    (f"__shared__ TC_VARIABLE(float, s, [64], 4); "
     f"s[{AT}] = x[{AT}]; __syncthreads(); y[{AT}] = s[63 - {AT}];\n"
     f"tc_copy_async<1>(s + {AT}, x + {AT}); tc_copy_wait();",
     "data race at s.*(no barrier lies|no tc_copy_wait)"),
    # The source changes on the way.
    (f"__shared__ TC_VARIABLE(float, s, [64], 4); "
     f"y[{AT}] = 1; tc_copy_async<1>(s + {AT}, y + {AT});\n"
     f"y[{AT}] = 2; tc_copy_wait();", "data race at y.*it was written while an asynchronous"),
    (f"__shared__ TC_VARIABLE(float, s, [64], 4); "
     f"y[{AT}] = 1; tc_copy_async<1>(s + {AT}, y + {AT});\n"
     f"__syncthreads(); y[63 - {AT}] = 1; tc_copy_wait();", "data race at y.*no barrier lies"),
    # Addresses.
    (f"__shared__ TC_VARIABLE(float, s, [64], 4); "
     f"tc_copy_async<1>(s + {AT}, x + 64); tc_copy_wait();",
     r"read of 4 bytes out of bounds: x\[64\]"),
    (f"__shared__ TC_VARIABLE(float, s, [64], 4); "
     f"tc_copy_async<1>(s + {AT} + 32, x + {AT}); tc_copy_wait();",
     r"write of 4 bytes out of bounds: s\[|data race"),
    (f"__shared__ TC_VARIABLE(float, s, [64], 4); "
     f"tc_copy_async<4>(s + {AT}, x + 4 * ({AT} / 4)); tc_copy_wait();",
     "misaligned (read|write) of 16 bytes: "),
    (f"tc_copy_async<1>(y + {AT}, x + {AT}); tc_copy_wait();",
     "an asynchronous copy to what is not shared memory of this block"),
    (f"{COPY} tc_copy_wait(); __shared__ TC_VARIABLE(float, t, [64], 4); "
     f"tc_copy_async<1>(t + {AT}, s + {AT});",
     "an asynchronous copy from what is not global memory"),
]  # fmt: skip


@pytest.fixture(scope="module")
def programs(cuda_source: Callable[..., CudaSource]) -> list[EmulatedProgram]:
    """Return the kernels of BODIES, compiled together."""
    head = 'extern "C" __global__ void tcdsl_k(const float *x, float *y)'
    texts = [f"{head} {{\n{body}\n}}" for body, _ in BODIES]
    return emulated_programs([cuda_source(text, 1, 64, shared_bytes=256) for text in texts])


@pytest.mark.parametrize("number", range(len(BODIES)))
def test_a_kernel(programs: list[EmulatedProgram], number: int) -> None:
    expected = BODIES[number][1]
    x = np.arange(1, 65, dtype=F32)
    for seed in SEEDS:
        y = np.zeros(64, F32)
        if expected is None:
            programs[number].run({"x": x, "y": y}, seed=seed)
            assert (y == x[::-1]).all()
            continue
        with pytest.raises(EmulationError) as caught:
            programs[number].run({"x": x, "y": y}, seed=seed)
        what = caught.value.message.partition("): ")[2]
        assert re.match(expected, what), caught.value.message


@pytest.mark.slow
def test_under_the_address_sanitizer(programs: list[EmulatedProgram]) -> None:
    text = programs[0].source.text
    x, y = np.arange(64, dtype=F32), np.zeros(64, F32)
    run_sanitized(programs[0].source, {"x": x, "y": y})
    assert (y == x[::-1]).all() and "tc_copy_async" in text
