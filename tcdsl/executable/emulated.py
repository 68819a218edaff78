"""The target "emulate": the CUDA text of a program, run and checked on the CPU.

It is for tests, and for looking into a kernel where there is no GPU: it is slow, and finds races,
accesses out of bounds and uninitialised memory (EmulationError).
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tcdsl.codegen.cuda.source import CudaSource
from tcdsl.costmodel.chip import Chip, load_chip
from tcdsl.emulator import EmulatedProgram, compile_emulated
from tcdsl.emulator import build_identity as emulator_identity
from tcdsl.executable.base import Executable, dump_stages, gaps_of, integers_of, sizes_of_key
from tcdsl.executable.faults import error_of
from tcdsl.lang.size_class import Bounds
from tcdsl.options import Options
from tcdsl.runtime.arrays import ArraySpec, NDArray, as_numpy
from tcdsl.runtime.cache import default_cache, key_of
from tcdsl.runtime.imports import late_import
from tcdsl.runtime.lazy_defs import SizedDef
from tcdsl.version import build_identity

if TYPE_CHECKING:
    from tcdsl.driver import Compiled

Specs = Mapping[str, ArraySpec]

EMULATED_GPU = load_chip("h200")  # kernels are those of an H200


class EmulatedExecutable(Executable):
    """CUDA text as C++ on the CPU."""

    def __init__(
        self,
        sized: SizedDef,
        specs: Specs,
        options: Options,
        program: EmulatedProgram,
        stages: Mapping[str, str],
        bounds: Bounds,
    ) -> None:
        super().__init__(sized, sized.special, specs, "emulate", options)
        self.program = program
        self.bounds = bounds
        self._kept = stages

    @cached_property
    def stages(self) -> Mapping[str, str]:
        return self._stages(self._kept)

    @property
    def kernels(self) -> tuple[Mapping[str, Any], ...]:
        """One entry a kernel: name, grid, block, bytes of dynamic shared memory, and why.

        A memset has its name, its bytes and why.
        """
        integers = self._integers()
        return tuple(launch.at(integers).described() for launch in self.program.source.launches)

    def at(self, sized: SizedDef, specs: Specs) -> "EmulatedExecutable":
        """Return this code at other values of its open sizes, within its bounds."""
        return EmulatedExecutable(sized, specs, self.options, self.program, self._kept, self.bounds)

    def _compiled_again(self) -> "Compiled[CudaSource]":
        with late_import():
            from tcdsl.driver import compile_to_cuda
            from tcdsl.lang.request import Request

        strides = gaps_of(self.head, self.specs, self.bounds)
        request = Request(
            self.comprehension, self.special, strides, self.options, opened=self.bounds
        )
        return compile_to_cuda(request, EMULATED_GPU)

    def _chip(self) -> Chip:
        return EMULATED_GPU

    def launch(self, inputs: Sequence[Any], results: Sequence[NDArray]) -> None:
        c = self.head
        arrays = {n: as_numpy(value) for n, value in zip(c.inputs, inputs, strict=True)}
        arrays |= dict(zip(c.outputs, results, strict=True))
        read_first = {*self._updated, *self.results.needed}
        written = {name for name in c.outputs if name not in read_first}
        fault = self.program.run(arrays, self._integers(), written=written)
        if fault is not None:
            raise error_of(c, self.program.source.sites, fault, self.specs)

    def _integers(self) -> list[int]:
        return integers_of(self.program.source.integers, self.special.sizes, self.specs)


def emulated_executable(
    sized: SizedDef, specs: Specs, options: Options, bounds: Bounds
) -> EmulatedExecutable:
    """Return the executable, from the disk cache or compiled.

    :arg bounds: of the sizes that it leaves open.
    :raises CompileError: there is no C++ compiler.
    :raises CannotOpenError: there is no code for all values in *bounds*.
    """
    c, special = sized.comprehension, sized.special
    strides = gaps_of(c, specs, bounds)
    key = key_of(
        kind="emulate",
        build=build_identity(),
        source=c.source.text,
        name=c.name,
        types={n: t.dtype.name for n, t in c.tensors.items()},
        sizes=sizes_of_key(special.sizes, bounds),
        shapes={} if bounds else {n: list(s) for n, s in special.shapes.items()},
        strides={n: list(s) for n, s in strides.items()},
        options=options.to_json(),
        emulator=emulator_identity(),
    )
    cache = default_cache()
    entry = cache.get(key)
    if entry is not None:
        with suppress(KeyError, ValueError, TypeError):
            source = CudaSource.from_json(entry.manifest["source"])
            stages = dict(entry.manifest["stages"])
            program = EmulatedProgram(entry.code, source)
            return EmulatedExecutable(sized, specs, options, program, stages, bounds)
    with late_import():
        from tcdsl.driver import compile_to_cuda, with_decisions
        from tcdsl.lang.request import Request

    request = Request(c, special, strides, options, opened=bounds)
    compiled = compile_to_cuda(request, EMULATED_GPU)
    compiled = with_decisions(compiled, "emulate", EMULATED_GPU)
    dump_stages(c, compiled.stages)
    code = compile_emulated(compiled.source)
    if not compiled.is_fallback:
        cache.put(key, code, {"source": compiled.source.to_json(), "stages": dict(compiled.stages)})
    program = EmulatedProgram(code, compiled.source)
    return EmulatedExecutable(sized, specs, options, program, compiled.stages, bounds)
