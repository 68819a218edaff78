"""The target "cpu": C, compiled for the sizes of a call or for all values of some."""

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tcdsl.executable.base import (
    Executable,
    Run,
    SizedCalls,
    dump_stages,
    gaps_of,
    integers_of,
    is_same,
)
from tcdsl.executable.cpu_sized import CpuSizedCalls, why_not_sized
from tcdsl.executable.faults import error_of
from tcdsl.lang.comprehension import Comprehension, Specialisation
from tcdsl.options import Options
from tcdsl.runtime.arrays import ArraySpec, NDArray, as_numpy, overlaps
from tcdsl.runtime.c_compiler import (
    begun_shared,
    c_flags,
    cpu_identity,
    find_compiler,
    without_tiles,
)
from tcdsl.runtime.cache import default_cache, key_of
from tcdsl.runtime.calibrated import cpu_of
from tcdsl.runtime.cpu import CpuProgram, Manifest
from tcdsl.runtime.cpu_call import CpuCall
from tcdsl.runtime.host_products import require_multiplied
from tcdsl.runtime.imports import late_import
from tcdsl.runtime.launch import Fault, thread_count
from tcdsl.runtime.lazy_defs import SizedDef
from tcdsl.runtime.warm_path import address, is_direct
from tcdsl.version import build_identity

if TYPE_CHECKING:
    from tcdsl.codegen.c.printer import CSource
    from tcdsl.driver import Compiled
    from tcdsl.schedule.plan import Kernel


class CpuExecutable(Executable):
    """Compiled C."""

    def __init__(
        self,
        sized: SizedDef,
        specs: Mapping[str, ArraySpec],
        options: Options,
        program: CpuProgram,
    ) -> None:
        super().__init__(sized, sized.special, specs, "cpu", options)
        self.program = program
        names = [*self.head.inputs, *self.head.outputs]
        last = {name: position for position, name in enumerate(names)}
        # Of a tensor that is input and output, the pointer is the output's.
        self._order = [last[name] for name in program.manifest.pointers if name]

    @cached_property
    def stages(self) -> Mapping[str, str]:
        return self._stages(self.program.manifest.stages)

    @property
    def kernels(self) -> tuple[Mapping[str, Any], ...]:
        return self.program.manifest.kernels

    @property
    def opened(self) -> tuple[str, ...]:
        return self.program.manifest.opened

    def at(self, sized: SizedDef, specs: Mapping[str, ArraySpec]) -> "CpuExecutable":
        """Return this code at other values of its open sizes and strides.

        The layouts must be those that it was compiled for (see
        :func:`tcdsl.runtime.fitting.layout_of`).
        """
        integers = integers_of(self.program.manifest.integers, sized.special.sizes, specs)
        program = self.program.at(integers)
        return CpuExecutable(sized, specs, self.options, program)

    def _compiled_again(self) -> "Compiled[CSource]":
        with late_import():
            from tcdsl.driver import compile_to_c
            from tcdsl.lang.request import Request

        strides = gaps_of(self.comprehension, self.specs, self.opened)
        opened = dict.fromkeys(self.opened)
        request = Request(self.comprehension, self.special, strides, self.options, opened=opened)
        return compile_to_c(request, cpu_of(thread_count(self.options.threads)))

    def runner(self, args: Sequence[Any]) -> Run:
        run = super().runner(args)
        is_torch = self.results.library == "torch" and not any(type(x) is np.ndarray for x in args)
        if not is_torch or self._updated or self.results.needed or not all(map(is_direct, args)):
            return run
        outputs = self.results.outputs
        return CpuCall(self.program, self._order, outputs, self.raise_fault, self.run).run

    def sized_calls(self, args: Sequence[Any], *, is_dense: bool) -> SizedCalls | None:
        if not is_dense:
            return None
        is_warm = isinstance(getattr(self.runner(args), "__self__", None), CpuCall)
        if not self.opened or why_not_sized(self, args, is_warm=is_warm) is not None:
            return None
        return CpuSizedCalls(self, self._sized, self._order)

    def launch(self, inputs: Sequence[Any], results: Sequence[NDArray]) -> None:
        addresses = [
            address(x) if type(x) is np.ndarray else x.data_ptr() for x in (*inputs, *results)
        ]
        pointers = [addresses[position] for position in self._order]
        program = self.program
        if not program.needs_workspace:
            fault = program.kernel(pointers, program.integers)
        else:
            workspace = program.take_workspace()
            try:
                fault = program.kernel([*pointers, workspace.address], program.integers)
            finally:
                program.give_back(workspace)
        if program.has_products:
            require_multiplied()
        if fault is not None:
            self.raise_fault(fault)

    def bound_launch(
        self, args: Sequence[Any], fitted: Sequence[Any], results: list[NDArray]
    ) -> Callable[[], None]:
        if not self._may_fix_pointers(args, fitted, results):
            return super().bound_launch(args, fitted, results)
        values = [*map(as_numpy, fitted), *results]
        pointers = [address(values[position]) for position in self._order]
        if self.program.needs_workspace:
            workspace = self.program.take_workspace()
            values.append(workspace.array)
            pointers.append(workspace.address)
        bound = self.program.kernel.bind(pointers, self.program.integers, (values, args))
        has_products = self.program.has_products

        def launch() -> None:
            fault = bound()
            if has_products:
                require_multiplied()
            if fault is not None:
                self.raise_fault(fault)

        return launch

    def _may_fix_pointers(
        self, args: Sequence[Any], fitted: Sequence[Any], results: list[NDArray]
    ) -> bool:
        """Return whether a call needs no copies, neither of arguments nor of results."""
        if self._updated or not all(result.flags.c_contiguous for result in results):
            return False
        for arg, value in zip(args, fitted, strict=True):
            plain = as_numpy(value)
            is_number = isinstance(arg, (bool, int, float, np.generic))
            if not is_number and not is_same(plain, as_numpy(arg)):
                return False
            if any(overlaps(result, plain) for result in results):
                return False
        return True

    def raise_fault(self, fault: Fault) -> NoReturn:
        """Raise what *fault* means at the sizes of this code."""
        raise error_of(self.head, self.program.manifest.sites, fault, self.specs)


def cpu_program(
    comprehension: Comprehension,
    special: Specialisation,
    specs: Mapping[str, ArraySpec],
    options: Options,
    opened: Collection[str],
) -> CpuProgram:
    strides = gaps_of(comprehension, specs, opened)
    compiler = find_compiler()
    flags = c_flags(compiler, fast_math=options.fast_math)
    if not options.vectorise:
        flags = (*flags, "-fno-tree-vectorize", "-fno-tree-slp-vectorize")
    cpu = cpu_of(thread_count(options.threads))
    key = key_of(
        kind="cpu",
        build=build_identity(),
        source=comprehension.source.text,
        name=comprehension.name,
        types={n: t.dtype.name for n, t in comprehension.tensors.items()},
        sizes={n: None if n in opened else size for n, size in special.sizes.items()},
        shapes={} if opened else {n: list(s) for n, s in special.shapes.items()},
        strides={n: list(s) for n, s in strides.items()},
        options=options.to_json(),
        chip=asdict(cpu),
        compiler=compiler.identity,
        flags=list(flags),
        cpu=cpu_identity(),
    )
    cache = default_cache()
    entry = cache.get(key)
    if entry is not None:
        with contextlib.suppress(KeyError, ValueError, TypeError):
            manifest = Manifest.from_json(entry.manifest["program"])
            dump_stages(comprehension, manifest.stages)
            integers = integers_of(manifest.integers, special.sizes, specs)
            return CpuProgram(entry.code, manifest, integers)
    # Imported here so that a cached program starts without the polyhedral part.
    with late_import():
        from tcdsl.driver import compile_to_c, with_decisions
        from tcdsl.lang.request import Request

    request = Request(comprehension, special, strides, options, opened=dict.fromkeys(opened))
    with contextlib.ExitStack() as running:  # the compiler, while the text is verified
        begun: list[Callable[[], bytes]] = []

        def begin(printed: "CSource") -> None:
            running.close()  # of a plan that proved to be wrong
            has_tiles = printed.has_tiles and cpu.vector_bytes <= 32
            own = flags if has_tiles else without_tiles(flags)
            code = begun_shared(printed.text, own, compiler=compiler)
            begun.append(running.enter_context(code))

        compiled = compile_to_c(request, cpu, begin)
        compiled = with_decisions(compiled, "cpu")
        dump_stages(comprehension, compiled.stages)
        code = begun[-1]()
    manifest = Manifest(
        compiled.source.pointers,
        compiled.source.workspace_bytes,
        compiled.source.sites,
        compiled.stages,
        tuple(map(_described, compiled.plan.kernels)),
        compiled.source.integers,
    )
    if not compiled.is_fallback:  # the next process may have more time, or a tcdsl without the bug
        cache.put(key, code, {"program": manifest.to_json()})
    return CpuProgram(code, manifest, integers_of(manifest.integers, special.sizes, specs))


def _described(kernel: "Kernel") -> dict[str, Any]:
    """Return what users are told of *kernel*."""
    told = {"library": kernel.library} if kernel.library else {}
    return {"name": kernel.name, **told, "why": list(kernel.why)}
