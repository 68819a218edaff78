"""What the cost model takes a CPU for."""

import os

from tcdsl.costmodel.machine import Cpu, this_cpu


def test_this_cpu_has_the_processors_of_this_process() -> None:
    assert this_cpu().threads == len(os.sched_getaffinity(0))
    assert this_cpu(3) == Cpu(3)


def test_a_vector_holds_whole_elements() -> None:
    assert Cpu(1).vector_bytes % 8 == 0
    assert Cpu(1).l1_bytes < Cpu(1).l2_bytes
