"""Gathered and scattered indices out of range, which kernels report instead of following them.

Each program has a record, five words of pinned host memory: {code, site, index, extent, position}.
The first thread that finds a bad index claims the code by compare-and-swap and fills in the rest.
The host looks at the code at every later call of any program, which costs nothing while it is 0,
and reads the rest after waiting for the device.
"""

import ctypes
from collections.abc import Callable

from tcdsl.errors import TCError
from tcdsl.runtime.cuda import libcuda
from tcdsl.runtime.launch import FAULT_WORDS, Fault

_PAGE_BYTES = 4096
_RECORD_BYTES = 8 * FAULT_WORDS


class FaultRecord:
    """The record of one program in one context."""

    __slots__ = ("address", "error", "words")

    def __init__(self, address: int, error: Callable[[Fault], TCError]) -> None:
        self.address = address
        self.error = error
        self.words = (ctypes.c_int64 * FAULT_WORDS).from_address(address)

    def take(self) -> Fault:
        """Return what is recorded, and clear it for the next one."""
        fault = Fault(*self.words)
        ctypes.memset(self.address, 0, _RECORD_BYTES)
        return fault


class Faults:
    """The records of one context."""

    def __init__(self) -> None:
        self.records: list[FaultRecord] = []
        self._free: list[int] = []

    def new_record(self, error: Callable[[Fault], TCError]) -> FaultRecord:
        """Return a cleared record; *error* makes of a fault what is raised."""
        if not self._free:
            page = libcuda.allocate_pinned(_PAGE_BYTES)
            ctypes.memset(page, 0, _PAGE_BYTES)
            self._free = list(range(page, page + _PAGE_BYTES - _RECORD_BYTES + 1, _RECORD_BYTES))
        record = FaultRecord(self._free.pop(), error)
        self.records.append(record)
        return record

    def require_none(self) -> None:
        """Raise the error of the first program that has recorded a fault; its context is current.

        :raises LaunchError: (TC080) naming the tensor, the index and the extent.
        """
        for record in self.records:
            if record.words[0]:
                libcuda.synchronize_context()  # the other words may still be on their way
                raise record.error(record.take())
