"""Colours of ``%%tcdsl`` cells while they are typed: in IPython's terminal.

JupyterLab and Notebook colour cells in the browser, by CodeMirror modes that are part of their
build; what a kernel says cannot add one (docs/jupyter.md).
"""

from typing import Any


def colour_cells(shell: Any) -> None:
    """Let the prompt of *shell*, if it is a terminal, colour what follows ``%%tcdsl``."""
    prompt = getattr(shell, "pt_app", None)
    lexers = _magic_lexers(getattr(prompt, "lexer", None))
    if lexers is not None:
        from prompt_toolkit.lexers import PygmentsLexer  # there, where IPython has a prompt

        from tcdsl.lang.pygments_lexer import TcLexer

        # %%tcdsl_bench has Python in it, and IPython asks what a cell begins with, in this order.
        lexers.setdefault("tcdsl_bench", _python())
        lexers["tcdsl"] = PygmentsLexer(TcLexer)


def _python() -> Any:
    from prompt_toolkit.lexers import PygmentsLexer
    from pygments.lexers import PythonLexer

    return PygmentsLexer(PythonLexer)


def _magic_lexers(lexer: Any) -> dict[str, Any] | None:
    """Return the table of *lexer*, IPython's own or something around it, by magic."""
    for _ in range(3):  # a DynamicLexer may be around it
        table = getattr(lexer, "magic_lexers", None)
        if isinstance(table, dict):
            return table
        lexer = getattr(lexer, "lexer", None) or getattr(lexer, "original_lexer", None)
    return None
