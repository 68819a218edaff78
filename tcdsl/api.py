"""The public names: define, compute, Program, Function, Executable.

    prog = tcdsl.define("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }")
    C = prog.mm(A, B)

A call is checked once for each combination of types, shapes and strides; a later call with the
same combination costs a dictionary look-up and the launch.  It is compiled for its sizes, and once
more when one of them varies, with that size left open (opening.py).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tcdsl import cuda
from tcdsl.errors import BAD_IDENTIFIER, BAD_NAMED, UNKNOWN_DEF, UNKNOWN_TARGET, TCError
from tcdsl.executable import Executable, Run, SizedCalls
from tcdsl.lang.ranges.binding import bind_sizes
from tcdsl.lang.syntax.spelling import did_you_mean, other_case
from tcdsl.lang.types.dtypes import DType
from tcdsl.lang.types.head import Head
from tcdsl.opening import OpenExecutable, Opening, layouts_of
from tcdsl.options import (
    BAD_ARGUMENT,
    BAD_OPTION,
    RENAMED,
    Options,
    option_names,
    text_of_choices,
)
from tcdsl.runtime.arrays import NUMPY, PYTHON, ArraySpec, describe
from tcdsl.runtime.documented import Documented, documented_names
from tcdsl.runtime.fitting import described, require_count
from tcdsl.runtime.imports import late_import
from tcdsl.runtime.lazy_defs import LazyDef, LazyProgram, SizedDef, analysed_def
from tcdsl.runtime.signatures import SignatureOfCall
from tcdsl.runtime.size_arguments import separated
from tcdsl.runtime.tracebacks import at_the_call, errors_at_the_call
from tcdsl.runtime.typed_calls import array_method, statements_call
from tcdsl.runtime.warm_path import WarmCall, form_of, remember, signature, target_setting
from tcdsl.settings import settings
from tcdsl.source import Source

if TYPE_CHECKING:
    from tcdsl.lang.comprehension import Comprehension, Specialisation

TARGETS = ("cuda", "cpu", "emulate", "reference")
_NO_SIZES: Mapping[str, int] = {}
_MOST_SIZED = 7  # classes of sizes that calls at new sizes are looked for in, besides the last
_OF_A_CALL = ("out", "target", "options")


@errors_at_the_call
def define(source: str, name: str = "<tc>") -> "Program":
    """Parse and check *source*, and return a program whose definitions are callable.

    :arg name: the name of the text in error positions, such as a file name.
    :raises TCError: with all mistakes found, each with line and column.
    :raises TypeError: *source* or *name* is not a string.
    """
    if not (isinstance(source, str) and isinstance(name, str)):
        wrong = name if isinstance(source, str) else source
        what = "the text of a program" if wrong is source else "a string for the name of the text"
        raise TypeError(f"define takes {what}, not {shortened(wrong)} ({type(wrong).__name__})")
    text = Source(source, name)

    def analysed() -> "Iterable[Comprehension]":
        # Imported here, as everywhere below: code from the cache needs no parser and no isl.
        with late_import():
            from tcdsl.lang.syntax.parser import parse_program
            from tcdsl.lang.types.sema import analyse

        return analyse(parse_program(text))

    return Program(LazyProgram(text, analysed, {"kind": "program"}).defs, text)


class Program(metaclass=Documented):
    """The definitions of a source text: ``prog.name`` or ``prog["name"]`` is a :class:`Function`.

    ``len(prog)``, ``name in prog`` and ``for name in prog`` refer to the definitions' names.
    """

    _documented = ("names",)

    def __init__(self, defs: Sequence[LazyDef], source: Source) -> None:
        self.source = source
        self._functions = {definition.head.name: Function(definition) for definition in defs}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the definitions, in source order."""
        return tuple(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __contains__(self, name: object) -> bool:
        return name in self._functions

    def __getitem__(self, name: str) -> "Function":
        if name not in self._functions:
            hint = (
                did_you_mean(str(name), self._functions) or f"the defs are {', '.join(self.names)}"
            )
            raise UNKNOWN_DEF(name=name, hint=hint)
        return self._functions[name]

    def __getattr__(self, name: str) -> "Function":
        if name.startswith("__") or name not in self.__dict__.get("_functions", {}):
            known = self.__dict__.get("_functions", {})
            advice = did_you_mean(name, known) or f"it has {', '.join(known)}"
            if name in Function._documented:
                advice = f"its defs have one: prog.{next(reversed(known))}.{name}"
            raise AttributeError(f"the program has no def {name!r}; {advice}")
        return self._functions[name]

    def __reduce__(self) -> Any:
        return define, (self.source.text, self.source.name)

    def __dir__(self) -> list[str]:
        return [*documented_names(self), *self.names]

    def __repr__(self) -> str:
        return f"<tcdsl.Program {', '.join(self.names)}>"

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Return what notebooks show: the inferred signatures, shapes and ranges."""
        with late_import():
            from tcdsl.display.program import program_bundle

        defs = [function.comprehension for function in self._functions.values()]
        return program_bundle(defs, self.source.text)


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
        self._runs: dict[Any, Run] = {}  # what a call goes through, by the same keys
        # Of code with open sizes: what makes calls at new ones, by the form of their arguments.
        self._sized: dict[Any, list[SizedCalls]] = {}
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
                run = self._sized_run(key) or self._new_run(key, args, sizes, target, options)
                run = remember(self._runs, key, run)
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
        self._runs.pop(key, None)
        return executable

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
        """Return what a call on *args* has gone through, if it is a warm path on tensors.

        It takes the arrays of other calls of the same signature, ``out=``, and the addresses of
        the arrays in a list, and checks none of them.
        """
        arrays, sizes = self._separated(args)
        run = self._runs.get(self._key(arrays, sizes, None, None))
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

    def _sized_run(self, key: Any) -> Run | None:
        """Return a call at sizes that are new, by code that is known to be for them, if any is."""
        found = form_of(key) if self._sized else None
        if found is None:
            return None
        form, shapes = found
        runs = (calls.run_at(shapes) for calls in self._sized.get(form, ()))
        return next((run for run in runs if run is not None), None)

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
        run = executable.runner(args)
        if executable.opened and (found := form_of(key)) is not None:
            calls = executable.sized_calls(args)
            if calls is not None:
                self._sized[found[0]] = [calls, *self._sized.get(found[0], ())[:_MOST_SIZED]]
        return run

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
            key = signature(args), target_setting() if target is None else target, options
            return (*key, *sizes.values()) if sizes else key
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
        require_sizes(self._head, options)
        sizes = bind_sizes(self._head, {n: s.shape for n, s in specs.items()}, given)
        return self._definition.at(sizes), specs, chosen


def _function_again(text: str, source_name: str, name: str, options: Options) -> Function:
    """Return what was pickled: the program is checked again, and compiled when it is called."""
    return Function(define(text, source_name)[name]._definition, options)


def require_choices(target: object, options: object) -> None:
    """Raise a TCError unless *target* is a name and *options* are ``Options``, or None."""
    if not isinstance(target, str | None):
        require_target(target)
    if not isinstance(options, Options | None):
        raise BAD_OPTION(
            name="options", what=f"it is {shortened(options)}", advice="give tcdsl.Options(...)"
        )


def require_target(target: object) -> None:
    """Raise UNKNOWN_TARGET unless *target* is the name of one."""
    if target not in TARGETS:
        raise UNKNOWN_TARGET(target=target, known=", ".join(TARGETS), why="")


def require_function(f: object, caller: str, needed: Sequence[str] = ("comprehension",)) -> None:
    """Raise BAD_ARGUMENT unless *f* is a def of a program, or has all attributes *needed* of one.

    :arg caller: what was given *f*, for the error.
    """
    if isinstance(f, Program):
        advice = f"give one of its defs: program.{f.names[-1]}"
        what = f"this is a program, of {', '.join(f.names)}, not one def"
        raise BAD_ARGUMENT(argument=caller, what=what, advice=advice)
    if isinstance(f, type) or not all(hasattr(f, name) for name in needed):
        what = f"{shortened(f)} ({type(f).__name__}) is not a def of a program"
        advice = "give a def: program.name, of program = tcdsl.define(...)"
        if hasattr(f, "subscripts"):  # an einsum, which has a def for each rank and type
            advice = "give its def: einsum.function(A, B), for operands like A and B"
        raise BAD_ARGUMENT(argument=caller, what=what, advice=advice)


def shortened(value: object, most: int = 40) -> str:
    """Return the ``repr`` of *value* for a message, on one line of at most *most* characters."""
    line = " ".join(repr(value).split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def require_sizes(c: Head, options: Options) -> None:
    """Raise BAD_OPTION if *options* leave a size open that *c* does not have."""
    for name in options.dynamic_sizes:
        if name not in c.sizes:
            advice = other_case(name, c.sizes) or did_you_mean(name, c.sizes)
            advice = advice or f"the sizes are {', '.join(c.sizes)}"
            what = f"{c.name!r} has no size {name!r}"
            raise BAD_OPTION(name="dynamic_sizes", what=what, advice=advice)


def choose_target(target: str | None, specs: Mapping[str, ArraySpec]) -> str:
    """Return the target: the caller's, else ``TCDSL_TARGET``, else where the arrays are."""
    chosen = settings().target if target is None else target
    if chosen is None:
        devices = {spec.device for spec in specs.values()}
        is_on_gpu = any(device.startswith("cuda") for device in devices)
        chosen = "cuda" if is_on_gpu or (_may_move(specs) and cuda.is_available()) else "cpu"
    require_target(chosen)
    return chosen


def _may_move(specs: Mapping[str, ArraySpec]) -> bool:
    """Return whether all arrays are of libraries that know no devices."""
    return {spec.library for spec in specs.values()} <= {NUMPY, PYTHON}


@statements_call
@errors_at_the_call
def compute(statements: str, /, *, out: Any = None, target: str | None = None,
            options: Options | None = None, **inputs: Any) -> Any:  # fmt: skip
    """Compile and run *statements* without a header on the named arrays.

    The outputs are the tensors that are assigned and not read by a later statement: one array, or
    a tuple in the order in which they are first assigned.

    :arg inputs: arrays or numbers, by their names in *statements*.
    :arg out: as in a call of a function, like *target* and *options*.
    :raises TCError: *statements* have mistakes, or the arrays do not fit them.
    :raises TypeError: *statements* is not a string.
    """
    if not isinstance(statements, str):
        what = f"{shortened(statements)} ({type(statements).__name__})"
        raise TypeError(f"compute takes the text of statements, not {what}")
    specs = {name: describe(value, f"argument {name!r}") for name, value in inputs.items()}
    types = {name: (spec.dtype, spec.rank) for name, spec in specs.items()}
    function = _computed(statements, tuple(sorted(types.items())), tuple(inputs))
    return function(*inputs.values(), out=out, target=target, options=options)


def require_name(name: str) -> None:
    """Raise BAD_IDENTIFIER unless *name* is a name of the language, as statements can use it."""
    with late_import():
        from tcdsl.lang.syntax.ast import Assign
        from tcdsl.lang.syntax.parser import parse_statements

    try:
        (statement,) = parse_statements(Source(f"{name} = 0"))
        is_name = isinstance(statement, Assign) and statement.target == name
    except (TCError, ValueError):
        is_name = False
    if not is_name:
        advice = "use letters, digits and _, and none of the language's own words"
        raise BAD_IDENTIFIER(what=f"the argument {name!r} has no name", advice=advice)


_COMPUTED: dict[Any, Function] = {}


def _computed(
    statements: str, types: tuple[tuple[str, tuple[DType, int]], ...], order: tuple[str, ...]
) -> Function:
    key = (statements, types, order)
    function = _COMPUTED.get(key)
    if function is None:
        by_name = dict(types)
        program = _computed_program(statements, {name: by_name[name] for name in order})
        function = remember(_COMPUTED, key, Function(program.defs[0]))
    return function


def _computed_program(statements: str, inputs: Mapping[str, tuple[DType, int]]) -> LazyProgram:
    source = Source(statements)

    def analysed() -> "Iterable[Comprehension]":
        with late_import():
            from tcdsl.lang.syntax.parser import parse_statements
            from tcdsl.lang.types.sema import analyse_statements

        for name in inputs:
            require_name(name)
        return [analyse_statements(parse_statements(source), source, inputs)]

    types = [[name, dtype.name, rank] for name, (dtype, rank) in inputs.items()]
    return LazyProgram(source, analysed, {"kind": "statements", "inputs": types})
