"""Programs as CUDA on the emulator, many in one text: ``cuda_unit``, ``check_emulated``, ..."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.cuda.source import CudaSource
from tcdsl.costmodel import alignment_shift, kept_rows, reductions
from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.driver import Compiled, compile_to_cuda
from tcdsl.emulator import EmulatedProgram, emulated_programs
from tcdsl.emulator.cxx import why_no_cxx_compiler
from tcdsl.errors import EmulationError, TCError, TCWarning
from tcdsl.interp.arithmetic import Array
from tcdsl.lang.comprehension import Comprehension, Specialisation
from tcdsl.lang.request import Request
from tcdsl.options import Options
from tcdsl.rewrites.scop import row_terms
from tcdsl.runtime.launch import Fault
from tcdsl.runtime.nvrtc import why_no_cuda_compiler
from tcdsl.strategies import (
    block_sizes,
    contracted,
    gpu_grouping,
    problem,
    row_registers,
)
from tcdsl.strategies.templates import column, tile_mma, tile_simt
from tcdsl.testing.comparison import check
from tests.codegen.ptx import stale_loads_of
from tests.programs import arrays_for, comprehension_of, specialisation_of


@dataclass(frozen=True)
class CudaUnit:
    """One program of a batch for the emulator: a comprehension at its sizes, and its CUDA."""

    comprehension: Comprehension
    special: Specialisation
    done: Compiled[CudaSource]

    @property
    def source(self) -> CudaSource:
        return self.done.source


@dataclass(frozen=True)
class Emulated:
    """A unit that runs on the emulator, and can be given to ``tcdsl.testing.check``."""

    unit: CudaUnit
    program: EmulatedProgram

    @property
    def comprehension(self) -> Comprehension:
        return self.unit.comprehension

    def specialise(self, *inputs: Any) -> Specialisation:
        return self.unit.special

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Fault | None:
        """Compute *outputs*; what the program should write first is poison until it does."""
        c = self.comprehension
        arrays = dict(zip(c.inputs, inputs, strict=True))
        written = set()
        for name, array in zip(c.outputs, outputs, strict=True):
            if name in c.inputs:
                array[...] = arrays[name]
            elif not c.tensors[name].needs_out:
                written.add(name)
            arrays[name] = array
        return self.program.run(arrays, written=written)

    def __call__(
        self,
        *inputs: Any,
        out: Any = None,
        target: str | None = None,
        options: Options | None = None,
    ) -> Any:
        outputs = list(out) if isinstance(out, tuple) else [out]
        fault = self.run([np.asarray(array) for array in inputs], outputs)
        assert fault is None, f"{self.comprehension.name}: {fault}"


def cuda_unit_of(
    source: str,
    shapes: Sequence[tuple[int, ...]],
    *,
    gpu: Chip | None = None,
    options: Options | None = None,
    strides: Mapping[str, tuple[int, ...]] | None = None,
    alignments: Mapping[str, int] | None = None,
) -> CudaUnit:
    """Return the verified CUDA of the last def of *source* for inputs of these shapes."""
    c = comprehension_of(source)
    special = specialisation_of(c, shapes)
    given = {name: value for name, value in (strides or {}).items() if name not in c.outputs}
    chip = gpu or load_chip("h200")
    request = Request(c, special, given, options or Options(), alignments or {})
    return CudaUnit(c, special, compile_to_cuda(request, chip))


def emulate_all(units: Sequence[CudaUnit]) -> list[Emulated]:
    """Return the units as callables, compiled in one go."""
    if reason := why_no_cxx_compiler():
        pytest.skip(reason)
    programs = emulated_programs([unit.source for unit in units])
    return [Emulated(unit, program) for unit, program in zip(units, programs, strict=True)]


def strides_of(c: Comprehension, inputs: Sequence[Array]) -> dict[str, tuple[int, ...]]:
    """Return the strides, in elements, of the inputs that are not dense and row-major."""
    return {
        name: tuple(stride // array.itemsize for stride in array.strides)
        for name, array in zip(c.inputs, inputs, strict=True)
        if not array.flags.c_contiguous
    }


@pytest.fixture(scope="session")
def cuda_unit() -> Callable[..., CudaUnit]:
    """``cuda_unit(source, *shapes, gpu=, options=, strides=)``: the CUDA of one program."""

    def cuda_unit_(source: str, *shapes: tuple[int, ...], **choices: Any) -> CudaUnit:
        return cuda_unit_of(source, shapes, **choices)

    return cuda_unit_


@pytest.fixture(scope="session")
def emulated() -> Callable[[Sequence[CudaUnit]], list[Emulated]]:
    """A function that compiles many units for the emulator, as one text."""
    return emulate_all


@pytest.fixture
def small_chip(monkeypatch: pytest.MonkeyPatch) -> Chip:
    """A chip for which small programs are large: blocks, chunks, rows, lanes and tiles in all.

    What is worth threads, tiles or another launch begins at next to nothing.
    """
    for module, name, value in (
        (block_sizes, "BLOCK_THREADS", 32), (block_sizes, "WARP", 8), (problem, "MIN_LANES", 2),
        (reductions, "TICKET", 0.0), (reductions, "PARTIAL", 0.0), (contracted, "MIN_WORK", 1),
        (tile_mma, "MIN_WORK", 1),
        (tile_simt, "SHAPES", ((2, 4, 2, 2), (1, 1, 2, 2))), (tile_simt, "STEPS", (4, 2)),
        (gpu_grouping, "SMALL_WORK", 1), (alignment_shift, "LEAST_VECTORS", 1),
        (row_terms, "LEAST_LENGTH", 2), (kept_rows, "LONG", 8), (row_registers, "FEW_ROWS", 0),
        (column, "BLOCKS_EACH", 0),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    return replace(
        load_chip("h200"),
        multiprocessors=3,
        threads_per_multiprocessor=32,
        grid_x_blocks=7,
        grid_y_blocks=3,
        grid_z_blocks=2,
    )


@pytest.fixture(scope="session")
def check_emulated() -> Callable[..., None]:
    """``check_emulated([(source, inputs), ...])``: as ``check_all``, for CUDA on the emulator.

    Inputs are arrays, or shapes, for which random values of the declared types are drawn.  With
    *is_ptx_read* nothing may be loaded through a GPU's read-only cache that changes meanwhile: the
    emulator has no such cache.
    """

    def check_emulated_(
        cases: Sequence[tuple[str, Sequence[Any]]],
        *,
        gpu: Chip | None = None,
        options: Options | None = None,
        out: Mapping[str, Any] | None = None,
        is_ptx_read: bool = False,
    ) -> None:
        units: dict[Any, CudaUnit] = {}
        arguments, failures = [], []
        for number, (source, given) in enumerate(cases):
            c = comprehension_of(source)
            inputs = arrays_for(c, given, number)
            shapes = [array.shape for array in inputs]
            strides = strides_of(c, inputs)
            key = source, tuple(shapes), tuple(strides.items())
            arguments.append((key, inputs))
            if key in units:
                continue
            try:
                unit = cuda_unit_of(source, shapes, gpu=gpu, options=options, strides=strides)
            except (TCError, TCWarning) as error:
                failures.append(f"{shapes}: {error}\n{source}")
                arguments.pop()
                continue
            units[key] = unit
        if is_ptx_read and why_no_cuda_compiler() is None:
            assert stale_loads_of([unit.source for unit in units.values()]) == []
        programs = dict(zip(units, emulate_all([*units.values()]), strict=True))
        for key, inputs in arguments:
            try:
                check(programs[key], *inputs, out=out, options=options)
            except (AssertionError, EmulationError) as error:
                failures.append(f"{list(key[1])}: {error}\n{key[0]}")
        assert not failures, "\n".join(failures)

    return check_emulated_
