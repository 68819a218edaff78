"""The outputs of a call: what the caller gave, what is allocated, what is returned."""

from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.errors import ShapeError
from tcdsl.runtime.results import Results


class _Torch:
    """PyTorch; a test that touches it is skipped where it is not installed."""

    def __getattr__(self, name: str) -> Any:
        return getattr(pytest.importorskip("torch"), name)


torch: Any = _Torch()

F = tcdsl.define("def f(float(N) x) -> (P, float64(N) Q) { P(i) = x(i) Q(i) = x(i) }").f
ADD = tcdsl.define("def f(float(N) x) -> (P, float(N) h) { P(i) = x(i) h(i) += x(i) }").f
X = np.zeros(3, np.float32)


def results(f: Any = F, library: str = "numpy") -> Results:
    return Results(f.comprehension, f.specialise(X), library)


def test_fresh_memory() -> None:
    p, q = results().fresh()
    assert p.shape == q.shape == (3,)
    assert p.dtype == np.float32 and q.dtype == np.float64


def test_given_by_position_and_by_name() -> None:
    p, q = results().fresh()
    for out in ((p, q), [p, q], {"P": p, "Q": q}):
        given = results().given(out)
        assert given["P"] is p and given["Q"] is q
    assert results().given(None) == {} == results().given({"P": None})
    assert list(results().given({"Q": q})) == ["Q"]


@pytest.mark.parametrize("out", [X, (X,), (X, X, X), {"p": X}, ()])
def test_given_wrongly(out: Any) -> None:
    with pytest.raises(ShapeError) as caught:
        results().given(out)
    assert caught.value.code == "TC058"
    assert "P, Q" in (caught.value.hint or "") or "'P'" in (caught.value.hint or "")


def test_what_the_program_reads_first_must_be_given() -> None:
    for out in (None, {"P": X}):
        with pytest.raises(ShapeError) as caught:
            results(ADD).given(out)
        assert caught.value.code == "TC049" and "'h'" in caught.value.message
    assert list(results(ADD).given({"h": X})) == ["h"]


def test_views() -> None:
    p, q = results().fresh()
    views = results().views({"P": p})
    assert views[0] is p and views[1].dtype == np.float64
    strided = np.zeros(6)[::2]
    assert np.shares_memory(results().views({"Q": strided})[1], strided)
    for wrong in (np.zeros(3), np.zeros(4, np.float32), q[:0].astype(np.float32)):
        with pytest.raises(ShapeError):
            results().views({"P": wrong})
    memory = np.zeros(12, np.float32)
    with pytest.raises(ShapeError, match="'Q' cannot be written: it shares memory with out 'P'"):
        results().views({"P": memory[:3], "Q": memory[2:8].view(np.float64)})


def test_delivery() -> None:
    p, q = results().fresh()
    given = np.zeros(3, np.float32)
    delivered = results().delivered({"P": given}, [p, q])
    assert delivered[0] is given and delivered[1] is q
    first, second = results(library="torch").delivered({}, [p, q])
    assert isinstance(first, torch.Tensor) and isinstance(second, torch.Tensor)
    p[:] = 5
    assert bool((first == 5).all()) and results(library="torch").shares_memory()
    assert not results(library="jax").shares_memory()
