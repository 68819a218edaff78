"""What the tests of all layers share: the pipeline's stages, batches of kernels, golden files.

A test that compiles C costs 0.2 s and more; ``batch`` puts the kernels of many programs and sizes
into one translation unit, so that hundreds of them cost a second or two.  The same goes for CUDA
on the emulator: ``cuda_unit``, ``emulated``, ``check_emulated``.
"""

import os
import re
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tcdsl.codegen.c.printer import CSource
from tcdsl.codegen.cuda.source import CudaSource
from tcdsl.codegen.device.c import PARTS, header_text, parts_for
from tcdsl.costmodel import alignment_shift, kept_rows, machine, reductions
from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.costmodel.machine import this_cpu
from tcdsl.driver import Compiled, compile_to_c, compile_to_cuda
from tcdsl.emulator import EmulatedProgram, emulated_programs
from tcdsl.emulator.cxx import why_no_cxx_compiler
from tcdsl.errors import CompileError, EmulationError, TCError, TCWarning
from tcdsl.interp.arithmetic import Array
from tcdsl.lang.comprehension import Comprehension, Specialisation
from tcdsl.lang.ranges.binding import bind_sizes
from tcdsl.lang.ranges.specialiser import specialise
from tcdsl.lang.request import Request
from tcdsl.lang.syntax.parser import parse_program
from tcdsl.lang.types.sema import analyse
from tcdsl.options import Options
from tcdsl.poly.lowering import lower_comprehension
from tcdsl.poly.scop import Scop
from tcdsl.rewrites.scop import row_terms
from tcdsl.runtime import calibrated
from tcdsl.runtime.c_compiler import c_flags, compile_shared, find_compiler
from tcdsl.runtime.launch import Fault, Kernel, load
from tcdsl.runtime.nvrtc import why_no_cuda_compiler
from tcdsl.source import Source
from tcdsl.strategies import (
    block_sizes,
    catalogue,
    contracted,
    gpu_grouping,
    problem,
    row_registers,
)
from tcdsl.strategies.templates import column, tile_mma, tile_simt
from tcdsl.testing.comparison import check
from tcdsl.testing.random_inputs import values
from tests.codegen.ptx import stale_loads_of

_MARGIN = 256  # elements on both sides of every argument that the code must leave alone
_ENTRY = "tcdsl_entry"


# Arrays of NumPy go to a GPU where there is one; the tests mean the CPU, in child processes too.
# Whoever sets another target runs them all on that one.
os.environ.setdefault("TCDSL_TARGET", "cpu")


@pytest.fixture(autouse=True)
def default_target(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tests marked ``gpu`` see the default: the device on which the arrays are."""
    if request.node.get_closest_marker("gpu"):
        monkeypatch.delenv("TCDSL_TARGET", raising=False)


@pytest.fixture(scope="session", autouse=True)
def planned_cpu(pytestconfig: pytest.Config) -> Generator[None, None, None]:
    """Let all plans be for the package's own CPU, whose texts the tests know, on any processor.

    ``pytest --instructions "avx2 fma"``: for a CPU with these.  What this processor is called, by
    which its calibrated numbers are kept, is another name.  Child processes see the processor.
    """
    names = frozenset(pytestconfig.getoption("instructions").split())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "_instructions", lambda: names)
        patch.setattr(calibrated, "cpu_name", lambda: "the CPU of the tests")
        yield


@pytest.fixture
def avx2(planned_cpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let plans be for a CPU with AVX2 alone, whose vectors have 32 bytes."""
    monkeypatch.setattr(machine, "_instructions", lambda: frozenset(("avx2", "fma")))


def pytest_runtest_setup() -> None:
    """Let no test see PyTorch's random numbers or compiled code of the one before it.

    Dynamo opens a size at its second value, for a line of code, whichever test ran it first.
    """
    torch = sys.modules.get("torch")
    if hasattr(torch, "manual_seed"):  # some tests put something else in its place
        torch.manual_seed(0)
    if dynamo := sys.modules.get("torch._dynamo"):
        dynamo.reset()


@pytest.hookimpl(tryfirst=True)  # before -m leaves tests out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """``slow_but("a", "b")``: of a parametrised test all but the cases [a] and [b] are ``slow``.

    All tests of a file that asks for PyTorch are marked ``torch``.
    """
    for item in items:
        if _asks_for_torch(item.path):
            item.add_marker(pytest.mark.torch)
        mark = item.get_closest_marker("slow_but")
        if mark is not None and _case_of(item) not in mark.args:
            item.add_marker(pytest.mark.slow)


@cache
def _asks_for_torch(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    return re.search(r'importorskip\("[\w.]*\btorch', text) is not None


def _case_of(item: pytest.Item) -> str:
    return item.name.partition("[")[2][:-1]


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """A case that ``slow_but`` names and the test does not have is an error: it would be slow.

    ``one_in(n)``: of a parametrised test one case of n, and those named so, are not ``fuzz``.
    """
    made = yield
    items = [i for i in made if isinstance(i, pytest.Item)] if isinstance(made, list) else []
    marks = (item.get_closest_marker("slow_but") for item in items)
    named = {case for mark in marks if mark is not None for case in mark.args}
    if unknown := named - {_case_of(item) for item in items}:
        test = items[0].name.partition("[")[0]
        raise collector.CollectError(f"slow_but: {test} has no case {sorted(unknown)}")
    for number, item in enumerate(items):
        mark = item.get_closest_marker("one_in")
        if mark is not None and number % mark.args[0] and _case_of(item) not in named:
            item.add_marker(pytest.mark.fuzz)
    return made


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regold", action="store_true", help="write the golden files anew")
    parser.addoption(
        "--instructions", default="", help="plan for a CPU with these, as /proc/cpuinfo has them"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """A function: the text must be that of ``golden/<name>.txt`` beside the test's module."""
    folder = Path(str(request.node.path)).parent / "golden"

    def compare(name: str, text: str) -> None:
        path = folder / f"{name}.txt"
        if request.config.getoption("--regold"):
            folder.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), (
            f"{path.name} is missing: run pytest --regold, and read what it wrote"
        )
        assert text == path.read_text(encoding="utf-8"), "if it is meant so: pytest --regold"

    return compare


@pytest.fixture
def brief_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let products have tiles that are so brief that rows take half of their time."""
    monkeypatch.setattr(catalogue, "BRIEF_SECONDS", 0.0)


def comprehension_of(source: str) -> Comprehension:
    """Return the last def of *source*."""
    return analyse(parse_program(Source(source)))[-1]


def specialisation_of(c: Comprehension, shapes: Sequence[tuple[int, ...]]) -> Specialisation:
    return specialise(c, bind_sizes(c, dict(zip(c.inputs, shapes, strict=True))))


@pytest.fixture(scope="session")
def lower() -> Callable[..., Scop]:
    """``lower(source, *shapes)``: the scop of the last def for inputs of these shapes."""

    def lower_(source: str, *shapes: tuple[int, ...], check_gathers: bool = True) -> Scop:
        c = comprehension_of(source)
        return lower_comprehension(c, specialisation_of(c, shapes), {}, check_gathers)

    return lower_


@pytest.fixture(scope="session")
def compiled() -> Callable[..., Compiled]:
    """``compiled(source, *shapes)``: the verified plan, its C and its stages."""

    def compiled_(
        source: str,
        *shapes: tuple[int, ...],
        threads: int = 4,
        options: Options | None = None,
    ) -> Compiled:
        c = comprehension_of(source)
        special = specialisation_of(c, shapes)
        return compile_to_c(Request(c, special, {}, options or Options()), this_cpu(threads))

    return compiled_


@dataclass(frozen=True)
class Unit:
    """One kernel of a batch: a comprehension at its sizes, and the C for it."""

    comprehension: Comprehension
    special: Specialisation
    c: CSource


@dataclass(frozen=True)
class Loaded:
    """A unit that can be called, and so be given to ``tcdsl.testing.check``."""

    unit: Unit
    kernel: Kernel

    @property
    def comprehension(self) -> Comprehension:
        return self.unit.comprehension

    def specialise(self, *inputs: Any) -> Specialisation:
        return specialisation_of(self.comprehension, [np.shape(array) for array in inputs])

    def run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Fault | None:
        """Compute *outputs* in memory of their own, between margins that must stay untouched."""
        c, source = self.comprehension, self.unit.c
        arrays = dict(zip(c.inputs, inputs, strict=True))
        for name, array in zip(c.outputs, outputs, strict=True):
            if name in c.inputs:
                array[...] = arrays[name]
            arrays[name] = array
        rooms = {name: _Room(array) for name, array in arrays.items()}
        # Scratch memory holds what another call left there; NaNs, where read as floats.
        workspace = _Room(np.full(source.workspace_bytes, 0xFF, np.uint8))
        addresses = [(rooms[name] if name else workspace).address for name in source.pointers]
        fault = self.kernel(addresses, self.kernel.pack_integers(()))
        for name, room in (*rooms.items(), ("the workspace", workspace)):
            assert room.is_intact(), f"{c.name} wrote outside of {name}"
        for name, array in zip(c.outputs, outputs, strict=True):
            array[...] = rooms[name].array
        return fault

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


class _Room:
    """A dense copy of an array, aligned as real ones are, between margins of known bytes."""

    def __init__(self, array: Array) -> None:
        margin = _MARGIN * max(1, array.itemsize)
        size = array.nbytes
        raw = np.full(size + 2 * margin + 64, 0xA5, np.uint8)
        start = margin + -(raw.ctypes.data + margin) % 64
        self._raw, self._start, self._size = raw, start, size
        self.address = raw.ctypes.data + start
        self.array = raw[start : start + size].view(array.dtype).reshape(array.shape)
        self.array[...] = array

    def is_intact(self) -> bool:
        before, after = self._raw[: self._start], self._raw[self._start + self._size :]
        return bool((before == 0xA5).all() and (after == 0xA5).all())


@pytest.fixture(scope="session")
def unit() -> Callable[..., Unit]:
    """``unit(source, *shapes)``: one kernel, to be put into a batch."""

    def unit_(
        source: str,
        *shapes: tuple[int, ...],
        threads: int = 4,
        options: Options | None = None,
    ) -> Unit:
        c = comprehension_of(source)
        special = specialisation_of(c, shapes)
        request = Request(c, special, {}, options or Options())
        return Unit(c, special, compile_to_c(request, this_cpu(threads)).source)

    return unit_


@pytest.fixture(scope="session")
def batch() -> Callable[[Sequence[Unit]], list[Loaded]]:
    """A function that compiles many units as one file, with little optimisation."""
    return compile_batch


def compile_batch(units: Sequence[Unit]) -> list[Loaded]:
    """Return the units as callables; ``-O1`` still vectorises the loops marked ``omp simd``."""
    if not units:
        return []
    compiler = find_compiler()
    bodies = [
        re.sub(rf"\b({_ENTRY}|tcdsl_kernels|tcdsl_thread\d+)\b", rf"\g<1>_{number}", unit.c.body)
        for number, unit in enumerate(units)
    ]
    used = frozenset[str]().union(*(unit.c.functions for unit in units))
    text = "\n".join([header_text(parts_for(used)), _prelude(units[0].c), *bodies])
    flags = (*c_flags(compiler), "-O1", *_poison_flags())
    code = compile_shared(text, flags, compiler=compiler)
    return [
        Loaded(unit, load(code, f"{_ENTRY}_{number}", len(unit.c.pointers)))
        for number, unit in enumerate(units)
    ]


@cache
def _poison_flags() -> tuple[str, ...]:
    """Return the flags that fill local arrays with a pattern, if the compiler has them."""
    flags = ("-ftrivial-auto-var-init=pattern",)
    try:
        compile_shared("int x;", ("-shared", "-fPIC", *flags))
    except CompileError:
        return ()
    return flags


def _prelude(c: CSource) -> str:
    """Return what stands between the device library and the function in *c*."""
    above = c.text.removesuffix(c.body)
    headers = [header_text(parts) for parts in _all_parts()]
    return above[max(len(header) for header in headers if above.startswith(header)) :]


def _all_parts() -> list[frozenset[str]]:
    optional = [part for part in PARTS if part != "core"]
    return [
        frozenset({"core", *(part for bit, part in enumerate(optional) if number >> bit & 1)})
        for number in range(2 ** len(optional))
    ]


@pytest.fixture(scope="session")
def check_all() -> Callable[..., None]:
    """``check_all([(source, inputs), ...])``: every program, in one batch, against the oracle.

    Inputs are arrays, or shapes, for which random values of the declared types are drawn.
    """

    def check_all_(
        cases: Sequence[tuple[str, Sequence[Any]]],
        *,
        threads: int = 4,
        options: Options | None = None,
        out: Mapping[str, Any] | None = None,
    ) -> None:
        units: dict[Any, Unit] = {}  # by what is compiled: inputs of some cases differ in values
        arguments, failures = [], []
        for number, (source, given) in enumerate(cases):
            c = comprehension_of(source)
            inputs = arrays_for(c, given, number)
            shapes = [array.shape for array in inputs]
            key = source, tuple(shapes)
            arguments.append((key, inputs))
            if key in units:
                continue
            special = specialisation_of(c, shapes)
            try:
                done = compile_to_c(
                    Request(c, special, {}, options or Options()), this_cpu(threads)
                )
            except (TCError, TCWarning) as error:
                failures.append(f"{shapes}: {error}\n{source}")
                arguments.pop()
                continue
            units[key] = Unit(c, special, done.source)
        loaded = dict(zip(units, compile_batch([*units.values()]), strict=True))
        for key, inputs in arguments:
            try:
                check(loaded[key], *inputs, out=out, options=options)
            except AssertionError as error:
                failures.append(f"{list(key[1])}: {error}\n{key[0]}")
        assert not failures, "\n".join(failures)

    return check_all_


def arrays_for(c: Comprehension, given: Sequence[Any], seed: int) -> list[Array]:
    """Return *given* with every shape replaced by random values."""
    return [
        values(c.tensors[name].dtype, value, "real", 100 * seed + position)
        if isinstance(value, tuple)
        else np.asarray(value)
        for position, (name, value) in enumerate(zip(c.inputs, given, strict=True))
    ]


# --- CUDA on the emulator -------------------------------------------------------------------


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
