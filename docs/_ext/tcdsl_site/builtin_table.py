"""The table of builtin functions, from the list that the compiler reads."""

from tcdsl.lang.builtins import BUILTINS, BuiltinKind

_TYPES = {
    BuiltinKind.FLOAT: "float&nbsp;→&nbsp;float",
    BuiltinKind.ANY: "number&nbsp;→&nbsp;same",
    BuiltinKind.TEST: "float&nbsp;→&nbsp;bool",
}


def builtins() -> str:
    """Return a row for each function: its signature, types, and what it computes."""
    rows = [
        f"| `{name}({', '.join(builtin.parameters)})` | {_TYPES[builtin.kind]} "
        f"| {_escaped(builtin.meaning)} |"
        for name, builtin in sorted(BUILTINS.items())
    ]
    return "\n".join(["| function | types | value |", "|---|---|---|", *rows]) + "\n"


def _escaped(text: str) -> str:
    """Return *text* for a cell of a table: a bar would end the cell."""
    return text.replace("|", r"\|").replace("*", r"\*")
