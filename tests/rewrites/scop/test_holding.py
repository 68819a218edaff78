"""Operands in registers, a value of a step ahead: which are, that indices are numbers, results."""

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tcdsl.errors import OptionError
from tcdsl.options import Options
from tcdsl.schedule.placement import Space
from tcdsl.strategies import contracted

MakeUnit = Callable[..., Any]
Emulate = Callable[..., Any]
MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
MODES = {
    "nn": ("float(M,K) A, float(K,N) B", "A(m,k) * B(k,n)"),
    "nt": ("float(M,K) A, float(N,K) B", "A(m,k) * B(n,k)"),
    "tn": ("float(K,M) A, float(K,N) B", "A(k,m) * B(k,n)"),
    "tt": ("float(K,M) A, float(N,K) B", "A(k,m) * B(n,k)"),
}


def forced(**config: Any) -> Options:
    kernel = {"kernel": "S0", "template": "tile_simt", **config}
    choices = {"format": "tcdsl choices", "version": 1, "target": "cuda", "kernels": [kernel]}
    return Options(choices=json.dumps(choices))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.slow
def test_all_transpositions_and_edges(
    mode: str, cuda_unit: MakeUnit, emulated: Emulate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sizes: a prime each; less than a step more than steps; whole tiles."""
    monkeypatch.setattr(contracted, "MIN_WORK", 1)
    head, value = MODES[mode]
    source = f"def f({head}) -> (C) {{ C(m,n) +=! {value} }}"
    cases, units = [(67, 71, 97), (64, 64, 33), (31, 101, 160), (64, 64, 64)], []
    rng = np.random.default_rng(7)
    for m, n, k in cases:
        shapes = [(m, k) if mode[0] == "n" else (k, m), (k, n) if mode[1] == "n" else (n, k)]
        units.append(cuda_unit(source, *shapes, options=forced(is_held=True)))
        assert ".held" in str(units[-1].done.plan.placements)
    for unit, (m, n, k) in zip(emulated(units), cases, strict=True):
        shapes = [(m, k) if mode[0] == "n" else (k, m), (k, n) if mode[1] == "n" else (n, k)]
        A, B = (rng.integers(-8, 8, size=shape).astype(np.float32) for shape in shapes)
        found = np.full((m, n), np.nan, np.float32)
        unit.run([A, B], [found])
        left, right = A if mode[0] == "n" else A.T, B if mode[1] == "n" else B.T
        assert (found == left @ right).all()


def test_registers_hold_two_values_of_a_step(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(MATMUL, (256, 256), (256, 256), options=forced(is_held=True))
    held = [p for n, p in unit.done.plan.placements.items() if n.endswith(".held")]
    assert [p.space for p in held] == [Space.PRIVATE] * 2
    assert [p.ring.buffers for p in held] == [2, 2]


def test_what_is_no_plain_product_holds_nothing(cuda_unit: MakeUnit) -> None:
    source = "def f(float(C,H) I, float(F,C,3) W) -> (O) { O(f,h) +=! I(c,h+kh) * W(f,c,kh) }"
    unit = cuda_unit(source, (64, 200), (64, 64, 3))
    assert unit.done.plan.kernels[0].template == "tile_simt"
    assert not re.search(r"_held\b", unit.source.text)


@pytest.mark.slow_but("names1")
@pytest.mark.parametrize("names", [("t", "n", "k"), ("m", "t", "k"), ("o0", "e0", "t")])
def test_names_of_the_program_mean_nothing(names: tuple[str, ...], cuda_unit: MakeUnit) -> None:
    m, n, k = names
    source = (
        f"def f(float(M,K) A, float(K,N) B) -> (C) {{ C({m},{n}) +=! A({m},{k}) * B({k},{n}) }}"
    )
    done = cuda_unit(source, (256, 256), (256, 256), options=forced(is_held=True)).done
    assert not done.is_fallback


def test_blocks_that_share_sums_hold_nothing(cuda_unit: MakeUnit) -> None:
    """Their registers' indices are no numbers to the compiler: (1000 x 4001) took six times."""
    with pytest.raises(OptionError, match="is_held=True"):
        cuda_unit(MATMUL, (128, 2048), (2048, 128), options=forced(is_held=True, chunks=4))
