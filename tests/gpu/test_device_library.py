"""The CUDA device library on a GPU: every function against the C library, every fold and atomic.

Exact functions must agree to the bit, but for the sign of a zero from min and max and the payload
of NaNs.  The others are compared with the C library's float64 function, and may be wrong by what
the error bounds allow (``interp/derivatives``), by which programs are judged.  ``-s`` prints how
wrong they are.
"""

import ctypes
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tcdsl.codegen.cuda.source import CudaSource
from tcdsl.codegen.device import c
from tcdsl.codegen.device.cuda import (
    FUNCTIONS,
    INTEGERS,
    NARROW_FLOATS,
    SCALAR_PARTS,
    TYPES,
    header_text,
    parts_for,
    signature,
)
from tcdsl.interp.derivatives import BASIC, EXACT, ULPS, ULPS_USUAL, absolute_error
from tcdsl.runtime.nvrtc import compile_cuda

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(600)]
driver = pytest.importorskip("pycuda.driver", exc_type=ImportError)

Array = npt.NDArray[Any]
GCC = shutil.which("gcc") or shutil.which("cc")
C_FLAGS = "-std=c11 -O2 -ffp-contract=off -fno-math-errno -fno-trapping-math -w -shared -fPIC"


def _module(name: str) -> ModuleType:
    path = Path(__file__).parents[1] / "codegen" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


cases = _module("cuda_cases")
clusters = _module("cluster_cases")  # imports the first


# --- running -------------------------------------------------------------------------------
class Gpu:
    """The first device, in its primary context."""

    def __init__(self) -> None:
        self.device = driver.Device(0)
        self.arch = "sm_{}{}".format(*self.device.compute_capability())

    def load(self, text: str) -> Any:
        return driver.module_from_buffer(compile_cuda(text, self.arch))

    def run(self, source: CudaSource, arrays: Mapping[str, Array]) -> None:
        """Run all launches of *source*; arrays are parameters by name, and written back."""
        module = self.load(header_text(parts_for(source.functions)) + source.text)
        held = {name: driver.mem_alloc(max(array.nbytes, 1)) for name, array in arrays.items()}
        for name, array in arrays.items():
            driver.memcpy_htod(held[name], np.ascontiguousarray(array).view(np.uint8))
        for launch in source.launches:
            function = module.get_function(launch.name)
            if launch.cluster > 8:  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
                function.set_attribute(driver.function_attribute(14), 1)
            function(
                *(held[p.name] for p in launch.parameters),
                grid=launch.grid, block=launch.block, shared=launch.shared_bytes,
            )  # fmt: skip
        for name, array in arrays.items():
            raw = np.empty(array.nbytes, np.uint8)
            driver.memcpy_dtoh(raw, held[name])
            array[...] = raw.view(array.dtype).reshape(array.shape)


@pytest.fixture(scope="module")
def gpu() -> Iterator[Gpu]:
    driver.init()
    context = driver.Device(0).retain_primary_context()
    context.push()
    yield Gpu()
    driver.Context.pop()


def stored(dtype: str) -> np.dtype[Any]:
    """Return NumPy's type of what the library calls a *dtype*: narrow floats are their bits."""
    found = cases.NUMPY[dtype]
    return np.dtype(f"u{found.itemsize}") if dtype in NARROW_FLOATS else found


Call = Callable[..., Array]
SCALARS = [name for name, part in FUNCTIONS.items() if part in SCALAR_PARTS]


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Call]:
    """Return the C library's functions over arrays, by name."""
    if GCC is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("device")
    text = c.header_text()
    for name in SCALARS:
        operands, result = signature(name)
        params = "".join(f", const {cases.CUDA_TYPES[t]} *a{i}" for i, t in enumerate(operands))
        call = ", ".join(f"a{i}[i]" for i in range(len(operands)))
        text += (
            f"void loop_{name}(int64_t n, {cases.CUDA_TYPES[result]} *out{params}) {{\n"
            f"  for (int64_t i = 0; i < n; ++i) out[i] = {name}({call});\n}}\n"
        )
    (folder / "device.c").write_text(text)
    command = [GCC, *C_FLAGS.split(), "device.c", "-o", "device.so", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "device.so"))

    def by_name(name: str) -> Call:
        def call(*arrays: Array) -> Array:
            out = np.empty(arrays[0].shape, stored(signature(name)[1]))
            pointers = [ctypes.c_void_p(a.ctypes.data) for a in (out, *arrays)]
            library[f"loop_{name}"](ctypes.c_int64(out.size), *pointers)
            return out

        return call

    return by_name


@pytest.fixture(scope="module")
def on_gpu(gpu: Gpu) -> Callable[[str], Call]:
    """Return the CUDA library's functions over arrays, by name; compiled all together."""
    text = header_text()
    for name in SCALARS:
        operands, result = signature(name)
        params = "".join(f", const {cases.CUDA_TYPES[t]} *a{i}" for i, t in enumerate(operands))
        call = ", ".join(f"a{i}[i]" for i in range(len(operands)))
        text += (
            f'extern "C" __global__ void loop_{name}'
            f"(int64_t n, {cases.CUDA_TYPES[result]} *out{params}) {{\n"
            "  const int64_t i = threadIdx.x + 256ll * blockIdx.x;\n"
            f"  if (i < n) out[i] = {name}({call});\n}}\n"
        )
    module = gpu.load(text)

    def by_name(name: str) -> Call:
        function = module.get_function(f"loop_{name}")

        def call(*arrays: Array) -> Array:
            given = [np.ascontiguousarray(a) for a in arrays]
            out = np.empty(given[0].shape, stored(signature(name)[1]))
            blocks = (-(-out.size // 256), 1, 1)
            inputs = [driver.In(a) for a in given]
            function(np.int64(out.size), driver.Out(out), *inputs, grid=blocks, block=(256, 1, 1))
            return out

        return call

    return by_name


# --- arguments -----------------------------------------------------------------------------
def samples(dtype: str, count: int, seed: int) -> Array:
    """Return limits and their neighbours, then random values of all sizes, and bit patterns."""
    rng, type_ = np.random.default_rng(seed), stored(dtype)
    if dtype == "b":
        return rng.integers(0, 2, count).astype(type_)
    if dtype in NARROW_FLOATS:
        bits = np.arange(2 ** (8 * type_.itemsize)).astype(type_)
        return np.resize(rng.permutation(bits), count)
    if dtype in INTEGERS:
        info = np.iinfo(type_)
        near = [v + d for v in (info.min, 0, info.max // 2, info.max) for d in range(-3, 4)]
        near += [7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 2**24 + 1, 2**53 + 1, -1, -7]
        kept = np.array([v for v in near if info.min <= v <= info.max], type_)
        drawn = rng.integers(info.min, info.max, count, type_, endpoint=True)
        small = drawn[: count // 2] >> type_.type(4 * type_.itemsize)
        return np.concatenate([kept, small, drawn])[:count]
    info = np.finfo(type_)
    special = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, np.inf, np.nan, info.max, info.tiny])
    special = np.concatenate([special, info.smallest_subnormal * np.array([1, 5, 1000])])
    powers = 2.0 ** np.array([-25, -24, -14, 7, 8, 15, 16, 23, 24, 31, 32, 52, 53, 62, 63, 64])
    with np.errstate(all="ignore"):
        exact = np.concatenate([special, powers, powers - 0.5, powers + 1.0]).astype(type_)
        limits = [exact, np.nextafter(exact, type_.type(0)), np.nextafter(exact, type_.type(9e9))]
    limits = [np.concatenate([end, -end]) for end in limits]
    third = count // 3
    sized = rng.choice([-1, 1], third) * np.exp2(rng.uniform(-30, 30, third))
    even = np.concatenate([rng.uniform(-1, 1, third), rng.uniform(-40, 40, third)])
    bits = rng.integers(0, 2**32 if type_.itemsize == 4 else 2**64, third, f"u{type_.itemsize}")
    everything = [*limits, sized.astype(type_), even.astype(type_), bits.view(type_)]
    return np.concatenate(everything)[:count].astype(type_)


def arguments(name: str) -> list[Array]:
    """Return arguments of *name*: of two, all pairs of a few hundred values."""
    operands, _ = signature(name)
    if len(operands) == 1:
        values = samples(operands[0], 60_000, 1)
        return [-np.abs(values) if function_of(name) in NONPOSITIVE else values]
    if len(operands) == 2:
        a, b = samples(operands[0], 400, 1), samples(operands[1], 400, 2)
        return [np.repeat(a, b.size), np.tile(b, a.size)]
    rng = np.random.default_rng(3)
    return [rng.permutation(samples(t, 20_000, i)) for i, t in enumerate(operands)]


def function_of(name: str) -> str:
    return name.removeprefix("tc_").rpartition("_")[0]


# Functions of what is not above 0 -> what they compute.
NONPOSITIVE = {"exp_nonpositive": "exp", "exp_addend": "exp"}
IS_EXACT = EXACT | BASIC | {"neg", "relu", "isnan", "isinf", "arg_better_max", "arg_better_min"}
INEXACT = [
    name for name in SCALARS
    if name.endswith(("_f32", "_f64")) and "_to_" not in name and "cast" not in name
    and function_of(name) not in IS_EXACT | {"mad", "mod", "placed_max", "placed_min"}
]  # fmt: skip
MOD = ["tc_mod_f32", "tc_mod_f64", "tc_mad_f32", "tc_mad_f64"]


# --- scalar functions ----------------------------------------------------------------------
@pytest.mark.parametrize("dtype", TYPES)
def test_exact_functions_agree_to_the_bit(
    on_cpu: Callable[[str], Call], on_gpu: Callable[[str], Call], dtype: str
) -> None:
    names = [
        n for n in SCALARS if n not in INEXACT and n not in MOD and signature(n)[0][0] == dtype
    ]
    assert names
    failures = []
    for name in names:
        given = arguments(name)
        got, want = on_gpu(name)(*given), on_cpu(name)(*given)
        wrong = differing(got, want, signature(name)[1], ignores_sign=function_of(name) in (
            "min", "max", "fmin", "fmax"))  # fmt: skip
        if wrong.any():
            where = [a[wrong][:4].tolist() for a in given]
            failures.append((name, where, got[wrong][:4].tolist(), want[wrong][:4].tolist()))
    assert not failures, "\n".join(map(str, failures))


def differing(got: Array, want: Array, dtype: str, *, ignores_sign: bool = False) -> Array:
    """Return where two arrays differ; NaNs are equal, zeros of two signs are not."""
    if dtype in NARROW_FLOATS:
        numbers = (bits.view(cases.NUMPY[dtype]).astype(np.float32) for bits in (got, want))
        both_nan = np.logical_and(*map(np.isnan, numbers))
        return np.asarray((got != want) & ~both_nan)
    if got.dtype.kind != "f":
        return np.asarray(got != want)
    same = (got == want) & (ignores_sign | (np.signbit(got) == np.signbit(want)))
    return np.asarray(~(same | (np.isnan(got) & np.isnan(want))))


@pytest.mark.parametrize("name", MOD)
def test_mod_and_mad(
    on_cpu: Callable[[str], Call], on_gpu: Callable[[str], Call], name: str
) -> None:
    given = arguments(name)
    reference = name.replace("mad", "fma")  # one rounding, as the GPU does it
    wrong = differing(on_gpu(name)(*given), on_cpu(reference)(*given), name[-3:])
    assert not wrong.any(), [a[wrong][:4] for a in given]


@pytest.mark.parametrize("name", INEXACT)
def test_inexact_functions_keep_the_error_bounds(
    on_cpu: Callable[[str], Call], on_gpu: Callable[[str], Call], name: str
) -> None:
    function, dtype = function_of(name), name[-3:]
    given = arguments(name)
    with np.errstate(all="ignore"):
        got = on_gpu(name)(*given).astype(np.float64)
        want = on_cpu(f"tc_{NONPOSITIVE.get(function, function)}_f64")(
            *(a.astype(np.float64) for a in given)
        )
        rounded = want.astype(stored(dtype))
    info = np.finfo(stored(dtype))
    unit = float(info.eps) / 2
    smallest = float(info.smallest_subnormal)
    k = ULPS.get(function, ULPS_USUAL)
    with np.errstate(all="ignore"):
        allowed = 2 * k * unit * np.abs(want) + absolute_error(function, unit) + 2 * k * smallest
        if function == "exp_addend":  # may take what is subnormal for 0
            allowed += float(info.tiny) + 1.22 * unit * np.abs(given[0] * want)
        error = np.abs(got - want)
        fits = (got == rounded) | (error <= allowed) | (np.isnan(got) & np.isnan(rounded))
        # Within the bound of overflow, both the infinity and a number are right.
        nearly = np.abs(want) * (1 + 2 * k * unit) >= float(info.max)
        fits |= nearly & (np.abs(got) * (1 + 4 * k * unit) >= float(info.max)) & (got * want > 0)
        finite = np.isfinite(got) & np.isfinite(want) & (np.abs(want) >= float(info.tiny))
        ulps = error[finite] / (2 * unit * np.exp2(np.floor(np.log2(np.abs(want[finite])))))
    if ulps.size:
        worst = int(np.argmax(ulps))
        where = [a[finite][worst] for a in given]
        print(f"{name}: {ulps[worst]:.3g} ulp at {where}")
    bad = ~fits
    assert not bad.any(), [
        *(a[bad][:6].tolist() for a in given), got[bad][:6].tolist(), want[bad][:6].tolist()
    ]  # fmt: skip


# --- folds and atomics ---------------------------------------------------------------------
@pytest.mark.parametrize("part", range(8))
def test_folds_of_every_shape(gpu: Gpu, part: int) -> None:
    shapes = cases.ALL_SHAPES[part::8]
    cases.check_folds(gpu.run, [cases.FoldCase("f32", "max", *shape) for shape in shapes])
    sites = [cases.FoldCase("i32", "add", *shape, is_site=True) for shape in shapes]
    cases.check_folds(gpu.run, sites)


@pytest.mark.parametrize("shape", cases.FEW_SHAPES)
def test_folds_of_every_operator_and_type(gpu: Gpu, shape: tuple[int, int]) -> None:
    chosen = [cases.FoldCase(dtype, op, *shape) for dtype, op in cases.FOLDED]
    chosen += [cases.FoldCase("f32", "add", *shape, lanes=lanes) for lanes in (2, 4)]
    chosen += [cases.FoldCase("u8", "max", *shape, lanes=16), cases.FoldCase("f64", "min", *shape)]
    cases.check_folds(gpu.run, chosen)


def test_folds_of_lanes(gpu: Gpu) -> None:
    cases.check_lane_folds(gpu.run)


@pytest.mark.parametrize("shape", [*cases.FEW_SHAPES, (1000, 1), (3, 85), (16, 64)])
def test_arg_folds(gpu: Gpu, shape: tuple[int, int]) -> None:
    cases.check_arg_folds(
        gpu.run,
        [
            cases.ArgCase(dtype, op, *shape, index=index)
            for dtype in TYPES if dtype not in NARROW_FLOATS
            for op, index in (("min", "i32"), ("max", "i64"))
        ],
    )  # fmt: skip


@pytest.fixture
def gpu_of_clusters(gpu: Gpu) -> Gpu:
    if gpu.device.compute_capability() < (9, 0):
        pytest.skip("this GPU has no clusters")
    return gpu


def numbered(chosen: list[Any]) -> list[Any]:
    """Return those cases again whose folds may have slots of their own."""
    return [
        replace(case, is_numbered=True)
        for case in chosen
        if cases.NUMPY[case.dtype].itemsize * max(case.lanes, 1) % 4 == 0
    ]


def in_turns(chosen: list[Any]) -> list[Any]:
    """Return cases with folds in turns instead of those with slots of their own."""
    of_turns = {"is_numbered": False, "in_turns": True, "rounds": 11}
    return [replace(case, **of_turns) for case in numbered(chosen)]


@pytest.mark.parametrize("shape", clusters.ALL_SHAPES)
def test_folds_over_clusters(gpu_of_clusters: Gpu, shape: tuple[int, int]) -> None:
    chosen = [clusters.ClusterCase(dtype, op, *shape) for dtype, op in cases.FOLDED]
    chosen += [clusters.ClusterCase("f32", "add", *shape, lanes=lanes) for lanes in (1, 2, 4)]
    chosen += [clusters.ClusterCase("u8", "max", *shape, lanes=lanes) for lanes in (2, 4, 16)]
    chosen += [clusters.ClusterCase("f64", "min", *shape, lanes=2)]
    chosen += [*numbered(chosen), *in_turns(chosen)]
    clusters.check_folds(gpu_of_clusters.run, chosen)


@pytest.mark.parametrize("shape", clusters.ALL_COLUMNS)
def test_folds_of_columns_over_clusters(gpu_of_clusters: Gpu, shape: tuple[int, int, int]) -> None:
    tx, ty, blocks = shape
    chosen = [clusters.ClusterCase(dtype, op, tx, blocks, ty=ty) for dtype, op in cases.FOLDED]
    chosen += [clusters.ClusterCase("f32", "add", tx, blocks, lanes=n, ty=ty) for n in (2, 4)]
    chosen += numbered(chosen)
    clusters.check_folds(gpu_of_clusters.run, chosen)


@pytest.mark.parametrize("way", ["xyc", "c"])
@pytest.mark.parametrize("shape", clusters.FEW_BLOCKS)
def test_folds_over_clusters_of_blocks_along_two_axes(
    gpu_of_clusters: Gpu, shape: tuple[int, int, int], way: str
) -> None:
    tx, ty, blocks = shape
    given = {"ty": ty, "way": way}
    chosen = [clusters.ClusterCase(dtype, op, tx, blocks, **given) for dtype, op in cases.FOLDED]
    chosen += [clusters.ClusterCase("f32", "add", tx, blocks, lanes=n, **given) for n in (2, 4)]
    chosen += [*numbered(chosen), *(in_turns(chosen) if way == "xyc" else ())]
    clusters.check_folds(gpu_of_clusters.run, chosen)


@pytest.mark.parametrize("shape", clusters.ALL_SHAPES)
def test_arg_folds_over_clusters(gpu_of_clusters: Gpu, shape: tuple[int, int]) -> None:
    chosen = [
        clusters.ArgClusterCase(dtype, op, *shape, index=index)
        for dtype in TYPES if dtype not in NARROW_FLOATS
        for op, index in (("min", "i32"), ("max", "i64"))
    ]  # fmt: skip
    chosen += [replace(case, is_numbered=True) for case in chosen]
    clusters.check_arg_folds(gpu_of_clusters.run, chosen)


def test_barriers_of_clusters(gpu_of_clusters: Gpu) -> None:
    for tx, blocks in clusters.ALL_SHAPES:
        clusters.check_sync(gpu_of_clusters.run, tx, blocks)


def test_asynchronous_copies(gpu: Gpu) -> None:
    clusters.check_copies(gpu.run)


@pytest.mark.parametrize("repeat", range(4))
def test_atomics(gpu: Gpu, repeat: int) -> None:
    cases.check_atomics(gpu.run, cases.ATOMIC)


def test_the_first_fault_is_recorded_whole(gpu: Gpu) -> None:
    text = header_text(parts_for({"tc_fault"})) + (
        'extern "C" __global__ void gather(const int64_t *index, int64_t extent, int64_t *fault)\n'
        "{\n  const int64_t i = threadIdx.x + 256ll * blockIdx.x;\n"
        "  if ((uint64_t)index[i] >= (uint64_t)extent)\n"
        "    tc_fault(fault, i, index[i], extent, 2 * i);\n}\n"
    )
    function = gpu.load(text).get_function("gather")
    index = np.arange(2048, dtype=np.int64)
    for extent in (2048, 1000):
        fault = np.zeros(5, np.int64)
        function(
            driver.In(index), np.int64(extent), driver.InOut(fault), grid=(8, 1), block=(256, 1, 1)
        )
        claimed, site, where, size, position = fault.tolist()
        if extent == 2048:
            assert fault.tolist() == [0, 0, 0, 0, 0]
        else:
            assert (claimed, size) == (1, 1000) and site == where and 1000 <= where < 2048
            assert position == 2 * where
