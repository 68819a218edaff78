"""What updates by atomics take, against what was measured on an H200."""

from tcdsl.costmodel.atomics import Updates, seconds_in_memory
from tcdsl.costmodel.chip import load_chip

CHIP = load_chip("h200")


def test_scattered_updates_of_a_sector_follow_one_another() -> None:
    """moe_gate: 65536 counts of 64, without copies 36 us."""
    assert 25e-6 < seconds_in_memory(Updates(65536, 64, 4, is_native=True), CHIP) < 50e-6


def test_integers_of_a_sector_that_a_warp_adds_are_one_update() -> None:
    """moe_gate: 512 blocks add 64 counts each in less than a microsecond; floats take longer."""
    added = 512 * 64
    assert seconds_in_memory(Updates(added, 64, 4, is_native=True, apart=1), CHIP) < 3e-6
    assert seconds_in_memory(Updates(added, 64, 4, is_native=False, apart=1), CHIP) > 15e-6


def test_copies_share_what_follows() -> None:
    floats = Updates(3.2e7, 2048, 4, is_native=False, apart=1)
    assert seconds_in_memory(floats, CHIP) > 400e-6 > seconds_in_memory(floats, CHIP, 16)
