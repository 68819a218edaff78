"""``compute``: statements without a header, compiled for the types of named arrays."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from tcdsl.api.function import Function
from tcdsl.api.requirements import shortened
from tcdsl.errors import BAD_IDENTIFIER, TCError
from tcdsl.lang.types.dtypes import DType
from tcdsl.options import Options
from tcdsl.runtime.arrays import describe
from tcdsl.runtime.imports import late_import
from tcdsl.runtime.lazy_defs import LazyProgram
from tcdsl.runtime.tracebacks import errors_at_the_call
from tcdsl.runtime.typed_calls import statements_call
from tcdsl.runtime.warm_path import remember
from tcdsl.source import Source

if TYPE_CHECKING:
    from tcdsl.lang.comprehension import Comprehension

_COMPUTED: dict[Any, Function] = {}


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


def _computed(
    statements: str, types: tuple[tuple[str, tuple[DType, int]], ...], order: tuple[str, ...]
) -> Function:
    key = (statements, types, order)
    function = _COMPUTED.get(key)
    if function is None:
        by_name = dict(types)
        program = computed_program(statements, {name: by_name[name] for name in order})
        function = remember(_COMPUTED, key, Function(program.defs[0]))
    return function


def computed_program(statements: str, inputs: Mapping[str, tuple[DType, int]]) -> LazyProgram:
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
