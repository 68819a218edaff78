"""How long kernels take whose blocks share a launch: a launch, and all blocks from its start on.

That is as long as the longest of them alone, or as the units that all use are busy.  A block has
the registers of the kernel that takes the most, and the shared memory of all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.estimate import estimate
from tcdsl.costmodel.work import Work


def side_by_side_seconds(works: Sequence[Work], gpu: Chip) -> float:
    """Return how long one launch of the blocks of *works* takes."""
    registers = max(work.registers for work in works)
    shared_bytes = sum(work.shared_bytes for work in works)
    of_all = [replace(w, registers=registers, shared_bytes=shared_bytes) for w in works]
    return max(launch_seconds(work, gpu) for work in works) + longest(of_all, gpu)


def launch_seconds(work: Work, gpu: Chip) -> float:
    """Return how long the launch of *work* takes."""
    return estimate(work, gpu).term("launch")


def longest(works: Sequence[Work], gpu: Chip) -> float:
    """Return how long kernels run that begin at once: the longest, or the units that all use."""
    found = busy = 0.0
    for work in works:
        alone = estimate(work, gpu)
        body = alone.seconds - alone.term("launch")
        waiting = min(body, alone.term("latency"))
        found, busy = max(found, body), busy + max(body - waiting, _throughput(alone.terms))
    return max(found, busy)


def _throughput(terms: Mapping[str, float]) -> float:
    others = (s for n, s in terms.items() if n not in ("latency", "launch", "finish"))
    return max(others, default=0.0)
