"""Places of extreme values in integers that have no -1, or not all places: all were wrong.

-1 said "none yet", so that of places above 127 in int8 the last was kept, whatever came after.
"""

from collections.abc import Callable

import numpy as np
import pytest

import tcdsl
from tcdsl.errors import SemanticError
from tcdsl.testing import check

CheckAll = Callable[..., None]
PLAIN = "def f(float(M,V) x) -> ({t}(V) t) {{ t(v) {op}=! x(m,v) }}"
ROWS = "def f(float(V,M) x) -> ({t}(V) t) {{ t(v) {op}=! x(v,m) }}"
SPREAD = """def f(float(M,V) x, int32(V) i, {t}(W) t) -> (t) {{
    t({at}) {op}=! x(m,v)
}}"""


def cases(op: str) -> list[tuple[str, list[tuple[int, ...]]]]:
    shapes = {PLAIN: [(257, 17), (128, 3), (129, 3), (0, 3)], ROWS: [(17, 257), (3, 129), (2, 0)]}
    return [
        (text.format(t=t, op=op), [shape])
        for text, every in shapes.items()
        for shape in every
        for t in ("int8", "uint8", "int16", "uint64")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_on_the_cpu(op: str, check_all: CheckAll) -> None:
    check_all(cases(op))


@pytest.mark.slow
@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_on_the_emulator(op: str, check_emulated: CheckAll) -> None:
    check_emulated(cases(op))


@pytest.mark.slow_but("int8-2*v", "uint8-i(v)")
@pytest.mark.parametrize("at", ["2*v", "i(v)"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64"])
def test_elements_without_terms_keep_what_they_have(at: str, dtype: str) -> None:
    """2 v leaves out odd elements, which become -1, and those behind its last one, which do not."""
    f = tcdsl.define(SPREAD.format(t=dtype, op="argmax", at=at)).f
    x = np.random.default_rng(0).normal(size=(257, 17)).astype(np.float32)
    i = 2 * np.arange(17, dtype=np.int32)
    start = np.full(40, 7, dtype)
    check(f, x, i, start, targets=("cpu", "emulate"), out=start.copy())
    kept = f(x, i, start.copy(), target="reference")[33:]
    assert (kept == (7 if at == "2*v" else np.array(-1).astype(dtype))).all()


def test_places_that_are_read_are_int64() -> None:
    text = "def f(float(M,V) x) -> ({t}(V) t) {{ t(0) = 1 t(v) argmax=! x(m,v) * t(v-1) }}"
    with pytest.raises(SemanticError, match="reads t, whose type int8 may not hold every place"):
        tcdsl.define(text.format(t="int8"))
    f = tcdsl.define(text.format(t="int64")).f
    x = np.random.default_rng(0).normal(size=(257, 17)).astype(np.float32)
    check(f, x, targets=("cpu", "emulate"))
