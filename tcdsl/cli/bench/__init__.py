"""``tcdsl bench``: cases, peers, timing, tables and pages."""

from tcdsl.cli.bench.command import add_arguments, run

__all__ = ["add_arguments", "run"]
