"""What the cost model knows of a CPU and of a GPU."""

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cpu:
    """Threads that may run at once, and sizes in bytes."""

    threads: int
    vector_bytes: int = 64
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20


def this_cpu(threads: int = 0) -> Cpu:
    """Return the machine's CPU, with *threads* threads or (0) all that this process may use."""
    return Cpu(threads or len(os.sched_getaffinity(0)))


PORTABLE_CLUSTER = 8  # blocks that every GPU with clusters allows
FIRST_OVERLAPPING = 90  # the compute capability from which on kernels may overlap


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU: its multiprocessors, and what one block may have of them.

    The defaults are those of an H200.  *shared_bytes* is what a block may have statically,
    *staged_bytes* what it may ask for in all; *l2_bytes* is what the chip's cache holds, *cluster*
    how many blocks may form a cluster, 1 where there are none (before compute capability 9.0).
    """

    arch: str = "sm_90"
    multiprocessors: int = 132
    threads_per_block: int = 1024
    threads_per_multiprocessor: int = 2048
    shared_bytes: int = 48 << 10
    grid: tuple[int, int, int] = (2**31 - 1, 65535, 65535)
    l2_bytes: int = 60 << 20
    staged_bytes: int = 227 << 10
    cluster: int = PORTABLE_CLUSTER

    @property
    def threads(self) -> int:
        """How many threads the chip holds at once."""
        return self.multiprocessors * self.threads_per_multiprocessor

    @property
    def overlaps_kernels(self) -> bool:
        """Whether a kernel may begin before the one before it has ended."""
        return int(self.arch.removeprefix("sm_").rstrip("af")) >= FIRST_OVERLAPPING
