"""Every program of the library on a real GPU, in every type and at every small size, twice.

What the emulator shows without a GPU (``tests/library/test_on_the_emulator.py``), with the real
compiler, the real driver, and real threads.  A case a program, for pytest-xdist to spread.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import pytest

from tcdsl import library
from tcdsl.library import Case

Check = Callable[[str, Sequence[Any]], str | None]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning"),
]


def variants(case: Case) -> list[tuple[dict[str, int], str]]:
    """Return (sizes, type): one type at all sizes, the others at the largest."""
    largest = max(case.small_sizes, key=lambda sizes: prod(sizes.values()))
    found = [(dict(sizes), case.dtypes[0]) for sizes in case.small_sizes]
    return found + [(dict(largest), dtype) for dtype in case.dtypes[1:]]


@pytest.mark.parametrize("name", [case.name for case in library.cases()])
def test_a_program(name: str, check_on_the_gpu: Check) -> None:
    case = library.case(name)
    failures = []
    for number, (sizes, dtype) in enumerate(variants(case)):
        inputs = case.make_inputs(sizes, np.random.default_rng(number), dtype)
        reason = check_on_the_gpu(library.source_for(case, dtype), list(inputs.values()))
        if reason is not None:
            failures.append(f"{dtype} {reason}")
    assert not failures, "\n".join(failures)
