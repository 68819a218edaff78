"""Convolutions that cuDNN computes, on a GPU: passes, layouts, types, streams, candidates."""

from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.testing import check
from tests.programs import arrays_for, comprehension_of
from tests.strategies.test_convolutions import FORMS, text_of

pytestmark = pytest.mark.gpu
torch = pytest.importorskip("torch")
TYPES = ("float", "double")  # double with channels second


def calls_of(executable: Any) -> int:
    return sum("library" in kernel for kernel in executable.kernels)


@pytest.mark.parametrize("form", FORMS)
def test_passes_and_types(form: str) -> None:
    torch.nn.functional.conv2d(
        torch.ones(1, 1, 3, 3, device="cuda"), torch.ones(1, 1, 3, 3, device="cuda")
    )
    for number, dtype in enumerate(TYPES[: 1 if FORMS[form][3] else 2]):
        source = text_of(form, dtype)
        f = tcdsl.define(source)["f"]
        inputs = arrays_for(comprehension_of(source), FORMS[form][1], number)
        assert calls_of(f.compile(*inputs, target="cuda")) == 1
        check(f, *inputs, targets=("cuda", "cuda"))


@pytest.mark.parametrize("dtype", ["half", "bfloat16"])
@pytest.mark.parametrize("form", ["valid", "padded, stride 2", "weights", "data"])
def test_half_types(form: str, dtype: str) -> None:
    shapes = [tuple({5: 8, 6: 16}.get(n, n) for n in shape) for shape in FORMS[form][1]]
    if form == "padded, stride 2":
        shapes = [(2, 9, 8, 8), (16, 3, 3, 8)]
    if form == "weights":
        shapes = [(2, 16, 7, 6), (2, 8, 9, 8)]
    if form == "data":
        shapes = [(2, 16, 7, 6), (16, 8, 3, 3)]
    f = tcdsl.define(text_of(form, dtype))["f"]
    inputs = arrays_for(comprehension_of(text_of(form, dtype)), shapes, 3)
    check(f, *inputs, targets=("cuda", "cuda"))


def test_on_any_stream() -> None:
    f = tcdsl.define(text_of("padded, stride 2"))["f"]
    x, k = torch.randn(2, 9, 8, 5, device="cuda"), torch.randn(6, 3, 3, 5, device="cuda")
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        found = f(x, k)
    stream.synchronize()
    exact = torch.nn.functional.conv2d(
        x.permute(0, 3, 1, 2).double(), k.permute(0, 3, 1, 2).double(), stride=2, padding=1
    ).permute(0, 2, 3, 1)
    np.testing.assert_allclose(found.cpu(), exact.cpu(), rtol=1e-4, atol=1e-4)
