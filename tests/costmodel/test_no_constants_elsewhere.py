"""No module outside the cost model has a number of a chip, or of a measured kernel."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tcdsl

PACKAGE = Path(tcdsl.__file__).parent
COMPILER = ("strategies", "plan", "schedule", "rewrites", "codegen", "poly")
# What such a number's name ends in: units of time and rates, and what machine code takes; or what
# the comment on it names.
MEASURED = re.compile(r"(^|_)(CYCLES|SECONDS|LATENCY|INSTRUCTIONS|REGISTERS|PER_S|US|NS)$")
ASSIGNMENT = re.compile(
    r"^(?P<names>[A-Z][A-Z0-9_]*(, [A-Z][A-Z0-9_]*)*)(: [^=\n]+)? = "
    r"(?P<value>[^#\n]*)(?P<comment>.*)$",
    re.MULTILINE,
)
NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
CHIP = re.compile(r"\b[ABH][12]00\b|level cache|\bspill|\bNVRTC\b")  # or of a compiler for it


def numbers_of_chips(text: str) -> Iterator[str]:
    """Yield the names that the module *text* gives numbers of a chip, unless from other modules."""
    for match in ASSIGNMENT.finditer(text):
        if re.search(r"\d", match["value"]) and not NAME.search(match["value"]):
            names = match["names"].split(", ")
            yield from (n for n in names if CHIP.search(match["comment"]) or MEASURED.search(n))


@pytest.mark.parametrize("package", COMPILER)
def test_numbers_of_chips_are_in_the_cost_model(package: str) -> None:
    found = [
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in sorted((PACKAGE / package).rglob("*.py"))
        for name in numbers_of_chips(path.read_text(encoding="utf-8"))
    ]
    assert found == [], "give it a name in costmodel/gpu_thresholds.py or cpu_thresholds.py"


def test_such_numbers_are_found() -> None:
    text = (
        "LOAD_CYCLES = 40\nA, WAIT_US = 3, 0.5\nTILES = 4  # H100\nLANES = 8\nOWN = module.CYCLES\n"
        "PART = 1 / 4  # of the second-level cache\nHELD = 200  # more would spill\n"
    )
    assert [*numbers_of_chips(text)] == ["LOAD_CYCLES", "WAIT_US", "TILES", "PART", "HELD"]
