"""Colours of ``%%tcdsl`` cells while they are typed: in IPython's terminal.

JupyterLab and Notebook colour cells in the browser, by CodeMirror modes that are part of their
build; what a kernel says cannot add one (docs/jupyter.md).
"""

from collections.abc import Callable
from typing import Any

_HOOK = "_extra_prompt_options"  # IPython makes its lexer anew for each prompt, and here


def colour_cells(shell: Any) -> None:
    """Let the prompt of *shell*, if it is a terminal, colour what follows ``%%tcdsl``."""
    options = getattr(shell, _HOOK, None)
    if options is not None and not isinstance(options, _Coloured):
        setattr(shell, _HOOK, _Coloured(options))


def uncolour_cells(shell: Any) -> None:
    """Take back what :func:`colour_cells` did."""
    options = getattr(shell, _HOOK, None)
    if isinstance(options, _Coloured):
        setattr(shell, _HOOK, options.original)


class _Coloured:
    """The options of a prompt, with more magics in the lexer."""

    def __init__(self, original: Callable[[], dict[str, Any]]) -> None:
        self.original = original

    def __call__(self) -> dict[str, Any]:
        options = self.original()
        # By what a cell begins with: the first that fits.
        magics = getattr(options.get("lexer"), "magic_lexers", None)
        if isinstance(magics, dict):
            magics.update(lexers())
        return options


def lexers() -> dict[str, Any]:
    """Return the lexers of prompt_toolkit by magic; of two that fit the first counts."""
    from prompt_toolkit.lexers import PygmentsLexer  # there, where IPython has a prompt
    from pygments.lexers import PythonLexer

    from tcdsl.lang.syntax.pygments_lexer import TcLexer

    return {"tcdsl_bench": PygmentsLexer(PythonLexer), "tcdsl": PygmentsLexer(TcLexer)}
