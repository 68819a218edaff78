"""The public names: define, compute, Program, Function, Executable.

    prog = tcdsl.define("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }")
    C = prog.mm(A, B)

A call is checked and compiled once for each combination of types, shapes and strides; a later call
with the same combination costs a dictionary look-up and the launch.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tcdsl.errors import (
    BAD_ARGUMENTS,
    BAD_OUT,
    OUT_OF_RANGE,
    OUT_REQUIRED,
    UNKNOWN_DEF,
    UNKNOWN_TARGET,
    TCWarning,
)
from tcdsl.executable import Executable, build
from tcdsl.interp.oracle import evaluate
from tcdsl.lang.comprehension import Comprehension, Specialisation
from tcdsl.lang.dtypes import DType
from tcdsl.lang.elaborate import did_you_mean
from tcdsl.lang.parser import parse_program, parse_statements
from tcdsl.lang.range_inference import bind_sizes, specialise
from tcdsl.lang.sema import analyse, analyse_statements
from tcdsl.options import Options
from tcdsl.runtime.arrays import ArraySpec, describe
from tcdsl.settings import settings
from tcdsl.source import Source

TARGETS = ("cuda", "cpu", "emulate", "reference")


def define(source: str, name: str = "<tc>") -> "Program":
    """Parse and check *source*; return its defs as callable functions.

    :raises TCError: with every mistake that was found, each at its line and column.
    """
    text = Source(source, name)
    return Program(analyse(parse_program(text)), text)


class Program:
    """The defs of one source text: ``prog.name`` or ``prog["name"]`` is a :class:`Function`."""

    def __init__(self, comprehensions: Sequence[Comprehension], source: Source) -> None:
        self.source = source
        self._functions = {c.name: Function(c) for c in comprehensions}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the defs, in source order."""
        return tuple(self._functions)

    def __getitem__(self, name: str) -> "Function":
        if name not in self._functions:
            hint = did_you_mean(name, self._functions) or f"the defs are {', '.join(self.names)}"
            raise UNKNOWN_DEF(name=name, hint=hint)
        return self._functions[name]

    def __getattr__(self, name: str) -> "Function":
        if name.startswith("__") or name not in self.__dict__.get("_functions", {}):
            known = ", ".join(self.__dict__.get("_functions", {}))
            raise AttributeError(f"the program has no def {name!r}; it has {known}")
        return self._functions[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.names]

    def __repr__(self) -> str:
        return f"<tcdsl.Program {', '.join(map(repr, self._functions.values()))}>"


class Function:
    """One def, called like a function on arrays of NumPy, torch and others."""

    def __init__(self, comprehension: Comprehension, options: Options | None = None) -> None:
        self.comprehension = comprehension
        self.options = options or Options()
        self.__name__ = comprehension.name
        self.__doc__ = signature_text(comprehension)
        self._plans: dict[Any, Executable] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<tcdsl.Function {signature_text(self.comprehension)}>"

    def __call__(
        self,
        *args: Any,
        out: Any = None,
        target: str | None = None,
        options: Options | None = None,
    ) -> Any:
        """Return the outputs for *args*: one array, or a tuple where there are several.

        :arg out: an array, or one an output in order, that receives the result.
        :arg target: "cpu", "cuda", "emulate" or "reference"; by default where the arrays are.
        :raises ShapeError: the arrays do not fit the program, before anything runs.
        """
        executable = self._executable(args, target, options)
        return executable(*args, out=out)

    def compile(
        self, *args: Any, target: str | None = None, options: Options | None = None
    ) -> Executable:
        """Return the code for arguments like *args*: arrays, or ``tcdsl.spec(shape, dtype)``."""
        return self._executable(args, target, options)

    def output_shapes(self, *args: Any) -> dict[str, tuple[int, ...]]:
        """Return the shape of every output for arguments like *args*."""
        special = self.specialise(*args)
        return {name: special.shapes[name] for name in self.comprehension.outputs}

    def ranges(self, *args: Any) -> list[dict[str, range]]:
        """Return the range of each index, one dict a statement in source order."""
        return [dict(ranges) for ranges in self.specialise(*args).ranges]

    def specialise(self, *args: Any) -> Specialisation:
        """Return sizes, ranges and boxes for arguments like *args*."""
        specs = self.specs(args)
        sizes = bind_sizes(self.comprehension, {n: s.shape for n, s in specs.items()})
        return specialise(self.comprehension, sizes)

    def specs(self, args: Sequence[Any]) -> dict[str, ArraySpec]:
        """Return what the arguments are, by parameter name; their number must fit."""
        names = self.comprehension.inputs
        if len(args) != len(names):
            raise BAD_ARGUMENTS(
                name=self.comprehension.name, expected=len(names), got=len(args),
                s="" if len(names) == 1 else "s", signature=signature_text(self.comprehension),
            )  # fmt: skip
        return {
            name: arg if isinstance(arg, ArraySpec) else describe(arg, f"argument {name!r}")
            for name, arg in zip(names, args, strict=True)
        }

    def reference(self, *args: Any, out: Any = None) -> Any:
        """Return the outputs that the oracle computes with NumPy, independent of all compilation."""
        return self(*args, out=out, target="reference")

    def _executable(
        self, args: Sequence[Any], target: str | None, options: Options | None
    ) -> Executable:
        from tcdsl.runtime.warm_path import signature

        key = (signature(args), target, options)
        executable = self._plans.get(key)
        if executable is None:
            executable = self._make(args, target, options or self.options)
            with self._lock:
                executable = self._plans.setdefault(key, executable)
        return executable

    def _make(self, args: Sequence[Any], target: str | None, options: Options) -> Executable:
        specs = self.specs(args)
        chosen = choose_target(target, specs)
        sizes = bind_sizes(self.comprehension, {n: s.shape for n, s in specs.items()})
        special = specialise(self.comprehension, sizes)
        return build(self.comprehension, special, specs, chosen, options)


def choose_target(target: str | None, specs: Mapping[str, ArraySpec]) -> str:
    """Return the target: the caller's, else ``TCDSL_TARGET``, else where the arrays are."""
    chosen = target or settings().target
    if chosen is None:
        devices = {spec.device for spec in specs.values()}
        chosen = "cuda" if any(device.startswith("cuda") for device in devices) else "cpu"
    if chosen not in TARGETS:
        raise UNKNOWN_TARGET(target=chosen, known=", ".join(TARGETS), why="")
    return chosen


def signature_text(c: Comprehension) -> str:
    """Return the def's head with the types and sizes that were inferred."""
    inputs = ", ".join(_typed(c, name) for name in c.inputs)
    outputs = ", ".join(_typed(c, name) for name in c.outputs)
    return f"{c.name}({inputs}) -> ({outputs})"


def _typed(c: Comprehension, name: str) -> str:
    tensor = c.tensors[name]
    dims = ",".join("?" if dim is None else str(dim) for dim in tensor.dims)
    return f"{tensor.dtype}({dims}) {name}" if dims else f"{tensor.dtype} {name}"


def compute(statements: str, /, *, out: Any = None, target: str | None = None,
            options: Options | None = None, **inputs: Any) -> Any:  # fmt: skip
    """Return what *statements*, without a def around them, compute from the named arrays.

    The outputs are the tensors that are assigned and not read by a later statement.
    """
    specs = {name: describe(value, f"argument {name!r}") for name, value in inputs.items()}
    types = {name: (spec.dtype, spec.rank) for name, spec in specs.items()}
    function = _computed(statements, tuple(sorted(types.items())), tuple(inputs))
    return function(*inputs.values(), out=out, target=target, options=options)


_COMPUTED: dict[Any, Function] = {}
_COMPUTED_LIMIT = 1024


def _computed(
    statements: str, types: tuple[tuple[str, tuple[DType, int]], ...], order: tuple[str, ...]
) -> Function:
    key = (statements, types, order)
    function = _COMPUTED.get(key)
    if function is None:
        source = Source(statements)
        by_name = dict(types)
        comprehension = analyse_statements(
            parse_statements(source), source, {name: by_name[name] for name in order}
        )
        function = Function(comprehension)
        if len(_COMPUTED) >= _COMPUTED_LIMIT:
            _COMPUTED.pop(next(iter(_COMPUTED)))
        _COMPUTED[key] = function
    return function


__all__ = [
    "BAD_OUT", "OUT_OF_RANGE", "OUT_REQUIRED", "Executable", "Function", "Program", "TCWarning",
    "compute", "define", "evaluate", "np",
]  # fmt: skip
