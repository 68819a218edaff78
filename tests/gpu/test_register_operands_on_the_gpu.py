"""Operands that are computed in registers, on a GPU: the emulator has no fragments of its own."""

import numpy as np
import pytest

import tcdsl
from tcdsl.strategies.templates import tile_mma
from tcdsl.testing import check
from tcdsl.testing.random_inputs import values
from tests.strategies.register_forms import CASES, Shapes, source_of

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")]
LARGER: list[tuple[str, Shapes]] = [
    ("int8", [(16, 2048), (1024, 2048), (1024,)]),
    ("groups", [(256, 1024), (512, 1024), (512, 32)]),
    ("int8, turned", [(512, 1024), (1024, 768)]),
    ("relu", [(1024, 512), (512, 1024)]),
]


@pytest.mark.parametrize(("form", "shapes"), [*CASES, *LARGER])
def test_on_the_gpu(form: str, shapes: Shapes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tcdsl.costmodel.tensor_tiles.HELD_MARGIN", 1e3)
    monkeypatch.setattr(tile_mma, "least_seconds", lambda *_: float("inf"))
    monkeypatch.setattr(tile_mma, "MIN_WORK", 1)
    monkeypatch.setattr("tcdsl.strategies.catalogue.SPEEDUP", float("inf"))  # no rows for tiles
    f = tcdsl.define(source_of(form)).f
    types = [f.comprehension.tensors[name].dtype for name in f.comprehension.inputs]
    drawn = zip(types, shapes, strict=True)
    inputs = [values(dtype, shape, "real", n) for n, (dtype, shape) in enumerate(drawn)]
    exe = f.compile(*inputs, target="cuda")
    assert any(kernel.get("in_registers") for kernel in exe.choices["kernels"])
    check(f, *inputs, targets=("cuda",))
    assert np.array_equal(*(np.asarray(exe(*inputs)).view(np.uint8) for _ in range(2)))
