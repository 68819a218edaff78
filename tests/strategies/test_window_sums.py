"""Short sums over windows, a result a thread: depthwise convolutions, and those of few channels."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from tcdsl.options import Options
from tcdsl.strategies.templates import elementwise

MakeUnit = Callable[..., Any]

DEPTHWISE = """def f(half(N,C,H,W) I, half(C,3,3) K) -> (O) {
    O(n,c,h,w) +=! ((h + kh >= 1 && h + kh - 1 < H && w + kw >= 1 && w + kw - 1 < W)
        ? I(n, c, h + kh - 1, w + kw - 1) : 0) * K(c,kh,kw) where n in 0:N, h in 0:H, w in 0:W
}"""
CHANNELS_LAST = """def f({0}(N,H,W,C) I, {0}(3,3,C) K) -> (O) {{
    O(n,h,w,c) +=! ((h + r >= 1 && h + r - 1 < H && {1} * w + s >= 1 && {1} * w + s - 1 < W)
        ? I(n, h + r - 1, {1} * w + s - 1, c) : 0) * K(r,s,c)
        where n in 0:N, h in 0:H, w in 0:W/{1}
}}"""
SMOOTHED = "def f(float(M,N) x, float(5) k) -> (y) { y(i,j) +=! x(i,j+t) * k(t) }"


def templates(unit: Any) -> list[str]:
    return [kernel.template for kernel in unit.done.plan.kernels]


def test_threads_are_along_neighbouring_results(cuda_unit: MakeUnit) -> None:
    assert templates(cuda_unit(DEPTHWISE, (32, 64, 56, 56), (64, 3, 3))) == ["elementwise"]


def test_a_thread_has_several_neighbouring_results(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit(CHANNELS_LAST.format("bfloat16", 1), (32, 28, 28, 192), (3, 3, 192))
    (weighed,) = unit.done.plan.weighed
    found = [c for c in weighed.candidates() if "predicted_us" in c]
    chosen = min(found, key=lambda c: float(c["predicted_us"]))
    assert chosen["config"]["points"] * chosen["config"]["rows"] > 1
    assert chosen["config"]["vector"] >= 4
    alone = [c for c in found if c["config"].get("points") == c["config"].get("rows") == 1]
    assert 1.5 * chosen["predicted_us"] < min(c["predicted_us"] for c in alone)


def test_results_that_read_nothing_alike_are_of_several_threads(cuda_unit: MakeUnit) -> None:
    unit = cuda_unit("def f(float(M,4,N) x) -> (y) { y(i,j) +=! x(i,k,j) }", (512, 4, 4096))
    configs = [c.get("config", {}) for w in unit.done.plan.weighed for c in w.candidates()]
    assert {config.get("points", 1) * config.get("rows", 1) for config in configs} == {1}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "half", "float"])
@pytest.mark.parametrize("stride", [1, 2])
def test_several_results_are_right(
    dtype: str,
    stride: int,
    cuda_unit: MakeUnit,
    check_emulated: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(elementwise, "LEAST_THREADS", 1e-6)
    source, shapes = CHANNELS_LAST.format(dtype, stride), [(2, 4, 12, 16), (3, 3, 16)]
    found: dict[tuple[int, int], dict[str, Any]] = {}
    for weighed in cuda_unit(source, *shapes).done.plan.weighed:
        for candidate in weighed.candidates():
            config = candidate.get("config", {})
            if config.get("points", 1) * config.get("rows", 1) > 1:
                choice = {"kernel": weighed.kernel, "template": "elementwise", **config}
                found.setdefault((config["points"], config["rows"]), choice)
    points = {2, 3, 4, 6} if stride == 1 else {2, 3, 6}
    assert set(found) == {(1, 2), (1, 4), *((count, 1) for count in points)}
    for choice in found.values():
        own = {"format": "tcdsl choices", "version": 1, "kernels": [choice]}
        options = Options(choices=own)  # type: ignore[arg-type]
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what is compiled as written is right as well
            assert templates(cuda_unit(source, *shapes, options=options)) == ["elementwise"]
        check_emulated([(source, shapes)], options=options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "shapes"),
    [
        (DEPTHWISE, [(2, 3, 5, 7), (3, 3, 3)]),
        (DEPTHWISE, [(1, 1, 1, 1), (1, 3, 3)]),
        (DEPTHWISE, [(2, 0, 5, 7), (0, 3, 3)]),
        (SMOOTHED, [(3, 71), (5,)]),
        (SMOOTHED, [(13, 6), (5,)]),
    ],
)
def test_right(
    source: str, shapes: list[tuple[int, ...]], cuda_unit: MakeUnit, check_emulated: Any
) -> None:
    for weighed in cuda_unit(source, *shapes).done.plan.weighed:
        found = [c for c in weighed.candidates() if c["template"] == "elementwise"]
        for candidate in found[:1] + found[-1:]:
            choice = {"kernel": weighed.kernel, "template": "elementwise", **candidate["config"]}
            own = {"format": "tcdsl choices", "version": 1, "kernels": [choice]}
            options = Options(choices=own)  # type: ignore[arg-type]
            assert templates(cuda_unit(source, *shapes, options=options)) == ["elementwise"]
            check_emulated([(source, shapes)], options=options)
    check_emulated([(source, shapes)])
