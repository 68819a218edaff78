"""The site's own modules, which are no part of the package; they need no Sphinx to be tested."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "_ext"))
