"""How long a kernel takes on a CPU: its phases one after another, and what starts the threads.

A phase computes while what it reads comes nearer, level by level::

    core      |  max(operations / rate, l1_bytes / rate, waits) + starts   |   of each thread
    beyond    |  l2_bytes / rate + l3_bytes / rate | memory, which threads share

Both overlap, for processors load ahead: the time is a norm of theirs, the longer one at least.  A
byte from memory goes through all caches, one after another, as in the execution-cache-memory model:
H. Stengel, J. Treibig, G. Hager, G. Wellein, Quantifying performance bottlenecks of stencil
computations using the execution-cache-memory model, ICS 2015, doi:10.1145/2751205.2751240.
"""

from tcdsl.costmodel.cpu_thresholds import LOOP_START_SECONDS, OVERLAP
from tcdsl.costmodel.cpu_work import CpuWork, Phase
from tcdsl.costmodel.estimate import Estimate
from tcdsl.costmodel.machine import Cpu

THREADS = "threads"


def estimate_on_cpu(work: CpuWork, cpu: Cpu) -> Estimate:
    """Return how long *work* takes on *cpu*, and what each of its terms would take alone."""
    terms = {THREADS: work.forks * cpu.fork_s}
    seconds = terms[THREADS]
    for phase in work.phases:
        found = _terms(phase, cpu)
        for name, own in found.items():
            terms[name] = terms.get(name, 0.0) + own
        seconds += _of_phase(found)
    return Estimate(seconds, terms)


def _terms(phase: Phase, cpu: Cpu) -> dict[str, float]:
    """Return the seconds that *phase* takes of each thing."""
    each = 1 / max(1.0, phase.threads)
    return {
        "arithmetic": each * sum(count / cpu.rate(unit) for unit, count in phase.operations),
        "dependent operations": each * phase.waits * cpu.fma_latency_s,
        "loops": each * phase.starts * LOOP_START_SECONDS,
        "L1": each * phase.l1_bytes / cpu.l1_bytes_per_s,
        "L2": each * phase.l2_bytes / cpu.l2_bytes_per_s,
        "L3": each * phase.l3_bytes / cpu.l3_bytes_per_s,
        "memory": phase.dram_bytes / cpu.dram_copy_bytes_per_s,
    }


def _of_phase(terms: dict[str, float]) -> float:
    core = max(terms["arithmetic"], terms["dependent operations"], terms["L1"]) + terms["loops"]
    beyond = terms["L2"] + terms["L3"] + terms["memory"]
    longest = max(core, beyond)
    if not longest:
        return 0.0
    shares = ((one / longest) ** OVERLAP for one in (core, beyond))
    return float(longest * sum(shares) ** (1 / OVERLAP))
