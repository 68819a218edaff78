"""Chains of stencils with open sizes: in overlapped tiles, and right at all sizes of a class.

Results begin as NaN: a row that is not written, and one beyond the last that is, are seen.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.lang.types.dtypes import BY_NAME
from tcdsl.options import Options
from tcdsl.plan import gpu_planner
from tcdsl.poly.scop import Scop
from tcdsl.rewrites.scop.stencil_chains import Chain
from tcdsl.runtime.cache import Cache
from tcdsl.strategies.stencils import Tiling
from tcdsl.testing import check
from tests.strategies.stencil_programs import (
    BLURS,
    CHANNELS,
    EDGES,
    HALVES,
    HARRIS,
    JACOBI,
    JACOBI_3D,
    RING,
    SHIFTED_BATCH,
    TORUS,
    UNSHARP,
)

# Program, the open sizes, and shapes: the halo alone, less than a tile, primes, whole tiles.
CASES: dict[str, tuple[str, tuple[str, ...], list[list[tuple[int, ...]]]]] = {
    "harris rows": (HARRIS, ("H",), [[(h, 21, 3), ()] for h in (5, 6, 7, 11, 13, 16)]),
    "harris columns": (HARRIS, ("W",), [[(9, w, 3), ()] for w in (17, 20, 23, 44)]),
    "harris": (HARRIS, ("H", "W"), [[(h, w, 3), ()] for h, w in ((5, 5), (8, 16), (16, 13))]),
    "unsharp channels": (UNSHARP, ("C",), [[(c, 9, 12), (5,)] for c in (1, 3, 16)]),
    "unsharp rows": (UNSHARP, ("H",), [[(2, h, 14), (5,)] for h in (5, 8, 13, 16)]),
    "channels": (CHANNELS, ("H", "W"), [[(h, w, 3), ()] for h, w in ((17, 35), (23, 53))]),
    "blurs": (BLURS, ("W",), [[(13, w)] for w in (7, 8, 16)]),
    "jacobi": (JACOBI, ("N",), [[(n, n)] for n in (17, 19, 32, 41)]),
    "jacobi in 3 axes": (JACOBI_3D, ("M",), [[(5, m, 11)] for m in (5, 9, 16)]),
    "edges": (EDGES, ("N",), [[(n,)] for n in (3, 8, 11, 16)]),
    "shifted": (SHIFTED_BATCH, ("N",), [[(n, 40)] for n in (3, 7, 16)]),
    "torus rows": (TORUS, ("H",), [[(h, 21)] * 2 for h in (17, 23, 64)]),
    "torus": (TORUS, ("H", "W"), [[(h, w)] * 2 for h, w in ((17, 40), (30, 19), (64, 64))]),
    "ring": (RING, ("N",), [[(n,)] for n in (17, 19, 63, 64)]),
    "halves": (HALVES, ("N", "M"), [[(n, m)] * 2 for n, m in ((2, 4), (13, 16), (5, 9))]),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _tiny_tiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every chain in tiles of 4 to 8 values."""

    def tilings(scop: Scop, chain: Chain, *_: object, **__: object) -> Iterator[Tiling]:
        sizes = {1: (8,), 2: (4, 8), 3: (4, 4, 8)}[len(chain.stencil)]
        yield Tiling(sizes, len(chain.members) ** 2.0, 0.0)

    cache = Cache(tmp_path)
    monkeypatch.setattr("tcdsl.executable.emulated.default_cache", lambda: cache)
    monkeypatch.setattr(gpu_planner, "gpu_tilings", tilings)


def drawn(f: tcdsl.Function, shapes: list[tuple[int, ...]]) -> list[Any]:
    rng = np.random.default_rng(sum(map(sum, shapes)))
    c = f.comprehension
    types = [BY_NAME[c.tensors[name].dtype.name].numpy for name in c.inputs]
    return [rng.standard_normal(s).astype(t) for s, t in zip(shapes, types, strict=True)]


@pytest.mark.slow_but("harris rows", "edges")
@pytest.mark.parametrize("name", CASES)
def test_chains_of_open_sizes_in_tiny_tiles(name: str) -> None:
    source, opened, several = CASES[name]
    program, options = tcdsl.define(source), Options(dynamic_sizes=opened)
    (f,) = (program[each] for each in program)
    for shapes in several:
        check(f, *drawn(f, shapes), targets="emulate", options=options)
    exe = f.compile(*drawn(f, several[-1]), target="emulate", options=options)
    assert set(exe.opened) == set(opened)
    assert [k["template"] for k in exe.choices["kernels"]] == ["stencil"]
