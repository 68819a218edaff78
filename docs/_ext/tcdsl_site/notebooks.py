"""The notebooks, copied to where Sphinx looks for pages.

    notebooks/01_name.md                                    docs/notebooks/01_name.ipynb
    build/notebooks/01_name.ipynb (run by .ci/run)  --->    (or the .md, without outputs)

Running them once is .ci/run's business: the site shows what came out there.
"""

import os
import shutil
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config

PATTERNS = ("[0-9][0-9]_*.md", "[0-9][0-9]_*.ipynb")


def take_notebooks(app: Sphinx, config: Config) -> None:
    """Make docs/notebooks hold every notebook once, executed if it was."""
    pages = Path(app.srcdir)
    sources = pages.parent / "notebooks"
    executed = Path(os.environ.get("EXECUTED_NOTEBOOKS", pages.parent / "build" / "notebooks"))
    found = {path.stem: path for pattern in PATTERNS for path in sorted(sources.glob(pattern))}
    chosen = [_executed(executed, stem) or path for stem, path in sorted(found.items())]
    target = pages / "notebooks"
    target.mkdir(exist_ok=True)
    wanted = {path.name for path in chosen}
    for old in target.iterdir():
        if old.name not in wanted:
            old.unlink()
    for path in chosen:
        copy = target / path.name
        if not copy.exists() or copy.read_bytes() != path.read_bytes():
            shutil.copyfile(path, copy)


def _executed(folder: Path, stem: str) -> Path | None:
    path = folder / f"{stem}.ipynb"
    return path if path.exists() else None
