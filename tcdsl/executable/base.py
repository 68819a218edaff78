"""What all executables share: the checks of a call, its results, what it shows."""

import json
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from tcdsl.errors import warn
from tcdsl.lang.size_class import Bounds
from tcdsl.lang.types.head import Extents, Head
from tcdsl.options import CHOICES_FORMAT, CHOICES_VERSION, Options
from tcdsl.runtime.arrays import NUMPY, ArraySpec, NDArray, as_numpy, overlaps
from tcdsl.runtime.documented import Documented
from tcdsl.runtime.files import path_of, write_file
from tcdsl.runtime.fitting import Fitting, layout_of
from tcdsl.runtime.imports import late_import
from tcdsl.runtime.lazy_defs import SizedDef
from tcdsl.runtime.results import Results
from tcdsl.runtime.size_arguments import without_sizes
from tcdsl.runtime.typed_calls import compiled_method
from tcdsl.runtime.warm_path import address, is_direct
from tcdsl.settings import settings

if TYPE_CHECKING:
    from tcdsl.costmodel.chip import Chip
    from tcdsl.display.candidates_text import Weighing
    from tcdsl.display.compilation import Compilation
    from tcdsl.driver import Compiled
    from tcdsl.lang.comprehension import Comprehension, Specialisation

Run: TypeAlias = Callable[[Sequence[Any], Any], Any]


class SizedCalls(Protocol):
    """Calls at any values of the sizes that code leaves open."""

    def run(self, shapes: Sequence[tuple[int, ...]], args: Sequence[Any], out: Any) -> Any:
        """Return the results for *args*, arrays of these *shapes*, or numbers.

        Sizes that the call gives are the last of *shapes*.  MISSING where the code is not for them,
        or a closer look at the arguments is needed.
        """


class Stages(Mapping[str, str]):
    """The stages that are kept with code, and "candidates", which *weigh* makes when it is read."""

    def __init__(self, kept: Mapping[str, str], weigh: Callable[[], str]) -> None:
        self._made = dict(kept)
        self._weigh = weigh

    def __getitem__(self, name: str) -> str:
        if name == "candidates" and name not in self._made:
            self._made[name] = self._weigh()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._made, "candidates")))

    def __len__(self) -> int:
        return len(list(iter(self)))


class Executable(metaclass=Documented):
    """Compiled code: callable, with ``source``, ``schedule``, ``kernels`` and ``explain()``."""

    _documented = (
        "bind", "compilation", "explain", "kernels", "report", "schedule", "source", "stages",
    )  # fmt: skip

    def __init__(
        self,
        sized: SizedDef,
        extents: Extents,
        specs: Mapping[str, ArraySpec],
        target: str,
        options: Options,
    ) -> None:
        """Take the def, and the *extents* of its tensors, which code from the cache knows."""
        self._sized = sized
        self.head = head = sized.head
        self.specs = dict(specs)
        self.target = target
        self.options = options
        self._fitting = Fitting(head, self.specs)
        library = next((s.library for s in specs.values() if not s.is_number), NUMPY)
        self.results = Results(head, extents, library)
        self._is_single_array = library == NUMPY and len(head.outputs) == 1
        # Inputs that the call also updates: their contents are copied to the output first.
        self._updated = {n for n in head.outputs if head.tensors[n].is_input}

    @property
    def comprehension(self) -> "Comprehension":
        """The def, analysed if it was not yet."""
        return self._sized.comprehension

    @property
    def special(self) -> "Specialisation":
        """Its ranges and shapes at the sizes that this code is for."""
        return self._sized.special

    bounds: Bounds = {}  # noqa: RUF012 (of the open sizes; on a CPU they have none)

    why_not_open = ""  # sizes that were to be open, if they are not

    @property
    def opened(self) -> tuple[str, ...]:
        """The sizes that are open in this code."""
        return tuple(self.bounds)

    @cached_property
    def compilation(self) -> "Compilation":
        """The stages of the compilation as objects: ``exe.compilation.scop``, ``.plan``, ...

        For code from the disk cache the program is planned again.
        """
        with late_import():
            from tcdsl.display.compilation import Compilation

        return Compilation(
            self.comprehension, self.special, self.target, self.options, self.opened,
            self.kernels, self.explain(), self._again, self.stages,
        )  # fmt: skip

    @cached_property
    def _again(self) -> "Compiled[Any] | None":
        return self._compiled_again()

    def _compiled_again(self) -> "Compiled[Any] | None":
        """Return the stages, made anew; None: the target has none."""
        return None

    def _chip(self) -> "Chip | None":
        """Return the chip that estimates are for, if the target has them."""
        return None

    # --- what it shows ---------------------------------------------------------------------

    @property
    def stages(self) -> Mapping[str, str]:
        """The stages of the compilation as text: comprehension, coalesced, scop,
        schedule, tree, code; choices and candidates as JSON."""
        return {}

    def _stages(self, kept: Mapping[str, str]) -> Stages:
        """Return the stages of code with which *kept* are."""

        def weigh() -> str:
            with late_import():
                from tcdsl.driver import candidates_of

            assert self._again is not None, "only a target that plans has such stages"
            return candidates_of(self._again, self.target, self._chip())

        return Stages(kept, weigh)

    @property
    def source(self) -> str:
        """The generated C or CUDA code, without the device library; "" if there is none."""
        return self.stages.get("code", "")

    @property
    def schedule(self) -> str:
        """The loops of each kernel."""
        return self.stages.get("schedule", "")

    @property
    def kernels(self) -> tuple[Mapping[str, Any], ...]:
        """One entry for each kernel: its ``name``, and ``why``, the reasons as lines of text.

        Kernels for a GPU also have ``grid`` and ``block`` (x, y, z) and ``shared``, in bytes;
        memsets and calls of libraries, which take their places, ``memset_bytes`` or ``library``.
        """
        return ()

    @cached_property
    def choices(self) -> dict[str, Any]:
        """Every decision of this compilation, kernel by kernel, as plain data.

        ``f.compile(A, B, choices=exe.choices)`` makes the same kernels again.  ``"kernels"`` has an
        entry for each: the statements, the name of its template, and what was chosen of it.
        """
        found: dict[str, Any] = {
            "format": CHOICES_FORMAT, "version": CHOICES_VERSION, "target": self.target,
            "kernels": [],
        }  # fmt: skip
        found.update(json.loads(self.stages.get("choices", "{}")))
        return found

    @cached_property
    def candidates(self) -> list[dict[str, Any]]:
        """What each kernel could be, as plain data: configurations, or why there are none; codes.

        Of a candidate: ``kernel``, ``template``, ``config``, ``code``, ``predicted_us`` and
        ``limiter`` (the cost model's estimate), ``moved_bytes`` and ``operations`` that it is for,
        ``is_chosen``; of the chosen one with other code ``code_change``, what that has otherwise;
        of a template that does not apply, or of what does not fit: ``why_not``.
        """
        both = (*self._weighing.candidates, *self._weighing.launches)
        return [dict(candidate) for candidate in both]

    @cached_property
    def _weighing(self) -> "Weighing":
        with late_import():
            from tcdsl.display.candidates_text import read_weighing

        return read_weighing(self.stages.get("candidates", ""))

    def explain(self) -> str:
        """Return the decisions for each kernel, and their reasons, as text."""
        counts = Counter(map(_kind_of, self.kernels))
        others = "".join(f", {counts[kind]} {kind}(s)" for kind in _OTHERS if counts[kind])
        lines = [f"target {self.target}, {counts['kernel']} kernel(s){others}"]
        if self.opened:
            lines.append(f"open sizes: {', '.join(map(self._open_size, self.opened))}")
        if coalesced := self.stages.get("coalesced"):
            lines += ["indices and reductions", *(f"  {x}" for x in coalesced.splitlines())]
        for kernel in self.kernels:
            name = kernel["name"]
            lines.append(f"kernel {name}" if _kind_of(kernel) == "kernel" else name)
            lines += [f"  {reason}" for reason in kernel.get("why", ())]
        lines += self._choices_explained()
        return "\n".join([*lines, "", self.schedule])

    def _open_size(self, name: str) -> str:
        own = self.bounds.get(name)
        return f"{name} {own}, planned for {own.greatest}" if own else name

    def _choices_explained(self) -> list[str]:
        """Return what each kernel was chosen from, by the cost model's estimates."""
        with late_import():
            from tcdsl.display.candidates_text import explained

        lines = explained(self.choices["kernels"], self._weighing)
        return ["choices", *(f"  {line}" for line in lines)] if lines else []

    def __repr__(self) -> str:
        return f"<tcdsl.Executable {self.head.name} for {self.target}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Return what a notebook shows: every stage, folded."""
        bundle: dict[str, Any] = self.compilation._repr_mimebundle_(include, exclude)
        return {**bundle, "text/plain": repr(self)}

    def report(self, path: str | PathLike[str]) -> None:
        """Write an HTML page with all stages of the compilation to *path*.

        The page is self-contained: it needs no network and no other files.

        :raises OptionError: (TC064) *path* cannot be written; the hint says what to do.
        """
        with late_import():
            from tcdsl.display.report import report_page

        target = path_of(path, "report")  # before the page is made, which takes its time
        write_file(target, report_page(self.compilation), "report")

    # --- calls -----------------------------------------------------------------------------

    @compiled_method
    def __call__(self, *args: Any, out: Any = None) -> Any:
        """Run on arrays of the types and shapes for which the code was compiled.

        Arrays with other strides are copied.

        :arg out: an array, one for each output in order, or a mapping by name, for the results.
        :raises ShapeError: an array does not fit, or *out* cannot be written.
        :raises LaunchError: a gathered index is out of range.
        """
        return self.run(self.fitted(self._arrays(args)), out)

    def _arrays(self, args: Sequence[Any]) -> Sequence[Any]:
        """Return the arrays among the arguments of a call; the sizes must be those of this code."""
        return without_sizes(self.head, args, self._sized.sizes)

    def run(self, inputs: Sequence[Any], out: Any = None) -> Any:
        """Run on arrays that fit (:meth:`fitted`), such as those that the plan was made for."""
        if out is None and not self.results.needed:
            return self._run_fresh(inputs)
        if self._is_apart(out, inputs):
            self.launch(inputs, (out,))
            return out
        return self._run_into(inputs, self.results.given(out))

    def _is_apart(self, out: Any, inputs: Sequence[Any]) -> bool:
        """Return whether *out* is memory for the one result as it is, apart from all of *inputs*.

        Then nothing of :meth:`_run_into` is left to do but the launch.
        """
        if not self._is_single_array or self._updated or not self.results.is_itself(out, 0):
            return False
        for x in inputs:  # noqa: SIM110 (a generator takes longer)
            if type(x) is not np.ndarray or np.may_share_memory(x, out):
                return False
        return True

    def runner(self, args: Sequence[Any]) -> Run:
        """Return what runs on arguments of the signature of *args*, the outputs after them."""
        if all(map(is_direct, args)):
            return self.run
        return lambda args, out: self.run(self.views(args), out)

    def sized_calls(self, args: Sequence[Any], *, is_dense: bool) -> SizedCalls | None:
        """Return calls at any open sizes, where those like that on *args* can be made so.

        :arg is_dense: whether all arrays are; else later ones have the strides of *args*.
        """
        return None

    def fitted(self, args: Sequence[Any]) -> Sequence[Any]:
        """Return *args* as the code can read them, after checking that it may.

        :raises ShapeError: another number of arguments, another type or shape.
        """
        return self._fitting.fitted(args)

    def views(self, args: Sequence[Any]) -> list[NDArray]:
        """Return *args* as NumPy arrays of the declared types."""
        return self._fitting.views(args)

    def bind(self, *args: Any, out: Any = None) -> "Bound":
        """Return a call with fixed arrays: calling it only launches the kernels.

        It reads the arrays' contents at the time of the call.

        :arg out: as in a call; without it, the outputs are allocated once, now.
        :raises ShapeError: as a call does.
        """
        args = tuple(self._arrays(args))
        return Bound(self, args, self.fitted(args), self.results.given(out))

    @abstractmethod
    def launch(self, inputs: Sequence[Any], results: Sequence[NDArray]) -> None:
        """Compute *results* from *inputs*; memory is shared only where a result is its input."""

    def bound_launch(
        self, args: Sequence[Any], fitted: Sequence[Any], results: list[NDArray]
    ) -> Callable[[], None]:
        """Return the launch on these arrays; *fitted* is what *args* are as the code reads them."""
        given = dict(zip(self.head.outputs, results, strict=True))

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
            for name, view in zip(self.head.outputs, views, strict=True)
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
        for input_name, value in zip(self.head.inputs, inputs, strict=True):
            is_itself = input_name == name and is_same(value, view)
            if not is_itself and overlaps(view, value):
                needs_copy = True
        return np.array(view, order="C", copy=True) if needs_copy else view

    def _fill_updated(self, inputs: Sequence[Any], results: Sequence[NDArray]) -> None:
        names = self.head.inputs
        for name, result in zip(self.head.outputs, results, strict=True):
            if name in self._updated:
                source = inputs[names.index(name)]
                array = source if isinstance(source, np.ndarray) else as_numpy(source)
                if not is_same(array, result):
                    np.copyto(result, array)

    def __reduce__(self) -> Any:
        raise TypeError("compiled code cannot be pickled: pickle the function, and compile again")


_OTHERS = {"memset": "memset_bytes", "library call": "library"}  # by what tells them


def _kind_of(kernel: Mapping[str, Any]) -> str:
    return next((kind for kind, key in _OTHERS.items() if key in kernel), "kernel")


def is_same(a: NDArray, b: NDArray) -> bool:
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
        return f"<tcdsl.Bound {self._executable.head.name}>"


def gaps_of(
    head: Head, specs: Mapping[str, ArraySpec], opened: Collection[str] = ()
) -> dict[str, tuple[int | None, ...]]:
    """Return the strides of the inputs that are not dense; None: open, with the sizes *opened*."""
    layouts = {name: layout_of(head, name, spec, opened) for name, spec in specs.items()}
    return {name: layout for name, layout in layouts.items() if layout is not None}


def integers_of(
    integers: Iterable[tuple[str, int]], sizes: Mapping[str, int], specs: Mapping[str, ArraySpec]
) -> list[int]:
    """Return the open sizes, in steps, and the strides that code expects in the order *integers*.

    They are as ``CudaSource`` has them.
    """
    return [sizes[n] // -dim if dim < 0 else specs[n].strides[dim] for n, dim in integers]


def sizes_of_key(sizes: Mapping[str, int], bounds: Bounds) -> dict[str, Any]:
    """Return what code depends on of *sizes*: of open ones their *bounds*."""
    return {name: list(bounds[name]) if name in bounds else n for name, n in sizes.items()}


# --- messages and files ----------------------------------------------------------------------

_warned: set[str] = set()


def warn_once(message: str) -> None:
    """Warn once a process, whatever the warning filters are."""
    if message not in _warned:
        _warned.add(message)
        warn(message)


def dump_stages(head: Head, stages: Mapping[str, str]) -> None:
    """Write every stage under ``TCDSL_DUMP``, if that is set."""
    folder = settings().dump
    if folder is None:
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for stage, text in stages.items():
            (folder / f"{head.name}.{stage}.txt").write_text(text, encoding="utf-8")
    except OSError as error:
        warn_once(f"the stages cannot be written to TCDSL_DUMP={folder}: {error.strerror}")
