"""Products with a factor that a third array masks: planning failed, for tensor cores as well.

Such a mask is a condition of the copy of the factor's tile, as a window's edge is.
"""

from collections.abc import Callable
from typing import Any

import pytest

CheckEmulated = Callable[..., None]
SOURCE = """def f({t}(K,M) A, {t}(K,N) B, float(K,N) mask) -> (C) {{
    C(m,n) +=! A(k,m) * (mask(k,n) > 0.0 ? B({k},n) : 0.0)
}}"""

pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")


@pytest.mark.slow_but("K - 1 - k-half")
@pytest.mark.parametrize("dtype", ["bfloat16", "half", "float"])
@pytest.mark.parametrize("k", ["k", "K - 1 - k"])
def test_results(dtype: str, k: str, check_emulated: CheckEmulated) -> None:
    source = SOURCE.format(t=dtype, k=k)
    check_emulated([(source, [(300, 70), (300, 90), (300, 90)])])


@pytest.mark.parametrize("dtype", ["bfloat16", "half"])
def test_tensor_cores_multiply_it(
    dtype: str, cuda_unit: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tcdsl.plan.search.OF_FACTORS", ())  # it is not computed first
    unit = cuda_unit(SOURCE.format(t=dtype, k="k"), (900, 700), (900, 500), (900, 500))
    assert unit.done.plan.kernels[0].template == "tile_implicit"  # chunks of terms may follow
    assert "tc_mma" in unit.source.text or "tc_wgmma" in unit.source.text
