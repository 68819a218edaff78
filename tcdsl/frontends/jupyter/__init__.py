"""``%load_ext tcdsl``: programs as cells of a notebook, looked at and timed by magics.

    %%tcdsl [NAME]                  defines the programs of the cell
    %tcdsl_show STAGE f(A, B)       what a def becomes on its way to the machine
    %tcdsl_bench f(A, B)            how long it takes, beside others and beside what is possible

It also completes the language in such cells, and colours them where IPython itself does so, in a
terminal.  Everything works without it: it is only shorter.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell


def load(shell: "InteractiveShell") -> None:
    """Make the magics, the completion and the colours known to *shell*."""
    # IPython is there when this is called, and only then.
    from tcdsl.frontends.jupyter.completion import Matcher, matchers_of
    from tcdsl.frontends.jupyter.highlighting import colour_cells
    from tcdsl.frontends.jupyter.magics import TcdslMagics

    unload(shell)
    shell.register_magics(TcdslMagics(shell))
    matchers_of(shell).append(Matcher(shell))
    colour_cells(shell)


def unload(shell: "InteractiveShell") -> None:
    """Take back what :func:`load` did."""
    from tcdsl.frontends.jupyter.completion import Matcher, matchers_of
    from tcdsl.frontends.jupyter.highlighting import uncolour_cells
    from tcdsl.frontends.jupyter.magics import CELL_MAGICS, LINE_MAGICS

    known = shell.magics_manager.magics
    for kind, names in (("line", LINE_MAGICS), ("cell", CELL_MAGICS)):
        for name in names:
            known[kind].pop(name, None)
    uncolour_cells(shell)
    found = matchers_of(shell)
    found[:] = [matcher for matcher in found if not isinstance(matcher, Matcher)]
