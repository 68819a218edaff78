"""Derivatives on a real GPU: those of every library program, of layers in bfloat16, a training.

A case a program, for pytest-xdist to spread.
"""

import runpy
import sys
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl import library
from tcdsl.lang.types.dtypes import BY_NAME
from tcdsl.library import Case
from tests.derivatives.gradients import cotangents, library_cases, sizes_of

Check = Callable[[str, Sequence[Any]], str | None]

pytestmark = pytest.mark.gpu

NO_FALLBACK = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
LONG_PLANS = ("lstm_steps",)  # which isl's bound ends, with a warning
EXAMPLES = Path(__file__).parents[2] / "examples"
LAYERS = {  # at sizes that have tensor cores
    "conv2d": (
        "def conv2d(bfloat16(N,C,H,W) x, bfloat16(F,C,R,S) w) -> (y) {"
        " y(n,f,h,v) +=! x(n,c,h+r,v+s) * w(f,c,r,s) }",
        [(4, 64, 16, 16), (64, 64, 3, 3)],
    ),
    "conv2d with channels last": (
        "def conv2d(bfloat16(N,H,W,C) x, bfloat16(F,R,S,C) w) -> (y) {"
        " y(n,h,v,f) +=! x(n,h+r,v+s,c) * w(f,r,s,c) }",
        [(4, 16, 16, 64), (64, 3, 3, 64)],
    ),
    "mlp": (
        """def mlp(bfloat16(B,I) x, bfloat16(I,H) w1, bfloat16(H) b1, bfloat16(H,O) w2,
                   bfloat16(O) b2) -> (bfloat16(B,O) y) {
            h(b,n) +=! x(b,i) * w1(i,n)
            a(b,n) = relu(h(b,n) + b1(n))
            s(b,o) +=! a(b,n) * w2(n,o)
            y(b,o) = s(b,o) + b2(o)
        }""",
        [(256, 192), (192, 320), (320,), (320, 128), (128,)],
    ),
}


def of_a_program(case: Case) -> tuple[str, list[Any]]:
    """Return the text of the derivative in the case's first type of floats, and its inputs."""
    dtype = next(name for name in case.dtypes if BY_NAME[name].is_float)
    f = tcdsl.define(library.source_for(case, dtype))[case.def_name]
    inputs = [*case.make_inputs(sizes_of(case), np.random.default_rng(5), dtype).values()]
    return tcdsl.vjp(f).source, [*inputs, *cotangents(f, inputs)]


def of_a_layer(name: str) -> tuple[str, list[Any]]:
    """Return the text of the derivative by all parameters, and its inputs."""
    text, shapes = LAYERS[name]
    program = tcdsl.define(text)
    f = program[program.names[-1]]
    rng, dtype = np.random.default_rng(6), BY_NAME["bfloat16"].numpy
    inputs = [(rng.standard_normal(s) / s[0] ** 0.5).astype(dtype) for s in shapes]
    return tcdsl.vjp(f).source, [*inputs, *cotangents(f, inputs)]


def parameters() -> list[Any]:
    """Return the cases, of which those with short plans may not fall back."""
    return [
        pytest.param(case, id=case.name, marks=() if case.name in LONG_PLANS else NO_FALLBACK)
        for case in library_cases()
    ]


@pytest.mark.parametrize("case", parameters())
def test_programs_of_the_library(case: Case, check_on_the_gpu: Check) -> None:
    assert (reason := check_on_the_gpu(*of_a_program(case))) is None, reason


@NO_FALLBACK
@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_bfloat16(name: str, check_on_the_gpu: Check) -> None:
    assert (reason := check_on_the_gpu(*of_a_layer(name))) is None, reason


def compare_training(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run ``examples/compare_training.py``, which fails where the losses of a step are apart."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "train_digits", raising=False)
    script = str(EXAMPLES / "compare_training.py")
    monkeypatch.setattr(sys, "argv", [script, "--device", device, "--steps", "30"])
    runpy.run_path(script, run_name="__main__")


@pytest.mark.skipif(find_spec("sklearn") is None, reason="the extra of the demo is missing")
def test_the_losses_of_a_training_are_those_of_torch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    compare_training("cuda", monkeypatch)
    *trained, ours, theirs, _, apart = capsys.readouterr().out.splitlines()
    assert float(trained[-1].partition("%")[0]) > 90
    assert [line.partition(":")[0] for line in (ours, theirs)] == ["tcdsl", "torch"]
    assert "differ by" in apart
