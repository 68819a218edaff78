"""How late copies to shared memory are, which threads start some steps ahead.

    stages = 3    step 0 | step 1 | step 2 |        a step computes for *own* cycles, and
                  copy 2 | copy 3 | copy 4 |        a copy has two of them until it is needed

A copy takes a latency, of which each of the steps before it hides a part, and its bytes at the rate
of a multiprocessor.  Where it is longer than a step, every step waits for the rest.
"""

from math import hypot, sqrt

# Until a copy is there that threads have started, and a box (an H200, measured candidates).
THREAD_CYCLES, BOX_CYCLES = 800, 1600
BYTES_PER_CYCLE = 72  # that come to a multiprocessor at most


def late_cycles(
    step_bytes: float, stages: int, own: float, latency: float = THREAD_CYCLES
) -> float:
    """Return the cycles that a step of *own* cycles waits for the *step_bytes* that it needs.

    One stage has its copy in the same step, and waits for all of it.  *latency*: cycles of a copy.
    """
    waited = latency / max(1, stages - 1)
    # Of terms that overlap, but for what chance puts one after the other.
    copied = sqrt(hypot(waited**2, (step_bytes / BYTES_PER_CYCLE) ** 2))
    return copied if stages == 1 else max(0.0, copied - own)
