"""Products with a factor that a third array masks: planning failed, for tensor cores as well.

Such a mask is a condition of the copy of the factor's tile, as a window's edge is.
"""

from collections.abc import Callable

import pytest

import tcdsl

CheckEmulated = Callable[..., None]
SOURCE = """def f({t}(K,M) A, {t}(K,N) B, float(K,N) mask) -> (C) {{
    C(m,n) +=! A(k,m) * (mask(k,n) > 0.0 ? B({k},n) : 0.0)
}}"""

pytestmark = pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")


@pytest.mark.parametrize("dtype", ["bfloat16", "half", "float"])
@pytest.mark.parametrize("k", ["k", "K - 1 - k"])
def test_results(dtype: str, k: str, check_emulated: CheckEmulated) -> None:
    source = SOURCE.format(t=dtype, k=k)
    check_emulated([(source, [(300, 70), (300, 90), (300, 90)])])


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_tensor_cores_multiply_it(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the masked factor is not computed first, which at these sizes is predicted faster."""
    monkeypatch.setattr("tcdsl.plan.search.OF_FACTORS", ())
    f = tcdsl.define(SOURCE.format(t=dtype, k="k")).f
    types = dtype, dtype, "float32"
    specs = [tcdsl.spec((300, n), t) for n, t in zip((70, 90, 90), types, strict=True)]
    exe = f.compile(*specs, target="emulate")
    assert [k["template"] for k in exe.choices["kernels"]] == ["tile_implicit"]
    assert "tc_mma" in exe.source or "tc_wgmma" in exe.source
