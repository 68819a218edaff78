"""The CUDA device library: what NVRTC makes of it, and its shared parts on the emulator."""

import ctypes
import importlib.util
import re
import shutil
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from configparser import ConfigParser
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.cuda.source import CudaSource, Launch
from tcdsl.codegen.device import c
from tcdsl.codegen.device.cuda import (
    FUNCTIONS,
    NARROW_FLOATS,
    PARTS,
    SCALAR_PARTS,
    SHARED_PARTS,
    TYPES,
    emulated_text,
    header_text,
    parts_for,
    signature,
)
from tcdsl.emulator import EmulatedProgram, compile_emulated
from tcdsl.errors import EmulationError
from tcdsl.interp.derivatives import ULPS_USUAL
from tcdsl.rewrites.scop.exponential_sums import MOST_ADDENDS
from tcdsl.runtime.nvrtc import compile_cuda, find_cuda_compiler, why_no_cuda_compiler

ROOT = Path(__file__).parents[2]
GXX = shutil.which("g++")


def _module(name: str) -> ModuleType:
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


cases = _module("cuda_cases")
clusters = _module("cluster_cases")  # imports the first
CUDA_TYPES: dict[str, str] = cases.CUDA_TYPES

needs_gxx = pytest.mark.skipif(GXX is None, reason="no C++ compiler")
needs_nvrtc = pytest.mark.skipif(
    why_no_cuda_compiler() is not None or find_cuda_compiler().is_nvcc, reason="no NVRTC"
)


# --- parts ---------------------------------------------------------------------------------
def test_scalar_functions_are_those_of_the_c_library() -> None:
    scalars = {name for name, part in FUNCTIONS.items() if part in SCALAR_PARTS}
    pairs = {name for name, part in FUNCTIONS.items() if part == "compensated"}
    assert pairs - c.FUNCTIONS.keys() == {"tc_c32", "tc_c64", "tc_op_add_c32", "tc_op_add_c64"}
    own = (scalars | pairs | {"tc_fault"}) & c.FUNCTIONS.keys()
    assert own == {n for n in c.FUNCTIONS if not n.startswith(("tc_fold_", "tc_dots_"))}
    assert scalars <= c.FUNCTIONS.keys()


def test_parts_are_exactly_what_the_functions_need() -> None:
    assert parts_for([]) == {"core", "index"}
    assert parts_for({"tc_exp_f32", "tc_fault"}) == {"core", "index", "math_f32"}
    assert parts_for({"tc_fold_x"}) == {"core", "index", "vector", "collective"}
    assert parts_for({"tc_atomic_add_i8"}) == {"core", "half", "index", "operators", "atomic"}
    assert header_text(frozenset({"half"})).startswith(header_text(frozenset()).split("\n")[0])
    with pytest.raises(KeyError):
        parts_for({"tc_nosuch_f32"})
    with pytest.raises(AssertionError, match="nosuch"):
        header_text(frozenset({"nosuch"}))


def test_the_headers_are_shipped() -> None:
    parser = ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    data = parser["options.package_data"]
    assert data["tcdsl.codegen.device.cuda"] == "*.cuh"
    found = {path.stem for path in (ROOT / "tcdsl/codegen/device/cuda").glob("*.cuh")}
    assert found == set(PARTS) - {"powers"}  # which is that of C
    assert data["tcdsl.codegen.device.c"] == "*.h" and "powers" in c.PARTS


# --- NVRTC ---------------------------------------------------------------------------------
def kernel(name: str, parameters: str, body: str) -> str:
    return f'extern "C" __global__ void {name}({parameters}) {{\n{body}\n}}\n'


def use(name: str) -> str:
    """Return a kernel that uses *name*, whatever that is."""
    part = FUNCTIONS[name]
    dtype = name.rpartition("_")[2]
    if part in SCALAR_PARTS:
        operands, result = signature(name)
        params = "".join(f", const {CUDA_TYPES[t]} *a{i}" for i, t in enumerate(operands))
        call = ", ".join(f"a{i}[threadIdx.x]" for i in range(len(operands)))
        return kernel(f"k_{name}", f"{CUDA_TYPES[result]} *out{params}", f"*out = {name}({call});")
    if part == "compensated":
        return kernel(f"k_{name}", f"{PAIRS[name[-3:]]} *p", PAIR_USES[name[:-4]](name[-3:]))
    if part == "pairs":
        of = "tc_vload<8>(p + 8)" if name.startswith("tc_v") else "p[8], p[9]"
        body = f"p[0] = {name}({of});"
    elif part in ("atomic", "atomic8"):
        body = f"{name}(p, p[1]);"
    elif name.startswith("tc_op_"):
        body = f"p[0] = {name}::combine({name}::identity(), p[1]);"
    elif name.startswith("tc_of_"):
        dtype, body = "i64", f"p[0] = sizeof({name}::A) + sizeof({name}::B);"
    elif name.startswith("tc_better_"):
        body = f"p[0] = {name}::better(p[1], p[2]);"
    else:
        dtype, body = "i64", OTHER_USES[name]
    return kernel(f"k_{name}", f"{CUDA_TYPES[dtype]} *p", body)


PAIRS = {"c32": "tc_c32", "c64": "tc_c64", "f32": "tc_c32", "f64": "tc_c64"}
PAIR_USES = {
    "tc": lambda pair: "p[0] = p[1];",
    "tc_add": lambda pair: f"p[0] = tc_add_{pair}(p[1], p[2]);",
    "tc_plus": lambda pair: f"p[0] = tc_plus_{pair}(p[1], p[2].sum);",
    "tc_mad": lambda pair: f"p[0] = tc_mad_{pair}(p[1].sum, p[2].sum, p[3]);",
    "tc_op_add": lambda pair: (
        f"p[0] = tc_op_add_{pair}::combine(tc_op_add_{pair}::identity(), p[1]);"
    ),
    **{
        f"tc_cast_f{n}": lambda pair: f"p[0] = tc_cast_f{pair[1:]}_{pair}(p[1].sum);"
        for n in (32, 64)
    },
    **{f"tc_cast_c{n}": lambda to: f"p[0].sum = tc_cast_c{to[1:]}_{to}(p[1]);" for n in (32, 64)},
}
FOLD = "<tc_op_add_i64, 48, 3>(p[threadIdx.x]);"
CLUSTER_FOLD = "<tc_op_add_i64, 64, 1, 4>(p[threadIdx.x]);"
CLUSTER_ARGFOLD = "<tc_better_min_i64, 64, 1, 4>(p[threadIdx.x], p[0]).index;"
ARGFOLD = "<tc_better_min_i64, 48, 3>(p[threadIdx.x], p[0]).index;"
OTHER_USES = {
    "tc_signal": "tc_signal<4>((unsigned int *)p, 1);",
    "tc_await_signal": "tc_await_signal<4>((unsigned int *)p, 1);",
    "tc_fault": "tc_fault(p, 1, p[5], 7, 0);",
    "tc_prefetch": "tc_prefetch(p, 64);",
    "tc_begin_next_kernel": "tc_begin_next_kernel(); p[0] = 1;",
    "tc_await_kernels": "tc_await_kernels(); p[0] = 1;",
    "tc_changing": "p[0] = tc_changing(p[1]) + tc_changing((uint8_t)p[2]);",
    "tc_grid_barrier": "tc_grid_barrier<1, true>((unsigned int *)p, 3u);",
    "tc_last_block": "p[0] = tc_last_block((unsigned int *)p, 3);",
    "tc_floordiv": "p[0] = tc_floordiv(p[1], 3) + tc_floordiv((int)p[1], 3);",
    "tc_imin": "p[0] = tc_imin(p[1], 3);",
    "tc_imax": "p[0] = tc_imax(3, p[1]);",
    "tc_vec": "tc_vec<int64_t, 2> v; v[0] = v[1] = p[4]; p[1] = v[0];",
    "tc_vload": "p[0] = tc_vload<2>(p + 2)[1];",
    "tc_vload_once": "p[0] = tc_vload_once<2>(p + 2)[1] + tc_vload_once<1>(p + 3)[0];",
    "tc_vstore": "tc_vstore(p, tc_vload<2>(p + 2));",
    "tc_vload_some": "p[0] = tc_vload_some<2>(p + 2, p, 1, (int)p[9])[1];",
    "tc_vload_some_once": "p[0] = tc_vload_some_once<2>(p + 2, p, 1, (int)p[9])[1];",
    "tc_vload_if": "p[0] = tc_vload_if<2>(p + 2, p, (int)p[9])[1];",
    "tc_or_zero": "p[0] = tc_or_zero(tc_vload<2>(p + 2), (int)p[9])[1];",
    "tc_select": "p[0] = tc_select((int)p[9], p[1], p[2]);",
    "tc_vload_if_once": "p[0] = tc_vload_if_once<2>(p + 2, p, (int)p[9])[1];",
    "tc_window": "p[0] = tc_window<2, 1>(p + 3)[1];",
    "tc_vload_quad": "tc_vec<uint16_t, 2> w[4]; tc_vload_quad(w, (uint16_t *)p); p[0] = w[0][1];",
    "tc_vstore_twin": "tc_vec<float, 2> w = {}; tc_vstore_twin((float *)p, w, w);",
    "tc_vstore_quad": "tc_vec<uint16_t, 2> w[4] = {}; tc_vstore_quad((uint16_t *)p, w);",
    "tc_vstore_some": "tc_vstore_some(p, tc_vload<2>(p + 2), (int)p[9], 1);",
    "tc_pair": "tc_pair<int64_t, int64_t> pair = {p[0], p[1]}; p[2] = pair.index;",
    **{f"tc_fold_{way}": f"p[0] = tc_fold_{way}{FOLD}" for way in ("x", "y", "xy")},
    "tc_fold_y_first": f"p[0] = tc_fold_y_first{FOLD}",
    "tc_fold_x_apart": "p[0] = tc_fold_x_apart<tc_op_add_f32, 32, 2, 4>(p[0]);",
    **{f"tc_argfold_{way}": f"p[0] = tc_argfold_{way}{ARGFOLD}" for way in ("x", "y", "xy")},
    **{f"tc_cluster_{call}": f"tc_cluster_{call}();" for call in ("begin", "sync", "end")},
    **{f"tc_fold_{w}": f"p[0] = tc_fold_{w}{CLUSTER_FOLD}" for w in ("xc", "xyc", "yc", "c")},
    "tc_argfold_xc": f"p[0] = tc_argfold_xc{CLUSTER_ARGFOLD}",
    "tc_copy_async": "__shared__ TC_VARIABLE(int64_t, s, [64], 8); "
    "tc_copy_async<1>(s, p); p[1] = s[p[0]];",
    "tc_copy_async_some": (
        "__shared__ TC_VARIABLE(int64_t, s, [64], 16); tc_copy_async_some<2>(s, p, 0, (int)p[9]);"
        " p[1] = s[p[0]];"
    ),
    "tc_copy_async_or_zero": (
        "__shared__ TC_VARIABLE(int64_t, s, [64], 8); "
        "tc_copy_async_or_zero<1>(s, p, p[9] > 0); p[1] = s[p[0]];"
    ),
    "tc_copy_wait": "tc_copy_wait();",
    "tc_copy_end_group": "tc_copy_end_group();",
    "tc_copy_wait_but": "tc_copy_wait_but<2>();",
    "tc_swizzled": "p[0] = tc_swizzled<64>((int)p[1]);",
    "tc_in_atoms": "p[0] = tc_in_atoms<128, 64>((int)p[1]);",
    "tc_show_copies": "tc_show_copies();",
    "tc_end_products": "float sums[32] = {}; tc_end_products(sums); p[0] = (int)sums[3];",
    "tc_line_in_atoms": "p[0] = tc_line_in_atoms<128, 64, 2>((int)p[1], (int)p[2], (int)p[3]);",
    "tc_wgmma_from": (
        "__shared__ TC_VARIABLE(uint16_t, s, [8192], 2); "
        "float sums[32] = {}; uint16_t a[32] = {(uint16_t)p[1]};"
        " tc_wgmma_from<true, 64, 4, 64, 64, 1>(sums, a, s, 4096); p[0] = (int)sums[5];"
    ),
    "tc_wgmma": (
        "__shared__ TC_VARIABLE(uint16_t, s, [8192], 1024); float sums[32] = {};"
        " tc_wgmma<1, 64, 4, 64, 64, 1, 64, 64, 0>(sums, s, 0, s, 4096); p[0] = (int)sums[5];"
    ),
    "tc_wgmma_promoted": (
        "__shared__ TC_VARIABLE(uint16_t, s, [8192], 1024); float sums[32] = {};"
        " tc_wgmma_promoted<1, 64, 4, 64, 64, 1, 64, 64, 0>(sums, s, 0, s, 4096);"
        " p[0] = (int)sums[5];"
    ),
    "tc_wgmma_of": (
        "__shared__ TC_VARIABLE(uint8_t, s, [16384], 1024); int32_t sums[32] = {};"
        " tc_wgmma_of<tc_of_u8_u8, 64, 4, 128, 64, 1, 128, 64, 1>(sums, s, 0, s, 8192);"
        " p[0] = sums[5];"
    ),
    "tc_wgmma_of_promoted": (
        "__shared__ TC_VARIABLE(uint8_t, s, [16384], 1024); float sums[32] = {};"
        " tc_wgmma_of_promoted<tc_of_e4m3_e5m2, 64, 4, 128, 64, 1, 128, 64, 1>("
        "sums, s, 0, s, 8192); p[0] = (int)sums[5];"
    ),
    "tc_wgmma_f32": (
        "__shared__ TC_VARIABLE(float, s, [4096], 1024); float sums[32] = {};"
        " tc_wgmma_f32<64, 1, 32, 64, 1, 64, 32, 0>(sums, s, 0, s + 2048, 0);"
        " tc_wgmma_f32<64, 1, 32, 64, 1, 64, 32, 0, 1>(sums, s, 0, s + 2048, 0);"
        " tc_wgmma_f32<64, 1, 32, 64, 1, 64, 32, 0, 2>(sums, s, 0, s + 2048, 0);"
        " p[0] = (int)sums[5];"
    ),
    "tc_wgmma_planes": (
        "__shared__ TC_VARIABLE(float, s, [6144], 1024); float sums[32] = {};"
        " tc_wgmma_planes<64, 32, 64, 1, 32, 128, 1>(sums, s, 0, s + 2048, 0);"
        " tc_wgmma_planes<64, 32, 64, 1, 32, 128, 1, 2>(sums, s, 0, s + 2048, 0);"
        " p[0] = (int)sums[5];"
    ),
    "tc_mma_of": (
        "__shared__ TC_VARIABLE(uint8_t, s, [4096], 16); int32_t sums[16] = {};"
        " tc_mma_of<tc_of_u8_u8, 1, 4, 1, 32, 1, 32, 0>(sums, s, 0, s, 2048); p[0] = sums[5];"
    ),
    "tc_leave_products": "tc_leave_products<1>();",
    "tc_map": "p[0] = (int64_t)sizeof(tc_map);",
    "tc_begin_pipeline": (
        "__shared__ TC_VARIABLE(uint64_t, b, [8], 8); "
        "tc_begin_pipeline<2, 1>(b); tc_begin_pipeline<2, 1, 2>(b + 4);"
    ),
    "tc_end_pipeline": "tc_end_pipeline();",
    "tc_have_registers": "tc_have_registers<240, true>();",
    "tc_acquire": "__shared__ TC_VARIABLE(uint64_t, b, [4], 8); tc_acquire<2, 16>(b, (int)p[0]);",
    "tc_await": "__shared__ TC_VARIABLE(uint64_t, b, [4], 8); tc_await<2>(b, (int)p[0]);",
    "tc_release": (
        "__shared__ TC_VARIABLE(uint64_t, b, [4], 8); "
        "tc_release<2>(b, (int)p[0]); tc_release<2, 2>(b, (int)p[1]);"
    ),
    "tc_copy_box": (
        "__shared__ TC_VARIABLE(uint16_t, s, [1024], 1024); "
        "__shared__ TC_VARIABLE(uint64_t, b, [4], 8);"
        " tc_copy_box<2, 64, 16>(s, *(const tc_map *)p, b, (int)p[16], p[17], p[18]);"
    ),
    "tc_copy_pixels": (
        "__shared__ TC_VARIABLE(uint16_t, s, [1024], 1024); "
        "__shared__ TC_VARIABLE(uint64_t, b, [4], 8);"
        " tc_copy_pixels<2, 16>(s, *(const tc_map *)p, b, (int)p[16], p[17], p[18], p[19], p[20],"
        " p[21], p[22]);"
    ),
    "tc_row": (
        "__shared__ TC_VARIABLE(unsigned char, s, [9216], 16);"
        " *tc_row<uint32_t, 128, 16>(s, 1) = 5; p[0] = *tc_row<uint32_t, 128, 16>(s, 2);"
    ),
    "tc_rows_done": "tc_rows_done();",
    "tc_mma_promoted": (
        "__shared__ TC_VARIABLE(uint16_t, s, [1024], 16); float sums[16] = {};"
        " tc_mma_promoted<1, 1, 4, 1, 16, 1, 32, 0>(sums, s, 0, s, 256); p[0] = (int)sums[5];"
    ),
    "tc_mma": (
        "__shared__ TC_VARIABLE(uint16_t, s, [1024], 16); float sums[16] = {};"
        " tc_mma<1, 1, 4, 1, 16, 1, 32, 0>(sums, s, 0, s, 256); p[0] = (int)sums[5];"
    ),
}


@pytest.mark.slow_but(
    "cluster-sm_80", "ticket-sm_80", "changing-sm_80", "index-sm_80", "pairs-sm_80", "pairs-sm_90"
)
@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("part", PARTS)
def test_a_part_defines_its_functions(part: str, arch: str) -> None:
    names = [name for name in FUNCTIONS if FUNCTIONS[name] == part]
    assert names
    if part == "cluster" and arch < "sm_90":
        pytest.skip("it has no clusters")
    chosen = parts_for(names)
    if part in ("collective", "cluster"):
        chosen |= {"operators"}  # of which a kernel names those that it passes
    if part in ("wgmma", "wgmma_f32", "wgmma_planes") and arch == "sm_90":
        arch = "sm_90a"
    assert compile_cuda(header_text(chosen) + "".join(map(use, names)), arch)


@needs_nvrtc
def test_an_older_gpu_gets_integer_code_for_what_it_lacks() -> None:
    names = ["tc_f32_to_bf16", "tc_min_f32", "tc_max_f32"]
    text = header_text(parts_for(names)) + "".join(map(use, names))
    assert b".NaN" not in compile_cuda(text, "sm_75", ptx=True)


def ptx(body: str, names: set[str], parameters: str = "float *p") -> str:
    text = header_text(parts_for(names)) + kernel("k", parameters, body)
    return compile_cuda(text, "sm_80", ptx=True).decode()


@needs_nvrtc
def test_fast_arithmetic_has_exponentials_of_its_own() -> None:
    names = ["tc_exp_nonpositive_f32", "tc_exp_addend_f32"]
    text = header_text(parts_for(names)) + "".join(map(use, names))
    exact, fast = (compile_cuda(text, "sm_90", ptx=True, fast_math=f) for f in (False, True))
    assert exact.count(b"mul.rm.f32") == exact.count(b"fma.rn.sat.f32") == 1
    assert b"mul.rm" not in fast and b".sat" not in fast and fast.count(b"ex2.approx.ftz") == 2


@needs_nvrtc
@pytest.mark.parametrize(
    "dtype, lanes, load, store",
    [
        ("float", 4, "v4.f32", "v4.f32"),
        ("float", 2, "v2.f32", "v2.f32"),
        ("double", 2, "v2.f64", "v2.f64"),
        ("int64_t", 2, "v2.u64", "v2.u64"),
        ("uint16_t", 8, "v4.u32", "v4.u32"),
        ("uint16_t", 4, "v4.u16", "v4.u16"),
        ("uint8_t", 16, "v4.u32", "v4.u32"),
        ("int8_t", 4, "v4.u8", "v4.u8"),
        ("uint8_t", 2, "v2.u8", "v2.u8"),
    ],
)
def test_vectors_move_by_one_instruction(dtype: str, lanes: int, load: str, store: str) -> None:
    text = ptx(
        f"const int i = threadIdx.x * {lanes};\n"
        f"tc_vec<{dtype}, {lanes}> v = tc_vload<{lanes}>(x + i);\n"
        f"for (int l = 0; l < {lanes}; l++) v[l] = v[l] + ({dtype})1;\n"
        "tc_vstore(y + i, v);",
        {"tc_vload"},
        f"const {dtype} *__restrict__ x, {dtype} *y",
    )
    assert re.findall(r"ld\.global\S*", text) == [f"ld.global.nc.{load}"]
    assert re.findall(r"st\.global\S*", text) == [f"st.global.{store}"]
    assert ".local" not in text


@needs_nvrtc
@pytest.mark.parametrize(
    "call, shuffles, barriers",
    [
        ("tc_fold_x<tc_op_add_f32, 32, 4>", 5, 0),
        ("tc_fold_x<tc_op_add_f32, 8, 5>", 3, 0),
        ("tc_fold_x<tc_op_add_f32, 1, 64>", 0, 0),
        ("tc_fold_x<tc_op_add_f32, 256, 1>", 5, 2),
        ("tc_fold_x<tc_op_add_f32, 256, 1, 0>", 5, 1),
        ("tc_fold_x<tc_op_add_f32, 1024, 1>", 10, 2),
        ("tc_fold_x<tc_op_add_f32, 48, 3>", 5, 2),
        ("tc_fold_xy<tc_op_add_f32, 4, 8>", 5, 0),
        ("tc_fold_xy<tc_op_add_f32, 32, 8>", 5, 2),
        ("tc_fold_y<tc_op_add_f32, 128, 1>", 0, 0),
        ("tc_fold_y<tc_op_add_f32, 4, 8>", 3, 0),
        ("tc_fold_y<tc_op_add_f32, 4, 64>", 3, 2),
        ("tc_fold_y<tc_op_add_f32, 32, 8>", 0, 2),
        ("tc_fold_y<tc_op_add_f32, 32, 32>", 0, 3),
    ],
)
def test_folds_wait_no_more_than_they_must(call: str, shuffles: int, barriers: int) -> None:
    text = ptx(f"p[threadIdx.x] = {call}(p[threadIdx.x]);", {"tc_fold_x", "tc_op_add_f32"})
    assert (text.count("shfl.sync"), text.count("bar.sync")) == (shuffles, barriers)


@needs_nvrtc
def test_a_fold_over_a_cluster_puts_and_waits_no_more_than_it_must() -> None:
    names = {"tc_fold_xc", "tc_op_add_f32", "tc_op_max_u16"}
    body = (
        "tc_vec<float, 4> v = tc_vload<4>(p + 4 * threadIdx.x);\n"
        "tc_vstore(p + 4 * threadIdx.x, tc_fold_xc<tc_op_add_f32, 64, 1, 8>(v));"
    )
    text = header_text(parts_for(names)) + kernel("k", "float *p", body)
    made = compile_cuda(text, "sm_90", ptx=True).decode()
    assert made.count("barrier.cluster.arrive") == made.count("barrier.cluster.wait") == 2
    assert made.count("st.shared::cluster.b64") == 2 and "bar.sync" not in made
    assert made.count("shfl.sync") == 4 * (5 + 4)  # of 32 lanes, then of 16 slots


@needs_nvrtc
@pytest.mark.parametrize(
    ("way", "x", "y"), [("xc", 64, 1), ("xyc", 8, 16), ("yc", 8, 16), ("c", 8, 16)]
)
def test_numbered_folds_over_a_cluster_wait_for_their_bytes(way: str, x: int, y: int) -> None:
    calls = [
        f"p[threadIdx.x] = tc_fold_{way}<tc_op_add_f32, {x}, {y}, 4, {site}>(p[threadIdx.x]);"
        for site in range(2)
    ]
    body = "\n".join(("tc_cluster_begin<2>();", *calls, "tc_cluster_end<2>();"))
    text = header_text(parts_for({f"tc_fold_{way}", "tc_op_add_f32"})) + kernel(
        "k", "float *p", body
    )
    made = compile_cuda(text, "sm_90", ptx=True).decode()
    # Of the cluster's barrier only that all have started.
    assert made.count("barrier.cluster.arrive") == made.count("barrier.cluster.wait") == 1
    for what in ("mbarrier.init", "expect_tx.", "try_wait.parity.acquire.cluster"):
        assert made.count(what) == 2
    assert made.count("st.async.") == 2


@needs_nvrtc
def test_a_fold_of_columns_over_a_cluster_has_no_barrier_after_the_blocks_own() -> None:
    names = {"tc_fold_yc", "tc_op_add_f32"}
    text = header_text(parts_for(names)) + kernel(
        "k", "float *p", "p[threadIdx.x] = tc_fold_yc<tc_op_add_f32, 2, 112, 4>(p[threadIdx.x]);"
    )
    made = compile_cuda(text, "sm_90", ptx=True).decode()
    assert made.count("barrier.cluster.arrive") == made.count("barrier.cluster.wait") == 2
    assert made.count("bar.sync") == 1 and made.count("shfl.sync") == 4


@needs_nvrtc
def test_an_older_gpu_copies_at_once() -> None:
    names = {"tc_copy_async", "tc_copy_wait"}
    shared = "__shared__ TC_VARIABLE(float, s, [64], 4);"
    body = f"{shared} tc_copy_async<1>(s, p); tc_copy_wait(); p[1] = s[0];"
    text = header_text(parts_for(names)) + kernel("k", "float *p", body)
    assert b"cp.async" not in compile_cuda(text, "sm_75", ptx=True)
    newer = compile_cuda(text, "sm_80", ptx=True)
    assert b"cp.async.ca.shared.global" in newer and b"cp.async.wait_all" in newer


@needs_nvrtc
def test_a_vector_of_folds_waits_once() -> None:
    body = (
        "tc_vec<float, 4> v = tc_vload<4>(p + 4 * threadIdx.x);\n"
        "tc_vstore(p + 4 * threadIdx.x, tc_fold_y<tc_op_add_f32, 32, 8>(v));"
    )
    text = ptx(body, {"tc_fold_y", "tc_op_add_f32"})
    assert text.count("bar.sync") == 2
    assert set(re.findall(r"[ls][dt]\.shared\S*", text)) == {"ld.shared.v4.f32", "st.shared.v4.f32"}


@needs_nvrtc
@pytest.mark.parametrize(
    "body, instruction",
    [
        ("p[0] = tc_min_f32(p[1], p[2]);", "min.NaN.f32"),
        ("p[0] = tc_max_f32(p[1], p[2]);", "max.NaN.f32"),
        ("p[0] = tc_mad_f32(p[1], p[2], p[3]);", "fma.rn.f32"),
        ("p[0] = tc_rsqrt_f32(p[1]);", "rsqrt.approx.f32"),
        ("tc_atomic_add_f32(p, p[1]);", "atom.global.add.f32"),
        ("tc_atomic_add_i32((int32_t *)p, 3);", "atom.global.add.u32"),
        ("tc_atomic_max_u64((uint64_t *)p, 3);", "atom.global.max.u64"),
        ("((uint16_t *)p)[0] = tc_cast_f32_bf16(p[1]);", "cvt.rn.bf16.f32"),
        ("((uint16_t *)p)[0] = tc_cast_f32_f16(p[1]);", "cvt.rn.f16.f32"),
        ("p[0] = tc_bf16_to_f32(((uint16_t *)p)[3]);", "mov.b32"),
        ("p[0] = tc_erf_f32(p[1]);", "ex2.approx.ftz.f32"),
        ("p[0] = tc_sigmoid_f32(p[1]);", "rcp.approx.ftz.f32"),
    ],
)
def test_one_instruction_where_there_is_one(body: str, instruction: str) -> None:
    names = set(re.findall(r"tc_\w+", body))
    assert re.search(instruction.replace(".", r"\."), ptx(body, names))


@needs_nvrtc
def test_nothing_is_contracted_but_what_asks_for_it() -> None:
    text = ptx("p[0] = p[1] * p[2] + p[3];", set())
    assert "fma" not in text


# --- C++, as the emulator has it -----------------------------------------------------------
@pytest.mark.slow
@needs_gxx
def test_the_c_library_is_a_c_plus_plus_library_too(tmp_path: Path) -> None:
    assert GXX is not None
    loops = [
        f"{CUDA_TYPES[signature(n)[1]]} f_{n}("
        + ", ".join(f"{CUDA_TYPES[t]} a{i}" for i, t in enumerate(signature(n)[0]))
        + f") {{ return {n}({', '.join(f'a{i}' for i in range(len(signature(n)[0])))}); }}\n"
        for n, part in FUNCTIONS.items()
        if part in SCALAR_PARTS
    ]
    path = tmp_path / "device.cpp"
    path.write_text(c.header_text() + "".join(loops))
    flags = ["-std=c++17", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-O1"]
    done = subprocess.run(
        [GXX, *flags, str(path), "-o", str(tmp_path / "device.so"), "-Wl,--no-undefined", "-lm"],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_emulated_text_has_the_same_parts() -> None:
    text = emulated_text(parts_for({"tc_fold_x", "tc_exp_f32"}))
    assert "tc_exp_f32" in text and "tc_fold_x" in text and "tc_atomic_add_f32" not in text
    counts = Counter(re.findall(r'part "(\w+)"', emulated_text()))
    assert {*SHARED_PARTS, *SCALAR_PARTS} <= set(counts)


# --- erf, exp: the header's own text, with the instructions of a GPU as functions ------------
INSTRUCTIONS = r"""
#include <cmath>
#include <cstdint>
#include <cstring>
#define TC_FN static inline
#define tc_mad_f32 fmaf
static int ulps_off; /* how wrong ex2 is */
static float ptx_ex2_approx_ftz_f32(float x) {
  const float power = (float)std::exp2(std::fabs(x) < 0x1p-126f ? 0.0 : (double)x);
  if (power < 0x1p-126f) return 0.0f;
  uint32_t bits;
  std::memcpy(&bits, &power, 4);
  bits += ulps_off;
  float wrong;
  std::memcpy(&wrong, &bits, 4);
  return wrong;
}
static float tc_min_f32(float a, float b) { return a < b || a != a ? a : b; }
static float ptx_rcp_approx_ftz_f32(float x) { return 1.0f / x; }
static float ptx_mul_rm_f32(float a, float b) {
  const double exact = (double)a * b;
  const float nearest = (float)exact;
  return nearest > exact ? std::nextafter(nearest, -INFINITY) : nearest;
}
static float ptx_fma_rn_sat_f32(float a, float b, float c) {
  const float sum = fmaf(a, b, c);
  return sum > 0 ? std::fmin(sum, 1.0f) : 0.0f; /* of NaN, too */
}
static float ptx_min_NaN_xorsign_abs_f32(float a, float b) {
  const float least = tc_min_f32(std::fabs(a), std::fabs(b));
  return std::signbit(a) == std::signbit(b) ? least : -least;
}
"""
LOOPS = r"""
static float number(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
extern "C" float erf_of(float x) { return tc_erf_f32(x); }
extern "C" float exp_of(float x) { return tc_exp_nonpositive_f32(x); }
extern "C" float addend_of(float x) { return tc_exp_addend_f32(x); }
/* Of every step-th number from the bits *first* to *last*: the greatest error in units in the last
 * place if ex2 is wrong by up to *most* units, the greatest value, how many are not odd. */
extern "C" void worst_erf(uint32_t first, uint32_t last, uint32_t step, int most, double *out) {
  for (uint64_t bits = first; bits <= last; bits += step) {
    const float x = number((uint32_t)bits);
    const double right = std::erf((double)x);
    const int exponent = right > 0 ? std::ilogb(right) : -126;
    const double unit = std::ldexp(1.0, (exponent < -126 ? -126 : exponent) - 23);
    for (ulps_off = -most; ulps_off <= most; ulps_off++) {
      const float y = tc_erf_f32(x);
      out[0] = std::fmax(out[0], std::fabs(y - right) / unit);
      out[1] = std::fmax(out[1], y);
      out[2] += tc_erf_f32(-x) != -y;
    }
  }
  ulps_off = 0;
}
/* The same of exp, for the negatives of such numbers: the greatest error, in 2^-24 of the value and
 * what a subnormal number may be wrong by, and the greatest value.  Of an addend the error is in
 * what one may be off by: 5 + 1.22 |x| units, and all of a subnormal number. */
extern "C" void worst_exp(
    uint32_t first, uint32_t last, uint32_t step, int most, int is_addend, double *out) {
  for (uint64_t bits = first; bits <= last; bits += step) {
    const float x = -number((uint32_t)bits);
    const double right = std::exp((double)x);
    const double unit = is_addend ? right * (5 - 1.22 * x) * 0x1p-24 + 0x1p-126
                                  : right * 0x1p-24 + 0x1p-149;
    for (ulps_off = -most; ulps_off <= most; ulps_off++) {
      const float y = is_addend ? tc_exp_addend_f32(x) : tc_exp_nonpositive_f32(x);
      out[0] = std::fmax(out[0], std::fabs(y - right) / unit);
      out[1] = std::fmax(out[1], y);
    }
  }
  ulps_off = 0;
}
"""
INFINITY_BITS, ONE_BITS = 0x7F800000, 0x3F800000


def called(asm: re.Match[str]) -> str:
    """Return an instruction in PTX as a call."""
    instruction, result, operands = asm.groups()
    values = ", ".join(re.findall(r'"f"\((\w+)\)', operands))
    return f"{result} = ptx_{instruction.replace('.', '_')}({values});"


@pytest.fixture(scope="module", params=[800, 900])
def math(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ctypes.CDLL:  # fmt: skip
    """Return the CUDA library's erf and exp for an architecture, compiled for this machine."""
    assert GXX is not None
    text = (ROOT / "tcdsl/codegen/device/cuda/math_f32.cuh").read_text(encoding="utf-8")
    text = re.sub(r"(?m)^TC_MATH_1.*$", "", text)  # CUDA's own
    text = re.sub(r'asm\("([\w.]+) [^"]*" : "=f"\((\w+)\) : ([^;]*)\);', called, text)
    assert "asm" not in text and "tc_erf_f32" in text
    path = tmp_path_factory.mktemp("math") / "math.cpp"
    path.write_text(f"#define __CUDA_ARCH__ {request.param}\n{INSTRUCTIONS}{text}{LOOPS}")
    library = path.with_suffix(".so")
    flags = ["-std=c++17", "-O2", "-march=native", "-ffp-contract=off", "-shared", "-fPIC"]
    subprocess.run([GXX, *flags, str(path), "-o", str(library)], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.erf_of.restype = loaded.exp_of.restype = ctypes.c_float
    loaded.addend_of.restype = ctypes.c_float
    return loaded


def erf_errors(math: ctypes.CDLL, first: int, last: int, step: int, ulps_off: int) -> list[float]:
    out = (ctypes.c_double * 3)()
    math.worst_erf(first, last, step, ulps_off, out)
    return list(out)


@pytest.mark.slow_but("900")
@needs_gxx
def test_erf_is_good_to_3_units(math: ctypes.CDLL) -> None:
    error, greatest, n_not_odd = erf_errors(math, 0, INFINITY_BITS, 2003, 1)
    assert error < 3.05 and (greatest, n_not_odd) == (1, 0)
    # Closer together where it is neither a multiple of x nor 1, and as wrong as ex2 may be.
    error, greatest, _ = erf_errors(math, ONE_BITS - 2**26, ONE_BITS + 2**24, 101, 2)
    assert error < 4.6 and greatest == 1


@needs_gxx
def test_erf_at_its_limits(math: ctypes.CDLL) -> None:
    value = [math.erf_of(ctypes.c_float(x)) for x in (np.inf, -np.inf, 3.77, -1e30, 0.0, -0.0)]
    assert value == [1, -1, 1, -1, 0, 0]
    assert np.signbit(value).tolist() == [False, True, False, True, False, True]
    assert np.isnan(math.erf_of(ctypes.c_float(np.nan)))


@needs_gxx
@pytest.mark.fuzz
@pytest.mark.timeout(1800)
def test_erf_of_every_float(math: ctypes.CDLL) -> None:
    error, greatest, n_not_odd = erf_errors(math, 0, INFINITY_BITS, 1, 1)
    assert error < 3.05 and (greatest, n_not_odd) == (1, 0)


def exp_errors(
    math: ctypes.CDLL, last: float, ulps_off: int, *, is_addend: bool = False
) -> list[float]:
    out = (ctypes.c_double * 2)()
    (bits,) = struct.unpack("I", struct.pack("f", last))
    math.worst_exp(0, bits, 1009, ulps_off, is_addend, out)
    return list(out)


@needs_gxx
def test_exp_of_what_is_not_above_0(math: ctypes.CDLL) -> None:
    """As good as it says if 2^z is rounded, and beyond what is said of that within the bounds."""
    error, greatest = exp_errors(math, 110.0, 0)
    assert error < 7.5 and greatest == 1
    error, _ = exp_errors(math, 110.0, 2)
    assert error < 14.7 < 2 * ULPS_USUAL


@needs_gxx
def test_exp_that_may_be_0_where_it_is_subnormal(math: ctypes.CDLL) -> None:
    error, greatest = exp_errors(math, 110.0, 2, is_addend=True)
    assert 0.9 < error < 1 and greatest < 1 + 3e-7
    values = [math.addend_of(ctypes.c_float(x)) for x in (0.0, -np.inf, -88.0, -1e4, -3e38)]
    assert values == [1, 0, 0, 0, 0]
    assert np.isnan(math.addend_of(ctypes.c_float(np.nan)))


@needs_gxx
@pytest.mark.parametrize("count", [1, 30, 1000, MOST_ADDENDS - 1])
def test_sums_of_addends_keep_the_bound(math: ctypes.CDLL, count: int) -> None:
    """Of 1 and *count* times the same addend: the worst sum is of one that is W(count / e) + 1."""
    worst = 0.0
    for x in np.linspace(0.0, -20.0, 4001, dtype=np.float32):
        right = 1.0 + count * np.exp(np.float64(x))
        found = 1.0 + count * math.addend_of(ctypes.c_float(x))
        worst = max(worst, abs(found - right) / right * 2**24)
    of_ex2 = 4  # which is rounded here
    assert worst + of_ex2 < 2 * ULPS_USUAL - 1.3
    assert worst > 0.35 * np.log(count + 1), "the sums are as bad as one expects"


@needs_gxx
def test_exp_at_its_limits(math: ctypes.CDLL) -> None:
    value = [math.exp_of(ctypes.c_float(x)) for x in (0.0, -0.0, -np.inf, -1e4, -3e38, -1e-30)]
    assert value == [1, 1, 0, 0, 0, 1]
    assert np.isnan(math.exp_of(ctypes.c_float(np.nan)))
    subnormal = math.exp_of(ctypes.c_float(-100.0))
    assert abs(subnormal - np.exp(-100.0)) <= 2 * np.finfo(np.float32).smallest_subnormal


# --- the emulator --------------------------------------------------------------------------


def emulate(source: CudaSource, arrays: Mapping[str, Any]) -> None:
    """Run *source* with every access checked: also for races and missing barriers."""
    fault = EmulatedProgram(compile_emulated(source), source).run(arrays)
    assert fault is None


def block_kernel(body: str, threads: tuple[int, int], *functions: str) -> CudaSource:
    """Return one block that computes r from v, both of int32."""
    parameters = (cases.pointer("i32", "v", is_read=True), cases.pointer("i32", "r"))
    launch = Launch("k", (1, 1, 1), (*threads, 1), 0, parameters)
    source: CudaSource = cases.source_of([(launch, body)], functions)
    return source


@pytest.mark.slow
@needs_gxx
def test_folds_of_many_shapes() -> None:
    shapes = cases.SHAPES
    cases.check_folds(emulate, [cases.FoldCase("f32", "max", *shape) for shape in shapes])


@needs_gxx
@pytest.mark.fuzz
@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(8))
def test_folds_of_every_shape(part: int) -> None:
    shapes = cases.ALL_SHAPES[part::8]
    cases.check_folds(emulate, [cases.FoldCase("f64", "min", *shape) for shape in shapes])
    sites = [cases.FoldCase("i32", "add", *shape, is_site=True) for shape in shapes]
    cases.check_folds(emulate, sites)


@pytest.mark.slow
@needs_gxx
def test_folds_of_every_operator_and_type() -> None:
    shapes = cases.FEW_SHAPES
    chosen = [
        cases.FoldCase(dtype, op, *shapes[number % len(shapes)])
        for number, (dtype, op) in enumerate(cases.FOLDED)
    ]
    chosen += [cases.FoldCase("f32", "add", *shape, lanes=4) for shape in shapes]
    chosen += [cases.FoldCase("u8", "max", *shape, lanes=8, is_site=True) for shape in shapes]
    cases.check_folds(emulate, chosen)


@pytest.mark.slow
@needs_gxx
def test_arg_folds() -> None:
    shapes = [*cases.FEW_SHAPES, (1000, 1), (3, 85), (16, 64)]
    pairs = [(dtype, op) for dtype in TYPES if dtype not in NARROW_FLOATS for op in ("min", "max")]
    chosen = [
        cases.ArgCase(dtype, op, *shapes[number % len(shapes)], index=("i32", "i64")[number % 2])
        for number, (dtype, op) in enumerate(pairs)
    ]
    cases.check_arg_folds(emulate, chosen)


@needs_gxx
def test_folds_of_lanes() -> None:
    cases.check_lane_folds(emulate)


@needs_gxx
def test_atomics() -> None:
    cases.check_atomics(emulate, cases.ATOMIC)


@pytest.mark.slow
@needs_gxx
def test_folds_over_clusters_of_every_operator_and_type() -> None:
    shapes = clusters.FEW_SHAPES
    chosen = [
        clusters.ClusterCase(dtype, op, *shapes[number % len(shapes)])
        for number, (dtype, op) in enumerate(cases.FOLDED)
    ]
    chosen += [clusters.ClusterCase("f32", "add", *shape, lanes=4) for shape in shapes]
    chosen += [clusters.ClusterCase("u8", "max", 32, 4, lanes=lanes) for lanes in (1, 2, 4, 16)]
    chosen += [clusters.ClusterCase("f64", "min", 96, 4, lanes=2)]
    chosen += [clusters.ClusterCase("i32", "add", 512, 2)]
    chosen += [clusters.ClusterCase("f32", "add", 64, 4, lanes=n, is_numbered=True) for n in (0, 2)]
    chosen += [clusters.ClusterCase("f32", "add", 64, 4, rounds=6, in_turns=True)]
    clusters.check_folds(emulate, chosen)


@pytest.mark.slow
@needs_gxx
def test_folds_of_columns_over_clusters() -> None:
    shapes = clusters.FEW_COLUMNS
    chosen = []
    for number, (dtype, op) in enumerate(cases.FOLDED):
        tx, ty, blocks = shapes[number % len(shapes)]
        chosen.append(clusters.ClusterCase(dtype, op, tx, blocks, ty=ty))
    chosen += [
        clusters.ClusterCase("f32", "add", tx, blocks, lanes=4, ty=ty) for tx, ty, blocks in shapes
    ]
    clusters.check_folds(emulate, chosen)


@pytest.mark.slow_but("c")
@needs_gxx
@pytest.mark.parametrize("way", ["xyc", "c"])
def test_folds_over_clusters_of_blocks_along_two_axes(way: str) -> None:
    shapes = clusters.FEW_BLOCKS
    chosen = []
    for number, (dtype, op) in enumerate(cases.FOLDED):
        tx, ty, blocks = shapes[number % len(shapes)]
        chosen.append(clusters.ClusterCase(dtype, op, tx, blocks, ty=ty, way=way))
    for tx, ty, blocks in shapes:
        case = clusters.ClusterCase("f32", "add", tx, blocks, lanes=4, ty=ty, way=way)
        chosen += [case, replace(case, is_numbered=True)]
    clusters.check_folds(emulate, chosen)


@needs_gxx
def test_arg_folds_over_clusters() -> None:
    shapes = clusters.FEW_SHAPES
    pairs = [(dtype, op) for dtype in TYPES if dtype not in NARROW_FLOATS for op in ("min", "max")]
    chosen = [
        clusters.ArgClusterCase(
            dtype, op, *shapes[number % len(shapes)], index=("i32", "i64")[number % 2]
        )
        for number, (dtype, op) in enumerate(pairs)
    ]
    clusters.check_arg_folds(emulate, chosen)


@needs_gxx
@pytest.mark.parametrize("shape", [(64, 2), (32, 16)])
def test_barriers_of_clusters(shape: tuple[int, int]) -> None:
    clusters.check_sync(emulate, *shape)


@needs_gxx
def test_asynchronous_copies() -> None:
    clusters.check_copies(emulate)


@needs_gxx
def test_segments_of_a_warp_fold_by_themselves() -> None:
    body = (
        "const int thread = threadIdx.x + 8 * threadIdx.y;\n"
        "r[thread] = -1;\n"
        "if (threadIdx.y % 3 != 1) r[thread] = tc_fold_x<tc_op_add_i32, 8, 11>(v[thread]);"
    )
    values = np.arange(88, dtype=np.int32)
    arrays = {"v": values, "r": np.zeros(88, np.int32)}
    emulate(block_kernel(body, (8, 11), "tc_fold_x", "tc_op_add_i32"), arrays)
    sums = values.reshape(11, 8).sum(1)
    want = np.where(np.arange(11) % 3 != 1, sums, -1)
    assert np.array_equal(arrays["r"].reshape(11, 8), np.repeat(want, 8).reshape(11, 8))


@needs_gxx
@pytest.mark.parametrize("site, is_race", [("", False), (", 0", True)])
def test_a_numbered_fold_must_meet_another_barrier_before_it_comes_back(
    site: str, is_race: bool
) -> None:
    call = f"tc_fold_x<tc_op_add_i32, 96, 1{site}>"
    body = f"for (int k = 0; k < 2; k++) r[k * 96 + threadIdx.x] = {call}(v[threadIdx.x] + k);"
    arrays = {"v": np.arange(96, dtype=np.int32), "r": np.zeros(192, np.int32)}
    source = block_kernel(body, (96, 1), "tc_fold_x", "tc_op_add_i32")
    if is_race:
        with pytest.raises(EmulationError, match="race"):
            emulate(source, arrays)
    else:
        emulate(source, arrays)
        assert set(arrays["r"][:96]) == {4560} and set(arrays["r"][96:]) == {4656}


@needs_gxx
def test_windows_and_vectors_that_are_not_there() -> None:
    """Windows of four at all distances from a vector, and loads whose vector may be missing."""
    windows = [f"tc_window<4, {k}>(&v[4 + {k}])" for k in range(1, 4)]
    loads = [f"tc_or_zero(tc_vload_if<4>(&v[8], v, {there}), {there})" for there in (0, 1)]
    body = "".join(
        f"const auto v{n} = {value}; for (int l = 0; l < 4; l++) r[{4 * n} + l] = v{n}[l];"
        for n, value in enumerate((*windows, *loads))
    )
    functions = "tc_window", "tc_or_zero", "tc_vload_if"
    given = np.arange(100, 116, dtype=np.int32)
    found = np.full(20, -1, np.int32)
    emulate(block_kernel(body, (1, 1), *functions), {"v": given, "r": found})
    rows = [*(given[4 + k : 8 + k] for k in range(1, 4)), np.zeros(4), given[8:12]]
    assert (found.reshape(5, 4) == rows).all()


@needs_gxx
def test_index_arithmetic() -> None:
    body = (
        "const int n = v[threadIdx.x];\n"
        "r[4 * threadIdx.x] = tc_floordiv(n, 7);\n"
        "r[4 * threadIdx.x + 1] = (int)tc_floordiv((int64_t)n << 32, 7) == tc_floordiv(n, 7ll);\n"
        "r[4 * threadIdx.x + 2] = (int)tc_imin(n, (int64_t)-3);\n"
        "r[4 * threadIdx.x + 3] = (int)tc_imax((int64_t)n * 2, 5);"
    )
    values = np.arange(-20, 21, dtype=np.int32)
    arrays = {"v": values, "r": np.zeros(4 * values.size, np.int32)}
    emulate(block_kernel(body, (values.size, 1), "tc_floordiv"), arrays)
    got = arrays["r"].reshape(-1, 4)
    assert np.array_equal(got[:, 0], values // 7)
    wide = ((values.astype(np.int64) << 32) // 7).astype(np.int32)
    assert np.array_equal(got[:, 1], wide == values // 7)
    assert np.array_equal(got[:, 2], np.minimum(values, -3))
    assert np.array_equal(got[:, 3], np.maximum(2 * values, 5))


@needs_gxx
def test_the_first_fault_is_recorded_whole() -> None:
    parameters = (cases.pointer("i32", "v", is_read=True), cases.pointer("i64", "r"))
    launch = Launch("k", (4, 1, 1), (50, 1, 1), 0, parameters)
    body = (
        "const int i = threadIdx.x + 50 * blockIdx.x;\n"
        "if (v[i] >= 60) tc_fault(r, i, v[i], 60, 2 * i);"
    )
    source = cases.source_of([(launch, body)], ["tc_fault"])
    arrays = {"v": np.arange(200, dtype=np.int32), "r": np.zeros(5, np.int64)}
    emulate(source, arrays)
    claimed, site, index, extent, position = arrays["r"].tolist()
    assert (claimed, extent) == (1, 60) and site == index and 60 <= index < 200
    assert position == 2 * index
