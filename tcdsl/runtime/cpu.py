"""A compiled plan on the CPU: from arrays to a launch.

A program's tensors are arguments; each has one pointer, inputs and outputs alike, so that an output
that is also an input is updated in place, after the argument's contents were copied into it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tcdsl.lang.faults import Site, sites_from_json
from tcdsl.records import dataclass
from tcdsl.runtime.arguments import ALIGNMENT
from tcdsl.runtime.host_products import serve_products
from tcdsl.runtime.launch import Kernel, WorkspaceFunction, load, load_library, load_workspace
from tcdsl.runtime.warm_path import address


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a launch needs to know of compiled code; stored beside it in the cache."""

    pointers: tuple[str, ...]  # tensors, then "" for the workspace
    workspace_bytes: int | None  # None: the code tells, given the integers
    sites: tuple[Site, ...]
    stages: Mapping[str, str]
    kernels: tuple[Mapping[str, Any], ...]
    integers: tuple[tuple[str, int], ...] = ()  # (open size, -1), or (tensor, dim): its stride

    @property
    def opened(self) -> tuple[str, ...]:
        """The sizes that are open."""
        return tuple(name for name, dim in self.integers if dim < 0)

    def to_json(self) -> dict[str, Any]:
        return {
            "pointers": list(self.pointers),
            "workspace_bytes": self.workspace_bytes,
            "sites": [list(site) for site in self.sites],
            "stages": dict(self.stages),
            "kernels": [dict(kernel) for kernel in self.kernels],
            "integers": [list(integer) for integer in self.integers],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Manifest":
        return cls(
            tuple(data["pointers"]),
            None if data["workspace_bytes"] is None else int(data["workspace_bytes"]),
            sites_from_json(data["sites"]),
            dict(data["stages"]),
            tuple(dict(kernel) for kernel in data["kernels"]),
            tuple((str(name), int(dim)) for name, dim in data["integers"]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Workspace:
    """Memory for what lies between the statements of one call."""

    array: "np.ndarray[Any, Any]"
    address: int


class CpuProgram:
    """Loaded code at certain values of its integers, and the workspace that it keeps.

    Without open sizes there are no integers.  With them, :meth:`at` returns the same code at
    other values.
    """

    def __init__(self, code: bytes, manifest: Manifest, integers: Sequence[int] = ()) -> None:
        self.manifest = manifest
        self.kernel: Kernel = load(
            code, "tcdsl_entry", len(manifest.pointers), len(manifest.integers)
        )
        self.has_products = serve_products(load_library(code))
        self._workspace: WorkspaceFunction | None = None
        if manifest.workspace_bytes is None:
            self._workspace = load_workspace(code)
        self._idle: list[Workspace] = []
        self._set(integers)

    def _set(self, integers: Sequence[int]) -> None:
        self.integers = self.kernel.pack_integers(integers)
        self.workspace_bytes = self.workspace_bytes_at(self.integers)
        self.needs_workspace = self.workspace_bytes > 0

    def workspace_bytes_at(self, integers: bytes) -> int:
        """Return how much memory the code needs with *integers*, packed."""
        if self._workspace is not None:
            return self._workspace(integers)
        return self.manifest.workspace_bytes or 0

    def at(self, integers: Sequence[int]) -> "CpuProgram":
        """Return this code with other *integers*; the two share their idle workspaces."""
        other = CpuProgram.__new__(CpuProgram)
        other.__dict__ = self.__dict__.copy()  # copy.copy takes 3 us more
        other._set(integers)
        return other

    def take_workspace(self) -> Workspace:
        """Return memory for one call; :meth:`give_back` keeps it for the next."""
        return self.memory_of(self.workspace_bytes)

    def memory_of(self, size_bytes: int) -> Workspace:
        """Return memory of *size_bytes* or more for one call, at other sizes than these."""
        # No lock, which a forked child might find taken: lists pop and append atomically.
        try:
            idle = self._idle.pop()
            if idle.array.size >= size_bytes:
                return idle
        except IndexError:
            pass
        raw = np.empty(size_bytes + ALIGNMENT, np.uint8)
        start = -address(raw) % ALIGNMENT
        aligned = raw[start : start + size_bytes]
        return Workspace(aligned, address(aligned))

    def give_back(self, workspace: Workspace) -> None:
        self._idle.append(workspace)

    def pointers(self, addresses: Mapping[str, int], workspace: int) -> list[int]:
        """Return the launch's pointers from the tensors' addresses."""
        return [addresses[name] if name else workspace for name in self.manifest.pointers]
