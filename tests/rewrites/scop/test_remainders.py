"""Sums whose terms are there for some remainders of an index: the gradients of strided layers."""

from collections.abc import Callable, Mapping, Sequence
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from tcdsl.driver import Compiled
from tcdsl.options import Options
from tcdsl.plan.rewrites import REWRITES
from tcdsl.strategies import contraction
from tests.programs import arrays_for, comprehension_of

MakeUnit = Callable[..., Any]

DATA = """def f(half(N,P,Q,F) dO, half(F,KH,KW,C) K) -> (dI) {
    dI(n,h,w,c) +=! ((h + 1 - kh >= 0 && h + 1 - kh < 2*P && w + 1 - kw >= 0 && w + 1 - kw < 2*Q
        && (h + 1 - kh) % 2 == 0 && (w + 1 - kw) % 2 == 0)
        ? dO(n, (h + 1 - kh) / 2, (w + 1 - kw) / 2, f) : 0) * K(f,kh,kw,c)
        where n in 0:N, h in 0:2*P, w in 0:2*Q
}"""
ROWS = """def f(float(P,F) x, float(K,F) k) -> (y) {
    y(h) +=! k(r,f) * ((h + 2*r) % 3 == 0 && h + 2*r < 3*P ? x((h + 2*r) / 3, f) : 0.0)
        where h in 0:3*P+1
}"""
EVEN = """def f(int32(P) x, int32(K) k) -> (y) {
    y(h) +=! ((h - 2*r) % 4 == 0 && h >= 2*r && h - 2*r < 4*P ? x((h - 2*r) / 4) : 0) * k(r)
        where h in 0:4*P
}"""
CASES: Mapping[str, tuple[str, list[tuple[int, ...]], int]] = {
    "images": (DATA, [(2, 3, 4, 16), (16, 3, 3, 8)], 4),
    "one tap": (DATA, [(1, 3, 2, 8), (8, 1, 1, 8)], 4),
    "rows": (ROWS, [(7, 5), (4, 5)], 3),
    "one row": (ROWS, [(1, 5), (1, 5)], 3),
    "no rows": (ROWS, [(0, 5), (2, 5)], 1),
    "some remainders": (EVEN, [(5,), (3,)], 4),
}


def forced(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    own = [rewrite for rewrite in REWRITES if rewrite.name == name]
    monkeypatch.setattr("tcdsl.plan.search.REWRITES", own)
    monkeypatch.setattr("tcdsl.plan.search.WORTH", inf)


@pytest.mark.slow_but("rows")
@pytest.mark.parametrize("name", CASES)
def test_right(
    name: str, cuda_unit: MakeUnit, check_emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is a sum for each remainder, and results are those of the sum as written."""
    forced(monkeypatch, "a sum for each remainder")
    source, shapes, sums = CASES[name]
    statements = cuda_unit(source, *shapes).done.plan.scop.statements
    assert len({s.name for s in statements if s.name.endswith("_store")}) == sums
    check_emulated([(source, shapes), (source, _special(source, shapes))])


def _special(source: str, shapes: Sequence[tuple[int, ...]]) -> list[Any]:
    """Return inputs with infinities and NaN in each of them, if they have any."""
    arrays = arrays_for(comprehension_of(source), list(shapes), 1)
    for array in arrays:
        if np.issubdtype(array.dtype, np.integer) or not array.size:
            continue
        array.flat[array.size // 2] = nan
        array.flat[array.size // 3] = inf
    return arrays


STRIDE_3 = """def f(TYPE(N,P,F) dO, TYPE(F,K,C) W) -> (dI) {
    dI(n,h,c) +=! ((h + 1 - k >= 0 && h + 1 - k < 3*P && (h + 1 - k) % 3 == 0)
        ? dO(n, (h + 1 - k) / 3, f) : 0) * W(f,k,c) where n in 0:N, h in 0:3*P
}"""
ON_A_CPU: Sequence[tuple[str, list[tuple[int, ...]]]] = [
    *((source, shapes) for source, shapes, _ in CASES.values()),
    (DATA, [(0, 3, 4, 16), (16, 3, 3, 8)]),
    (DATA, [(2, 3, 4, 0), (0, 3, 3, 8)]),
    (DATA, [(2, 3, 4, 16), (16, 3, 3, 1)]),
    (DATA.replace("half", "float"), [(2, 11, 7, 23), (23, 3, 3, 37)]),
    (DATA.replace("half", "float"), [(1, 13, 17, 5), (5, 5, 4, 3)]),
    *(
        (STRIDE_3.replace("TYPE", dtype), [(2, 7, 19), (19, 4, 33)])
        for dtype in ("float", "double", "half", "bfloat16", "int8", "int32")
    ),
]


@pytest.mark.one_in(5)  # each of the options, threads and halves
@pytest.mark.slow_but("None-1-0")
@pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")
@pytest.mark.parametrize("half", range(2))
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(
    "options", [None, Options(summation="compensated"), Options(fuse="none", vectorise=False)]
)
def test_right_on_a_cpu(
    options: Options | None, threads: int, half: int, check_all: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(contraction, "MIN_SPLIT", 0)
    cases = ON_A_CPU[half::2]
    special = [(source, _special(source, shapes)) for source, shapes in cases]
    check_all([*cases, *special], threads=threads, options=options)


def test_a_cpu_splits_all_but_small_sums(compiled: Callable[..., Compiled]) -> None:
    """And their products have panels, without guards."""
    source = DATA.replace("half", "float")
    plan = compiled(source, (4, 28, 28, 128), (128, 3, 3, 128), threads=1).plan
    assert [kernel.template for kernel in plan.kernels].count("cpu_panels") == 4
    small = compiled(source, (1, 2, 2, 2), (2, 2, 2, 2), threads=1).plan
    assert not any(s.name.endswith("_store") for s in small.scop.statements)


@pytest.mark.slow
def test_layers_are_estimated_to_be_faster(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(DATA, (32, 28, 28, 128), (128, 3, 3, 128))
    kernels = [kernel.template for kernel in unit.done.plan.kernels]
    assert kernels.count("tile_implicit") == 4
