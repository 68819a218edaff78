"""A program: its definitions by name, and ``define``, which makes one of a text."""

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from tcdsl.api.function import Function, lazy_program
from tcdsl.api.requirements import shortened
from tcdsl.errors import UNKNOWN_DEF
from tcdsl.lang.syntax.spelling import did_you_mean
from tcdsl.options import BAD_ARGUMENT
from tcdsl.runtime.documented import Documented, documented_names
from tcdsl.runtime.imports import late_import
from tcdsl.runtime.lazy_defs import LazyDef
from tcdsl.runtime.tracebacks import errors_at_the_call
from tcdsl.source import Source


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
    return Program(lazy_program(text).defs, text)


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

    def __call__(self, *args: object, **named: object) -> NoReturn:
        """Raise BAD_ARGUMENT: its defs are called."""
        what = f"this is a program, of {', '.join(self.names)}, not one def"
        advice = f"call one of its defs: program.{self.names[-1]}(...)"
        raise BAD_ARGUMENT(argument="a call", what=what, advice=advice)

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
