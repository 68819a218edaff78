"""A definition of a program: what is called on arrays.

A call is checked once for each combination of types, shapes and strides; a later call with the
same combination costs a dictionary look-up and the launch.  It is compiled for its sizes, and once
more when one of them varies, with that size left open (opening.py).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tcdsl.api.requirements import (
    choose_target,
    require_choices,
    require_same_kernels,
    require_sizes,
)
from tcdsl.errors import BAD_NAMED, TCError
from tcdsl.executable import Executable, KnownCalls, Run
from tcdsl.lang.ranges.binding import bind_sizes
from tcdsl.lang.syntax.spelling import did_you_mean
from tcdsl.opening import OpenExecutable, Opening, layouts_of
from tcdsl.options import RENAMED, Options, option_names, text_of_choices
from tcdsl.runtime.arrays import ArraySpec
from tcdsl.runtime.documented import Documented
from tcdsl.runtime.fitting import described, require_count
from tcdsl.runtime.imports import late_import
from tcdsl.runtime.lazy_defs import LazyDef, LazyProgram, SizedDef, analysed_def
from tcdsl.runtime.signatures import SignatureOfCall
from tcdsl.runtime.size_arguments import separated
from tcdsl.runtime.tracebacks import at_the_call, errors_at_the_call
from tcdsl.runtime.typed_calls import array_method
from tcdsl.runtime.warm_path import (
    MISSING,
    WarmCall,
    compiler_setting,
    flags_setting,
    remember,
    signature,
    target_setting,
    threads_setting,
    with_sizes,
)
from tcdsl.source import Source

if TYPE_CHECKING:
    from tcdsl.lang.comprehension import Comprehension, Specialisation

_NO_SIZES: Mapping[str, int] = {}
_OF_A_CALL = ("out", "target", "options")


def lazy_program(text: Source) -> LazyProgram:
    """Return the definitions of *text*: analysed now, unless their heads are in the disk cache.

    :raises TCError: with all mistakes found.
    """

    def analysed() -> "Iterable[Comprehension]":
        # Imported here, as everywhere below: code from the cache needs no parser and no isl.
        with late_import():
            from tcdsl.lang.syntax.parser import parse_program
            from tcdsl.lang.types.sema import analyse

        return analyse(parse_program(text))

    return LazyProgram(text, analysed, {"kind": "program"})


class Function(metaclass=Documented):
    """A definition, callable on arrays of NumPy, PyTorch and other libraries."""

    _documented = ("compile", "output_shapes", "ranges", "reference", "source")
    __signature__ = SignatureOfCall()

    def __init__(
        self, definition: "LazyDef | Comprehension", options: Options | None = None
    ) -> None:
        if not isinstance(definition, LazyDef):
            definition = analysed_def(definition)
        self._definition = definition
        self._head = head = definition.head
        self._has_sizes = bool(head.size_parameters)
        self.options = options or Options()
        self.__name__ = head.name
        self.__doc__ = head.signature
        self._plans: dict[Any, Executable] = {}
        self._calls = KnownCalls()
        self._runs = self._calls.runs  # what a call goes through, by the same keys
        self._opening = Opening(definition)

    def __getattr__(self, name: str) -> Any:
        """Say where what compiled code has is to be found; of others, that they are not there."""
        own = f"{type(self).__name__!r} object has no attribute {name!r}"
        if name in Executable._documented:
            own += f"; compiled code has it: {self.__dict__.get('__name__')}.compile(...).{name}"
        raise AttributeError(own)

    def __repr__(self) -> str:
        return f"<tcdsl.Function {self._head.signature}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Return what notebooks show: the inferred signature, shapes and ranges."""
        with late_import():
            from tcdsl.display.program import function_bundle

        return function_bundle(self.comprehension)

    @property
    def source(self) -> str:
        """The text of the program that the definition is part of."""
        return self._head.source.text

    @property
    def comprehension(self) -> "Comprehension":
        """What the def means; of a program from the disk cache it is found out now."""
        return self._definition.comprehension

    @array_method
    def __call__(
        self,
        *args: Any,
        out: Any = None,
        target: str | None = None,
        options: Options | None = None,
        **named: Any,
    ) -> Any:
        """Return the results for *args*: one array, or a tuple if there are several.

        :arg named: inputs by their names, after the positional ones.
        :arg out: an array, or one for each output in order, for the results.
        :arg target: "cpu", "cuda", "emulate" or "reference"; default: that of the arrays' device.
        :arg options: for the compilation; default: the function's own.
        :raises ShapeError: the arrays do not fit the program, before anything runs.
        :raises RangeError: at these sizes an access is out of bounds, or a range is negative.
        :raises OptionError, TargetError: *options* or *target* are invalid.
        :raises LaunchError: a gathered index is out of range; on a GPU where its result is
            waited for.
        """
        try:
            if named:
                args = self.in_order(args, named)
            sizes = _NO_SIZES
            if self._has_sizes:
                args, sizes = self._separated(args)
            key = self._key(args, sizes, target, options)
            run = self._runs.get(key)
            if run is None:
                found = self._calls.at_new_sizes(key, args, out)
                if found is not MISSING:
                    return found
                run = self._new_run(key, args, sizes, target, options)
            return run(args, out)
        except TCError as error:  # written out here: a decorator would cost each call a frame
            raise at_the_call(error)  # noqa: B904

    def _separated(self, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], Mapping[str, int]]:
        """Return the arrays among *args*, and the sizes."""
        return separated(self._head, args) if self._head.size_parameters else (args, _NO_SIZES)

    def in_order(self, args: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return *args* and then the *named* inputs, in the order of the parameters.

        :raises ShapeError: (TC068) a name is of no further parameter, or one is missing.
        """
        expected = self._head.parameters[len(args) :]
        if set(named) != set(expected):
            unexpected = sorted(set(named) - set(expected))
            wrong = unexpected or sorted(set(expected) - set(named))
            twice = [name for name in unexpected if name in self._head.parameters]
            meant = did_you_mean(wrong[0], (*expected, *_OF_A_CALL)) if unexpected else None
            option = RENAMED.get(wrong[0], wrong[0])
            if option in option_names():
                meant = f"options go together: options=tcdsl.Options({option}=...)"
            raise BAD_NAMED(
                name=self._head.name, wrong=", ".join(twice or wrong),
                what="twice given" if twice else "unexpected" if unexpected else "missing",
                signature=f"{self._head.signature}{f'; {meant}' if meant else ''}",
            )  # fmt: skip
        return (*args, *(named[name] for name in expected))

    @errors_at_the_call
    def compile(
        self,
        *args: Any,
        target: str | None = None,
        options: Options | None = None,
        choices: Mapping[str, Any] | str | None = None,
        **named: Any,
    ) -> Executable:
        """Return the code for arguments like *args*: arrays, or ``tcdsl.spec(shape, dtype)``.

        It is specific to their sizes, except those that ``options.dynamic_sizes`` names.

        :arg choices: what ``Executable.choices`` returned, as data or as JSON: the same again.
        :raises ShapeError, RangeError: arguments like these do not fit the program.
        :raises OptionError, TargetError: *options* or *target* are invalid.
        :raises CompileError: the target's compiler is missing or fails.
        """
        args, sizes = self._separated(self.in_order(args, named) if named else args)
        if choices is not None:
            options = replace(options or self.options, choices=text_of_choices(choices))
        key = self._key(args, sizes, target, options)
        chosen = options or self.options
        if chosen.dynamic_sizes:
            first = self._executable(key, args, sizes, target, options)
            sized, specs, where = self._specs_and_sizes(args, sizes, target, chosen)
            layouts = layouts_of(self._head, specs)
            return OpenExecutable(self._opening, sized, first, layouts, where, chosen)
        plan = self._plans.get(key)
        if plan is not None and not plan.opened:
            return plan
        # A call may have found code with open sizes good enough.
        found = self._specs_and_sizes(args, sizes, target, chosen)
        executable = self._opening.specialised(*found, chosen)
        self._plans[key] = executable
        self._runs[key] = partial(self._first_run, key, executable)
        return executable

    def _first_run(
        self, key: Any, executable: Executable, args: Sequence[Any], out: Any = None
    ) -> Any:
        """Run the code of *key*, which was compiled and not yet called."""
        self._runs.pop(key, None)
        return self._calls.learnt(key, executable, args)(args, out)

    @errors_at_the_call
    def output_shapes(self, *args: Any, **named: Any) -> dict[str, tuple[int, ...]]:
        """Return the shape of each output for arguments like *args*, by name.

        :raises ShapeError, RangeError: arguments like these do not fit the program.
        """
        special = self.specialise(*args, **named)
        return {name: special.shapes[name] for name in self._head.outputs}

    @errors_at_the_call
    def ranges(self, *args: Any, **named: Any) -> list[dict[str, range]]:
        """Return the range of each index: one dict for each statement, in source order.

        For a range that depends on other indices it is the smallest range with all values.

        :raises ShapeError, RangeError: arguments like these do not fit the program.
        """
        return [dict(ranges) for ranges in self.specialise(*args, **named).ranges]

    def specialise(self, *args: Any, **named: Any) -> "Specialisation":
        """Return sizes, ranges and boxes for arguments like *args*.

        :raises ShapeError, RangeError: arguments like these do not fit the program.
        """
        arrays, given = self._separated(self.in_order(args, named) if named else args)
        specs = self._described(arrays)
        sizes = bind_sizes(self._head, {n: s.shape for n, s in specs.items()}, given)
        return self._definition.specialise(sizes)

    def warm_run(self, *args: Any) -> Callable[..., Any] | None:
        """Return what a call on *args* goes through, if it is a warm path on tensors.

        It takes the arrays of other calls of the same signature, ``out=``, and the addresses of
        the arrays in a list, and checks none of them.
        """
        arrays, sizes = self._separated(args)
        key = self._key(arrays, sizes, None, None)
        run = self._runs.get(key) or self._new_run(key, arrays, sizes, None, None)
        return run if isinstance(getattr(run, "__self__", None), WarmCall) else None

    def expect(self, names: Iterable[str]) -> None:
        """Leave those sizes open that are among *names*, as by ``Options(dynamic_sizes=...)``.

        What is compiled for the sizes of earlier calls stays.
        """
        self._opening.expect(set(names) & set(self._head.sizes))

    def specs(self, args: Sequence[Any]) -> dict[str, ArraySpec]:
        """Return what the arrays among the arguments are, by parameter name.

        :raises ShapeError: there are too few arguments or too many, or one is of no type here.
        """
        return self._described(self._separated(tuple(args))[0])

    def _described(self, args: Sequence[Any]) -> dict[str, ArraySpec]:
        require_count(self._head, args)
        return {
            name: described(self._head, name, arg)
            for name, arg in zip(self._head.inputs, args, strict=True)
        }

    def reference(self, *args: Any, out: Any = None, **named: Any) -> Any:
        """Return the results of the NumPy reference, which is independent of the compiler.

        :arg out: as in a call; the types of the results are the declared ones.
        :raises TCError: as a call does.
        """
        return self(*args, out=out, target="reference", **named)

    def __reduce__(self) -> Any:
        with late_import():
            from tcdsl.lang.syntax.parser import parse_program

        c = self._head
        if c.name not in (definition.name for definition in parse_program(c.source).defs):
            raise TypeError(f"{self!r} has no def that another process could look up")
        return _function_again, (c.source.text, c.source.name, c.name, self.options)

    def _executable(
        self,
        key: Any,
        args: Sequence[Any],
        sizes: Mapping[str, int],
        target: str | None,
        options: Options | None,
    ) -> Executable:
        """Return the code for calls of *key*, that of *args* and *sizes*."""
        executable = self._plans.get(key)
        if executable is None:
            chosen = options or self.options
            found = self._specs_and_sizes(args, sizes, target, chosen)
            executable = self._opening.executable(*found, chosen)
            executable = remember(self._plans, key, executable)
        return executable

    def _new_run(
        self,
        key: Any,
        args: Sequence[Any],
        sizes: Mapping[str, int],
        target: str | None,
        options: Options | None,
    ) -> Run:
        """Return a call of *key*, made in full."""
        executable = self._executable(key, args, sizes, target, options)
        return self._calls.learnt(key, executable, args)

    def _key(
        self,
        args: Sequence[Any],
        sizes: Mapping[str, int],
        target: str | None,
        options: Options | None,
    ) -> Any:
        """Return what the code for a call depends on."""
        if target is not None or options is not None:
            require_choices(target, options)
        try:
            signed = signature(args)
            if sizes:
                signed = with_sizes(signed, sizes.values())
            chosen = target_setting() if target is None else target
            return signed, chosen, options, compiler_setting(), flags_setting(), threads_setting()
        except TCError:
            self._described(args)  # says which argument it is
            raise

    def _specs_and_sizes(
        self,
        args: Sequence[Any],
        given: Mapping[str, int],
        target: str | None,
        options: Options,
    ) -> tuple[SizedDef, dict[str, ArraySpec], str]:
        """Return the def at the sizes of a call, its arguments, and the target."""
        specs = self._described(args)
        chosen = choose_target(target, specs)
        require_same_kernels(chosen, options)
        require_sizes(self._head, options)
        sizes = bind_sizes(self._head, {n: s.shape for n, s in specs.items()}, given)
        return self._definition.at(sizes), specs, chosen


# Asked for by PyTorch's dynamo, which would trace a call down to the addresses of arrays.
vars(Function)["__call__"].__dict__.update(
    _torchdynamo_disable=True,
    _torchdynamo_disable_msg="a tcdsl function is no part of a graph; an operator of it is: "
    'tcdsl.torch.op(f, name="mylib::f")',
)


def _function_again(text: str, source_name: str, name: str, options: Options) -> Function:
    """Return what was pickled: the program is checked again, and compiled when it is called."""
    defs = lazy_program(Source(text, source_name)).defs
    return Function(next(one for one in defs if one.head.name == name), options)
