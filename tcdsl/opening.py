"""Which sizes a function's code leaves open, and code that is called with any values of those.

    f(A[64])      compiled for N = 64
    f(A[65])      N has two values now: compiled once more, with N open
    f(A[1000])    the code with N open, at another value: no compilation

Both are kept.  Where another size starts to vary, there is one more compilation, with both open; so
a function of n sizes compiles at most n + 1 times for each combination of types and layouts.

On a GPU code is open within classes of sizes (runtime/size_classes.py):

    f(A[100, 8])                 a kernel for B = 100
    f(A[101, 8])                 B has two values: one more, for B from 65 to 256
    f(A[200, 8])                 the same

Where sizes cannot be left open, every combination of them is compiled by itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from tcdsl.errors import BAD_SIZE, EXTENT_DISAGREES, WRONG_STRIDES
from tcdsl.executable import (
    Bound,
    Executable,
    KnownCalls,
    Run,
    build,
    require_arguments,
)
from tcdsl.lang.ranges.binding import bind_sizes
from tcdsl.lang.size_class import SizeClass
from tcdsl.lang.types.head import MAX_OPEN, Head
from tcdsl.options import Options
from tcdsl.records import dataclass
from tcdsl.runtime.arrays import ArraySpec, NDArray, describe, row_major
from tcdsl.runtime.fitting import layout_of, require_count, require_type
from tcdsl.runtime.imports import late_import
from tcdsl.runtime.lazy_defs import LazyDef, SizedDef
from tcdsl.runtime.size_arguments import separated
from tcdsl.runtime.size_classes import VALUES_BEFORE, classes_of, leading_sizes
from tcdsl.runtime.typed_calls import compiled_method
from tcdsl.runtime.warm_path import (
    MISSING,
    compiler_setting,
    flags_setting,
    form_of,
    remember,
    signature,
    threads_setting,
    with_sizes,
)

if TYPE_CHECKING:
    from tcdsl.driver import Compiled
    from tcdsl.executable.cpu import CpuExecutable

Specs = Mapping[str, ArraySpec]
Layouts = tuple[tuple[int | None, ...] | None, ...]  # of the inputs, see layout_of


def layouts_of(c: Head, specs: Specs) -> Layouts:
    """Return the part of the inputs' layouts on which code with open sizes depends."""
    return tuple(layout_of(c, name, spec, c.sizes or ("",)) for name, spec in specs.items())


class Opening:
    """The code of one function for all sizes that it was called with."""

    def __init__(self, definition: LazyDef) -> None:
        self._head = definition.head
        self._families: dict[Any, _Family] = {}
        self.expected: frozenset[str] = frozenset()

    def expect(self, names: Iterable[str]) -> None:
        """Leave the sizes *names* open from now on: they are known to vary."""
        self.expected |= frozenset(names)
        for family in list(self._families.values()):
            family.expect(self.expected)

    def executable(
        self, sized: SizedDef, specs: Specs, target: str, options: Options
    ) -> Executable:
        """Return code for *specs* at the sizes of *sized*, compiling if it must."""
        # Code that is there already is not built again, and its layouts know nothing of types.
        require_arguments(self._head, specs, target)
        return self._family(sized, specs, target, options).executable(sized, specs)

    def specialised(
        self, sized: SizedDef, specs: Specs, target: str, options: Options
    ) -> Executable:
        """Return code for *specs* at just the sizes of *sized*."""
        self._family(sized, specs, target, options)
        return build(sized, specs, target, options)

    def _family(self, sized: SizedDef, specs: Specs, target: str, options: Options) -> "_Family":
        settings = compiler_setting(), flags_setting(), threads_setting()
        key = (target, options, layouts_of(self._head, specs), *settings)
        family = self._families.get(key)
        if family is None:
            family = _Family(target, options, dict(sized.sizes))
            family.expect(self.expected)
            family = remember(self._families, key, family)
        return family


@dataclass(slots=True)
class _Family:
    """Code for one combination of target, options and layouts.

    Needs no lock: two threads that meet here may compile the same code, and nothing worse.
    """

    target: str
    options: Options
    first: Mapping[str, int]  # the sizes of the first call
    opened: frozenset[str] = frozenset()
    # What is compiled for each set of open sizes; None: they cannot be left open.
    plans: "dict[frozenset[str], CpuExecutable | None]" = field(default_factory=dict)
    # On a GPU: what is compiled for each combination of classes, or why nothing is.
    classes: dict[Any, Any] = field(default_factory=dict)
    values: dict[str, set[int]] = field(default_factory=dict)  # of the sizes that may be left open
    # Which sizes are lengths of what is reduced, and what lengths of rows had better be multiples
    # of, by the open sizes and the values of the others.
    roles: dict[Any, tuple[frozenset[str], dict[str, int]]] = field(default_factory=dict)
    asked: frozenset[str] = frozenset()  # the sizes to be left open from the first call on

    def __post_init__(self) -> None:
        self.expect(frozenset(self.options.dynamic_sizes))

    def expect(self, names: frozenset[str]) -> None:
        """Leave the sizes *names* open from now on."""
        self.asked |= names
        self.opened |= names

    def executable(self, sized: SizedDef, specs: Specs) -> Executable:
        if self.target in ("cuda", "emulate"):
            return self._in_class(sized, specs)
        varying = {name for name, size in sized.sizes.items() if size != self.first[name]}
        wanted = self.opened | varying
        is_large = any(sized.sizes[name] > MAX_OPEN for name in wanted)
        if is_large or (not varying and not self.asked):
            return self._build(sized, specs)
        plan = self._plan(wanted, sized, specs)
        if plan is None:
            return self._build(sized, specs)
        self.opened = wanted
        return plan.at(sized, specs)

    def _in_class(self, sized: SizedDef, specs: Specs) -> Executable:
        """Return code for a GPU: open within the classes of the sizes that are to be open."""
        names = self._names_to_open(sized)
        classes = self._classes_of(sized, names) if names else None
        if not classes:
            return self._build(sized, specs)
        fixed = tuple((n, size) for n, size in sized.sizes.items() if n not in classes)
        key = tuple(classes.items()), fixed, tuple(spec.alignment for spec in specs.values())
        if key not in self.classes:
            self.classes[key] = self._class(sized, specs, classes)
        code = self.classes[key]
        if isinstance(code, str):
            return self._specialised(sized, specs, code)
        found: Executable = code.at(sized, specs)
        return found

    def _names_to_open(self, sized: SizedDef) -> list[str]:
        """Return the sizes that the options name, or that have shown many values."""
        for name in leading_sizes(sized.definition.head) - self.opened:
            known = self.values.setdefault(name, set())
            known.add(sized.sizes[name])
            if len(known) == VALUES_BEFORE + 1:
                self.opened |= {name}
        one = {name for name in self.asked if sized.sizes.get(name) == 1}  # a class of its own
        return [name for name in sized.sizes if name in self.opened and name not in one]

    def _classes_of(self, sized: SizedDef, names: Sequence[str]) -> dict[str, SizeClass] | None:
        """Return the class of each size of *names*."""
        with late_import():
            from tcdsl.lang.ranges.roles_of_sizes import reduced_sizes, steps_of

        c = sized.comprehension
        if c.is_deferred:  # it has no open sizes
            return classes_of(sized.sizes, names)
        fixed = tuple(size for name, size in sized.sizes.items() if name not in names)
        key = tuple(names), fixed
        if key not in self.roles:
            self.roles[key] = reduced_sizes(c), steps_of(c, sized.sizes, names)
        return classes_of(sized.sizes, names, *self.roles[key])

    def _class(self, sized: SizedDef, specs: Specs, classes: Mapping[str, SizeClass]) -> Any:
        """Return the code of a class, or why there is none."""
        # Imported here: code for another target, from the cache, needs neither C nor isl.
        with late_import():
            from tcdsl.lang.ranges.open_sizes import CannotOpenError

        if sized.definition.head.is_deferred:
            return "a product of sizes and indices is no affine function"
        try:
            return build(sized, specs, self.target, self.options, classes)
        except CannotOpenError as error:
            return str(error) or "no code was found for all values"

    def _specialised(self, sized: SizedDef, specs: Specs, why: str) -> Executable:
        executable = self._build(sized, specs)
        executable.why_not_open = f"{', '.join(sorted(self.opened))}: {why}"
        return executable

    def _plan(
        self, wanted: frozenset[str], sized: SizedDef, specs: Specs
    ) -> "CpuExecutable | None":
        if self.target != "cpu" or sized.definition.head.is_deferred:
            return None
        # Imported here: code for another target, from the cache, needs neither C nor isl.
        with late_import():
            from tcdsl.executable.cpu import CpuExecutable
            from tcdsl.lang.ranges.open_sizes import CannotOpenError

        if wanted not in self.plans:
            try:
                plan = build(sized, specs, self.target, self.options, dict.fromkeys(wanted))
            except CannotOpenError:
                self.plans[wanted] = None
            else:
                self.plans[wanted] = plan if isinstance(plan, CpuExecutable) else None
        return self.plans[wanted]

    def _build(self, sized: SizedDef, specs: Specs) -> Executable:
        return build(sized, specs, self.target, self.options)


class OpenExecutable(Executable):
    """Code for all values of the sizes in ``options.dynamic_sizes``; the others are fixed."""

    def __init__(
        self,
        opening: Opening,
        sized: SizedDef,
        first: Executable,
        layouts: Layouts,
        target: str,
        options: Options,
    ) -> None:
        """Take code at the first sizes, those of *sized*."""
        super().__init__(sized, sized.special, first.specs, first.target, options)
        self._opening = opening
        self._first = first
        self._layouts = layouts
        self._chosen = target
        self._known: dict[Any, Executable] = {}
        self._calls = KnownCalls()

    @property
    def opened(self) -> tuple[str, ...]:
        return self._first.opened

    @property
    def stages(self) -> Mapping[str, str]:
        return self._first.stages

    @property
    def kernels(self) -> tuple[Mapping[str, Any], ...]:
        return self._first.kernels

    def _compiled_again(self) -> "Compiled[Any] | None":
        return self._first._compiled_again()

    def explain(self) -> str:
        if self.opened:
            return self._first.explain()
        names = ", ".join(self.options.dynamic_sizes)
        why = f" ({self._first.why_not_open})" if self._first.why_not_open else ""
        text = self._first.explain()
        if all(self._sized.sizes[name] == 1 for name in self.options.dynamic_sizes):
            return f"{names} = 1: a class of its own, with code for one size\n{text}"
        return f"{names}: cannot be left open, other values are compiled{why}\n{text}"

    def at(self, args: Sequence[Any], given: Mapping[str, int] | None = None) -> Executable:
        """Return the code at the sizes of *args*, remembered by their signature.

        :arg given: the size arguments; by default those of the first call.
        :raises ShapeError: they do not fit the types, the fixed sizes or each other.
        """
        if given is None:
            given = {name: self._sized.sizes[name] for name in self.head.size_parameters}
        key = signature(args), *given.values()
        executable = self._known.get(key)
        if executable is None:
            executable = remember(self._known, key, self._at(args, given))
        return executable

    def _of_call(self, args: Sequence[Any]) -> Executable:
        """Return the code for a call with *args*, sizes among them."""
        if not self.head.size_parameters:
            return self.at(args)
        return self.at(*separated(self.head, args))

    def _at(self, args: Sequence[Any], given: Mapping[str, int]) -> Executable:
        c = self.head
        require_count(c, args)
        specs = {}
        for name, arg in zip(c.inputs, args, strict=True):
            specs[name] = describe(arg, f"argument {name!r}")
            require_type(c, name, specs[name])
        sizes = bind_sizes(c, {name: spec.shape for name, spec in specs.items()}, given)
        self._require_fixed(sizes)
        laid_out = {
            name: _in_layout(spec, layout, name)
            for (name, spec), layout in zip(specs.items(), self._layouts, strict=True)
        }
        sized = self._sized.definition.at(sizes)
        return self._opening.executable(sized, laid_out, self._chosen, self.options)

    def _require_fixed(self, sizes: Mapping[str, int]) -> None:
        """Raise EXTENT_DISAGREES where a size that is not open has another value."""
        c = self.head
        for name, span in c.size_parameters.items():
            if name not in self.options.dynamic_sizes and sizes[name] != self._sized.sizes[name]:
                why = f"this code is for {self._sized.sizes[name]}, not for {sizes[name]}"
                hint = f"leave {name} open too, or call the function itself"
                raise BAD_SIZE(c.source, span, hint=hint, name=name, why=why)
        for name in c.inputs:
            for dim, size in enumerate(c.tensors[name].dims):
                if not isinstance(size, str) or size not in sizes:  # a number, or a product
                    continue
                if size in self.options.dynamic_sizes:
                    continue
                if sizes[size] != self._sized.sizes[size]:
                    raise EXTENT_DISAGREES(
                        c.source, c.tensors[name].span, tensor=name, dim=dim,
                        declared=f"{self._sized.sizes[size]} in this code", got=sizes[size],
                        hint=f"leave {size} open too, or call the function itself",
                    )  # fmt: skip

    @compiled_method
    def __call__(self, *args: Any, out: Any = None) -> Any:
        given: Mapping[str, int] = {}
        if self.head.size_parameters:
            args, given = separated(self.head, args)
        key = (with_sizes(signature(args), given.values()),)
        run = self._calls.runs.get(key)
        if run is None:
            found = self._calls.at_new_sizes(key, args, out)
            if found is not MISSING:
                return found
            run = self._new_run(key, args, given)
        return run(args, out)

    def _new_run(self, key: Any, args: Sequence[Any], given: Mapping[str, int]) -> Run:
        """Return a call of *key*, made in full."""
        executable = self.at(args, given)
        # Code for other calls of the function may leave further sizes open, which are fixed here.
        is_for_these = set(executable.opened) <= set(self.options.dynamic_sizes)
        if is_for_these and form_of(key) is not None and self._reads_in_place(args):
            return self._calls.learnt(key, executable, args)

        def run(args: Sequence[Any], out: Any) -> Any:
            return executable.run(executable.fitted(args), out)

        return remember(self._calls.runs, key, run)

    def _reads_in_place(self, args: Sequence[Any]) -> bool:
        """Return whether the code reads *args*, whose types fit, as they lie in memory."""
        for name, arg, layout in zip(self.head.inputs, args, self._layouts, strict=True):
            spec = describe(arg, f"argument {name!r}")
            if _in_layout(spec, layout, name) != spec:
                return False
        return True

    def run(self, inputs: Sequence[Any], out: Any = None) -> Any:
        return self.at(inputs).run(inputs, out)

    def runner(self, args: Sequence[Any]) -> Run:
        return self.at(args).runner(args)

    def fitted(self, args: Sequence[Any]) -> Sequence[Any]:
        return self.at(args).fitted(args)

    def views(self, args: Sequence[Any]) -> list[NDArray]:
        return self.at(args).views(args)

    def bind(self, *args: Any, out: Any = None) -> Bound:
        return self._of_call(args).bind(*args, out=out)

    def launch(self, inputs: Sequence[Any], results: Sequence[NDArray]) -> None:
        self.at(inputs).launch(inputs, results)


def _in_layout(spec: ArraySpec, layout: tuple[int | None, ...] | None, name: str) -> ArraySpec:
    """Return *spec* with strides that code for *layout* can read; others mean a copy is made."""
    if layout is None:
        plain = row_major(spec.shape)
        return spec if spec.strides == plain else _with_strides(spec, plain)
    fits = zip(spec.strides, layout, strict=True)
    if all(wanted is None or wanted == stride for stride, wanted in fits):
        return spec
    if 0 in layout:
        raise WRONG_STRIDES(what=f"argument {name!r}")
    # The dimension whose neighbours are adjacent goes innermost, the others keep their order.
    order = sorted(range(spec.rank), key=lambda dim: (layout[dim] == 1, dim))
    strides = [0] * spec.rank
    for dim, stride in zip(order, row_major([spec.shape[dim] for dim in order]), strict=True):
        strides[dim] = stride
    return _with_strides(spec, tuple(strides))


def _with_strides(spec: ArraySpec, strides: tuple[int, ...]) -> ArraySpec:
    """Return what *spec* is once it has been copied: as aligned as any."""
    return ArraySpec(spec.dtype, spec.shape, strides, spec.device, spec.writable, spec.library)


__all__ = ["OpenExecutable", "Opening", "layouts_of"]
