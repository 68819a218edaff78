"""``tcdsl calibrate`` on a GPU: in under a minute, and near what its data file says."""

import time

import pytest

from tcdsl.costmodel.chip import NUMBERS, Unit, load_chip, stem_of
from tcdsl.runtime.cuda.device import primary_context, pycuda
from tcdsl.runtime.cuda.measure_chip import OnDevice, chip_numbers

pytestmark = [pytest.mark.gpu, pytest.mark.alone, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def found() -> dict[str, float]:
    start = time.perf_counter()
    with OnDevice() as kernels:
        numbers = chip_numbers(kernels, kernels.chip)
    assert time.perf_counter() - start < 60
    return numbers


def test_every_number_is_one(found: dict[str, float]) -> None:
    chip = primary_context().gpu
    assert set(found) <= set(NUMBERS) | set(Unit)
    assert chip.refined(found, "calibrated").launch_s == found["launch_s"]
    assert found["dram_copy_bytes_per_s"] < 1.1 * found["dram_read_bytes_per_s"]
    assert found["dram_read_bytes_per_s"] < found["l2_bytes_per_s"] < found["shared_bytes_per_s"]
    assert found["shared_latency_s"] < found["l2_latency_s"] < found["dram_latency_s"]
    assert found["fma_f64"] < 1.1 * found["fma_f32"]
    if chip.most_blocks_per_cluster > 1:  # of parts of a GPU there may be fewer, or none
        most = chip.multiprocessors // chip.most_blocks_per_cluster
        assert 1 <= found["largest_clusters"] <= most


def test_a_known_chip_is_as_its_file_says(found: dict[str, float]) -> None:
    stem = stem_of(pycuda().Device(0).name(), primary_context().gpu.arch)
    chip = load_chip(stem)
    if stem != "h200":
        pytest.skip(f"nothing in {stem}.json was measured by us")
    for name in ("dram_read_bytes_per_s", "dram_copy_bytes_per_s"):
        assert found[name] == pytest.approx(getattr(chip, name), rel=0.1), name
    assert found["largest_clusters"] == chip.largest_clusters
    for name in ("launch_s", "multiprocessor_bytes_per_s", "clock_hz", "l2_bytes_per_s"):
        assert 1 / 3 < found[name] / getattr(chip, name) < 3, name


def test_a_second_run_agrees(found: dict[str, float]) -> None:
    with OnDevice() as kernels:
        again = chip_numbers(kernels, kernels.chip)
    for name in ("dram_read_bytes_per_s", "shared_latency_s", "fma_f32", "block_barrier_s"):
        assert again[name] == pytest.approx(found[name], rel=0.1), name
