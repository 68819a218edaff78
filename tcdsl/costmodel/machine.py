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
