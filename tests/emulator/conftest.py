"""``emulate``: hand-written kernels on the emulator."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.cuda.source import CudaSource, Dim3, Launch, Parameter, ParameterKind
from tcdsl.emulator import EmulatedProgram, compile_emulated
from tcdsl.emulator.cxx import find_cxx_compiler, why_no_cxx_compiler


def source_of(
    text: str,
    grid: int | Dim3 = 1,
    block: int | Dim3 = 32,
    *,
    shared_bytes: int = 0,
    workspace_bytes: int = 0,
    scratch: Mapping[str, int] | None = None,
    integers: Sequence[str] = (),
    alignments: Mapping[str, int] | None = None,
    cluster: int = 1,
) -> CudaSource:
    """Return *text*'s kernels, launched in the order of the text, each with the same grid.

    With *cluster*, the grid has as many blocks along z.
    The parameters are read off the text: those in *scratch* lie in the workspace at an offset,
    *integers* names the open ones, `fault` is the fault record, all others are arrays.
    """
    offsets = scratch or {}

    def parameter(declaration: str) -> Parameter:
        name = declaration.split()[-1].lstrip("*")
        if name in offsets:
            return Parameter(declaration, ParameterKind.SCRATCH, name, offsets[name])
        if name in integers:
            return Parameter(declaration, ParameterKind.INTEGER, name, integers.index(name))
        kind = ParameterKind.FAULT if name == "fault" else ParameterKind.ARRAY
        return Parameter(declaration, kind, name, is_read_only=declaration.startswith("const "))

    launches = []
    for name, parameters in re.findall(r"__global__[^;{]*?(\w+)\(([^()]*)\)\s*\{", text):
        listed = tuple(parameter(p.strip()) for p in parameters.split(","))
        x, y, z = _dim(grid)
        shape = (x, y, z * cluster), _dim(block)
        launches.append(Launch(name, *shape, shared_bytes, listed, cluster_dims=(1, 1, cluster)))
    functions = frozenset(re.findall(r"\btc_[a-z0-9_]+", text))
    return CudaSource(
        text, functions, tuple(launches), workspace_bytes, (), (), alignments or {}
    )  # fmt: skip


def _dim(size: int | Dim3) -> Dim3:
    return (size, 1, 1) if isinstance(size, int) else size


@pytest.fixture(scope="session")
def cuda_source() -> Callable[..., CudaSource]:
    """:func:`source_of`, where there is a compiler for it."""
    if reason := why_no_cxx_compiler():
        pytest.skip(reason)
    return source_of


@pytest.fixture(scope="session")
def emulate() -> Callable[..., EmulatedProgram]:
    """``emulate(text, grid, block, ...)``: the loaded program of :func:`source_of`."""
    if reason := why_no_cxx_compiler():
        pytest.skip(reason)

    def emulate_(text: str, *sizes: Any, **options: Any) -> EmulatedProgram:
        source = source_of(text, *sizes, **options)
        return EmulatedProgram(compile_emulated(source), source)

    return emulate_


@pytest.fixture
def whole_accesses(emulate: Callable[..., EmulatedProgram]) -> None:
    """Skip where the compiler splits vectors, or moves reads, before the checks are put in."""
    if "-fno-tree-sra" not in find_cxx_compiler().flags:
        pytest.skip("this compiler changes accesses before it instruments them")


@pytest.fixture(scope="session")
def f32() -> Callable[..., np.ndarray[Any, Any]]:
    """``f32(*shape)``: random float32."""
    rng = np.random.default_rng(2026)
    return lambda *shape: rng.standard_normal(shape).astype(np.float32)
