"""The compiler's address sanitizer and the emulator agree on what is out of bounds."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl.emulator import EmulatedProgram
from tcdsl.emulator.cxx import find_cxx_compiler, why_no_cxx_compiler
from tcdsl.emulator.sanitized import run_sanitized
from tcdsl.errors import EmulationError
from tcdsl.runtime.c_compiler import build

Emulate = Callable[..., EmulatedProgram]

pytestmark = pytest.mark.slow  # the sanitizer takes seconds to compile the runtime


@pytest.fixture(scope="module", autouse=True)
def sanitizer() -> None:
    """Skip where the compiler has no address sanitizer, which is a package of its own."""
    if reason := why_no_cxx_compiler():
        pytest.skip(reason)
    words = (*find_cxx_compiler().command, "-fsanitize=address", "probe.cpp", "-o", "probe")
    if isinstance(build({"probe.cpp": b"int main() {}"}, [words], "probe"), str):
        pytest.skip("the C++ compiler has no address sanitizer")


GATHER = """extern "C" __global__ void k(const float *x, const int *i, float *t, float *y) {
  __shared__ TC_VARIABLE(float, tile, [32], 4);
  tile[threadIdx.x] = x[i[threadIdx.x]];
  t[threadIdx.x] = tile[i[32 + threadIdx.x]];
  __syncthreads();
  y[threadIdx.x] = tc_fold_x<tc_op_add_f32, 32, 1>(t[threadIdx.x]);
}"""


@pytest.fixture(scope="module")
def program(emulate: Emulate) -> EmulatedProgram:
    return emulate(GATHER, 1, 32, workspace_bytes=128, scratch={"t": 0})


def arrays() -> dict[str, Any]:
    x = np.arange(32, dtype=np.float32)
    return {"x": x, "i": np.tile(np.arange(32, dtype=np.int32), 2), "y": np.zeros(32, np.float32)}


def test_a_correct_kernel(program: EmulatedProgram) -> None:
    for run in (program.run, lambda given: run_sanitized(program.source, given)):
        given = arrays()
        run(given)
        assert (given["y"] == 496).all()


# The sanitizer guards the ends of global variables only, not their starts.
@pytest.mark.parametrize(
    ("place", "index", "report"),
    [
        (5, 32, "heap-buffer-overflow, READ of size 4"),
        (5, -1, "heap-buffer-overflow, READ of size 4"),
        (37, 32, "global-buffer-overflow, READ of size 4"),
    ],
)
def test_both_find_an_index_out_of_bounds(
    program: EmulatedProgram, place: int, index: int, report: str
) -> None:
    given = arrays()
    given["i"][place] = index
    with pytest.raises(EmulationError, match=rf"read of 4 bytes out of bounds: \w+\[{index}\]"):
        program.run(given)
    with pytest.raises(EmulationError, match=report):
        run_sanitized(program.source, given)


@pytest.mark.usefixtures("whole_accesses")
def test_both_find_a_vector_over_the_end(emulate: Emulate) -> None:
    program = emulate(
        """extern "C" __global__ void k(float *y) {
          tc_vec<float, 4> v;
          for (int l = 0; l < 4; ++l) v[l] = 1;
          tc_vstore(y + 4 * threadIdx.x, v);
        }""",
        1, 3, alignments={"y": 16},
    )  # fmt: skip
    with pytest.raises(EmulationError, match=r"write of 16 bytes out of bounds: y\[8\]"):
        program.run({"y": np.zeros(10, np.float32)})
    with pytest.raises(EmulationError, match="heap-buffer-overflow, WRITE of size 16"):
        run_sanitized(program.source, {"y": np.zeros(10, np.float32)})


def test_a_divergent_barrier_is_found_there_too(emulate: Emulate) -> None:
    text = 'extern "C" __global__ void k(float *y) { if (threadIdx.x) __syncthreads(); }'
    with pytest.raises(EmulationError, match="status 2"):
        run_sanitized(emulate(text, 1, 32).source, {"y": np.zeros(1, np.float32)})
