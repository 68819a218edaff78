"""How long kernels take whose blocks share a launch: a launch, and all blocks from its start on.

That is as long as the longest of them alone, or as the units that all use are busy.  A block has
the registers of the kernel that takes the most, and the shared memory of all; or, where a pipeline
has all of it (schedule/pipelines.py), that of the one which takes the most.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil

from tcdsl.costmodel.chip import Chip
from tcdsl.costmodel.estimate import estimate
from tcdsl.costmodel.occupancy import resident_blocks, usable
from tcdsl.costmodel.work import Work


def side_by_side_seconds(works: Sequence[Work], gpu: Chip, *, are_apart: bool = False) -> float:
    """Return how long one launch of the blocks of *works* takes.

    :arg are_apart: their shared memory has one place.
    """
    registers = max(work.registers for work in works)
    shared_bytes = (max if are_apart else sum)(work.shared_bytes for work in works)
    of_all = [replace(w, registers=registers, shared_bytes=shared_bytes) for w in works]
    return max(launch_seconds(work, gpu) for work in works) + longest(of_all, gpu)


def launch_seconds(work: Work, gpu: Chip) -> float:
    """Return how long the launch of *work* takes."""
    return estimate(work, gpu).term("launch")


def block_seconds(work: Work, gpu: Chip) -> float:
    """Return about how long a block of *work* takes."""
    alone = estimate(work, gpu)
    turns = ceil(work.blocks / (gpu.multiprocessors * max(1, resident_blocks(work, gpu))))
    return (alone.seconds - alone.term("launch")) / turns


def longest(works: Sequence[Work], gpu: Chip) -> float:
    """Return how long kernels run that begin at once: the longest, or the units that all use."""
    found = busy = 0.0
    for work in works:
        alone = estimate(work, gpu)
        body = alone.seconds - alone.term("launch")
        found, busy = max(found, body), busy + _busy(work, body, alone.terms, gpu)
    return max(found, busy)


def _busy(work: Work, body: float, terms: Mapping[str, float], gpu: Chip) -> float:
    """Return how long *work*, which takes *body* alone, keeps others from what all use.

    What blocks wait for others hide; but tiles are so few at once that they hide it of one another
    alone: others begin where the last of them leave multiprocessors idle.
    """
    if work.is_tiled:
        turns = work.blocks / min(work.blocks, usable(work, gpu))
        return body * turns / ceil(turns)
    waiting = min(body, terms.get("latency", 0.0))
    return max(body - waiting, _throughput(terms))


def _throughput(terms: Mapping[str, float]) -> float:
    others = (s for n, s in terms.items() if n not in ("latency", "launch", "finish"))
    return max(others, default=0.0)
