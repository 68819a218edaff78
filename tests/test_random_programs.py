"""The hunt: random programs, compiled for the CPU, against the oracle.

    pytest -m fuzz tests/test_random_programs.py        2,200 programs, some minutes

The seeds are those that docs/design.md reports; another hunt takes others.
"""

import pytest

import tcdsl
from tcdsl.strategies import contraction, planner, rows
from tcdsl.testing import check, programs

pytest.importorskip("hypothesis")
from hypothesis import HealthCheck, Phase, given, seed, settings

PROGRAMS = 1100

# A plan that fails, or is too hard for isl, falls back on a simpler one with a warning: here that
# is a find too.
pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
HUNT = settings(
    max_examples=PROGRAMS,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def hunt(number: int) -> None:
    @seed(number)
    @HUNT
    @given(programs())
    def right(program: tuple[str, dict[str, object]]) -> None:
        source, inputs = program
        check(tcdsl.define(source)["f"], *inputs.values())

    right()


@pytest.mark.fuzz
def test_random_programs_as_they_are() -> None:
    hunt(2026)


@pytest.mark.fuzz
def test_random_programs_with_every_threshold_lowered(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    """Small programs get threads, chunks, register tiles and materialised operands too."""
    # The cache knows nothing of thresholds.
    monkeypatch.setenv("TCDSL_CACHE_DIR", str(tmp_path))
    for name, value in (("MIN_WORK", 1), ("MIN_REUSE", 1), ("MIN_USES", 0), ("ROWS_A_BLOCK", 4)):
        monkeypatch.setattr(contraction, name, value)
    monkeypatch.setattr(rows, "PARALLEL_WORK", 1)
    monkeypatch.setattr(planner, "PARALLEL_WORK", 1)
    monkeypatch.setattr(rows, "MIN_TILE", 3)
    hunt(2027)
