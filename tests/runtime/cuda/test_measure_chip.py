"""A chip measured: from times of kernels to its numbers, and that the kernels compile."""

from math import log2
from typing import Any

import pytest

from tcdsl.costmodel.chip import NUMBERS, Chip, Unit, load_chip
from tcdsl.runtime.cuda import measure_chip
from tcdsl.runtime.cuda.chip_kernels import ARITHMETIC, CHAINS, NODE_BYTES, UNROLLED, kernels_text
from tcdsl.runtime.cuda.measure_chip import ONCE, Way, chip_numbers
from tcdsl.runtime.nvrtc import compile_cuda, find_cuda_compiler, why_no_cuda_compiler


class OnPaper:
    """Kernels that take as long as *chip* says."""

    x, y, out, size_bytes = 1 << 30, 2 << 30, 3 << 30, 1 << 30

    def __init__(self, chip: Chip) -> None:
        self.chip = chip
        self.launched: list[str] = []

    def us(self, name: str, grid: int, block: int, *values: int, way: Way = ONCE) -> float:
        self.launched.append(name)
        self.way = way
        assert block <= self.chip.threads_per_block and all(isinstance(v, int) for v in values)
        if name in ARITHMETIC:
            count = grid * block * values[0] * UNROLLED * CHAINS * ARITHMETIC[name][2]
            self.seconds = count / self.chip.rate(Unit(name))
            return self.seconds * 1e6
        seconds: float = getattr(self, name)(grid, block, *values)
        return 1e6 * (seconds if name != "nothing" or not way.is_early else seconds / 2)

    def word(self) -> int:
        return round(self.seconds * self.chip.clock_hz)

    def clusters(self, blocks: int) -> int:
        assert blocks == self.chip.most_blocks_per_cluster > 1
        return self.chip.largest_clusters

    def read_many(self, grid: int, block: int, x: int, vectors: int, total: int, out: int) -> float:
        assert x == self.x and out == self.out
        assert log2(vectors).is_integer() and total % vectors == 0
        c, moved = self.chip, 16.0 * total
        if grid == 1:
            return moved / c.multiprocessor_bytes_per_s
        is_cached = 16 * vectors < c.l2_bytes
        return moved / (c.l2_bytes_per_s if is_cached else c.dram_read_bytes_per_s)

    def read_one(self, grid: int, block: int, x: int, vectors: int, out: int) -> float:
        in_flight = grid * block * 16
        rate = min(self.chip.dram_read_bytes_per_s, in_flight / self.chip.dram_loaded_latency_s)
        return 16 * vectors / rate

    def copy_all(self, grid: int, block: int, y: int, x: int, vectors: int) -> float:
        assert (y, x) == (self.y, self.x)
        return 32 * vectors / self.chip.dram_copy_bytes_per_s

    def read_shared(self, grid: int, block: int, steps: int, out: int) -> float:
        return grid * block * steps * UNROLLED * 16 / self.chip.shared_bytes_per_s

    def chase(self, grid: int, block: int, x: int, nodes: int, steps: int, out: int) -> float:
        assert log2(nodes).is_integer() and nodes * NODE_BYTES <= self.size_bytes
        is_cached = nodes * NODE_BYTES < self.chip.l2_bytes
        assert self.way.is_cold != is_cached, "the same nodes would be in the cache"
        return steps * (self.chip.l2_latency_s if is_cached else self.chip.dram_latency_s)

    def chase_shared(self, grid: int, block: int, steps: int, out: int) -> float:
        return steps * self.chip.shared_latency_s

    def nothing(self, grid: int, block: int) -> float:
        return self.chip.launch_s

    def block_barriers(self, grid: int, block: int, steps: int) -> float:
        return steps * self.chip.block_barrier_s

    def cluster_barriers(self, grid: int, block: int, steps: int) -> float:
        return steps * self.chip.cluster_barrier_s

    def grid_barriers(self, grid: int, block: int, count: int, steps: int) -> float:
        assert grid == self.chip.multiprocessors
        return steps * self.chip.grid_barrier_s

    def atomics(self, grid: int, block: int, x: int, steps: int, out: int) -> float:
        return steps * self.chip.atomic_s

    def same_atomics(self, grid: int, block: int, x: int, steps: int) -> float:
        return grid * steps * self.chip.same_atomic_s


@pytest.mark.parametrize("stem", ["h200", "h100", "a100", "rtx4090", "generic"])
def test_times_become_the_numbers_of_the_chip(stem: str) -> None:
    chip = load_chip(stem)
    run = OnPaper(chip)
    found = chip_numbers(run, chip)
    assert found.pop("clock_hz") == pytest.approx(chip.clock_hz, rel=1e-4)
    if "programmatic_launch_s" in found:
        assert found.pop("programmatic_launch_s") == pytest.approx(chip.launch_s / 2)
    for name, value in found.items():
        expected = chip.rate(Unit(name)) if name in set(Unit) else getattr(chip, name)
        assert value == pytest.approx(expected, rel=1e-3), name
    assert ("cluster_barrier_s" in found) == (chip.blocks_per_cluster > 1)
    assert ("largest_clusters" in found) == (chip.blocks_per_cluster > 1)
    assert set(found) <= set(NUMBERS) | set(Unit) and len(found) > 15
    assert chip.refined(found, "calibrated")


@pytest.mark.skipif(why_no_cuda_compiler() is not None, reason="no compiler for CUDA")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_the_kernels_compile(arch: str) -> None:
    code = compile_cuda(kernels_text(), arch, compiler=find_cuda_compiler())
    run = OnPaper(load_chip("h200" if arch == "sm_90" else "a100"))
    chip_numbers(run, run.chip)
    missing = [name for name in run.launched if name.encode() not in code]
    assert missing == []


@pytest.mark.parametrize(
    ("name", "number", "value", "size"),
    [("chase", 1, 1 << 40, 8), ("fma_f32", 0, 5, 8), ("fma_f32", 1, 1, 4), ("fma_f64", 1, 1, 8)],
)
def test_arguments_are_as_wide_as_parameters(name: str, number: int, value: int, size: int) -> None:
    made: Any = measure_chip._argument(name, number, value)
    assert made.value == value and type(made).__name__[0] == "c" and len(bytes(made)) == size
