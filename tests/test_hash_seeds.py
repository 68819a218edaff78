"""Plans, texts and estimates are the same in every process, whatever hashes of strings are.

Sets of names are in another order under each ``PYTHONHASHSEED``: whoever goes through one where the
order matters (a sum of floats, a union of isl's, the first of several equals) decides by chance.
"""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tcdsl import library

ROOT = Path(__file__).parents[1]
SEEDS = ("0", "1", "2")
PARTS = 12
CHAINS = [("gpu", "kronecker3"), ("gpu", "wavenet"), ("cpu", "kronecker3"), ("cpu", "harris")]


def planned(jobs: Sequence[tuple[str, str]], seed: str) -> dict[str, list[object]]:
    """Return what a process with this hash *seed* plans for the cases *jobs*."""
    command = [sys.executable, "-m", "tests.planned_again", json.dumps(jobs)]
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    found: dict[str, list[object]] = json.loads(done.stdout)
    return found


def require_one_plan(jobs: Sequence[tuple[str, str]]) -> None:
    """Assert that plans, texts and estimates of *jobs* are the same for all seeds."""
    first, *others = (planned(jobs, seed) for seed in SEEDS)
    assert len(first) == len(jobs)
    for other in others:
        for label, (lines, text, estimates) in first.items():
            assert other[label][0] == lines, label
            assert other[label][1] == text, label
            assert other[label][2] == estimates, label


def test_chains_are_planned_alike_in_every_process() -> None:
    require_one_plan(CHAINS)


@pytest.mark.slow
@pytest.mark.one_in(12)
@pytest.mark.parametrize("part", range(PARTS))
def test_programs_are_planned_alike_in_every_process(part: int) -> None:
    names = [case.name for case in library.cases()][part::PARTS]
    require_one_plan([(target, name) for target in ("gpu", "cpu") for name in names])
