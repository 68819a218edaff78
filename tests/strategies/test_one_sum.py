"""Products of one sum in one kernel: that they are right, and when they are apart."""

from typing import Any

import pytest

from tcdsl.costmodel.chip import load_chip
from tcdsl.testing.comparison import check
from tests.strategies.tile_configs import (
    CONFIGS,
    FEW,
    MakeUnit,
    asked,
    inputs_of,
    kernels_of,
    planned,
)

SUMS = {
    "of products": (
        """def f(bfloat16(M,K) x, bfloat16(K,N) w, bfloat16(M,K) u, bfloat16(K,N) v)
            -> (bfloat16(M,N) y) { y(m,n) +=! x(m,k) * w(k,n) + u(m,k) * v(k,n) }""",
        lambda m, n, k: [(m, k), (k, n), (m, k), (k, n)],
    ),
    "of three": (
        """def f(half(M,K) x, half(K,N) w, half(M,K) u, half(K,N) v) -> (y) {
            y(m,n) +=! x(m,k) * w(k,n) + u(m,k) * v(k,n) + w(k,n) * u(m,k)
        }""",
        lambda m, n, k: [(m, k), (k, n), (m, k), (k, n)],
    ),
    "an update": (
        """def f(half(M,K) x, half(N,K) w, half(M,J) u, half(N,J) v) -> (float(M,N) y, z) {
            y(m,n) +=! x(m,k) * w(n,k)
            y(m,n) += u(m,j) * v(n,j)
            z(m,n) = fmax(y(m,n), 0.0)
        }""",
        lambda m, n, k: [(m, k), (n, k), (m, 2 * k), (n, 2 * k)],
    ),
    "gates": (
        """def f(half(B,I) x, half(I,N) w, half(B,H) h, half(H,N) u, float(N) c) -> (half(B,N) y) {
            a(b,n) +=! float(x(b,i)) * w(i,n)
            a(b,n) += float(h(b,j)) * u(j,n)
            y(b,n) = tanh(a(b,n) + c(n))
        }""",
        lambda m, n, k: [(m, k), (k, n), (m, 56), (56, n), (n,)],
    ),
}  # fmt: skip


def test_one_sum_has_one_product_in_its_loop(cuda_unit: MakeUnit) -> None:
    source, shapes_for = SUMS["of products"]
    unit = cuda_unit(source, *shapes_for(4096, 4096, 4096))
    assert kernels_of(unit) == ["S0+S0_term0+S0_part0_fold"]
    assert unit.source.text.count("tc_copy_box<") == 4
    assert unit.source.text.count("tc_wgmma<") == 1
    assert "c3 <= 127" in unit.source.text and "tc_leave_products<1>" in unit.source.text


BETWEEN = """def f(half(M,K) x, half(K,N) w, half(M,K) u, half(K,N) v)
    -> (half(M,K) h, float(M,N) y) {
    y(m,n) +=! x(m,k) * w(k,n)
    h(m,k) = fmax(u(m,k), 0.0)
    y(m,n) += h(m,k) * v(k,n)
}"""


def test_a_factor_that_is_computed_between_two_products(cuda_unit: MakeUnit, emulated: Any) -> None:
    """All is done where the last product was: what comes before it are its factors."""
    shapes = [(136, 264), (264, 136), (136, 264), (264, 136)]
    unit = cuda_unit(BETWEEN, *shapes)
    assert sorted(kernels_of(unit)) == ["S0+S2", "S1"] and not unit.done.is_fallback
    (program,) = emulated([unit])
    check(program, *inputs_of(unit, shapes))


@pytest.mark.slow_but("h")
@pytest.mark.parametrize("second", ["h", "u"])
def test_a_factor_that_changes_between_two_products(second: str, cuda_unit: MakeUnit) -> None:
    """Whether or not the second product reads it, too: the first cannot run where that does."""
    source = BETWEEN.replace("half(M,K) x,", "half(M,K) h, half(M,K) x,").replace("+=! x", "+=! h")
    source = source.replace("+= h(m,k)", f"+= {second}(m,k)")
    unit = cuda_unit(source, (264, 520), (264, 520), (520, 136), (264, 520), (520, 136))
    assert not any({"S0", "S2"} <= {*name.split("+")} for name in kernels_of(unit))
    assert not unit.done.is_fallback


@pytest.mark.one_in(3)  # each form, each way
@pytest.mark.slow
@pytest.mark.parametrize("form", SUMS)
@pytest.mark.parametrize("way", CONFIGS)
def test_one_sum(
    way: str, form: str, cuda_unit: MakeUnit, emulated: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tcdsl.plan.search.WORTH", 1e3)  # else only where sums are long
    gpu = FEW if way == "persistent" else load_chip("h200")
    (source, shapes_for), units, inputs = SUMS[form], [], []
    for size in ((312, 72, 264),) if way == "persistent" else ((128, 128, 128), (137, 136, 136)):
        shapes = shapes_for(*size)
        bare = planned(source, *shapes, gpu=gpu)
        assert len(kernels_of(bare)) == 1
        units.append(cuda_unit(source, *shapes, gpu=gpu, options=asked(bare, CONFIGS[way])))
        assert not units[-1].done.is_fallback
        assert any("of one sum" in why for why in units[-1].done.plan.kernels[0].why)
        inputs.append(inputs_of(units[-1], shapes))
    for program, own in zip(emulated(units), inputs, strict=True):
        check(program, *own)


def test_small_ones_are_a_chain(cuda_unit: MakeUnit) -> None:
    source, shapes_for = SUMS["gates"]
    unit = cuda_unit(source, *shapes_for(128, 128, 128))
    assert [kernel.template for kernel in unit.done.plan.kernels] == ["product_chain"]
