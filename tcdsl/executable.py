"""An executable: one comprehension, compiled for certain types, sizes and strides."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tcdsl.costmodel.machine import Cpu
from tcdsl.errors import OUT_OF_RANGE, TARGET_MISSING, warn
from tcdsl.interp.oracle import evaluate
from tcdsl.lang.comprehension import Comprehension, Specialisation
from tcdsl.options import Options
from tcdsl.runtime.arrays import NUMPY, ArraySpec, NDArray, as_numpy, overlaps, require_cpu
from tcdsl.runtime.c_compiler import (
    c_flags,
    compile_shared,
    cpu_identity,
    find_compiler,
    why_no_compiler,
)
from tcdsl.runtime.cache import default_cache, key_of
from tcdsl.runtime.cpu import CpuProgram, Manifest
from tcdsl.runtime.fitting import Fitting, require_type
from tcdsl.runtime.launch import Fault, thread_count
from tcdsl.runtime.results import Results
from tcdsl.runtime.warm_path import address
from tcdsl.settings import settings
from tcdsl.version import build_identity


class Executable(ABC):
    """Callable code; ``source``, ``schedule``, ``kernels`` and ``explain()`` show how it works."""

    def __init__(
        self,
        comprehension: Comprehension,
        special: Specialisation,
        specs: Mapping[str, ArraySpec],
        target: str,
        options: Options,
    ) -> None:
        self.comprehension = comprehension
        self.special = special
        self.specs = dict(specs)
        self.target = target
        self.options = options
        self._fitting = Fitting(comprehension, self.specs)
        library = next((s.library for s in specs.values() if not s.is_number), NUMPY)
        self.results = Results(comprehension, special, library)
        self._is_single_array = library == NUMPY and len(comprehension.outputs) == 1
        # Inputs that the call also updates: their contents are copied to the output first.
        self._updated = {n for n in comprehension.outputs if comprehension.tensors[n].is_input}

    @property
    def opened(self) -> tuple[str, ...]:
        """The sizes that are open in this code."""
        return ()

    # --- what it shows ---------------------------------------------------------------------

    @property
    def stages(self) -> Mapping[str, str]:
        """Every stage of the compilation as text: comprehension, scop, schedule, tree, c."""
        return {}

    @property
    def source(self) -> str:
        """The generated code, without the device library."""
        return self.stages.get("c", "")

    @property
    def schedule(self) -> str:
        """The loops of every kernel."""
        return self.stages.get("schedule", "")

    @property
    def kernels(self) -> tuple[Mapping[str, Any], ...]:
        """One entry a kernel: its name, its loops, and why it has this shape."""
        return ()

    def explain(self) -> str:
        """Return why each kernel looks as it does."""
        lines = [f"target {self.target}, {len(self.kernels)} kernel(s)"]
        if self.opened:
            lines.append(f"open sizes: {', '.join(self.opened)}")
        for kernel in self.kernels:
            lines.append(f"kernel {kernel['name']}")
            lines += [f"  {reason}" for reason in kernel.get("why", ())]
        return "\n".join([*lines, "", self.schedule])

    def __repr__(self) -> str:
        return f"<tcdsl.Executable {self.comprehension.name} for {self.target}>"

    # --- calls -----------------------------------------------------------------------------

    def __call__(self, *args: Any, out: Any = None) -> Any:
        """Run on arrays of the types and shapes that it was compiled for.

        :raises ShapeError: an array does not fit; arrays of other strides are copied.
        """
        return self.run(self.fitted(args), out)

    def run(self, inputs: Sequence[Any], out: Any = None) -> Any:
        """Run on arrays that fit (:meth:`fitted`), such as those that the plan was made for."""
        if out is None and not self.results.needed:
            return self._run_fresh(inputs)
        return self._run_into(inputs, self.results.given(out))

    def fitted(self, args: Sequence[Any]) -> Sequence[Any]:
        """Return *args* as the code can read them, after checking that it may.

        :raises ShapeError: another number of arguments, another type or shape.
        """
        return self._fitting.fitted(args)

    def views(self, args: Sequence[Any]) -> list[NDArray]:
        """Return *args* as NumPy arrays of the declared types."""
        return self._fitting.views(args)

    def bind(self, *args: Any, out: Any = None) -> "Bound":
        """Return the call with its arrays fixed: calling it again launches and nothing else.

        It sees what the arrays hold when it is called.
        """
        return Bound(self, args, self.fitted(args), self.results.given(out))

    @abstractmethod
    def launch(self, inputs: Sequence[Any], results: Sequence[NDArray]) -> None:
        """Compute *results* from *inputs*; memory is shared only where a result is its input."""

    def bound_launch(
        self, args: Sequence[Any], fitted: Sequence[Any], results: list[NDArray]
    ) -> Callable[[], None]:
        """Return the launch on these arrays; *fitted* is what *args* are as the code reads them."""
        given = dict(zip(self.comprehension.outputs, results, strict=True))

        def launch() -> None:
            self._run_into(self.fitted(args), given)

        return launch

    def _run_fresh(self, inputs: Sequence[Any]) -> Any:
        results = self.results.fresh()
        if self._updated:
            self._fill_updated(inputs, results)
        self.launch(inputs, results)
        if self._is_single_array:
            return results[0]
        return self.results.delivered({}, results)

    def _run_into(self, inputs: Sequence[Any], given: Mapping[str, Any]) -> Any:
        """Run into the caller's arrays; where they share memory with an input, through copies."""
        plain = [value if isinstance(value, np.ndarray) else as_numpy(value) for value in inputs]
        views = self.results.views(given)
        results = [
            self._safe_result(name, view, plain)
            for name, view in zip(self.comprehension.outputs, views, strict=True)
        ]
        self._fill_updated(plain, results)
        self.launch(plain, results)
        for view, result in zip(views, results, strict=True):
            if view is not result:
                np.copyto(view, result)
        return self.results.delivered(given, views)

    def _safe_result(self, name: str, view: NDArray, inputs: Sequence[NDArray]) -> NDArray:
        """Return *view* if the kernel may write it directly, else a copy of it."""
        needs_copy = not view.flags.c_contiguous
        for input_name, value in zip(self.comprehension.inputs, inputs, strict=True):
            is_itself = input_name == name and _is_same(value, view)
            if not is_itself and overlaps(view, value):
                needs_copy = True
        return np.array(view, order="C", copy=True) if needs_copy else view

    def _fill_updated(self, inputs: Sequence[Any], results: Sequence[NDArray]) -> None:
        names = self.comprehension.inputs
        for name, result in zip(self.comprehension.outputs, results, strict=True):
            if name in self._updated:
                source = inputs[names.index(name)]
                array = source if isinstance(source, np.ndarray) else as_numpy(source)
                if not _is_same(array, result):
                    np.copyto(result, array)

    def __reduce__(self) -> Any:
        raise TypeError("compiled code cannot be pickled: pickle the function, and compile again")


def _is_same(a: NDArray, b: NDArray) -> bool:
    """Return whether two arrays are the same elements in the same places."""
    return address(a) == address(b) and a.shape == b.shape and a.strides == b.strides


class Bound:
    """A call with its arrays fixed; calling it launches, and returns the outputs."""

    def __init__(
        self,
        executable: Executable,
        args: Sequence[Any],
        fitted: Sequence[Any],
        given: Mapping[str, Any],
    ) -> None:
        self._executable = executable
        self._given = given
        self._views = executable.results.views(given)
        # The arguments themselves too: their fitted forms may be copies, made anew by each call.
        self._launch = executable.bound_launch(args, fitted, self._views)
        self._outputs = executable.results.delivered(given, self._views)
        self._is_shared = executable.results.shares_memory()

    def __call__(self) -> Any:
        self._launch()
        if self._is_shared:
            return self._outputs
        return self._executable.results.delivered(self._given, self._views)

    def __repr__(self) -> str:
        return f"<tcdsl.Bound {self._executable.comprehension.name}>"


class ReferenceExecutable(Executable):
    """The oracle as a target."""

    def launch(self, inputs: Sequence[Any], results: Sequence[NDArray]) -> None:
        named = {
            name: value if isinstance(value, np.ndarray) else as_numpy(value)
            for name, value in zip(self.comprehension.inputs, inputs, strict=True)
        }
        start = dict(zip(self.comprehension.outputs, results, strict=True))
        values = evaluate(self.comprehension, self.special, named, start)
        for name, result in start.items():
            np.copyto(result, values[name])


class CpuExecutable(Executable):
    """Compiled C."""

    def __init__(
        self,
        comprehension: Comprehension,
        special: Specialisation,
        specs: Mapping[str, ArraySpec],
        options: Options,
        program: CpuProgram,
    ) -> None:
        super().__init__(comprehension, special, specs, "cpu", options)
        self.program = program
        names = [*comprehension.inputs, *comprehension.outputs]
        last = {name: position for position, name in enumerate(names)}
        # Of a tensor that is input and output, the pointer is the output's.
        self._order = [last[name] for name in program.manifest.pointers if name]

    @cached_property
    def stages(self) -> Mapping[str, str]:
        return dict(self.program.manifest.stages)

    @property
    def kernels(self) -> tuple[Mapping[str, Any], ...]:
        return self.program.manifest.kernels

    @property
    def opened(self) -> tuple[str, ...]:
        return self.program.manifest.opened

    def at(self, special: Specialisation, specs: Mapping[str, ArraySpec]) -> "CpuExecutable":
        """Return this code at other values of its open sizes and strides.

        The layouts must be those that it was compiled for (see :func:`layout_of`).
        """
        integers = _integers(self.program.manifest, special, specs)
        program = self.program.at(integers)
        return CpuExecutable(self.comprehension, special, specs, self.options, program)

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
                fault = program.kernel([*pointers, address(workspace)], program.integers)
            finally:
                program.give_back(workspace)
        if fault is not None:
            self._raise_fault(fault)

    def bound_launch(
        self, args: Sequence[Any], fitted: Sequence[Any], results: list[NDArray]
    ) -> Callable[[], None]:
        if not self._may_fix_pointers(args, fitted, results):
            return super().bound_launch(args, fitted, results)
        values = [*map(as_numpy, fitted), *results]
        pointers = [address(values[position]) for position in self._order]
        if self.program.needs_workspace:
            values.append(self.program.take_workspace())
            pointers.append(address(values[-1]))
        bound = self.program.kernel.bind(pointers, self.program.integers, (values, args))

        def launch() -> None:
            fault = bound()
            if fault is not None:
                self._raise_fault(fault)

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
            if not is_number and not _is_same(plain, as_numpy(arg)):
                return False
            if any(overlaps(result, plain) for result in results):
                return False
        return True

    def _raise_fault(self, fault: Fault) -> None:
        tensor, _ = self.program.manifest.sites[fault.site]
        raise OUT_OF_RANGE(
            self.comprehension.source, self.comprehension.tensors[tensor].span,
            index=fault.index, tensor=tensor, extent=fault.extent,
        )  # fmt: skip


def require_arguments(
    comprehension: Comprehension, specs: Mapping[str, ArraySpec], target: str
) -> None:
    """Raise a TCError unless every argument has its declared type and lies where *target* runs."""
    for name, spec in specs.items():
        require_type(comprehension, name, spec)
        if target in ("cpu", "reference", "emulate"):
            require_cpu(spec, f"argument {name!r}")


def build(
    comprehension: Comprehension,
    special: Specialisation,
    specs: Mapping[str, ArraySpec],
    target: str,
    options: Options,
    opened: Collection[str] = (),
) -> Executable:
    """Return the executable for *target*, from the disk cache if it is there.

    :arg opened: sizes that the code leaves open; its method ``at`` gives them other values.
    :raises CannotOpenError: there is no such code.
    """
    require_arguments(comprehension, specs, target)
    if target == "reference":
        return ReferenceExecutable(comprehension, special, specs, target, options)
    if target != "cpu":
        raise TARGET_MISSING(target=target, why="this version has the targets cpu and reference")
    reason = why_no_compiler()
    if reason is not None:
        _warn_once(
            f"there is no usable C compiler ({reason}): programs run on NumPy, slowly; "
            "install gcc, and see 'tcdsl doctor'"
        )
        return ReferenceExecutable(comprehension, special, specs, "reference", options)
    program = _cpu_program(comprehension, special, specs, options, opened)
    return CpuExecutable(comprehension, special, specs, options, program)


_warned: set[str] = set()


def _warn_once(message: str) -> None:
    """Warn once a process, whatever the warning filters are."""
    if message not in _warned:
        _warned.add(message)
        warn(message)


def _cpu_program(
    comprehension: Comprehension,
    special: Specialisation,
    specs: Mapping[str, ArraySpec],
    options: Options,
    opened: Collection[str],
) -> CpuProgram:
    layouts = {name: layout_of(comprehension, name, s, opened) for name, s in specs.items()}
    strides = {name: steps for name, steps in layouts.items() if steps is not None}
    compiler = find_compiler()
    flags = c_flags(compiler, fast_math=options.fast_math)
    if not options.vectorise:
        flags = (*flags, "-fno-tree-vectorize", "-fno-tree-slp-vectorize")
    threads = thread_count(options.threads)
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
        threads=threads,
        compiler=compiler.identity,
        flags=list(flags),
        cpu=cpu_identity(),
    )
    cache = default_cache()
    entry = cache.get(key)
    if entry is not None:
        with contextlib.suppress(KeyError, ValueError, TypeError):
            manifest = Manifest.from_json(entry.manifest["program"])
            _dump(comprehension, manifest.stages)
            return CpuProgram(entry.code, manifest, _integers(manifest, special, specs))
    # Imported here so that a cached program starts without the polyhedral part.
    from tcdsl.driver import compile_to_c

    compiled = compile_to_c(comprehension, special, strides, options, Cpu(threads), opened)
    _dump(comprehension, compiled.stages)
    code = compile_shared(compiled.c.text, flags, compiler=compiler)
    manifest = Manifest(
        compiled.c.pointers,
        compiled.c.workspace_bytes,
        compiled.c.sites,
        compiled.stages,
        tuple({"name": k.name, "why": list(k.why)} for k in compiled.plan.kernels),
        compiled.c.integers,
    )
    if not compiled.is_fallback:  # the next process may have more time, or a tcdsl without the bug
        cache.put(key, code, {"program": manifest.to_json()})
    return CpuProgram(code, manifest, _integers(manifest, special, specs))


def layout_of(
    c: Comprehension, name: str, spec: ArraySpec, opened: Collection[str]
) -> tuple[int | None, ...] | None:
    """Return what code for *spec* knows of its strides; None: dense and row-major.

    With open sizes a stride is open too, unless it is 0 or 1, on which vectors depend.  Of an input
    that is also an output the code sees the output, which is dense.
    """
    if spec.is_contiguous or name in c.outputs:
        return None
    if not opened:
        return spec.strides
    return tuple(stride if stride in (0, 1) else None for stride in spec.strides)


def _integers(
    manifest: Manifest, special: Specialisation, specs: Mapping[str, ArraySpec]
) -> list[int]:
    """Return the values of the open sizes and strides, in the order that the code expects."""
    return [
        special.sizes[name] if dim < 0 else specs[name].strides[dim]
        for name, dim in manifest.integers
    ]


def _dump(comprehension: Comprehension, stages: Mapping[str, str]) -> None:
    """Write every stage under ``TCDSL_DUMP``, if that is set."""
    folder = settings().dump
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stage, text in stages.items():
            (folder / f"{comprehension.name}.{stage}.txt").write_text(text, encoding="utf-8")
    except OSError as error:
        _warn_once(f"the stages cannot be written to TCDSL_DUMP={folder}: {error.strerror}")
