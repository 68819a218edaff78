"""Loads through the read-only cache: none of what changes, by the PTX that NVRTC makes.

The programs of the library are looked at in library/test_nvrtc.py, random ones where they run on
the emulator (test_random_programs.py).
"""

from collections.abc import Sequence

import pytest

from tcdsl.codegen.device.cuda import header_text, parts_for
from tcdsl.runtime.nvrtc import compile_cuda, why_no_cuda_compiler
from tests.codegen.ptx import ptx_kernels, stale_loads

needs_nvrtc = pytest.mark.skipif(why_no_cuda_compiler() is not None, reason="there is no NVRTC")


def ptx_of(text: str, parts: Sequence[str] = ("changing",)) -> str:
    header = header_text(parts_for({f"tc_{part}" for part in parts}))
    return compile_cuda(f"{header}\n{text}", "sm_90", ptx=True).decode().rstrip("\0")


# --- the analysis ---------------------------------------------------------------------------

PLANTED = """
.visible .entry f(
    .param .u64 f_param_0,
    .param .u64 f_param_1
)
{
    .reg .pred %p<2>;
    ld.param.u64 %rd1, [f_param_0];
    ld.param.u64 %rd2, [f_param_1];
    cvta.to.global.u64 %rd3, %rd1;
    cvta.to.global.u64 %rd4, %rd2;
    MIDDLE
    st.global.f32 [%rd4+8], %f1;
}
"""
MIDDLES = {
    "select": "selp.b64 %rd5, %rd3, %rd4, %p1; ld.global.nc.f32 %f1, [%rd5];",
    "phi": "mov.b64 %rd5, %rd3; @%p1 bra L; mov.b64 %rd5, %rd4; L: ld.global.nc.f32 %f1, [%rd5];",
    "offset": "mad.wide.s32 %rd5, %r1, 4, %rd4; ld.global.nc.v2.f32 {%f1, %f2}, [%rd5+16];",
    "assembly": "{ ld.global.nc.L1::no_allocate.v4.u32 {%r1, %r2, %r3, %r4}, [%rd4]; }",
    "predicate": "@!%p1 ld.global.nc.f32 %f1, [%rd4];",
    "a loop's": "L: ld.global.nc.f32 %f1, [%rd6]; add.s64 %rd6, %rd7, 4; add.s64 %rd7, %rd4, 4;",
    "in memory": "st.local.u64 [%SP+8], %rd4; ld.local.u64 %rd5, [%SP+8];"
    " ld.global.nc.f32 %f1, [%rd5];",
}


@pytest.mark.parametrize("middle", MIDDLES)
def test_a_planted_load_is_found(middle: str) -> None:
    (wrong,) = stale_loads(PLANTED.replace("MIDDLE", MIDDLES[middle]))
    assert wrong.startswith("f: ") and wrong.endswith("may be from [1]")


# The address of a table: as NVRTC writes it for a double's sine, and other forms of the same.
TABLE = ".global .align 16 .b8 sin_cos_coeffs[128] = {70, 210};\n.const .align 4 .u32 one = 1;\n"
TABLE_LOADS = {
    "a chosen row": "mov.u64 %rd6, sin_cos_coeffs; add.s64 %rd7, %rd6, %rd8;"
    " ld.global.nc.v2.f64 {%fd1, %fd2}, [%rd7+16];",
    "by name": "ld.global.nc.f64 %fd1, [sin_cos_coeffs+8];",
    "generic": "mov.u64 %rd6, sin_cos_coeffs; cvta.global.u64 %rd7, %rd6;"
    " cvta.to.global.u64 %rd8, %rd7; ld.global.nc.f64 %fd1, [%rd8];",
    "a constant": "cvta.const.u64 %rd6, one; ld.global.nc.u32 %r1, [%rd6];",
}


@pytest.mark.parametrize("load", TABLE_LOADS)
def test_tables_of_the_module_are_known(load: str) -> None:
    text = TABLE + PLANTED.replace("MIDDLE", TABLE_LOADS[load])
    assert stale_loads(text) == []
    name = "one" if load == "a constant" else "sin_cos_coeffs"
    assert [found for _, found in ptx_kernels(text)[0].read_only_loads] == [{name}]


@pytest.mark.parametrize("load", TABLE_LOADS)
def test_a_variable_that_a_kernel_stores_is_no_table(load: str) -> None:
    """Also where another kernel of the text stores it."""
    name = "one" if load == "a constant" else "sin_cos_coeffs"
    reads = PLANTED.replace("MIDDLE", TABLE_LOADS[load])
    stores = PLANTED.replace("MIDDLE", f"mov.u64 %rd9, {name}; st.global.f64 [%rd9], %fd9;")
    (wrong,) = stale_loads(TABLE + reads + stores.replace("f_param", "g_param"))
    assert wrong.endswith(f"may be from ['{name}']")


def test_a_choice_of_a_table_and_what_is_stored_is_found() -> None:
    middle = "mov.u64 %rd6, sin_cos_coeffs; selp.b64 %rd7, %rd6, %rd4, %p1;"
    text = TABLE + PLANTED.replace("MIDDLE", f"{middle} ld.global.nc.f32 %f1, [%rd7];")
    (wrong,) = stale_loads(text)
    assert wrong.endswith("may be from [1]")


def test_what_is_right() -> None:
    """Loads of the other parameter, at an index that was loaded; loads that are coherent."""
    middle = """ld.global.u64 %rd5, [%rd4]; add.s64 %rd6, %rd3, %rd5; ld.global.nc.f32 %f1, [%rd6];
        // ld.global.nc.f32 %f1, [%rd4];
        selp.b64 %rd7, %rd3, %rd4, %p1; ld.global.f32 %f1, [%rd7];"""
    text = PLANTED.replace("MIDDLE", middle)
    assert stale_loads(text) == []
    (kernel,) = ptx_kernels(text)
    assert kernel.stored == {1} and [p for _, p in kernel.read_only_loads] == [{0}]


def test_an_address_of_which_nothing_is_known_is_told() -> None:
    (wrong,) = stale_loads(PLANTED.replace("MIDDLE", "ld.global.nc.f32 %f1, [%rd9];"))
    assert wrong.endswith("is from no parameter that is known")


# --- what the compiler does, and tc_changing -------------------------------------------------

BODIES = {
    "select": "written[i] = other[i]; out[i] = readonly[i] > (T)1 ? LOAD(&written[i]) : LOADED;",
    "branches": "written[i] = other[i]; if (i > 5) out[i] = LOAD(&written[i + 1]);"
    " else out[i] = LOADED;",
    "a barrier": "written[i] = other[i]; __syncthreads();"
    " out[i] = other[i] > (T)1 ? LOAD(&written[i ^ 1]) : LOADED;",
}
SIGNATURE = """extern "C" __global__ void NAME(const T *__restrict__ readonly,
  T *__restrict__ written, const T *__restrict__ other, T *__restrict__ out)
{ const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); BODY }
"""
TYPES = ("float", "double", "uint16_t", "uint8_t", "int64_t")


def kernels(load: str, awaits: bool = False) -> str:
    """Return one text with every body in every type, where LOAD is *load*."""
    text = f"#define LOAD(p) {load}\n#define LOADED readonly[i + 3]\n"
    for n_type, dtype in enumerate(TYPES):
        for n_body, body in enumerate(BODIES.values()):
            kernel = SIGNATURE.replace("NAME", f"k_{n_type}_{n_body}").replace("BODY", body)
            if awaits:
                kernel = kernel.replace("written[i] = other[i];", 'asm volatile("" ::: "memory");')
                kernel = kernel.replace("T *__restrict__ written", "const T *written")
            text += f"#define T {dtype}\n{kernel}#undef T\n"
    return text


@needs_nvrtc
def test_the_compiler_merges_loads() -> None:
    """It does in every type: where it no longer does, ``tc_changing`` can go."""
    wrong = stale_loads(ptx_of(kernels("*(p)")))
    merged = {line.split(":")[0] for line in wrong}
    assert merged >= {f"k_{t}_{b}" for t in range(len(TYPES)) for b in (0, 1)}, merged


@needs_nvrtc
def test_the_tables_of_the_compilers_functions_are_known() -> None:
    """``sin`` and ``cos`` of a double load the coefficients of one of two polynomials."""
    body = "{ out[0] = sin(x[0]) + cos(x[1]) + sinh(x[2]) + erf(x[3]) + pow(x[4], x[5]); }"
    signature = 'extern "C" __global__ void f(const double *__restrict__ x, double *out)'
    ptx = ptx_of(f"{signature} {body}")
    assert stale_loads(ptx) == []
    origins = {o for _, found in ptx_kernels(ptx)[0].read_only_loads for o in found}
    assert 0 in origins and 1 not in origins and any(isinstance(o, str) for o in origins)


@needs_nvrtc
@pytest.mark.parametrize("awaits", [False, True])
def test_what_changes_is_not_merged(awaits: bool) -> None:
    ptx = ptx_of(kernels("tc_changing(*(p))", awaits))
    assert len(ptx_kernels(ptx)) == len(TYPES) * len(BODIES)
    assert stale_loads(ptx) == []
    loads = [p for kernel in ptx_kernels(ptx) for _, p in kernel.read_only_loads]
    assert {0} in loads and all(1 not in p for p in loads)


@needs_nvrtc
def test_vectors_that_change_are_not_merged() -> None:
    text = ""
    for number, (dtype, width) in enumerate([("float", 4), ("uint16_t", 8), ("double", 2)]):
        vector = f"const tc_vec<T, {width}>"
        body = (
            f"{vector} a = readonly[0] > (T)1 ? LOAD(tc_vload<{width}>(&written[{width} * i]))"
            f" : tc_vload<{width}>(&readonly[{width} * i]); tc_vstore(&out[{width} * i], a);"
            " written[i] = other[i];"
        )
        kernel = SIGNATURE.replace("NAME", f"k_{number}").replace("BODY", body)
        text += f"#define T {dtype}\n{kernel}#undef T\n"
    parts = ("changing", "vload")
    assert stale_loads(ptx_of(f"#define LOAD(v) tc_changing(v)\n{text}", parts)) == []
    assert stale_loads(ptx_of(f"#define LOAD(v) v\n{text}", parts)) != []
