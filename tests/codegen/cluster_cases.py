"""Kernels that try the device library's clusters and asynchronous copies, as ``cuda_cases`` does.

To be loaded after ``cuda_cases``.
"""

from dataclasses import dataclass

import numpy as np
from cuda_cases import (
    CUDA_TYPES,
    FLOATS,
    NUMPY,
    UFUNCS,
    ArgCase,
    Array,
    FoldCase,
    Run,
    pointer,
    source_of,
)

from tcdsl.codegen.cuda.source import Launch, Parameter

CLUSTERS = 3  # along x of the grid
ROUNDS = 2
# Threads of a block, blocks of a cluster: slots fewer than lanes, no power of two, more than lanes.
FEW_SHAPES = [(32, 2), (96, 2), (64, 8), (32, 16), (64, 5)]
ALL_SHAPES = [*FEW_SHAPES, (1024, 2), (160, 4), (256, 4), (128, 8), (1024, 8), (128, 16)]

# Of columns, threads along x and y, blocks of a cluster: warps of several columns and of one, fewer
# threads along y than blocks, one of them, tall columns, no power of two.
FEW_COLUMNS = [(2, 48, 2), (5, 3, 8), (8, 1, 4), (32, 20, 2), (4, 6, 3)]
# Of all threads of blocks with threads along y, and of what all threads of a block have alike: the
# same.
FEW_BLOCKS = [(8, 20, 4), (16, 14, 2), (32, 5, 8), (64, 1, 16), (16, 4, 5)]

ALL_COLUMNS = [*FEW_COLUMNS, (2, 512, 8), (4, 112, 8), (1, 64, 4), (32, 32, 2), (3, 21, 16)]


def _launch(
    name: str, tx: int, blocks: int, parameters: tuple[Parameter, ...], ty: int = 1
) -> Launch:
    dims = (1, 1, blocks)
    return Launch(name, (CLUSTERS, 1, blocks), (tx, ty, 1), 0, parameters, cluster_dims=dims)


@dataclass(frozen=True)
class ClusterCase:
    """Each cluster folds, twice or in turns; over another cluster's values the next time.

    With *lanes* they fold vectors, with *ty* they fold columns of as many threads in each block;
    with *way* "xyc" all of these threads, with "c" what the block's first thread has.
    """

    dtype: str
    op: str
    tx: int
    blocks: int
    lanes: int = 0
    ty: int = 0
    is_numbered: bool = False  # each round has slots of its own
    way: str = ""
    rounds: int = ROUNDS
    in_turns: bool = False  # every second round has the same slots

    @property
    def threads(self) -> int:
        return self.tx * max(1, self.ty) * self.blocks

    @property
    def columns(self) -> int:
        """How many results a cluster has, next to one another in a row of its threads."""
        return self.tx if self.ty and not self.way else 1

    def body(self, number: int) -> str:
        type_ = CUDA_TYPES[self.dtype]
        load, store = f"v{number}[from]", f"r{number}[to] = folded;"
        if self.lanes:
            type_ = f"tc_vec<{type_}, {self.lanes}>"
            load = f"tc_vload<{self.lanes}>(v{number} + from * {self.lanes})"
            store = f"tc_vstore(r{number} + to * {self.lanes}, folded);"
        way, ty = (self.way or "yc", self.ty) if self.ty else ("xc", 1)
        fold = f"tc_fold_{way}<tc_op_{self.op}_{self.dtype}, {self.tx}, {ty}, {self.blocks}"
        thread = f"const int thread = threadIdx.x + {self.tx} * (threadIdx.y + {ty} * blockIdx.z);"

        given = f"thread / {self.tx * ty} * {self.tx * ty}" if way == "c" else "thread"

        def one_round(site: str, turns: str = "") -> tuple[str, ...]:
            return (
                f"  const int from = (blockIdx.x + round) % {CLUSTERS} * {self.threads} + {given};",
                f"  const int to = (round * {CLUSTERS} + blockIdx.x) * {self.threads} + thread;",
                f"  const {type_} folded = {fold}{site}>({load}{turns});",
                f"  {store}",
                "}",
            )

        if self.is_numbered:
            begin, end = (f"tc_cluster_{call}<{ROUNDS}>();" for call in ("begin", "end"))
            rounds = [
                ("{", f"  const int round = {iteration};", *one_round(f", {iteration}"))
                for iteration in range(ROUNDS)
            ]
            return "\n".join((begin, thread, *(line for lines in rounds for line in lines), end))
        head = f"for (int round = 0; round < {self.rounds}; round++) {{"
        if self.in_turns:
            begin, end = (f"tc_cluster_{call}<1, true>();" for call in ("begin", "end"))
            turns = "uint32_t turns = 0;"
            return "\n".join((begin, turns, thread, head, *one_round(", 0", ", turns"), end))
        return "\n".join(("tc_cluster_begin();", thread, head, *one_round(""), "tc_cluster_end();"))

    def launch(self, number: int) -> Launch:
        parameters = (
            pointer(self.dtype, f"v{number}", is_read=True), pointer(self.dtype, f"r{number}")
        )  # fmt: skip
        return _launch(f"fold_{number}", self.tx, self.blocks, parameters, max(1, self.ty))

    def values(self, number: int) -> Array:
        """Return [cluster, thread, lane] values whose folds are exact in any order."""
        flat = FoldCase(self.dtype, self.op, CLUSTERS * self.threads, 1, self.lanes)
        return flat.values(number).reshape(CLUSTERS, self.threads, -1)

    def expected(self, values: Array) -> Array:
        """Return [round, cluster, thread, lane]."""
        by_column = values.reshape(CLUSTERS, -1, self.columns, values.shape[-1])
        given = by_column[:, :: self.tx * self.ty] if self.way == "c" else by_column
        folded = UFUNCS[self.op].reduce(given, axis=1, dtype=values.dtype, keepdims=True)
        whole = np.broadcast_to(folded, by_column.shape).reshape(values.shape)
        return np.stack([np.roll(whole, -iteration, axis=0) for iteration in range(self.rounds)])


def check_folds(run: Run, cases: list[ClusterCase]) -> None:
    kernels = [(case.launch(number), case.body(number)) for number, case in enumerate(cases)]
    functions = {f"tc_op_{case.op}_{case.dtype}" for case in cases}
    functions |= {"tc_fold_xc", "tc_fold_yc", "tc_fold_xyc", "tc_fold_c", "tc_vload"}
    arrays: dict[str, Array] = {}
    for number, case in enumerate(cases):
        arrays[f"v{number}"] = values = case.values(number)
        arrays[f"r{number}"] = np.zeros((case.rounds, *values.shape), values.dtype)
    with np.errstate(all="ignore"):
        expected = [case.expected(arrays[f"v{n}"]) for n, case in enumerate(cases)]
    run(source_of(kernels, functions), arrays)
    for number, case in enumerate(cases):
        is_float = case.dtype in FLOATS
        assert np.array_equal(arrays[f"r{number}"], expected[number], equal_nan=is_float), case


@dataclass(frozen=True)
class ArgClusterCase:
    """One arg fold of each cluster; a few threads have no candidate."""

    dtype: str
    op: str
    tx: int
    blocks: int
    index: str = "i64"
    is_numbered: bool = False

    @property
    def flat(self) -> ArgCase:
        """The values of one cluster."""
        return ArgCase(self.dtype, self.op, self.tx * self.blocks, 1, self.index)

    def body(self, number: int) -> str:
        better = f"tc_better_{self.op}_{self.dtype}"
        site, sites = (", 0", "<1>") if self.is_numbered else ("", "")
        call = f"tc_argfold_xc<{better}, {self.tx}, 1, {self.blocks}{site}>"
        return (
            f"tc_cluster_begin{sites}();\n"
            f"const int at = (blockIdx.x * {self.blocks} + blockIdx.z) * {self.tx} + threadIdx.x;\n"
            f"const auto best = {call}(v{number}[at], i{number}[at]);\n"
            f"r{number}[at] = best.value;\nj{number}[at] = best.index;\ntc_cluster_end{sites}();"
        )

    def launch(self, number: int) -> Launch:
        parameters = (
            pointer(self.dtype, f"v{number}", is_read=True),
            pointer(self.index, f"i{number}", is_read=True),
            pointer(self.dtype, f"r{number}"), pointer(self.index, f"j{number}"),
        )  # fmt: skip
        return _launch(f"arg_{number}", self.tx, self.blocks, parameters)


def check_arg_folds(run: Run, cases: list[ArgClusterCase]) -> None:
    kernels = [(case.launch(number), case.body(number)) for number, case in enumerate(cases)]
    functions = {f"tc_better_{case.op}_{case.dtype}" for case in cases} | {"tc_argfold_xc"}
    arrays: dict[str, Array] = {}
    for number, case in enumerate(cases):
        drawn = [case.flat.values(CLUSTERS * number + cluster) for cluster in range(CLUSTERS)]
        arrays[f"v{number}"] = np.stack([values for values, _ in drawn])
        arrays[f"i{number}"] = np.stack([indices for _, indices in drawn])
        arrays[f"r{number}"] = np.zeros_like(arrays[f"v{number}"])
        arrays[f"j{number}"] = np.zeros_like(arrays[f"i{number}"])
    run(source_of(kernels, functions), arrays)
    for number, case in enumerate(cases):
        for cluster in range(CLUSTERS):
            given = arrays[f"v{number}"][cluster], arrays[f"i{number}"][cluster]
            want, index = case.flat.best(*given)
            assert (arrays[f"j{number}"][cluster] == index).all(), case
            got = arrays[f"r{number}"][cluster]
            assert index < 0 or ((got == want) | (got != got) & (want != want)).all(), case


def check_sync(run: Run, tx: int, blocks: int) -> None:
    """What a block stored, to global memory, all blocks of its cluster see after a barrier."""
    n = tx * blocks
    body = (
        "tc_cluster_begin();\n"
        f"const int thread = threadIdx.x + {tx} * blockIdx.z;\n"
        f"int64_t *const mine = t + {n} * blockIdx.x;\n"
        "for (int k = 1; k < 4; k++) {\n"
        "  mine[thread] = k * v[thread];\n"
        "  tc_cluster_sync();\n"
        f"  r[({CLUSTERS} * (k - 1) + blockIdx.x) * {n} + thread] = mine[{n - 1} - thread];\n"
        "  tc_cluster_sync();\n"
        "}\n"
        "tc_cluster_end();"
    )
    parameters = (pointer("i64", "v", is_read=True), pointer("i64", "t"), pointer("i64", "r"))
    launch = _launch("sync", tx, blocks, parameters)
    v = np.arange(n, dtype=np.int64)
    arrays = {"v": v, "t": np.zeros((CLUSTERS, n), np.int64), "r": np.zeros((3, CLUSTERS, n), "i8")}
    run(source_of([(launch, body)], {"tc_cluster_sync"}), arrays)
    want = np.arange(1, 4)[:, None, None] * v[::-1]
    assert np.array_equal(arrays["r"], np.broadcast_to(want, (3, CLUSTERS, n)))


COPIES = [
    ("f32", 4), ("f32", 2), ("f32", 1), ("f64", 2), ("f64", 1), ("u8", 16), ("u8", 8), ("u8", 4),
    ("u8", 2), ("u8", 1), ("u16", 2), ("u16", 1), ("i64", 2),
]  # fmt: skip


def check_copies(run: Run) -> None:
    """Two tiles in turn: one arrives while the other is read."""
    kernels, arrays, n_tiles = [], {}, 5
    for number, (dtype, n) in enumerate(COPIES):
        size = 64 * n
        body = (
            f"__shared__ TC_VARIABLE({CUDA_TYPES[dtype]}, tile, [2][{size}], 16);\n"
            f"tc_copy_async<{n}>(tile[0] + {n} * threadIdx.x, v{number} + {n} * threadIdx.x);\n"
            f"for (int k = 0; k < {n_tiles}; k++) {{\n"
            "  tc_copy_wait();\n"
            "  __syncthreads();\n"
            f"  if (k + 1 < {n_tiles})\n"
            f"    tc_copy_async<{n}>(tile[(k + 1) % 2] + {n} * threadIdx.x,\n"
            f"                     v{number} + (k + 1) * {size} + {n} * threadIdx.x);\n"
            f"  for (int l = 0; l < {n}; l++)\n"
            f"    r{number}[k * {size} + {n} * threadIdx.x + l] =\n"
            f"        tile[k % 2][{size - 1} - {n} * threadIdx.x - l];\n"
            "}"
        )
        parameters = (pointer(dtype, f"v{number}", is_read=True), pointer(dtype, f"r{number}"))
        kernels.append((Launch(f"copy_{number}", (1, 1, 1), (64, 1, 1), 0, parameters), body))
        arrays[f"v{number}"] = np.arange(n_tiles * size).astype(NUMPY[dtype]).reshape(n_tiles, size)
        arrays[f"r{number}"] = np.zeros_like(arrays[f"v{number}"])
    run(source_of(kernels, {"tc_copy_async"}), arrays)
    for number, case in enumerate(COPIES):
        assert np.array_equal(arrays[f"r{number}"], arrays[f"v{number}"][:, ::-1]), case
