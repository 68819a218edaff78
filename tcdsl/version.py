"""The version, in one place, and the identity of the code that this process runs."""

import hashlib
import os
from functools import cache

__version__ = "0.1.0"

_CODE = (".py", ".h", ".cuh", ".cpp", ".lark")


@cache
def build_identity() -> str:
    """Return a digest of the names, sizes and times of the package's files.

    Generated code depends on every one of them, and whoever edits tcdsl must not meet what an
    older state of it has cached.
    """
    digest = hashlib.sha256(__version__.encode())
    for folder, _, files in sorted(os.walk(os.path.dirname(os.path.abspath(__file__)))):
        for file in sorted(files):
            if file.endswith(_CODE):
                status = os.stat(os.path.join(folder, file))
                digest.update(f"{file} {status.st_size} {status.st_mtime_ns}".encode())
    return digest.hexdigest()
