"""A function that generated CUDA calls, and that no part of the device library is said to have.

On a GPU there was a KeyError, and kernels with it were compiled statement by statement; the
emulator left such names out, so that nothing showed it here.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tcdsl.codegen.device.cuda import FUNCTIONS
from tcdsl.emulator.build import emulated_text

MakeUnit = Callable[..., Any]
SHIFTED = """def f(float(M,N) x) -> (y) {
    y(m, n) = (n < 16 ? x(m, n + 4) : 0.0) - (n >= 8 ? x(m, n - 8) : 0.0) where m in 0:M, n in 0:N
}"""


def test_what_is_called_is_in_a_part(cuda_unit: MakeUnit) -> None:
    source = cuda_unit(SHIFTED, (600, 128)).source
    assert "tc_or_zero(" in source.text and source.functions <= FUNCTIONS.keys()
    assert "tc_or_zero" in emulated_text(source)


def test_the_emulator_knows_no_more_functions_than_a_gpu(cuda_unit: MakeUnit) -> None:
    source = cuda_unit(SHIFTED, (600, 128)).source
    with pytest.raises(KeyError, match="tc_unheard_of"):
        emulated_text(replace(source, functions=source.functions | {"tc_unheard_of"}))
