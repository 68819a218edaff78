"""Data files of chips: read, checked, and found by a device's name."""

import json
from importlib.resources import files

import pytest

from tcdsl.costmodel.chip import (
    GENERIC,
    Chip,
    ChipError,
    Feature,
    Unit,
    chip_stems,
    load_chip,
    parse_chip,
    stem_of,
)

TEXT = (files("tcdsl.costmodel") / "chips" / "h200.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("stem", chip_stems())
def test_every_number_says_where_it_is_from(stem: str) -> None:
    chip = load_chip(stem)
    assert chip.multiprocessors > 0 and chip.rate(Unit.FMA_F32) > 0
    assert chip.blocks_per_cluster > 1 or not chip.has(Feature.CLUSTERS)
    named = dict(chip.sources)
    assert len(named) == len(chip.sources) and set(named) >= {"l2_bytes", "fma_f32", "launch_s"}
    raw = json.loads((files("tcdsl.costmodel") / "chips" / f"{stem}.json").read_text())
    assert set(named.values()) == set(raw["sources"]), "a source that no number has"


@pytest.mark.parametrize("stem", chip_stems())
def test_numbers_agree_with_one_another(stem: str) -> None:
    chip = load_chip(stem)
    assert chip.static_shared_bytes_per_block <= chip.shared_bytes_per_block
    assert chip.shared_bytes_per_block <= chip.shared_bytes_per_multiprocessor
    assert chip.shared_bytes_per_multiprocessor <= chip.l1_bytes_per_multiprocessor
    assert chip.threads_per_block <= chip.threads_per_multiprocessor
    assert chip.dram_copy_bytes_per_s <= chip.dram_read_bytes_per_s < chip.l2_bytes_per_s
    assert chip.l2_bytes_per_s < chip.shared_bytes_per_s
    assert chip.shared_latency_s < chip.l2_latency_s < chip.dram_loaded_latency_s
    assert chip.programmatic_launch_s <= chip.launch_s
    assert chip.rate(Unit.SPECIAL) < chip.rate(Unit.FMA_F32)


def test_the_h200() -> None:
    chip = load_chip("h200")
    assert chip.multiprocessors == 132 and chip.l2_bytes == 60 << 20 and chip.capability == 90
    assert chip.has(Feature.WARPGROUP_PRODUCTS) and chip.overlaps_kernels
    assert dict(chip.sources)["dram_copy_bytes_per_s"] == "measured"


def test_features_by_compute_capability() -> None:
    a100, ada = load_chip("a100"), load_chip("rtx4090")
    assert a100.has(Feature.ASYNC_COPY) and not a100.has(Feature.FP8)
    assert ada.has(Feature.FP8) and not ada.has(Feature.BULK_COPY)
    assert a100.rate(Unit.TENSOR_FP8) == 0


@pytest.mark.parametrize(
    ("device", "arch", "stem"),
    [
        ("NVIDIA H200", "sm_90", "h200"),
        ("NVIDIA H100 80GB HBM3", "sm_90", "h100"),
        ("NVIDIA H100 PCIe", "sm_90", "h100"),
        ("NVIDIA GH200 480GB", "sm_90", "h100"),
        ("NVIDIA A100-SXM4-80GB", "sm_80", "a100"),
        ("NVIDIA GeForce RTX 4090", "sm_89", "rtx4090"),
        ("Tesla V100-SXM2-16GB", "sm_70", GENERIC),
    ],
)
def test_a_device_finds_its_file(device: str, arch: str, stem: str) -> None:
    assert stem_of(device, arch) == stem


def changed(**numbers: object) -> str:
    raw = json.loads(TEXT)
    raw["numbers"] |= numbers
    return json.dumps(raw)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "not a chip's file"),
        ("{}", "not a chip's file: 'numbers'"),
        (changed(l3_bytes=[1, "datasheet"]), "l3_bytes is unknown"),
        (changed(l2_bytes=[1, "a friend"]), "l2_bytes does not say where it is from"),
        (changed(l2_bytes=60), "l2_bytes does not say"),
        (changed(l2_bytes=[0.5, "datasheet"]), "l2_bytes cannot be 0.5"),
        (changed(launch_s=[-1, "datasheet"]), "launch_s cannot be -1"),
        (changed(launch_s=[float("nan"), "datasheet"]), "launch_s cannot be nan"),
        (changed(launch_s=["1", "datasheet"]), "launch_s cannot be '1'"),
        (changed(launch_s=[True, "datasheet"]), "launch_s cannot be True"),
        (TEXT.replace('"fma_f32"', '"fma_f31"'), "the unit fma_f31 is unknown"),
        (TEXT.replace('"launch_s"', '"launch_us"'), "launch_s is missing"),
    ],
)
def test_what_is_no_chip_is_refused(text: str, message: str) -> None:
    with pytest.raises(ChipError, match=message):
        parse_chip(text)


def test_a_chip_is_a_value() -> None:
    assert parse_chip(TEXT) == load_chip("h200") and isinstance(hash(load_chip("h200")), int)
    assert isinstance(load_chip("h200"), Chip)
