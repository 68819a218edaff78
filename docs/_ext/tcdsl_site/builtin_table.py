"""The table of builtin functions, from the list that the compiler reads."""

from tcdsl.derivatives.builtin_rules import rules
from tcdsl.lang.types.builtins import BUILTINS, BuiltinKind

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


def derivatives() -> str:
    """Return a row for each builtin that can be differentiated: its derivatives by argument."""
    rows = [
        f"| `{name}({', '.join(BUILTINS[name].parameters)})` "
        f"| {', '.join(f'`{_bars(slope)}`' for slope in slopes)} |"
        for name, slopes in sorted(rules().items())
    ]
    return "\n".join(["| function | derivatives, by argument |", "|---|---|", *rows]) + "\n"


def _bars(text: str) -> str:
    return text.replace("|", r"\|")


def _escaped(text: str) -> str:
    """Return *text* for a cell of a table: a bar would end the cell."""
    return text.replace("|", r"\|").replace("*", r"\*")
