"""How many blocks and threads share rows that are reduced along rows and columns."""

from dataclasses import replace

from tcdsl.costmodel.chip import load_chip
from tcdsl.costmodel.rates import read_rate
from tcdsl.costmodel.row_column import LEAST_ROWS, MOST_VALUES, RowsAndColumns, best_share, shares

# layernorm's backward of (16384, 4096) in float32: x, dy and two sums a column.
LONG = RowsAndColumns(1, 16384, 16384, 1024, 4, 16, 8, 3 * 4096 * 4, 2)


def test_blocks_are_all_on_the_chip_at_once() -> None:
    share = best_share(load_chip("h200"), LONG)
    assert share is not None
    assert share.blocks <= share.resident_blocks * load_chip("h200").multiprocessors
    assert share.blocks * share.per_block >= LONG.pieces
    assert share.threads * share.repeat >= LONG.groups
    assert share.repeat * LONG.vector <= MOST_VALUES


def test_one_block_leaves_a_multiprocessor_waiting() -> None:
    share = best_share(load_chip("h200"), LONG)
    assert share is not None and share.resident_blocks > 1


def test_short_rows_have_more_blocks_of_fewer_threads() -> None:
    long = best_share(load_chip("h200"), LONG)
    short = best_share(load_chip("h200"), replace(LONG, groups=128, row_bytes=3 * 512 * 4))
    assert long is not None and short is not None
    assert short.threads < long.threads and short.resident_blocks > long.resident_blocks


def test_rows_of_half_a_warp_are_several_at_once() -> None:
    chip = load_chip("h200")
    short = replace(LONG, rows=1 << 16, pieces=1 << 16, groups=13, row_bytes=3 * 52 * 4)
    found = list(shares(chip, short))
    assert {share.rows * share.threads for share in found if share.rows > 1} == {128, 256, 512}
    for share in found:
        assert share.per_block % share.rows == 0, "whole turns"
        assert share.threads * share.repeat >= 13
        assert share.threads & (share.threads - 1) == 0 or share.rows == 1, "warps have whole rows"
    assert any(share.rows == 1 for share in found), "where there are few rows"
    best = best_share(chip, short)
    assert best is not None and best.rows > 1
    of_two_axes = replace(short, pieces=1 << 8)
    assert {share.rows for share in shares(chip, of_two_axes)} == {1}, "blocks share one axis"


def test_rows_that_no_block_keeps_are_shared_by_the_least_cluster_that_does() -> None:
    chip = load_chip("h200")
    for groups, cluster in ((2048, 1), (4096, 2), (8192, 4), (16384, 8)):
        long = replace(LONG, groups=groups, row_bytes=12 * 4 * groups)
        found = list(shares(chip, long))
        assert found and {share.cluster for share in found} == {cluster}
        streaming = long.rows * long.row_bytes / read_rate(chip)
        least = min(share.seconds for share in found)
        assert streaming < least < 1.5 * streaming, "each block loads its part of a row"
        for share in found:
            assert share.blocks * cluster <= share.resident_blocks * chip.multiprocessors
            assert share.blocks * share.per_block >= long.pieces
            assert cluster * share.threads * share.repeat >= groups
            assert (cluster - 1) * share.threads * share.repeat < groups or cluster == 1


def test_few_rows_that_a_block_keeps_are_no_cluster_s() -> None:
    few = replace(LONG, rows=256, pieces=256)
    assert list(shares(load_chip("h200"), few)) == []
    long = replace(few, groups=4096, row_bytes=12 * 4 * 4096)
    assert {share.cluster for share in shares(load_chip("h200"), long)} == {2}


def test_what_registers_do_not_hold_has_no_share() -> None:
    assert best_share(load_chip("h200"), replace(LONG, groups=32768)) is None
    assert best_share(load_chip("h200"), replace(LONG, kept_bytes=400)) is None
    without = replace(load_chip("h200"), blocks_per_cluster=1)
    assert best_share(without, replace(LONG, groups=4096)) is None


def test_few_rows_have_no_share() -> None:
    assert best_share(load_chip("h200"), replace(LONG, rows=1, pieces=1)) is None
    few = LEAST_ROWS - 1
    assert best_share(load_chip("h200"), replace(LONG, rows=few, pieces=few)) is None


def test_tiles_take_their_part_of_the_blocks() -> None:
    one = best_share(load_chip("h200"), LONG)
    eight = best_share(load_chip("h200"), replace(LONG, tiles=8, rows=2048, pieces=2048))
    assert one is not None and eight is not None
    assert 8 * eight.blocks <= eight.resident_blocks * load_chip("h200").multiprocessors
    assert eight.blocks < one.blocks
