"""The target "cuda": kernels for an NVIDIA GPU, on device arrays or, through copies, on NumPy's.

One executable may be called with arrays of any library and device; for each signature there is a
:class:`~tcdsl.runtime.cuda.call.DeviceCall`, made at its first call.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tcdsl.codegen.cuda.source import CudaSource
from tcdsl.costmodel.chip import Chip
from tcdsl.errors import (
    MIXED_DEVICES,
    WRONG_DEVICE,
    TCError,
)
from tcdsl.executable.base import (
    Bound,
    Executable,
    Run,
    dump_stages,
    gaps_of,
    integers_of,
    sizes_of_key,
)
from tcdsl.executable.faults import error_of
from tcdsl.lang.size_class import Bounds
from tcdsl.lang.types.head import Extents
from tcdsl.options import Options
from tcdsl.records import dataclass
from tcdsl.runtime.arrays import CPU, NUMPY, PYTHON, ArraySpec, describe, row_major
from tcdsl.runtime.cache import default_cache, key_of
from tcdsl.runtime.cuda import cublas, cudnn, libcuda
from tcdsl.runtime.cuda.call import DeviceCall
from tcdsl.runtime.cuda.device import Context, context_for, primary_context
from tcdsl.runtime.cuda.host_call import run_on_host_arrays
from tcdsl.runtime.cuda.libraries import library
from tcdsl.runtime.cuda.module import CudaProgram, Manifest
from tcdsl.runtime.cuda.operands import Operand
from tcdsl.runtime.cuda.sized_calls import SizedCalls, why_not_sized
from tcdsl.runtime.fitting import require_count, require_shape, require_type
from tcdsl.runtime.imports import late_import
from tcdsl.runtime.launch import Fault
from tcdsl.runtime.lazy_defs import SizedDef
from tcdsl.runtime.nvrtc import (
    CudaCompiler,
    begin_cuda,
    cuda_flags,
    find_cuda_compiler,
    start_nvrtc,
)
from tcdsl.runtime.results import Results
from tcdsl.runtime.warm_path import remember, signature
from tcdsl.version import build_identity

if TYPE_CHECKING:
    from tcdsl.driver import Compiled

Specs = Mapping[str, ArraySpec]

_HOST_LIBRARIES = (NUMPY, PYTHON)  # those whose arrays are copied to the device and back


class CudaExecutable(Executable):
    """Kernels for one architecture."""

    def __init__(
        self,
        sized: SizedDef,
        specs: Specs,
        options: Options,
        program: CudaProgram,
        bounds: Bounds,
    ) -> None:
        # Of open sizes the manifest has the first: others have shapes of their own.
        shapes = sized.special.shapes if bounds else program.manifest.shapes
        self._extents = Extents(sized.sizes, shapes)
        super().__init__(sized, self._extents, specs, "cuda", options)
        self.program = program
        self.bounds = bounds
        self._is_home_host = is_on_host(specs)
        self._has_no_arrays = all(specs[name].is_number for name in self.head.inputs)
        self._calls: dict[Any, DeviceCall | None] = {}  # by signature; None: host arrays

    # --- what it shows ---------------------------------------------------------------------

    @cached_property
    def stages(self) -> Mapping[str, str]:
        return self._stages(self.program.manifest.stages)

    @property
    def kernels(self) -> tuple[Mapping[str, Any], ...]:
        """One entry a kernel: name, grid, block, bytes of dynamic shared memory, and why.

        A memset has its name, its bytes and why.
        """
        integers = self._integers()
        return tuple(launch.at(integers).described() for launch in self.program.manifest.launches)

    def at(self, sized: SizedDef, specs: Specs) -> "CudaExecutable":
        """Return this code at other values of its open sizes, within its bounds."""
        return CudaExecutable(sized, specs, self.options, self.program, self.bounds)

    def _compiled_again(self) -> "Compiled[CudaSource]":
        with late_import():
            from tcdsl.driver import compile_to_cuda
            from tcdsl.lang.request import Request

        alignments = {name: spec.alignment for name, spec in self.specs.items()}
        strides = gaps_of(self.head, self.specs, self.bounds)
        request = Request(
            self.comprehension, self.special, strides, self.options, alignments, self.bounds
        )
        return compile_to_cuda(request, self._chip())

    def _chip(self) -> Chip:
        return gpu_for(primary_context(ordinal_of(self.specs)), self.options)

    # --- calls -----------------------------------------------------------------------------

    def __call__(self, *args: Any, out: Any = None) -> Any:
        return self._run_arrays(self._arrays(args), out)

    def _run_arrays(self, args: Sequence[Any], out: Any) -> Any:
        call = self._call_for(args, out)
        if call is None:
            return super().run(super().fitted(args), out)
        return call.run(args, out)

    def run(self, inputs: Sequence[Any], out: Any = None) -> Any:
        call = None if self._is_home_host else self._call_for(inputs)
        return super().run(inputs, out) if call is None else call.run(inputs, out)

    def runner(self, args: Sequence[Any]) -> Run:
        if self._has_no_arrays:
            return self._run_arrays
        call = self._call_for(args)
        return super().runner(args) if call is None else call.run

    def sized_calls(self, args: Sequence[Any], *, is_dense: bool) -> SizedCalls | None:
        call = None if self._has_no_arrays or not self.bounds else self._call_for(args)
        if call is None or call.quick is None or why_not_sized(self, call) is not None:
            return None
        loaded = self.program.loaded(call.context)
        return SizedCalls(self, self._sized, call.quick, loaded, is_dense=is_dense)

    def fitted(self, args: Sequence[Any]) -> Sequence[Any]:
        return super().fitted(args) if self._call_for(args) is None else args

    def views(self, args: Sequence[Any]) -> Any:
        return super().views(args) if self._is_home_host else args

    def bind(self, *args: Any, out: Any = None) -> Bound:
        arrays = self._arrays(args)
        call = self._call_for(arrays, out)
        if call is None:
            return super().bind(*args, out=out)
        return DeviceBound(self, call.bind(arrays, out))

    def launch(self, inputs: Sequence[Any], results: Sequence[Any]) -> None:
        c = self.head
        arrays = dict(zip(c.inputs, inputs, strict=True))
        arrays |= dict(zip(c.outputs, results, strict=True))
        read_first = {*self._updated, *self.results.needed}
        written = [name for name in c.outputs if name not in read_first]
        integers = self._integers()
        loaded = self.program.loaded(primary_context()).at(integers)
        run_on_host_arrays(loaded, arrays, written, c.outputs, integers)

    def _integers(self) -> list[int]:
        return integers_of(self.program.manifest.integers, self._extents.sizes, self.specs)

    # --- the first call of a signature ---------------------------------------------------------

    def _call_for(self, args: Sequence[Any], out: Any = None) -> DeviceCall | None:
        """Return the call for arguments like *args*, or None for host arrays.

        Where no argument is an array, *out* decides where the arrays are.

        :raises ShapeError: they do not fit this code.
        """
        first = self._first_of(out) if self._has_no_arrays else None
        key = signature(args) if first is None else signature((*args, first))
        if key not in self._calls:
            specs = self._described(args)
            if first is not None:
                call = self._new_call(args, specs, first, describe(first, "out"))
            elif is_on_host(specs):
                call = None
            else:
                call = self._new_call(args, specs, *_first_array(args, specs))
            return remember(self._calls, key, call)
        return self._calls[key]

    def _first_of(self, out: Any) -> Any:
        """Return the first array of *out* that is in a device's memory, or None."""
        arrays = out if isinstance(out, (tuple, list)) else [out]
        for x in arrays[: len(self.head.outputs)]:
            with suppress(TCError):  # the call will say what is wrong with it
                if x is not None and describe(x, "out").device.startswith("cuda"):
                    return x
        return None

    def _described(self, args: Sequence[Any]) -> dict[str, ArraySpec]:
        c = self.head
        require_count(c, args)
        specs = {}
        for name, arg in zip(c.inputs, args, strict=True):
            specs[name] = describe(arg, f"argument {name!r}")
            require_type(c, name, specs[name])
            require_shape(c, name, self.specs[name].shape, specs[name].shape)
        require_one_device(specs)
        return specs

    def _new_call(
        self, args: Sequence[Any], specs: Specs, first: Any, home: ArraySpec
    ) -> DeviceCall:
        """Return the call on the device and with the library of *first*, an array like *home*."""
        c, name = self.head, home.library
        chosen = library(name)
        context = context_for(chosen.pointer(first), ordinal_of({"": home}))
        if context.gpu.arch != self.program.manifest.arch:
            raise WRONG_DEVICE(
                what=f"an argument ({context.gpu.arch})", device=context.name,
                target=f"cuda for {self.program.manifest.arch}",
            )  # fmt: skip
        operands = [
            self._operand(input_name, arg, specs[input_name])
            for input_name, arg in zip(c.inputs, args, strict=True)
        ]
        results = Results(c, self._extents, name)
        loaded = self.program.loaded(context).at(self._integers())
        owners = [None if specs[i].is_number else specs[i].library for i in c.inputs]
        libraries = [
            (library(one), tuple(n for n, owner in enumerate(owners) if owner == one))
            for one in dict.fromkeys((name, *owners))
            if one is not None
        ]
        return DeviceCall(c, results, operands, self._integers(), loaded, libraries)

    def _operand(self, name: str, arg: Any, spec: ArraySpec) -> Operand:
        compiled = self.specs[name]
        is_updated = name in self._updated
        fits = (compiled.is_contiguous and spec.is_contiguous) or compiled.strides == spec.strides
        alignment = self.program.manifest.alignments.get(name, 1)
        is_read = not spec.is_number and not is_updated
        return Operand(
            name, self.head.tensors[name].dtype, spec, compiled,
            _no_pointer if spec.is_number else library(spec.library).pointer, is_updated,
            needs_copy=is_read and not (fits and spec.alignment >= alignment),
            is_negated=spec.library == "torch" and arg.is_neg(),
        )  # fmt: skip


def _first_array(args: Sequence[Any], specs: Specs) -> tuple[Any, ArraySpec]:
    pairs = zip(args, specs.values(), strict=True)
    return next((arg, spec) for arg, spec in pairs if not spec.is_number)


def _no_pointer(x: Any) -> int:
    raise AssertionError("a number has no memory")


class DeviceBound(Bound):
    """A call on device arrays, fixed."""

    def __init__(self, executable: Executable, call: Callable[[], Any]) -> None:
        self._executable = executable
        self._call = call

    def __call__(self) -> Any:
        return self._call()


# --- devices -------------------------------------------------------------------------------


def is_on_host(specs: Specs) -> bool:
    """Return whether no argument is in a device's memory."""
    return all(spec.device == CPU for spec in specs.values())


def ordinal_of(specs: Specs) -> int:
    """Return the number of the device that the arguments are on; 0 for those of the host."""
    for spec in specs.values():
        if spec.device.startswith("cuda"):
            return int(spec.device.partition(":")[2] or 0)
    return 0


def require_one_device(specs: Specs) -> None:
    """Raise a TargetError unless all arrays are on one GPU, or all are NumPy's."""
    arrays = {name: spec for name, spec in specs.items() if not spec.is_number}
    if len({spec.device for spec in arrays.values()}) > 1:
        places = ", ".join(f"{name!r} on {spec.device}" for name, spec in arrays.items())
        raise MIXED_DEVICES(places=places)
    for name, spec in arrays.items():
        is_host_array = spec.device == CPU and spec.library in _HOST_LIBRARIES
        if not is_host_array and not spec.device.startswith("cuda"):
            raise WRONG_DEVICE(what=f"argument {name!r}", device=spec.device, target="cuda")


# --- building ------------------------------------------------------------------------------

_programs: dict[str, CudaProgram] = {}  # by key: loaded code is shared by all executables


def forget_programs() -> None:
    """Let the next executables look for their code in the disk cache, as in a new process."""
    _programs.clear()


def cuda_executable(
    sized: SizedDef, specs: Specs, options: Options, bounds: Bounds
) -> CudaExecutable:
    """Return the executable, from this process, the disk cache, or compiled.

    :arg bounds: of the sizes that it leaves open.
    :raises TargetError: CUDA is not available, or the arguments are on several devices.
    :raises CannotOpenError: there is no code for all values in *bounds*.
    """
    require_one_device(specs)
    context = primary_context(ordinal_of(specs))
    if is_on_host(specs):  # they are copied anyway
        specs = {n: replace(s, strides=row_major(s.shape)) for n, s in specs.items()}
    program = _program(sized, specs, options, context, bounds)
    return CudaExecutable(sized, specs, options, program, bounds)


def _program(
    sized: SizedDef, specs: Specs, options: Options, context: Context, bounds: Bounds
) -> CudaProgram:
    c = sized.head
    strides = gaps_of(c, specs, bounds)
    alignments = {name: spec.alignment for name, spec in specs.items()}
    compiler, gpu = find_cuda_compiler(libcuda.driver_version()[0]), gpu_for(context, options)
    key = key_of(
        kind="cuda",
        build=build_identity(),
        source=c.source.text,
        name=c.name,
        types={n: [t.dtype.name, *t.dims] for n, t in c.tensors.items()},
        # They determine the shapes, for which isl is needed.
        sizes=sizes_of_key(sized.sizes, bounds),
        strides={n: list(s) for n, s in strides.items()},
        alignments=alignments,
        options=options.to_json(),
        compiler=compiler.identity,
        flags=list(cuda_flags(fast_math=options.fast_math)),
        gpu=asdict(replace(gpu, sources=())),
    )
    known = _programs.get(key)
    if known is not None:
        return known

    def error(fault: Fault) -> TCError:
        return error_of(c, manifest.sites, fault, specs)

    cache = default_cache()
    entry = cache.get(key)
    if entry is not None:
        with suppress(KeyError, ValueError, TypeError):
            manifest = Manifest.from_json(entry.manifest["program"])
            dump_stages(c, manifest.stages)
            return remember(_programs, key, CudaProgram(entry.code, manifest, error))
    special = sized.special  # at first, since it may raise
    start_nvrtc(compiler, gpu.arch)  # while the program is planned
    layout = Layout(strides, alignments, bounds)
    compiled, code_of = _begun(sized, layout, options, gpu, compiler)
    dump_stages(c, compiled.stages)
    source, code = compiled.source, code_of()
    manifest = Manifest(
        gpu.arch, source.launches, source.workspace_bytes, source.sites, source.integers,
        source.alignments, compiled.stages, special.shapes, source.rooms,
    )  # fmt: skip
    if not compiled.is_fallback:  # the next process may have more time, or a tcdsl without the bug
        cache.put(key, code, {"program": manifest.to_json()})
        sized.definition.program.keep()
    return remember(_programs, key, CudaProgram(code, manifest, error))


def gpu_for(context: Context, options: Options) -> Chip:
    """Return the chip of *context*, with the libraries whose calls *options* let a plan have."""
    if options.libraries is not True:
        return context.gpu
    known = {"cublas": cublas, "cudnn": cudnn}
    loaded = tuple(name for name, module in known.items() if module.is_loaded())
    return replace(context.gpu, libraries=loaded) if loaded else context.gpu


@dataclass(frozen=True, slots=True)
class Layout:
    """What code knows of its arguments' memory, and of the sizes that it leaves open."""

    strides: Mapping[str, tuple[int | None, ...]]
    alignments: Mapping[str, int]
    bounds: Bounds


def _begun(
    sized: SizedDef, layout: Layout, options: Options, gpu: Chip, compiler: CudaCompiler
) -> tuple["Compiled[CudaSource]", Callable[[], bytes]]:
    """Return the CUDA of *sized*, verified, and what waits for the code that is made of it."""
    # Imported here so that a cached program starts without the polyhedral part.
    with late_import():
        from tcdsl.codegen.device.cuda import header_text, parts_for
        from tcdsl.driver import compile_to_cuda, with_decisions
        from tcdsl.lang.request import Request

    begun: list[Callable[[], bytes]] = []

    def begin(printed: CudaSource) -> None:
        text = header_text(parts_for(printed.functions)) + printed.text
        arch = printed.arch(gpu.arch)
        begun.append(begin_cuda(text, arch, fast_math=options.fast_math, compiler=compiler))

    request = Request(
        sized.comprehension, sized.special, layout.strides, options, layout.alignments,
        layout.bounds,
    )  # fmt: skip
    compiled = compile_to_cuda(request, gpu, begin)
    return with_decisions(compiled, "cuda", gpu), begun[-1]
