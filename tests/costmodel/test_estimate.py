"""The one estimate: hand-worked cases, what was measured on an H200, and the terms of a CPU."""

from dataclasses import fields, replace
from itertools import product
from math import inf
from types import SimpleNamespace

import pytest

from tcdsl.costmodel.chip import Unit, load_chip
from tcdsl.costmodel.estimate import (
    ALONE,
    LINE_CYCLES,
    MOST_TAIL_S,
    TAIL,
    blocks_a_second,
    estimate,
    fastest,
    lower_bound,
)
from tcdsl.costmodel.machine import Cpu
from tcdsl.costmodel.occupancy import resident_blocks, usable, why_not_fitting
from tcdsl.costmodel.rates import READ_SHARE
from tcdsl.costmodel.work import Chain, CpuWork, Phase, Work, chain_seconds

H200 = load_chip("h200")
# Round numbers: 10 multiprocessors, 1 GHz, memory of 1e12, 100 multiply-adds a cycle in each.
ROUND = replace(
    H200, multiprocessors=10, clock_hz=1e9, dram_read_bytes_per_s=1e12, dram_copy_bytes_per_s=1e12,
    multiprocessor_bytes_per_s=2e11, l2_bytes_per_s=1e13, shared_bytes_per_s=1e12, launch_s=1e-6,
    dram_latency_s=1e-6, dram_loaded_latency_s=1e-6, programmatic_launch_s=0.5e-6,
    l2_latency_s=1e-15, block_barrier_s=1e-6, block_start_s=1e-15, cluster_block_start_s=1e-15,
    operations_per_s=((Unit.FMA_F32, 1e12),),
)  # fmt: skip
MB = 1 << 20


# --- by hand -----------------------------------------------------------------------------------


def with_tail(seconds: float, share: float = 1.0) -> float:
    """Return *seconds*, and until the last of the blocks that run at once has ended."""
    return seconds + share * min(TAIL * seconds, MOST_TAIL_S)


def test_memory_at_its_rate() -> None:
    # 8 of 80 blocks at once: a multiprocessor would load all of them in 5e-4 s.
    found = estimate(Work(blocks=800, threads=256, read_bytes=1e9, in_flight_bytes=64), ROUND)
    assert found.limiter == "memory"
    bytes_s = 1e9 / (READ_SHARE * 1e12)
    assert found.seconds == pytest.approx(1e-6 + with_tail(bytes_s, 1 / 10), rel=0.01)


def test_bytes_in_flight_limit_few_threads() -> None:
    """Little's law: 2 blocks x 64 threads x 16 bytes each microsecond, on each multiprocessor."""
    found = estimate(Work(blocks=20, threads=64, read_bytes=20480e3), ROUND)
    assert found.limiter == "latency"
    assert found.seconds == pytest.approx(with_tail(1e-3), rel=0.01)


def test_one_multiprocessor_has_its_own_rate() -> None:
    work = Work(blocks=1, threads=1024, read_bytes=2e8, in_flight_bytes=1024)
    assert estimate(work, ROUND).term("own") == pytest.approx(1e-3)


def test_the_tail_of_the_last_wave() -> None:
    # A block: 1e7 multiply-adds, 1e-4 s of a multiprocessor.  11 blocks take as long as 20.
    def work(blocks: int) -> Work:
        fma = ((Unit.FMA_F32, blocks * 1e7),)
        return Work(blocks=blocks, threads=1024, registers=64, operations=fma)

    ten, eleven, twenty = (estimate(work(n), ROUND).term("fma_f32") for n in (10, 11, 20))
    assert ten == pytest.approx(1e-4)
    assert eleven == pytest.approx(2e-4) == twenty


def test_mean_value_analysis() -> None:
    """Two customers at a station of 1 s who wait for 2 s between: 1/3, then 2 / (2 + 4/3)."""
    assert blocks_a_second(1, (1.0,), 2.0) == pytest.approx(1 / 3)
    assert blocks_a_second(2, (1.0,), 2.0) == pytest.approx(2 / (2 + 4 / 3))
    assert blocks_a_second(1000, (1.0, 0.5), 2.0) == pytest.approx(1.0, rel=1e-3)
    assert blocks_a_second(3, (0.0, 0.0), 2.0) == pytest.approx(1.5)


def test_one_block_computes_while_another_one_waits() -> None:
    """One block a multiprocessor takes D + Z; two of them as mean value analysis says."""
    chain = Chain(block_barriers=100)  # 1e-4 s
    fma = ((Unit.FMA_F32, 20 * 1e7),)  # 1e-4 s of a multiprocessor for each of 20 blocks
    alone = Work(blocks=20, threads=1024, registers=64, operations=fma, chain=chain)
    assert resident_blocks(alone, ROUND) == 1
    assert estimate(alone, ROUND).seconds == pytest.approx(1e-6 + with_tail(2 * 2e-4, 1 / 2))
    two = replace(alone, registers=32)
    assert resident_blocks(two, ROUND) == 2
    cycle = 1e-4 + 1e-4 * 3 / 2  # the second one finds half a block before it
    assert estimate(two, ROUND).seconds == pytest.approx(1e-6 + with_tail(cycle))


def test_loads_and_arithmetic_of_a_block_alone_take_turns() -> None:
    fma = ((Unit.FMA_F32, 10 * 3e7),)  # 3e-4 s of each multiprocessor, its loads 2e-4
    work = Work(
        blocks=10, threads=1024, read_bytes=10 * 4e7, in_flight_bytes=1024, operations=fma,
    )  # fmt: skip
    assert estimate(work, ROUND).seconds > with_tail(5e-4)


def test_blocks_alone_one_after_another_compute_as_they_load() -> None:
    """A half of the shorter of both, 2 of 3 ten-thousandths of a second; not those of clusters."""
    fma = ((Unit.FMA_F32, 40 * 3e7),)
    work = Work(
        blocks=40, threads=1024, registers=64, read_bytes=40 * 4e7, in_flight_bytes=1024,
        operations=fma,
    )  # fmt: skip
    chip = replace(ROUND, cluster_share=1.0)
    assert resident_blocks(work, chip) == 1
    alone, clusters = (estimate(replace(work, cluster=n), chip) for n in (1, 4))
    saved = clusters.seconds - alone.seconds
    assert saved == pytest.approx(4 * ALONE * 2e-4, rel=0.1)
    assert alone.seconds > lower_bound(work, chip)
    # Those that all begin at once load together, and then compute.
    once = replace(work, blocks=10, read_bytes=10 * 4e7, operations=((Unit.FMA_F32, 10 * 3e7),))
    both = (estimate(replace(once, cluster=n), chip).seconds for n in (1, 4))
    assert next(both) == pytest.approx(next(both))


def test_tiles_are_copied_while_others_are_computed_with() -> None:
    """Of a block alone, that of loads as they arrive computes after them."""
    work = Work(blocks=10, threads=256, l2_bytes=2e9, operations=((Unit.FMA_F32, 1e9),))
    tiled = replace(work, is_tiled=True)
    assert estimate(tiled, ROUND).seconds == pytest.approx(1e-3, rel=0.2)
    assert estimate(work, ROUND).seconds > 1.5 * estimate(tiled, ROUND).seconds


def test_the_chip_waits_for_lone_blocks() -> None:
    # Four blocks of each multiprocessor; another one follows three of them.
    work = Work(blocks=40, threads=1024, registers=64, read_bytes=1e9, in_flight_bytes=1024)
    chain = Chain(block_barriers=10)
    memory_s = estimate(work, ROUND).term("memory")
    alone, two = (estimate(replace(work, registers=n, chain=chain), ROUND) for n in (64, 32))
    assert alone.seconds == pytest.approx(1e-6 + with_tail(memory_s + 3e-5, 1 / 4), rel=0.001)
    assert two.seconds == pytest.approx(1e-6 + with_tail(memory_s, 1 / 2), rel=0.001)


def test_loads_wait_for_the_fences_of_the_blocks_beside() -> None:
    """Of three waves of two blocks the first two's tickets; their barriers overlap with loads."""
    work = Work(blocks=60, threads=1024, read_bytes=1e9, in_flight_bytes=1024)
    without = estimate(work, ROUND).seconds
    tickets = estimate(replace(work, chain=Chain(atomics=3)), ROUND).seconds
    assert tickets - without == pytest.approx(4 * 3 * ROUND.atomic_s, rel=0.01)
    barriers = estimate(replace(work, chain=Chain(block_barriers=3)), ROUND).seconds
    assert barriers - without < ROUND.atomic_s / 10
    once = replace(work, blocks=20)
    tickets = estimate(replace(once, chain=Chain(atomics=3)), ROUND).seconds
    assert tickets - estimate(once, ROUND).seconds < ROUND.atomic_s / 10


def test_what_is_stored_waits_for_the_chains_of_blocks_that_run_at_once() -> None:
    work = Work(blocks=20, threads=1024, read_bytes=5e8, written_bytes=5e8, in_flight_bytes=1024)
    chain = Chain(block_barriers=10)

    def longer(work: Work) -> float:
        without = replace(work, chain=Chain())
        return estimate(work, ROUND).seconds - estimate(without, ROUND).seconds

    once = longer(replace(work, chain=chain))  # two blocks of each multiprocessor, all at once
    assert once == pytest.approx(1e-5, rel=0.01)
    assert longer(replace(work, chain=chain, blocks=40)) == pytest.approx(5e-6, rel=0.05)
    assert longer(replace(work, chain=chain, written_bytes=1e6)) < 1e-7


def test_few_warps_hide_no_latency() -> None:
    fma = ((Unit.FMA_F32, 1e9),)
    many = Work(blocks=10, threads=512, operations=fma, independent=1)
    few = replace(many, threads=128)  # one warp a scheduler, of four
    assert estimate(few, ROUND).term("fma_f32") == pytest.approx(
        4 * estimate(many, ROUND).term("fma_f32")
    )
    assert estimate(replace(few, independent=4), ROUND).term("fma_f32") == pytest.approx(1e-3)


@pytest.mark.parametrize("is_tiled", [False, True])
def test_no_estimate_is_below_its_lower_bound(is_tiled: bool) -> None:
    chains = Chain(), Chain(dram_loads=1, l2_loads=3, block_barriers=3, cycles=20_000)
    for blocks, threads, instructions, chain in product(
        (1, 132, 133, 5000), (32, 256, 1024), (0.0, 1e8, 1e11), chains
    ):
        for read, written in ((0.0, 0.0), (1e5, 1e4), (1e9, 1e9)):
            work = Work(
                blocks, threads, read_bytes=read, written_bytes=written, l2_bytes=3 * read,
                instructions=instructions, chain=chain, finish=chain, is_tiled=is_tiled,
            )  # fmt: skip
            assert 0 < lower_bound(work, H200) <= estimate(work, H200).seconds
    alone = Work(132, 256, chain=chains[1], is_tiled=is_tiled)  # which says how long it takes
    assert lower_bound(alone, H200) > 0.8 * estimate(alone, H200).seconds


def test_launches() -> None:
    one = Work(blocks=10, threads=32)
    two = replace(one, launches=2)
    assert estimate(two, ROUND).seconds == pytest.approx(2e-6)
    assert estimate(replace(two, is_programmatic=True), ROUND).seconds == pytest.approx(1e-6)
    old = replace(ROUND, arch="sm_80")
    assert estimate(replace(two, is_programmatic=True), old).seconds == pytest.approx(2e-6)


def test_blocks_start_one_after_another() -> None:
    chip = replace(ROUND, block_start_s=1e-9, cluster_block_start_s=4e-9)
    work = Work(blocks=100_000, threads=32, read_bytes=1)
    assert estimate(work, chip).term("starts") == pytest.approx(100e-6)
    of_clusters = estimate(replace(work, cluster=2), replace(chip, cluster_share=1.0))
    assert (of_clusters.limiter, of_clusters.term("starts")) == ("starts", pytest.approx(400e-6))


def test_few_of_the_largest_clusters_run_at_once() -> None:
    chip = replace(ROUND, multiprocessors=100, largest_clusters=2, cluster_share=1)
    work = Work(blocks=320, threads=32, cluster=16, read_bytes=1)
    assert usable(replace(work, cluster=8), chip) == chip.multiprocessors
    assert usable(work, chip) == 32
    assert usable(work, replace(chip, largest_clusters=10**6)) == chip.multiprocessors


def test_pairs_that_run_at_once_leave_no_multiprocessor_over() -> None:
    chip = replace(ROUND, cluster_share=0.5)
    work = Work(blocks=chip.multiprocessors, threads=32, cluster=2, read_bytes=1)
    assert usable(work, chip) == chip.multiprocessors
    assert usable(replace(work, cluster=4), chip) == chip.multiprocessors // 2
    several = replace(work, blocks=2 * work.blocks)
    assert usable(several, chip) == chip.multiprocessors // 2
    assert usable(replace(several, is_tiled=True), chip) == chip.multiprocessors, (
        "they end together"
    )


def test_lines_that_warps_look_up() -> None:
    work = Work(blocks=10, threads=1024, lines=1e6)
    found = estimate(work, ROUND)  # each of 10 multiprocessors has a tenth of them
    assert found.limiter == "L1"
    assert found.term("L1") == pytest.approx(LINE_CYCLES * 1e6 / 10 / 1e9)


def test_a_chain_is_a_sum() -> None:
    chain = Chain(dram_loads=2, block_barriers=3, cycles=1000)
    assert chain_seconds(chain, ROUND) == pytest.approx(2e-6 + 3e-6 + 1e-6)
    work = Work(blocks=1, threads=32, finish=chain, same_atomics=1000)
    found = estimate(work, ROUND)
    assert found.limiter == "finish"
    assert found.seconds == pytest.approx(1e-6 + 6e-6 + 1000 * H200.same_atomic_s)


def test_a_bound_spares_estimates_of_what_is_slower_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds, seconds, asked = (1.0, 1.5, 1.8), (2.0, 1.75, 3.0), []

    def estimated(work: Work, _: object) -> SimpleNamespace:
        asked.append(work.blocks)
        return SimpleNamespace(seconds=seconds[work.blocks])

    monkeypatch.setattr("tcdsl.costmodel.estimate.lower_bound", lambda w, _: bounds[w.blocks])
    monkeypatch.setattr("tcdsl.costmodel.estimate.estimate", estimated)
    assert fastest([Work(n, 32) for n in range(3)], H200) == (1.75, 1)
    assert asked == [0, 1]


@pytest.mark.parametrize(
    ("change", "blocks"),
    [
        ({}, 8),
        ({"registers": 33}, 6),  # 40 are given, of 65536 / 256
        ({"registers": 128}, 2),
        ({"shared_bytes": 100 << 10}, 2),
        ({"threads": 32}, 32),
        ({"threads": 1000}, 2),  # 32 warps
    ],
)
def test_occupancy(change: dict[str, int], blocks: int) -> None:
    assert resident_blocks(replace(Work(blocks=1, threads=256), **change), H200) == blocks


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"threads": 2048}, "2048 threads, of 1024"),
        ({"shared_bytes": 228 << 10}, "bytes of shared memory"),
        ({"registers": 256}, "256 registers a thread, of 255"),
        ({"threads": 1024, "registers": 128}, "131072 registers, of 65536"),
        ({"cluster": 32}, "a cluster would have 32 blocks, of 16"),
        ({"blocks": 0}, "no blocks"),
    ],
)
def test_what_does_not_fit_says_why(change: dict[str, int], why: str) -> None:
    work = replace(Work(blocks=1, threads=256), **change)
    found = estimate(work, H200)
    assert found.seconds == inf and found.why_not is not None
    assert why in found.why_not and found.why_not == why_not_fitting(work, H200)


def test_a_unit_that_a_chip_lacks() -> None:
    work = Work(blocks=1, threads=128, operations=((Unit.TENSOR_FP8, 1e6),))
    assert estimate(work, load_chip("a100")).seconds == inf
    assert estimate(work, H200).seconds < 1e-3


# --- measured on an H200 (docs/performance_gpu.md): within a quarter of the large ones ---------

FOLD = Chain(block_barriers=1, shared_loads=5, cycles=900)
LAST_BLOCK = Chain(atomics=1.5, l2_loads=3, block_barriers=4)


def pointwise(megabytes: int, inputs: int) -> Work:
    size = megabytes * MB
    return Work(blocks=size // 4096, threads=256, read_bytes=inputs * size, written_bytes=size,
                in_flight_bytes=16 * inputs)  # fmt: skip


def row_sum(rows: int, columns: int, threads: int, rows_a_block: float = 1) -> Work:
    return Work(blocks=int(rows / rows_a_block), threads=threads, read_bytes=4 * rows * columns,
                in_flight_bytes=64, chain=FOLD)  # fmt: skip


def chunked(count: int, blocks: int, threads: int) -> Work:
    return Work(blocks=blocks, threads=threads, read_bytes=4 * count, in_flight_bytes=64,
                chain=FOLD, finish=LAST_BLOCK, same_atomics=blocks)  # fmt: skip


def softmax(rows: int, columns: int, threads: int) -> Work:
    count = rows * columns
    return Work(
        blocks=rows, threads=threads, registers=40, read_bytes=4 * count, written_bytes=4 * count,
        in_flight_bytes=4 * columns / threads, operations=((Unit.SPECIAL, count),),
        instructions=10 * count, chain=Chain(block_barriers=2, shared_loads=20, cycles=600),
    )  # fmt: skip


def matmul(size: int) -> Work:
    """128 x 128 results a block, 8 x 8 a thread, 16 of k at once by way of shared memory."""
    blocks, steps = (size // 128) ** 2, size // 16
    threads = 256 * blocks
    return Work(
        is_tiled=True, blocks=blocks, threads=256, registers=128, shared_bytes=16 << 10,
        read_bytes=8 * size**2, written_bytes=4 * size**2, l2_bytes=blocks * size * 256 * 4,
        shared_traffic_bytes=threads * size * 16 * 4, operations=((Unit.FMA_F32, size**3),),
        # Of a thread in a step: 16 x (64 multiply-adds, 16 loads), and some 60 to copy tiles.
        instructions=threads * steps * (16 * 80 + 60), in_flight_bytes=32, independent=8,
        chain=Chain(l2_loads=steps, block_barriers=2 * steps),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("work", "measured_us", "limiter"),
    [
        (pointwise(64, 1), 35.6, "memory"),
        (pointwise(256, 1), 129, "memory"),
        (pointwise(1024, 1), 501, "memory"),
        (pointwise(256, 2), 182, "memory"),
        (row_sum(65536, 1024, 256, 2), 71.2, "memory"),
        (row_sum(1024, 65536, 1024), 71.1, "memory"),
        (row_sum(1 << 20, 64, 256, 32), 72.7, "memory"),
        (row_sum(256, 802816, 1024, 1 / 8), 192, "memory"),
        (row_sum(768, 768, 192), 4.86, "launch"),
        (chunked(1 << 20, 264, 512), 7.17, "launch"),
        (chunked(16226304, 264, 1024), 22.9, "memory"),
        (chunked(1 << 28, 264, 1024), 240, "memory"),
        (chunked(802816 * 256, 528, 512), 192, "memory"),
        (softmax(32768, 1024, 128), 68.4, "memory"),
        (softmax(16384, 4096, 256), 130.7, "memory"),
        (softmax(8192, 16384, 512), 260.9, "memory"),
        (matmul(4096), 4460, "issue"),
    ],
)
def test_measured(work: Work, measured_us: float, limiter: str) -> None:
    found = estimate(work, H200)
    assert found.limiter == limiter
    assert found.seconds * 1e6 == pytest.approx(measured_us, rel=0.25)


# --- a CPU -------------------------------------------------------------------------------------

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
    before = estimate(CpuWork((PHASE,)), cpu)
    more = estimate(CpuWork((replace(PHASE, **{name: 1e12}),)), cpu)
    assert more.limiter == TERMS[name] and more.seconds > 100 * before.seconds
    assert more.seconds >= max(more.terms.values())


def test_threads_share_all_but_memory_and_take_time_to_start() -> None:
    cpu = Cpu(8)
    one, eight = (
        estimate(CpuWork((replace(PHASE, threads=n, dram_bytes=0.0),), forks), cpu)
        for n, forks in ((1.0, 0), (8.0, 1))
    )
    assert eight.seconds - cpu.fork_s == pytest.approx(one.seconds / 8)
    memory = Phase(dram_bytes=1e9)
    found = {estimate(CpuWork((replace(memory, threads=n),)), cpu).seconds for n in (1, 8)}
    assert found == {1e9 / cpu.dram_copy_bytes_per_s}
    assert estimate(CpuWork((), forks=3), cpu).limiter == "threads"


def test_doubles_have_their_own_rate() -> None:
    cpu = Cpu(1)
    work = CpuWork((Phase(operations=((Unit.FMA_F64, 1e9),)),))
    assert estimate(work, cpu).seconds == 1e9 / cpu.fma_f64_per_s
    assert work.operations == ((Unit.FMA_F64, 1e9),) and work.dram_bytes == 0
