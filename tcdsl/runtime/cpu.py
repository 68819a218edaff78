"""A compiled plan on the CPU: from arrays to a launch.

A program's tensors are arguments; each has one pointer, inputs and outputs alike, so that an output
that is also an input is updated in place, after the argument's contents were copied into it.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcdsl.runtime.arguments import ALIGNMENT
from tcdsl.runtime.launch import Kernel, load
from tcdsl.runtime.warm_path import address


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a launch needs to know of compiled code; stored beside it in the cache."""

    pointers: tuple[str, ...]  # tensors, then "" for the workspace
    workspace_bytes: int
    sites: tuple[tuple[str, int], ...]
    stages: Mapping[str, str]
    kernels: tuple[Mapping[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "pointers": list(self.pointers),
            "workspace_bytes": self.workspace_bytes,
            "sites": [list(site) for site in self.sites],
            "stages": dict(self.stages),
            "kernels": [dict(kernel) for kernel in self.kernels],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Manifest":
        return cls(
            tuple(data["pointers"]),
            int(data["workspace_bytes"]),
            tuple((str(name), int(dim)) for name, dim in data["sites"]),
            dict(data["stages"]),
            tuple(dict(kernel) for kernel in data["kernels"]),
        )


class CpuProgram:
    """Loaded code, and the workspace that it keeps between calls."""

    def __init__(self, code: bytes, manifest: Manifest) -> None:
        self.manifest = manifest
        self.kernel: Kernel = load(code, "tcdsl_entry", len(manifest.pointers))
        self.integers = self.kernel.pack_integers(())
        self._idle: list[np.ndarray[Any, Any]] = []
        self.needs_workspace = manifest.workspace_bytes > 0

    def take_workspace(self) -> "np.ndarray[Any, Any]":
        """Return memory for one call; :meth:`give_back` keeps it for the next."""
        # No lock, which a forked child might find taken: lists pop and append atomically.
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        raw = np.empty(self.manifest.workspace_bytes + ALIGNMENT, np.uint8)
        start = -address(raw) % ALIGNMENT
        return raw[start : start + self.manifest.workspace_bytes]

    def give_back(self, workspace: "np.ndarray[Any, Any]") -> None:
        self._idle.append(workspace)

    def pointers(self, addresses: Mapping[str, int], workspace: int) -> list[int]:
        """Return the launch's pointers from the tensors' addresses."""
        return [addresses[name] if name else workspace for name in self.manifest.pointers]
