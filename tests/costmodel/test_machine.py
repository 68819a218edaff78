"""What the cost model takes a CPU for."""

import os
from dataclasses import replace
from typing import Any

import pytest

from tcdsl.costmodel import machine
from tcdsl.costmodel.machine import Cpu, _instructions, this_cpu, with_instructions

# What depends on this machine's instructions.
ASSUMED: dict[str, Any] = {
    name: getattr(Cpu(1), name) for name in ("vector_bytes", "has_byte_dots", "has_bfloat16_dots")
}


def test_this_cpu_has_the_processors_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert this_cpu().threads == len(os.sched_getaffinity(0))
    monkeypatch.setattr(machine, "_instructions", _instructions)  # as imported: of the processor
    assert this_cpu(3) == with_instructions(Cpu(3), _instructions())
    assert replace(this_cpu(3), **ASSUMED) == Cpu(3)


def test_tests_plan_for_no_processor(pytestconfig: pytest.Config) -> None:
    """Else texts and decisions are known on one kind of processor alone."""
    assert this_cpu(3) == with_instructions(Cpu(3), pytestconfig.getoption("instructions").split())


def test_instructions_say_how_long_vectors_are() -> None:
    assert with_instructions(Cpu(1), ()) == Cpu(1), "of another architecture nothing is known"
    old = with_instructions(Cpu(1), {"avx2", "fma"})
    assert old == Cpu(1, 32, has_byte_dots=False, has_bfloat16_dots=False)
    wide = {"avx512f", "avx512bw"}
    assert with_instructions(Cpu(1), wide).vector_bytes == 64
    assert not with_instructions(Cpu(1), wide).has_byte_dots
    assert with_instructions(Cpu(1), {*wide, "avx512_vnni", "avx512_bf16"}) == Cpu(1)


def test_a_vector_holds_whole_elements() -> None:
    assert Cpu(1).vector_bytes % 8 == 0
    assert Cpu(1).l1_bytes < Cpu(1).l2_bytes
