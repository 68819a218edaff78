"""What the compiler knows of a CPU.

Where nobody has measured one (``tcdsl calibrate --target cpu``) its numbers are those of
``chips/cpu.json``, whose form is that of a GPU's file (:mod:`tcdsl.costmodel.chip`).
"""

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from tcdsl.costmodel.chip import Chip, ChipError, Unit
from tcdsl.records import dataclass

_FILE: dict[str, Any] = json.loads(
    (files(__package__) / "chips" / "cpu.json").read_text(encoding="utf-8")
)
_NUMBERS: dict[str, Any] = {name: entry[0] for name, entry in _FILE["numbers"].items()}


@dataclass(frozen=True, slots=True)
class Cpu:
    """A CPU of which *threads* threads may run at once.

    Bandwidths and rates are of one thread, but for those of memory, which all threads share.
    """

    threads: int
    vector_bytes: int = _NUMBERS["vector_bytes"]
    l1_bytes: int = _NUMBERS["l1_bytes"]
    l2_bytes: int = _NUMBERS["l2_bytes"]
    l3_bytes: int = _NUMBERS["l3_bytes"]
    dram_read_bytes_per_s: float = _NUMBERS["dram_read_bytes_per_s"]
    dram_copy_bytes_per_s: float = _NUMBERS["dram_copy_bytes_per_s"]
    l1_bytes_per_s: float = _NUMBERS["l1_bytes_per_s"]
    l2_bytes_per_s: float = _NUMBERS["l2_bytes_per_s"]
    l3_bytes_per_s: float = _NUMBERS["l3_bytes_per_s"]  # from the cache that cores share
    dram_latency_s: float = _NUMBERS["dram_latency_s"]
    l2_latency_s: float = _NUMBERS["l2_latency_s"]
    fork_s: float = _NUMBERS["fork_s"]  # until all threads have begun and ended
    fma_f32_per_s: float = _NUMBERS["fma_f32_per_s"]
    fma_f64_per_s: float = _NUMBERS["fma_f64_per_s"]
    fma_latency_s: float = _NUMBERS["fma_latency_s"]
    has_byte_dots: bool = True  # instructions that multiply four terms of 8 bits, ...
    has_bfloat16_dots: bool = True  # ... or two of bfloat16

    def rate(self, unit: Unit) -> float:
        """Return the operations a second of *unit*, of a thread."""
        return self.fma_f64_per_s if unit is Unit.FMA_F64 else self.fma_f32_per_s

    def refined(self, numbers: Mapping[str, float]) -> "Cpu":
        """Return the CPU with *numbers* in place of its own.

        :raises ChipError: if one of them can be no number of a CPU.
        """
        for name, value in numbers.items():
            if name not in CPU_NUMBERS or not 0 < value < 1e18:
                raise ChipError(f"a CPU's {name} cannot be {value!r}")
        values: dict[str, Any] = {name: CPU_NUMBERS[name](x) for name, x in numbers.items()}
        return replace(self, **values)


Machine = Chip | Cpu  # what a plan is for

CPU_NUMBERS: dict[str, type] = {f.name: f.type for f in fields(Cpu) if f.name in _NUMBERS}  # type: ignore[misc]
CPU_SOURCES: dict[str, str] = {name: entry[1] for name, entry in _FILE["numbers"].items()}


def this_cpu(threads: int = 0) -> Cpu:
    """Return the machine's CPU, with *threads* threads or (0) all that this process may use."""
    return with_instructions(Cpu(threads or len(os.sched_getaffinity(0))), _instructions())


def with_instructions(cpu: Cpu, names: Collection[str]) -> Cpu:
    """Return *cpu* with the *names* of its instruction sets, as Linux lists those of x86."""
    if not names:
        return cpu
    is_wide = {"avx512f", "avx512bw"} <= set(names)
    return replace(
        cpu,
        vector_bytes=cpu.vector_bytes if is_wide else 32,
        has_byte_dots=is_wide and "avx512_vnni" in names,
        has_bfloat16_dots=is_wide and "avx512_bf16" in names,
    )


@cache
def _instructions() -> frozenset[str]:
    """Return the names of this processor's instruction sets, none where it is no x86."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    flags = (line.partition(":")[2] for line in lines if line.startswith("flags"))
    return frozenset(next(flags, "").split())
