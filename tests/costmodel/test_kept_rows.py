"""Blocks that keep long rows: their threads, and how many are at once."""

from dataclasses import replace

import pytest

from tcdsl.costmodel.alignment_shift import why_not_shifted
from tcdsl.costmodel.chip import load_chip
from tcdsl.costmodel.kept_rows import KeptRow, share_of
from tcdsl.lang.types.dtypes import BFLOAT16, FLOAT32
from tcdsl.poly.scop import Array, Storage

H200 = load_chip("h200")
ROW = KeptRow(4096, 4, 1, is_half=False, as_loaded=False, is_written=True, others=0)
HALVES = KeptRow(2048, 8, 1, is_half=True, as_loaded=False, is_written=True, others=0)


@pytest.mark.parametrize("row", [ROW, HALVES, replace(HALVES, as_loaded=True, is_written=False)])
@pytest.mark.parametrize("length", [8192, 9999, 12288, 16384, 20480, 24577, 32768, 50304])
@pytest.mark.parametrize("others", [0, 1, 4])
def test_what_is_promised_fits(row: KeptRow, length: int, others: int) -> None:
    own = replace(row, groups=-(-length // row.vector), others=others)
    share = share_of(H200, own)
    if share is None:
        return
    assert share.threads % 32 == 0 and share.threads * share.items >= own.groups
    assert share.threads * (share.items - 1) < own.groups, "no thread idles in all turns"
    assert share.resident_blocks >= 2
    # In pairs at most: values of a half type that are kept as they were loaded.
    values = share.items * own.vector / (2 if own.as_loaded else 1)
    assert share.threads * share.resident_blocks * values <= H200.registers_per_multiprocessor


def test_more_than_one_block_needs_registers() -> None:
    assert share_of(H200, replace(ROW, groups=8192)) is None
    assert share_of(H200, replace(HALVES, groups=6288)) is None
    whole = share_of(H200, replace(HALVES, groups=6288, as_loaded=True, is_written=False))
    assert whole is not None and (whole.threads, whole.resident_blocks) == (256, 2)


def test_what_is_read_beside_a_row_takes_registers() -> None:
    alone, beside = share_of(H200, HALVES), share_of(H200, replace(HALVES, others=2))
    assert alone is not None and beside is not None
    assert alone.resident_blocks > beside.resident_blocks


def test_only_long_rows_are_shifted() -> None:
    def rows(length: int) -> Array:
        return Array("x", FLOAT32, (0, 0), (8, length), Storage.ARGUMENT)

    assert why_not_shifted(rows(4097)) is None
    assert why_not_shifted(rows(257)) == "they are short"
    assert why_not_shifted(replace(rows(800), dtype=BFLOAT16)) is None


def test_no_more_blocks_than_a_multiprocessor_has_threads_for() -> None:
    """1536 threads are three blocks of 512, though the registers of a fourth are there."""
    chip = load_chip("rtx4090")
    share = share_of(chip, KeptRow(4492, 2, 1, False, True, True, 0))
    assert share is not None and (share.threads, share.resident_blocks) == (512, 3)
