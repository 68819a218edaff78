"""What ``tcdsl calibrate`` measured on this machine, kept in the cache of compiled programs.

An entry is of one device, by the name that its driver or system reports, and of one VERSION: what
was measured otherwise is measured again.  As with all entries any defect is a miss.
"""

import json
import platform
from collections.abc import Mapping

from tcdsl.costmodel.chip import Chip, ChipError, load_chip, stem_of
from tcdsl.costmodel.machine import Cpu, this_cpu
from tcdsl.runtime.c_compiler import cpu_identity
from tcdsl.runtime.cache import default_cache, key_of

VERSION = 1  # raise it when numbers mean something else, or are measured otherwise
TAG = "calibrated"


def cpu_name() -> str:
    """Return what the numbers of this CPU are kept by."""
    return f"{platform.machine()} {cpu_identity()}"


def keep(device: str, numbers: Mapping[str, float]) -> bool:
    """Keep *numbers* of *device*; return whether that worked."""
    text = json.dumps({"version": VERSION, "device": device, "numbers": dict(numbers)}, indent=1)
    return default_cache().put(_key(device), text.encode(), {"device": device})


def kept(device: str) -> dict[str, float]:
    """Return the numbers that were kept of *device*, none if there are none."""
    entry = default_cache().peek(_key(device))
    if entry is None:
        return {}
    try:
        numbers = json.loads(entry.code)["numbers"]
        return {str(name): float(value) for name, value in numbers.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


def chip_of(device: str, arch: str) -> Chip:
    """Return the chip of a device: its file, and what was measured here."""
    chip = load_chip(stem_of(device, arch))
    try:
        return chip.refined(kept(device), TAG)
    except ChipError:
        return chip


def cpu_of(threads: int = 0) -> Cpu:
    """Return this machine's CPU: the file's numbers, and what was measured here."""
    cpu = this_cpu(threads)
    try:
        return cpu.refined(kept(cpu_name()))
    except ChipError:
        return cpu


def _key(device: str) -> str:
    return key_of(kind="chip", version=VERSION, device=device)
