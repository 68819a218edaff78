"""Kernels that share a launch: forced, forbidden, refused with a reason, and right."""

from typing import Any

import numpy as np
import pytest

import tcdsl
from tcdsl.emulator.cxx import why_no_cxx_compiler

pytestmark = pytest.mark.skipif(why_no_cxx_compiler() is not None, reason="no C++ compiler")

SOFTMAX = """def softmax(float(M,N) x) -> (y) {
    top(m) max=! x(m,n)
    power(m,n) = exp(x(m,n) - top(m))
    total(m) +=! power(m,n)
    y(m,n) = power(m,n) / total(m)
}"""
THREE = """def f(float(M,N) x, float(K) z, float(A,B) w) -> (s, t, u) {
    s(m) +=! x(m,n)
    t(k) = exp(z(k))
    u(a) max=! w(a,b)
}"""
CHAIN = "def f(float(N) x, float(N) z) -> (s, y) { s +=! x(i) * x(i)\n y(i) = z(i) * s }"
ELEMENTWISE = {"template": "elementwise", "threads_x": 128}


def choices(*kernels: dict[str, Any]) -> dict[str, Any]:
    return {"format": "tcdsl choices", "version": 1, "target": "cuda", "kernels": list(kernels)}


def compiled(source: str, *arrays: Any, asked: dict[str, Any] | None = None) -> Any:
    (f,) = [tcdsl.define(source)[name] for name in tcdsl.define(source).names]
    return f.compile(*arrays, target="emulate", choices=asked)


def random(*shape: int) -> Any:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


@pytest.mark.slow
def test_rows_that_no_block_holds_are_normalised_in_one_launch() -> None:
    x = random(2, 1 << 20)
    plain = compiled(SOFTMAX, x)
    first = plain.choices["kernels"][0]
    last = plain.choices["kernels"][-1]["kernel"]
    name = f"{first['kernel']} then {last}"
    elementwise = {"kernel": last, **ELEMENTWISE, "threads_x": first["threads"]}
    exe = compiled(
        SOFTMAX, x, asked=choices(elementwise, {"kernel": name, "template": "grid_phases"})
    )
    assert len(exe.kernels) == 1 < len(plain.kernels)
    assert "tc_grid_barrier<2, true>" in exe.source
    assert f"launch  {name}: grid_phases" in exe.explain()
    power = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(exe(x), power / power.sum(1, keepdims=True), rtol=1e-5)
    again = compiled(SOFTMAX, x, asked=exe.choices)
    assert again.source == exe.source


def test_independent_kernels_share_the_blocks_of_a_launch() -> None:
    x, z, w = random(40, 2000), random(20_000), random(70, 300)
    rows = [{"kernel": name, "template": "row", "threads": 128} for name in ("S0", "S2")]
    both = {"kernel": "S0 and S1 and S2", "template": "packed"}
    exe = compiled(THREE, x, z, w, asked=choices(*rows, {"kernel": "S1", **ELEMENTWISE}, both))
    (kernel,) = exe.kernels
    assert kernel["grid"][0] > 40 + 70
    s, t, u = exe(x, z, w)
    np.testing.assert_allclose(s, x.sum(1), atol=1e-3)
    np.testing.assert_allclose(t, np.exp(z), rtol=1e-5)
    np.testing.assert_array_equal(u, w.max(1))


def test_what_is_separate_stays_so() -> None:
    x, z, w = random(40, 2000), random(20_000), random(70, 300)
    kept = [{"kernel": f"S0 and S{n}", "template": "separate"} for n in (1, 2)]
    exe = compiled(THREE, x, z, w, asked=choices(*kept))
    assert [one for one in exe.choices["kernels"] if one["template"] == "separate"] == kept


def test_a_launch_that_does_not_fit_is_refused_with_the_reason() -> None:
    x, z = random(300_000), random(300_000)
    cases = [
        ("S0 then S1", {"template": "grid_phases"}, "their blocks differ"),
        ("S0 and S1", {"template": "packed"}, "S1 depends on S0"),
        ("S1 then S0", {"template": "grid_phases"}, "S0 comes first"),
        ("S0 then S7", {"template": "grid_phases"}, "there is no kernel S7"),
        ("S0 then S1", {"template": "packed"}, "there is no such launch"),
    ]
    narrow = {"kernel": "S1", **ELEMENTWISE, "threads_x": 32}
    for name, wanted, why in cases:
        with pytest.raises(tcdsl.TCError, match=why):
            compiled(CHAIN, x, z, asked=choices(narrow, {"kernel": name, **wanted}))


def test_blocks_are_one_wave_of_the_chosen_number() -> None:
    x, z = random(3_000_000), random(3_000_000)
    row = {"kernel": "S0", "template": "row", "threads": 256}
    wide = {"kernel": "S1", **ELEMENTWISE, "threads_x": 256}
    then = {"kernel": "S0 then S1", "template": "grid_phases", "blocks_per_multiprocessor": 1}
    exe = compiled(CHAIN, x, z, asked=choices(row, wide, then))
    found = [c for c in exe.candidates if c["kernel"] == "S0 then S1"]
    assert [c["config"] for c in found if c["is_chosen"]] == [{"blocks_per_multiprocessor": 1}]
    with pytest.raises(tcdsl.TCError, match="is none of"):
        compiled(CHAIN, x, z, asked=choices(row, wide, {**then, "blocks_per_multiprocessor": 3}))


def test_why_kernels_share_no_launch_is_told() -> None:
    x, z = random(300_000), random(300_000)
    exe = compiled(CHAIN, x, z, asked=choices({"kernel": "S1", **ELEMENTWISE}))
    found = [c for c in exe.candidates if c["kernel"] == "S0 then S1"]
    assert found and all(c["template"] == "grid_phases" for c in found)
    assert all(c["predicted_us"] > 0 and not c["is_chosen"] for c in found)
    assert "launch  S0 then S1: not grid_phases" in exe.explain()


SUMS = "def f(float(N) x, float(N) z) -> (s, t) { s +=! x(i) * x(i)\n t +=! z(i) }"
AROUND = """def f(float(M,N) x, float(A,B) w) -> (y, u) {
    s(m) +=! x(m,n)
    y(n) +=! x(m,n) * s(m)
    u(a) max=! w(a,b)
}"""


def test_kernels_with_last_blocks_share_no_blocks() -> None:
    x, z = random(300_000), random(300_000)
    with pytest.raises(tcdsl.TCError, match="the last block has a part of its own"):
        compiled(SUMS, x, z, asked=choices({"kernel": "S0 and S1", "template": "packed"}))


def test_what_lies_between_keeps_its_order() -> None:
    """S1 needs S0: the launch of S0 and S2 comes first."""
    x, w = random(40, 2000), random(70, 300)
    rows = [{"kernel": f"S{n}", "template": "row", "threads": 128} for n in (0, 2)]
    both = {"kernel": "S0 and S2", "template": "packed"}
    exe = compiled(AROUND, x, w, asked=choices(*rows, both))
    assert len(exe.kernels) == 2
    y, u = exe(x, w)
    np.testing.assert_allclose(y, x.T @ x.sum(1), atol=1e-2)
    np.testing.assert_array_equal(u, w.max(1))


def test_blocks_that_wait_have_registers_for_all_that_are_there_at_once() -> None:
    x, z = random(3_000_000), random(3_000_000)
    row = {"kernel": "S0", "template": "row", "threads": 256}
    wide = {"kernel": "S1", **ELEMENTWISE, "threads_x": 256}
    then = {"kernel": "S0 then S1", "template": "grid_phases", "blocks_per_multiprocessor": 2}
    exe = compiled(CHAIN, x, z, asked=choices(row, wide, then))
    assert len(exe.kernels) == 1 and "__launch_bounds__(256, 2)" in exe.source
