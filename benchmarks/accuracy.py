"""How exact long sums are on the GPU, beside PyTorch's, and whether they repeat.

    python benchmarks/accuracy.py

Errors are over the sum of magnitudes, of 2^28 float32; times are medians, the cache not emptied.
"""

from collections.abc import Callable
from statistics import median

import torch

import tcdsl

SUMS = tcdsl.define("""
def all(float(N) x) -> (y) { y +=! x(i) }
def rows(float(M, N) x) -> (y) { y(i) +=! x(i,j) }
def columns(float(M, N) x) -> (y) { y(j) +=! x(i,j) }
""")
N = 1 << 28
REPEATS = 100
DATA: dict[str, Callable[[], torch.Tensor]] = {
    "uniform": lambda: torch.rand(N, device="cuda"),
    "normal": lambda: torch.randn(N, device="cuda"),
    "all 0.1": lambda: torch.full((N,), 0.1, device="cuda"),
}
OPTIONS = {
    "plain": tcdsl.Options(),
    "compensated": tcdsl.Options(summation="compensated"),
    "deterministic": tcdsl.Options(deterministic=True),
    "atomic": tcdsl.Options(cross_block="atomic"),
}


def time_us(call: Callable[[], object]) -> float:
    """Return the median time of *call* on the GPU."""
    times = []
    for _ in range(15):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e3)
    return median(times)


def main() -> None:
    torch.manual_seed(0)
    for name, make in DATA.items():
        x = make()
        exact, scale = x.double().sum().item(), x.double().abs().sum().item()
        print(f"{name}: torch {abs(x.sum().item() - exact) / scale:.1e}", end="")
        for kind in ("plain", "compensated"):
            bound = SUMS.all.compile(x, options=OPTIONS[kind]).bind(x)
            error = abs(bound().item() - exact) / scale
            print(f", {kind} {error:.1e} in {time_us(bound):.0f} us", end="")
        print()
    for name, shape in (
        ("all", (10_000_019,)),
        ("rows", (4, 1_000_003)),
        ("columns", (200_003, 33)),
    ):
        x = torch.randn(shape, device="cuda")
        for kind, options in OPTIONS.items():
            first = SUMS[name](x, options=options).clone()
            same = all(torch.equal(SUMS[name](x, options=options), first) for _ in range(REPEATS))
            print(f"{name}, {kind}: the same bits {REPEATS} times: {same}")


if __name__ == "__main__":
    main()
