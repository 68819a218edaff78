"""Shared variables in the emulator's memory: the text they become, and how they are laid out."""

from collections.abc import Callable

import numpy as np
import pytest

from tcdsl.emulator import EmulatedProgram
from tcdsl.emulator.shared import replace_shared
from tcdsl.errors import EmulationError

Emulate = Callable[..., EmulatedProgram]


def reference(dtype: str, name: str, extents: str, alignment: str = "") -> str:
    kind = f"{name}_emu_type"
    return (
        f"static emu_tag {name}_emu_tag; typedef {dtype} {kind}{extents}; "
        f"{kind} &{name} = *({kind} *)emu_shared_variable(&{name}_emu_tag, sizeof({kind}), "
        f'{alignment or f"alignof({kind})"}, sizeof({dtype}), "{name}");'
    )


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        ("__shared__ int flag;", reference("int", "flag", "")),
        ("__shared__ float t[32 * 33];", reference("float", "t", "[32 * 33]")),
        ("__shared__ float t[2][N < 3 ? 4 : 5];", reference("float", "t", "[2][N < 3 ? 4 : 5]")),
        ("static __shared__ float t[1];", reference("float", "t", "[1]")),
        ("__shared__ unsigned char t[8];", reference("unsigned char", "t", "[8]")),
        (
            "alignas(16) __shared__ typename Op::type part[R * P];",
            reference("typename Op::type", "part", "[R * P]", "16"),
        ),
        (
            "__shared__ __align__(sizeof(T) * 4) T t[N];",
            reference("T", "t", "[N]", "sizeof(T) * 4"),
        ),
        (
            "__shared__ tc_pair<float, int> a[4], b;",
            reference("tc_pair<float, int>", "a", "[4]")
            + " "
            + reference("tc_pair<float, int>", "b", ""),
        ),
        (
            "void k() { extern __shared__ __align__(16) double all[]; }",
            "void k() { double *const all = (double *)emu_dynamic_shared(); }",
        ),
        ("extern __shared__ float all[];", "static emu_dynamic_array<float> all;"),
        ("int shared = 1; // __shared__x", "int shared = 1; // __shared__x"),
    ],
)
def test_declarations(text: str, replaced: str) -> None:
    assert replace_shared(text) == replaced


def test_declarations_for_the_address_sanitizer() -> None:
    text = replace_shared("alignas(8) __shared__ float a[4], b;", as_statics=True)
    assert text == "alignas(8) static float a[4]; alignas(8) static float b;"


def test_lines_stay_where_they_are() -> None:
    text = "a\n  __shared__ float t[3];\nb\n__shared__\n  int i;\nc"
    assert replace_shared(text).splitlines()[2] == "b"


def test_no_variable_is_better_aligned_than_it_says(emulate: Emulate) -> None:
    text = """extern "C" __global__ void k(float *y) {
      ALIGN __shared__ float tile[64];
      tile[threadIdx.x] = 1;
      __syncthreads();
      if (threadIdx.x == 0) y[0] = tc_vload<4>(tile)[0];
    }"""
    y = np.zeros(1, np.float32)
    emulate(text.replace("ALIGN", "alignas(16)"), 1, 32).run({"y": y})
    assert y == 1
    if "-fno-tree-sra" not in _flags():
        return
    with pytest.raises(EmulationError, match=r"misaligned read of 16 bytes: tile\[0\]"):
        emulate(text.replace("ALIGN", "alignas(8)"), 1, 32).run({"y": y})


def _flags() -> tuple[str, ...]:
    from tcdsl.emulator.cxx import find_cxx_compiler

    return find_cxx_compiler().flags


def test_every_instance_of_a_template_has_its_own(emulate: Emulate) -> None:
    program = emulate(
        """template <typename T> __device__ T swap(T v) {
          __shared__ T tile[32];
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
      __shared__ float tile[12288];
      tile[threadIdx.x] = 1;
      y[0] = tile[0];
    }"""
    y = np.zeros(1, np.float32)
    emulate(text, 1, 1, shared_bytes=(227 - 48) << 10).run({"y": y})
    with pytest.raises(EmulationError, match="232464 bytes of shared memory in a block"):
        emulate(text, 1, 1, shared_bytes=((227 - 48) << 10) + 16).run({"y": y})
