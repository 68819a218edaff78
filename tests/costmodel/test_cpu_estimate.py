"""The estimate of a CPU's kernels: what its terms are, and that more of anything takes longer."""

from dataclasses import fields, replace

import pytest

from tcdsl.costmodel.chip import Unit
from tcdsl.costmodel.cpu_estimate import estimate_on_cpu
from tcdsl.costmodel.cpu_work import CpuWork, Phase
from tcdsl.costmodel.machine import Cpu

PHASE = Phase(2.0, ((Unit.FMA_F32, 1e6),), 1e3, 1e2, 1e6, 1e6, 1e6, 1e5)
TERMS = {
    "waits": "dependent operations", "starts": "loops", "l1_bytes": "L1", "l2_bytes": "L2",
    "l3_bytes": "L3", "dram_bytes": "memory",
}  # fmt: skip


def test_every_count_has_a_case() -> None:
    assert {*TERMS, "threads", "operations"} == {field.name for field in fields(Phase)}


@pytest.mark.parametrize("name", TERMS)
def test_what_is_most_limits(name: str) -> None:
    cpu = Cpu(4)
    before = estimate_on_cpu(CpuWork((PHASE,)), cpu)
    more = estimate_on_cpu(CpuWork((replace(PHASE, **{name: 1e12}),)), cpu)
    assert more.limiter == TERMS[name] and more.seconds > 100 * before.seconds
    assert more.seconds >= max(more.terms.values())


def test_threads_share_all_but_memory_and_take_time_to_start() -> None:
    cpu = Cpu(8)
    one, eight = (
        estimate_on_cpu(CpuWork((replace(PHASE, threads=n, dram_bytes=0.0),), forks), cpu)
        for n, forks in ((1.0, 0), (8.0, 1))
    )
    assert eight.seconds - cpu.fork_s == pytest.approx(one.seconds / 8)
    memory = Phase(dram_bytes=1e9)
    found = {estimate_on_cpu(CpuWork((replace(memory, threads=n),)), cpu).seconds for n in (1, 8)}
    assert found == {1e9 / cpu.dram_copy_bytes_per_s}
    assert estimate_on_cpu(CpuWork((), forks=3), cpu).limiter == "threads"


def test_doubles_have_their_own_rate() -> None:
    cpu = Cpu(1)
    work = CpuWork((Phase(operations=((Unit.FMA_F64, 1e9),)),))
    assert estimate_on_cpu(work, cpu).seconds == 1e9 / cpu.fma_f64_per_s
    assert work.operations == ((Unit.FMA_F64, 1e9),) and work.dram_bytes == 0
