"""The scripts of ``benchmarks/`` as modules."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[1] / "benchmarks"


def script(name: str) -> ModuleType:
    """Return ``benchmarks/<name>.py``, which may import what lies in the same folder."""
    if str(FOLDER) not in sys.path:
        sys.path.append(str(FOLDER))
    known = f"tcdsl_{name}"
    spec = importlib.util.spec_from_file_location(known, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[known] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module
