"""Kernels that try the CUDA device library's shared parts, and what they must compute.

For the emulator (``test_cuda_device.py``) and for a GPU (``tests/gpu/test_device_library.py``),
each of which is a function *run* that runs a :class:`CudaSource` over arrays, in place.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tcdsl.codegen.cuda.source import CudaSource, Launch, Parameter, ParameterKind
from tcdsl.codegen.device.c import FLOATS, HALVES, INTEGERS, NARROW_FLOATS
from tcdsl.codegen.device.cuda import OPERATORS

Array = npt.NDArray[Any]
Run = Callable[[CudaSource, Mapping[str, Array]], None]

CUDA_TYPES = {
    "b": "uint8_t", "e4m3": "uint8_t", "e5m2": "uint8_t", "f16": "uint16_t", "bf16": "uint16_t",
    "f32": "float", "f64": "double",
    **{t: f"{'u' if t[0] == 'u' else ''}int{t[1:]}_t" for t in INTEGERS},
}  # fmt: skip
NUMPY: dict[str, np.dtype[Any]] = {
    "b": np.dtype(np.uint8), "f32": np.dtype(np.float32), "f64": np.dtype(np.float64),
    "e4m3": np.dtype(ml_dtypes.float8_e4m3fn), "e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16),
    **{t: np.dtype(f"{'u' if t[0] == 'u' else ''}int{t[1:]}") for t in INTEGERS},
}  # fmt: skip
UFUNCS: dict[str, np.ufunc] = {
    "add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum,
    "and": np.bitwise_and, "or": np.bitwise_or,
}  # fmt: skip
FOLDED = [(t, op) for t in OPERATORS if t not in NARROW_FLOATS for op in OPERATORS[t]]
ATOMIC = [(t, op) for t in OPERATORS for op in OPERATORS[t]]

# Powers of two and their neighbours, rows that end inside a warp, more than one warp a row, ...
SHAPES = [
    (1, 1), (1, 7), (1, 33), (1, 96), (2, 16), (2, 8), (3, 1), (3, 85), (4, 40), (5, 4), (7, 5),
    (8, 4), (8, 128), (12, 80), (15, 3), (16, 2), (16, 33), (16, 64), (24, 4), (31, 2), (32, 1),
    (32, 8), (32, 32), (33, 1), (33, 7), (47, 8), (48, 3), (63, 5), (64, 4), (64, 16), (85, 3),
    (96, 2), (100, 1), (100, 10), (127, 8), (128, 8), (129, 3), (160, 6), (256, 1), (300, 3),
    (333, 2), (500, 2), (512, 2), (544, 1), (999, 1), (1000, 1), (1024, 1), (1, 1024), (2, 512),
    (3, 341), (5, 200),
]  # fmt: skip
ALL_SHAPES = sorted({(x, y) for x in range(1, 65) for y in range(1, 9)} | set(SHAPES))
FEW_SHAPES = [(8, 5), (48, 3), (256, 2), (32, 20)]


def pointer(dtype: str, name: str, is_read: bool = False) -> Parameter:
    qualifier = "const " if is_read else ""
    text = f"{qualifier}{CUDA_TYPES[dtype]} *__restrict__ {name}"
    return Parameter(text, ParameterKind.ARRAY, name, is_read_only=is_read)


def source_of(kernels: Iterable[tuple[Launch, str]], functions: Iterable[str]) -> CudaSource:
    """Return the source of the *kernels*, each a launch and the function's body."""
    texts, launches = [], []
    for launch, body in kernels:
        declarations = ", ".join(p.declaration for p in launch.parameters)
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        cluster = f"__cluster_dims__(1, 1, {launch.cluster}) " if launch.cluster > 1 else ""
        texts.append(
            f'extern "C" __global__ void {cluster}__launch_bounds__({threads}) {launch.name}'
            f"({declarations})\n{{\n{body}\n}}\n"
        )
        launches.append(launch)
    names = [p.name for launch in launches for p in launch.parameters]
    return CudaSource(
        "".join(texts), frozenset(functions), tuple(launches), 0, (),
        alignments=dict.fromkeys(names, 16),
    )  # fmt: skip


# --- folds ---------------------------------------------------------------------------------
ROUNDS = 2
WAYS = ("x", "y", "xy")


@dataclass(frozen=True)
class FoldCase:
    """All three folds, one after the other, twice; over other values each time.

    With *lanes* they fold vectors, with *is_site* they have no barrier at their end.
    """

    dtype: str
    op: str
    tx: int
    ty: int
    lanes: int = 0
    is_site: bool = False

    @property
    def threads(self) -> int:
        return self.tx * self.ty

    def body(self, number: int) -> str:
        type_, threads = CUDA_TYPES[self.dtype], self.threads
        value = f"v{number}[(thread + iteration) % {threads}]"
        if self.lanes:
            type_ = f"tc_vec<{type_}, {self.lanes}>"
            place = f"(thread + iteration) % {threads} * {self.lanes}"
            value = f"tc_vload<{self.lanes}>(v{number} + {place})"
        lines = [
            f"const int thread = threadIdx.x + {self.tx} * threadIdx.y;",
            "int iteration = 0;",
            f"for (int round = 0; round < {ROUNDS}; round++) {{",
        ]
        for site, way in enumerate(WAYS):
            site_text = f", {site}" if self.is_site else ""
            call = f"tc_fold_{way}<tc_op_{self.op}_{self.dtype}, {self.tx}, {self.ty}{site_text}>"
            place = f"iteration * {threads} + thread"
            lines.append(f"  const {type_} value_{way} = {value};")
            lines.append(f"  const {type_} folded_{way} = {call}(value_{way});")
            if self.lanes:
                lines.append(f"  tc_vstore(r{number} + ({place}) * {self.lanes}, folded_{way});")
            else:
                lines.append(f"  r{number}[{place}] = folded_{way};")
            lines += ["  iteration++;"] + (["  __syncthreads();"] if self.is_site else [])
        return "\n".join([*lines, "}"])

    def launch(self, number: int) -> Launch:
        parameters = (
            pointer(self.dtype, f"v{number}", is_read=True), pointer(self.dtype, f"r{number}")
        )  # fmt: skip
        return Launch(f"fold_{number}", (1, 1, 1), (self.tx, self.ty, 1), 0, parameters)

    def values(self, number: int) -> Array:
        """Return values whose folds are exact in any order."""
        rng = np.random.default_rng(number)
        shape, dtype = (self.threads, max(self.lanes, 1)), NUMPY[self.dtype]
        if self.dtype == "b":
            return (rng.random(shape) < (0.02 if self.op in ("or", "max") else 0.98)).astype(dtype)
        if self.dtype in INTEGERS:
            info = np.iinfo(dtype)
            return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
        if self.op == "mul":
            return rng.choice([1.0, -1.0], shape).astype(dtype) * np.where(
                rng.random(shape) < 0.01, 2, 1
            ).astype(dtype)
        values = rng.integers(-1000, 1000, shape).astype(dtype)
        if number % 2:
            values[rng.random(shape) < 0.01] = np.nan
        return values

    def expected(self, values: Array) -> Array:
        """Return [iteration, thread, lane]."""
        ufunc, dtype = UFUNCS[self.op], values.dtype
        results = []
        for iteration in range(ROUNDS * len(WAYS)):
            grid = np.roll(values, -iteration, axis=0).reshape(self.ty, self.tx, -1)
            axes = {"x": (1,), "y": (0,), "xy": (0, 1)}[WAYS[iteration % len(WAYS)]]
            # A ufunc reduces one axis at a time, in its own type only if told.
            folded = grid
            for axis in axes:
                folded = ufunc.reduce(folded, axis=axis, dtype=dtype, keepdims=True)
            results.append(np.broadcast_to(folded, grid.shape).reshape(self.threads, -1))
        return np.stack(results)


def check_folds(run: Run, cases: list[FoldCase]) -> None:
    kernels = [(case.launch(number), case.body(number)) for number, case in enumerate(cases)]
    functions = {f"tc_op_{case.op}_{case.dtype}" for case in cases} | {"tc_fold_x", "tc_vload"}
    arrays: dict[str, Array] = {}
    for number, case in enumerate(cases):
        arrays[f"v{number}"] = values = case.values(number)
        arrays[f"r{number}"] = np.zeros((ROUNDS * len(WAYS), *values.shape), values.dtype)
    with np.errstate(all="ignore"):
        expected = [case.expected(arrays[f"v{n}"]) for n, case in enumerate(cases)]
    run(source_of(kernels, functions), arrays)
    wrong = [
        case
        for number, case in enumerate(cases)
        if not np.array_equal(
            arrays[f"r{number}"], expected[number], equal_nan=case.dtype in FLOATS
        )
    ]
    assert not wrong, wrong[:5]


# --- folds of the lanes of a vector ----------------------------------------------------------
def check_lane_folds(run: Run) -> None:
    """Two operators, two types, three widths; any values, some special; all lanes, and some."""
    rng = np.random.default_rng(1)
    bodies, functions, arrays, expected = [], set(), {}, {}
    parameters: list[Parameter] = []
    threads = 256
    every = [(op, t, n) for op in ("max", "min") for t in HALVES for n in (2, 4, 8)]
    for number, (op, dtype, width) in enumerate(every):
        name = f"tc_v{op}_{dtype}"
        functions |= {name, "tc_vload"}
        values = rng.normal(size=(threads, width)).astype(NUMPY[dtype])
        special = np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1e-7, -1e-7], np.float32)
        chosen = rng.random(values.shape) < 0.2
        values[chosen] = rng.choice(special, chosen.sum()).astype(NUMPY[dtype])
        values[0], values[1] = -np.inf, np.inf
        x, y = f"x{number}", f"y{number}"
        arrays |= {x: values, y: np.zeros(threads, NUMPY[dtype])}
        expected[y] = UFUNCS[op].reduce(values.astype(np.float32), axis=1)
        parameters += [pointer(dtype, x, is_read=True), pointer(dtype, y)]
        loaded = f"tc_vload<{width}>({x} + {width} * threadIdx.x)"
        bodies.append(f"  {y}[threadIdx.x] = {name}({loaded});")
        some = f"some{number}"  # of the lanes thread % (width + 1) to width - 2
        present = np.arange(width) >= np.arange(threads)[:, None] % (width + 1)
        present &= np.arange(width) < width - 1
        nothing = -np.inf if op == "max" else np.inf
        lanes = np.where(present, values.astype(np.float32), nothing)
        arrays[some], expected[some] = arrays[y].copy(), UFUNCS[op].reduce(lanes, axis=1)
        parameters.append(pointer(dtype, some))
        bounds = f"threadIdx.x % {width + 1}, {width - 2}"
        bodies.append(f"  {some}[threadIdx.x] = {name}({loaded}, {bounds});")
    launch = Launch("lanes", (1, 1, 1), (threads, 1, 1), 0, tuple(parameters))
    run(source_of([(launch, "\n".join(bodies))], functions), arrays)
    for y, want in expected.items():
        np.testing.assert_array_equal(arrays[y].astype(np.float32), want)


# --- arg folds -----------------------------------------------------------------------------
@dataclass(frozen=True)
class ArgCase:
    """All three arg folds of one block; a few threads have no candidate."""

    dtype: str
    op: str
    tx: int
    ty: int
    index: str = "i64"

    @property
    def threads(self) -> int:
        return self.tx * self.ty

    def body(self, number: int) -> str:
        lines = [f"const int thread = threadIdx.x + {self.tx} * threadIdx.y;"]
        for iteration, way in enumerate(WAYS):
            call = f"tc_argfold_{way}<tc_better_{self.op}_{self.dtype}, {self.tx}, {self.ty}>"
            place = f"{iteration * self.threads} + thread"
            lines += [
                f"const auto best_{way} = {call}(v{number}[thread], i{number}[thread]);",
                f"r{number}[{place}] = best_{way}.value;",
                f"j{number}[{place}] = best_{way}.index;",
            ]
        return "\n".join(lines)

    def launch(self, number: int) -> Launch:
        parameters = (
            pointer(self.dtype, f"v{number}", is_read=True),
            pointer(self.index, f"i{number}", is_read=True),
            pointer(self.dtype, f"r{number}"), pointer(self.index, f"j{number}"),
        )  # fmt: skip
        return Launch(f"arg_{number}", (1, 1, 1), (self.tx, self.ty, 1), 0, parameters)

    def values(self, number: int) -> tuple[Array, Array]:
        rng = np.random.default_rng(number)
        values = rng.integers(0, 2 if self.dtype == "b" else 9, self.threads)
        stored = values.astype(NUMPY[self.dtype])
        if self.dtype in FLOATS and number % 2:
            stored[rng.random(self.threads) < 0.05] = np.nan
        indices = rng.permutation(self.threads).astype(NUMPY[self.index])
        indices[rng.random(self.threads) < 0.1] = -1
        return stored, indices

    def rank(self, pair: tuple[Any, int]) -> tuple[bool, float, int]:
        value, index = pair
        if value != value:
            return False, 0, index
        return True, value if self.op == "min" else -value, index

    def best(self, values: Array, indices: Array) -> tuple[Any, int]:
        there = [(v, int(i)) for v, i in zip(values.tolist(), indices, strict=True) if i >= 0]
        return min(there, key=self.rank, default=(None, -1))

    def expected(self, values: Array, indices: Array) -> list[tuple[Any, int]]:
        """Return the pair of every thread, way after way."""
        xs, ys = np.arange(self.threads) % self.tx, np.arange(self.threads) // self.tx
        results = []
        for group in (ys, xs, 0 * xs):
            bests = {g: self.best(values[group == g], indices[group == g]) for g in set(group)}
            results += [bests[g] for g in group]
        return results


def check_arg_folds(run: Run, cases: list[ArgCase]) -> None:
    kernels = [(case.launch(number), case.body(number)) for number, case in enumerate(cases)]
    functions = {f"tc_better_{case.op}_{case.dtype}" for case in cases} | {"tc_argfold_x"}
    arrays: dict[str, Array] = {}
    for number, case in enumerate(cases):
        arrays[f"v{number}"], arrays[f"i{number}"] = case.values(number)
        for result, of in (("r", "v"), ("j", "i")):
            arrays[f"{result}{number}"] = np.repeat(0 * arrays[f"{of}{number}"], len(WAYS))
    run(source_of(kernels, functions), arrays)
    for number, case in enumerate(cases):
        expected = case.expected(arrays[f"v{number}"], arrays[f"i{number}"])
        assert arrays[f"j{number}"].tolist() == [index for _, index in expected], case
        for got, (want, index) in zip(arrays[f"r{number}"].tolist(), expected, strict=True):
            assert index < 0 or got == want or (got != got and want != want), case


# --- atomics -------------------------------------------------------------------------------
CELLS, BLOCKS, BLOCK = 5, 3, 70


def check_atomics(run: Run, pairs: list[tuple[str, str]]) -> None:
    """Many threads update few cells, whose neighbours others update."""
    kernels, arrays, expected = [], {}, {}
    for number, (dtype, op) in enumerate(pairs):
        parameters = (
            pointer(dtype, f"p{number}"), pointer(dtype, f"v{number}", is_read=True)
        )  # fmt: skip
        launch = Launch(f"atomic_{number}", (BLOCKS, 1, 1), (BLOCK, 1, 1), 0, parameters)
        body = (
            f"const int thread = threadIdx.x + {BLOCK} * blockIdx.x;\n"
            f"tc_atomic_{op}_{dtype}(p{number} + thread % {CELLS}, v{number}[thread]);"
        )
        kernels.append((launch, body))
        cells, values = _atomic_values(dtype, op, number)
        want = cells.copy()
        with np.errstate(all="ignore"):
            for cell in range(CELLS):
                for value in values[cell::CELLS]:
                    want[cell] = UFUNCS[op](want[cell], value)
        arrays |= {f"p{number}": cells, f"v{number}": values}
        expected[number] = want
    run(source_of(kernels, {f"tc_atomic_{op}_{dtype}" for dtype, op in pairs}), arrays)
    for number, (dtype, op) in enumerate(pairs):
        got, want = arrays[f"p{number}"], expected[number]
        is_float = dtype in (*FLOATS, *NARROW_FLOATS)
        if is_float:
            got, want = got.astype(np.float64), want.astype(np.float64)
        assert np.array_equal(got, want, equal_nan=is_float), (dtype, op, got, want)


def _atomic_values(dtype: str, op: str, seed: int) -> tuple[Array, Array]:
    rng, type_, count = np.random.default_rng(seed), NUMPY[dtype], BLOCKS * BLOCK
    if dtype == "b":
        rare = op in ("or", "max")
        values = (rng.random(count) < (0.01 if rare else 0.99)).astype(type_)
        return np.full(CELLS, not rare, type_), values
    if dtype in INTEGERS:
        info = np.iinfo(type_)
        draws = rng.integers(info.min, info.max, count + CELLS, type_, endpoint=True)
        return draws[:CELLS], draws[CELLS:] | (op == "mul")
    if op == "mul":
        values = rng.choice([1.0, -1.0], count) * np.where(rng.random(count) < 0.02, 2, 1)
    else:
        values = rng.integers(-2, 3, count).astype(float)
        if type_.itemsize == 1:  # whose integers are exact up to 8 or 16
            values *= rng.random(count) < 0.05
    cells = np.arange(CELLS, dtype=float) - 2
    if op in ("min", "max"):
        # NaNs of both signs, there before and coming in; infinities; zeros of both signs.
        values = rng.normal(size=count)
        values[7], values[13] = -np.inf, np.inf
        values[[21, 38]] = np.copysign(np.nan, 1), np.copysign(np.nan, -1)
        cells[[0, 4]] = np.copysign(np.nan, -1), np.copysign(np.nan, 1)
    return cells.astype(type_), values.astype(type_)
