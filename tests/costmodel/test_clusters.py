"""How many blocks and threads share rows that one block cannot hold."""

from dataclasses import replace

import pytest

from tcdsl.costmodel import clusters
from tcdsl.costmodel.chip import load_chip
from tcdsl.costmodel.clusters import LongRows, Share, best_share, shares

ROWS = LongRows(4096, (65536,), 4, 1, 0, 4, is_written=True)
CHANNELS = LongRows(256, (32, 3136), 4, 1, 0, 4, is_written=True)


@pytest.mark.parametrize("groups", [1, 31, 33, 784, 1024, 4096, 12345])
@pytest.mark.parametrize("least", [1, 200, 1024])
def test_few_threads_idle(groups: int, least: int) -> None:
    threads = clusters.busy_threads(groups, 256, least)
    assert threads % 32 == 0 and min(least, 1024) <= threads <= 1024


@pytest.mark.parametrize("rows", [ROWS, CHANNELS])
def test_a_share_is_a_blocks_shared_memory(rows: LongRows) -> None:
    share = best_share(load_chip("h200"), rows)
    assert share is not None and share.cluster > 1
    assert rows.row_bytes // share.cluster <= clusters.BLOCK_BYTES
    assert share.per * share.cluster >= rows.extents[0]
    along = share.per if rows.is_split else rows.extents[1]
    assert share.threads * share.repeat * rows.vector >= along


def test_what_registers_hold_is_not_shared() -> None:
    assert best_share(load_chip("h200"), replace(ROWS, extents=(32768,))) is None
    assert best_share(load_chip("h200"), replace(ROWS, is_written=False)) is None
    assert best_share(load_chip("h200"), replace(ROWS, extents=(1 << 20,))) is None, (
        "no cluster holds it"
    )


def test_few_rows_get_more_blocks() -> None:
    few, many = (best_share(load_chip("h200"), replace(CHANNELS, rows=n)) for n in (16, 4096))
    assert few is not None and many is not None
    assert (many.cluster, few.cluster) == (8, 8)
    short = replace(CHANNELS, extents=(32, 1024))
    few, many = (best_share(load_chip("h200"), replace(short, rows=n)) for n in (16, 4096))
    assert few is not None and many is not None
    assert few.cluster > many.cluster


def test_no_block_of_a_cluster_is_idle_along_the_outer_of_two_axes() -> None:
    """Ten values are two for each of five blocks; eight would have three without any."""
    rows = LongRows(512, (10, 4096), 8, 2, 0, 4, is_written=True, has_inner_sums=True)
    found = [s for s in shares(load_chip("h200"), rows) if not rows.is_shared_inside(s)]
    assert {share.cluster for share in found} == {2, 4, 5}
    assert all(share.cluster == -(-10 // share.per) for share in found)


def test_few_values_of_the_outer_axis_are_in_every_block() -> None:
    rows = LongRows(256, (4, 16384), 8, 2, 0, 4, is_written=True, has_inner_sums=True)
    inside = [s for s in shares(load_chip("h200"), rows) if rows.is_shared_inside(s)]
    assert inside and {share.per for share in inside} == {4}
    for share in inside:
        span = share.threads * share.repeat * rows.vector
        assert (share.cluster - 1) * span < 16384 <= share.cluster * span


def test_threads_are_along_both_of_two_short_axes() -> None:
    rows = LongRows(1024, (40, 64), 8, 2, 0, 4, is_written=True, has_inner_sums=True)
    share = best_share(load_chip("h200"), rows)
    assert share is not None and share.cluster == 1 and share.outer_threads > 1
    assert share.threads * share.repeat * rows.vector >= 64
    assert share.outer_threads * share.values >= 40


def test_staged_rows_leave_folds_what_they_take() -> None:
    chip = load_chip("h200")
    rows = LongRows(64, (32, 12544), 8, 2, 0, 4, is_written=True, fold_bytes=20)
    few, many = (list(shares(chip, replace(rows, fold_bytes=n))) for n in (20, 200))
    assert {share.cluster for share in few} == {share.cluster for share in many} == {16}, "196 KB"
    threads = [max(share.threads * share.outer_threads for share in found) for found in (few, many)]
    assert threads[0] > 512 > threads[1], "warps have slots each"


def test_values_in_registers_need_threads() -> None:
    beside = best_share(load_chip("h200"), replace(ROWS, n_kept=2))
    alone = best_share(load_chip("h200"), ROWS)
    assert beside is not None and alone is not None
    assert beside.cluster > alone.cluster and beside.keeps_well
    assert Share(1, 1, 256, 1).keeps_well and not Share(1, 1, 288, 1).keeps_well
