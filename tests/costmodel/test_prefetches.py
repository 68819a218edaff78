"""How much blocks may ask the cache for before they load it."""

from tcdsl.costmodel.chip import load_chip
from tcdsl.costmodel.prefetches import bytes_ahead


def test_the_budget_is_between_what_helped_and_what_did_not() -> None:
    """Measured on an H200: the next row of each block, in bfloat16 and in float32."""
    h200 = load_chip("h200")
    assert 4_300_000 <= bytes_ahead(h200) < 8_600_000
