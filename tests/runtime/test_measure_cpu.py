"""A CPU measured: sizes that the system tells, and times of loops."""

from pathlib import Path

import pytest

from tcdsl.costmodel.machine import CPU_NUMBERS, Cpu
from tcdsl.runtime import measure_cpu
from tcdsl.runtime.c_compiler import why_no_compiler


def cache(folder: Path, number: int, level: str, kind: str, size: str) -> None:
    index = folder / f"index{number}"
    index.mkdir()
    for name, text in (("level", level), ("type", kind), ("size", size)):
        (index / name).write_text(text + "\n")


def test_cache_sizes(tmp_path: Path) -> None:
    cache(tmp_path, 0, "1", "Data", "48K")
    cache(tmp_path, 1, "1", "Instruction", "32K")
    cache(tmp_path, 2, "2", "Unified", "2M")
    cache(tmp_path, 3, "3", "Unified", "odd")
    (tmp_path / "index4").mkdir()
    assert measure_cpu.cache_sizes(tmp_path) == {"l1_bytes": 48 << 10, "l2_bytes": 2 << 20}
    assert measure_cpu.cache_sizes(tmp_path / "nowhere") == {}


@pytest.mark.slow
@pytest.mark.skipif(why_no_compiler() is not None, reason="no C compiler")
def test_this_cpu_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, too: what must hold of every one is asked, with room."""
    monkeypatch.setattr(measure_cpu, "RUNS", 2)
    found = measure_cpu.cpu_numbers(Cpu(2))
    assert set(found) <= set(CPU_NUMBERS) and Cpu(2).refined(found)
    assert set(found) >= set(CPU_NUMBERS) - {"vector_bytes", "l1_bytes", "l2_bytes", "l3_bytes"}
    assert found["l1_bytes_per_s"] > found["dram_read_bytes_per_s"]
    assert found["dram_latency_s"] > found["l2_latency_s"] > 1e-10
    assert 1e8 < found["fma_f64_per_s"] < 1e12
