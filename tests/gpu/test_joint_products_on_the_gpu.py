"""Several products in one kernel, on a GPU."""

import numpy as np
import pytest

import tcdsl
from tcdsl.lang.types.dtypes import BFLOAT16, FLOAT16
from tcdsl.testing import check
from tcdsl.testing.random_inputs import values

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("error::tcdsl.errors.TCWarning")]

SOURCES = {
    "nn": """def f({t}(M,K) x, {t}(K,N) w, {t}(K,N) v) -> ({t}(M,N) y) {{
        a(m,n) +=! x(m,k) * w(k,n)
        b(m,n) +=! x(m,k) * v(k,n)
        y(m,n) = float(a(m,n)) * sigmoid(float(a(m,n))) * b(m,n)
    }}""",
    "nt": """def f({t}(M,K) x, {t}(N,K) w, {t}(N,K) v) -> ({t}(M,N) y) {{
        a(m,n) +=! x(m,k) * w(n,k)
        b(m,n) +=! x(m,k) * v(n,k)
        y(m,n) = float(a(m,n)) * sigmoid(float(a(m,n))) * b(m,n)
    }}""",
    "sum": """def f({t}(M,K) x, {t}(K,N) w, {t}(M,K) u, {t}(K,N) v) -> (float(M,N) y) {{
        y(m,n) +=! x(m,k) * w(k,n)
        y(m,n) += u(m,k) * v(k,n)
    }}""",
}
SIZES = [(1024, 256, 64), (200, 328, 200), (312, 136, 264)]


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("form", SOURCES)
def test_on_the_gpu(form: str, size: tuple[int, int, int]) -> None:
    m, n, k = size
    dtype = FLOAT16 if form == "nt" else BFLOAT16
    right = (n, k) if form == "nt" else (k, n)
    shapes = [(m, k), right, (m, k), right] if form == "sum" else [(m, k), right, right]
    inputs = [values(dtype, shape, "real", number) for number, shape in enumerate(shapes)]
    f = tcdsl.define(SOURCES[form].format(t=dtype.name)).f
    exe = f.compile(*inputs, target="cuda")
    assert [kernel["template"] for kernel in exe.choices["kernels"]] == ["tile_mma"]
    check(f, *inputs, targets=("cuda",))
    assert np.array_equal(*(np.asarray(exe(*inputs)).view(np.uint8) for _ in range(2)))
