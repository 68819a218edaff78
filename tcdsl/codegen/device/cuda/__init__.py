"""The CUDA device library: what generated CUDA calls, put before it as text.

    core math_f32 math_f64 rare         scalar functions: the names and the results of device/c
    half float8                         the same
    powers                              device/c's own text
    index                               floored division, fault records; always there
    vector                              tc_vec<T, N>, tc_vload, tc_vload_once, tc_vstore,
                                        tc_vload_some, tc_vload_some_once, tc_vstore_some,
                                        tc_vload_if, tc_vload_if_once, tc_window, tc_or_zero,
                                        tc_select, tc_vload_quad, tc_vstore_quad, tc_vstore_twin
    pairs                               tc_vmax_f16, tc_vmin_f16, tc_vmax_bf16, tc_vmin_i8, ...
                                        tc_max_loaded_i8, ...
                                        tc_add_f16, tc_sub_f16, tc_mul_f16, tc_add_bf16, ...
    operators                           tc_op_<op>_<type>, tc_better_<op>_<type>
    compensated                         tc_c32, tc_c64, tc_plus_c32, tc_op_add_c32, ...
    collective                          tc_fold_x, _y, _y_first, _xy, _x_apart
                                        and tc_argfold_x, _y, _xy
    atomic atomic8                      tc_atomic_<op>_<type>
    ticket                              tc_last_block
    grid                                tc_grid_barrier
    signal                              tc_signal, tc_await_signal
    cluster                             tc_cluster_begin, _sync, _end
                                        tc_fold_xc, _xyc, _yc, _c, tc_argfold_xc
    async                               tc_copy_async, tc_copy_async_some, tc_copy_async_or_zero,
                                        tc_copy_wait, tc_copy_end_group, tc_copy_wait_but,
                                        tc_prefetch
    mma                                 tc_mma, tc_swizzled
    mma_of                              tc_mma_of, tc_of_<type>_<type>
    wgmma                               tc_wgmma, tc_end_products, tc_leave_products,
                                        tc_in_atoms, tc_line_in_atoms, tc_show_copies
    wgmma_of                            tc_wgmma_of, tc_wgmma_of_promoted
    wgmma_from                          tc_wgmma_from
    promoted                            tc_mma_promoted, tc_wgmma_promoted
    wgmma_f32                           tc_wgmma_f32
    wgmma_planes                        tc_wgmma_planes
    pipeline                            tc_map, tc_begin_pipeline, tc_acquire, tc_copy_box,
                                        tc_copy_pixels, tc_await, tc_release, tc_have_registers
    rows                                tc_row, tc_rows_done
    overlap                             tc_begin_next_kernel, tc_await_kernels
    changing                            tc_changing

``header_text`` is for NVRTC with ``--std=c++17 --fmad=false``; it needs no header.  For the CPU,
``emulated_text`` has the scalar functions of device/c, which compile as C++ too, and the other
parts as they are.  These are written over few intrinsics, which whoever emulates them provides:

    threadIdx.x, .y, .z    __syncthreads, __syncthreads_or    __threadfence    __shfl_xor_sync,
    __shfl_down_sync (int, long long, float, double; mask, value, distance)    __shfl_sync (long
    long; mask, value, lane, width)    atomicCAS (unsigned
    short, int, long long)    atomicAdd (unsigned int, unsigned long long, float, double)
    atomicInc (unsigned int)    atomicMin, atomicMax (int, unsigned int, long long, unsigned long
    long)    atomicAnd, atomicOr (unsigned int, unsigned long long)    __shared__ in a function
    template    __device__, __forceinline__

and, where ``__CUDA_ARCH__`` is not defined, in place of PTX (the last two not under its address
sanitizer, which has no clusters either):

    emu_cluster_arrive(file, line), emu_cluster_wait(file, line): the two halves of the barrier of a
    cluster    emu_cluster_map(p, rank, file, line): p, in shared memory, of the cluster's block
    of that rank    emu_grid_barrier(number, is_last, file, line): a barrier of all blocks
    emu_no_signal(file, line): a block waits for another one, which has not signalled
    emu_copy_async(to, from or null, bytes, file, line), emu_copy_wait(file, line),
    emu_copy_end_group(), emu_copy_wait_but(groups, file, line)    emu_product(run, sums,
    A, a, B, b, file, line): it runs when that is waited for, by emu_end_products(left)
    emu_phases_begin, emu_phases_arrive, emu_phases_wait, emu_copy_box, emu_copy_pixels: see part
    "pipeline"
"""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType

from tcdsl.codegen.device import c
from tcdsl.codegen.device.c import (
    COMPENSATED,
    FLOATS,
    FLOATS8,
    HALVES,
    INTEGERS,
    NARROW_FLOATS,
    TYPES,
)

# In the order in which their texts must stand.
SCALAR_PARTS: tuple[str, ...] = (
    "core", "powers", "half", "float8", "math_f32", "math_f64", "rare",
)  # fmt: skip
SHARED_PARTS: tuple[str, ...] = (
    "index", "vector", "pairs", "operators", "compensated", "collective", "atomic", "atomic8",
    "ticket", "grid", "signal", "cluster", "async", "mma", "mma_of", "wgmma", "wgmma_of",
    "wgmma_from", "promoted", "wgmma_f32", "wgmma_planes", "pipeline", "rows", "overlap",
    "changing",
)  # fmt: skip
PARTS: tuple[str, ...] = (*SCALAR_PARTS, *SHARED_PARTS)
_AS_IN_C = frozenset({"powers"})  # one text for both
_ALWAYS = frozenset({"core", "index"})
_NEEDS = {
    "collective": {"vector"},
    "float8": {"half"},
    "atomic": {"half", "operators"},
    "atomic8": {"atomic", "float8", "half", "operators"},
    "cluster": {"collective", "vector"},
    "async": {"vector"},
    "mma": {"half", "vector"},
    "mma_of": {"half", "float8", "vector", "mma"},
    "wgmma": {"half", "vector", "mma"},
    "wgmma_of": {"half", "float8", "vector", "mma", "mma_of", "wgmma"},
    "wgmma_from": {"half", "vector", "mma", "wgmma"},
    "wgmma_f32": {"half", "vector", "mma", "wgmma"},
    "wgmma_planes": {"half", "vector", "mma", "wgmma", "wgmma_f32"},
    "promoted": {"half", "vector", "mma", "wgmma"},
    "pipeline": {"half", "vector", "mma", "wgmma"},
    "pairs": {"half", "vector"},
    "rows": {"vector"},
}

OPERATORS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"b": ("and", "or", "min", "max")}
    | dict.fromkeys(INTEGERS, ("add", "mul", "min", "max", "and", "or"))
    | dict.fromkeys((*NARROW_FLOATS, *FLOATS), ("add", "mul", "min", "max"))
)
# Of part mma_of: the types of a product's factors.
_MULTIPLIED = (
    "f32_f32", "f64_f64",
    *(f"{a}_{b}" for types in (("i8", "u8"), FLOATS8) for a in types for b in types),
)  # fmt: skip
_COMBINED = tuple(t for t in TYPES if t not in NARROW_FLOATS)  # the others are, as float32

_COPIES = (
    "tc_copy_async", "tc_copy_async_some", "tc_copy_async_or_zero", "tc_copy_wait",
    "tc_copy_end_group", "tc_copy_wait_but", "tc_prefetch",
)  # fmt: skip

_GROUP_PRODUCTS = (
    "tc_wgmma", "tc_end_products", "tc_leave_products", "tc_in_atoms", "tc_line_in_atoms",
    "tc_show_copies",
)  # fmt: skip
_PIPELINE = (
    "tc_map", "tc_begin_pipeline", "tc_end_pipeline", "tc_have_registers", "tc_acquire",
    "tc_copy_box",
    "tc_copy_pixels", "tc_await", "tc_release",
)  # fmt: skip

_ROWS = ("tc_row", "tc_rows_done")


def _functions() -> dict[str, str]:
    """Return { function, operator or other name that a kernel may write -> part }."""
    scalars = {name: part for name, part in c.FUNCTIONS.items() if part in SCALAR_PARTS}
    index = dict.fromkeys(["tc_fault", "tc_floordiv", "tc_imin", "tc_imax"], "index")
    ways = [f"{way}{some}" for way in ("load", "store") for some in ("", "_some")]
    ways += ["load_once", "load_some_once", "load_if", "load_if_once", "load_quad", "store_quad"]
    ways += ["store_twin"]
    vector = dict.fromkeys(
        ["tc_vec", "tc_select", "tc_or_zero", "tc_window", *(f"tc_v{way}" for way in ways)],
        "vector",
    )
    extremes = ("max", "min")
    pairs_at_once = [f"tc_v{op}_{t}" for op in extremes for t in (*HALVES, "i8", "u8")]
    pairs_at_once += [f"tc_{op}_loaded_{t}" for op in extremes for t in INTEGERS]
    pairs_at_once += [f"tc_{op}_{half}" for op in ("add", "sub", "mul") for half in HALVES]
    operators = [f"tc_op_{op}_{t}" for t in _COMBINED for op in OPERATORS[t]]
    operators += [f"tc_better_{op}_{t}" for t in _COMBINED for op in ("min", "max")]
    folds = [f"tc_{fold}_{way}" for fold in ("fold", "argfold") for way in ("x", "y", "xy")]
    folds += ["tc_fold_y_first", "tc_fold_x_apart"]
    pairs = [name for name, part in c.FUNCTIONS.items() if part == "compensated"]
    pairs = [name for name in pairs if not name.startswith("tc_fold_")]
    atomics = {
        f"tc_atomic_{op}_{t}": "atomic8" if t in FLOATS8 else "atomic"
        for t in TYPES for op in OPERATORS[t]
    }  # fmt: skip
    return (
        scalars
        | index
        | vector
        | dict.fromkeys(pairs_at_once, "pairs")
        | dict.fromkeys(operators, "operators")
        | dict.fromkeys(pairs, "compensated")
        | {f"tc_{kind}{pair}": "compensated" for pair in COMPENSATED for kind in ("", "op_add_")}
        | dict.fromkeys([*folds, "tc_pair"], "collective")
        | atomics
        | {"tc_last_block": "ticket", "tc_grid_barrier": "grid"}
        | dict.fromkeys(["tc_signal", "tc_await_signal"], "signal")
        | dict.fromkeys([f"tc_cluster_{call}" for call in ("begin", "sync", "end")], "cluster")
        | dict.fromkeys([f"tc_fold_{way}" for way in ("xc", "xyc", "yc", "c")], "cluster")
        | dict.fromkeys(["tc_argfold_xc"], "cluster")
        | dict.fromkeys(_COPIES, "async")
        | dict.fromkeys(["tc_mma", "tc_swizzled"], "mma")
        | dict.fromkeys(["tc_mma_of", *(f"tc_of_{of}" for of in _MULTIPLIED)], "mma_of")
        | dict.fromkeys(_GROUP_PRODUCTS, "wgmma")
        | dict.fromkeys(["tc_mma_promoted", "tc_wgmma_promoted"], "promoted")
        | dict.fromkeys(["tc_wgmma_of", "tc_wgmma_of_promoted"], "wgmma_of")
        | {"tc_wgmma_from": "wgmma_from", "tc_wgmma_f32": "wgmma_f32"}
        | {"tc_wgmma_planes": "wgmma_planes"}
        | dict.fromkeys(_PIPELINE, "pipeline")
        | dict.fromkeys(["tc_begin_next_kernel", "tc_await_kernels"], "overlap")
        | dict.fromkeys(_ROWS, "rows")
        | {"tc_changing": "changing"}
    )


FUNCTIONS: Mapping[str, str] = MappingProxyType(_functions())


_BINARY = (
    "add arg_better_max arg_better_min atan2 copysign div fdim fmax fmin fmod hypot max min mod mul"
    " nextafter pow remainder rhypot shl shr sub"
)
_TERNARY = "fma mad norm3d rnorm3d"
_QUATERNARY = "norm4d rnorm4d"
_ARITIES = {
    function: arity
    for arity, functions in ((2, _BINARY), (3, _TERNARY), (4, _QUATERNARY))
    for function in functions.split()
}


def signature(name: str) -> tuple[tuple[str, ...], str]:
    """Return the types of the operands and of the result of the scalar function *name*."""
    if match := re.fullmatch(r"tc_cast_(\w+)_(\w+)|tc_(\w+)_to_(\w+)", name):
        from_, to = (group for group in match.groups() if group)
        return (from_,), to
    function, _, dtype = name.removeprefix("tc_").rpartition("_")
    if function.startswith("placed"):
        return (dtype, "i32"), "i64"
    is_predicate = function.startswith(("arg_better", "is"))
    return (dtype,) * _ARITIES.get(function, 1), "b" if is_predicate else dtype


def parts_for(function_names: Iterable[str]) -> frozenset[str]:
    """Return the parts that define *function_names*, and those that these need.

    :raises KeyError: for a name that the library does not define.
    """
    return _with_needs(FUNCTIONS[name] for name in function_names)


def _with_needs(parts: Iterable[str]) -> frozenset[str]:
    chosen = set(parts) | _ALWAYS
    for part in tuple(chosen):
        chosen |= _NEEDS.get(part, set())
    assert chosen <= set(PARTS), f"unknown parts {sorted(chosen - set(PARTS))}"
    return frozenset(chosen)


@cache
def _part_text(part: str) -> str:
    place, suffix = (c.__name__, "h") if part in _AS_IN_C else (__name__, "cuh")
    return files(place).joinpath(f"{part}.{suffix}").read_text(encoding="utf-8")


def header_text(features: frozenset[str] | None = None) -> str:
    """Return the CUDA text of the parts in *features* (default: all) and of what they need."""
    return _joined(PARTS, features)


def emulated_text(features: frozenset[str] | None = None) -> str:
    """Return the same parts as C++ for the CPU, to stand after the intrinsics.

    Those that are always there come first: ``emulated_text(frozenset())``.
    """
    chosen = frozenset(PARTS) if features is None else _with_needs(features)
    ordered = sorted(
        (part for part in PARTS if part in chosen), key=lambda part: part not in _ALWAYS
    )
    texts = (c.part_text(p) if p in SCALAR_PARTS else _part_text(p) for p in ordered)
    return "\n".join(texts)


def _joined(parts: tuple[str, ...], features: frozenset[str] | None) -> str:
    chosen = frozenset(PARTS) if features is None else _with_needs(features)
    return "\n".join(_part_text(part) for part in parts if part in chosen)
