"""How columns are shared by threads and blocks, and when keeping them is worth while."""

from dataclasses import replace

import pytest

from tcdsl.costmodel.chip import load_chip
from tcdsl.costmodel.columns import MOST_KEPT_BYTES, Columns, best_share

H200 = load_chip("h200")
BATCHNORM = Columns(
    rows=1568, columns=256, batches=1, vector=4, kept_bytes=4, least_bytes=4, moved_bytes=8,
    apart_bytes=16, folds=2, passes=3,
)  # fmt: skip
HALVES = replace(BATCHNORM, kept_bytes=2, least_bytes=2, moved_bytes=4, apart_bytes=8)


@pytest.mark.parametrize("columns", [BATCHNORM, HALVES])
@pytest.mark.parametrize("rows", [100, 1568, 6272, 4099])
def test_a_share_holds_all_rows_in_registers(columns: Columns, rows: int) -> None:
    columns = replace(columns, rows=rows)
    share = best_share(H200, columns)
    assert share is not None
    assert share.y * share.repeat * share.cluster >= rows
    assert columns.kept_bytes_of(share.repeat) <= MOST_KEPT_BYTES
    assert share.x * share.y * columns.registers_of(H200, share.repeat) <= 1 << 16
    assert share.x * columns.vector * columns.least_bytes >= H200.sector_bytes


@pytest.mark.parametrize(
    "columns, rows, measured_us",
    [
        (BATCHNORM, 1568, 7.1), (BATCHNORM, 6272, 12.4), (HALVES, 1568, 6.7), (HALVES, 6272, 10.0),
    ],
)  # fmt: skip
def test_estimates_are_near_what_was_measured(
    columns: Columns, rows: int, measured_us: float
) -> None:
    share = best_share(H200, replace(columns, rows=rows))
    assert share is not None and abs(1e6 * share.seconds - measured_us) < 0.1 * measured_us


def test_rows_are_shared_evenly_where_that_costs_nothing() -> None:
    share = best_share(H200, BATCHNORM)
    assert share is not None and share.y * share.repeat * share.cluster == BATCHNORM.rows


def test_long_columns_are_not_worth_it_or_do_not_fit() -> None:
    for rows in (25088, 100352, 1 << 20):
        assert best_share(H200, replace(BATCHNORM, rows=rows)) is None


def test_few_columns_do_not_take_more_threads_than_they_have() -> None:
    share = best_share(H200, replace(BATCHNORM, columns=3, vector=1))
    assert share is not None and share.x == 3


def test_no_clusters_where_there_are_none() -> None:
    share = best_share(replace(H200, blocks_per_cluster=1), HALVES)
    assert share is not None and share.cluster == 1
