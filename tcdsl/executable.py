"""An executable: one comprehension, compiled for certain types, sizes and strides, ready to call."""

import contextlib
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tcdsl.costmodel.machine import Cpu
from tcdsl.errors import BAD_OUT, OUT_OF_RANGE, OUT_REQUIRED, TARGET_MISSING, TCWarning
from tcdsl.interp.oracle import evaluate
from tcdsl.lang.comprehension import Comprehension, Specialisation
from tcdsl.options import Options
from tcdsl.runtime.arguments import allocate, as_input, as_output, deliver
from tcdsl.runtime.arrays import ArraySpec, NDArray, as_numpy, overlaps, require_cpu
from tcdsl.runtime.c_compiler import (
    c_flags,
    compile_shared,
    cpu_identity,
    find_compiler,
    why_no_compiler,
)
from tcdsl.runtime.cache import default_cache, key_of
from tcdsl.runtime.cpu import CpuProgram, Manifest
from tcdsl.runtime.launch import Fault, thread_count
from tcdsl.runtime.warm_path import address, is_direct
from tcdsl.settings import settings
from tcdsl.version import build_identity


class Executable:
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
        self._names = comprehension.inputs
        self._library = next(
            (s.library for s in specs.values() if not s.is_number), "numpy"
        )
        tensors = comprehension.tensors
        self._outputs = [
            (name, special.shapes[name], tensors[name].dtype) for name in comprehension.outputs
        ]
        # Inputs that the call also updates: their contents are copied to the output first.
        self._updated = {n for n in comprehension.outputs if tensors[n].is_input}
        self._needs_out = [n for n in comprehension.outputs if tensors[n].needs_out]
        self._direct: bool | None = None

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
        for kernel in self.kernels:
            lines.append(f"kernel {kernel['name']}")
            lines += [f"  {reason}" for reason in kernel.get("why", ())]
        return "\n".join([*lines, "", self.schedule])

    def __repr__(self) -> str:
        return f"<tcdsl.Executable {self.comprehension.name} for {self.target}>"

    # --- calls -----------------------------------------------------------------------------

    def __call__(self, *args: Any, out: Any = None) -> Any:
        """Run on arrays like those that it was compiled for."""
        if self._direct is None:
            self._direct = all(is_direct(arg) for arg in args)
        if self._direct:
            inputs: list[Any] = list(args)
        else:
            inputs = [
                as_input(arg, self.comprehension.tensors[name].dtype, f"argument {name!r}")
                for name, arg in zip(self._names, args, strict=True)
            ]
        if out is None and not self._needs_out:
            return self._run_fresh(inputs)
        return self._run_into(inputs, out)

    def bind(self, *args: Any, out: Any = None) -> "Bound":
        """Return the call with its arrays fixed: calling it again launches and nothing else."""
        inputs = [
            as_input(arg, self.comprehension.tensors[name].dtype, f"argument {name!r}")
            for name, arg in zip(self._names, args, strict=True)
        ]
        if out is None:
            results = [allocate(shape, dtype, name) for name, shape, dtype in self._outputs]
            given: Any = None
        else:
            given = self._given(out)
            results = [
                as_output(given[name], dtype, shape, f"out {name!r}")
                for name, shape, dtype in self._outputs
            ]
        if self._needs_out and out is None:
            self._raise_out_required()
        return Bound(self, inputs, results, given)

    def launch(self, inputs: Sequence[Any], results: Sequence[NDArray]) -> None:
        """Compute *results* from *inputs*; memory is shared only where a result is its input."""
        raise NotImplementedError  # pragma: no cover - every target has its own

    def _run_fresh(self, inputs: Sequence[Any]) -> Any:
        results = [allocate(shape, dtype, name) for name, shape, dtype in self._outputs]
        if self._updated:
            self._fill_updated(inputs, results)
        self.launch(inputs, results)
        if self._library != "numpy":
            results = [deliver(result, self._library) for result in results]
        return results[0] if len(results) == 1 else tuple(results)

    def _run_into(self, inputs: Sequence[Any], out: Any) -> Any:
        """Run into the caller's arrays; where they share memory with an input, through copies."""
        if out is None:
            self._raise_out_required()
        given = self._given(out)
        plain = [
            value if isinstance(value, np.ndarray) else as_numpy(value) for value in inputs
        ]
        views = [
            as_output(given[name], dtype, shape, f"out {name!r}")
            for name, shape, dtype in self._outputs
        ]
        results = [
            self._safe_result(name, view, plain, views)
            for (name, _, _), view in zip(self._outputs, views, strict=True)
        ]
        self._fill_updated(plain, results)
        self.launch(plain, results)
        for view, result in zip(views, results, strict=True):
            if view is not result:
                np.copyto(view, result)
        objects = [given[name] for name, _, _ in self._outputs]
        return objects[0] if len(objects) == 1 else tuple(objects)

    def _safe_result(
        self, name: str, view: NDArray, inputs: Sequence[NDArray], views: Sequence[NDArray]
    ) -> NDArray:
        """Return *view* if the kernel may write it directly, else a copy of it."""
        needs_copy = not view.flags.c_contiguous or any(
            other is not view and overlaps(view, other) for other in views
        )
        for input_name, value in zip(self._names, inputs, strict=True):
            is_itself = input_name == name and _is_same(value, view)
            if not is_itself and overlaps(view, value):
                needs_copy = True
        return np.array(view, order="C", copy=True) if needs_copy else view

    def _fill_updated(self, inputs: Sequence[Any], results: Sequence[NDArray]) -> None:
        for (name, _, _), result in zip(self._outputs, results, strict=True):
            if name in self._updated:
                source = inputs[self._names.index(name)]
                array = source if isinstance(source, np.ndarray) else as_numpy(source)
                if not _is_same(array, result):
                    np.copyto(result, array)

    def _given(self, out: Any) -> dict[str, Any]:
        names = [name for name, _, _ in self._outputs]
        if isinstance(out, Mapping):
            values = [out[name] for name in names if name in out]
        else:
            values = list(out) if isinstance(out, (tuple, list)) else [out]
        if len(values) != len(names):
            raise BAD_OUT(
                what="out", why=f"it holds {len(values)} arrays for {len(names)} outputs",
                advice=f"give one array for each of {', '.join(names)}",
            )  # fmt: skip
        return dict(zip(names, values, strict=True))

    def _raise_out_required(self) -> None:
        name = self._needs_out[0]
        raise OUT_REQUIRED(
            self.comprehension.source, self.comprehension.tensors[name].span, name=name
        )


def _is_same(a: NDArray, b: NDArray) -> bool:
    """Return whether two arrays are the same elements in the same places."""
    return address(a) == address(b) and a.shape == b.shape and a.strides == b.strides


class Bound:
    """A call with its arrays fixed; calling it launches, and returns the outputs."""

    def __init__(
        self, executable: Executable, inputs: Sequence[Any], results: Sequence[NDArray], out: Any
    ) -> None:
        self._executable = executable
        self._inputs = list(inputs)
        self._results = list(results)
        self._out = out
        self._launch = executable.bound_launch(self._inputs, self._results)

    def __call__(self) -> Any:
        self._launch()
        results = self._results
        return results[0] if len(results) == 1 else tuple(results)


class ReferenceExecutable(Executable):
    """The oracle as a target."""

    def launch(self, inputs: Sequence[Any], results: Sequence[NDArray]) -> None:
        named = {
            name: value if isinstance(value, np.ndarray) else as_numpy(value)
            for name, value in zip(self._names, inputs, strict=True)
        }
        start = {
            name: result for (name, _, _), result in zip(self._outputs, results, strict=True)
        }
        values = evaluate(self.comprehension, self.special, named, start)
        for (name, _, _), result in zip(self._outputs, results, strict=True):
            np.copyto(result, values[name])

    def bound_launch(self, inputs: list[Any], results: list[NDArray]) -> Any:
        return lambda: self.launch(inputs, results)


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
    def stages(self) -> Mapping[str, str]:  # type: ignore[override]
        return dict(self.program.manifest.stages)

    @property
    def kernels(self) -> tuple[Mapping[str, Any], ...]:
        return self.program.manifest.kernels

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

    def bound_launch(self, inputs: list[Any], results: list[NDArray]) -> Any:
        updated = bool(self._updated)
        overlapping = any(
            overlaps(result, as_numpy(value)) and not _is_same(result, as_numpy(value))
            for result in results
            for value in inputs
        )
        if updated or overlapping or any(not r.flags.c_contiguous for r in results):
            def careful() -> None:
                self._run_into(inputs, tuple(results))

            return careful
        values = [*inputs, *results]
        pointers = [address(values[position]) for position in self._order]
        keep: list[Any] = [inputs, results]
        if self.program.needs_workspace:
            workspace = self.program.take_workspace()
            keep.append(workspace)
            pointers.append(address(workspace))
        bound = self.program.kernel.bind(pointers, self.program.integers, keep)

        def launch() -> None:
            fault = bound()
            if fault is not None:
                self._raise_fault(fault)

        return launch

    def _raise_fault(self, fault: Fault) -> None:
        tensor, _ = self.program.manifest.sites[fault.site]
        raise OUT_OF_RANGE(
            self.comprehension.source, self.comprehension.tensors[tensor].span,
            index=fault.index, tensor=tensor, extent=fault.extent,
        )  # fmt: skip


def build(
    comprehension: Comprehension,
    special: Specialisation,
    specs: Mapping[str, ArraySpec],
    target: str,
    options: Options,
) -> Executable:
    """Return the executable for *target*, from the disk cache if it is there."""
    for name, spec in specs.items():
        _require_type(comprehension, name, spec)
        if target in ("cpu", "reference", "emulate"):
            require_cpu(spec, f"argument {name!r}")
    if target == "reference":
        return ReferenceExecutable(comprehension, special, specs, target, options)
    if target != "cpu":
        raise TARGET_MISSING(target=target, why="this version has the targets cpu and reference")
    reason = why_no_compiler()
    if reason is not None:
        warnings.warn(
            f"there is no usable C compiler ({reason}): programs run on NumPy, slowly; "
            "install gcc, and see 'tcdsl doctor'",
            TCWarning,
            stacklevel=4,
        )
        return ReferenceExecutable(comprehension, special, specs, "reference", options)
    program = _cpu_program(comprehension, special, specs, options)
    return CpuExecutable(comprehension, special, specs, options, program)


def _require_type(comprehension: Comprehension, name: str, spec: ArraySpec) -> None:
    from tcdsl.errors import WRONG_DTYPE

    declared = comprehension.tensors[name].dtype
    if not spec.is_number and spec.dtype != declared:
        raise WRONG_DTYPE(
            comprehension.source, comprehension.tensors[name].span,
            what=f"argument {name!r}", declared=declared, found=spec.dtype,
        )  # fmt: skip


def _cpu_program(
    comprehension: Comprehension,
    special: Specialisation,
    specs: Mapping[str, ArraySpec],
    options: Options,
) -> CpuProgram:
    strides = {
        name: spec.strides
        for name, spec in specs.items()
        if not spec.is_contiguous and name not in comprehension.outputs
    }
    compiler = find_compiler()
    flags = c_flags(compiler, fast_math=options.fast_math)
    threads = thread_count(options.threads)
    key = key_of(
        kind="cpu",
        build=build_identity(),
        source=comprehension.source.text,
        name=comprehension.name,
        types={n: t.dtype.name for n, t in comprehension.tensors.items()},
        sizes=dict(special.sizes),
        shapes={n: list(s) for n, s in special.shapes.items()},
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
            return CpuProgram(entry.code, Manifest.from_json(entry.manifest["program"]))
    # Imported here so that a cached program starts without the polyhedral part.
    from tcdsl.driver import compile_to_c

    compiled = compile_to_c(comprehension, special, strides, options, Cpu(threads))
    _dump(comprehension, compiled.stages)
    code = compile_shared(compiled.c.text, flags, compiler=compiler)
    manifest = Manifest(
        compiled.c.pointers,
        compiled.c.workspace_bytes,
        compiled.c.sites,
        compiled.stages,
        tuple({"name": k.name, "why": list(k.why)} for k in compiled.plan.kernels),
    )
    cache.put(key, code, {"program": manifest.to_json()})
    return CpuProgram(code, manifest)


def _dump(comprehension: Comprehension, stages: Mapping[str, str]) -> None:
    """Write every stage under ``TCDSL_DUMP``, if that is set."""
    folder = settings().dump
    if folder is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for stage, text in stages.items():
        (folder / f"{comprehension.name}.{stage}.txt").write_text(text)
