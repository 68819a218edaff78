"""No module outside the cost model has a number of a chip, or of a measured kernel."""

import ast
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
CHIP = re.compile(r"\b[ABH][12]00\b")


def numbers_of_chips(text: str) -> Iterator[str]:
    """Yield the names that the module *text* gives numbers of a chip, unless from other modules."""
    lines = text.splitlines()
    for node in ast.parse(text).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        if any(isinstance(n, ast.Attribute | ast.Name) for n in ast.walk(node.value)):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        has_chip = CHIP.search(lines[node.lineno - 1])
        yield from (name for name in names if has_chip or MEASURED.search(name))


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
    )
    assert [*numbers_of_chips(text)] == ["LOAD_CYCLES", "WAIT_US", "TILES"]
