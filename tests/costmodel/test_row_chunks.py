"""How rows that no block can hold are cut."""

from tcdsl.costmodel.chip import load_chip
from tcdsl.costmodel.row_chunks import Rows, best_cut

CHOICES = [(threads, values) for threads in (128, 256, 512, 1024) for values in (8, 16, 32)]


def test_several_blocks_are_at_once_and_chunks_are_not_tiny() -> None:
    for rows, length in ((64, 1 << 20), (2048, 131072), (1, 1 << 28)):
        cut = best_cut(load_chip("h200"), Rows(rows, length, 4, 2, 4), CHOICES)
        assert cut is not None and 4096 <= cut.length <= 16384
        assert cut.threads * (cut.values + 16) <= (1 << 16) // 2


def test_the_estimate_is_near_one_pass() -> None:
    cut = best_cut(load_chip("h200"), Rows(64, 1 << 20, 4, 2, 4), CHOICES)
    assert cut is not None
    one_pass = 64 * (1 << 20) * 4 / 4.3e12
    assert one_pass < cut.seconds < 1.3 * one_pass


def test_few_values_are_cut_finely() -> None:
    """Every multiprocessor gets a block before any gets a large one."""
    cut = best_cut(load_chip("h200"), Rows(1, 1 << 18, 4, 2, 4), CHOICES)
    assert cut is not None and (1 << 18) // cut.length >= 132 // 2


def test_of_equal_cuts_the_smaller_one() -> None:
    rows = Rows(1, 1024, 4, 2, 4)
    assert best_cut(load_chip("h200"), rows, ()) is None
    cut = best_cut(load_chip("h200"), rows, [(128, 8), (128, 8)])
    assert cut is not None and (cut.threads, cut.values) == (128, 8)
