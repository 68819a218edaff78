"""``tcdsl cache``: what the cache of compiled programs holds; ``--clear`` empties it."""

import argparse

from tcdsl.cli.console import standard_output
from tcdsl.runtime.cache import CacheStats, default_cache


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments to *parser*."""
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--clear", action="store_true", help="remove every entry")
    choice.add_argument("--path", action="store_true", help="print the folder and nothing else")


def contents_text(stats: CacheStats) -> str:
    """Return how much is held: ``3 entries, 0.1 of 1024 MiB``."""
    entries = "1 entry" if stats.entries == 1 else f"{stats.entries} entries"
    return f"{entries}, {stats.size_bytes / 2**20:.1f} of {stats.limit_bytes / 2**20:.0f} MiB"


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return 1 if the cache cannot be used."""
    console = standard_output()
    cache = default_cache()
    stats = cache.stats()
    if stats.problem:
        console.print(f"the cache is not used: {stats.problem}", markup=False)
        return 1
    if arguments.path:
        console.print(str(stats.root), markup=False)
    elif arguments.clear:
        cache.clear()
        console.print(f"removed {contents_text(stats)}")
    else:
        console.print(f"{stats.root}: {contents_text(stats)}", markup=False)
    return 0
