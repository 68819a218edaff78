"""Moves of the plan's search that are alike."""

from itertools import pairwise
from typing import Any

import pytest

from tcdsl.plan.moves import Merge, all_merged
from tcdsl.plan.state import State


def test_of_moves_that_are_alike_those_are_made_that_have_their_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tcdsl.plan.moves.in_order", lambda groups, known: list(groups))
    groups: Any = ("a", "b", "c", "d")
    moves = [Merge((one, other), one + other, 1.0) for one, other in pairwise(groups)]
    found = all_merged(State(groups, 10.0), moves, Any)
    assert (found.groups, found.seconds) == (("ab", "cd"), 8.0)
