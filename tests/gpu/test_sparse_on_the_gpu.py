"""Rows of data on a real GPU at sizes at which blocks share the long ones."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from tcdsl import library

Check = Callable[[str, Sequence[Any]], str | None]

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning"),
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["csr", "segment_max", "segment_softmax", "csr_matrix"])
def test_a_few_long_rows(name: str, dtype: str, check_on_the_gpu: Check) -> None:
    case, rng = library.case(name), np.random.default_rng(3)
    lengths = np.full(60_003, 5)
    lengths[[7, 30_000, 60_002]] = 100_000
    ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    sizes = {"P": len(ptr), "E": int(ptr[-1]), "C": 50_000, "D": 3}
    inputs = {**case.make_inputs(sizes, rng, dtype), "ptr": ptr}
    assert check_on_the_gpu(library.source_for(case, dtype), list(inputs.values())) is None
